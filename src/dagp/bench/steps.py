"""Time per training step, full-batch or minibatch, at any problem size."""

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from dagp.bench.timing import Summary, repeated, seconds
from dagp.core.precision import numerics
from dagp.core.sharding import shard_rows
from dagp.inference.inducing import choose_inducing
from dagp.inference.minibatch import gather_batches, init_opt_state, minibatch_steps, step_sizes
from dagp.inference.problem import Problem, Start, build, deepened
from dagp.inference.standardize import Sample, Units, padded, to_device_batch
from dagp.inference.train import BLOCK, LEARNING_RATE, STOCHASTIC_BLOCK, State, begin, step
from dagp.model.association import Batch
from dagp.model.deep import DeepGP
from dagp.model.gp import GP
from dagp.model.parameters import trainable
from dagp.search.settings import DEEPENINGS

COLUMNS = 5
"""Inputs of the data on which steps are timed: as many as the cart-poles have."""
REPEAT_SECONDS = 0.4
"""Target duration of one repeat, so that the overhead of a call is negligible."""
ARRAYS = 12
"""Arrays of shape (rows, inducing points, processes) in memory at the peak of a step."""


class Size(NamedTuple):
    """Problem size of a training step."""

    rows: int = 1000
    processes: int = 2
    inducing: int = 100
    layers: int = 1
    batch: int | None = None
    """Rows of a minibatch; None for full-batch training."""


def regimes(rows: int, processes: int) -> tuple[np.ndarray, np.ndarray]:
    """Synthetic data: each point follows one of several smooth functions."""
    rng = np.random.default_rng(0)
    X = rng.uniform(-2, 2, (rows, COLUMNS))
    towards = rng.standard_normal((COLUMNS, processes))
    level = np.sin(X @ towards) + 2 * np.arange(processes)
    owner = rng.integers(0, processes, rows)
    y = np.take_along_axis(level, owner[:, None], axis=1) + 0.1 * rng.standard_normal((rows, 1))
    return X, y


def _initial_state(size: Size) -> tuple[State, Sample]:
    """Training state of a model of this size, and its data."""
    X, y = regimes(size.rows, size.processes)
    raw = Sample(X, y, np.ones(size.rows), np.full(size.rows, -1))
    units = Units.of(raw)
    sample, rng = units.apply(raw), np.random.default_rng(0)
    prior = DeepGP(size.layers) if size.layers > 1 else GP()
    places = choose_inducing(sample.X[:5000], size.inducing, rng)
    problem = Problem(sample, units, (prior,) * size.processes, None, places)
    responsibilities = rng.dirichlet(np.full(size.processes, 5.0), size.rows)
    start = Start("random", responsibilities, 1.0, 0.2)
    model = build(problem, start)
    if size.layers > 1:
        model = deepened(problem, start, model, DEEPENINGS[0])
    if size.batch is None:
        data = to_device_batch(sample, size.processes)
        return begin(model, data, shard_rows(padded(responsibilities, len(data.X))), 0)[0], sample
    few = np.zeros((size.batch, size.processes))
    return State(model, few, init_opt_state(model, trainable(model))), sample


@jax.jit
def _steps(state: State, batch: Batch, rate: Any, count: Any) -> State:
    """`count` training steps; the count is traced, so that it does not trigger compilation."""
    return jax.lax.fori_loop(0, count, lambda _, now: step(now, batch, rate)[0], state)


def _job(state: State, sample: Sample, size: Size) -> Callable[[int], Any]:
    """Function that runs a number of steps, with the sampling of rows if on minibatches."""
    if size.batch is None:
        batch, rate = to_device_batch(sample, size.processes), jnp.asarray(LEARNING_RATE)
        return lambda count: jax.block_until_ready(_steps(state, batch, rate, count))
    rng, batch_size = np.random.default_rng(1), size.batch
    epoch = size.rows / batch_size

    def job(count: int) -> Any:
        rows = rng.integers(0, size.rows, (count, batch_size))
        batches = gather_batches(sample, rows, epoch, size.processes)
        return jax.block_until_ready(minibatch_steps(state, batches, step_sizes(0, count, epoch)))

    return job


def step_ms(size: Size, *, repeats: int = 5) -> Summary:
    """Milliseconds per step of this size, without compilation."""
    with numerics("float64"):
        job = _job(*_initial_state(size), size)
        count = STOCHASTIC_BLOCK if size.batch is not None else 1
        compiled = seconds(partial(job, count))
        if size.batch is None:
            count = int(np.clip(REPEAT_SECONDS / seconds(partial(job, 1)), 1, 4 * BLOCK))
        summary = repeated(partial(job, count), "ms", repeats=repeats, scale=1e3 / count)
    return summary | {"steps": count, "first_call_s": round(compiled, 2)}


def bytes_needed(size: Size) -> float:
    """Approximate peak memory of a step in bytes."""
    rows = size.batch or size.rows
    values = rows * size.inducing * size.layers * (2 * size.processes) * ARRAYS
    return 8.0 * (values + size.rows * (COLUMNS + 2 + size.processes))


def bytes_free() -> float:
    """Available memory in bytes; infinite where the system does not report it."""
    try:
        with open("/proc/meminfo") as file:
            known = dict(line.split(":") for line in file)
        return 1024.0 * int(known["MemAvailable"].split()[0])
    except (OSError, KeyError, ValueError):
        return float("inf")
