"""Consistency checks of fitted estimators that are read from files.

Digests prove that a file is unchanged, not that its content is valid. Here attributes, units, model
and optimiser state are checked against each other; an inconsistency raises ValueError.
"""

from typing import TYPE_CHECKING, Any

import jax
import numpy as np

from dagp.core.precision import DTYPES
from dagp.core.text import quoted
from dagp.inference.minibatch import init_opt_state, noise_levels
from dagp.inference.standardize import Units
from dagp.inference.stream import Stream
from dagp.model.association import DataAssociation
from dagp.model.parameters import parameters_of
from dagp.predict.posterior import CHUNK, Posterior, predictive_shapes
from dagp.tables.columns import Columns
from dagp.tables.settings import MOST_PROCESSES, check_settings

if TYPE_CHECKING:
    from dagp.estimator import DAGP

FITTED = {
    "active_": np.ndarray,
    "alternatives_": list,
    "assignment_": np.ndarray,
    "columns_": Columns,
    "confidence_": float,
    "converged_": bool,
    "extent_": tuple,
    "feature_names_in_": np.ndarray,
    "flat_": bool,
    "index_": np.ndarray,
    "joints_": list,
    "log_stds_": list,
    "lower_bound_": float,
    "lower_bounds_": np.ndarray,
    "n_features_in_": int,
    "n_iter_": int,
    "posterior_": Posterior,
    "responsibilities_": np.ndarray,
    "restarts_": list,
    "stream_": Stream,
    "target_names_": list,
    "used_mask_": np.ndarray,
}
"""Fitted attributes that files store, and their types. `processes_` are rebuilt."""
_NOT_ALWAYS = {
    "columns_",
    "confidence_",
    "feature_names_in_",
    "joints_",
    "log_stds_",
    "stream_",
    "target_names_",
}
_START = {
    "kind": str,
    "bound": float,
    "rungs": tuple,
    "steps": int,
    "kept": bool,
    "fate": str,
    "moves": tuple,
}
MOST_ARRAYS = 5000
"""Far above any real model, so that a small file cannot cause hours of computation."""


def _require(condition: Any, message: str) -> None:
    if not condition:
        raise ValueError(message)


def check_estimator(estimator: "DAGP", weights: list[float]) -> None:
    """Check settings, attributes, model and the share of each process against each other."""
    check_settings(estimator)
    for name, kind in FITTED.items():
        value = getattr(estimator, name, None)
        absent = value is None and name in _NOT_ALWAYS
        expected = f"{name} must be of type {kind.__name__}, got {type(value).__name__}"
        _require(absent or isinstance(value, kind), expected)
    sure = getattr(estimator, "confidence_", np.nan)
    _require(np.isnan(sure) or 0 <= sure <= 1, "confidence_ must be between 0 and 1, or NaN")
    posterior = estimator.posterior_
    _check_units(posterior.units)
    D, P = posterior.units.x_unit.size, posterior.units.y_unit.size
    _check_rows_attributes(estimator)
    K = estimator.responsibilities_.shape[1]
    _require(0 < K <= MOST_PROCESSES, f"{K} processes, expected 1 to {MOST_PROCESSES}")
    U = _check_columns(estimator, D)
    _require(P == 1 or not estimator.flat_, f"flat_ must be False with {P} outputs")
    right = isinstance(weights, list) and len(weights) == K
    _require(right, f"shares must be a list of one number per process ({K})")
    right = all(isinstance(w, float) and 0 <= w <= 1 + 1e-9 for w in weights)
    _require(right, "shares must be between 0 and 1")
    _require(abs(sum(weights) - 1) < 1e-6, f"shares must sum to one, got {sum(weights):g}")
    _check_extent(estimator.extent_, D)
    _check_names("feature_names_in_", getattr(estimator, "feature_names_in_", None), U)
    _check_names("target_names_", estimator.target_names_, P)
    _check_starts(estimator.restarts_)
    _check_joints(getattr(estimator, "joints_", []), K)
    _check_log_stds(getattr(estimator, "log_stds_", None), K)
    _require(
        posterior.dtype in DTYPES, f"dtype must be one of {DTYPES}, got {quoted(posterior.dtype)}"
    )
    shares = 0.0
    for weight, one, order in posterior.associations():
        right = isinstance(weight, float) and 0 <= weight <= 1
        _require(right, "the probability of an association must be between 0 and 1")
        _require(sorted(order) == list(range(K)), f"its order must be one of {K} processes")
        _check_model(one.model, K, posterior.dtype)
        _check_predictions(one, K, P)
        shares += weight
    _require(abs(shares - 1) < 1e-6, "the probabilities of associations must sum to one")
    most = 1 + len(estimator.alternatives_)
    _require(len(posterior.associations()) <= most, "every association must have an alternative")
    if (stream := getattr(estimator, "stream_", None)) is not None:
        _check_stream(stream, posterior)


