"""Writes tables: CSV and JSON with sensible digits, Parquet in full precision."""

import csv
import json
import math
import re
from collections.abc import Iterable, Sequence
from typing import Any, BinaryIO, NamedTuple, TextIO, TypeAlias

import numpy as np

from dagp.cli.app import InputError
from dagp.cli.cells import is_missing, number, objects
from dagp.cli.parquetfile import require_parquet
from dagp.core.text import quoted

Columns: TypeAlias = list[np.ndarray]
AUTO, FULL = "auto", "full"
SIGNIFICANT = 6
"""Digits of a number, where no more are needed."""
_OF_ERROR = 4
"""Digits of a standard deviation down to which a mean is written."""
_MOST = 17
_FORMULA = re.compile(r"\s*[=+\-@＝＋－＠]|[\x00-\x1f\x7f]")
"""Beginning of a text that a spreadsheet could take for a formula, as in the report."""
_EXACT = 2**53
"""Whole numbers below are exact as floating point."""


class Field(NamedTuple):
    """A column to be written."""

    name: str
    arrow_type: Any = None
    """Type in a Parquet file; float64 if None."""
    error: str | None = None
    """Column with the standard deviation of this one, which says how many digits it deserves."""


class Digits(NamedTuple):
    """How many digits are written; None is full precision."""

    least: int | None = SIGNIFICANT
    automatic: bool = True


def parse_digits(text: str) -> Digits:
    """The value of --digits."""
    if text == AUTO:
        return Digits()
    if text == FULL:
        return Digits(None, False)
    if text.isdecimal() and len(text) < 4 and 1 <= int(text) <= _MOST:
        return Digits(int(text), False)
    raise InputError(
        f"--digits must be auto, full or a number from 1 to {_MOST}, got {quoted(text)}."
    )


def write_csv(
    file: TextIO, fields: Sequence[Field], parts: Iterable[Columns], digits: Digits
) -> None:
    """Write a header and rows, with empty cells for NaN; text that spreadsheets take for formulas
    begins with an apostrophe."""
    writer = csv.writer(file, lineterminator="\n")
    writer.writerow([_not_formula(field.name) for field in fields])
    for columns in parts:
        cells = [_texts(c, _digits_of(fields, columns, i, digits)) for i, c in enumerate(columns)]
        writer.writerows(zip(*cells, strict=True))


def write_json(
    file: TextIO, fields: Sequence[Field], parts: Iterable[Columns], digits: Digits
) -> None:
    """Write one object with column names and rows; null for NaN and infinity."""
    file.write(f'{{"columns": {json.dumps([field.name for field in fields])}, "rows": [')
    between = ""
    for columns in parts:
        cells = [
            _json_values(c, fields[i], _digits_of(fields, columns, i, digits))
            for i, c in enumerate(columns)
        ]
        for row in zip(*cells, strict=True):
            file.write(f"{between}\n{json.dumps(row)}")
            between = ","
    file.write("\n]}\n")


def write_parquet(file: BinaryIO, fields: Sequence[Field], parts: Iterable[Columns]) -> None:
    """Write the columns in full precision, one row group per part."""
    parquet = require_parquet("The output")
    import pyarrow as pa

    schema = pa.schema([(field.name, field.arrow_type or pa.float64()) for field in fields])
    with parquet.ParquetWriter(file, schema) as writer:
        for columns in parts:
            pairs = zip(columns, schema, strict=True)
            arrays = [pa.array(_typed(c, f.type), f.type, from_pandas=True) for c, f in pairs]
            writer.write_table(pa.table(arrays, schema=schema))


def significant_digits(values: np.ndarray, errors: np.ndarray, least: int) -> np.ndarray:
    """Digits of each value such that `_OF_ERROR` digits of its error are distinguished.

    >>> significant_digits(np.array([1234567.8, 3.0]), np.array([0.01, 1.0]), 6)
    array([12,  6])
    """
    with np.errstate(divide="ignore", invalid="ignore"):
        excess = np.floor(np.log10(np.abs(values))) - np.floor(np.log10(errors))
    digits = np.where(np.isfinite(excess), excess + _OF_ERROR, least)
    return np.clip(digits, least, _MOST).astype(int)


def _digits_of(
    fields: Sequence[Field], columns: Columns, index: int, digits: Digits
) -> np.ndarray | int | None:
    """Digits of the numbers of a column: one count for all, or one for each."""
    error = fields[index].error
    if digits.least is None or not digits.automatic or error is None:
        return digits.least
    errors = columns[[field.name for field in fields].index(error)]
    return significant_digits(columns[index], errors, digits.least)


def _texts(column: np.ndarray, digits: np.ndarray | int | None) -> list[str]:
    if column.dtype.kind in "OUi":
        found = ["" if v is None or v != v else str(v) for v in column.tolist()]
        return list(map(_not_formula, found)) if column.dtype.kind == "O" else found
    if digits is None:
        return ["" if v != v else repr(v) for v in column.tolist()]
    each = np.broadcast_to(digits, column.shape).tolist()
    return ["" if v != v else f"{v:.{d}g}" for v, d in zip(column.tolist(), each, strict=True)]


def _not_formula(text: str) -> str:
    """Text that a spreadsheet does not compute; numbers stay as they are.

    >>> _not_formula("=A1"), _not_formula("-1.5"), _not_formula("a=b")
    ("'=A1", '-1.5', 'a=b')
    """
    if not _FORMULA.match(text) or len(text) < 2 or number(text, ".") is not None:
        return text
    return f"'{text}"


def _json_values(column: np.ndarray, field: Field, digits: np.ndarray | int | None) -> list[Any]:
    if column.dtype.kind == "O":
        values = _typed(column, field.arrow_type)
        return [v if isinstance(v, str | int | bool | None) else _finite(v) for v in values]
    if column.dtype.kind == "i":
        return column.tolist()
    if digits is None:
        return [_finite(v) for v in column.tolist()]
    return [_finite(float(text or "nan")) for text in _texts(column, digits)]


def _typed(column: np.ndarray, arrow_type: Any) -> np.ndarray:
    """A copied column with the numbers that its text stands for, if its type is a number."""
    if column.dtype.kind != "O" or str(arrow_type) != "double":
        return column
    return objects([_number(cell) for cell in column])


def _number(cell: Any) -> float | None:
    """The number in a cell that was copied as text; None if it is missing."""
    if not isinstance(cell, str):
        return cell
    value = number(cell, ".")
    if value is None and not is_missing(cell):
        hint = "a CSV file can keep it"
        raise InputError(f"--keep: {quoted(cell)} is not a number, as the column's others; {hint}.")
    return value


def _finite(value: Any) -> Any:
    """A value that JSON can represent: the ends of an interval can be infinite."""
    if isinstance(value, float):
        whole = value.is_integer() and abs(value) < _EXACT
        return int(value) if whole else value if math.isfinite(value) else None
    return str(value)
