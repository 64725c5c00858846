"""`dagp launch`: a fit in several workers (processes of this machine), monitored and restarted."""

import contextlib
import os
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import IO, Annotated, NamedTuple, NoReturn, TypeAlias

from typer import Argument, Exit, Option

from dagp.cli.app import CommandError, InputError, print_message
from dagp.cli.worker import HEARTBEAT, PORT_TAKEN, WORKER_LOST
from dagp.distributed import Place

POLL = 0.1
"""Seconds between two checks of the workers."""
GRACE = 5.0
"""Seconds for the other workers to exit by themselves after one has failed."""
_GLOO_LOG = b"[Gloo]"
"""Start of the lines that the communication library prints to stdout, between the results."""

_Worker: TypeAlias = subprocess.Popen[bytes]


def launch(
    command: Annotated[list[str], Argument(help="After --: fit and its options.")],
    workers: Annotated[
        int, Option("--workers", "-p", min=1, help="Number of workers to start.")
    ] = 2,
    restarts: Annotated[
        int, Option(min=0, help="Maximum number of restarts after a lost worker.")
    ] = 3,
    patience: Annotated[
        float, Option(min=1, help="Seconds without progress before a restart.")
    ] = 600.0,
    old_workers: Annotated[int | None, Option("--processes", min=1, hidden=True)] = None,
) -> None:
    """Run a fit with several workers that share the rows.

    Example: dagp launch --workers 2 -- fit data.csv -t y. When a worker dies
    or hangs, all workers are restarted from the last checkpoint.
    """
    # --processes is the former name of --workers.
    workers = workers if old_workers is None else old_workers
    if command[0] != "fit":
        raise InputError(f"launch can only run fit, got {command[0]!r}.")
    if command[1:2] == ["-"]:
        raise InputError("Workers cannot share standard input; name a file instead of -.")
    words, gpus = command, _visible_gpus()
    if gpus and len(gpus) < workers:
        raise InputError(f"--workers {workers} needs one GPU each, found only {len(gpus)} GPU(s).")
    # `kill` ends this process as Ctrl-C does: workers and temporary folders are cleaned up.
    signal.signal(signal.SIGTERM, _end)
    while True:
        with _WorkerGroup.started(words, workers, gpus) as group:
            outcome = group.wait(patience)
        if not outcome.reason:
            raise Exit(outcome.code)
        if restarts == 0:
            kept = "The last checkpoint is kept for --resume."
            raise CommandError(f"{outcome.reason}. {kept}", WORKER_LOST)
        restarts -= 1
        print_message(f"{outcome.reason}; restarting all workers from the last checkpoint.")
        # --force: the first run has checked the output, so a file there now is from this launch.
        words = [*command, *(w for w in ("--resume", "--force") if w not in command)]


def _end(number: int, _: object) -> NoReturn:
    raise SystemExit(128 + number)


class _Outcome(NamedTuple):
    """Exit code of a group of workers, with the reason if a restart may help."""

    code: int
    reason: str = ""


