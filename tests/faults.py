"""Processes that are killed while they fit or save, and a look at what they leave.

Used by ``test_faults.py`` and, for many more kills, by ``benchmarks/faults.py``.

Importing takes far longer than a small fit, so one process imports everything and each victim is a
fork of it. That is safe as long as JAX has computed nothing before: it begins in the victim.
"""

import contextlib
import copy
import json
import os
import random
import re
import select
import signal
import subprocess
import sys
import textwrap
import time
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np

from dagp import DAGP, datasets
from dagp.errors import StorageError
from dagp.files import format as storage
from dagp.files import modelfile

PARENT = """
    import json, os, resource, signal, sys, warnings
    import jax
    from dagp import DAGP
    from dagp.cli import app, fit

    def save(path, *models):
        models = [DAGP.load(model) for model in models]
        os.write(1, b"ready\\n")
        while True:
            for model in models:
                model.save(path)

    def run(limit, *words):
        if limit:
            signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
            resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))
        app(words)

    # JAX warns of forks, whatever it has done before.
    warnings.filterwarnings("ignore", category=RuntimeWarning)
    for line in sys.stdin:
        asked = json.loads(line)
        victim = os.fork()
        if victim == 0:
            os.dup2(os.open(asked["log"], os.O_WRONLY | os.O_CREAT | os.O_TRUNC), 2)
            {"fit": run, "save": save}[asked["do"]](*asked["words"])
        os.write(1, b"begun %d\\n" % victim)
        os.write(1, b"ended %d\\n" % os.waitstatus_to_exitcode(os.waitpid(victim, 0)[1]))
"""
LONGEST = 600


def unmeasured() -> dict[str, str]:
    """An environment in which nobody measures coverage: for whom writing is forbidden."""
    return {k: v for k, v in os.environ.items() if not k.startswith("COVERAGE_")}


class Parent:
    """A process that has imported everything, and has children to be killed."""

    def __init__(self, folder: Path, environment: dict[str, str]):
        self.log = folder / "errors"
        self._process = subprocess.Popen(
            [sys.executable, "-c", textwrap.dedent(PARENT)],
            cwd=folder,
            env=unmeasured() | environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            bufsize=0,
        )

    def said(self, timeout: float = LONGEST) -> str | None:
        """The next line, of itself or of its child; None where there is none in time."""
        out = self._process.stdout
        assert out is not None
        if not select.select([out], [], [], timeout)[0]:
            return None
        return out.readline().decode().strip()

    def start(self, do: str, *words: Any) -> "Victim":
        assert self._process.stdin is not None
        asked = {"do": do, "words": words, "log": str(self.log)}
        self._process.stdin.write(json.dumps(asked).encode() + b"\n")
        return Victim(self)

    def end(self) -> None:
        assert self._process.stdin is not None
        # Its stdin is at an end, and so is it.
        self._process.communicate()


class Victim:
    """A child, until it ends or is ended."""

    def __init__(self, parent: Parent):
        self._parent = parent
        self._heard: list[str] = []
        self._code: int | None = None
        self._pid = self._number("begun")

    def _number(self, word: str) -> int:
        """The number that its parent says after a word; other lines are its own."""
        while not (found := [h for h in self._heard if h.startswith(f"{word} ")]):
            self._heard.append(self._parent.said() or "")
            assert self._heard[-1], "the process has died"
        return int(found[0].split()[1])

    def wait_for(self, word: str) -> None:
        while word not in self._heard:
            self._heard.append(self._parent.said() or word)

    def ended(self) -> bool:
        while (line := self._parent.said(0)) if self._code is None else None:
            self._heard.append(line)
            if line.startswith("ended "):
                self._code = self._number("ended")
        return self._code is not None

    def code(self) -> int:
        if self._code is None:
            self._code = self._number("ended")
        return self._code

    def kill(self) -> bool:
        """Whether it was still there to be killed."""
        with contextlib.suppress(ProcessLookupError):
            os.kill(self._pid, signal.SIGKILL)
        return self.code() == -signal.SIGKILL


def drafts(path: Path) -> list[Path]:
    """What is being written beside a file, or was when somebody was killed."""
    name = re.compile(rf"\.{re.escape(path.name)}\.[^.]+\.draft")
    return [p for p in path.parent.iterdir() if name.fullmatch(p.name)]


def print_of(path: Path) -> str:
    """All of a model: settings, attributes, every array."""
    return storage.fingerprint(modelfile._taken_apart(DAGP.load(path)))


def whole(path: Path, kind: str) -> bool:
    """Whether every byte of a file is as it was written."""
    try:
        storage.load(path, kind)
    except StorageError as error:
        print(error, file=sys.stderr)
        return False
    return True


