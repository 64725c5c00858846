"""Minibatch training and streaming updates: stochastic variational inference in bounded memory.

The data stay on the host; the rows of a few steps at a time are copied to the device. Weights of a
minibatch are scaled up, so that its ELBO and natural-gradient targets are unbiased for all data.
Step sizes fall as ``(1 + t/τ)^−κ`` (Robbins & Monro 1951; for variational inference Hoffman et al.
2013), so that the noise of the batches averages out. Before and after, every q takes full steps
on all data: natural parameters add, so a pass over the data in chunks is one full step. Where a
process has little noise, steps of the hyperparameters can move its function by more than that; an
epoch that has lowered the ELBO of all data is undone, and the next takes smaller steps.
"""

from collections.abc import Iterator
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from dagp.core.gc import gc_paused
from dagp.core.programs import program
from dagp.core.sharding import round_up_rows, shard_rows, to_host
from dagp.core.tags import storable
from dagp.core.typing import Array, Float, Int, PerProcess, Scalar
from dagp.inference.elbo import collapsed_elbo, elbo_and_responsibilities, responsibilities
from dagp.inference.run_log import NO_LOG, RunLog
from dagp.inference.standardize import Sample, label_log_mask, padded_length, to_batch
from dagp.inference.train import (
    ROUNDING,
    STOCHASTIC_ADAM,
    STOCHASTIC_BLOCK,
    Callback,
    Progress,
    Result,
    State,
    Status,
    adam_step,
    no_callback,
)
from dagp.model.association import Batch, DataAssociation, NaturalRates
from dagp.model.parameters import is_parameter, trainable
from dagp.model.sparse_gp import LatentFunction
from dagp.model.variational import NaturalGaussian, is_natural

FIRST_NATURAL_RATE = 0.1
FIRST_LEARNING_RATE = 0.02
"""Step sizes of the first epoch."""
DECAY = 0.75
"""κ: between 1/2 and 1, the Robbins–Monro conditions for convergence."""
PATIENCE = 2
"""Consecutive epochs without a gain before training ends."""
SWEEPS = 3
"""Full passes over all data at the beginning and at the end."""
BACK_OFF = 1 / 4
"""Factor of the step sizes after an epoch that was undone."""
LEAST_RATE = BACK_OFF**3
"""Training ends when they would have to be smaller than this factor."""
_CHUNK = 4096
"""Rows per chunk of a full pass."""
_TOGETHER = 16
"""Chunks that are copied to the device together."""


class StepSizes(NamedTuple):
    """Step sizes of one step."""

    natural: Scalar
    learning: Scalar


@storable("inference/EpochState")
class EpochState(NamedTuple):
    """State of the epoch loop."""

    state: State
    bound: float
    stalled: int
    """Consecutive epochs without a gain."""
    done: int
    trace: Float[np.ndarray, " T"]
    evaluated: DataAssociation
    """The model whose ELBO is `bound`; `state` is one step of every q further."""
    rate: float = 1.0
    """Factor of the step sizes."""


def step_sizes(first: int, count: int, epoch: float) -> StepSizes:
    """Step sizes from step `first` on; `epoch` is the number of steps that see all data once."""
    fall = (1 + np.arange(first, first + count) / max(epoch, STOCHASTIC_BLOCK)) ** -DECAY
    return StepSizes(FIRST_NATURAL_RATE * fall, FIRST_LEARNING_RATE * fall)


def gather_batches(
    sample: Sample, rows: Int[np.ndarray, "T B"], scale: float, processes: int
) -> Batch:
    """Minibatches (T, B, …) of some steps on the device, weighted up to all data."""
    X, y, weight, labels = (column[rows] for column in sample)
    may = label_log_mask(labels.reshape(-1), processes).reshape(*rows.shape, processes)
    missing = round_up_rows(rows.shape[1]) - rows.shape[1]

    def filled(column: np.ndarray) -> np.ndarray:
        return np.pad(column, [(0, 0), (0, missing)] + [(0, 0)] * (column.ndim - 2))

    return shard_rows(Batch(*map(filled, (X, y, weight * scale, may))), axis=1)


