"""The paper's inference scheme: concrete relaxation of q(a), sampled functions, Adam throughout.

Every point has free logits for q(a). A relaxed one-hot vector is drawn from the concrete
distribution (Maddison et al. 2017; Jang et al. 2017), and so are the functions and the gate; the
optimiser moves hyperparameters, inducing inputs, every q(u) and the logits on random batches:

    L = Σ_n E[log p(y_n | f_n, â_n)] + Σ_n E[log p(â_n | α_n)] − KL(f) − KL(α)   (+ Σ_n H(q(a_n)))

The paper bounds log p(Y, A), without the entropy H. That form favours certain assignments and
collapsed solutions; it is available for training, but solutions are compared with the entropy.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from numbers import Integral
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from dagp.core.tags import storable
from dagp.core.text import quoted
from dagp.core.typing import Array, Float, Int, PerPoint, PerProcess, Scalar
from dagp.inference.elbo import sampled_log_joint
from dagp.inference.run_log import NO_LOG, RunLog
from dagp.inference.train import (
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
from dagp.model.association import Batch, DataAssociation, ModelProjection
from dagp.model.parameters import trainable
from dagp.model.sparse_gp import LatentFunction
from dagp.model.variational import is_natural

WINDOW = 4
"""Blocks whose mean ELBO is compared with that of the blocks before."""
_COUNTING_RATE = 0.05


@storable("inference/Concrete")
@dataclass(frozen=True)
class Concrete:
    """Settings of ``inference="concrete"``, the paper's scheme.

    Parameters
    ----------
    temperature : tuple of two floats, default=(1.0, 0.2)
        Temperature of the relaxation at the first and the last step; it falls geometrically.
    entropy : bool, default=True
        Whether the ELBO includes the entropy of q(a); False is the paper's form.
    learning_rate : float, default=0.02
        Of Adam.
    batch_size : int, default=256
        Rows per step where the estimator has no `batch_size`.

    Examples
    --------
    >>> Concrete(entropy=False).temperature
    (1.0, 0.2)
    """

    temperature: tuple[float, float] = (1.0, 0.2)
    entropy: bool = True
    learning_rate: float = 0.02
    batch_size: int = 256

    def check(self) -> None:
        """Raise ValueError for invalid settings."""
        values = (*np.ravel(self.temperature), self.learning_rate)
        if np.shape(self.temperature) != (2,) or not all(value > 0 for value in values):
            raise ValueError(f"Concrete needs two positive temperatures and a rate, got {self}.")
        if not isinstance(self.batch_size, Integral) or self.batch_size < 1:
            raise ValueError(
                f"Concrete needs a batch_size of at least 1, got {quoted(self.batch_size)}."
            )

    def temperatures(self, first: int, count: int, steps: int) -> Float[np.ndarray, " T"]:
        """Temperatures of `count` steps from step `first` on, of `steps` in all."""
        begin, end = self.temperature
        done = np.minimum(np.arange(first, first + count) / max(steps, 1), 1.0)
        return begin * (end / begin) ** done


@storable("inference/ConcreteState")
class ConcreteState(NamedTuple):
    """Everything a step reads and writes."""

    model: DataAssociation
    logits: PerProcess
    opt_state: Any
    key: Array


@storable("inference/ConcreteLoopState")
class ConcreteLoopState(NamedTuple):
    """State of the host loop of a training run."""

    state: ConcreteState
    rate: float
    done: int
    blocks: list[np.ndarray]
    """ELBO at each step, block by block."""
    status: Status


class ConcreteELBO(NamedTuple):
    """The terms of the ELBO."""

    data: Scalar
    gate: Scalar
    entropy: Scalar
    kl: Scalar
    prior: Scalar

    def value(self, entropy: bool = True) -> Scalar:
        """The ELBO, with the entropy or in the paper's form."""
        plain = self.data + self.gate - self.kl + self.prior
        return plain + self.entropy if entropy else plain


def sample_relaxed(logits: PerProcess, temperature: Scalar | float, key: Array) -> PerProcess:
    """Relaxed one-hot vectors: near zero temperature, draws from softmax(logits)."""
    gumbel = jax.random.gumbel(key, logits.shape, logits.dtype)
    return jax.nn.softmax((logits + gumbel) / temperature, axis=-1)


def concrete_elbo(
    model: DataAssociation,
    projection: ModelProjection,
    batch: Batch,
    logits: PerProcess,
    temperature: Scalar | float,
    key: Array,
) -> ConcreteELBO:
    """One sample of the ELBO; the weights of a minibatch are scaled up to all data."""
    assignment, functions = jax.random.split(key)
    logits = logits + batch.label_log_mask
    log_density, log_weights = sampled_log_joint(model, projection, batch, functions)
    chosen = sample_relaxed(logits, temperature, assignment)
    log_q = jax.nn.log_softmax(logits)

    def total(per_process: PerProcess) -> Scalar:
        return jnp.sum(batch.weight * jnp.sum(per_process, axis=1))

    return ConcreteELBO(
        total(chosen * log_density),
        total(chosen * log_weights),
        -total(jnp.exp(log_q) * log_q),
        model.kl(),
        model.log_prior(),
    )


