"""Trainer: the common arguments of the training runs of one search."""

from typing import NamedTuple

from dagp.inference.run_log import NO_LOG, RunLog
from dagp.inference.train import (
    LEARNING_RATE,
    Callback,
    Progress,
    Result,
    State,
    no_callback,
    train,
)
from dagp.model.association import Batch


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
        """Train a state; `callback` is called between blocks and may stop the run."""
        return train(
            state,
            self.batch,
            max_iter=max_iter,
            tol=self.tol,
            rate=rate,
            callback=callback,
            log=self.log,
        )

    def notify(self, progress: Progress) -> None:
        """Call the user's callback; StopSearchError if it returns true."""
        if self.callback(progress):
            raise StopSearchError
