"""Model files of fitted estimators, and checkpoints of interrupted fits."""

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from sklearn.utils.validation import check_is_fitted

from dagp.core.errors import StorageError
from dagp.core.sharding import any_worker, is_leader
from dagp.core.text import one_line
from dagp.core.version import __version__
from dagp.files import format as storage
from dagp.files.atomic import Hold, discard
from dagp.files.integrity import FITTED, check_estimator, check_rows
from dagp.files.migrations import as_format_1
from dagp.inference.run_log import NO_LOG, RunLog, arrays_on_host
from dagp.inference.standardize import Sample
from dagp.predict.process import fitted_process
from dagp.tables.columns import Columns
from dagp.tables.kinds import Number

if TYPE_CHECKING:
    from dagp.estimator import DAGP

MODEL, CHECKPOINT = "model", "checkpoint"
_RUN_SETTINGS = ("callbacks", "verbose", "progress", "checkpoint", "checkpoint_every", "resume")
"""Settings of a single run, which are not saved."""
PROCEDURE = "0.4.0"
"""Version of the sequence of training runs; a checkpoint of another one cannot be resumed."""


def save(
    estimator: "DAGP",
    path: str | Path,
    data: tuple[Any, Any] | None,
    target: str | None = None,
    more: Mapping[str, Any] | None = None,
) -> Path:
    """Write a fitted estimator, its training rows `data`, the name `target` of its output, and
    `more` parts, of models that are built on it."""
    check_is_fitted(estimator)
    tree: dict[str, Any] = {**(more or {}), "estimator": _taken_apart(estimator), "data": None}
    if data is not None:
        columns = estimator.columns_
        X = data[0] if columns.plain else columns.encode(data[0])
        tree["data"] = {"X": np.asarray(X, np.float64), "y": np.asarray(data[1], np.float64)}
    # A model that `load` would refuse is not written.
    with refusing(f"Cannot save this model in {path}"):
        check_rows(tree["data"], estimator.posterior_.units)
        for one in (estimator, *estimator.alternatives_):
            check_estimator(one, [process.share_ for process in one.processes_])
    named = {} if target is None else {"target": target}
    return storage.save(path, MODEL, about(estimator) | named, tree)


def about(estimator: "DAGP") -> dict[str, Any]:
    """Facts about a model that `dagp info` shows."""
    names, units = getattr(estimator, "feature_names_in_", None), estimator.posterior_.units
    return {
        "dagp": __version__,
        "rows": len(estimator.assignment_),
        "features": estimator.n_features_in_ if names is None else list(map(str, names)),
        "outputs": units.y_unit.size,
        "processes": [
            {"kind": p.kind, "share": float(p.share_), "used": bool(used)}
            for p, used in zip(estimator.processes_, estimator.active_, strict=True)
        ],
        "lower_bound": float(estimator.lower_bound_),
        "converged": bool(estimator.converged_),
    }


def load(cls: "type[DAGP]", path: str | Path) -> "DAGP":
    """The estimator in a file."""
    tree = storage.load(path, MODEL)
    with refusing(f"{path} does not hold a whole model"):
        estimator = _put_together(cls, tree["estimator"])
        check_rows(tree["data"], estimator.posterior_.units)
    return estimator


def training_data(path: str | Path) -> tuple[np.ndarray, np.ndarray] | None:
    """The training rows of a model in a file, if they were saved with it.

    Categories and times are decoded: an array of objects, that the model encodes again.
    """
    tree = storage.load(path, MODEL)
    with refusing(f"{path} does not hold a whole model"):
        data, fitted = tree["data"], tree["estimator"]["fitted"]
        check_rows(data, fitted["posterior_"].units)
        if data is None:
            return None
        columns = fitted.get("columns_")
        return data["X"] if columns is None else columns.decode(data["X"]), data["y"]


def part(path: str | Path, name: str) -> Any:
    """One of the `more` parts of a file."""
    tree = storage.load(path, MODEL)
    if name not in tree:
        raise StorageError(f"{path} does not hold a {name} model, but a plain one.")
    return tree[name]


