"""Fitted estimators in files, and what is needed to go on with a fit that was cut off."""

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from sklearn.utils.validation import check_is_fitted

from dagp import storage
from dagp.audit import FITTED, check_estimator, check_rows
from dagp.data import Sample
from dagp.errors import StorageError
from dagp.fitted import fitted_process
from dagp.memory import Memory, held
from dagp.placement import agreed, leading
from dagp.version import __version__
from dagp.wholefile import discard

if TYPE_CHECKING:
    from dagp.estimator import DAGP

__all__ = [
    "about",
    "checkpoint",
    "forget_checkpoint",
    "keeping_checkpoint",
    "load",
    "save",
    "settings",
    "training_data",
]

MODEL, CHECKPOINT = "model", "checkpoint"
_TOLD = ("callbacks", "verbose", "checkpoint", "checkpoint_every", "resume")
"""Settings of one run of the program, which mean nothing to another."""
_longer: ContextVar[bool] = ContextVar("whether checkpoints outlive their fits", default=False)


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
    # What would not be believed when it is read is not written.
    with _refusing(f"Cannot save this model in {path}"):
        check_rows(tree["data"], estimator.posterior_.units)
        for one in (estimator, *estimator.alternatives_):
            check_estimator(one, [process.weight_ for process in one.processes_])
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
    with _refusing(f"{path} does not hold a whole model"):
        estimator = _put_together(cls, tree["estimator"])
        check_rows(tree["data"], estimator.posterior_.units)
    return estimator


def training_data(path: str | Path) -> tuple[np.ndarray, np.ndarray] | None:
    """The rows a model in a file was fitted to, where they were saved with it."""
    tree = storage.load(path, MODEL)
    with _refusing(f"{path} does not hold a whole model"):
        data = tree["data"]
        check_rows(data, tree["estimator"]["fitted"]["posterior_"].units)
    return None if data is None else (data["X"], data["y"])


@contextmanager
def _refusing(what: str) -> Iterator[None]:
    try:
        yield
    except MemoryError:
        raise
    except Exception as error:
        # Objects in a file are filled in, not built: there is no telling how odd ones give in.
        reason = storage.shown(" ".join(str(error).split())) or type(error).__name__
        raise StorageError(f"{what}: {reason}") from error


def _taken_apart(estimator: "DAGP") -> dict[str, Any]:
    fitted = {name: getattr(estimator, name) for name in FITTED if hasattr(estimator, name)}
    fitted["alternatives_"] = [_taken_apart(other) for other in estimator.alternatives_]
    weights = [process.weight_ for process in estimator.processes_]
    return {"settings": settings(estimator), "fitted": fitted, "weights": weights}


def settings(estimator: "DAGP") -> dict[str, Any]:
    """The settings that say what is fitted, without those of one run of the program."""
    kept = {k: v for k, v in estimator.get_params(deep=False).items() if k not in _TOLD}
    if not isinstance(kept["random_state"], int | None):
        # A generator has moved on since; what it was cannot be told from what it is.
        kept["random_state"] = None
    if isinstance(kept["processes"], tuple):
        kept["processes"] = list(kept["processes"])
    return kept


def _put_together(cls: "type[DAGP]", parts: Mapping[str, Any]) -> "DAGP":
    expected = set(cls().get_params(deep=False)) - set(_TOLD)
    if set(parts["settings"]) != expected:
        raise ValueError("other settings")
    estimator = cls(**parts["settings"])
    for name, value in parts["fitted"].items():
        if name not in FITTED:
            raise ValueError(f"{name} is nothing that a fit leaves behind")
        setattr(estimator, name, value)
    check_estimator(estimator, parts["weights"])
    others: list[Any] = estimator.alternatives_
    estimator.alternatives_ = [_put_together(cls, other) for other in others]
    estimator.processes_ = [
        fitted_process(estimator, estimator.posterior_, k, weight)
        for k, weight in enumerate(parts["weights"])
    ]
    return estimator


def checkpoint(estimator: "DAGP", sample: Sample) -> Memory | None:
    """A memory that is written down now and then; with what was written before, on `resume`.

    None where the estimator asks for no checkpoints.
    """
    if estimator.checkpoint is None:
        return None
    path, every = Path(estimator.checkpoint), float(estimator.checkpoint_every)
    identity = storage.fingerprint([__version__, settings(estimator), *sample])
    finished, note = [], None
    if estimator.resume and path.exists():
        tree = storage.load(path, CHECKPOINT)
        if not isinstance(tree, dict) or not isinstance(tree.get("finished"), list):
            raise StorageError(f"{path} does not hold a whole checkpoint; remove it.")
        if tree.get("identity") != identity:
            raise StorageError(
                f"{path} belongs to a fit with other data or settings, or of another version; "
                "remove it, or repeat the fit as it was."
            )
        finished, note = tree["finished"], tree.get("note")
    return Memory(finished, note, _now_and_then(path, every, identity))


def forget_checkpoint(estimator: "DAGP") -> None:
    """Remove the checkpoint of a fit that is complete, unless somebody needs it a little longer."""
    if estimator.checkpoint is not None and leading() and not _longer.get():
        discard(estimator.checkpoint)


@contextmanager
def keeping_checkpoint() -> Iterator[None]:
    """Let the checkpoint of a fit inside the ``with`` block outlive it, until its model is safe."""
    token = _longer.set(True)
    try:
        yield
    finally:
        _longer.reset(token)


def _now_and_then(path: Path, every: float, identity: str) -> Callable[[Memory], None]:
    last = time.monotonic()

    def keep(memory: Memory) -> None:
        nonlocal last
        if not agreed(time.monotonic() - last >= every):
            return
        tree = {"identity": identity, "finished": memory.finished, "note": held(memory.note)}
        if leading():
            storage.save(path, CHECKPOINT, {"runs": len(memory.finished)}, tree)
        last = time.monotonic()

    return keep
