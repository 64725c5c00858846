"""Benchmark suites: measurements and problem sizes of `dagp bench`."""

import os
import platform
from collections.abc import Callable, Iterable, Iterator
from importlib.metadata import version
from typing import Any, NamedTuple

import jax
import numpy as np

from dagp import datasets
from dagp.bench import fresh
from dagp.bench.steps import Size, bytes_free, bytes_needed, step_ms
from dagp.bench.timing import Summary, exponent, repeated
from dagp.core.version import __version__
from dagp.estimator import DAGP

POINTS = 100_000
REFERENCE = Size()
"""Size of the step that others are compared with."""
BATCH = 1000


class Plan(NamedTuple):
    """Sizes and repeats of a suite."""

    repeats: int
    fits: int
    """Repeats of a fit in fresh processes."""
    repeated_fits: dict[str, int]
    """Further fits of each task in one process."""
    sizes: tuple[Size, ...]
    seeds: int
    """Data sets per experiment."""
    experiments: tuple[str, ...]
    memory: tuple[tuple[int, int | None, int, int], ...]
    """Rows, batch size, inducing points and maximum number of steps of each fit."""


_GRID = tuple(Size(1000, K, M) for M in (25, 100, 500) for K in (2, 4, 8))
_ROWS = tuple(Size(N) for N in (10_000, 100_000, 1_000_000))
_BATCHES = tuple(Size(N, batch=BATCH) for N in (10_000, 100_000, 1_000_000))
_LAYERS = tuple(Size(inducing=50, layers=L) for L in (1, 2, 3))

SUITES: dict[str, Plan] = {
    "quick": Plan(
        repeats=3,
        fits=1,
        repeated_fits={"multimodal": 3, "noise": 3},
        sizes=(REFERENCE, Size(1000, 4), Size(1000, inducing=25), Size(4000)),
        seeds=0,
        experiments=(),
        memory=((10_000, BATCH, 32, 25),),
    ),
    "full": Plan(
        repeats=5,
        fits=5,
        repeated_fits={
            "multimodal": 5,
            "noise": 5,
            "cartpole": 5,
            "turbine": 0,
            "cartpole, two layers": 0,
            "cartpole, three layers": 0,
        },
        sizes=(*_GRID, *_ROWS, *_BATCHES, *_LAYERS),
        seeds=3,
        experiments=("multimodal", "noise", "cartpole"),
        memory=((1000, None, 100, 100), (100_000, BATCH, 100, 25), (1_000_000, BATCH, 100, 25)),
    ),
}


def measured(suite: str = "quick", only: Iterable[str] | None = None) -> Iterator[tuple[str, Any]]:
    """Yields names and results; each name first with None, when its measurement begins."""
    plan, wanted = SUITES[suite], list(MEASUREMENTS if only is None else only)
    yield "suite", suite
    yield "machine", machine()
    for name in wanted:
        yield name, None
        yield name, MEASUREMENTS[name](plan)
    yield "load_at_end", os.getloadavg()[0]


def machine() -> dict[str, Any]:
    """Hardware, load and package versions of a run."""
    try:
        with open("/proc/cpuinfo") as file:
            model = next(line.split(":")[1].strip() for line in file if line.startswith("model n"))
    except (OSError, StopIteration):
        model = platform.processor()
    return {
        "processor": f"{platform.machine()} {model}".strip(),
        "cores": len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else None,
        "device": str(jax.devices()[0]),
        "load_at_start": os.getloadavg()[0],
        "versions": {"dagp": __version__, "python": platform.python_version()}
        | {name: version(name) for name in ("jax", "jaxlib", "numpy", "scipy", "scikit-learn")},
    }


def _steps(plan: Plan) -> dict[str, Any]:
    """Step times of every size that fits into memory, and growth exponents."""
    rows: list[dict[str, Any]] = []
    for size in plan.sizes:
        need, free = bytes_needed(size), 0.8 * bytes_free()
        reason = f"needs about {need / 2**30:.0f} GiB, and {free / 2**30:.0f} GiB may be used"
        found = {"skipped": reason} if need > free else step_ms(size, repeats=plan.repeats)
        rows.append(size._asdict() | found)
    done = {Size(**{n: row[n] for n in Size._fields}): row for row in rows if "median" in row}
    base = done[REFERENCE]["median"] if REFERENCE in done else None
    for row in done.values():
        row["of_reference"] = None if base is None else round(row["median"] / base, 3)
    return {"reference": REFERENCE._asdict(), "rows": rows, "exponents": exponents(done)}


def exponents(done: dict[Size, dict[str, Any]]) -> list[Summary]:
    """Growth exponents of the step time along each axis of the sizes, the others held fixed."""
    found = []
    for axis in ("rows", "processes", "inducing", "layers"):
        lines: dict[Size, list[Size]] = {}
        for size in done:
            lines.setdefault(size._replace(**{axis: 0}), []).append(size)
        for fixed, along in lines.items():
            along = sorted(set(along), key=lambda size: getattr(size, axis))
            sizes = [getattr(size, axis) for size in along]
            if len(sizes) < 2:
                continue
            others = {n: v for n, v in fixed._asdict().items() if n != axis}
            growth = exponent(sizes, [done[size]["median"] for size in along])
            found.append({"in": axis} | growth | {"at": others})
    return found


def _predict(plan: Plan) -> dict[str, Any]:
    """Time of predictions at many points, after a warm-up."""
    data = datasets.multimodal(random_state=0)
    # The cost of a prediction does not depend on the quality of the fit.
    model = DAGP(4, n_init=1, max_iter=25, random_state=0).fit(data.X, data.y)
    X = np.random.default_rng(0).uniform(-6, 6, (POINTS, 1))
    summary = repeated(lambda: model.predict(X), repeats=plan.repeats)
    return summary | {"points": POINTS, "points_per_s": round(POINTS / summary["median"])}


MEASUREMENTS: dict[str, Callable[[Plan], Any]] = {
    "import": lambda plan: fresh.import_s(plan.repeats),
    "first_fit": lambda plan: fresh.first_fit(plan.fits),
    "fits": lambda plan: fresh.fits(plan.repeated_fits),
    "steps": _steps,
    "predict": _predict,
    "memory": lambda plan: [fresh.memory(*case) for case in plan.memory],
    "recovery": lambda plan: (
        fresh.recovery(plan.experiments, plan.seeds) or {"skipped": "part of --suite full"}
    ),
}
"""Measurements by name."""
