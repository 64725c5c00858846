"""What a user hands in, checked: one clear sentence for everything that cannot be used."""

from collections.abc import Sequence
from typing import Any

import narwhals as nw
import numpy as np
from sklearn.utils.validation import (
    check_array,
    check_consistent_length,
    column_or_1d,
    validate_data,
)

from dagp.typing import Float, Int, Table

__all__ = [
    "check_inputs",
    "check_labels",
    "check_missing",
    "check_outputs",
    "check_weights",
    "complete_rows",
]


def check_inputs(estimator: Any, X: Table, *, reset: bool, finite: bool = True) -> np.ndarray:
    """`X` as float64 (N, D), with its column names remembered or compared."""
    _check_columns(X, "X")
    _check_plain(X)
    checked = np.asarray(
        validate_data(estimator, X, reset=reset, dtype=np.float64, ensure_all_finite=False)
    )
    if finite:
        _check_finite(checked, "X", _names(X))
    return checked


def check_outputs(y: Any, rows: int, *, finite: bool = True) -> np.ndarray:
    """`y` as float64 (N,) or (N, P)."""
    if y is None:
        raise ValueError("This DAGP estimator requires y to be passed, but the target y is None.")
    _check_columns(y, "y")
    checked = check_array(
        y, dtype="float64", ensure_2d=False, ensure_all_finite=False, input_name="y"
    )
    if checked.ndim > 2 or checked.size == 0:
        raise ValueError(f"y must have shape (rows,) or (rows, outputs), got {checked.shape}.")
    if len(checked) != rows:
        raise ValueError(
            "Found input variables with inconsistent numbers of samples: "
            f"X has {rows} rows and y has {len(checked)}."
        )
    if finite:
        _check_finite(checked, "y", _names(y))
    return checked


def check_missing(missing: str) -> None:
    """Whether `missing` is something we know."""
    if missing not in ("raise", "drop"):
        raise ValueError(f"missing must be 'raise' or 'drop', got {missing!r}.")


def complete_rows(X: np.ndarray, y: np.ndarray) -> Any:
    """Mask of the rows without NaN; what remains must be finite."""
    keep = ~np.isnan(np.column_stack([X, y])).any(axis=1)
    if not keep.any():
        raise ValueError("Every row holds a NaN in X or y: nothing is left to fit.")
    _check_finite(X[keep], "X", None)
    _check_finite(y[keep], "y", None)
    return keep


def check_weights(sample_weight: Any, rows: int) -> Float[np.ndarray, " N"]:
    """Non-negative weights, ones if none are given."""
    if sample_weight is None:
        return np.ones(rows)
    if np.isscalar(sample_weight):
        sample_weight = np.full(rows, sample_weight)
    weight = np.asarray(column_or_1d(sample_weight), np.float64)
    check_consistent_length(weight, np.empty(rows))
    if not np.all(np.isfinite(weight)) or np.any(weight < 0):
        bad = int(np.flatnonzero(~np.isfinite(weight) | (weight < 0))[0])
        raise ValueError(
            f"sample_weight must be finite and not negative, row {bad} has {weight[bad]}."
        )
    if not np.any(weight > 0):
        raise ValueError("sample_weight is zero in every row: nothing is left to fit.")
    return weight


def check_labels(labels: Any, rows: int, processes: int) -> Int[np.ndarray, " N"]:
    """Known assignments: −1 where unknown, otherwise the index of a process."""
    if labels is None:
        return np.full(rows, -1)
    given = np.asarray(column_or_1d(labels))
    check_consistent_length(given, np.empty(rows))
    with np.errstate(invalid="ignore"):
        whole = given.astype(np.int64)
    bad = (whole != given) | (whole < -1) | (whole >= processes)
    if np.any(bad):
        row = int(np.flatnonzero(bad)[0])
        raise ValueError(
            f"labels must be -1 (unknown) or a process from 0 to {processes - 1}, "
            f"row {row} has {given[row]}."
        )
    return whole


def _check_plain(X: Any) -> None:
    """Say in one line what scikit-learn says in many."""
    if isinstance(X, np.ndarray) and np.iscomplexobj(X):
        raise ValueError("Complex data not supported: X holds complex numbers.")
    if isinstance(X, np.ndarray | list | tuple) and np.ndim(X) < 2:
        raise ValueError(
            f"Expected 2D array, got {np.ndim(X)}D array instead. Reshape your data with "
            "X.reshape(-1, 1) if it has a single column, X.reshape(1, -1) if it is a single row."
        )


def _frame(table: Any) -> Any:
    """The table as a narwhals frame or series, or None for anything else."""
    native = nw.from_native(table, pass_through=True, allow_series=True)
    return None if native is table else native


def _names(table: Any) -> Sequence[str] | None:
    frame = _frame(table)
    return getattr(frame, "columns", None)


def _check_columns(table: Any, name: str) -> None:
    """Say which column of a data frame cannot be read as numbers."""
    frame = _frame(table)
    if frame is None:
        return
    series = frame.iter_columns() if isinstance(frame, nw.DataFrame) else [frame]
    for one in series:
        label = f"column {one.name!r} of {name}"
        if one.dtype.is_temporal():
            raise ValueError(
                f"{label} holds dates or times; convert it to a number first, such as seconds "
                "since the first row."
            )
        if isinstance(one.dtype, nw.String | nw.Categorical | nw.Enum):
            raise ValueError(f"{label} holds text; encode it as numbers or leave it out.")


def _check_finite(array: np.ndarray, name: str, columns: Sequence[str] | None) -> None:
    if np.all(np.isfinite(array)):
        return
    table = array.reshape(len(array), -1)
    wrong = np.isnan(table) if np.isnan(table).any() else np.isinf(table)
    word = "NaN" if np.isnan(table).any() else "infinity"
    row, column = (int(i) for i in np.argwhere(wrong)[0])
    label = repr(columns[column]) if columns else str(column)
    where = f"row {row}" if array.ndim == 1 else f"row {row}, column {label}"
    hint = " (missing='drop' leaves such rows out)" if word == "NaN" else ""
    raise ValueError(
        f"Input {name} contains {word}: {int(wrong.sum())} value(s), the first in {where}{hint}."
    )
