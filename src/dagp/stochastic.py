"""Training on a part of the data at a time, in bounded memory.

The data stay with the host, in memory or mapped from a file; the rows of a few steps at a time
travel to the device.

A batch whose weights are scaled up stands for all data: its bound, and each natural-gradient
target, is unbiased for theirs. Step sizes fall as ``(1 + t/τ)^−κ`` (Robbins & Monro 1951; for
variational inference Hoffman et al. 2013), so the noise of the batches averages out. At the end
every q answers all data exactly: natural parameters add, so one pass over the data in pieces is one
full step.
"""

from collections.abc import Iterator
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from dagp.bounds import associated, collapsed, responsibilities, settle
from dagp.data import Sample, allowed, padded_length, to_batch
from dagp.garbage import uncollected
from dagp.gate import ConstantGate
from dagp.memory import current
from dagp.model import Batch, DataAssociation, NaturalRates
from dagp.parameters import is_parameter, trainable
from dagp.placement import fetched, place, rounded
from dagp.sparse import Natural, SparseGP
from dagp.train import (
    ADAM,
    BLOCK,
    LEARNING_RATE,
    ROUNDING,
    Report,
    Result,
    State,
    Status,
    apply,
)
from dagp.typing import Array, Float, Int, PerProcess, Scalar

__all__ = ["absorb", "descend", "drawn", "fresh_moments", "levels", "sweep", "train_in_batches"]

FIRST_NATURAL_RATE = 0.1
FIRST_LEARNING_RATE = 0.4 * LEARNING_RATE
"""Step sizes of the first epoch."""
DECAY = 0.75
"""κ: between a half and one, so that the steps can still go anywhere but come to rest."""
PATIENCE = 2
"""Epochs in a row that gain nothing before training ends."""
SWEEPS = 3
"""Passes over all data at the end."""
_PIECE = 4096
"""Rows a pass looks at together."""
_TOGETHER = 16
"""Pieces that travel to the device together."""


class Pace(NamedTuple):
    """Step sizes of one step."""

    natural: Scalar
    learning: Scalar


class Epochs(NamedTuple):
    """How far a run has come."""

    state: State
    bound: float
    quiet: int
    """Epochs in a row that gained nothing."""
    done: int
    trace: Float[np.ndarray, " T"]


def paces(first: int, count: int, epoch: float) -> Pace:
    """Step sizes from step `first` on; `epoch` is the number of steps that see all data once."""
    fall = (1 + np.arange(first, first + count) / max(epoch, BLOCK)) ** -DECAY
    return Pace(FIRST_NATURAL_RATE * fall, FIRST_LEARNING_RATE * fall)


def drawn(sample: Sample, rows: Int[np.ndarray, "T B"], scale: float, processes: int) -> Batch:
    """The rows of some steps on the device, (T, B, …), weighted as if they were all data."""
    X, y, weight, labels = (column[rows] for column in sample)
    may = allowed(labels.reshape(-1), processes).reshape(*rows.shape, processes)
    missing = rounded(rows.shape[1]) - rows.shape[1]

    def filled(column: np.ndarray) -> np.ndarray:
        return np.pad(column, [(0, 0), (0, missing)] + [(0, 0)] * (column.ndim - 2))

    return place(Batch(*map(filled, (X, y, weight * scale, may))), axis=1)


def _step(state: State, batch: Batch, pace: Pace) -> tuple[State, Scalar]:
    """One natural-gradient step of every q and one of Adam, from one batch."""
    mask = trainable(state.model)
    moving, rest = eqx.partition(state.model, mask)
    rates = NaturalRates(pace.natural, 0.5 * pace.natural)

    def loss(moving: Any) -> tuple[Scalar, tuple[Any, PerProcess]]:
        model = eqx.combine(moving, rest)
        projection = model.project(batch.X)
        still, seen = jax.lax.stop_gradient((model, projection))
        shares = responsibilities(still.log_joint(still.marginals(seen), batch))
        settled = settle(still, seen, batch, shares, 1, rates)
        settled_rest = eqx.filter(settled, mask, inverse=True)
        bound, shares = associated(eqx.combine(moving, settled_rest), projection, batch)
        return -bound.value, (settled_rest, shares)

    (value, (rest, shares)), gradient = jax.value_and_grad(loss, has_aux=True)(moving)
    floor = ROUNDING * jnp.sum(batch.weight)
    moving, moments = apply(moving, gradient, state.moments, pace.learning, floor)
    return State(eqx.combine(moving, rest), shares, moments), -value


@jax.jit
@uncollected()
def descend(state: State, batches: Batch, pace: Pace) -> tuple[State, Float[Array, " T"]]:
    """One step for each batch of (T, B, …), and the bound each of them estimates."""
    return jax.lax.scan(lambda state, this: _step(state, *this), state, (batches, pace))