def _step(state: State, batch: Batch, sizes: StepSizes) -> tuple[State, Scalar]:
    """One natural-gradient step of every q and one of Adam, from one batch."""
    mask = trainable(state.model)
    moving, rest = eqx.partition(state.model, mask)
    rates = NaturalRates(sizes.natural, 0.5 * sizes.natural)

    def loss(moving: Any) -> tuple[Scalar, tuple[Any, PerProcess]]:
        model = eqx.combine(moving, rest)
        projection = model.project(batch.X)
        still, seen = jax.lax.stop_gradient((model, projection))
        marginals = still.marginals(seen)
        found = responsibilities(still.log_joint(marginals, batch))
        settled = still.natural_step(seen, marginals, batch, found, rates)
        settled_rest = eqx.filter(settled, mask, inverse=True)
        model = eqx.combine(moving, settled_rest)
        bound, found, _ = elbo_and_responsibilities(model, projection, batch)
        return -bound.value, (settled_rest, found)

    (value, (rest, found)), gradient = jax.value_and_grad(loss, has_aux=True)(moving)
    floor, adam = ROUNDING * jnp.sum(batch.weight), STOCHASTIC_ADAM
    moving, opt_state = adam_step(moving, gradient, state.opt_state, sizes.learning, floor, adam)
    return State(eqx.combine(moving, rest), found, opt_state), -value


@program
@gc_paused()
def minibatch_steps(
    state: State, batches: Batch, sizes: StepSizes
) -> tuple[State, Float[Array, " T"]]:
    """One step for each minibatch of (T, B, …), and its estimate of the ELBO."""
    return jax.lax.scan(lambda state, this: _step(state, *this), state, (batches, sizes))


def shuffled(n: int, size: int, rng: np.random.Generator) -> Iterator[Int[np.ndarray, " B"]]:
    """Infinite iterator of `size` row indices; every row occurs once per epoch."""
    left = np.zeros(0, np.int64)
    while True:
        while len(left) < size:
            left = np.concatenate([left, rng.permutation(n)])
        yield left[:size]
        left = left[size:]


def _likelihood_terms(model: DataAssociation) -> Any:
    """Natural parameters of every q minus those of its prior; None for other nodes."""

    def added(node: Any) -> Any:
        if not is_natural(node):
            return None
        return NaturalGaussian(node.precision - jnp.eye(node.precision.shape[-1]), node.shift)

    return jax.tree.map(added, model, is_leaf=is_natural)


def _with_likelihood_terms(
    model: DataAssociation, terms: Any, rate: NaturalRates
) -> DataAssociation:
    """The model with every q moved towards the prior plus these likelihood terms."""

    def towards(node: Any, added: Any, rate: Scalar | float) -> Any:
        if added is None:
            return node
        precision = added.precision + jnp.eye(added.precision.shape[-1])
        return node.moved(precision, added.shift, rate)

    def part(name: str, rate: Scalar | float) -> Any:
        return jax.tree.map(
            lambda node, added: towards(node, added, rate),
            getattr(model, name),
            getattr(terms, name),
            is_leaf=lambda node: node is None or is_natural(node),
        )

    return DataAssociation(part("groups", rate.process), part("gate", rate.gate), model.members)


def _full_step(model: DataAssociation, batch: Batch) -> tuple[DataAssociation, PerProcess, Scalar]:
    """The model after one full step on a batch, the responsibilities, and the data term."""
    projection = model.project(batch.X)
    marginals = model.marginals(projection)
    log_joint = model.log_joint(marginals, batch)
    found = responsibilities(log_joint)
    data = jnp.sum(batch.weight * jax.nn.logsumexp(log_joint, axis=1))
    full = NaturalRates(1.0, 1.0)
    return model.natural_step(projection, marginals, batch, found, full), found, data


class Statistics(NamedTuple):
    """Sufficient statistics accumulated over chunks."""

    likelihood: Any
    """Natural parameters of the likelihood terms of every q."""
    counts: Float[Array, " K"]
    """Total weight of the points of each process."""
    value: Scalar
    """Data term of the ELBO."""


@program
def _zero_statistics(model: DataAssociation) -> Statistics:
    likelihood = jax.tree.map(jnp.zeros_like, _likelihood_terms(model))
    return Statistics(likelihood, jnp.zeros(model.n_processes), jnp.zeros(()))


