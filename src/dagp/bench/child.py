"""Benchmark jobs of a fresh interpreter: reads a job from its argument and prints the results.

Both are JSON. A job is ``{"do": name, ...}`` with the arguments of the function of that name.
"""

import json
import resource
import sys
import time
import warnings
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from dagp import datasets
from dagp.bench.steps import regimes
from dagp.bench.timing import product_ms, seconds
from dagp.estimator import DAGP
from dagp.experiments import judge
from dagp.model.clutter import Noise
from dagp.model.deep import DeepGP
from dagp.model.gp import GP
from dagp.model.process import ProcessPrior

Row = dict[str, Any]


def fit_demo(times: int) -> Row:
    """Seconds of successive fits in this process, the first one included."""
    data = datasets.multimodal(random_state=0)
    model = DAGP(4, random_state=0)
    return {"seconds": [seconds(lambda: model.fit(data.X, data.y)) for _ in range(times)]}


TASKS: dict[str, tuple[Callable[..., Any], list[ProcessPrior]]] = {
    "multimodal": (datasets.multimodal, [GP()] * 4),
    "noise": (partial(datasets.noise_separation, 0.4), [GP(), Noise()]),
    "cartpole": (datasets.cartpole, [GP()] * 2),
    "cartpole, two layers": (datasets.cartpole, [DeepGP(2)] * 2),
    "cartpole, three layers": (datasets.cartpole, [DeepGP(3)] * 2),
    "turbine": (datasets.turbine, [GP(), GP(), Noise()]),
}
"""Data and processes of the fits that are timed."""


def _task(experiment: str, seed: int) -> tuple[Any, DAGP]:
    draw, processes = TASKS[experiment]
    return draw(random_state=seed), DAGP(processes=processes, random_state=seed)


def fits(experiment: str, times: int) -> Row:
    """Seconds of fits: of the first one, with seed 0, and of seeds 0 to `times` − 1 in the same
    process, each beside the milliseconds of a reference product. How many steps a search takes
    depends on the data, and in the last digits on the processor: one seed says little."""

    def timed(seed: int) -> tuple[float, float]:
        data, model = _task(experiment, seed)
        return seconds(lambda: model.fit(data.X, data.y)), product_ms()

    taken, product = zip(*map(timed, [0, *range(times)]), strict=True)
    return {"first": taken[0], "again": taken[1:], "product_ms": product}


def recover(experiment: str, seed: int) -> Row:
    """A fit of one of the paper's experiments: seconds, and whether it recovered the truth."""
    cpu = time.process_time()
    data, model = _task(experiment, seed)
    taken = seconds(lambda: model.fit(data.X, data.y))
    if experiment == "multimodal":
        gate = model.predict_assignment([[x] for x in judge.PROBES])
        found = judge.multimodal(data.X[:, 0], data.process, model.assignment_, gate)
    elif experiment == "cartpole":
        found = judge.cartpole(data.process, model.assignment_)
    else:
        found = judge.noise(data.y_test, model.processes_[0].predict(data.X_test))
    return {"seconds": taken, "cpu_seconds": time.process_time() - cpu} | found


def _peak() -> int:
    """Peak memory of this process in bytes."""
    # On Linux, `ru_maxrss` includes the peak of the parent process.
    if sys.platform == "linux":
        lines = Path("/proc/self/status").read_text().splitlines()
        return 1024 * next(int(line.split()[1]) for line in lines if line.startswith("VmHWM"))
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss


def memory(rows: int, batch: int | None, inducing: int, max_iter: int) -> Row:
    """Peak memory of a fit and of predictions at its inputs, above the peak before."""
    X, y = regimes(rows, 2)
    y = y[:, 0]
    before = _peak()
    settings: Row = {"inducing": inducing, "max_iter": max_iter, "n_init": 2, "random_state": 0}
    model = DAGP(2, batch_size=batch, **settings)
    taken = seconds(lambda: model.fit(X, y))
    fitted = _peak()
    model.predict(X)
    return {
        "before": before,
        "data": X.nbytes + y.nbytes,
        "fit": fitted - before,
        "predict": _peak() - before,
        "seconds": taken,
    }


JOBS = {"fit_demo": fit_demo, "fits": fits, "recover": recover, "memory": memory}


def main() -> None:
    """Run the job of the command-line argument."""
    job = json.loads(sys.argv[1])
    warnings.simplefilter("ignore")
    print(json.dumps(JOBS[job.pop("do")](**job), default=np.generic.item))
