"""Validation of the data of a fit or prediction, with errors that name row and column."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from sklearn.utils.validation import check_array, validate_data

from dagp.core.text import quoted, shown
from dagp.core.typing import Bool, Float, Int, Table
from dagp.inference.standardize import FAR, Sample, Units
from dagp.tables.columns import Columns
from dagp.tables.reading import names, readable, row_names

HEAVIEST = 1e15
"""Largest weight of a row: sums of them times squares of numbers must not overflow."""
_SMALLEST_UNIT = 1e-150
_LARGEST_OUTPUT = 1e-4
"""Fraction of the largest number that can be squared: squares are summed and divided by noise."""
_MOST_FAR = 0.2
"""Fraction of rows that may exceed `FAR`: standard units are those of the central 90 %."""


def check_inputs(estimator: Any, X: Table, *, reset: bool, finite: bool = True) -> np.ndarray:
    """`X` as float64 (N, D), with categories and times encoded if the estimator has `columns_`.

    What the columns hold, and their names, are stored if `reset`, else compared with the fit.
    """
    columns = _columns(estimator, X, reset)
    if columns is not None and not columns.plain:
        return _encoded(estimator, X, columns, reset, finite)
    cells = readable(X, "X")
    if np.ndim(cells) < 2:
        # One line instead of scikit-learn's many.
        raise ValueError(
            f"Expected 2D array, got {np.ndim(cells)}D array instead. Reshape your data with "
            "X.reshape(-1, 1) if it has a single column, X.reshape(1, -1) if it is a single row."
        )
    checked = check_array(
        cells, dtype="float64", ensure_all_finite=False, estimator=estimator, input_name="X"
    )
    validate_data(estimator, X, reset=reset, skip_check_array=True)
    if finite:
        check_finite(checked, "X", names(X), row_names(X, len(checked)))
    return checked


def _columns(estimator: Any, X: Table, reset: bool) -> Columns | None:
    """What the columns hold; None for estimators that take numbers only."""
    if not hasattr(estimator, "columns"):
        return None
    if reset:
        found, before = Columns.of(X, estimator.columns), getattr(estimator, "columns_", None)
        continued = estimator.warm_start and before is not None and found.within(before)
        estimator.columns_ = before if continued else found
    return estimator.columns_


def input_labels(estimator: Any, X: Table) -> Sequence[Any] | None:
    """Names of the columns of checked inputs, for errors: those that the table has."""
    columns: Columns | None = getattr(estimator, "columns_", None)
    if columns is None or columns.plain:
        return names(X)
    return [columns.columns[i].name for i in columns.owner]


def _encoded(estimator: Any, X: Table, columns: Columns, reset: bool, finite: bool) -> np.ndarray:
    """A table that is not all numbers, encoded."""
    validate_data(estimator, X, reset=reset, skip_check_array=True)
    encoded = columns.encode(X)
    checked = check_array(
        encoded, dtype="float64", ensure_all_finite=False, estimator=estimator, input_name="X"
    )
    if finite:
        # A missing cell is missing in all columns that encode it: the first ones count.
        first = np.unique(columns.owner, return_index=True)
        labels = [columns.columns[i].name for i in first[0]]
        check_finite(checked[:, first[1]], "X", labels, row_names(X, len(checked)))
    return checked


def check_outputs(y: Any, rows: int, *, finite: bool = True) -> np.ndarray:
    """`y` as float64 (N,) or (N, P)."""
    if y is None:
        raise ValueError("This estimator requires y to be passed, but the target y is None.")
    checked = _numbers(y, "y")
    if checked.ndim > 2 or checked.size == 0:
        raise ValueError(f"y must have shape (rows,) or (rows, outputs), got {checked.shape}.")
    _check_length(checked, "y", rows)
    if finite:
        check_finite(checked, "y", names(y), row_names(y, rows))
    return checked


class GivenRows(NamedTuple):
    """The rows of a fit as the user knows them, and the part of them that is used."""

    names: np.ndarray
    """What the user calls each row."""
    used: Bool[np.ndarray, " N"]
    """Which rows are not dropped."""
    sample: Sample
    """The rows that are used."""
    flat: bool
    """Whether y has one dimension."""

    def spread(self, values: np.ndarray, absent: Any) -> np.ndarray:
        """Values of the used rows, and `absent` for the others."""
        spread = np.full((len(self.used), *values.shape[1:]), absent, values.dtype)
        spread[self.used] = values
        return spread

    def name(self, row: int) -> Any:
        """What the user calls a row of the sample."""
        return self.names[self.used][row]


def check_data(
    estimator: Any,
    X: Table,
    y: Table,
    sample_weight: Any,
    labels: Any,
    processes: int,
    reset: bool = True,
    index: np.ndarray | None = None,
) -> GivenRows:
    """Inputs, outputs, weights and labels of a fit, without rows that are dropped; `index` is what
    the rows are called where the table does not say it."""
    finite = estimator.missing != "drop"
    table, X = X, check_inputs(estimator, X, reset=reset, finite=finite)
    y = check_outputs(y, len(X), finite=finite)
    called = row_names(table, len(X)) if index is None else index
    weight = check_weights(sample_weight, len(X), called)
    if labels is not None and estimator.n_processes == "auto":
        raise ValueError('labels name processes: n_processes must be a number, got "auto".')
    labels = check_labels(labels, len(X), processes, called)
    used = (
        np.full(len(X), True)
        if finite
        else usable_rows(X, y, called, input_labels(estimator, table))
    )
    sample = Sample(X, y.reshape(len(y), -1), weight, labels)
    sample = sample if used.all() else sample.take(used)
    return GivenRows(called, used, sample, y.ndim == 1)


def check_enough(processes: int, weight: Float[np.ndarray, " N"]) -> None:
    """Raise unless there are at least as many rows, counted by weight, as processes."""
    if processes > weight.sum():
        total = "" if np.all(weight == 1) else f" with weights of {weight.sum():.3g} in all"
        found = f"X has n_samples = {len(weight)}{total}"
        raise ValueError(f"{processes} processes need at least as many rows, {found}.")


def check_spread(given: GivenRows, units: Units, dtype: str) -> None:
    """Raise if squares of outputs or differences of inputs exceed floating point."""
    sample, unit = given.sample, units.y_unit
    if not np.all((unit > _SMALLEST_UNIT) & (unit < 1 / _SMALLEST_UNIT)):
        spread = f"y spreads over about {unit.max():.0e}"
        raise ValueError(f"{spread}: its square exceeds floating point. Rescale y.")
    with np.errstate(over="ignore"):
        wild = np.abs(units.standard_y(sample.y)) > _LARGEST_OUTPUT * np.sqrt(np.finfo(dtype).max)
    if np.any(wild):
        row, column = (int(i) for i in np.argwhere(wild)[0])
        raise ValueError(
            f"y is {sample.y[row, column]:.0e} in row {shown(given.name(row))}, but most of it "
            f"spreads over about {unit[column]:.0e}: its square exceeds {dtype}. Correct that row, "
            "or leave it out."
        )
    if np.mean(np.abs(units.standard_x(sample.X)).max(axis=1) >= FAR) > _MOST_FAR:
        raise ValueError(
            f"X reaches {np.abs(sample.X).max():.0e}, too large for distances to be computed with "
            "standardize=False. Rescale X, or use standardize=True."
        )


def usable_rows(
    X: np.ndarray,
    y: np.ndarray,
    rows: np.ndarray | None = None,
    columns: Sequence[Any] | None = None,
) -> Bool[np.ndarray, " N"]:
    """Mask of the rows with all inputs and some output; raises for infinities in these. `rows` is
    what they are called, `columns` what the inputs are."""
    there = np.logical_not(np.isnan(y.reshape(len(y), -1)))
    used = np.logical_not(np.isnan(X).any(axis=1)) & there.any(axis=1)
    if not used.any():
        _check_values(X, "X", columns)
        _check_values(y, "y", None)
        raise ValueError("Every row holds a NaN in X or y: no rows are left.")
    empty = np.flatnonzero(~there[used].any(axis=0))
    if empty.size:
        raise ValueError(f"y has no values in column {empty[0]}: leave it out.")
    for name, array in (("X", X), ("y", y)):
        # All rows, lest the first that is wrong be called by its place among the used ones.
        seen = used if array.ndim == 1 else used[:, None]
        check_finite(np.where(seen & ~np.isnan(array), array, 0.0), name, None, rows)
    return used


def check_weights(
    sample_weight: Any, rows: int, called: np.ndarray | None = None
) -> Float[np.ndarray, " N"]:
    """Non-negative weights; ones if None. `called` is what the user calls the rows."""
    called = np.arange(rows) if called is None else called
    if sample_weight is None:
        return np.ones(rows)
    if np.isscalar(sample_weight):
        sample_weight = np.full(rows, sample_weight)
    weight = _one_per_row(sample_weight, "sample_weight", rows)
    bad = np.flatnonzero(~np.isfinite(weight) | (weight < 0))
    if bad.size:
        found = f"row {shown(called[bad[0]])} has {weight[bad[0]]}"
        raise ValueError(f"sample_weight must be finite and non-negative, {found}.")
    if np.any(bad := weight > HEAVIEST):
        row = int(np.argmax(bad))
        found = f"row {shown(called[row])} has {weight[row]:.0e}"
        raise ValueError(f"sample_weight must not exceed {HEAVIEST:.0e}, {found}: rescale it.")
    if not np.any(weight > 0):
        raise ValueError("sample_weight is zero in every row: no rows are left.")
    return weight


def check_labels(
    labels: Any, rows: int, processes: int, called: np.ndarray | None = None
) -> Int[np.ndarray, " N"]:
    """Known assignments: −1 where unknown, otherwise the index of a process."""
    called = np.arange(rows) if called is None else called
    if labels is None:
        return np.full(rows, -1)
    given = _one_per_row(labels, "labels", rows)
    with np.errstate(invalid="ignore"):
        whole = given.astype(np.int64)
    bad = np.flatnonzero((whole != given) | (whole < -1) | (whole >= processes))
    if bad.size:
        expected = f"-1 (unknown) or a process from 0 to {processes - 1}"
        raise ValueError(
            f"labels must be {expected}, row {shown(called[bad[0]])} has {given[bad[0]]:g}."
        )
    return whole


def _numbers(values: Any, name: str) -> np.ndarray:
    """Values of at least one dimension as float64."""
    cells = readable(values, name)
    if np.ndim(cells) == 0:
        raise ValueError(f"{name} must have a number for every row, got {quoted(values)}.")
    return check_array(
        cells, dtype="float64", ensure_2d=False, ensure_all_finite=False, input_name=name
    )


def _one_per_row(values: Any, name: str, rows: int) -> Float[np.ndarray, " N"]:
    """One number per row of X."""
    array = _numbers(values, name)
    if array.ndim == 2 and array.shape[1] == 1:
        array = array[:, 0]
    if array.ndim != 1:
        raise ValueError(f"{name} must hold one number per row, got shape {array.shape}.")
    _check_length(array, name, rows)
    return array


def _check_length(array: np.ndarray, name: str, rows: int) -> None:
    if len(array) != rows:
        found = f"X has {rows} rows and {name} has {len(array)}"
        raise ValueError(f"Found input variables with inconsistent numbers of samples: {found}.")


def _check_values(array: np.ndarray, name: str, columns: Sequence[Any] | None) -> None:
    """Raise for columns that are empty altogether."""
    if len(array) < 2:
        return
    never = np.flatnonzero(np.isnan(array.reshape(len(array), -1)).all(axis=0))
    if never.size:
        which = ", ".join(quoted(columns[i] if columns else int(i)) for i in never[:8])
        more = f" and {never.size - 8} more" if never.size > 8 else ""
        where = f" in column {which}{more}" if array.ndim > 1 else ""
        raise ValueError(f"Input {name} contains NaN only: it has no values{where}.")


def check_finite(
    array: np.ndarray, name: str, columns: Sequence[Any] | None, rows: np.ndarray | None = None
) -> None:
    """Raise for NaN or infinity, naming the first cell as the user does."""
    if np.all(np.isfinite(array)):
        return
    _check_values(array, name, columns)
    table = array.reshape(len(array), -1)
    word = "NaN" if np.isnan(table).any() else "infinity"
    wrong = np.isnan(table) if word == "NaN" else np.isinf(table)
    row, column = (int(i) for i in np.argwhere(wrong)[0])
    label = quoted(columns[column]) if columns else str(column)
    called = row if rows is None else shown(rows[row])
    where = f"row {called}" if array.ndim == 1 else f"row {called}, column {label}"
    hint = " (missing='drop' leaves such rows out)" if word == "NaN" else ""
    found = f"{int(wrong.sum())} value(s), the first in {where}"
    raise ValueError(f"Input {name} contains {word}: {found}{hint}.")