@program
@gc_paused()
def _accumulate(
    model: DataAssociation, statistics: Statistics, chunks: Batch
) -> tuple[Statistics, Float[Array, "C B K"]]:
    """The statistics with those of some chunks (C, B, …) added, and the responsibilities."""

    def one(statistics: Statistics, chunk: Batch) -> tuple[Statistics, PerProcess]:
        moved, found, value = _full_step(model, chunk)
        added = Statistics(_likelihood_terms(moved), chunk.weight @ found, value)
        return jax.tree.map(jnp.add, statistics, added), found

    return jax.lax.scan(one, statistics, chunks)


@program
def _apply_statistics(
    model: DataAssociation, statistics: Statistics, rates: NaturalRates
) -> tuple[DataAssociation, Scalar]:
    """The model after a step on the accumulated statistics, and the ELBO before it."""
    bound = statistics.value - model.kl() + model.log_prior()
    model = _with_likelihood_terms(model, statistics.likelihood, rates)
    return model.with_gate(model.gate.counted(statistics.counts, rates.gate)), bound


def full_pass(
    model: DataAssociation, sample: Sample, rates: NaturalRates
) -> tuple[DataAssociation, float, Float[np.ndarray, "N K"]]:
    """One step of every q on all data, the ELBO before it, and the responsibilities."""
    statistics, found = _zero_statistics(model), []
    for chunks in in_chunks(sample, model.n_processes):
        statistics, part = _accumulate(model, statistics, shard_rows(chunks, axis=1))
        found.append(to_host(part).reshape(-1, model.n_processes))
    model, bound = _apply_statistics(model, statistics, rates)
    return model, float(bound), np.concatenate(found)[: len(sample.X)]


def sweeps(
    model: DataAssociation, sample: Sample
) -> tuple[DataAssociation, float, Float[np.ndarray, "N K"]]:
    """The model after some full passes, with its ELBO and responsibilities on all data.

    Passes end when one lowers the ELBO, which steps of heteroscedastic noise can do.
    """
    best = None
    for _ in range(SWEEPS + 1):
        after, value, found = full_pass(model, sample, NaturalRates())
        if best is not None and not value >= best[1]:
            break
        best, model = (model, value, found), after
    assert best is not None
    return best


