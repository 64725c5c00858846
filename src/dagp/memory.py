"""What a long fit has done so far, so that it can be repeated up to where it was stopped.

A fit is a fixed sequence of training runs: given data, settings and seed, the same ones in the same
order. Whoever knows the results of the first ones need not do them again, and the rest comes out as
if nothing had happened.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

import jax
import numpy as np

__all__ = ["Memory", "current", "remembering"]


class Memory:
    """Results of training runs in their order, and how far the last one had come.

    `keep` is told after every block of steps, and decides whether to write anything down.

    >>> memory = Memory(finished=["first"])
    >>> memory.recall(), memory.recall()
    (('first', None), (None, None))
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

    def recall(self) -> tuple[Any, Any]:
        """The result of the next run, or else how far it had come; None where nothing is known."""
        self._asked += 1
        if self._asked <= len(self.finished):
            return self.finished[self._asked - 1], None
        return None, self.note

    def pause(self, note: Any) -> None:
        """A run has come so far."""
        self.note = note
        self._keep(self)

    def finish(self, result: Any) -> None:
        """A run has ended."""
        self.finished.append(jax.tree.map(_held, result))
        self.note = None
        self._keep(self)


def _held(leaf: Any) -> Any:
    """Out of the device's memory, where results would pile up."""
    return np.asarray(leaf) if isinstance(leaf, jax.Array) else leaf


class _Forgetful(Memory):
    """For fits that nobody means to repeat."""

    def recall(self) -> tuple[Any, Any]:
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