class Fit:
    """A small fit on the command line that writes a checkpoint after every block of steps."""

    def __init__(self, folder: Path, processes: int):
        self.folder, self.processes = folder, processes
        data = datasets.noise_separation(0.2, n=60, random_state=1)
        table = np.c_[data.X, data.y]
        np.savetxt(folder / "data.csv", table, delimiter=",", header="x,y", comments="")
        environment = {
            "XDG_CACHE_HOME": str(folder / "cache"),
            "DAGP_CACHE": "",
            "JAX_COMPILATION_CACHE_DIR": "",
            "JAX_DISABLE_MOST_OPTIMIZATIONS": "1",
        }
        self.parent = Parent(folder, environment)
        self._out = folder / "whole.dagp"
        self._known: set[Path] = set()
        # The first run compiles, the second shows how long one takes that need not.
        for _ in range(2):
            begin = time.monotonic()
            assert self.start(self._out).code() == 0, self.parent.log.read_text()
            self.seconds = time.monotonic() - begin
        self.print = print_of(self._out)

    def start(self, out: Path, limit: int = 0) -> Victim:
        words = (
            f"fit data.csv --target y --processes {self.processes} --starts {self.processes} "
            f"--max-iter 300 --inducing 10 --checkpoint-every 0 --resume --force --json -o {out}"
        )
        return self.parent.start("fit", limit, *words.split())

    def killed(self, kills: int, rng: random.Random) -> Counter[str]:
        """Kill fits at random moments until that many are dead; each goes on where it was."""
        counts: Counter[str] = Counter(kills=0, fits=0, identical=0, broken=0)
        out = self.folder / "killed.dagp"
        note = out.with_name(f"{out.name}.checkpoint")
        while counts["kills"] < kills or note.exists() or not counts["fits"]:
            self._known = set(drafts(note) + drafts(out))
            victim = self.start(out)
            if counts["kills"] < kills and self._kill(victim, out, note, counts, rng):
                continue
            if victim.code() != 0:
                counts["broken"] += 1
                print(self.parent.log.read_text(), file=sys.stderr)
                continue
            counts["fits"] += 1
            counts["identical"] += print_of(out) == self.print
            counts["left behind"] += len([note] * note.exists() + drafts(out) + drafts(note))
            out.unlink()
        return counts

    def _kill(
        self, victim: Victim, out: Path, note: Path, counts: Counter[str], rng: random.Random
    ) -> bool:
        """At a random moment; half of them soon after a checkpoint, where the next are written."""
        if rng.random() < 0.5:
            self._wait(victim, note)
            time.sleep(rng.uniform(0, 0.2 * self.seconds))
        else:
            time.sleep(rng.uniform(0, self.seconds))
        if victim.ended() or not victim.kill():
            return False
        counts["kills"] += 1
        if {*drafts(note), *drafts(out)} - self._known:
            counts["while a file was written"] += 1
        elif note.exists():
            counts["between two checkpoints"] += 1
        else:
            counts["after the model was saved" if out.exists() else "before a checkpoint"] += 1
        for file, kind in ((note, "checkpoint"), (out, "model")):
            counts["broken"] += file.exists() and not whole(file, kind)
        return True

    def _wait(self, victim: Victim, note: Path) -> None:
        """Until the victim has written a checkpoint of its own."""
        before = note.stat().st_mtime_ns if note.exists() else 0
        end = time.monotonic() + LONGEST
        while not victim.ended() and time.monotonic() < end:
            if note.exists() and note.stat().st_mtime_ns != before:
                return
            time.sleep(0.002)


def small() -> DAGP:
    """A model that is there at once."""
    data = datasets.noise_separation(0.0, n=40, random_state=0)
    return DAGP(1, n_init=1, tol=0.1, inducing=5, random_state=0).fit(data.X, data.y)


def clone_with(model: DAGP, seed: int) -> DAGP:
    return copy.copy(model).set_params(random_state=seed)


class Save:
    """A process that does nothing but save a model to one file, with one seed and another."""

    def __init__(self, folder: Path, model: DAGP):
        self.path = folder / "saved.dagp"
        seeds = (1, 2)
        self.models = [clone_with(model, seed).save(folder / f"{seed}.dagp") for seed in seeds]
        self.prints = {print_of(path) for path in self.models}
        self.parent = Parent(folder, {"DAGP_CACHE": "off"})

    def killed(self, kills: int, rng: random.Random) -> Counter[str]:
        """Kill it that often while it saves; the file must be one of the two, whole."""
        counts: Counter[str] = Counter(kills=0, whole=0)
        while counts["kills"] < kills:
            known = set(drafts(self.path))
            victim = self.parent.start("save", str(self.path), *map(str, self.models))
            victim.wait_for("ready")
            time.sleep(rng.uniform(0, 0.1))
            victim.kill()
            counts["kills"] += 1
            counts["while a file was written"] += bool(set(drafts(self.path)) - known)
            counts["before the first file"] += not self.path.exists()
            counts["whole"] += not self.path.exists() or print_of(self.path) in self.prints
        # Whoever saves next, undisturbed, clears away what the dead have left.
        DAGP.load(self.models[0]).save(self.path)
        counts["left behind"] = len(drafts(self.path))
        return counts
