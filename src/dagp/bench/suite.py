"""The suites: which measurements, at which sizes."""

import os
import platform
from collections.abc import Callable, Iterable, Iterator
from importlib.metadata import PackageNotFoundError, version
from typing import Any, NamedTuple

import jax
import numpy as np

from dagp import datasets
from dagp.bench import fresh
from dagp.bench.figures import Figure, exponent, repeated
from dagp.bench.steps import Size, bytes_free, bytes_needed, step_ms
from dagp.estimator import DAGP
from dagp.version import __version__

__all__ = ["MEASUREMENTS", "SUITES", "Plan", "exponents", "machine", "measured"]

POINTS = 100_000
REFERENCE = Size()
"""The step that others are compared with."""
BATCH = 1000


class Plan(NamedTuple):
    """How much a suite measures."""

    repeats: int
    fits: int
    """How often a fit is repeated in fresh processes."""
    sizes: tuple[Size, ...]
    seeds: int
    """Data sets of each experiment."""
    experiments: tuple[str, ...]
    memory: tuple[tuple[int, int | None, int, int], ...]
    """Rows, rows of a batch, inducing points, most steps."""


_GRID = tuple(Size(1000, K, M) for M in (25, 100, 500) for K in (2, 4, 8))
_ROWS = tuple(Size(N) for N in (10_000, 100_000, 1_000_000))
_BATCHES = tuple(Size(N, batch=BATCH) for N in (10_000, 100_000, 1_000_000))
_LAYERS = tuple(Size(inducing=50, layers=L) for L in (1, 2, 3))

SUITES: dict[str, Plan] = {
    "quick": Plan(
        repeats=3,
        fits=1,
        sizes=(REFERENCE, Size(1000, 4), Size(1000, inducing=25), Size(4000)),
        seeds=0,
        experiments=(),
        memory=((10_000, BATCH, 32, 25),),
    ),
    "full": Plan(
        repeats=5,
        fits=3,
        sizes=(*_GRID, *_ROWS, *_BATCHES, *_LAYERS),
        seeds=3,
        experiments=("multimodal", "noise", "cartpole"),
        memory=((1000, None, 100, 100), (100_000, BATCH, 100, 25), (1_000_000, BATCH, 100, 25)),
    ),
}


def measured(suite: str = "quick", only: Iterable[str] | None = None) -> Iterator[tuple[str, Any]]:
    """Names and figures, one after the other; what is under way is yielded first, with None."""
    plan, wanted = SUITES[suite], list(MEASUREMENTS if only is None else only)
    yield "suite", suite
    yield "machine", machine()
    for name in wanted:
        yield name, None
        yield name, MEASUREMENTS[name](plan)
    yield "load_at_end", os.getloadavg()[0]


def machine() -> dict[str, Any]:
    """What the figures were measured on, and with."""
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
        | {name: _version(name) for name in ("jax", "jaxlib", "numpy", "scipy", "scikit-learn")},
    }


def _version(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None


def _steps(plan: Plan) -> dict[str, Any]:
    """Every size that fits into memory, beside the reference, and how the cost grows."""
    rows: list[dict[str, Any]] = []
    for size in plan.sizes:
        need, free = bytes_needed(size), 0.8 * bytes_free()
        if need > free:
            reason = f"needs about {need / 2**30:.0f} GiB, and {free / 2**30:.0f} GiB may be used"
            rows.append(size._asdict() | {"skipped": reason})
            continue
        rows.append(size._asdict() | step_ms(size, repeats=plan.repeats))
    done = {Size(**{n: row[n] for n in Size._fields}): row for row in rows if "median" in row}
    base = done[REFERENCE]["median"] if REFERENCE in done else None
    for row in done.values():
        row["of_reference"] = None if base is None else round(row["median"] / base, 3)
    return {"reference": REFERENCE._asdict(), "rows": rows, "exponents": exponents(done)}


def exponents(done: dict[Size, dict[str, Any]]) -> list[Figure]:
    """How the cost of a step grows along every line of the sizes, other things being equal.

    >>> exponents({Size(rows=n): {"median": 2.0 * n} for n in (10, 100, 1000)})[0]["exponent"]
    1.0
    """
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
            grown = exponent(sizes, [done[size]["median"] for size in along])
            found.append({"in": axis} | grown | {"at": others})
    return found


def _predict(plan: Plan) -> dict[str, Any]:
    """Predictions for many points, after a first few."""
    data = datasets.multimodal(random_state=0)
    # What a prediction costs does not depend on how good the model is.
    model = DAGP(4, n_init=1, max_iter=25, random_state=0).fit(data.X, data.y)
    X = np.random.default_rng(0).uniform(-6, 6, (POINTS, 1))
    figure = repeated(lambda: model.predict(X), repeats=plan.repeats)
    rate = round(POINTS / figure["median"])
    return figure | {"points": POINTS, "points_per_s": rate}


def _memory(plan: Plan) -> list[dict[str, Any]]:
    return [fresh.memory(*case) for case in plan.memory]


def _recovery(plan: Plan) -> dict[str, Any]:
    if not plan.experiments:
        return {"skipped": "part of --suite full"}
    return fresh.recovery(plan.experiments, plan.seeds)


MEASUREMENTS: dict[str, Callable[[Plan], Any]] = {
    "import": lambda plan: fresh.import_s(plan.repeats),
    "first_fit": lambda plan: fresh.first_fit(plan.fits),
    "steps": _steps,
    "predict": _predict,
    "memory": _memory,
    "recovery": _recovery,
}
"""What can be measured, by name."""
