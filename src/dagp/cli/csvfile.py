"""CSV files: detects encoding, delimiter, decimal mark and kinds of columns, and reads the cells.

Rows are read by pyarrow where it is installed and every row is one line (`arrowcsv`), otherwise by
the reader here, which knows the line of every cell and names the first that is wrong.
"""

import csv
import io
from collections.abc import Iterator
from itertools import islice
from typing import BinaryIO

import numpy as np

from dagp.cli import arrowcsv
from dagp.cli.app import InputError, NotNumericError
from dagp.cli.cells import CellError, Kind, Part, Request, convert, copied, kind_of, number
from dagp.cli.encoding import survey_bytes
from dagp.core.text import quoted

CHUNK = 16384
"""Rows that are read at a time."""
_SAMPLE = 1 << 16
"""Characters at the start of a file from which the format is detected."""
_DELIMITERS = (",", ";", "\t", "|", " ")


class CsvTable:
    """A table in a text file, read in parts of `CHUNK` rows."""

    def __init__(self, name: str, file: BinaryIO, delimiter: str | None, decimal: str | None):
        self.name, self._file = name, file
        self._bytes = survey_bytes(name, file)
        self.notes = list(self._bytes.notes)
        rows = self._sniff(delimiter)
        if not rows:
            raise InputError(f"{name} is empty.")
        self._width = len(rows[0])
        self.decimal = decimal or _find_decimal(rows[1:] or rows)
        self._headless = all(number(cell, self.decimal) is not None for cell in rows[0])
        names = [""] * self._width if self._headless else rows[0]
        self.columns = [n.strip() or f"column_{i}" for i, n in enumerate(names, 1)]
        self._sample = rows if self._headless else rows[1:]
        if self._headless:
            ends = f"{self.columns[0]} to {self.columns[-1]}"
            self.notes.append(f"{name} has no header; its columns are called {ends}.")
        if self.decimal == ",":
            self.notes.append(f"{name} is read with decimal commas.")

    def kind(self, name: str) -> Kind:
        """What a column holds, judged by the first rows."""
        place = self.columns.index(name)
        cells = [row[place] for row in self._sample if len(row) > place]
        return kind_of(cells, self.decimal)

    def parts(self, request: Request) -> Iterator[Part]:
        """Iterate over the columns of a request in parts of `CHUNK` rows."""
        read = 0
        try:
            for part in self._fast_parts(request):
                read += len(part.rows)
                yield part
        except arrowcsv.UnusualFileError:
            yield from self._slow_parts(request, read)

    def _fast_parts(self, request: Request) -> Iterator[Part]:
        """Parts read by pyarrow; raises UnusualFileError where that cannot be done."""
        plain = self._bytes.one_row_per_line and self._delimiter.isascii()
        if not plain or self._delimiter == " " or not arrowcsv.available():
            raise arrowcsv.UnusualFileError
        yield from arrowcsv.parts(
            arrowcsv.Format(
                self._file,
                self._bytes.encoding,
                self._delimiter,
                self.decimal,
                self.columns,
                not self._headless,
            ),
            request,
            CHUNK,
        )

    def _slow_parts(self, request: Request, skip: int) -> Iterator[Part]:
        """Parts read cell by cell, without the first `skip` rows."""
        first = skip + (0 if self._headless else 1)
        rows, lines = [], []
        for line, row in islice(self._rows(), first, None):
            if len(row) != self._width:
                self._check_width(row, line)
            rows.append(row)
            lines.append(line)
            if len(rows) == CHUNK:
                yield self._part(rows, lines, request)
                rows, lines = [], []
        if rows:
            yield self._part(rows, lines, request)

    def _sniff(self, delimiter: str | None) -> list[list[str]]:
        """The first rows; sets the delimiter, detected if not given."""
        self._delimiter = delimiter or ","
        text = self._text()
        sample = text.read(_SAMPLE)
        text.detach()
        if len(sample) == _SAMPLE:
            # The last line is incomplete, unless it is the only one.
            sample = sample[: max(sample.rfind("\n"), sample.rfind("\r"))] or sample
        if delimiter is None:
            self._delimiter = max(_DELIMITERS, key=lambda d: _score(_split(sample, d)))
        return _split(sample, self._delimiter)

    def _text(self) -> io.TextIOWrapper:
        self._file.seek(0)
        return io.TextIOWrapper(self._file, self._bytes.encoding, newline="")

    def _rows(self) -> Iterator[tuple[int, list[str]]]:
        """Rows with their line numbers, without blank lines."""
        text = self._text()
        reader = csv.reader(text, delimiter=self._delimiter, skipinitialspace=True)
        try:
            yield from ((reader.line_num, row) for row in reader if not _blank(row))
        except (csv.Error, UnicodeError) as error:
            where = f"{self.name}, row {reader.line_num}"
            raise InputError(f"{where} cannot be read: {error}.") from error
        finally:
            text.detach()

    def _check_width(self, row: list[str], line: int) -> None:
        """Raise InputError for a row of another length; empty cells at its end are ignored."""
        if len(row) > self._width and not any(cell.strip() for cell in row[self._width :]):
            return
        hint = ""
        if self._delimiter == "," and len(row) == 2 * self._width:
            hint = " Are these decimal commas? Then the columns need another delimiter."
        raise InputError(
            f"{self.name}, row {line} has {len(row)} cells, the first row has {self._width}."
            f" The delimiter is {quoted(self._delimiter)}; --delimiter sets another.{hint}"
        )

    def _part(self, rows: list[list[str]], lines: list[int], request: Request) -> Part:
        """Cells of some rows; an error names the line and the column of the first wrong one."""
        columns, wrong = {}, []
        places = {name: self.columns.index(name) for name in request.names}
        cells = {name: [row[place] for row in rows] for name, place in places.items()}
        for name, kind in request.kinds.items():
            try:
                columns[name] = convert(cells[name], kind, self.decimal)
            except CellError as error:
                wrong.append((error.index, name, error))
        if wrong:
            index, name, error = min(wrong, key=lambda found: found[0])
            message = f"{self.name}, row {lines[index]}, column {quoted(name)}: {error}."
            if error.not_number:
                raise NotNumericError(message, name) from error
            raise InputError(message) from error
        copies = {name: copied(cells[name], self.decimal) for name in request.copied}
        return Part(np.array(lines), columns, copies)


