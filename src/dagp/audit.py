"""Whether an estimator is a whole fitted model: asked of every file, before anybody predicts.

A checksum says that a file is as it was written, not that what was written makes sense. Here every
part is held against the others; whatever does not fit is a ValueError.
"""

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import jax
import numpy as np

from dagp.clutter import NoiseProcess, NoiseTails, UniformProcess
from dagp.data import Units
from dagp.fitting import Stream
from dagp.gate import GPGate
from dagp.model import DataAssociation
from dagp.parameters import is_parameter
from dagp.posterior import CHUNK, Posterior, predictive_shapes
from dagp.processes import check_columns
from dagp.runtime import DTYPES
from dagp.sparse import Natural, SparseGP
from dagp.stochastic import fresh_moments, levels
from dagp.validation import check_missing, check_parameters

if TYPE_CHECKING:
    from dagp.estimator import DAGP

__all__ = ["FITTED", "check_estimator", "check_rows"]

FITTED = {
    "active_": np.ndarray,
    "alternatives_": list,
    "assignment_": np.ndarray,
    "converged_": bool,
    "extent_": tuple,
    "feature_names_in_": np.ndarray,
    "flat_": bool,
    "lower_bound_": float,
    "lower_bounds_": np.ndarray,
    "n_features_in_": int,
    "n_iter_": int,
    "posterior_": Posterior,
    "responsibilities_": np.ndarray,
    "restarts_": list,
    "stream_": Stream,
}
"""All that a fit leaves behind and a file keeps. Fitted processes are read off again."""
_NOT_ALWAYS = {"feature_names_in_", "stream_"}
_START = {
    "kind": str,
    "bound": float,
    "rungs": tuple,
    "steps": int,
    "kept": bool,
    "fate": str,
    "moves": tuple,
}
MOST_PROCESSES = 1000
MOST_ARRAYS = 5000
"""More than any sensible model has: beyond, a small file could keep a computer busy for hours."""


def _insist(condition: Any, sentence: str) -> None:
    if not condition:
        raise ValueError(sentence)


def check_estimator(estimator: "DAGP", weights: list[float]) -> None:
    """Settings, attributes, model and the share of each process, held against each other."""
    check_parameters(estimator)
    check_missing(estimator.missing)
    for name, kind in FITTED.items():
        value = getattr(estimator, name, None)
        absent = value is None and name in _NOT_ALWAYS
        _insist(absent or isinstance(value, kind), f"{name} is a {type(value).__name__}")
    posterior = estimator.posterior_
    _check_units(posterior.units)
    D, P = posterior.units.x_unit.size, posterior.units.y_unit.size
    _check_rows_attributes(estimator)
    K = estimator.responsibilities_.shape[1]
    _insist(0 < K <= MOST_PROCESSES, f"{K} processes cannot be")
    _insist(vars(estimator)["n_features_in_"] == D, "n_features_in_ is not the number of inputs")
    _insist(P == 1 or not estimator.flat_, "several outputs are not flat")
    _insist(
        isinstance(weights, list) and len(weights) == K, "a process has no share, or a share none"
    )
    _insist(all(isinstance(w, float) and 0 <= w <= 1 + 1e-9 for w in weights), "a share is none")
    _check_extent(estimator.extent_, D)
    _check_names(getattr(estimator, "feature_names_in_", None), D)
    _check_starts(estimator.restarts_)
    _insist(posterior.dtype in DTYPES, "its numbers have no type")
    _check_model(posterior.model, K, posterior.dtype)
    _check_predictions(posterior, K, P)
    if (stream := getattr(estimator, "stream_", None)) is not None:
        _check_stream(stream, posterior)


def check_rows(data: Any, units: Any) -> None:
    """The rows that are kept with a model."""
    if data is None:
        return
    _insist(isinstance(data, dict) and set(data) == {"X", "y"}, "its data are none")
    _check_units(units)
    X, y = data["X"], data["y"]
    for column in (X, y):
        _insist(_numbers(column), "its data are not numbers")
    _insist(X.ndim == 2 and X.shape[1] == units.x_unit.size, "its data have other columns")
    _insist(y.ndim in (1, 2) and len(y) == len(X), "its data have other rows")
    _insist(y.ndim == 1 or y.shape[1] == units.y_unit.size, "its data have other outputs")