def shuffled(n: int, size: int, rng: np.random.Generator) -> Iterator[Int[np.ndarray, " B"]]:
    """Sets of `size` rows for ever; every row comes once an epoch."""
    left = np.zeros(0, np.int64)
    while True:
        while len(left) < size:
            left = np.concatenate([left, rng.permutation(n)])
        yield left[:size]
        left = left[size:]


def _is_natural(node: Any) -> bool:
    return isinstance(node, Natural)


def _evidence(model: DataAssociation) -> Any:
    """What the data have added to every prior, in natural parameters; None elsewhere."""

    def added(node: Any) -> Any:
        if not _is_natural(node):
            return None
        return Natural(node.precision - jnp.eye(node.precision.shape[-1]), node.shift)

    return jax.tree.map(added, model, is_leaf=_is_natural)


def _with_evidence(model: DataAssociation, evidence: Any, rate: NaturalRates) -> DataAssociation:
    """The model with every q moved towards its prior and this evidence."""

    def towards(node: Any, added: Any, rate: Scalar | float) -> Any:
        if added is None:
            return node
        precision = added.precision + jnp.eye(added.precision.shape[-1])
        return Natural(
            (1 - rate) * node.precision + rate * precision,
            (1 - rate) * node.shift + rate * added.shift,
        )

    def part(name: str, rate: Scalar | float) -> Any:
        return jax.tree.map(
            lambda node, added: towards(node, added, rate),
            getattr(model, name),
            getattr(evidence, name),
            is_leaf=lambda node: node is None or _is_natural(node),
        )

    return DataAssociation(part("groups", rate.process), part("gate", rate.gate), model.members)


def _told(model: DataAssociation, batch: Batch) -> tuple[DataAssociation, PerProcess, Scalar]:
    """The model after one full step on a batch, who produced it, and its part of the bound."""
    projection = model.project(batch.X)
    marginals = model.marginals(projection)
    log_joint = model.log_joint(marginals, batch)
    shares = responsibilities(log_joint)
    data = jnp.sum(batch.weight * jax.nn.logsumexp(log_joint, axis=1))
    full = NaturalRates(1.0, 1.0)
    return model.natural_step(projection, marginals, batch, shares, full), shares, data


class Account(NamedTuple):
    """What pieces of the data have said so far."""

    evidence: Any
    counts: Float[Array, " K"]
    """Weight of the points of each process."""
    value: Scalar
    """Their part of the bound."""


@jax.jit
def _nothing(model: DataAssociation) -> Account:
    evidence = jax.tree.map(jnp.zeros_like, _evidence(model))
    return Account(evidence, jnp.zeros(model.n_processes), jnp.zeros(()))


@jax.jit
@uncollected()
def _listen(
    model: DataAssociation, account: Account, pieces: Batch
) -> tuple[Account, Float[Array, "C B K"]]:
    """The account with some pieces, (C, B, …), added one after the other; and who produced them."""

    def one(account: Account, piece: Batch) -> tuple[Account, PerProcess]:
        told, shares, value = _told(model, piece)
        added = Account(_evidence(told), piece.weight @ shares, value)
        return jax.tree.map(jnp.add, account, added), shares

    return jax.lax.scan(one, account, pieces)


@jax.jit
def _answer(
    model: DataAssociation, account: Account, rates: NaturalRates
) -> tuple[DataAssociation, Scalar]:
    """The model after a step on all that was said, and the bound before it."""
    bound = account.value - model.kl() + model.log_prior()
    model = _with_evidence(model, account.evidence, rates)
    if isinstance(model.gate, ConstantGate):
        gate = model.gate.counted(account.counts, rates.gate)
        model = DataAssociation(model.groups, gate, model.members)
    return model, bound


def sweep(
    model: DataAssociation, sample: Sample, rates: NaturalRates
) -> tuple[DataAssociation, float, Float[np.ndarray, "N K"]]:
    """One step of every q on all data, the bound before it, and the responsibilities."""
    account, shares = _nothing(model), []
    for pieces in in_pieces(sample, model.n_processes):
        account, found = _listen(model, account, place(pieces, axis=1))
        shares.append(fetched(found).reshape(-1, model.n_processes))
    model, bound = _answer(model, account, rates)
    return model, float(bound), np.concatenate(shares)[: len(sample.X)]


