"""What every contender answers: one JSON object a line on stdin, one on stdout.

A contender brings two functions. `svgp` makes a plain sparse variational GP and `association` the
mixture of processes with a gate, both as an object with ``steps(count)``, which takes as many
training steps and returns the bound where they began. The mixture also has ``restart(seed)``, and
``look()``: responsibilities of the training points and the gate at the probes, processes across.

Needs NumPy alone, and so runs wherever the contender does.
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
"""Steps between two looks whether the structure is there; looking is not timed."""
PATIENCE, GAIN = 8, 1e-3
"""Looks without a gain, per data point, after which a start is given up for the next one."""


def judged(job: Job, data: Any, shares: np.ndarray, gate: np.ndarray) -> Job:
    """The verdict of the judge that also judges DAGP."""
    judge = runpy.run_path(job["judge"])
    assignment = shares.argmax(axis=1)
    if job["task"] == "multimodal":
        return judge["multimodal"](data["x"], data["process"], assignment, gate)
    return judge["cartpole"](data["process"], assignment)


class Clock:
    """Runs while it is let run; `cpu` is what all threads together worked meanwhile."""

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
    """How a start went."""

    bound: float
    verdict: Job
    steps: int
    seen: tuple[float, float] | None
    """Seconds, and those of the processor, when the structure was first there."""
    whole: bool
    """Whether it ended by itself."""


def run_start(model: Any, seed: int, job: Job, data: Any, clock: Clock) -> Start:
    """Train until the bound has stopped rising, with a look every now and then."""
    with clock.running():
        model.restart(seed)
    highest, quiet, steps, seen, verdict = -np.inf, 0, 0, None, {"recovered": False}
    while quiet < PATIENCE and clock.seconds < job["limit"]:
        with clock.running():
            try:
                bound = model.steps(GLANCE)
            except Exception:  # a matrix that is not positive definite: this start is lost
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
    """Start after start; the clock runs while models are built, compiled and trained.

    `seconds` is when the structure was first there, for somebody who knows the truth and stops at
    once. `blind` is somebody who does not: as many starts as ours has, each until its bound has
    stopped rising, and the highest bound is the answer. Whoever is told to have ``more`` goes on
    after these, start after start, until the structure is there or the time is over.
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
    """Answer until nobody asks any more."""
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
