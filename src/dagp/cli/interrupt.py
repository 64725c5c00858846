"""Ctrl-C during a fit: what was reached is written down, and how to go on is said."""

import shlex
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, NoReturn

from dagp import modelfile
from dagp.cli.app import CommandError
from dagp.data import Sample
from dagp.errors import StorageError
from dagp.estimator import DAGP
from dagp.memory import current
from dagp.validation import check_parameters

__all__ = ["Keeper"]


class Keeper:
    """Looks at a fit's memory now and then, and writes down what it saw last."""

    def __init__(self, model: DAGP):
        self._model = model
        self._seen: tuple[list[Any], Any] | None = None

    def look(self) -> None:
        """Between two blocks of steps, where what is remembered belongs together."""
        memory = current()
        self._seen = (list(memory.finished), memory.note)

    def end(self, sample: Callable[[int], Sample], checkpoint: Path) -> NoReturn:
        """Keep a checkpoint and end; with the command to go on."""
        if self._seen is not None:
            self._write(sample)
        if not checkpoint.exists():
            raise CommandError("Stopped before there was anything to keep.", 130)
        words = [word for word in sys.argv[1:] if word != "--resume"]
        command = shlex.join(["dagp", *words, "--resume"])
        raise CommandError(f"Stopped. {checkpoint} keeps what was done; go on with: {command}", 130)

    def _write(self, sample: Callable[[int], Sample]) -> None:
        assert self._seen is not None
        finished, note = self._seen
        processes = len(check_parameters(self._model))
        # Every 0 seconds: the next note is written at once, whenever the last one was.
        self._model.set_params(checkpoint_every=0.0, resume=False)
        memory = modelfile.checkpoint(self._model, sample(processes))
        assert memory is not None
        memory.finished = finished
        try:
            memory.pause(note)
        except StorageError as error:
            raise CommandError(f"Stopped. {error}", 130) from error