def _numbers(array: Any) -> bool:
    return isinstance(array, np.ndarray) and array.dtype.kind == "f"


def _finite(array: Any, most: float = np.inf) -> bool:
    if not _numbers(array):
        return False
    # In double precision: `most` may be more than single precision can hold.
    return bool(np.all(np.isfinite(array) & (np.abs(array.astype(np.float64)) <= most)))


def _root_of_largest(dtype: str) -> float:
    """The largest number that has a square."""
    return float(np.sqrt(np.finfo(dtype).max))


def _check_units(units: Any) -> None:
    _insist(isinstance(units, Units), "it has no units")
    for column in units:
        _insist(_finite(column) and column.ndim == 1 and column.size, "its units are not numbers")
    for centre, unit in ((units.x_centre, units.x_unit), (units.y_centre, units.y_unit)):
        usable = np.all(unit >= np.finfo(unit.dtype).tiny)
        _insist(centre.shape == unit.shape and usable, "its units are none")
    most = _root_of_largest("float64")
    _insist(np.all((units.y_unit > 1 / most) & (units.y_unit < most)), "its outputs have no square")


def _check_rows_attributes(estimator: "DAGP") -> None:
    """What a model says about each of its rows, and how it came to do so."""
    shares, assignment, active = (
        estimator.responsibilities_,
        estimator.assignment_,
        estimator.active_,
    )
    _insist(
        _finite(shares) and shares.ndim == 2 and shares.size, "responsibilities_ are no numbers"
    )
    _insist(np.all(shares >= 0), "responsibilities_ are negative")
    _insist(np.allclose(shares.sum(axis=1), 1.0), "responsibilities_ do not sum to one")
    _insist(assignment.dtype.kind == "i", "assignment_ has no whole numbers")
    _insist(np.array_equal(assignment, shares.argmax(axis=1)), "assignment_ says something else")
    _insist(active.dtype == bool and active.shape == shares.shape[1:], "active_ is something else")
    bounds = estimator.lower_bounds_
    _insist(_numbers(bounds) and bounds.ndim == 1, "lower_bounds_ are no numbers")
    _insist(not np.isnan(estimator.lower_bound_), "lower_bound_ is no number")
    _insist(estimator.n_iter_ >= 0, "n_iter_ is negative")


def _check_extent(extent: tuple[Any, ...], columns: int) -> None:
    right = len(extent) == 2 and all(_finite(e) and e.shape == (columns,) for e in extent)
    _insist(right and np.all(extent[0] <= extent[1]), "extent_ is no range")


def _check_names(names: Any, columns: int) -> None:
    if names is not None:
        _insist(names.shape == (columns,), "feature_names_in_ are not one per input")
        _insist(all(isinstance(name, str) for name in names), "feature_names_in_ are no names")


def _check_starts(starts: list[Any]) -> None:
    for start in starts:
        _insist(isinstance(start, dict) and set(start) == set(_START), "a start is not described")
        _insist(all(isinstance(start[n], kind) for n, kind in _START.items()), "a start is odd")
        _insist(all(isinstance(bound, float) for bound in start["rungs"]), "a rung has no bound")
        for name, gain in start["moves"]:
            _insist(isinstance(name, str) and isinstance(gain, float), "a move is odd")


