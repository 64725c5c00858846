"""CSV files: detects encoding, delimiter and decimal mark, and converts cells to numbers."""

import codecs
import csv
import io
import re
from collections.abc import Iterator, Sequence
from itertools import islice, repeat
from typing import BinaryIO, NamedTuple

import numpy as np

from dagp.cli.app import InputError, NotNumericError

CHUNK = 16384
"""Rows that are read at a time."""
_SAMPLE = 1 << 16
"""Characters at the start of a file from which the format is detected."""
_DELIMITERS = (",", ";", "\t", "|", " ")
_MISSING = {"", "na", "n/a", "#n/a", "nan", "null", "none"}
_DOT = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?")
# Dots group digits only where a comma follows: otherwise they could be decimal points.
_COMMA = re.compile(r"[+-]?(\d{1,3}(\.\d{3})+(?=,)|\d+(?![.\d])|(?=,\d))(,\d*)?([eE][+-]?\d+)?")


class Part(NamedTuple):
    """Consecutive rows of a table as numbers, NaN where a cell is empty."""

    rows: np.ndarray
    """Line number of each row in the file, as editors and spreadsheets show it."""
    values: np.ndarray


class CsvTable:
    """A table in a text file, read in parts of `CHUNK` rows."""

    def __init__(self, name: str, file: BinaryIO, delimiter: str | None, decimal: str | None):
        self.name, self._file = name, file
        self.notes: list[str] = []
        self._encoding = self._find_encoding()
        rows = self._sniff(delimiter)
        if not rows:
            raise InputError(f"{name} is empty.")
        self._width = len(rows[0])
        self._decimal = decimal or _find_decimal(rows[1:] or rows)
        self._headless = all(_number(cell, self._decimal) is not None for cell in rows[0])
        names = [""] * self._width if self._headless else rows[0]
        self.columns = [n.strip() or f"column_{i}" for i, n in enumerate(names, 1)]
        if self._headless:
            ends = f"{self.columns[0]} to {self.columns[-1]}"
            self.notes.append(f"{name} has no header; its columns are called {ends}.")
        if self._decimal == ",":
            self.notes.append(f"{name} is read with decimal commas.")

    def parts(self, wanted: Sequence[str]) -> Iterator[Part]:
        """Iterate over the wanted columns in parts of `CHUNK` rows."""
        places = [self.columns.index(name) for name in wanted]
        cells, numbers = [], []
        for number, row in islice(self._rows(), 0 if self._headless else 1, None):
            if len(row) != self._width:
                self._check_width(row, number)
            cells.append([row[place] for place in places])
            numbers.append(number)
            if len(cells) == CHUNK:
                yield self._part(cells, numbers, wanted)
                cells, numbers = [], []
        if cells:
            yield self._part(cells, numbers, wanted)

    def _find_encoding(self) -> str:
        """UTF-16 by its byte order mark, UTF-8 if the whole file decodes, Latin-1 otherwise."""
        decoder, block = codecs.getincrementaldecoder("utf-8")(), self._file.read(4)
        if block.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
            return "utf-16"
        try:
            while block:
                self._check_text(block)
                decoder.decode(block)
                block = self._file.read(1 << 20)
            decoder.decode(b"", final=True)
        except UnicodeDecodeError:
            self.notes.append(f"{self.name} is not UTF-8; it is read as Latin-1.")
            return "latin-1"
        return "utf-8-sig"

    def _check_text(self, block: bytes) -> None:
        """Raise InputError for bytes that cannot be text."""
        if block.startswith(b"PK\x03\x04"):
            hint = "it looks like a spreadsheet or a zip archive; export it as CSV"
        elif block.startswith(b"\x1f\x8b"):
            hint = "it is compressed; unpack it first"
        elif b"\0" in block:
            hint = "it holds binary data"
        else:
            return
        raise InputError(f"{self.name} is not a text file: {hint}.")

    def _sniff(self, delimiter: str | None) -> list[list[str]]:
        """The first rows; sets the delimiter, detected if not given."""
        self._delimiter = delimiter or ","
        text = self._text()
        lines = text.read(_SAMPLE)
        text.detach()
        if len(lines) == _SAMPLE and "\n" in lines:
            lines = lines[: lines.rindex("\n")]
        if delimiter is None:
            self._delimiter = max(_DELIMITERS, key=lambda d: _score(_split(lines, d)))
        return _split(lines, self._delimiter)

    def _text(self) -> io.TextIOWrapper:
        self._file.seek(0)
        return io.TextIOWrapper(self._file, self._encoding, newline="")

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

    def _check_width(self, row: list[str], number: int) -> None:
        """Raise InputError for a row of another length; empty cells at its end are ignored."""
        if len(row) > self._width and not any(cell.strip() for cell in row[self._width :]):
            return
        hint = ""
        if self._delimiter == "," and len(row) == 2 * self._width:
            hint = " Are these decimal commas? Then the columns need another delimiter."
        raise InputError(
            f"{self.name}, row {number} has {len(row)} cells, the first row has {self._width}."
            f" The delimiter is {self._delimiter!r}; --delimiter sets another.{hint}"
        )

    def _part(self, cells: list[list[str]], numbers: list[int], wanted: Sequence[str]) -> Part:
        """Cells as numbers; an error names the row and the column."""
        try:
            if self._decimal == "," or any("_" in cell for row in cells for cell in row):
                raise ValueError
            values = np.array([[float(cell) for cell in row] for row in cells])
        except ValueError:
            # Some cell is not a plain number: cell by cell, to locate it.
            rows = zip(cells, numbers, strict=True)
            values = np.array([list(map(self._cell, row, wanted, repeat(n))) for row, n in rows])
        values = values.reshape(len(cells), len(wanted))
        if np.isinf(values).any():
            row, column = np.argwhere(np.isinf(values))[0]
            where = f"{self.name}, row {numbers[row]}, column {wanted[column]!r}"
            raise InputError(f"{where}: {cells[row][column].strip()!r} is infinite.")
        return Part(np.array(numbers), values)

    def _cell(self, cell: str, column: str, number: int) -> float:
        """The number in a cell, NaN for a missing one."""
        value = _number(cell, self._decimal)
        if value is not None:
            return value
        if cell.strip().lower() in _MISSING:
            return np.nan
        hint = " (--decimal , reads decimal commas)" if _number(cell, ",") is not None else ""
        where = f"{self.name}, row {number}, column {column!r}"
        raise NotNumericError(f"{where}: {cell.strip()[:60]!r} is not a number{hint}.")


