"""What must be true of every file, whoever wrote it: refused with one kind of error, or a model.

Used by ``test_filefuzz.py`` and, for many more, by ``benchmarks/filefuzz.py``.
"""

import os
import signal
import sys
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import numpy as np

from dagp import DAGP, GP, Noise, datasets
from dagp.errors import StorageError
from dagp.files import format as storage
from dagp.files import modelfile
from dagp.inference.standardize import Sample
from dagp.inference.train import LoopState, Result
from dagp.tables.validation import check_labels, check_weights

SETTINGS: dict[str, Any] = {
    "processes": [GP(), Noise()],
    "n_init": 1,
    "max_iter": 25,
    "inducing": 5,
    "random_state": 0,
}
LONGEST = 60
"""Seconds after which a file counts as one that hangs its reader."""


class HangingError(BaseException):
    """Nobody catches it by mistake."""


@contextmanager
def limited(seconds: int = LONGEST) -> Iterator[None]:
    """Ends what takes too long."""

    def ring(*_: Any) -> None:
        raise HangingError(f"more than {seconds} s")

    before = signal.signal(signal.SIGALRM, ring)
    signal.alarm(seconds)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)


_FORBIDDEN = (
    "pickle.",
    "os.system",
    "os.exec",
    "os.posix_spawn",
    "subprocess.",
    "socket.",
    "ctypes.dlopen",
)
_watching: list[list[str]] = []


def _hook(event: str, arguments: Any) -> None:
    if _watching and (event.startswith(_FORBIDDEN) or _writes(event, arguments)):
        _watching[-1].append(f"{event} {arguments[:1]}")


def _writes(event: str, arguments: Any) -> bool:
    if event != "open" or not isinstance(arguments[1], str) or not set(arguments[1]) & set("wax+"):
        return False
    # Whoever checks a model computes, and what took long to compile is kept.
    kept = os.environ.get("DAGP_TEST_CACHE")
    return kept is None or not str(arguments[0]).startswith(kept)


sys.addaudithook(_hook)


@contextmanager
def watched() -> Iterator[list[str]]:
    """What happens inside that no reader of a file should do."""
    _watching.append([])
    try:
        yield _watching[-1]
    finally:
        _watching.pop()


def refused_or(read: Callable[[], Any]) -> Any:
    """What was read, or None where it was refused, in words; reading does nothing else."""
    with watched() as seen:
        try:
            found = read()
        except StorageError as error:
            assert len(str(error)) < 1000 and str(error).isprintable(), error
            found = None
    assert not seen, seen
    return found


class Model:
    """A model file, and the judgement of what is made of it."""

    def __init__(self, folder: Path):
        self.data = datasets.noise_separation(0.2, n=30, random_state=0)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            model = DAGP(**SETTINGS).fit(self.data.X, self.data.y)
        self.path = model.save(folder / "model.dagp", (self.data.X, self.data.y))
        self.content = self.path.read_bytes()
        self.print = storage.fingerprint(modelfile._taken_apart(model))

    def judged(self, content: bytes) -> str:
        """``refused``, ``same`` or ``another``; anything else is an error."""
        self.path.write_bytes(content)
        with limited():
            loaded = refused_or(self._read)
            if loaded is None:
                return "refused"
            if storage.fingerprint(modelfile._taken_apart(loaded)) == self.print:
                return "same"
            for one in (loaded, *loaded.alternatives_):
                self._check(one)
        return "another"

    def _read(self) -> DAGP:
        storage.describe(self.path)
        modelfile.training_data(self.path)
        return DAGP.load(self.path)

    def _check(self, loaded: DAGP) -> None:
        mixture = loaded.posterior_.mixture(self.data.X[:2])
        for part in (mixture.weights, mixture.means, mixture.variances):
            assert np.all(np.isfinite(part)), "a loaded model predicts what is no number"
        loaded.summary(verbose=True)


class CutOffError(Exception):
    """Stands for a kill."""


class Checkpoint:
    """The same for the checkpoint of a fit that was cut off."""

    def __init__(self, folder: Path):
        data = datasets.noise_separation(0.2, n=30, random_state=0)
        self.path = folder / "fit.checkpoint"
        kept = {"checkpoint": self.path, "checkpoint_every": 0.0, "max_iter": 200}

        def stop(progress: Any) -> None:
            if progress.phase == "train" and progress.step > 50:
                raise CutOffError

        with suppress(CutOffError):
            DAGP(**SETTINGS | kept, callbacks=(stop,)).fit(data.X, data.y)
        self.content = self.path.read_bytes()
        self.estimator = DAGP(**SETTINGS | kept, resume=True)
        weight, labels = check_weights(None, len(data.X)), check_labels(None, len(data.X), 2)
        self.sample = Sample(data.X, data.y[:, None], weight, labels)
        log = self._log()
        assert log.finished and log.progress is not None
        self.state = log.progress.state
        self.print = storage.fingerprint([log.finished, log.progress])

    def _log(self) -> Any:
        return modelfile.checkpoint_log(self.estimator, self.sample)

    def judged(self, content: bytes) -> str:
        """``refused``, ``same`` or ``another``; anything else is an error."""
        self.path.write_bytes(content)
        with limited():
            log = refused_or(self._read)
        if log is None:
            return "refused"
        same = storage.fingerprint([log.finished, log.progress]) == self.print
        return "same" if same else "another"

    def _read(self) -> Any:
        log = self._log()
        for _ in range(len(log.finished) + 1):
            log.replay(Result, LoopState, self.state)
        return log
