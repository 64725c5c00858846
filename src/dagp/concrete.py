"""The paper's own inference: relaxed assignments, sampled functions, Adam on everything.

Every point has free logits for q(a). A relaxed one-hot vector is drawn from the concrete
distribution (Maddison et al. 2017; Jang et al. 2017), and so are the functions and the gate; the
optimiser moves hyperparameters, inducing inputs, every q(u) and the logits on random batches:

    L = Σ_n E[log p(y_n | f_n, â_n)] + Σ_n E[log p(â_n | α_n)] − KL(f) − KL(α)   (+ Σ_n H(q(a_n)))

The paper bounds log p(Y, A), which leaves out the entropy H. That form rewards assignments for
being certain, and scores collapsed answers above right ones: it can be had, but solutions are only
ever compared with the entropy in.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from numbers import Integral
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from dagp.bounds import sampled
from dagp.gate import ConstantGate
from dagp.linalg import inverse_factor
from dagp.memory import current
from dagp.model import Batch, DataAssociation, ModelProjection
from dagp.parameters import trainable
from dagp.sparse import Moments, Natural, SparseGP
from dagp.stack import DeepStack
from dagp.train import ADAM, BLOCK, Report, Result, State, Status, apply
from dagp.typing import Array, Float, Int, PerPoint, PerProcess, Scalar

__all__ = [
    "Concrete",
    "ConcreteState",
    "as_moments",
    "as_natural",
    "concrete",
    "relaxed",
    "train_concrete",
]

WINDOW = 4
"""Blocks whose mean bound is compared with that of the blocks before."""
_COUNTING_RATE = 0.05


@dataclass(frozen=True)
class Concrete:
    """Settings of ``inference="concrete"``; the defaults are the best we know.

    Parameters
    ----------
    temperature
        Of the relaxation, at the first and at the last step; it falls geometrically.
    entropy
        Whether the bound has the entropy of q(a) in it. Without it, it is the paper's.
    learning_rate
        Of Adam.
    batch_size
        Rows per step where the estimator states none.

    >>> Concrete(entropy=False).temperature
    (1.0, 0.2)
    """

    temperature: tuple[float, float] = (1.0, 0.2)
    entropy: bool = True
    learning_rate: float = 0.02
    batch_size: int = 256

    def check(self) -> None:
        """Refuse what cannot be meant; when fitting, as all settings."""
        values = (*np.ravel(self.temperature), self.learning_rate)
        if np.shape(self.temperature) != (2,) or not all(value > 0 for value in values):
            raise ValueError(f"Concrete needs two positive temperatures and a rate, got {self}.")
        if not isinstance(self.batch_size, Integral) or self.batch_size < 1:
            raise ValueError(f"Concrete needs a batch_size of at least 1, got {self.batch_size!r}.")

    def temperatures(self, first: int, count: int, steps: int) -> Float[np.ndarray, " T"]:
        """Temperatures of `count` steps from step `first` on, of `steps` in all."""
        begin, end = self.temperature
        done = np.minimum(np.arange(first, first + count) / max(steps, 1), 1.0)
        return begin * (end / begin) ** done


class ConcreteState(NamedTuple):
    """Everything a step reads and writes."""

    model: DataAssociation
    logits: PerProcess
    moments: Any
    key: Array


class ConcreteStretch(NamedTuple):
    """How far a training run has come."""

    state: ConcreteState
    rate: float
    done: int
    blocks: list[np.ndarray]
    """The bound at each step, block by block."""
    status: Status


class ConcreteBound(NamedTuple):
    """The bound and what it is made of."""

    data: Scalar
    gate: Scalar
    entropy: Scalar
    kl: Scalar
    prior: Scalar

    def value(self, entropy: bool = True) -> Scalar:
        """The bound, with the entropy or as the paper has it."""
        plain = self.data + self.gate - self.kl + self.prior
        return plain + self.entropy if entropy else plain


def relaxed(logits: PerProcess, temperature: Scalar | float, key: Array) -> PerProcess:
    """Relaxed one-hot vectors: near zero temperature, draws from softmax(logits)."""
    gumbel = jax.random.gumbel(key, logits.shape, logits.dtype)
    return jax.nn.softmax((logits + gumbel) / temperature, axis=-1)


def concrete(
    model: DataAssociation,
    projection: ModelProjection,
    batch: Batch,
    logits: PerProcess,
    temperature: Scalar | float,
    key: Array,
) -> ConcreteBound:
    """One sample of the bound; the weights of the batch say how many data it stands for."""
    assignment, functions = jax.random.split(key)
    logits = logits + batch.allowed
    log_density, log_weights = sampled(model, projection, batch, functions)
    chosen = relaxed(logits, temperature, assignment)
    log_q = jax.nn.log_softmax(logits)

    def total(per_process: PerProcess) -> Scalar:
        return jnp.sum(batch.weight * jnp.sum(per_process, axis=1))

    return ConcreteBound(
        total(chosen * log_density),
        total(chosen * log_weights),
        -total(jnp.exp(log_q) * log_q),
        model.kl(),
        model.log_prior(),
    )


def as_moments(model: DataAssociation) -> DataAssociation:
    """The model with every q in a form that the optimiser can move."""

    def moments(node: Any) -> Any:
        if not isinstance(node, Natural):
            return node
        centre, root = node.centre_and_root()
        # The factor of RᵀR without its square, which rounding could make indefinite.
        upper = np.linalg.qr(np.asarray(root), mode="r")
        upper *= np.sign(np.diagonal(upper, axis1=-2, axis2=-1))[..., None]
        return Moments.of(np.asarray(centre), np.swapaxes(upper, -1, -2))

    def whole(part: Any) -> Any:
        return jax.tree.map(moments, part, is_leaf=lambda node: isinstance(node, Natural))

    return _rebuilt(model, whole)


def _rebuilt(model: DataAssociation, whole: Callable[[Any], Any]) -> DataAssociation:
    """The model with its processes, one by one, and its gate replaced."""
    processes = [whole(model.process(k)) for k in range(model.n_processes)]
    return DataAssociation.assemble(processes, whole(model.gate))


def as_natural(model: DataAssociation) -> DataAssociation:
    """The model with every q in the form that natural-gradient steps move, where they move it."""

    def natural(gp: SparseGP) -> SparseGP:
        if isinstance(gp.q, Natural):
            return gp
        mean, root = gp.q.centre_and_root()
        inverse = inverse_factor(jnp.swapaxes(root, -1, -2))
        precision = jnp.swapaxes(inverse, -1, -2) @ inverse
        shift = jnp.einsum("pij,pj->pi", precision, mean)
        return eqx.tree_at(lambda gp: gp.q, gp, Natural(precision, shift))

    def function(node: Any) -> Any:
        if isinstance(node, DeepStack):
            return eqx.tree_at(lambda stack: stack.last, node, natural(node.last))
        return natural(node) if isinstance(node, SparseGP) else node

    def whole(part: Any) -> Any:
        leaf = SparseGP | DeepStack
        return jax.tree.map(function, part, is_leaf=lambda node: isinstance(node, leaf))

    return _rebuilt(model, whole)


def begin_concrete(state: State, seed: int) -> ConcreteState:
    """A start of the paper's scheme from one of ours."""
    model = as_moments(state.model)
    logits = jnp.log(jnp.asarray(state.responsibilities) + 1e-6)
    moments = ADAM.init((eqx.filter(model, trainable(model)), logits))
    return ConcreteState(model, logits, moments, jax.random.PRNGKey(seed))


