"""Time per training step on the default JAX device, beside its roofline limits.

    python benchmarks/accelerator.py -o results/accelerator.json

Every row times blocks of steps after compilation (median of repeats), and gives two lower limits:
the operations and the bytes of the compiled program over the rates measured here for a matrix
product and for a copy. A step far above both is limited by the launch latency of small kernels.
"""

import argparse
import json
import statistics
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from dagp import GP, DeepGP, datasets
from dagp.core.precision import numerics
from dagp.inference.inducing import choose_inducing
from dagp.inference.minibatch import gather_batches, minibatch_steps, step_sizes
from dagp.inference.parallel import run_blocks, stacked, train_in_parallel
from dagp.inference.problem import Problem, Start, build, deepened
from dagp.inference.standardize import Sample, Units, canonical, padded, to_batch
from dagp.inference.train import BLOCK, LEARNING_RATE, begin, run_block
from dagp.search.settings import DEEPENINGS
from dagp.search.starts import starts

REPEATS = 5
STEPS = 400
"""Steps of the timed race of all starts."""
BATCH = 1024


def median_s(job: Callable[[], Any], repeats: int = REPEATS) -> float:
    jax.block_until_ready(job())
    taken = []
    for _ in range(repeats):
        began = time.perf_counter()
        jax.block_until_ready(job())
        taken.append(time.perf_counter() - began)
    return statistics.median(taken)


def rates(dtype: str) -> dict[str, float]:
    """Measured peak rates of this device: operations and bytes per second."""
    with numerics(dtype):
        a = jnp.ones((4096, 4096), dtype)
        product = jax.jit(lambda a: a @ a)
        copied = jnp.ones(2**27, dtype)
        copy = jax.jit(lambda x: x + 1)
        return {
            "flops": 2 * 4096**3 / median_s(lambda: product(a)),
            "bytes": 2 * copied.nbytes / median_s(lambda: copy(copied)),
        }


def states(X: Any, y: Any, priors: tuple[Any, ...], inducing: int, runs: int) -> tuple[Any, Any]:
    """Initial states of `runs` starts of a problem, and its data."""
    rng = np.random.default_rng(0)
    raw, _ = canonical(Sample(X, y[:, None], np.ones(len(X)), np.full(len(X), -1)))
    units = Units.of(raw)
    sample = units.apply(raw)
    places = choose_inducing(sample.X[rng.permutation(len(X))[:5000]], inducing, rng)
    problem = Problem(sample, units, priors, None, places)
    batch = jax.tree.map(jnp.asarray, to_batch(sample, len(priors)))
    begun = []
    # Computing starts takes long with many rows and is not timed here: a few are reused.
    kinds = list(starts(problem, min(runs, 4), rng)) if len(X) <= 5000 else [_random(problem, rng)]
    for i in range(runs):
        start = kinds[i % len(kinds)]
        model = build(problem, start)
        if any(isinstance(prior, DeepGP) for prior in priors):
            model = deepened(problem, start, model, DEEPENINGS[0])
        shares = jnp.asarray(padded(start.responsibilities, len(batch.X)))
        begun.append(begin(model, batch, shares, 0)[0])
    return tuple(begun), batch


def _random(problem: Problem, rng: np.random.Generator) -> Start:
    shares = rng.dirichlet(np.full(problem.n_processes, 5.0), len(problem.sample.X))
    return Start("random", shares, 0.6, 0.1)


def timed(name: str, data: Any, priors: Any, M: int, runs: int, dtype: str, best: Any) -> Any:
    """One row: milliseconds per step of all runs together, and the lower limits."""
    with numerics(dtype):
        begun, batch = states(*data, priors, M, runs)
        speed = jnp.full(runs, LEARNING_RATE)
        if runs == 1:
            began = time.perf_counter()
            program = run_block.lower(begun[0], batch, speed[0]).compile()
            compiled = time.perf_counter() - began
            block = median_s(lambda: program(begun[0], batch, speed[0]))
        else:
            began = time.perf_counter()
            all_of_them = stacked(begun)
            program = run_blocks.lower(all_of_them, batch, speed).compile()
            compiled = time.perf_counter() - began
            block = median_s(lambda: program(all_of_them, batch, speed))
        row = {
            "task": name,
            "runs": runs,
            "dtype": dtype,
            "rows": len(data[0]),
            "processes": len(priors),
            "inducing": M,
            "compile_s": round(compiled, 2),
            "ms_per_step": round(1e3 * block / BLOCK, 3),
            **floors(program, best),
        }
        if runs > 1:
            row["race_s"] = round(median_s(lambda: _race(begun, batch)), 3)
        return row