def _blank(row: list[str]) -> bool:
    return len(row) < 2 and not any(cell.strip() for cell in row)


def _split(text: str, delimiter: str) -> list[list[str]]:
    """Rows of a text without blank lines; none if the text is no CSV with this delimiter."""
    lines = io.StringIO(text, newline="")
    reader = csv.reader(lines, delimiter=delimiter, skipinitialspace=True)
    try:
        return [row for row in reader if not _blank(row)]
    except csv.Error:
        return []


def _score(rows: list[list[str]]) -> tuple[float, float]:
    """How well a delimiter fits: whether rows have equal lengths, and the share of numbers."""
    width = len(rows[0]) if rows else 0
    even = np.mean([len(row) == width for row in rows]) if rows else 0.0
    if width < 2 or even < 0.5:
        return (0.0, 0.0)
    cells = [cell for row in rows[1:] or rows for cell in row if cell.strip()]
    numeric = [number(c, ".") is not None or number(c, ",") is not None for c in cells]
    return (float(even > 0.9), float(np.mean(numeric)) if cells else 0.0)


def _find_decimal(rows: list[list[str]]) -> str:
    """The decimal mark with which more cells are numbers."""
    cells = [cell for row in rows for cell in row]
    dots, commas = (sum(number(c, mark) is not None for c in cells) for mark in ".,")
    return "," if commas > dots else "."