@eqx.filter_jit
def run_steps(
    state: ConcreteState,
    data: Batch,
    rows: Int[Array, "T B"],
    scale: Scalar,
    temperatures: PerPoint,
    rate: Scalar,
    entropy: bool,
) -> tuple[ConcreteState, PerPoint]:
    """One step for each set of rows, and the bound (with the entropy) each of them saw."""
    mask = trainable(state.model)

    def one(state: ConcreteState, this: tuple[Any, Any]) -> tuple[ConcreteState, Scalar]:
        some, temperature = this
        batch = Batch(*(column[some] for column in data))
        batch = batch._replace(weight=batch.weight * scale)
        key, own = jax.random.split(state.key)
        moving, rest = eqx.partition(state.model, mask)

        def loss(moved: tuple[Any, PerProcess]) -> tuple[Scalar, Scalar]:
            model = eqx.combine(moved[0], rest)
            projection = model.project(batch.X)
            bound = concrete(model, projection, batch, moved[1][some], temperature, own)
            return -bound.value(entropy), bound.value()

        moved = (moving, state.logits)
        gradient, value = jax.grad(loss, has_aux=True)(moved)
        (moving, logits), moments = apply(moved, gradient, state.moments, rate)
        model = eqx.combine(moving, rest)
        if isinstance(model.gate, ConstantGate):
            shares = jax.nn.softmax(logits[some] + batch.allowed)
            gate = model.gate.counted(batch.weight @ shares, _COUNTING_RATE)
            model = DataAssociation(model.groups, gate, model.members)
        return ConcreteState(model, logits, moments, key), value

    return jax.lax.scan(one, state, (rows, temperatures))


