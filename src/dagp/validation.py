"""What a user hands in, checked: one clear sentence for everything that cannot be used."""

from collections.abc import Sequence
from numbers import Integral, Real
from os import PathLike
from pathlib import Path
from typing import Any

import jax
import numpy as np
from sklearn.utils.validation import check_array, validate_data

from dagp.cells import names, readable
from dagp.concrete import Concrete
from dagp.data import FAR, Sample, Units
from dagp.parameters import is_parameter
from dagp.processes import GP, ProcessPrior
from dagp.runtime import DTYPES
from dagp.typing import Float, Int, Table

GENEROUS = 6
"""Processes to begin with when their number is to be found."""
_SMALLEST_UNIT = 1e-150
_LARGEST_OUTPUT = 1e-4
"""Share of the largest number that can be squared: squares are summed, and divided by noise."""
_MOST_FAR = 0.2
"""Share of the rows that may be beyond all distances: standard units are those of nine in ten."""

__all__ = [
    "GENEROUS",
    "check_data",
    "check_enough",
    "check_inputs",
    "check_labels",
    "check_missing",
    "check_outputs",
    "check_parameters",
    "check_spread",
    "check_weights",
    "complete_rows",
]


def check_inputs(estimator: Any, X: Table, *, reset: bool, finite: bool = True) -> np.ndarray:
    """`X` as float64 (N, D), with its column names remembered or compared."""
    cells = readable(X, "X")
    _check_plain(cells)
    checked = check_array(
        cells, dtype="float64", ensure_all_finite=False, estimator=estimator, input_name="X"
    )
    validate_data(estimator, X, reset=reset, skip_check_array=True)
    if finite:
        _check_finite(checked, "X", names(X))
    return checked


def check_outputs(y: Any, rows: int, *, finite: bool = True) -> np.ndarray:
    """`y` as float64 (N,) or (N, P)."""
    if y is None:
        raise ValueError("This estimator requires y to be passed, but the target y is None.")
    checked = _numbers(y, "y")
    if checked.ndim > 2 or checked.size == 0:
        raise ValueError(f"y must have shape (rows,) or (rows, outputs), got {checked.shape}.")
    if len(checked) != rows:
        raise ValueError(
            "Found input variables with inconsistent numbers of samples: "
            f"X has {rows} rows and y has {len(checked)}."
        )
    if finite:
        _check_finite(checked, "y", names(y))
    return checked