def floors(program: Any, best: dict[str, float]) -> dict[str, float]:
    """Lower limits of a step; the compiler counts the body of the loop over steps once."""
    cost = program.cost_analysis() or {}
    return {
        "floor_operations_ms": round(1e3 * cost.get("flops", 0.0) / best["flops"], 4),
        "floor_bytes_ms": round(1e3 * cost.get("bytes accessed", 0.0) / best["bytes"], 4),
    }


def _race(begun: tuple[Any, ...], batch: Any) -> Any:
    """`STEPS` steps of every start, as in the search, without early convergence."""
    rates = [LEARNING_RATE] * len(begun)
    return [
        run.state for run in train_in_parallel(begun, batch, max_iter=STEPS, tol=-1e9, rates=rates)
    ]


def in_batches(rows: int, dtype: str, best: Any) -> Any:
    """One row: steps on minibatches that are sampled on the host and sent to the device."""
    many = datasets.multimodal(n=rows // 3 + 1, random_state=0)
    X, y = many.X[:rows], many.y[:rows]
    priors = (GP(),) * 2
    with numerics(dtype):
        (state,), _ = states(X[:BATCH], y[:BATCH], priors, 100, 1)
        state = state._replace(gate=None)  # as steps on minibatches return it
        sample, _ = canonical(Sample(X, y[:, None], np.ones(rows), np.full(rows, -1)))
        sample = Sample(*(np.asarray(c, dtype) for c in sample[:3]), sample.labels)
        order, pace = np.random.default_rng(0), step_sizes(0, BLOCK, rows / BATCH)

        def block() -> Any:
            chosen = order.integers(rows, size=(BLOCK, BATCH))
            return minibatch_steps(state, gather_batches(sample, chosen, rows / BATCH, 2), pace)

        there = gather_batches(sample, np.zeros((BLOCK, BATCH), int), 1.0, 2)
        program = minibatch_steps.lower(state, there, pace).compile()
        return {
            "task": "batches",
            "runs": 1,
            "dtype": dtype,
            "rows": rows,
            "batch": BATCH,
            "processes": 2,
            "inducing": 100,
            "ms_per_step": round(1e3 * median_s(block) / BLOCK, 3),
            "ms_per_step_without_drawing": round(
                1e3 * median_s(lambda: program(state, there, pace)) / BLOCK, 3
            ),
            **floors(program, best),
        }


def tasks() -> Iterator[tuple[str, Any, Any, int, int, str]]:
    modes = datasets.multimodal(random_state=0)
    cart = datasets.cartpole(random_state=0)
    for dtype in ("float64", "float32"):
        for runs in (1, 8, 32):
            yield "multimodal", (modes.X, modes.y), (GP(),) * 4, 25, runs, dtype
            yield "cart-pole", (cart.X, cart.y), (GP(),) * 2, 100, runs, dtype
        # Points per function, rounded up: the data set has three functions.
        many = datasets.multimodal(n=33_334, random_state=0)
        rows = slice(100_000)
        yield "many rows", (many.X[rows], many.y[rows]), (GP(),) * 2, 100, 1, dtype
        yield "deep", (cart.X, cart.y), (DeepGP(layers=3),) * 2, 50, 1, dtype


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("-o", "--out", type=Path, required=True)
    parser.add_argument("--from", dest="begin", type=int, default=0, help="rows to leave out")
    asked = parser.parse_args()
    out = asked.out
    best = {dtype: rates(dtype) for dtype in ("float64", "float32")}
    found: dict[str, Any] = {"device": str(jax.devices()[0].device_kind), "rates": best, "rows": []}
    jobs = [lambda t=t: timed(*t, best[t[-1]]) for t in tasks()]
    for dtype in best:
        jobs += [lambda n=n, d=dtype: in_batches(n, d, best[d]) for n in (100_000, 1_000_000)]
    for job in jobs[asked.begin :]:
        row = job()
        print(json.dumps(row), flush=True)
        found["rows"].append(row)
        out.parent.mkdir(parents=True, exist_ok=True)
        out.write_text(json.dumps(found, indent=2) + "\n")


if __name__ == "__main__":
    main()
