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
from collections.abc import Callable
from typing import Any

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


def recover(association: Make, job: Job, data: Any) -> Job:
    """Start after start until the structure is found or the time is over.

    The clock runs while models are built, compiled and trained. It is kinder than life: the judge
    knows the truth and stops at the first sight of it, whatever the bound says.
    """
    clock, starts, steps, best = 0.0, 0, 0, {}
    begin = time.perf_counter()
    model = association(data["X"], data["y"], data["Z"], data["probes"], job)
    clock += time.perf_counter() - begin
    while clock < job["limit"]:
        begin = time.perf_counter()
        model.restart(1000 * job["seed"] + starts)
        clock += time.perf_counter() - begin
        starts, highest, quiet = starts + 1, -np.inf, 0
        while clock < job["limit"] and quiet < PATIENCE:
            begin = time.perf_counter()
            try:
                bound = model.steps(GLANCE)
            except Exception:  # a matrix that is not positive definite: this start is lost
                bound = np.nan
            clock += time.perf_counter() - begin
            steps += GLANCE
            if not np.isfinite(bound):
                break
            quiet = 0 if bound > highest + GAIN * len(data["X"]) else quiet + 1
            highest = max(highest, bound)
            verdict = judged(job, data, *model.look())
            score = "ari" if "ari" in verdict else "accuracy"
            best = max(best, verdict, key=lambda row: row.get(score, -1.0))
            if verdict["recovered"]:
                best = verdict
                return {"seconds": clock, "starts": starts, "steps": steps, **best}
    return {"seconds": clock, "starts": starts, "steps": steps, **best, "recovered": False}


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
                begin = time.perf_counter()
                model.steps(job["count"])
                answer = {"seconds": time.perf_counter() - begin}
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