def train_concrete(
    state: ConcreteState,
    data: Batch,
    batches: Iterator[Int[np.ndarray, " B"]],
    settings: Concrete,
    *,
    scale: float,
    first: int,
    steps: int,
    of: int,
    tol: float,
    report: Report = lambda *_: False,
) -> tuple[ConcreteState, Result]:
    """Steps `first` to `first + steps` of a run of `of`, or fewer when the bound stops rising."""
    memory = current()
    known, run = memory.recall(ConcreteStretch, ConcreteStretch, state)
    run = known or run or ConcreteStretch(state, settings.learning_rate, 0, [], "budget")
    for _ in range(run.done):
        next(batches)
    total = float(np.sum(data.weight))
    while run.done < steps and run.status == "budget" and known is None:
        some = np.stack([next(batches) for _ in range(BLOCK)])
        temperatures = settings.temperatures(first + run.done, BLOCK, of)
        rates = (jnp.asarray(scale), temperatures, jnp.asarray(run.rate))
        following, values = run_steps(run.state, data, some, *rates, settings.entropy)
        run = run._replace(done=run.done + BLOCK)
        if not np.all(np.isfinite(np.asarray(values))):
            run = run._replace(status="diverged")
            break
        blocks = [*run.blocks, np.asarray(values, np.float64)]
        run = run._replace(state=following, blocks=blocks)
        if report(first + run.done, float(blocks[-1].mean())):
            run = run._replace(status="stopped")
            break
        if len(blocks) % WINDOW == 0 and _level(blocks, 1) - _level(blocks, 0) < tol * total:
            # Shorter steps average over more noise; when they are short, that was all.
            short = run.rate < 0.2 * settings.learning_rate
            run = run._replace(status="converged") if short else run._replace(rate=run.rate / 2)
        memory.pause(run)
    if known is None:
        memory.finish(run)
    shares = jax.nn.softmax(run.state.logits + data.allowed)
    bound = float(np.mean(np.concatenate(run.blocks[-WINDOW:]))) if run.blocks else -np.inf
    trace = np.concatenate([np.zeros(0), *run.blocks])
    found = State(run.state.model, shares, None)
    return run.state, Result(found, bound, trace, run.status, run.rate)


def _level(blocks: list[np.ndarray], window: int) -> float:
    """Mean bound of the last window of blocks (1), or of the one before (0)."""
    end = len(blocks) - (0 if window else WINDOW)
    part = blocks[max(end - WINDOW, 0) : end]
    return float(np.mean(np.concatenate(part))) if part else -np.inf