class _WorkerGroup:
    """The workers of one fit, their logs and their heartbeat files."""

    def __init__(self, workers: list[_Worker], folder: Path):
        self._workers, self._folder, self._began = workers, folder, time.time()

    @staticmethod
    @contextlib.contextmanager
    def started(words: Sequence[str], count: int, gpus: Sequence[str]) -> Iterator["_WorkerGroup"]:
        """Start the workers; they are killed when the ``with`` block ends."""
        coordinator = f"127.0.0.1:{_free_port()}"
        with contextlib.ExitStack() as stack:
            folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="dagp-launch-")))
            workers: list[_Worker] = []
            # Registered first, so that an error while starting kills those already started.
            stack.callback(lambda: _kill_all(workers))
            for index in range(count):
                environment = Place(coordinator, count, index).environment()
                environment[HEARTBEAT] = str(folder / f"{index}.beat")
                environment |= {"CUDA_VISIBLE_DEVICES": gpus[index]} if gpus else {}
                log = stack.enter_context((folder / f"{index}.log").open("wb"))
                with _signals_later():
                    workers.append(_start_worker(words, environment, index, count, log))
            forward = threading.Thread(target=_forward, args=(workers[0].stdout,), daemon=True)
            forward.start()
            yield _WorkerGroup(workers, folder)
            _kill_all(workers)
            forward.join()

    def wait(self, patience: float) -> _Outcome:
        """Wait until all workers have finished, one has failed, or `patience` seconds are idle."""
        while True:
            codes = [worker.poll() for worker in self._workers]
            if any(codes):
                return self._failure()
            if all(code == 0 for code in codes):
                return _Outcome(0)
            if (idle := self._idle_seconds()) > patience:
                return _Outcome(WORKER_LOST, f"No progress for {idle:.0f} seconds")
            time.sleep(POLL)

    def _failure(self) -> _Outcome:
        """The cause of a failure, from the exit codes of all workers in the order of their ends."""
        ended: dict[int, int] = {}
        until = time.monotonic() + GRACE
        while True:
            codes = {index: worker.poll() for index, worker in enumerate(self._workers)}
            news = {i: code for i, code in codes.items() if code and i not in ended}
            ended |= dict(sorted(news.items(), key=lambda item: item[1] > 0))
            if None not in codes.values() or time.monotonic() > until:
                break
            time.sleep(POLL)
        # Those that lose the others say so, or are aborted by JAX: the cause is another one.
        causes = [i for i, code in ended.items() if code not in (WORKER_LOST, -signal.SIGABRT)]
        index = next(iter(causes or ended))
        code = ended[index]
        if code < 0:
            return _Outcome(WORKER_LOST, f"Worker {index} ended with signal {-code}")
        if code == WORKER_LOST:
            return _Outcome(WORKER_LOST, f"Worker {index} lost the others")
        if code == PORT_TAKEN:
            return _Outcome(PORT_TAKEN, "Another program has taken the port of the workers")
        if ended.get(0) != code:
            # Only the leading worker writes to the terminal, and it has not met this error.
            lines = (self._folder / f"{index}.log").read_text(errors="replace").splitlines()
            told = [line for line in lines if line.startswith("Error: ")] or lines[-20:]
            print_message(f"Worker {index}: {' '.join(told)}")
        return _Outcome(code)

    def _idle_seconds(self) -> float:
        """Seconds since the last heartbeat of the slowest worker."""
        beats = [self._folder / f"{index}.beat" for index in range(len(self._workers))]
        times = [beat.stat().st_mtime if beat.exists() else self._began for beat in beats]
        return time.time() - min(times)


def _start_worker(
    words: Sequence[str], environment: dict[str, str], index: int, count: int, log: IO[bytes]
) -> _Worker:
    """Start one worker; the leading one writes to our terminal."""
    program = "from dagp.cli import main; main()"
    worker = subprocess.Popen(
        [sys.executable, "-c", program, *words],
        env={**os.environ, **environment},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE if index == 0 else subprocess.DEVNULL,
        stderr=None if index == 0 else log,
        # Ctrl-C reaches only this process, which then kills all workers.
        start_new_session=True,
    )
    if cores := _cores(index, count):
        os.sched_setaffinity(worker.pid, cores)
    return worker


@contextlib.contextmanager
def _signals_later() -> Iterator[None]:
    """Ctrl-C and `kill` inside the ``with`` block take effect after it.

    While a worker starts, or workers are killed, they would leave one behind.
    """
    waiting: list[int] = []
    ends = (signal.SIGINT, signal.SIGTERM)
    before = {end: signal.signal(end, lambda number, _: waiting.append(number)) for end in ends}
    try:
        yield
    finally:
        for end, handler in before.items():
            signal.signal(end, signal.SIG_DFL if handler is None else handler)
    for number in waiting[:1]:
        signal.raise_signal(number)


def _kill_all(workers: Sequence[_Worker]) -> None:
    with _signals_later():
        for worker in workers:
            worker.kill()
        for worker in workers:
            worker.wait()


def _forward(stream: IO[bytes]) -> None:
    """Copy results to our stdout, without the log lines of the communication library."""
    for line in stream:
        if not line.startswith(_GLOO_LOG):
            sys.stdout.buffer.write(line)
            sys.stdout.flush()


def _cores(index: int, count: int) -> set[int]:
    """Cores of one worker; empty on systems without CPU affinity.

    The cores are divided, because threads that wait for a core of another worker slow down both.
    """
    if not hasattr(os, "sched_getaffinity"):
        return set()
    cores = sorted(os.sched_getaffinity(0))
    mine = cores[index::count]
    return set(mine or [cores[index % len(cores)]])


def _visible_gpus() -> list[str]:
    """CUDA names of the GPUs that may be used."""
    if os.environ.get("JAX_PLATFORMS", "").startswith("cpu"):
        return []
    if (visible := os.environ.get("CUDA_VISIBLE_DEVICES")) is not None:
        return [name for name in visible.split(",") if name]
    driver = Path("/proc/driver/nvidia/gpus")
    return [str(i) for i, _ in enumerate(driver.iterdir())] if driver.is_dir() else []


def _free_port() -> int:
    """A port that is free at the moment."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return listener.getsockname()[1]