def check_data(
    estimator: Any,
    X: Table,
    y: Table,
    sample_weight: Any,
    labels: Any,
    processes: int,
    reset: bool = True,
) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Inputs, outputs, weights and labels of a fit, without the rows that may be left out."""
    check_missing(estimator.missing)
    finite = estimator.missing != "drop"
    X = check_inputs(estimator, X, reset=reset, finite=finite)
    y = check_outputs(y, len(X), finite=finite)
    weight = check_weights(sample_weight, len(X))
    if labels is not None and estimator.n_processes == "auto":
        raise ValueError('labels name processes, so n_processes cannot be "auto".')
    labels = check_labels(labels, len(X), processes)
    if not finite:
        keep = complete_rows(X, y)
        X, y, weight, labels = X[keep], y[keep], weight[keep], labels[keep]
    return X, y, weight, labels


def check_enough(processes: int, weight: Float[np.ndarray, " N"]) -> None:
    """Whether there are at least as many rows, counted by weight, as processes."""
    if processes > weight.sum():
        total = "" if np.all(weight == 1) else f" with weights of {weight.sum():.3g} in all"
        raise ValueError(
            f"{processes} processes need at least as many rows, X has n_samples = {len(weight)}"
            f"{total}."
        )


def check_spread(sample: Sample, units: Units, dtype: str) -> None:
    """Whether the data can be computed with: outputs are squared, and inputs told apart."""
    unit = units.y_unit
    if not np.all((unit > _SMALLEST_UNIT) & (unit < 1 / _SMALLEST_UNIT)):
        raise ValueError(
            f"y spreads over about {unit.max():.0e}: its square is beyond floating point. "
            "Rescale y."
        )
    with np.errstate(over="ignore"):
        wild = np.abs(units.standard_y(sample.y)) > _LARGEST_OUTPUT * np.sqrt(np.finfo(dtype).max)
    if np.any(wild):
        row, column = (int(i) for i in np.argwhere(wild)[0])
        raise ValueError(
            f"y is {sample.y[row, column]:.0e} in row {row}, where most of it spreads over about "
            f"{unit[column]:.0e}: too far away to be squared in {dtype}. Correct that row, or "
            "leave it out."
        )
    if np.mean(np.abs(units.standard_x(sample.X)).max(axis=1) >= FAR) > _MOST_FAR:
        raise ValueError(
            f"X reaches {np.abs(sample.X).max():.0e}, beyond what can be told apart with "
            "standardize=False. Rescale X, or let it be standardised."
        )


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
    weight = _one_per_row(sample_weight, "sample_weight", rows)
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
    given = _one_per_row(labels, "labels", rows)
    with np.errstate(invalid="ignore"):
        whole = given.astype(np.int64)
    bad = (whole != given) | (whole < -1) | (whole >= processes)
    if np.any(bad):
        row = int(np.flatnonzero(bad)[0])
        raise ValueError(
            f"labels must be -1 (unknown) or a process from 0 to {processes - 1}, "
            f"row {row} has {given[row]:g}."
        )
    return whole


def _numbers(values: Any, name: str) -> np.ndarray:
    """Numbers of one or more dimensions."""
    cells = readable(values, name)
    if np.ndim(cells) == 0:
        raise ValueError(f"{name} must have a number for every row, got {values!r}.")
    return check_array(
        cells, dtype="float64", ensure_2d=False, ensure_all_finite=False, input_name=name
    )


def _one_per_row(values: Any, name: str, rows: int) -> Float[np.ndarray, " N"]:
    """Numbers that belong to the rows of X."""
    array = _numbers(values, name)
    if array.ndim == 2 and array.shape[1] == 1:
        array = array[:, 0]
    if array.ndim != 1:
        raise ValueError(f"{name} must hold one number per row, got shape {array.shape}.")
    if len(array) != rows:
        raise ValueError(
            "Found input variables with inconsistent numbers of samples: "
            f"X has {rows} rows and {name} has {len(array)}."
        )
    return array


def _check_plain(X: Any) -> None:
    """Say in one line what scikit-learn says in many."""
    if np.ndim(X) < 2:
        raise ValueError(
            f"Expected 2D array, got {np.ndim(X)}D array instead. Reshape your data with "
            "X.reshape(-1, 1) if it has a single column, X.reshape(1, -1) if it is a single row."
        )


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


def check_parameters(estimator: Any) -> list[ProcessPrior]:
    """The priors of an estimator whose settings make sense."""
    whole: dict[str, Any] = {"n_init": estimator.n_init, "max_iter": estimator.max_iter}
    if estimator.batch_size is not None:
        whole["batch_size"] = estimator.batch_size
    if not isinstance(estimator.processes, Sequence) and estimator.n_processes != "auto":
        whole["n_processes"] = estimator.n_processes
    for name, value in whole.items():
        if not isinstance(value, Integral) or isinstance(value, bool) or value < 1:
            hint = ' or "auto"' if name == "n_processes" else ""
            raise ValueError(f"{name} must be a whole number of at least 1{hint}, got {value!r}.")
    if not isinstance(estimator.tol, Real) or not float(estimator.tol) >= 0:
        raise ValueError(f"tol must be a number that is not negative, got {estimator.tol!r}.")
    if estimator.inference not in ("collapsed", "concrete") and not isinstance(
        estimator.inference, Concrete
    ):
        raise ValueError(
            f'inference must be "collapsed", "concrete" or a Concrete, got {estimator.inference!r}.'
        )
    if isinstance(estimator.inference, Concrete):
        estimator.inference.check()
    _check_surroundings(estimator)
    if estimator.dtype not in DTYPES:
        raise ValueError(f"dtype must be one of {DTYPES}, got {estimator.dtype!r}.")
    given = estimator.processes if estimator.processes is not None else GP()
    count = GENEROUS if isinstance(estimator.n_processes, str) else estimator.n_processes
    priors: list[ProcessPrior] = list(given) if isinstance(given, Sequence) else [given] * count
    if not priors:
        raise ValueError("processes is an empty list; name at least one, such as [GP()].")
    for k, prior in enumerate(priors):
        if not isinstance(prior, ProcessPrior):
            raise ValueError(
                f"processes[{k}] must be a GP, DeepGP, Noise or Uniform, got {prior!r}."
            )
    _check_shared(priors)
    return priors


def _check_surroundings(estimator: Any) -> None:
    """Whoever listens, and where progress is written down."""
    callbacks = estimator.callbacks
    if not isinstance(callbacks, Sequence) or not all(map(callable, callbacks)):
        raise ValueError(f"callbacks must be a list of functions, got {callbacks!r}.")
    every = estimator.checkpoint_every
    if not isinstance(every, Real) or not float(every) >= 0:
        raise ValueError(f"checkpoint_every must be a number of seconds, got {every!r}.")
    if estimator.checkpoint is None:
        return
    if not isinstance(estimator.checkpoint, str | PathLike):
        raise ValueError(f"checkpoint must name a file, got {estimator.checkpoint!r}.")
    path = Path(estimator.checkpoint)
    if path.is_dir() or not path.parent.is_dir():
        wrong = "it is a folder" if path.is_dir() else f"there is no folder {path.parent}"
        raise ValueError(f"checkpoint cannot be written to {path}: {wrong}.")


def _check_shared(priors: list[ProcessPrior]) -> None:
    """What is shared has one value, so it must begin as one."""
    begun: dict[str, Any] = {}
    for prior in priors:
        for node in jax.tree.leaves(list(vars(prior).values()), is_leaf=is_parameter):
            if not is_parameter(node) or node.share is None:
                continue
            first = begun.setdefault(node.share, node.raw)
            if np.shape(first) != np.shape(node.raw) or np.any(first != node.raw):
                raise ValueError(f"Parameters that share {node.share!r} must start alike.")