@contextmanager
def refusing(what: str) -> Iterator[None]:
    """Turn errors about the content of a file into `StorageError`."""
    try:
        yield
    except (MemoryError, StorageError):
        raise
    except Exception as error:
        # Fields of objects in a file are set without constructors: invalid ones may raise anything.
        reason = one_line(str(error)) or type(error).__name__
        raise StorageError(f"{what}: {reason}") from error


def _taken_apart(estimator: "DAGP") -> dict[str, Any]:
    fitted = {name: getattr(estimator, name) for name in FITTED if hasattr(estimator, name)}
    fitted["alternatives_"] = [_taken_apart(other) for other in estimator.alternatives_]
    for shared in fitted["alternatives_"]:
        # The rows are those of the estimator.
        del shared["fitted"]["index_"]
    fitted["index_"] = _packed(estimator.index_)
    shares = [process.share_ for process in estimator.processes_]
    return {"settings": settings(estimator), "fitted": fitted, "shares": shares}


def _packed(names: np.ndarray) -> Any:
    """Names of rows as arrays that a file can hold: numbers, or the bytes of their text with its
    ends; None for names that are positions."""
    if names.dtype.kind in "iu":
        return None if np.array_equal(names, np.arange(len(names))) else names.astype(np.int64)
    words = [str(name).encode("utf-8", "replace") for name in names.tolist()]
    text = np.frombuffer(b"".join(words), np.uint8)
    return {"text": text, "ends": np.cumsum([len(word) for word in words], dtype=np.int64)}


def _unpacked(packed: Any, rows: int) -> np.ndarray:
    """Names of rows from a file; those of other types than numbers are strings."""
    if packed is None:
        return np.arange(rows)
    if isinstance(packed, np.ndarray):
        return packed
    ends = packed["ends"].tolist()
    text = packed["text"].tobytes()
    words = [text[begin:end].decode() for begin, end in zip([0, *ends], ends, strict=False)]
    names = np.empty(len(words), object)
    names[:] = words
    return names


def settings(estimator: "DAGP") -> dict[str, Any]:
    """The settings that determine a fit, without those of a single run."""
    kept = {
        # A setting counts by its value, whether it is a number of Python or of NumPy.
        name: value.item() if isinstance(value, np.generic) else value
        for name, value in estimator.get_params(deep=False).items()
        if name not in _RUN_SETTINGS
    }
    if not isinstance(kept["random_state"], int | None):
        # The state of a generator at the start of the fit is not known any more.
        kept["random_state"] = None
    if kept["columns"] is not None:
        kept["columns"] = dict(kept["columns"])
    if isinstance(kept["processes"], tuple):
        kept["processes"] = list(kept["processes"])
    return kept


def _put_together(cls: "type[DAGP]", parts: Mapping[str, Any]) -> "DAGP":
    expected = set(cls().get_params(deep=False)) - set(_RUN_SETTINGS)
    if set(parts["settings"]) != expected:
        raise ValueError(f"other settings: {sorted(map(str, set(parts['settings']) ^ expected))}")
    estimator = cls(**parts["settings"])
    for name, value in parts["fitted"].items():
        if name not in FITTED:
            raise ValueError(f"{name} is not a fitted attribute")
        setattr(estimator, name, value)
    _complete(estimator, parts["fitted"])
    check_estimator(estimator, parts["shares"])
    others: list[Any] = estimator.alternatives_
    estimator.alternatives_ = [_put_together(cls, other) for other in others]
    for other in estimator.alternatives_:
        other.index_ = estimator.index_
    estimator.processes_ = [
        fitted_process(estimator, estimator.posterior_, k, share)
        for k, share in enumerate(parts["shares"])
    ]
    return estimator


