"""Fitted estimators in files, and what is needed to go on with a fit that was cut off."""

import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from sklearn.utils.validation import check_is_fitted

from dagp import storage
from dagp.data import Sample
from dagp.errors import StorageError
from dagp.fitted import fitted_process
from dagp.memory import Memory
from dagp.posterior import Posterior, predictive_shapes
from dagp.version import __version__

if TYPE_CHECKING:
    from dagp.estimator import DAGP

__all__ = ["about", "checkpoint", "load", "save", "training_data"]

MODEL, CHECKPOINT = "model", "checkpoint"
_TOLD = ("callbacks", "verbose", "checkpoint", "checkpoint_every", "resume")
"""Settings of one run of the program, which mean nothing to another."""
_FITTED = {
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
    "stream_": tuple,
}
"""All that a fit leaves behind and a file keeps. Fitted processes are read off again."""


def save(
    estimator: "DAGP",
    path: str | Path,
    data: tuple[Any, Any] | None,
    target: str | None = None,
) -> Path:
    """Write a fitted estimator; `data` are the rows it was fitted to, for a later report.

    `target` is what the output is called where the data come from.
    """
    check_is_fitted(estimator)
    tree: dict[str, Any] = {"estimator": _taken_apart(estimator), "data": None}
    if data is not None:
        X, y = (np.asarray(column, np.float64) for column in data)
        tree["data"] = {"X": X, "y": y}
    said = {} if target is None else {"target": target}
    return storage.save(path, MODEL, about(estimator) | said, tree)


def about(estimator: "DAGP") -> dict[str, Any]:
    """What somebody wants to know about a model who has only its file."""
    names, units = getattr(estimator, "feature_names_in_", None), estimator.posterior_.units
    return {
        "dagp": __version__,
        "rows": len(estimator.assignment_),
        "features": units.x_unit.size if names is None else list(map(str, names)),
        "outputs": units.y_unit.size,
        "processes": [
            {"kind": p.kind, "share": float(p.weight_), "used": bool(used)}
            for p, used in zip(estimator.processes_, estimator.active_, strict=True)
        ],
        "lower_bound": float(estimator.lower_bound_),
        "converged": bool(estimator.converged_),
    }


def load(cls: "type[DAGP]", path: str | Path) -> "DAGP":
    """The estimator in a file."""
    tree = storage.load(path, MODEL)
    try:
        return _put_together(cls, tree["estimator"])
    except (AttributeError, KeyError, TypeError, ValueError, IndexError) as error:
        raise StorageError(f"{path} does not hold a whole model: {error}") from error


def training_data(path: str | Path) -> tuple[np.ndarray, np.ndarray] | None:
    """The rows a model in a file was fitted to, where they were saved with it."""
    data = storage.load(path, MODEL)["data"]
    return None if data is None else (data["X"], data["y"])


def _taken_apart(estimator: "DAGP") -> dict[str, Any]:
    fitted = {name: getattr(estimator, name) for name in _FITTED if hasattr(estimator, name)}
    fitted["alternatives_"] = [_taken_apart(other) for other in estimator.alternatives_]
    weights = [process.weight_ for process in estimator.processes_]
    return {"settings": _settings(estimator), "fitted": fitted, "weights": weights}


def _settings(estimator: "DAGP") -> dict[str, Any]:
    settings = {k: v for k, v in estimator.get_params(deep=False).items() if k not in _TOLD}
    if not isinstance(settings["random_state"], int | None):
        # A generator has moved on since; what it was cannot be told from what it is.
        settings["random_state"] = None
    if isinstance(settings["processes"], tuple):
        settings["processes"] = list(settings["processes"])
    return settings


def _put_together(cls: "type[DAGP]", parts: Mapping[str, Any]) -> "DAGP":
    estimator = cls(**parts["settings"])
    for name, value in parts["fitted"].items():
        if not isinstance(value, _FITTED[name]):
            raise TypeError(f"{name} is a {type(value).__name__}")
        setattr(estimator, name, value)
    rows, processes = estimator.responsibilities_.shape
    posterior = estimator.posterior_
    # Traced, not computed: shapes that do not fit together are found here, not at a prediction.
    weights = predictive_shapes(posterior, posterior.units.x_unit.size)
    if weights.shape[1] != processes or len(estimator.assignment_) != rows:
        raise ValueError("its parts do not fit together")
    others: list[Any] = estimator.alternatives_
    estimator.alternatives_ = [_put_together(cls, other) for other in others]
    estimator.processes_ = [
        fitted_process(estimator, posterior, k, float(parts["weights"][k]))
        for k in range(processes)
    ]
    return estimator


def checkpoint(estimator: "DAGP", sample: Sample) -> Memory | None:
    """A memory that is written down now and then; with what was written before, on `resume`.

    None where the estimator asks for no checkpoints.
    """
    if estimator.checkpoint is None:
        return None
    path, every = Path(estimator.checkpoint), float(estimator.checkpoint_every)
    identity = storage.fingerprint([_settings(estimator), *sample])
    finished, note = [], None
    if estimator.resume and path.exists():
        tree = storage.load(path, CHECKPOINT)
        if tree["identity"] != identity:
            raise StorageError(
                f"{path} belongs to a fit with other data or settings; remove it, or repeat the "
                "fit as it was."
            )
        finished, note = tree["finished"], tree["note"]
    return Memory(finished, note, _now_and_then(path, every, identity))


def _now_and_then(path: Path, every: float, identity: str) -> Callable[[Memory], None]:
    last = time.monotonic()

    def keep(memory: Memory) -> None:
        nonlocal last
        if time.monotonic() - last < every:
            return
        tree = {"identity": identity, "finished": memory.finished, "note": memory.note}
        storage.save(path, CHECKPOINT, {"runs": len(memory.finished)}, tree)
        last = time.monotonic()

    return keep
