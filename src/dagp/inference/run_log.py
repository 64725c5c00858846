"""Run log: results of the training runs of a fit, so that an interrupted fit can be resumed.

Data, settings and seed determine the sequence of training runs of a fit. Results of the first ones
are replayed instead of computed, and the rest is as in a fit that was not interrupted.
"""

from collections.abc import Callable
from typing import Any, Literal, get_args, get_origin, get_type_hints

import jax
import numpy as np

from dagp.core.errors import StorageError
from dagp.core.sharding import to_host


class RunLog:
    """Results of `finished` training runs in their order, and `progress` of the current one.

    `save` is called with the log after every block of steps.

    >>> from typing import NamedTuple
    >>> class Run(NamedTuple):
    ...     state: float
    >>> log = RunLog(finished=[Run(1.5)])
    >>> log.replay(Run, Run, 0.0), log.replay(Run, Run, 0.0)
    ((Run(state=1.5), None), (None, None))
    """

    def __init__(
        self,
        finished: list[Any] | None = None,
        progress: Any = None,
        save: Callable[["RunLog"], Any] | None = None,
        release: Callable[[], Any] = lambda: None,
    ):
        self.finished = list(finished or [])
        self.progress = progress
        self._save = save or (lambda _: None)
        self.release = release
        """Call when the fit has ended: others may then use the file of the log."""
        self._replayed = 0

    def replay(self, results: type, progress: type, state: Any, end: Any = None) -> tuple[Any, Any]:
        """Result of the next run, or else its progress, or None; checked against the structure of
        its initial `state` and final state `end`."""
        self._replayed += 1
        if self._replayed <= len(self.finished):
            return _checked(self.finished[self._replayed - 1], results, end or state), None
        return None, None if self.progress is None else _checked(self.progress, progress, state)

    @property
    def is_replaying(self) -> bool:
        """Whether the next run is known, or has progress."""
        return self._replayed < len(self.finished) or self.progress is not None

    def branch(self) -> "RunLog":
        """An empty log for runs that may be discarded; `adopt` appends them."""
        return RunLog()

    def adopt(self, branch: "RunLog") -> None:
        """Append the runs of a branch, as if they had been logged here."""
        self._replayed += len(branch.finished)
        self.finished += branch.finished
        self._save(self)

    def save_progress(self, progress: Any) -> None:
        self.progress = progress
        self._save(self)

    def append(self, result: Any) -> None:
        self.finished.append(arrays_on_host(result))
        self.progress = None
        self._save(self)


def _checked(found: Any, kind: type, state: Any) -> Any:
    """A logged object, if it is of this kind and its state has the structure of the given one."""
    right = isinstance(found, kind) and all(
        _like(getattr(found, name), state) for name in ("state", "best") if hasattr(found, name)
    )
    right = right and all(_typed(getattr(found, n), t) for n, t in get_type_hints(kind).items())
    right = right and getattr(found, "rate", 1.0) > 0
    right = right and _are_chances(getattr(found, "state", None))
    history = [*getattr(found, "blocks", ()), getattr(found, "trace", np.zeros(0))]
    if not right or not all(isinstance(h, np.ndarray) and h.ndim == 1 for h in history):
        raise StorageError(
            "The checkpoint does not hold the training runs of this fit; remove it and fit again."
        )
    return found


def _like(one: Any, other: Any) -> bool:
    """Whether two trees have the same structure, and finite arrays of the same shapes."""
    if jax.tree.structure(one) != jax.tree.structure(other):
        return False
    pairs = zip(jax.tree.leaves(one), jax.tree.leaves(other), strict=True)
    return all(
        np.shape(a) == np.shape(b)
        and _kind(a) == _kind(b)
        and np.all(np.isfinite(a))
        # Whole numbers are counts.
        and (np.asarray(a).dtype.kind != "i" or np.all(np.asarray(a) >= 0))
        for a, b in pairs
    )


def _are_chances(state: Any) -> bool:
    """Whether the responsibilities of a state, if it has any, are probabilities."""
    found = getattr(state, "responsibilities", None)
    if found is None:
        return True
    found = np.asarray(found, np.float64)
    return bool(np.all(found >= 0) and np.allclose(found.sum(axis=-1), 1.0, atol=1e-3))


def _kind(leaf: Any) -> str:
    return getattr(leaf, "dtype", np.dtype(object)).kind if np.ndim(leaf) else "number"


def _typed(value: Any, hint: Any) -> bool:
    """Whether a value is of a plain type; other types are not checked."""
    if get_origin(hint) is Literal:
        return value in get_args(hint)
    if hint is int:
        return isinstance(value, int) and value >= 0
    if hint is float:
        return isinstance(value, int | float) and value == value
    return True


def arrays_on_host(tree: Any) -> Any:
    """A tree with its arrays copied to the host, so that results do not fill device memory."""
    return jax.tree.map(lambda leaf: to_host(leaf) if isinstance(leaf, jax.Array) else leaf, tree)


class _NoLog(RunLog):
    """The log of fits without checkpoints: keeps nothing."""

    def replay(self, results: type, progress: type, state: Any, end: Any = None) -> tuple[Any, Any]:
        return None, None

    def branch(self) -> RunLog:
        return self

    def adopt(self, branch: RunLog) -> None:
        pass

    def save_progress(self, progress: Any) -> None:
        pass

    def append(self, result: Any) -> None:
        pass


NO_LOG = _NoLog()