def in_pieces(sample: Sample, processes: int) -> Iterator[Batch]:
    """All rows in order, some pieces at a time as (C, B, …); the last are filled up with nothing.

    All are of one shape, which is compiled for once.
    """
    n = len(sample.X)
    size = rounded(min(padded_length(n), _PIECE))
    pieces = -(-n // size)
    together = -(-pieces // -(-pieces // _TOGETHER))
    for at in range(0, n, together * size):
        part = Sample(*(column[at : at + together * size] for column in sample))
        batch = to_batch(part, processes, together * size)
        yield Batch(*(c.reshape(together, size, *c.shape[1:]) for c in batch))


@jax.jit
@uncollected()
def absorb(
    model: DataAssociation, moments: Any, batch: Batch, seen: Scalar, learning: Scalar
) -> tuple[State, Scalar]:
    """Take in data that will not be seen again, after data of total weight `seen`.

    Every q adds what the new data say to what it knows. Noise levels follow the bound of the new
    data, scaled up to all. Kernels and inducing inputs stay: what q knows is written in terms of
    them, and the data that could say it anew are gone.
    """
    added = jnp.sum(batch.weight)
    scale = 1 + seen / added
    told, shares, _ = _told(model, batch)
    evidence = jax.tree.map(jnp.add, _evidence(model), _evidence(told))
    model = _with_evidence(model, evidence, NaturalRates(1.0, 1.0))
    if isinstance(model.gate, ConstantGate):
        gate = model.gate.counted(batch.weight @ shares, 1 / scale)
        model = DataAssociation(model.groups, gate, model.members)
    moving, rest = eqx.partition(model, levels(model))
    scaled = batch._replace(weight=batch.weight * scale)

    def loss(moving: Any) -> Scalar:
        model = eqx.combine(moving, rest)
        return -collapsed(model, model.project(batch.X), scaled).value

    value, gradient = jax.value_and_grad(loss)(moving)
    moving, moments = apply(moving, gradient, moments, learning)
    return State(eqx.combine(moving, rest), shares, moments), -value


def train_in_batches(
    model: DataAssociation,
    sample: Sample,
    *,
    size: int,
    max_iter: int,
    tol: float,
    rng: np.random.Generator,
    report: Report = lambda *_: False,
) -> Result:
    """Run epochs of shuffled batches until the bound stops rising, then settle on all data."""
    memory, rows = current(), len(sample.X)
    fresh = State(
        model, np.zeros((rounded(size), model.n_processes)), fresh_moments(model, trainable(model))
    )
    end = fresh._replace(responsibilities=np.zeros((rows, model.n_processes)))
    known, run = memory.recall(Result, Epochs, fresh, end)
    if known is not None:
        return known
    total, epoch = float(np.sum(sample.weight)), rows / size
    run = run or Epochs(fresh, -np.inf, 0, 0, np.zeros(0))
    batches = shuffled(rows, size, rng)
    for _ in range(run.done):
        next(batches)
    status: Status = "budget"
    while run.done < max_iter:
        run = _epoch(run, sample, batches, epoch)
        # The batches are too noisy to judge by: all data, once an epoch, are not. What every q
        # learns in that pass is kept.
        swept, value, _ = sweep(run.state.model, sample, NaturalRates())
        if not np.isfinite(value):
            status = "diverged"
            break
        gain, bound = value - run.bound, max(value, run.bound)
        quiet = run.quiet + 1 if gain < tol * total else 0
        run = run._replace(state=run.state._replace(model=swept), bound=bound, quiet=quiet)
        if report(run.done, bound):
            status = "stopped"
            break
        if quiet == PATIENCE:
            status = "converged"
            break
        memory.pause(run)
    model = run.state.model
    for _ in range(SWEEPS):
        model = sweep(model, sample, NaturalRates())[0]
    _, value, shares = sweep(model, sample, NaturalRates())
    state = State(model, shares, run.state.moments)
    result = Result(state, value, run.trace, status, 0.0)
    memory.finish(result)
    return result


def _epoch(
    run: Epochs, sample: Sample, batches: Iterator[Int[np.ndarray, " B"]], epoch: float
) -> Epochs:
    """About as many steps as it takes to see all data; `epoch` is how many that are."""
    state, trace, K = run.state, [run.trace], run.state.model.n_processes
    for first in range(run.done, run.done + max(1, round(epoch / BLOCK)) * BLOCK, BLOCK):
        some = np.stack([next(batches) for _ in range(BLOCK)])
        pace = paces(first, BLOCK, epoch)
        state, estimates = descend(state, drawn(sample, some, epoch, K), pace)
        trace.append(np.asarray(estimates, np.float64))
    joined = np.concatenate(trace)
    return run._replace(state=state, done=len(joined), trace=joined)


def levels(model: DataAssociation) -> Any:
    """As `trainable`, for the parameters that are not part of a GP: levels of noise."""

    def mark(node: Any) -> Any:
        if isinstance(node, SparseGP):
            return jax.tree.map(lambda _: False, node)
        return trainable(node)

    return jax.tree.map(
        mark, model, is_leaf=lambda node: isinstance(node, SparseGP) or is_parameter(node)
    )


def fresh_moments(model: DataAssociation, mask: Any) -> Any:
    """Moments of an optimiser that has not moved yet."""
    return ADAM.init(eqx.filter(model, mask))
