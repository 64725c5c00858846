"""Parquet files: numbers, dates and text by the types of the columns."""

import contextlib
from collections.abc import Iterator
from typing import Any, BinaryIO

import numpy as np

from dagp.cli.app import InputError, NotNumericError
from dagp.cli.cells import Kind, Part, Request, objects
from dagp.core.text import quoted

CHUNK = 16384
"""Rows that are read at a time."""


class ParquetTable:
    """A table in a Parquet file, read in parts of `CHUNK` rows."""

    decimal = "."

    def __init__(self, name: str, file: BinaryIO):
        parquet = require_parquet(name)
        self.name, self.notes = name, []
        with self._refusing("is not a complete Parquet file"):
            self._file = parquet.ParquetFile(file, page_checksum_verification=True)
            self.columns: list[str] = self._file.schema_arrow.names

    def kind(self, name: str) -> Kind:
        """What a column holds, by its type; raises NotNumericError for nested types."""
        from pyarrow import types

        found = self._type(name)
        text = (types.is_string, types.is_large_string, types.is_string_view)
        if any(test(found) for test in text):
            return Kind.text
        if types.is_date(found) or types.is_timestamp(found):
            return Kind.date
        numeric = (types.is_integer, types.is_floating, types.is_boolean, types.is_decimal)
        if not any(test(found) for test in (*numeric, types.is_null)):
            message = f"{self.name}, column {quoted(name)} holds {found}, not numbers."
            raise NotNumericError(message, name)
        return Kind.number

    def parts(self, request: Request) -> Iterator[Part]:
        """Iterate over the columns of a request in parts of `CHUNK` rows."""
        for name, kind in request.kinds.items():
            self._check_kind(name, kind)
        first = 1
        for batch in self._batches(request.names):
            rows = np.arange(first, first + batch.num_rows)
            kinds = request.kinds.items()
            columns = {n: self._column(batch.column(n), n, k, first) for n, k in kinds}
            copies = {n: objects(batch.column(n).to_pylist()) for n in request.copied}
            yield Part(rows, columns, copies)
            first += batch.num_rows

    def _batches(self, names: list[str]) -> Iterator[Any]:
        """Consecutive rows; raises InputError where they cannot be read."""
        batches = None
        while True:
            with self._refusing("is damaged"):
                if batches is None:
                    batches = self._file.iter_batches(CHUNK, columns=names)
                if (batch := next(batches, None)) is None:
                    return
                # Offsets and texts of a damaged file may lead out of its memory.
                batch.validate(full=True)
            yield batch

    @contextlib.contextmanager
    def _refusing(self, what: str) -> Iterator[None]:
        """Turn the errors of a damaged file into one."""
        import pyarrow as pa

        try:
            yield
        except (pa.ArrowException, ValueError, OSError, KeyError, IndexError) as error:
            reason = next(iter(str(error).splitlines()), type(error).__name__)
            raise InputError(f"{self.name} {what}: {reason.rstrip('.')}.") from error

    def arrow_type(self, name: str) -> Any:
        """Type in which a column that is kept is written again."""
        return self._file.schema_arrow.field(name).type

    def _type(self, name: str) -> Any:
        """The type of the values; repeated ones may be stored as indices into a dictionary."""
        found = self.arrow_type(name)
        return getattr(found, "value_type", found) if str(found).startswith("dict") else found

    def _check_kind(self, name: str, kind: Kind) -> None:
        """Raise NotNumericError unless the column can be read as this kind."""
        found = self.kind(name)
        # Anything can be the level of a category.
        if kind is Kind.text or found is kind:
            return
        holds, wanted = self.arrow_type(name), "numbers" if kind is Kind.number else "dates"
        message = f"{self.name}, column {quoted(name)} holds {holds}, not {wanted}."
        raise NotNumericError(message, name)

    def _column(self, cells: Any, name: str, kind: Kind, first: int) -> np.ndarray:
        import pyarrow as pa

        if kind is Kind.text:
            texts = cells.cast(pa.string()).to_pylist()
            return objects([text or None for text in texts])
        if kind is Kind.date:
            moments = cells.cast(pa.timestamp("us"), safe=False)
            return moments.to_numpy(zero_copy_only=False).astype("datetime64[us]")
        values = cells.cast(pa.float64(), safe=False).to_numpy(zero_copy_only=False)
        if np.isinf(values).any():
            row = first + int(np.flatnonzero(np.isinf(values))[0])
            raise InputError(
                f"{self.name}, row {row}, column {quoted(name)}: the value is infinite."
            )
        return values


def require_parquet(name: str) -> Any:
    """The module pyarrow.parquet; raises InputError where pyarrow is not installed."""
    try:
        import pyarrow.parquet
    except ModuleNotFoundError as missing:
        raise InputError(f"{name}: Parquet needs pyarrow (pip install pyarrow).") from missing
    return pyarrow.parquet
