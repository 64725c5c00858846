"""What a long fit has done so far, so that it can be repeated up to where it was stopped.

A fit is a fixed sequence of training runs: given data, settings and seed, the same ones in the same
order. Whoever knows the results of the first ones need not do them again, and the rest comes out as
if nothing had happened.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, Literal, get_args, get_origin, get_type_hints

import jax
import numpy as np

from dagp.errors import StorageError
from dagp.placement import fetched

__all__ = ["Memory", "current", "held", "remembering"]


class Memory:
    """Results of training runs in their order, and how far the last one had come.

    `keep` is told after every block of steps, and decides whether to write anything down.

    >>> from typing import NamedTuple
    >>> class Run(NamedTuple):
    ...     state: float
    >>> memory = Memory(finished=[Run(1.5)])
    >>> memory.recall(Run, Run, 0.0), memory.recall(Run, Run, 0.0)
    ((Run(state=1.5), None), (None, None))
    """

    def __init__(
        self,
        finished: list[Any] | None = None,
        note: Any = None,
        keep: Callable[["Memory"], Any] = lambda _: None,
    ):
        self.finished = list(finished or [])
        self.note = note
        self._keep = keep
        self._asked = 0

    def recall(self, results: type, notes: type, state: Any, end: Any = None) -> tuple[Any, Any]:
        """The result of the next run, or else how far it had come; None where nothing is known.

        Both are held against what the run works with: `state` is one such as it begins with, and
        `end` such as it ends with, where that is another.
        """
        self._asked += 1
        if self._asked <= len(self.finished):
            return _checked(self.finished[self._asked - 1], results, end or state), None
        return None, None if self.note is None else _checked(self.note, notes, state)

    def pause(self, note: Any) -> None:
        """A run has come so far."""
        self.note = note
        self._keep(self)

    def finish(self, result: Any) -> None:
        """A run has ended."""
        self.finished.append(held(result))
        self.note = None
        self._keep(self)


def _checked(found: Any, kind: type, state: Any) -> Any:
    """What is remembered, if it is of this kind and its state is like the one given."""
    right = isinstance(found, kind) and all(
        _like(getattr(found, name), state) for name in ("state", "best") if hasattr(found, name)
    )
    right = right and all(_typed(getattr(found, n), t) for n, t in get_type_hints(kind).items())
    history = [*getattr(found, "blocks", ()), getattr(found, "trace", np.zeros(0))]
    if not right or not all(isinstance(h, np.ndarray) and h.ndim == 1 for h in history):
        raise StorageError(
            "The checkpoint is not one of this fit, whatever it says; remove it and begin anew."
        )
    return found


def _like(one: Any, other: Any) -> bool:
    """Whether a tree of numbers has the structure of another, and arrays of the same shapes."""
    if jax.tree.structure(one) != jax.tree.structure(other):
        return False
    pairs = zip(jax.tree.leaves(one), jax.tree.leaves(other), strict=True)
    return all(
        np.shape(a) == np.shape(b) and _kind(a) == _kind(b) and np.all(np.isfinite(a))
        for a, b in pairs
    )


def _kind(leaf: Any) -> str:
    return getattr(leaf, "dtype", np.dtype(object)).kind if np.ndim(leaf) else "number"


def _typed(value: Any, hint: Any) -> bool:
    """Whether a value is of a plain type; others are not looked at."""
    if get_origin(hint) is Literal:
        return value in get_args(hint)
    if hint in (int, float):
        return isinstance(value, int if hint is int else int | float)
    return True


def held(tree: Any) -> Any:
    """A tree with its arrays out of the device's memory, where results would pile up."""
    return jax.tree.map(lambda leaf: fetched(leaf) if isinstance(leaf, jax.Array) else leaf, tree)


class _Forgetful(Memory):
    """For fits that nobody means to repeat."""

    def recall(self, results: type, notes: type, state: Any, end: Any = None) -> tuple[Any, Any]:
        return None, None

    def pause(self, note: Any) -> None:
        pass

    def finish(self, result: Any) -> None:
        pass


# A context variable: fits in several threads have a memory each, and nobody in between needs to
# pass it on.
_current: ContextVar[Memory | None] = ContextVar("memory of this fit", default=None)


def current() -> Memory:
    """The memory of the fit that is running."""
    return _current.get() or _Forgetful()


@contextmanager
def remembering(memory: Memory | None) -> Iterator[None]:
    """Let the training runs inside the ``with`` block use this memory."""
    token = _current.set(memory)
    try:
        yield
    finally:
        _current.reset(token)