def _blank(row: list[str]) -> bool:
    return len(row) < 2 and not any(cell.strip() for cell in row)


def _split(text: str, delimiter: str) -> list[list[str]]:
    """Rows of a text without blank lines; none if the text is no CSV with this delimiter."""
    reader = csv.reader(io.StringIO(text), delimiter=delimiter, skipinitialspace=True)
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
    numeric = np.mean([_number(c, ".") is not None or _number(c, ",") is not None for c in cells])
    return (float(even > 0.9), float(numeric) if cells else 0.0)


def _find_decimal(rows: list[list[str]]) -> str:
    """The decimal mark with which more cells are numbers."""
    cells = [cell for row in rows for cell in row]
    dots, commas = (sum(_number(c, mark) is not None for c in cells) for mark in ".,")
    return "," if commas > dots else "."


def _number(cell: str, decimal: str) -> float | None:
    """The number in a cell, None if it is not a number.

    >>> _number("1.234,5", ","), _number(" 2e3 ", "."), _number("1,5", ".")
    (1234.5, 2000.0, None)
    """
    text = cell.strip()
    if decimal == "," and _COMMA.fullmatch(text):
        return float(text.replace(".", "").replace(",", "."))
    if decimal == "." and _DOT.fullmatch(text):
        return float(text)
    return None
