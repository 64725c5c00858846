"""Protocol of the contenders of `against.py`: one JSON job per line on stdin, one result on stdout.

A contender provides two functions. `svgp` builds a sparse variational GP and `association` the
mixture of processes with a gate. Both return an object with ``steps(count)``, which takes training
steps and returns the ELBO of the last one. The mixture also has ``restart(seed)``, and ``look()``:
responsibilities of the training points and gate weights at the probes, processes in columns.

Imports NumPy only, to run in the environment of any contender.
"""

import contextlib
import json
import runpy
import sys
import time
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy as np

Job = dict[str, Any]
Make = Callable[..., Any]
GLANCE = 25
"""Steps between two evaluations of the recovery criterion, which are not timed."""
PATIENCE, GAIN = 8, 1e-3
"""A start ends after this many evaluations in a row without this gain of ELBO per data point."""


def judged(job: Job, data: Any, shares: np.ndarray, gate: np.ndarray) -> Job:
    """The recovery criterion, the same as for DAGP."""
    judge = runpy.run_path(job["judge"])
    assignment = shares.argmax(axis=1)
    if job["task"] == "multimodal":
        return judge["multimodal"](data["x"], data["process"], assignment, gate)
    return judge["cartpole"](data["process"], assignment)


class Clock:
    """Stopwatch of wall time and of the processor time of all threads."""

    def __init__(self) -> None:
        self.seconds = 0.0
        self.cpu = 0.0

    @contextlib.contextmanager
    def running(self) -> Iterator[None]:
        begin, cpu = time.perf_counter(), time.process_time()
        yield
        self.seconds += time.perf_counter() - begin
        self.cpu += time.process_time() - cpu


class Start(NamedTuple):
    """Result of a start."""

    bound: float
    verdict: Job
    steps: int
    seen: tuple[float, float] | None
    """Wall and processor seconds when the criterion was first met."""
    whole: bool
    """Whether it converged, rather than reaching the time limit."""


def run_start(model: Any, seed: int, job: Job, data: Any, clock: Clock) -> Start:
    """Train until the ELBO converges, evaluating the criterion every `GLANCE` steps."""
    with clock.running():
        model.restart(seed)
    highest, quiet, steps, seen, verdict = -np.inf, 0, 0, None, {"recovered": False}
    while quiet < PATIENCE and clock.seconds < job["limit"]:
        with clock.running():
            try:
                bound = model.steps(GLANCE)
            except Exception:  # a matrix that is not positive definite: this start has failed
                bound = np.nan
        steps += GLANCE
        if not np.isfinite(bound):
            return Start(-np.inf, {"recovered": False}, steps, seen, True)
        quiet = 0 if bound > highest + GAIN * len(data["X"]) else quiet + 1
        highest = max(highest, bound)
        verdict = judged(job, data, *model.look())
        if verdict["recovered"] and seen is None:
            seen = clock.seconds, clock.cpu
    return Start(highest, verdict, steps, seen, quiet == PATIENCE)


def _bound(start: Start) -> float:
    return start.bound


def _seen(start: Start) -> bool:
    return start.seen is not None


def recover(association: Make, job: Job, data: Any) -> Job:
    """Run successive starts; the clock runs while models are built, compiled and trained.

    `seconds` is when the criterion, which uses the true labels, was first met. `blind` does not use
    them: a given number of starts, each until its ELBO converges, and the result is the start with
    the highest ELBO. With ``more``, starts continue until the criterion is met or time is up.
    """
    clock, starts = Clock(), []
    with clock.running():
        model = association(data["X"], data["y"], data["Z"], data["probes"], job)

    def one_more() -> None:
        starts.append(run_start(model, 1000 * job["seed"] + len(starts), job, data, clock))

    while len(starts) < job["starts"] and clock.seconds < job["limit"]:
        one_more()
    blind, spent, best = list(starts), (clock.seconds, clock.cpu), max(starts, key=_bound)
    while job.get("more") and clock.seconds < job["limit"] and not any(map(_seen, starts)):
        one_more()
    seen = [start.seen for start in starts if start.seen is not None]
    return {
        "seconds": seen[0][0] if seen else clock.seconds,
        "cpu_seconds": seen[0][1] if seen else clock.cpu,
        "recovered": bool(seen),
        "starts": len(starts),
        "blind": {
            "seconds": spent[0],
            "cpu_seconds": spent[1],
            "starts": len(blind),
            "steps": sum(start.steps for start in blind),
            "complete": len(blind) == job["starts"] and blind[-1].whole,
            "bound": best.bound,
            **best.verdict,
        },
    }


def serve(svgp: Make, association: Make, versions: Callable[[], Job]) -> None:
    """Run jobs from stdin until it is closed."""
    answers = sys.stdout
    model: Any = None
    with contextlib.redirect_stdout(sys.stderr):
        for line in sys.stdin:
            job = json.loads(line)
            data = np.load(job["data"]) if "data" in job else None
            if job["do"] == "versions":
                answer = versions()
            elif job["do"] == "steps":
                clock = Clock()
                with clock.running():
                    model.steps(job["count"])
                answer = {"seconds": clock.seconds, "cpu_seconds": clock.cpu}
            elif job["do"] == "recover":
                answer = recover(association, job, data)
            elif job["do"] == "association":
                assert data is not None
                model = association(data["X"], data["y"], data["Z"], data["probes"], job)
                model.restart(0)
                answer = {}
            else:
                assert data is not None
                model = svgp(data["X"], data["y"], data["Z"], job)
                answer = {}
            print(json.dumps(answer, default=lambda v: v.item()), file=answers, flush=True)
