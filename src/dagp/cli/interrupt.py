"""Ctrl-C during a fit: writes a checkpoint and prints the command that resumes the fit."""

import shlex
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NoReturn

from dagp.cli.app import CommandError
from dagp.core.errors import StorageError
from dagp.estimator import DAGP
from dagp.files import modelfile
from dagp.inference.standardize import Sample


class InterruptCheckpoint:
    """The run log of a fit and its last consistent copy, which Ctrl-C writes to the checkpoint."""

    def __init__(self, model: DAGP, sample: Sample):
        self.log = modelfile.checkpoint_log(model, sample)
        self._model, self._sample = model, sample
        self._copy: tuple[list[Any], Any] | None = None

    def copy_log(self) -> None:
        """Copy the log; called between two blocks of steps, where it is consistent."""
        self._copy = (list(self.log.finished), self.log.progress)

    @contextmanager
    def on_interrupt(self, checkpoint: Path) -> Iterator[None]:
        """On Ctrl-C inside the ``with`` block, write the checkpoint and end the command."""
        try:
            yield
        except KeyboardInterrupt:
            self._stop(checkpoint)
        finally:
            self.log.release()

    def _stop(self, checkpoint: Path) -> NoReturn:
        if self._copy is not None:
            self._write(*self._copy)
        if not checkpoint.exists():
            raise CommandError("Stopped before the first checkpoint; nothing was saved.", 130)
        words = [word for word in sys.argv[1:] if word != "--resume"]
        command = f"continue with: {shlex.join(['dagp', *words, '--resume'])}"
        raise CommandError(f"Stopped. Progress is saved in {checkpoint}; {command}", 130)

    def _write(self, finished: list[Any], progress: Any) -> None:
        # An interval of 0 seconds: written now, however recent the last checkpoint is.
        self._model.set_params(checkpoint_every=0.0, resume=False)
        log = modelfile.checkpoint_log(self._model, self._sample, hold=False)
        log.finished = finished
        try:
            log.save_progress(progress)
        except StorageError as error:
            raise CommandError(f"Stopped. {error}", 130) from error