def with_mean_factor_q(model: DataAssociation) -> DataAssociation:
    """The model with every q as mean and factor, which Adam trains."""

    def whole(part: Any) -> Any:
        return jax.tree.map(
            lambda node: node.as_mean_factor() if is_natural(node) else node,
            part,
            is_leaf=is_natural,
        )

    return _rebuilt(model, whole)


def _rebuilt(model: DataAssociation, whole: Callable[[Any], Any]) -> DataAssociation:
    """The model with its processes, one by one, and its gate replaced."""
    processes = [whole(model.process(k)) for k in range(model.n_processes)]
    return DataAssociation.assemble(processes, whole(model.gate))


def with_natural_q(model: DataAssociation) -> DataAssociation:
    """The model with q of every last layer in natural parameters."""

    def is_function(node: Any) -> bool:
        return isinstance(node, LatentFunction)

    def whole(part: Any) -> Any:
        return jax.tree.map(
            lambda node: node.with_natural_q() if is_function(node) else node,
            part,
            is_leaf=is_function,
        )

    return _rebuilt(model, whole)


def initial_concrete_state(state: State, seed: int) -> ConcreteState:
    """The initial state of the paper's scheme, from one of collapsed inference."""
    model = with_mean_factor_q(state.model)
    logits = jnp.log(jnp.asarray(state.responsibilities) + 1e-6)
    opt_state = STOCHASTIC_ADAM.init((eqx.filter(model, trainable(model)), logits))
    return ConcreteState(model, logits, opt_state, jax.random.PRNGKey(seed))


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
    """One step for each set of rows, and the ELBO (with the entropy) at each."""
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
            bound = concrete_elbo(model, projection, batch, moved[1][some], temperature, own)
            return -bound.value(entropy), bound.value()

        moved = (moving, state.logits)
        gradient, value = jax.grad(loss, has_aux=True)(moved)
        (moving, logits), opt_state = adam_step(
            moved, gradient, state.opt_state, rate, adam=STOCHASTIC_ADAM
        )
        model = eqx.combine(moving, rest)
        found = jax.nn.softmax(logits[some] + batch.label_log_mask)
        model = model.with_gate(model.gate.counted(batch.weight @ found, _COUNTING_RATE))
        return ConcreteState(model, logits, opt_state, key), value

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
    callback: Callback = no_callback,
    phase: str = "train",
    start: int = 0,
    log: RunLog = NO_LOG,
) -> tuple[ConcreteState, Result]:
    """Steps `first` to `first + steps` of a run of `of`, or until the ELBO stops rising."""
    known, run = log.replay(ConcreteLoopState, ConcreteLoopState, state)
    run = known or run or ConcreteLoopState(state, settings.learning_rate, 0, [], "budget")
    for _ in range(run.done):
        next(batches)
    total = float(np.sum(data.weight))
    while run.done < steps and run.status == "budget" and known is None:
        some = np.stack([next(batches) for _ in range(STOCHASTIC_BLOCK)])
        temperatures = settings.temperatures(first + run.done, STOCHASTIC_BLOCK, of)
        rates = (jnp.asarray(scale), temperatures, jnp.asarray(run.rate))
        following, values = run_steps(run.state, data, some, *rates, settings.entropy)
        run = run._replace(done=run.done + STOCHASTIC_BLOCK)
        if not np.all(np.isfinite(np.asarray(values))):
            run = run._replace(status="diverged")
            break
        blocks = [*run.blocks, np.asarray(values, np.float64)]
        run = run._replace(state=following, blocks=blocks)
        if callback(Progress(phase, start, first + run.done, float(blocks[-1].mean()))):
            run = run._replace(status="stopped")
            break
        if len(blocks) % WINDOW == 0 and _level(blocks, 1) - _level(blocks, 0) < tol * total:
            # Shorter steps average over more noise; once they are short, the run has converged.
            short = run.rate < 0.2 * settings.learning_rate
            run = run._replace(status="converged") if short else run._replace(rate=run.rate / 2)
        log.save_progress(run)
    if known is None:
        log.append(run)
    found = jax.nn.softmax(run.state.logits + data.label_log_mask)
    bound = float(np.mean(np.concatenate(run.blocks[-WINDOW:]))) if run.blocks else -np.inf
    trace = np.concatenate([np.zeros(0), *run.blocks])
    reached = State(run.state.model, found, None)
    return run.state, Result(reached, bound, trace, run.status, run.rate)


def _level(blocks: list[np.ndarray], window: int) -> float:
    """Mean ELBO of the last window of blocks (1), or of the one before (0)."""
    end = len(blocks) - (0 if window else WINDOW)
    part = blocks[max(end - WINDOW, 0) : end]
    return float(np.mean(np.concatenate(part))) if part else -np.inf