def in_chunks(sample: Sample, processes: int) -> Iterator[Batch]:
    """All rows in order, as chunks (C, B, …) of one shape; the last are padded."""
    n = len(sample.X)
    size = round_up_rows(min(padded_length(n), _CHUNK))
    pieces = -(-n // size)
    together = -(-pieces // -(-pieces // _TOGETHER))
    for at in range(0, n, together * size):
        part = sample.take(slice(at, at + together * size))
        batch = to_batch(part, processes, together * size)
        yield Batch(*(c.reshape(together, size, *c.shape[1:]) for c in batch))


@program
@gc_paused()
def streaming_update(
    model: DataAssociation, opt_state: Any, batch: Batch, seen: Scalar, learning: Scalar
) -> tuple[State, Scalar]:
    """Update on data that are discarded afterwards, given earlier data of total weight `seen`.

    The likelihood terms of the new data are added to every q. Noise levels follow the gradient of
    their ELBO, scaled up to all data. Kernels and inducing inputs stay: q is expressed in terms of
    them, and could not be recomputed without the earlier data.
    """
    added = jnp.sum(batch.weight)
    scale = 1 + seen / added
    moved, found, _ = _full_step(model, batch)
    terms = jax.tree.map(jnp.add, _likelihood_terms(model), _likelihood_terms(moved))
    model = _with_likelihood_terms(model, terms, NaturalRates(1.0, 1.0))
    model = model.with_gate(model.gate.counted(batch.weight @ found, 1 / scale))
    moving, rest = eqx.partition(model, noise_levels(model))
    scaled = batch._replace(weight=batch.weight * scale)

    def loss(moving: Any) -> Scalar:
        model = eqx.combine(moving, rest)
        return -collapsed_elbo(model, model.project(batch.X), scaled).value

    value, gradient = jax.value_and_grad(loss)(moving)
    moving, opt_state = adam_step(moving, gradient, opt_state, learning, adam=STOCHASTIC_ADAM)
    return State(eqx.combine(moving, rest), found, opt_state), -value


def train_minibatch(
    model: DataAssociation,
    sample: Sample,
    *,
    size: int,
    max_iter: int,
    tol: float,
    rng: np.random.Generator,
    callback: Callback = no_callback,
    log: RunLog = NO_LOG,
) -> Result:
    """Run epochs of shuffled minibatches until the ELBO stops rising, then settle on all data."""
    rows = len(sample.X)
    fresh = State(
        model,
        np.zeros((round_up_rows(size), model.n_processes)),
        init_opt_state(model, trainable(model)),
    )
    end = fresh._replace(responsibilities=np.zeros((rows, model.n_processes)))
    known, run = log.replay(Result, EpochState, fresh, end)
    if known is not None:
        return known
    total, epoch = float(np.sum(sample.weight)), rows / size
    if run is None:
        swept, value, _ = sweeps(model, sample)
        run = EpochState(fresh._replace(model=swept), value, 0, 0, np.zeros(0), swept)
    batches = shuffled(rows, size, rng)
    for _ in range(run.done):
        next(batches)
    status: Status = "budget"
    while run.done < max_iter:
        after = _epoch(run, sample, batches, epoch)
        # The ELBO of minibatches is too noisy to detect convergence: a full pass after each epoch
        # evaluates it on all data, and its step of every q is kept.
        swept, value, _ = full_pass(after.state.model, sample, NaturalRates())
        if value >= run.bound:
            stalled = run.stalled + 1 if value - run.bound < tol * total else 0
            state = after.state._replace(model=swept)
            run = after._replace(
                state=state, bound=value, stalled=stalled, evaluated=after.state.model
            )
        else:
            state = run.state._replace(model=run.evaluated)
            run = run._replace(
                state=state, done=after.done, trace=after.trace, rate=BACK_OFF * run.rate
            )
        if callback(Progress("batches", 0, run.done, run.bound)):
            status = "stopped"
            break
        if run.stalled == PATIENCE or run.rate < LEAST_RATE:
            status = "converged"
            break
        log.save_progress(run)
    model, value, found = sweeps(run.state.model, sample)
    if not value >= run.bound:
        model, value, found = sweeps(run.evaluated, sample)
    state = State(model, found, run.state.opt_state)
    result = Result(state, value, run.trace, status, 0.0)
    log.append(result)
    return result


def _epoch(
    run: EpochState, sample: Sample, batches: Iterator[Int[np.ndarray, " B"]], epoch: float
) -> EpochState:
    """Blocks of steps for about one epoch, which takes `epoch` steps."""
    state, trace, K = run.state, [run.trace], run.state.model.n_processes
    steps = max(1, round(epoch / STOCHASTIC_BLOCK)) * STOCHASTIC_BLOCK
    for first in range(run.done, run.done + steps, STOCHASTIC_BLOCK):
        some = np.stack([next(batches) for _ in range(STOCHASTIC_BLOCK)])
        sizes = StepSizes(*(run.rate * size for size in step_sizes(first, STOCHASTIC_BLOCK, epoch)))
        state, estimates = minibatch_steps(state, gather_batches(sample, some, epoch, K), sizes)
        trace.append(np.asarray(estimates, np.float64))
    # An epoch that ends in NaN is undone; the bound to which it returns stands for it.
    joined = np.nan_to_num(np.concatenate(trace), True, run.bound, run.bound, run.bound)
    return run._replace(state=state, done=len(joined), trace=joined)


def noise_levels(model: DataAssociation) -> Any:
    """As `trainable`, for the noise levels alone (parameters that are not part of a GP)."""

    def mark(node: Any) -> Any:
        if isinstance(node, LatentFunction):
            return jax.tree.map(lambda _: False, node)
        return trainable(node)

    return jax.tree.map(
        mark, model, is_leaf=lambda node: isinstance(node, LatentFunction) or is_parameter(node)
    )


def init_opt_state(model: DataAssociation, mask: Any) -> Any:
    """Initial optimiser state of Adam, on the host."""
    shapes = jax.eval_shape(STOCHASTIC_ADAM.init, eqx.filter(model, mask))
    return jax.tree.map(lambda leaf: np.zeros(leaf.shape, leaf.dtype), shapes)
