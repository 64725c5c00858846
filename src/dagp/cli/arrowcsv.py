"""Reads CSV files with pyarrow, many times faster than cell by cell.

It gives up on anything unusual (`UnusualFileError`): the reader of `csvfile` continues there and
locates the cell if one is wrong. The line of a row follows from its number, so every row must be
one line.
"""

import importlib.util
import os
from collections.abc import Iterator
from typing import Any, BinaryIO, NamedTuple

import numpy as np

from dagp.cli.cells import MISSING, CellError, Kind, Part, Request, convert, copied, joined

_BLOCK = 1 << 22
_MISSING = sorted({form(word) for word in MISSING for form in (str.lower, str.upper, str.title)})
"""Frequent spellings; pyarrow distinguishes upper and lower case."""
_MISSING += ["NaN", "#N/a", "N/a"]


class UnusualFileError(Exception):
    """Something that pyarrow does not read, or not as we do."""


class Format(NamedTuple):
    """How the rows of a file are written."""

    file: BinaryIO
    encoding: str
    delimiter: str
    decimal: str
    columns: list[str]
    has_header: bool


def available() -> bool:
    """Whether pyarrow is installed."""
    return importlib.util.find_spec("pyarrow") is not None


def parts(source: Format, request: Request, rows: int) -> Iterator[Part]:
    """Iterate over the table in parts of this many rows; raises `UnusualFileError`."""
    waiting: list[Part] = []
    for batch in _batches(source, request):
        waiting.append(batch)
        if sum(len(part.rows) for part in waiting) < rows:
            continue
        whole = joined(waiting)
        ready = len(whole.rows) // rows * rows
        for first in range(0, ready, rows):
            yield whole.select(slice(first, first + rows))
        waiting = [whole.select(slice(ready, None))]
    rest = joined(waiting) if waiting else None
    if rest is not None and len(rest.rows):
        yield rest


def _batches(source: Format, request: Request) -> Iterator[Part]:
    """Consecutive blocks of the file."""
    import pyarrow as pa

    line = 2 if source.has_header else 1
    try:
        for batch in _reader(source, request):
            read = dict(zip(request.names, batch.columns, strict=True))
            rows = np.arange(line, line + batch.num_rows)
            columns = {n: _column(read[n], kind, source) for n, kind in request.kinds.items()}
            copies = {n: _converted(read[n], None, source.decimal) for n in request.copied}
            yield Part(rows, columns, copies)
            line += batch.num_rows
    except (pa.ArrowException, UnicodeError, CellError) as error:
        raise UnusualFileError from error


def _reader(source: Format, request: Request) -> Any:
    import pyarrow as pa
    from pyarrow import csv

    # Columns are known by their places: names may occur twice.
    places = {name: str(source.columns.index(name)) for name in request.names}
    numbers = {n for n, kind in request.kinds.items() if kind is Kind.number}
    numbers -= set(request.copied)
    types = {place: pa.float64() if n in numbers else pa.string() for n, place in places.items()}
    return csv.open_csv(
        _opened_again(source.file),
        csv.ReadOptions(
            block_size=_BLOCK,
            skip_rows=int(source.has_header),
            column_names=[str(i) for i in range(len(source.columns))],
            encoding="utf8" if source.encoding == "utf-8-sig" else source.encoding,
        ),
        csv.ParseOptions(delimiter=source.delimiter),
        csv.ConvertOptions(
            check_utf8=False,
            include_columns=list(places.values()),
            column_types=types,
            null_values=_MISSING,
            decimal_point=source.decimal,
        ),
    )


def _opened_again(file: BinaryIO) -> Any:
    """The same file, read by pyarrow itself.

    Its threads read ahead, and go on for a moment when it has given up. If they read through an
    object of Python, one that still does so when the interpreter ends would abort the process.
    """
    import pyarrow as pa

    # Where a number stands for a file, its position may be that of the file.
    file.seek(0)
    for name in (file.name, f"/dev/fd/{file.fileno()}"):
        if isinstance(name, str) and os.path.exists(name):
            again = pa.OSFile(name, mode="r")
            if os.path.samestat(os.fstat(again.fileno()), os.fstat(file.fileno())):
                return again
            again.close()
    raise UnusualFileError


def _column(cells: Any, kind: Kind, source: Format) -> np.ndarray:
    if cells.type == "string":
        return _converted(cells, kind, source.decimal)
    values = cells.to_numpy(zero_copy_only=False)
    if np.isinf(values).any():
        raise UnusualFileError
    return values


def _converted(cells: Any, kind: Kind | None, decimal: str) -> np.ndarray:
    """Cells of text as what they stand for, or as copies; every different text is read once."""
    encoded = cells.dictionary_encode()
    texts = encoded.dictionary.to_pylist()
    if any(text.lstrip().startswith('"') for text in texts):
        raise UnusualFileError  # a quote after a space, which belongs to the text for pyarrow
    levels = copied(texts, decimal) if kind is None else convert(texts, kind, decimal)
    return levels[encoded.indices.to_numpy()]