def _check_joints(found: list[Any], K: int) -> None:
    for joint in found:
        names = {"processes", "beyond", "share", "log_odds"}
        right = isinstance(joint, dict) and set(joint) == names
        right = right and all(isinstance(joint[n], float) for n in names - {"processes"})
        right = right and len(joint["processes"]) == 2 and 0 <= joint["share"] <= 1
        right = right and all(isinstance(k, int) and 0 <= k < K for k in joint["processes"])
        _require(right, "joints_ must hold pairs of processes, a value, a share and log odds")


def _check_log_stds(found: Any, K: int) -> None:
    if found is None:
        return
    right = len(found) == K and all(isinstance(one, dict) for one in found)
    _require(right, f"log_stds_ must be a list of {K} dictionaries")
    for name, values in (item for one in found for item in one.items()):
        right = name in ("noise_std", "lengthscale", "variance") and _finite(values)
        right = right and values.ndim == 1 and np.all(values >= 0)
        _require(right, "log_stds_ must hold standard deviations of hyperparameters")


def check_rows(data: Any, units: Any) -> None:
    """Check the training rows that are saved with a model."""
    if data is None:
        return
    right = isinstance(data, dict) and set(data) == {"X", "y"}
    _require(right, "data must be a dictionary of X and y")
    _check_units(units)
    X, y = data["X"], data["y"]
    D, P = units.x_unit.size, units.y_unit.size
    for name, column in (("X", X), ("y", y)):
        _require(_numbers(column), f"data {name} must be an array of floats")
    _require(X.ndim == 2 and X.shape[1] == D, f"data X must have {D} columns, got {X.shape}")
    right = y.ndim in (1, 2) and len(y) == len(X)
    _require(right, f"data y must have {len(X)} rows, got {y.shape}")
    _require(y.ndim == 1 or y.shape[1] == P, f"data y must have {P} columns, got {y.shape}")


def _numbers(array: Any) -> bool:
    return isinstance(array, np.ndarray) and array.dtype.kind == "f"


def _finite(array: Any, most: float = np.inf) -> bool:
    if not _numbers(array):
        return False
    # In double precision, because `most` may overflow in single precision.
    return bool(np.all(np.isfinite(array) & (np.abs(array.astype(np.float64)) <= most)))


def _root_of_largest(dtype: str) -> float:
    return float(np.sqrt(np.finfo(dtype).max))


def _check_units(units: Any) -> None:
    _require(isinstance(units, Units), f"units must be Units, got {type(units).__name__}")
    for name, column in units._asdict().items():
        right = _finite(column) and column.ndim == 1 and column.size
        _require(right, f"units.{name} must be a 1-D array of finite floats")
    for centre, unit in ((units.x_centre, units.x_unit), (units.y_centre, units.y_unit)):
        usable = np.all(unit >= np.finfo(unit.dtype).tiny)
        right = centre.shape == unit.shape and usable
        _require(right, "units must have one centre and one positive unit per column")
    most = _root_of_largest("float64")
    right = np.all((units.y_unit > 1 / most) & (units.y_unit < most))
    _require(right, f"units.y_unit must be between {1 / most:.0e} and {most:.0e}")


