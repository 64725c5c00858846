"""Tables of the command line: CSV and Parquet files or standard input."""

import shutil
import sys
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO, TypeAlias

import numpy as np

from dagp.cli.app import InputError, print_message
from dagp.cli.cells import Kind, Part, Request, absent, joined
from dagp.cli.csvfile import CsvTable
from dagp.cli.parquetfile import ParquetTable
from dagp.cli.spelling import listed, suggestion
from dagp.core.text import quoted, shown

STDIN = "-"
Table: TypeAlias = CsvTable | ParquetTable


@contextmanager
def open_table(
    path: str, delimiter: str | None = None, decimal: str | None = None
) -> Iterator[Table]:
    """Open a file or standard input as a table; prints notes about its detected format."""
    if decimal not in (None, ".", ","):
        raise InputError(f"--decimal must be '.' or ',', got {quoted(decimal)}.")
    delimiter = {"\\t": "\t", "tab": "\t"}.get(delimiter or "", delimiter)
    if delimiter is not None and len(delimiter) != 1:
        raise InputError(f"--delimiter must be one character or tab, got {quoted(delimiter)}.")
    with _bytes(path) as file:
        start = file.read(4)
        file.seek(0)
        name = "standard input" if path == STDIN else path
        if start == b"PAR1" or Path(path).suffix.lower() in (".parquet", ".pq"):
            table: Table = ParquetTable(name, file)
        else:
            table = CsvTable(name, file, delimiter, decimal)
        for note in table.notes:
            print_message(note)
        yield table


def _bytes(path: str) -> BinaryIO:
    """Open a file for reading, with errors for the user."""
    if path == STDIN:
        return _copied(sys.stdin.buffer)
    if not path:
        raise InputError("The name of the table is empty.")
    try:
        file = Path(path).open("rb")  # noqa: SIM115
        if file.seekable():
            return file
        # A pipe, such as that of a process substitution.
        with file:
            return _copied(file)
    except FileNotFoundError as error:
        raise InputError(f"There is no file {path}.") from error
    except IsADirectoryError as error:
        raise InputError(f"{path} is a folder, not a file.") from error
    except OSError as error:
        raise InputError(f"Cannot read {shown(path)}: {error.strerror}.") from error
    except ValueError as error:
        raise InputError(f"{quoted(path)} cannot be the name of a file: {error}.") from error


def _copied(stream: BinaryIO) -> BinaryIO:
    """A copy on disk: the table is read twice and may be larger than memory."""
    copy = tempfile.TemporaryFile()  # noqa: SIM115
    shutil.copyfileobj(stream, copy)
    copy.seek(0)
    return copy  # pyright: ignore[reportReturnType]


def require_columns(table: Table, wanted: Iterable[str]) -> list[str]:
    """The wanted columns; raises InputError unless the table has each of them exactly once."""
    names = list(wanted)
    for name in names:
        count, known = table.columns.count(name), table.columns
        if count == 1:
            continue
        if count > 1:
            raise InputError(
                f"{table.name} has {count} columns called {quoted(name)}; rename them."
            )
        if len(known) == 1:
            only = f"only one called {quoted(known[0])}"
            hint = "if that is several columns, set --delimiter"
            raise InputError(f"{table.name} has no column {quoted(name)}, {only}; {hint}.")
        guess = suggestion(name, known)
        raise InputError(
            f"{table.name} has no column {quoted(name)}.{guess} It has {listed(known)}."
        )
    return names


def read_columns(
    table: Table, wanted: Sequence[str], kinds: Mapping[str, Kind] | None = None
) -> Part:
    """Read the wanted columns of all rows; a kind left out is number."""
    request = Request(dict.fromkeys(wanted, Kind.number) | dict(kinds or {}))
    parts = list(table.parts(request))
    if not parts:
        raise InputError(f"{table.name} has a header and no rows.")
    return joined(parts)


def incomplete_rows(table: Table, part: Part, drop: bool) -> np.ndarray:
    """Mask of rows with empty cells, with a message; InputError names the first if not `drop`."""
    gaps = np.stack([absent(column) for column in part.columns.values()], axis=1)
    found = np.asarray(gaps.any(axis=1))
    if not found.any():
        return found
    if never := [name for name, gap in zip(part.columns, gaps.T, strict=True) if gap.all()]:
        which = f"column {quoted(never[0])}" if len(never) == 1 else f"the columns {listed(never)}"
        hint = "--features without it, or --role NAME=ignore, leaves a column out"
        raise InputError(f"{table.name} has no values in {which}; {hint}.")
    if not drop:
        row, column = np.argwhere(gaps)[0]
        count = f"{gaps.sum()} empty cell(s), the first in row {part.rows[row]}"
        where = f"column {quoted(list(part.columns)[column])}; --missing drop omits such rows"
        raise InputError(f"{table.name} has {count}, {where}.")
    if found.all():
        raise InputError(f"{table.name}: every row has an empty cell; no rows are left.")
    print_message(f"{int(found.sum())} of {len(found)} rows have empty cells and are dropped.")
    return found
