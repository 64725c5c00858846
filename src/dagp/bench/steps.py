"""Milliseconds of one training step, at any size."""

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from dagp.bench.figures import Figure, repeated, seconds
from dagp.data import Sample, Units, on_devices, padded
from dagp.deep import DeepGP
from dagp.model import Batch
from dagp.parameters import trainable
from dagp.placement import place
from dagp.processes import GP
from dagp.runtime import numerics
from dagp.search import GROWTHS
from dagp.starts import Problem, Start, build, choose_inducing, grown
from dagp.stochastic import descend, drawn, fresh_moments, paces
from dagp.train import BLOCK, LEARNING_RATE, State, begin, step

__all__ = ["Size", "bytes_free", "bytes_needed", "regimes", "step_ms"]

COLUMNS = 5
"""Inputs of the data that steps are timed on: as many as the cart-poles have."""
ENOUGH = 0.4
"""Seconds that one repeat should take, so that the clock sees steps and not the call."""
ARRAYS = 12
"""Arrays of one value per row, inducing point and process that a step holds at its peak."""


class Size(NamedTuple):
    """What a step works on."""

    rows: int = 1000
    processes: int = 2
    inducing: int = 100
    layers: int = 1
    batch: int | None = None
    """Rows of a minibatch; None for all of them."""


def regimes(
    rows: int, processes: int, columns: int = COLUMNS, seed: int = 0
) -> tuple[np.ndarray, np.ndarray]:
    """Data of any size: each point follows one of some smooth functions.

    >>> X, y = regimes(10, 2)
    >>> X.shape, y.shape
    ((10, 5), (10, 1))
    """
    rng = np.random.default_rng(seed)
    X = rng.uniform(-2, 2, (rows, columns))
    towards = rng.standard_normal((columns, processes))
    level = np.sin(X @ towards) + 2 * np.arange(processes)
    owner = rng.integers(0, processes, rows)
    y = np.take_along_axis(level, owner[:, None], axis=1) + 0.1 * rng.standard_normal((rows, 1))
    return X, y


def _begun(size: Size) -> tuple[State, Sample]:
    """A model of this size in the middle of its training, and its data."""
    X, y = regimes(size.rows, size.processes)
    raw = Sample(X, y, np.ones(size.rows), np.full(size.rows, -1))
    units = Units.of(raw)
    sample, rng = units.apply(raw), np.random.default_rng(0)
    prior = DeepGP(size.layers) if size.layers > 1 else GP()
    places = choose_inducing(sample.X[:5000], size.inducing, rng)
    problem = Problem(sample, units, (prior,) * size.processes, None, places)
    shares = rng.dirichlet(np.full(size.processes, 5.0), size.rows)
    start = Start("random", shares, 1.0, 0.2)
    model = build(problem, start)
    if size.layers > 1:
        model = grown(problem, start, model, GROWTHS[0])
    if size.batch is None:
        data = on_devices(sample, size.processes)
        return begin(model, data, place(padded(shares, len(data.X))), 0)[0], sample
    few = np.zeros((size.batch, size.processes))
    return State(model, few, fresh_moments(model, trainable(model))), sample


@jax.jit
def _steps(state: State, batch: Batch, rate: Any, count: Any) -> State:
    """Some steps as training takes them; how many is no part of what is compiled."""
    return jax.lax.fori_loop(0, count, lambda _, now: step(now, batch, rate)[0], state)


def _whole(state: State, batch: Batch) -> Callable[[int], Any]:
    rate = jnp.asarray(LEARNING_RATE)
    return lambda count: jax.block_until_ready(_steps(state, batch, rate, count))


def _batches(state: State, sample: Sample, size: Size) -> Callable[[int], Any]:
    """Blocks of steps by minibatch, with the drawing of the rows; `count` is BLOCK."""
    rng, some = np.random.default_rng(1), size.batch or size.rows
    epoch = size.rows / some

    def job(count: int) -> Any:
        rows = rng.integers(0, size.rows, (count, some))
        batches = drawn(sample, rows, epoch, size.processes)
        return jax.block_until_ready(descend(state, batches, paces(0, count, epoch)))

    return job


def step_ms(size: Size, *, repeats: int = 5) -> Figure:
    """Milliseconds of one step of this size, without compilation; as many as fill a while."""
    with numerics("float64"):
        state, sample = _begun(size)
        if size.batch is None:
            job = _whole(state, on_devices(sample, size.processes))
        else:
            job = _batches(state, sample, size)
        count = BLOCK if size.batch is not None else 1
        compiled = seconds(partial(job, count))
        if size.batch is None:
            count = int(np.clip(ENOUGH / seconds(partial(job, 1)), 1, 4 * BLOCK))
        figure = repeated(partial(job, count), "ms", repeats=repeats, scale=1e3 / count)
    return figure | {"steps": count, "first_call_s": round(compiled, 2)}


def bytes_needed(size: Size) -> float:
    """About how much memory a step holds at once."""
    rows = size.batch or size.rows
    values = rows * size.inducing * size.layers * (2 * size.processes) * ARRAYS
    return 8.0 * (values + size.rows * (COLUMNS + 2 + size.processes))


def bytes_free() -> float:
    """Memory that can be had now; infinite where the system does not say."""
    try:
        with open("/proc/meminfo") as file:
            known = dict(line.split(":") for line in file)
        return 1024.0 * int(known["MemAvailable"].split()[0])
    except (OSError, KeyError, ValueError):
        return float("inf")
