"""Tables (NumPy, pandas, polars, pyarrow, lists) as numbers, or as columns of any kind.

Mixed columns are converted cell by cell, so that an error can name the first invalid one.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

import narwhals as nw
import numpy as np
from narwhals.exceptions import DuplicateError
from scipy.sparse import issparse

from dagp.core.text import is_unicode, one_line, quoted
from dagp.core.typing import Table

_TEXT = "encode it as numbers or leave it out"
_TIME = "convert it to a number first, such as seconds since the first row"


def names(table: Table) -> Sequence[str] | None:
    """Column names of a data frame; None for other tables."""
    found = getattr(_frame(table), "columns", None)
    return None if found is None else _writable(found)


def output_names(table: Table) -> list[str] | None:
    """Names of the outputs in a frame or named series; None for other tables."""
    frame = _frame(table)
    if isinstance(frame, nw.Series):
        # pandas calls a series of no name None, polars calls it "".
        return _writable([str(frame.name)]) if frame.name not in (None, "") else None
    return None if frame is None else _writable([str(name) for name in frame.columns])


def _writable(found: Sequence[Any]) -> list[Any]:
    """Names, if they can be written to files."""
    for name in found:
        check_unicode(name, "a column has the name")
    return list(found)


def check_unicode(word: Any, what: str) -> None:
    """Raise for text that cannot be written to a file."""
    if not is_unicode(word):
        raise ValueError(f"{what} {quoted(word)}, which is not Unicode text: replace it.")


def row_names(table: Table, rows: int) -> np.ndarray:
    """What the user calls the rows: the index of a pandas table, or else their positions.

    >>> row_names(np.zeros((2, 1)), 2)
    array([0, 1])
    """
    frame = _frame(table)
    index = None if frame is None else nw.maybe_get_index(frame)
    if index is None:
        return np.arange(rows)
    if index.nlevels == 1:
        return np.asarray(index)
    labels = np.empty(rows, object)
    labels[:] = list(index)
    return labels


def readable(table: Table, name: str) -> Any:
    """The table in a form that scikit-learn can convert; an error names the invalid column."""
    if issparse(table):
        return table
    frame = _frame(table)
    if frame is None:
        return _array(table, name)
    if isinstance(frame, nw.LazyFrame):
        raise ValueError(f"{name} is a lazy frame; collect() it first.")
    single = isinstance(frame, nw.Series)
    columns = [frame] if single else list(frame.iter_columns())
    labels = [f"column {quoted(column.name)} of {name}" for column in columns]
    for column, label in zip(columns, labels, strict=True):
        _check_type(column, label)
    if columns and all(column.dtype.is_numeric() for column in columns):
        return table
    values = [_values(*pair) for pair in zip(columns, labels, strict=True)]
    return values[0] if single else np.stack([np.empty(len(frame)), *values], axis=1)[:, 1:]


class Cells(NamedTuple):
    """One column of a table."""

    name: str | int
    """Its name, or its position in a table without names."""
    label: str
    """What errors call it."""
    values: np.ndarray
    """Numbers (float64), datetime64 in UTC, timedelta64, or objects."""
    declared: bool = False
    """Whether its type says that it is a category."""
    zoned: bool = False
    """Whether its times have a time zone."""


def has_columns(table: Table) -> bool:
    """Whether there are columns and rows to read; what has none, `readable` refuses."""
    frame = None if issparse(table) else _frame(table)
    if frame is not None:
        return isinstance(frame, nw.DataFrame) and min(frame.shape) > 0
    if issparse(table):
        return False
    try:
        array = np.asarray(table)
    except ValueError:
        return False
    return array.ndim == 2 and array.size > 0


def is_numeric(table: Table) -> bool:
    """Whether a table that has columns has numbers only."""
    frame = _frame(table)
    if frame is None:
        return np.asarray(table).dtype.kind in "biufc"
    return all(column.dtype.is_numeric() for column in frame.iter_columns())


def cells_of(table: Table, name: str) -> list[Cells]:
    """The columns of a table as they are."""
    frame = _frame(table)
    if frame is not None:
        return [_cells(c, f"column {quoted(c.name)} of {name}") for c in frame.iter_columns()]
    array = _objects(table)
    if array.dtype.kind == "O" or array.dtype.kind in "mM":
        columns = list(array.T)
    else:
        columns = list(_array(array, name).T)
    return [Cells(i, f"column {i} of {name}", column) for i, column in enumerate(columns)]


def _cells(column: nw.Series, label: str) -> Cells:
    """A column of a frame."""
    kind, name = column.dtype, column.name
    name = name if isinstance(name, str | int) else str(name)
    if kind.is_nested():
        _check_type(column, label)
    if kind.is_numeric():
        return Cells(name, label, _values(column, label))
    zoned = isinstance(kind, nw.Datetime) and kind.time_zone is not None
    if zoned:
        column = column.dt.convert_time_zone("UTC").dt.replace_time_zone(None)
    values = np.asarray(column.to_numpy())
    if isinstance(kind, nw.Categorical | nw.Enum | nw.String | nw.Boolean | nw.Time):
        values = as_objects(column.to_list())
    elif values.dtype.kind not in "mM":
        values = values.astype(object)
    return Cells(name, label, values, isinstance(kind, nw.Categorical | nw.Enum), zoned)


def as_objects(values: Sequence[Any]) -> np.ndarray:
    """A one-dimensional array of objects, whatever these are."""
    array = np.empty(len(values), object)
    array[:] = values
    return array


def _objects(table: Any) -> np.ndarray:
    """An array or list of rows, with every cell of the type that it has."""
    if isinstance(table, np.ma.MaskedArray):
        mask, table = np.ma.getmaskarray(table), np.ma.getdata(table).astype(object)
        table[mask] = None
    array = np.asarray(table)
    if array.dtype.kind not in "US":
        return array
    if isinstance(table, np.ndarray):
        # NumPy has written NaN among text as text.
        cells = array.astype(object)
        cells[array == array.dtype.type("nan")] = None
        return cells
    return np.asarray(table, dtype=object)


def is_missing(cell: Any) -> bool:
    """Whether a cell is empty: None, NaN, NaT or pandas.NA."""
    # By their names, without importing pandas.
    if cell is None or type(cell).__name__ in ("NAType", "NaTType"):
        return True
    return isinstance(cell, float | np.generic) and bool(cell != cell)


def _frame(table: Any) -> Any:
    """The table as a narwhals frame or series; None for other tables."""
    try:
        native = nw.from_native(table, pass_through=True, allow_series=True)
    except DuplicateError as error:
        names = list(map(str, table.columns))
        twice = next(name for name in names if names.count(name) > 1)
        found = f"{names.count(twice)} columns called {quoted(twice)}"
        raise ValueError(f"The data frame has {found}; rename them.") from error
    return None if native is table else native


def _check_type(column: nw.Series, label: str) -> None:
    """Raise for columns of dates, text or nested values."""
    if column.dtype.is_temporal():
        raise ValueError(f"{label} holds dates or times; {_TIME}.")
    if isinstance(column.dtype, nw.String | nw.Categorical | nw.Enum):
        raise ValueError(f"{label} holds text; {_TEXT}.")
    if column.dtype.is_nested():
        raise ValueError(f"{label} holds {column.dtype}; expand it into numeric columns.")


def _values(column: nw.Series, label: str) -> np.ndarray:
    """A column of a frame with mixed types, as float64."""
    if column.dtype.is_numeric():
        # Nullable integers have no NaN: cast before conversion.
        return np.asarray(column.cast(nw.Float64).to_numpy(), np.float64)
    return numbers(np.asarray(column.to_numpy(), dtype=object), lambda _: label)


def _array(table: Any, name: str) -> np.ndarray:
    """Tables other than frames, as an array of numbers."""
    if isinstance(table, np.ma.MaskedArray):
        mask, table = np.ma.getmaskarray(table), np.ma.getdata(table).astype(object)
        table[mask] = None
    try:
        array = np.asarray(table)
    except ValueError as error:
        raise ValueError(f"{name} is not a table: its rows differ in length.") from error
    if array.dtype.kind == "c":
        raise ValueError(f"Complex data not supported: {name} holds complex numbers.")
    if array.dtype.kind in "biuf":
        return array
    if array.dtype.kind in "mM":
        raise ValueError(f"{name} holds dates or times; {_TIME}.")
    return numbers(array, lambda index: f"column {index[1]} of {name}" if index[1:] else name)


def numbers(cells: np.ndarray, label: Any) -> np.ndarray:
    """Objects as numbers; `label` describes the column of an index, for errors."""
    try:
        return cells.astype(np.float64)
    except (TypeError, ValueError, OverflowError):
        values = np.empty(cells.shape)
    for index, cell in np.ndenumerate(cells):
        try:
            # The second recognises pandas.NA without importing pandas.
            missing = cell is None or type(cell).__name__ == "NAType"
            values[index] = np.nan if missing else cell
        except (TypeError, ValueError, OverflowError) as error:
            row = f"row {index[0] if index else 0}"
            raise _cell_error(cell, label(index), row, error) from error
    return values


def _cell_error(cell: Any, label: str, row: str, error: Exception) -> Exception:
    """The error for a cell that is not a number."""
    if isinstance(cell, str | bytes):
        return ValueError(f"{label} holds text ({quoted(cell)} in {row}); {_TEXT}.")
    if isinstance(cell, complex | np.complexfloating):
        return ValueError(f"Complex data not supported: {label} has {cell} in {row}.")
    if hasattr(cell, "year") or hasattr(cell, "total_seconds"):
        return ValueError(f"{label} holds dates or times; {_TIME}.")
    kind = ValueError if isinstance(error, OverflowError) else type(error)
    return kind(f"{label}, {row}: {one_line(str(error)).rstrip('.')}.")