def _check_rows_attributes(estimator: "DAGP") -> None:
    shares, assignment = estimator.responsibilities_, estimator.assignment_
    active, used = estimator.active_, estimator.used_mask_
    right = _numbers(shares) and shares.ndim == 2 and shares.size
    _require(right, "responsibilities_ must be a 2-D array of floats")
    right = used.dtype == bool and used.shape == shares.shape[:1] and used.any()
    _require(right, "used_mask_ must have one boolean per row, and be true somewhere")
    _require(np.all(np.isnan(shares[~used])), "responsibilities_ of dropped rows must be NaN")
    found = shares[used]
    _require(_finite(found), "responsibilities_ of rows in use must be finite")
    _require(np.all(found >= 0), f"responsibilities_ must not be negative, got {found.min()}")
    _require(np.allclose(found.sum(axis=1), 1.0), "responsibilities_ must sum to one per row")
    right = assignment.dtype.kind == "i" and assignment.shape == used.shape
    _require(right, f"assignment_ must be one int per row, got {assignment.dtype}")
    right = np.array_equal(assignment[used], found.argmax(axis=1))
    _require(right, "assignment_ must be the column of the largest responsibility per row")
    _require(np.all(assignment[~used] == -1), "assignment_ of dropped rows must be -1")
    _require(estimator.index_.shape == used.shape, "index_ must have one label per row")
    right = active.dtype == bool and active.shape == found.shape[1:]
    _require(right, "active_ must have one boolean per process")
    bounds = estimator.lower_bounds_
    _require(_numbers(bounds) and bounds.ndim == 1, "lower_bounds_ must be a 1-D array of floats")
    _require(not np.isnan(estimator.lower_bound_), "lower_bound_ must not be NaN")
    _require(estimator.n_iter_ >= 0, f"n_iter_ must not be negative, got {estimator.n_iter_}")


def _check_columns(estimator: "DAGP", encoded: int) -> int:
    """Number of columns of the table, which are encoded as so many."""
    found, columns = vars(estimator)["n_features_in_"], getattr(estimator, "columns_", None)
    if columns is None:
        _require(found == encoded, f"n_features_in_ is {found}, the units have {encoded} columns")
        return found
    columns.check()
    right = found == len(columns.columns)
    _require(right, f"n_features_in_ is {found}, columns_ describes {len(columns.columns)} columns")
    right = encoded == len(columns.names)
    _require(right, f"columns_ makes {len(columns.names)} columns, the units have {encoded}")
    return found


def _check_extent(extent: tuple[Any, ...], columns: int) -> None:
    right = len(extent) == 2 and all(_finite(e) and e.shape == (columns,) for e in extent)
    right = right and np.all(extent[0] <= extent[1])
    _require(right, f"extent_ must be the lower and upper ends of {columns} inputs")


def _check_names(which: str, names: Any, columns: int) -> None:
    if names is not None:
        _require(np.shape(names) == (columns,), f"{which} must have {columns} names")
        _require(all(isinstance(name, str) for name in names), f"{which} must be strings")


def _check_starts(starts: list[Any]) -> None:
    for start in starts:
        right = isinstance(start, dict) and set(start) == set(_START)
        _require(right, f"restarts_ must be dictionaries of {', '.join(_START)}")
        for name, kind in _START.items():
            _require(isinstance(start[name], kind), f"{name} in restarts_ must be {kind.__name__}")
        _require(start["steps"] >= 0, "steps in restarts_ must not be negative")
        right = all(isinstance(bound, float) for bound in start["rungs"])
        _require(right, "rungs in restarts_ must be floats")
        for name, gain in start["moves"]:
            right = isinstance(name, str) and isinstance(gain, float)
            _require(right, "moves in restarts_ must be pairs of name and gain")