def _complete(estimator: "DAGP", fitted: Mapping[str, Any]) -> None:
    """Set the attributes that are packed in files, or that older ones do not have."""
    rows = len(estimator.assignment_)
    estimator.index_ = _unpacked(fitted.get("index_"), rows)
    if "used_mask_" not in fitted:
        estimator.used_mask_ = np.full(rows, True)
    estimator.confidence_ = fitted.get("confidence_", np.nan)
    estimator.joints_ = fitted.get("joints_", [])
    estimator.target_names_ = fitted.get("target_names_")
    estimator.log_stds_ = fitted.get("log_stds_", [{} for _ in range(len(estimator.active_))])
    if "columns_" not in fitted:
        names = getattr(estimator, "feature_names_in_", range(estimator.n_features_in_))
        estimator.columns_ = Columns(tuple(map(Number, names)))


def checkpoint_log(estimator: "DAGP", sample: Sample, hold: bool = True) -> RunLog:
    """The run log of the estimator's checkpoint, with its content on `resume`.

    Until it is released no other fit can have a log of the same file, unless `hold` is false.
    """
    if estimator.checkpoint is None:
        return NO_LOG
    path, every = Path(estimator.checkpoint), float(estimator.checkpoint_every)
    if path.exists() and not estimator.resume and not is_checkpoint(path):
        raise StorageError(
            f"{path} exists and is not a whole checkpoint; remove it, or choose another name."
        )
    release = Hold(path).release if hold and is_leader() else lambda: None
    try:
        finished, progress, identity = _content(estimator, sample, path)
    except BaseException:
        release()
        raise
    return RunLog(finished, progress, _periodically(path, every, identity), release)


def _content(estimator: "DAGP", sample: Sample, path: Path) -> tuple[list[Any], Any, str]:
    """What a checkpoint holds, if the fit is to be resumed, and the identity of the fit."""
    columns = getattr(estimator, "columns_", None)
    encoding = [] if columns is None or columns.plain else [columns]
    what = [PROCEDURE, settings(estimator), *encoding, *sample]
    if (state := _generator_state(estimator.random_state)) is not None:
        what.append(state)
    identity = storage.fingerprint(what)
    finished, progress = [], None
    if estimator.resume and path.exists():
        if estimator.random_state is None:
            raise StorageError(
                f"{path} cannot be resumed without a seed: its fit took another path than this one "
                "would. Set random_state in both, or remove the checkpoint."
            )
        tree = storage.load(path, CHECKPOINT)
        if not isinstance(tree, dict) or not isinstance(tree.get("finished"), list):
            raise StorageError(f"{path} does not hold a valid checkpoint; remove it.")
        found = tree.get("identity")
        # Format 1 took the fingerprint with its own names of classes.
        if found != identity and found != storage.fingerprint(what, as_format_1):
            raise StorageError(
                f"{path} is the checkpoint of a fit with other data or settings, or of another "
                "version; remove it, or repeat the original fit."
            )
        finished, progress = tree["finished"], tree.get("progress")
    return finished, progress, identity


def _generator_state(random_state: Any) -> str | None:
    """The state of a generator, which identifies a fit as a seed does; None for seeds."""
    if isinstance(random_state, np.random.Generator):
        return repr(random_state.bit_generator.state)
    if isinstance(random_state, np.random.RandomState):
        name, keys, *rest = random_state.get_state()
        return repr((name, np.asarray(keys).tolist(), *rest))
    return None


def discard_checkpoint(estimator: "DAGP") -> None:
    """Remove the checkpoint of a completed fit."""
    if estimator.checkpoint is not None and is_leader() and is_checkpoint(estimator.checkpoint):
        discard(estimator.checkpoint)


def is_checkpoint(path: str | Path) -> bool:
    """Whether a file is a checkpoint, and so may be overwritten and removed."""
    try:
        return storage.describe(path).kind == CHECKPOINT
    except StorageError:
        return False


def _periodically(path: Path, every: float, identity: str) -> Callable[[RunLog], None]:
    """A function that writes a log to its file at most every `every` seconds."""
    last = time.monotonic()

    def save(log: RunLog) -> None:
        nonlocal last
        if not any_worker(time.monotonic() - last >= every):
            return
        progress = arrays_on_host(log.progress)
        tree = {"identity": identity, "finished": log.finished, "progress": progress}
        if is_leader():
            storage.save(path, CHECKPOINT, {"runs": len(log.finished)}, tree)
        last = time.monotonic()

    return save