def _check_model(model: Any, processes: int, dtype: str) -> None:
    """Arrays that are numbers, parameters that have values, groups that have members."""
    _insist(isinstance(model, DataAssociation), "its model is something else")
    leaves = jax.tree.leaves(model)
    _insist(len(leaves) <= MOST_ARRAYS, f"{len(leaves)} arrays are more than a model can have")
    most = _root_of_largest("float64")
    _insist(all(_finite(leaf, most) for leaf in leaves), "its parameters are not all numbers")
    members = model.members
    _insist(isinstance(model.groups, tuple) and isinstance(members, tuple), "it has no processes")
    everyone = sorted(k for group in members for k in group)
    _insist(everyone == list(range(processes)), "its processes are not all there")
    for group, who in zip(model.groups, members, strict=True):
        sizes = {np.shape(leaf)[:1] for leaf in jax.tree.leaves(group)}
        _insist(sizes <= {(len(who),)} and who, "a group has other members")
    if isinstance(model.gate, GPGate):
        _insist(model.gate.rule.points.shape[1:] == (processes,), "its gate has other processes")
    for parameter in _nodes(model, is_parameter):
        _check_parameter(parameter, _root_of_largest(dtype))
    # One at a time: stacked, their parameters have an axis more.
    for part in (model.gate, *map(model.process, range(processes))):
        for gp in _of(part, SparseGP):
            check_columns(gp.kernel, gp.inducing.raw.shape[-1])
    for q in _of(model, Natural):
        _insist(
            _has_factor(np.asarray(q.precision, np.float64), dtype), "it knows less than nothing"
        )
    for spread in _of(model, UniformProcess):
        _insist(np.all(spread.low <= spread.high), "clutter has no range")
    for tails in _of(model, NoiseTails):
        _insist(np.all((tails.share >= 0) & (tails.share <= 1)), "clutter has no tails")
    for noise in _of(model, NoiseProcess):
        _insist(np.all((noise.even == 0) | (noise.even == 1)), "clutter has no shape")


def _has_factor(precision: np.ndarray, dtype: str) -> bool:
    """Whether a precision is positive definite, as far as rounding can have left it so."""
    symmetric = (precision + np.swapaxes(precision, -1, -2)) / 2
    values = np.linalg.eigvalsh(symmetric)
    rounding = precision.shape[-1] * np.finfo(dtype).eps * values[..., -1]
    return bool(np.all(values[..., 0] > -rounding))


def _of(tree: Any, kind: type) -> Iterator[Any]:
    return _nodes(tree, lambda node: isinstance(node, kind))


def _nodes(tree: Any, wanted: Any) -> Iterator[Any]:
    return filter(wanted, jax.tree.leaves(tree, is_leaf=wanted))


def _check_parameter(parameter: Any, most: float) -> None:
    _insist(parameter.support in ("real", "positive"), "a parameter has no support")
    value = np.asarray(parameter.raw, np.float64)
    if parameter.support == "positive":
        with np.errstate(over="ignore", under="ignore"):
            value = np.asarray(np.exp(value - parameter.unit))
        _insist(np.all(value > 0), "a parameter has no value")
    _insist(_finite(value, most), "a parameter is beyond all bounds")


def _check_predictions(posterior: Posterior, processes: int, outputs: int) -> None:
    """Traced, not computed: shapes that do not fit together are found here."""
    weights, parts = predictive_shapes(posterior, posterior.units.x_unit.size)
    _insist(weights.shape == (CHUNK, processes), "its gate has other processes")
    for part, who in zip(parts, posterior.model.members, strict=True):
        for values in (part.mean, part.variance, part.noise):
            right = values.shape == (len(who), part.masses.shape[-1], CHUNK, outputs)
            _insist(right, "a process has other outputs")


def _shapes(tree: Any) -> Any:
    return jax.tree.structure(tree), [np.shape(leaf) for leaf in jax.tree.leaves(tree)]


def _check_stream(stream: Stream, posterior: Posterior) -> None:
    model = stream.model
    _insist(_shapes(model) == _shapes(posterior.model), "its stream is of another model")
    _insist(all(map(_finite, jax.tree.leaves(model))), "its stream is not all numbers")
    _insist(isinstance(stream.seen, float) and np.isfinite(stream.seen), "its stream saw nothing")
    _insist(type(stream.steps) is int and stream.steps >= 0, "its stream took no steps")
    if stream.moments is not None:
        fresh = jax.eval_shape(lambda: fresh_moments(model, levels(model)))
        _insist(_shapes(stream.moments) == _shapes(fresh), "its stream has other moments")
