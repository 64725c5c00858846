"""Trainer: the common arguments of the training runs of one search."""

from collections.abc import Callable, Iterable, Iterator
from typing import Any, NamedTuple, TypeVar

import jax
import numpy as np

from dagp.core.sharding import to_host
from dagp.core.threads import concurrently
from dagp.inference.run_log import NO_LOG, RunLog
from dagp.inference.train import (
    BLOCK,
    BOTH,
    GATE,
    LEARNING_RATE,
    Callback,
    Progress,
    Result,
    State,
    no_callback,
    train,
)
from dagp.model.association import Batch
from dagp.model.parameters import trainable

GATE_RATE = 0.05
"""Learning rate with which a gate goes on alone."""
Item = TypeVar("Item")
Found = TypeVar("Found")


class StopSearchError(Exception):
    """A callback has stopped the search."""


class Trainer(NamedTuple):
    """The data on their devices, the tolerance, the user's callback and the run log."""

    batch: Batch
    tol: float
    callback: Callback = no_callback
    log: RunLog = NO_LOG

    def train(
        self,
        state: State,
        max_iter: int,
        rate: float = LEARNING_RATE,
        callback: Callback = no_callback,
    ) -> Result:
        """Train a state; `callback` is called between blocks and may stop the run.

        A function that is almost without noise may be determined so sharply that Adam's steps gain
        nothing, or lose, and end a run in which the gate has hardly moved. So where a run has ended
        before its budget, the gate takes a block of steps alone, and goes on if that gains
        something.
        """
        settings: dict[str, Any] = {"tol": self.tol, "log": self.log, "parts": BOTH}
        result = train(
            state, self.batch, max_iter=max_iter, rate=rate, callback=callback, **settings
        )
        left = max_iter - len(result.trace)
        ended = result.status in ("converged", "diverged") and np.isfinite(result.bound)
        if not ended or left < 2 * BLOCK or not _has_gate(result):
            return result
        settings |= {"parts": GATE, "rate": GATE_RATE}
        first = train(result.state, self.batch, max_iter=BLOCK, **settings)
        if not first.bound > result.bound + self.tol * float(np.sum(to_host(self.batch.weight))):
            return result
        trace = np.concatenate([result.trace, first.trace])

        def onwards(progress: Progress) -> bool:
            return callback(progress._replace(step=len(trace) + progress.step))

        settings |= {"max_iter": max_iter - len(trace), "callback": onwards}
        more = train(first.state, self.batch, **settings)
        best = max(first, more, key=lambda run: run.bound)
        joined = np.concatenate([trace, more.trace])
        return best._replace(trace=joined, rate=result.rate, status=more.status)

    def each(
        self, run: Callable[["Trainer", Item], Found], items: Iterable[Item], width: int
    ) -> Iterator[Found]:
        """``run(trainer, item)`` for all items, up to `width` at once.

        Results, their order and the run log are those of one run after the other, however early
        the iteration ends. Runs must not call the user's callback.
        """
        if self.log.is_replaying:
            width = 1

        def branched(item: Item) -> tuple[Found, RunLog]:
            log = self.log if width == 1 else self.log.branch()
            return run(self._replace(log=log), item), log

        for found, log in concurrently(branched, items, width):
            if log is not self.log:
                self.log.adopt(log)
            yield found

    def notify(self, progress: Progress) -> None:
        """Call the user's callback; StopSearchError if it returns true."""
        if self.callback(progress):
            raise StopSearchError


def _has_gate(result: Result) -> bool:
    """Whether there is a gate with hyperparameters."""
    return any(jax.tree.leaves(trainable(result.state.model).gate))
