"""`dagp launch`: a fit in several processes of this machine, watched and restarted."""

import contextlib
import os
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import IO, Annotated, NamedTuple

import typer

from dagp.cli.app import CommandError, InputError, say
from dagp.cli.together import HEARTBEAT, LOST
from dagp.distributed import Place

__all__ = ["launch"]

LOOK = 0.1
"""Seconds between two looks at the processes."""
GRACE = 5.0
"""Seconds that the others have to end by themselves when one has."""
_CHATTER = b"[Gloo]"
"""How lines begin that the communication library prints among the results."""


def launch(
    command: Annotated[list[str], typer.Argument(help="After --: fit and its options.")],
    processes: Annotated[int, typer.Option("--processes", "-p", min=1, help="How many.")] = 2,
    restarts: Annotated[
        int, typer.Option(min=0, help="How often to go on after a process is lost.")
    ] = 3,
    patience: Annotated[
        float, typer.Option(min=1, help="Seconds without progress before all are restarted.")
    ] = 600.0,
) -> None:
    """Fit in several processes that share the rows.

    dagp launch -p 2 -- fit data.csv -t y: when a process dies or gets stuck, all begin again
    where the last checkpoint was written.
    """
    if command[0] != "fit":
        raise InputError(f"launch is for fit, and not for {command[0]!r}.")
    if command[1:2] == ["-"]:
        raise InputError("Several processes cannot share standard input; name a file.")
    words, gpus = command, _gpus()
    if gpus and len(gpus) < processes:
        raise InputError(f"--processes {processes}, but there are only {len(gpus)} GPUs.")
    while True:
        with _Crew.started(words, processes, gpus) as crew:
            end = crew.watched(patience)
        if end.final:
            raise typer.Exit(end.code)
        if restarts == 0:
            raise CommandError(f"{end.reason}. The last checkpoint is kept for --resume.", LOST)
        restarts -= 1
        say(f"{end.reason}; all begin again from the last checkpoint.")
        # What is in the way of the model now can only be ours: it was looked for at the beginning.
        words = [*command, *(w for w in ("--resume", "--force") if w not in command)]


class _End(NamedTuple):
    """How it ended."""

    code: int
    reason: str = ""

    @property
    def final(self) -> bool:
        """Whether another try would end in the same way."""
        return not self.reason


class _Crew:
    """Processes that fit together."""

    def __init__(self, processes: list["subprocess.Popen[bytes]"], folder: Path):
        self._processes = processes
        self._folder = folder
        self._began = time.time()

    @staticmethod
    @contextlib.contextmanager
    def started(words: Sequence[str], count: int, gpus: Sequence[str]) -> Iterator["_Crew"]:
        """Start the processes; they are gone when the ``with`` block ends."""
        coordinator = f"127.0.0.1:{_free_port()}"
        with contextlib.ExitStack() as stack:
            folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="dagp-launch-")))
            processes: list[subprocess.Popen[bytes]] = []
            # Registered first, so that whatever happens while they start ends them.
            stack.callback(lambda: _end_all(processes))
            for index in range(count):
                told = Place(coordinator, count, index).environment()
                told[HEARTBEAT] = str(folder / f"{index}.beat")
                if gpus:
                    told["CUDA_VISIBLE_DEVICES"] = gpus[index]
                errors = stack.enter_context((folder / f"{index}.log").open("wb"))
                processes.append(_started(words, told, _cores(index, count), index, errors))
            chatter = threading.Thread(target=_pass_on, args=(processes[0].stdout,), daemon=True)
            chatter.start()
            yield _Crew(processes, folder)
            _end_all(processes)
            chatter.join()

    def watched(self, patience: float) -> _End:
        """Wait for the end, or make one."""
        while True:
            codes = [process.poll() for process in self._processes]
            if any(codes):
                return self._failed()
            if all(code == 0 for code in codes):
                return _End(0)
            if (quiet := self._quiet()) > patience:
                return _End(LOST, f"Nothing has moved for {quiet:.0f} seconds")
            time.sleep(LOOK)

    def _failed(self) -> _End:
        """One has ended otherwise than well: the others tell whose fault it was."""
        until = time.monotonic() + GRACE
        while any(p.poll() is None for p in self._processes) and time.monotonic() < until:
            time.sleep(LOOK)
        codes = [process.poll() for process in self._processes]
        gone = [index for index, code in enumerate(codes) if code is not None and code < 0]
        if gone:
            return _End(LOST, f"Process {gone[0]} ended with signal {-(codes[gone[0]] or 0)}")
        if LOST in codes:
            return _End(LOST, f"Process {codes.index(LOST)} lost the others")
        if codes[0] is None or codes[0] == 0:
            # The first process speaks for all, but had nothing to say.
            index = next(i for i, code in enumerate(codes) if code)
            say((self._folder / f"{index}.log").read_text(errors="replace").strip()[-2000:])
        return _End(max(code or 0 for code in codes))

    def _quiet(self) -> float:
        """Seconds since the one that is furthest behind has shown that it gets on."""
        beats = [self._folder / f"{index}.beat" for index in range(len(self._processes))]
        seen = [beat.stat().st_mtime if beat.exists() else self._began for beat in beats]
        return time.time() - min(seen)


def _started(
    words: Sequence[str], told: dict[str, str], cores: set[int], index: int, errors: IO[bytes]
) -> "subprocess.Popen[bytes]":
    """One process; the first has our terminal to speak to."""
    program = "from dagp.cli import main; main()"
    process = subprocess.Popen(
        [sys.executable, "-c", program, *words],
        env={**os.environ, **told},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE if index == 0 else subprocess.DEVNULL,
        stderr=None if index == 0 else errors,
        # Ctrl-C is for us: we end them all.
        start_new_session=True,
    )
    if cores:
        os.sched_setaffinity(process.pid, cores)
    return process


def _end_all(processes: Sequence["subprocess.Popen[bytes]"]) -> None:
    for process in processes:
        process.kill()
    for process in processes:
        process.wait()


def _pass_on(stream: IO[bytes]) -> None:
    """Results on their way to our standard output."""
    for line in stream:
        if not line.startswith(_CHATTER):
            sys.stdout.buffer.write(line)
            sys.stdout.flush()


def _cores(index: int, count: int) -> set[int]:
    """This process's share of the cores; none where that cannot be said.

    Threads of one process that wait for cores another one holds would make both slow.
    """
    if not hasattr(os, "sched_getaffinity"):
        return set()
    cores = sorted(os.sched_getaffinity(0))
    mine = cores[index::count]
    return set(mine or [cores[index % len(cores)]])


def _gpus() -> list[str]:
    """The GPUs that may be used, by the names that CUDA has for them."""
    if os.environ.get("JAX_PLATFORMS", "").startswith("cpu"):
        return []
    if (visible := os.environ.get("CUDA_VISIBLE_DEVICES")) is not None:
        return [name for name in visible.split(",") if name]
    known = Path("/proc/driver/nvidia/gpus")
    return [str(i) for i, _ in enumerate(known.iterdir())] if known.is_dir() else []


def _free_port() -> int:
    """A port that nobody listens on at the moment."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return listener.getsockname()[1]