def _check_model(model: Any, processes: int, dtype: str) -> None:
    kind = type(model).__name__
    _require(isinstance(model, DataAssociation), f"model must be DataAssociation, got {kind}")
    leaves = jax.tree.leaves(model)
    _require(len(leaves) <= MOST_ARRAYS, f"{len(leaves)} arrays, at most {MOST_ARRAYS} expected")
    most = _root_of_largest("float64")
    right = all(_finite(leaf, most) for leaf in leaves)
    _require(right, f"model arrays must be floats below {most:.0e}")
    members = model.members
    right = isinstance(model.groups, tuple) and isinstance(members, tuple)
    _require(right, "groups and members of the model must be tuples")
    indices = sorted(k for group in members for k in group)
    _require(indices == list(range(processes)), f"members must be 0 to {processes - 1}, once each")
    for group, ks in zip(model.groups, members, strict=True):
        sizes = {np.shape(leaf)[:1] for leaf in jax.tree.leaves(group)}
        _require(sizes <= {(len(ks),)} and ks, f"arrays of a group must have {len(ks)} processes")
    # One at a time: stacked parameters have an additional axis, and so have their units.
    each = [model.process(k) for k in range(processes)]
    for parameter in parameters_of((model.gate, each)):
        _check_parameter(parameter, _root_of_largest(dtype))
    model.gate.check(processes, dtype)
    for process in each:
        process.check(dtype)


def _check_parameter(parameter: Any, most: float) -> None:
    right = parameter.support in ("real", "positive")
    _require(
        right, f"support of a parameter must be real or positive, got {quoted(parameter.support)}"
    )
    value, entries = np.asarray(parameter.raw, np.float64), parameter.entries
    if entries is not None:
        most_entries = np.broadcast_shapes(value.shape, np.shape(parameter.unit))[-1]
        right = isinstance(entries, tuple) and set(entries) <= set(range(most_entries))
        _require(right, f"entries of a parameter must be below {most_entries}, got {entries}")
    if parameter.support == "positive":
        with np.errstate(over="ignore", under="ignore"):
            value = np.asarray(np.exp(value - parameter.unit))
        _require(np.all(value > 0), "a positive parameter must be above zero")
    _require(_finite(value, most), f"a parameter must be finite and below {most:.0e}")


def _check_predictions(posterior: Posterior, processes: int, outputs: int) -> None:
    """Check the shapes of predictions, by tracing without computation."""
    weights, parts = predictive_shapes(posterior, posterior.units.x_unit.size)
    right = weights.shape == (CHUNK, processes)
    _require(right, f"gate must have {processes} processes, got {weights.shape[1:]}")
    for part, ks in zip(parts, posterior.model.members, strict=True):
        for values in (part.mean, part.variance, part.noise):
            right = values.shape == (len(ks), part.masses.shape[-1], CHUNK, outputs)
            _require(right, f"processes must predict {outputs} outputs, got {values.shape[3:]}")


def _shapes(tree: Any) -> Any:
    return jax.tree.structure(tree), [np.shape(leaf) for leaf in jax.tree.leaves(tree)]


def _check_stream(stream: Stream, posterior: Posterior) -> None:
    model = stream.model
    right = _shapes(model) == _shapes(posterior.model)
    _require(right, "stream_.model must have the structure of posterior_.model")
    _require(all(map(_finite, jax.tree.leaves(model))), "stream_.model must be finite floats")
    right = isinstance(stream.seen, float) and 0 <= stream.seen < np.inf
    _require(right, f"stream_.seen must be a non-negative float, got {quoted(stream.seen)}")
    right = type(stream.steps) is int and stream.steps >= 0
    _require(right, f"stream_.steps must be a non-negative int, got {quoted(stream.steps)}")
    if stream.opt_state is not None:
        fresh = jax.eval_shape(lambda: init_opt_state(model, noise_levels(model)))
        right = _shapes(stream.opt_state) == _shapes(fresh)
        _require(right, "stream_.opt_state must fit stream_.model")
        counts = [np.asarray(leaf) for leaf in jax.tree.leaves(stream.opt_state)]
        right = all(np.all(count >= 0) for count in counts if count.dtype.kind == "i")
        _require(right, "stream_.opt_state must not count negative steps")
