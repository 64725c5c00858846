"""Jobs for a fresh interpreter: a JSON object with the job comes in as the only argument, one with
the figures goes out on stdout.

A job is ``{"do": name, ...}`` with the arguments of the function of that name here.
"""

import json
import resource
import sys
import time
import warnings
from pathlib import Path
from typing import Any

import numpy as np

from dagp import DAGP, GP, Noise, datasets
from dagp.bench.steps import regimes
from dagp.experiments import judge

__all__ = ["JOBS", "fit_demo", "main", "memory", "recover"]

Row = dict[str, Any]


def _fitted(model: DAGP, X: Any, y: Any) -> float:
    """Fit a model; seconds."""
    begin = time.perf_counter()
    model.fit(X, y)
    return time.perf_counter() - begin


def fit_demo(times: int) -> Row:
    """Seconds of the first fit of this process, the second, and so on."""
    data = datasets.multimodal(random_state=0)
    model = DAGP(4, random_state=0)
    return {"seconds": [_fitted(model, data.X, data.y) for _ in range(times)]}


def recover(experiment: str, seed: int) -> Row:
    """A fit of one of the paper's experiments: seconds, and whether it found what is there."""
    cpu = time.process_time()
    if experiment == "multimodal":
        data = datasets.multimodal(random_state=seed)
        model = DAGP(4, random_state=seed)
        taken = _fitted(model, data.X, data.y)
        gate = model.predict_assignment([[x] for x in judge.PROBES])
        found = judge.multimodal(data.X[:, 0], data.process, model.assignment_, gate)
    elif experiment == "cartpole":
        data = datasets.cartpole(random_state=seed)
        model = DAGP(2, random_state=seed)
        taken = _fitted(model, data.X, data.y)
        found = judge.cartpole(data.process, model.assignment_)
    else:
        data = datasets.noise_separation(0.4, random_state=seed)
        model = DAGP(processes=[GP(), Noise()], random_state=seed)
        taken = _fitted(model, data.X, data.y)
        found = judge.noise(data.y_test, model.processes_[0].predict(data.X_test))
    return {"seconds": taken, "cpu_seconds": time.process_time() - cpu} | found


def _peak() -> int:
    """Most bytes this process ever held."""
    # What Linux says in `ru_maxrss` includes the process that started this one.
    if sys.platform == "linux":
        lines = Path("/proc/self/status").read_text().splitlines()
        return 1024 * next(int(line.split()[1]) for line in lines if line.startswith("VmHWM"))
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss


def memory(rows: int, batch: int | None, inducing: int, max_iter: int) -> Row:
    """Most memory a fit and predictions for its inputs ever held, above what was held before."""
    X, y = regimes(rows, 2)
    y = y[:, 0]
    before = _peak()
    settings: Row = {"inducing": inducing, "max_iter": max_iter, "n_init": 2, "random_state": 0}
    model = DAGP(2, batch_size=batch, **settings)
    taken = _fitted(model, X, y)
    fitted = _peak()
    model.predict(X)
    return {
        "before": before,
        "data": X.nbytes + y.nbytes,
        "fit": fitted - before,
        "predict": _peak() - before,
        "seconds": taken,
    }


JOBS = {"fit_demo": fit_demo, "recover": recover, "memory": memory}


def main() -> None:
    """Do what the argument says."""
    job = json.loads(sys.argv[1])
    warnings.simplefilter("ignore")
    print(json.dumps(JOBS[job.pop("do")](**job), default=_plain))


def _plain(value: Any) -> Any:
    if isinstance(value, np.generic):
        return value.item()
    raise TypeError(f"{value!r} is no figure.")
