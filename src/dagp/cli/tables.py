"""Reads tables from CSV and Parquet files or standard input, and writes predictions."""

import csv
import difflib
import json
import math
import re
import shutil
import sys
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO, TextIO, TypeAlias

import numpy as np

from dagp.cli.app import InputError, NotNumericError, print_message
from dagp.cli.csvfile import CHUNK, CsvTable, Part

STDIN = "-"
Columns: TypeAlias = list[np.ndarray]


class ParquetTable:
    """A table in a Parquet file, read in parts of `CHUNK` rows."""

    def __init__(self, name: str, file: BinaryIO):
        parquet = _arrow(name)
        self.name, self.notes = name, []
        try:
            self._file = parquet.ParquetFile(file)
        except (ValueError, OSError) as error:
            reason = str(error).splitlines()[0]
            raise InputError(f"{name} is not a complete Parquet file: {reason}") from error
        self.columns: list[str] = self._file.schema_arrow.names

    def parts(self, wanted: Sequence[str]) -> Iterator[Part]:
        """Iterate over the wanted columns in parts of `CHUNK` rows."""
        import pyarrow as pa

        first = 1
        for name in wanted:
            self._check_type(name, pa.types)
        for batch in self._file.iter_batches(CHUNK, columns=list(wanted)):
            columns = [batch.column(name).cast(pa.float64(), safe=False) for name in wanted]
            values = np.stack([c.to_numpy(zero_copy_only=False) for c in columns], axis=1)
            if np.isinf(values).any():
                row, column = np.argwhere(np.isinf(values))[0]
                where = f"{self.name}, row {first + row}, column {wanted[column]!r}"
                raise InputError(f"{where}: the value is infinite.")
            yield Part(np.arange(first, first + len(values)), values)
            first += len(values)

    def _check_type(self, name: str, types: Any) -> None:
        """Raise NotNumericError for a column of another type than numbers."""
        kind = self._file.schema_arrow.field(name).type
        numeric = (types.is_integer, types.is_floating, types.is_boolean, types.is_decimal)
        if not any(test(kind) for test in numeric):
            raise NotNumericError(f"{self.name}, column {name!r} holds {kind}, not numbers.")


Table: TypeAlias = CsvTable | ParquetTable


@contextmanager
def open_table(
    path: str, delimiter: str | None = None, decimal: str | None = None
) -> Iterator[Table]:
    """Open a file or standard input as a table; prints notes about its detected format."""
    if decimal not in (None, ".", ","):
        raise InputError(f"--decimal must be '.' or ',', got {decimal!r}.")
    delimiter = {"\\t": "\t", "tab": "\t"}.get(delimiter or "", delimiter)
    if delimiter is not None and len(delimiter) != 1:
        raise InputError(f"--delimiter must be one character or tab, got {delimiter!r}.")
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
        # A copy on disk: the table is read twice and may be larger than memory.
        copy = tempfile.TemporaryFile()  # noqa: SIM115
        shutil.copyfileobj(sys.stdin.buffer, copy)
        copy.seek(0)
        return copy  # pyright: ignore[reportReturnType]
    try:
        return Path(path).open("rb")
    except FileNotFoundError as error:
        raise InputError(f"There is no file {path}.") from error
    except IsADirectoryError as error:
        raise InputError(f"{path} is a folder, not a file.") from error
    except OSError as error:
        raise InputError(f"Cannot read {path}: {error.strerror}.") from error


def _arrow(name: str) -> Any:
    try:
        import pyarrow.parquet
    except ModuleNotFoundError as missing:
        raise InputError(f"{name}: Parquet needs pyarrow (pip install pyarrow).") from missing
    return pyarrow.parquet


def require_columns(table: Table, wanted: Iterable[str]) -> list[str]:
    """The wanted columns; raises InputError unless the table has each of them exactly once."""
    names = list(wanted)
    for name in names:
        count, known = table.columns.count(name), table.columns
        if count == 1:
            continue
        if count > 1:
            raise InputError(f"{table.name} has {count} columns called {name!r}; rename them.")
        if len(known) == 1:
            only = f"only one called {known[0][:80]!r}"
            hint = "if that is several columns, set --delimiter"
            raise InputError(f"{table.name} has no column {name!r}, {only}; {hint}.")
        near = _nearest(name, known)
        guess = f" Did you mean {near!r}?" if near else ""
        shown = ", ".join(map(repr, known[:20])) + (", …" * (len(known) > 20))
        raise InputError(f"{table.name} has no column {name!r}.{guess} It has {shown}.")
    return names


def _nearest(name: str, columns: Sequence[str]) -> str | None:
    """The most similar column; one that extends `name` comes first, as units are often omitted."""
    lower = {column.lower(): column for column in columns}
    wanted = name.lower()
    longer = [known for known in lower if re.search(rf"\b{re.escape(wanted)}", known)]
    longer.sort(key=lambda known: (not known.startswith(wanted), len(known)))
    near = longer or difflib.get_close_matches(wanted, lower, n=1, cutoff=0.5)
    return lower[near[0]] if near else None


def read_columns(table: Table, wanted: Sequence[str]) -> Part:
    """Read the wanted columns of all rows."""
    parts = list(table.parts(wanted))
    if not parts:
        raise InputError(f"{table.name} has a header and no rows.")
    return Part(*(np.concatenate(pieces) for pieces in zip(*parts, strict=True)))


def complete_rows(table: Table, part: Part, names: Sequence[str], drop: bool) -> Part:
    """Drop rows with empty cells, or raise InputError with the first one if not `drop`."""
    absent = np.isnan(part.values)
    keep = ~absent.any(axis=1)
    if keep.all():
        return part
    if not drop:
        row, column = np.argwhere(absent)[0]
        found = f"{absent.sum()} empty cell(s), the first in row {part.rows[row]}"
        where = f"column {names[column]!r}; --missing drop omits such rows"
        raise InputError(f"{table.name} has {found}, {where}.")
    if not keep.any():
        raise InputError(f"{table.name}: every row has an empty cell; no rows are left.")
    print_message(f"{int((~keep).sum())} of {len(absent)} rows have empty cells and are dropped.")
    return Part(part.rows[keep], part.values[keep])


def write_csv(file: TextIO, names: Sequence[str], parts: Iterable[Columns]) -> None:
    """Write a header and rows; numbers in full precision, empty cells for NaN."""
    writer = csv.writer(file, lineterminator="\n")
    writer.writerow(names)
    for columns in parts:
        cells = [["" if v != v else repr(v) for v in column.tolist()] for column in columns]
        writer.writerows(zip(*cells, strict=True))


def write_json(file: TextIO, names: Sequence[str], parts: Iterable[Columns]) -> None:
    """Write one object with column names and rows; null for NaN and infinity."""
    file.write(f'{{"columns": {json.dumps(list(names))}, "rows": [')
    between = ""
    for columns in parts:
        for row in zip(*(column.tolist() for column in columns), strict=True):
            # The ends of an interval can be infinite, which JSON cannot represent either.
            finite = [v if math.isfinite(v) else None for v in row]
            file.write(f"{between}\n{json.dumps(finite)}")
            between = ","
    file.write("\n]}\n")


def write_parquet(file: BinaryIO, names: Sequence[str], parts: Iterable[Columns]) -> None:
    """Write the columns, one row group per part."""
    import pyarrow as pa

    parquet, writer = _arrow("The output"), None
    for columns in parts:
        table = pa.table(dict(zip(names, columns, strict=True)))
        writer = writer or parquet.ParquetWriter(file, table.schema)
        writer.write_table(table)
    if writer is not None:
        writer.close()
