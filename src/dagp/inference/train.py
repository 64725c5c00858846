"""Training: compiled blocks of natural-gradient and Adam steps, and a host loop around them.

One step settles every q by natural gradients, then moves the hyperparameters by Adam, both from one
set of projections. Between blocks the host reports, checks, adapts the learning rate and stops.
"""

from collections.abc import Callable, Generator
from typing import Any, Literal, NamedTuple, TypeAlias

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax

from dagp.core.gc import gc_paused
from dagp.core.programs import program
from dagp.core.sharding import to_host
from dagp.core.tags import storable
from dagp.core.typing import Array, Float, Int, PerProcess, Scalar
from dagp.inference.elbo import (
    ELBO,
    elbo_and_responsibilities,
    elbo_from_log_joint,
    responsibilities,
    settle,
)
from dagp.inference.linear_response import InformationLoss, information_loss
from dagp.inference.run_log import NO_LOG, RunLog
from dagp.model.association import Batch, DataAssociation, ModelMarginals, NaturalRates
from dagp.model.gates import GateMarginals
from dagp.model.parameters import trainable
from dagp.model.sparse_gp import Projection
from dagp.model.variational import factorise

Status = Literal["converged", "budget", "stopped", "diverged"]

BLOCK = 12
"""Steps of a compiled block, between two checks of the host loop."""
STOCHASTIC_BLOCK = 25
"""The same on minibatches or samples, where single values of the ELBO say less."""
LEARNING_RATE = 0.15
SMALLEST_RATE = 0.005
"""A run has converged when a block at this rate gains less than the tolerance."""
COOLING, LONG = 0.8, 200
"""After this part of a run of at least `LONG` steps the learning rate is the smallest one, so that
a run that does not converge ends close to an optimum."""
_GATE_RATE = 0.5
"""Step size of the gate in coordinate ascent, where it moves in every other step."""
_REST_STEPS = 60
"""Natural-gradient steps after which every q has converged, with hyperparameters held fixed."""
_RETRIES = 3
_EPS = 1e-8
ADAM = optax.scale_by_adam(b1=0.8, b2=0.9, eps=_EPS)
"""For gradients without noise. The first gradients of a run are larger than later ones by orders of
magnitude: a longer memory of them would make the steps that follow small."""
STOCHASTIC_ADAM = optax.scale_by_adam(b1=0.9, b2=0.99, eps=_EPS)
"""For gradients of minibatches or samples."""
Rates: TypeAlias = Float[Array, "2"] | Scalar
"""Learning rates of functions and gate, or one for both."""
BOTH, GATE = np.ones(2), np.array([0.0, 1.0])
"""Parts of a model that a run trains, as factors of its learning rate."""
ROUNDING = 1e-6
"""Gradients per data point below this are rounding errors, which Adam would scale up to full steps;
results would then depend on the order of summation."""

storable("optimiser/Adam")(optax.ScaleByAdamState)


@storable("inference/State")
class State(NamedTuple):
    """Everything a step reads and writes."""

    model: DataAssociation
    responsibilities: PerProcess
    opt_state: Any
    gate: GateMarginals | None = None
    """Marginals of the gate at the last evaluation; None before it."""


class Progress(NamedTuple):
    """Argument of callbacks: progress of a fit, between two blocks of steps.

    Attributes
    ----------
    phase : str
        ``"race"``, the name of a move, ``"train"`` or ``"batches"``.
    start : int
        Index of the start that is training.
    step : int
        Steps taken from this start.
    bound : float
        Current ELBO.
    """

    phase: str
    start: int
    step: int
    bound: float


Callback = Callable[[Progress], Any]
"""Called between blocks; one that returns true stops the run."""
Stop = Callable[["LoopState"], bool]
"""Called between blocks; a run ends early, as if its budget were spent, where one returns true."""
Block = Callable[[Any, Any, Scalar], tuple[Any, Any]]
"""`BLOCK` steps from a state on a batch at a learning rate: the next state, and an ELBO whose
`value` holds that of each step."""


def no_callback(progress: Progress) -> bool:
    """The default callback: never stops."""
    return False


def never(run: "LoopState") -> bool:
    """The default rule for early ends."""
    return False


@storable("inference/Result")
class Result(NamedTuple):
    """Final state of a training run, its ELBO and history, and why training ended."""

    state: Any
    """A `State`, or that of another block function."""
    bound: float
    trace: np.ndarray
    status: Status
    rate: float
    """Learning rate at the end, for a run that continues from here."""


@storable("inference/LoopState")
class LoopState(NamedTuple):
    """State of the host loop around the blocks of a training run."""

    state: Any
    best: Any
    """The state where the ELBO was highest."""
    bound: float
    highest: float
    rate: float
    retries: int
    done: int
    trace: Float[np.ndarray, " T"]

    def again(self, first: float) -> "LoopState":
        """Before another try of a block, at a lower rate; `first` is the ELBO it began with."""
        run = self._replace(retries=self.retries + 1, rate=self.rate / 3)
        better = np.isfinite(first) and first > run.highest
        return run._replace(best=run.state, highest=float(first)) if better else run

    def after(self, state: Any, values: Float[np.ndarray, " T"]) -> "LoopState":
        bound = float(values[-1])
        best, highest = (state, bound) if bound > self.highest else (self.best, self.highest)
        trace = np.concatenate([self.trace, values])
        return LoopState(state, best, bound, highest, self.rate, 0, self.done, trace)


TrainingSchedule: TypeAlias = Generator[LoopState, Any, Result]
"""Generator: yields the next state to train, receives (state, ELBO per step), returns a Result."""


class Evaluation(NamedTuple):
    """A model evaluated on a batch, for search and diagnostics."""

    means: Float[Array, "K N P"]
    variances: Float[Array, "K N P"]
    """Mean and variance of each function."""
    noise_variances: Float[Array, "K P"]
    residuals: Float[Array, "K N"]
    """Prior variance of each function that its inducing inputs do not explain."""
    log_joint: PerProcess
    gate: GateMarginals
    lost: InformationLoss
    """Precision that linear response removes from every q; zero after steps, as what follows."""
    jitters: dict[str, Scalar]
    projections: tuple[Projection | None, ...]


class StepRange(NamedTuple):
    """Range of natural-gradient steps, counted from 0."""

    first: int | Int[Array, ""]
    end: int | Int[Array, ""]


@program
@gc_paused()
def refine_q(
    model: DataAssociation, batch: Batch, given: PerProcess, steps: StepRange
) -> tuple[State, ELBO, Evaluation]:
    """Takes natural-gradient steps on every q, then evaluates ELBO and diagnostics.

    Step 0 is a full step on the `given` responsibilities and step 1 a second one on them; later
    steps use those of the model itself. All callers share one program, because compiling a second
    one takes longer than all of its calls.
    """
    projection = model.project(batch.X)

    def one(
        i: Int[Array, ""], now: tuple[DataAssociation, GateMarginals]
    ) -> tuple[DataAssociation, GateMarginals]:
        model, gate = now
        marginals = ModelMarginals(model.process_marginals(projection), gate)
        own = responsibilities(model.log_joint(marginals, batch))
        targets = jnp.where(i < 2, given, own)
        model = model.process_step(projection, marginals, batch, targets, 1.0)
        rate = jnp.where(i == 0, 1.0, _GATE_RATE)

        def with_gate(model: DataAssociation) -> tuple[DataAssociation, GateMarginals]:
            model = model.gate_step(projection, gate, batch, targets, rate)
            return model, model.gate.marginals(projection.gate)

        # The gate is as costly as all processes together, and moves in every other step.
        return jax.lax.cond(i % 2 == 0, with_gate, lambda model: (model, gate), model)

    initial = model, model.gate.marginals(projection.gate)
    model, _ = jax.lax.fori_loop(steps.first, steps.end, one, initial)
    known = factorise(model)
    marginals = known.marginals(projection)
    log_joint = known.log_joint(marginals, batch)
    bound, own = elbo_from_log_joint(known, log_joint, batch), responsibilities(log_joint)

    def diagnose() -> tuple[Any, ...]:
        lost = information_loss(known, projection, marginals, own, batch)
        return lost, known.jitters(), known.function_projections(projection)

    blank = jax.tree.map(lambda like: jnp.zeros(like.shape), jax.eval_shape(diagnose))
    # As costly as several steps, and of use only for a model that is evaluated as it is.
    diagnostics = jax.lax.cond(steps.first == steps.end, diagnose, lambda: blank)
    means, variances = known.moments(marginals)
    seen = means, variances, known.noise_variances(), known.residuals(projection, batch.X)
    evaluation = Evaluation(*seen, log_joint, marginals.gate, *diagnostics)
    opt_state = ADAM.init(eqx.filter(model, trainable(model)))
    current = jnp.where(steps.end == 1, given, own)
    return State(model, current, opt_state, marginals.gate), bound, evaluation


def begin(
    model: DataAssociation, batch: Batch, given: PerProcess, steps: int
) -> tuple[State, ELBO]:
    """The state after a full step on the given responsibilities and `steps` more, and its ELBO."""
    return refine_q(model, batch, given, StepRange(0, steps + 1))[:2]


def resume(model: DataAssociation, batch: Batch) -> State:
    """A state that continues from a trained model, possibly with other data."""
    return refine_q(model, batch, batch.label_log_mask, StepRange(0, 0))[0]


def evaluate(model: DataAssociation, batch: Batch) -> Evaluation:
    """The model evaluated on a batch, without any step."""
    return refine_q(model, batch, batch.label_log_mask, StepRange(0, 0))[2]


def adam_step(
    moving: Any,
    gradient: Any,
    opt_state: Any,
    rate: Any,
    floor: Scalar | float = _EPS,
    adam: optax.GradientTransformation = ADAM,
) -> tuple[Any, Any]:
    """One step of Adam; gradients far below `floor` have no effect. `rate` may be a tree."""
    gradient = jax.tree.map(
        lambda node: node.tied() if isinstance(node, DataAssociation) else node,
        gradient,
        is_leaf=lambda node: isinstance(node, DataAssociation),
    )
    # Adam depends on the scale of a gradient only relative to its ε.
    gradient = jax.tree.map(lambda g: g * (_EPS / floor), gradient)
    updates, opt_state = adam.update(gradient, opt_state)
    rates = rate if isinstance(rate, DataAssociation) else jax.tree.map(lambda _: rate, moving)
    return jax.tree.map(lambda p, u, r: p - r * u, moving, updates, rates), opt_state


def step(state: State, batch: Batch, learning_rate: Rates) -> tuple[State, ELBO]:
    """Settle every q, then one Adam step on the hyperparameters, noise and inducing inputs."""
    mask = trainable(state.model)
    moving, rest = eqx.partition(state.model, mask)
    given, gate_before = state.responsibilities, state.gate
    assert gate_before is not None

    def loss(moving: Any) -> tuple[Scalar, tuple[Any, PerProcess, GateMarginals, ELBO]]:
        model = eqx.combine(moving, rest)
        projection = model.project(batch.X)
        still = jax.lax.stop_gradient((model, projection))
        settled = settle(*still, batch, given, gate_before, NaturalRates())
        settled_rest = eqx.filter(settled, mask, inverse=True)
        bound, found, gate = elbo_and_responsibilities(
            eqx.combine(moving, settled_rest), projection, batch
        )
        return -bound.value, (settled_rest, found, gate, bound)

    gradient, (rest, found, gate, bound) = jax.grad(loss, has_aux=True)(moving)
    floor = ROUNDING * jnp.sum(batch.weight)
    of_functions, of_gate = jnp.broadcast_to(learning_rate, (2,))
    rates = jax.tree.map(lambda _: of_functions, moving)
    rates = eqx.tree_at(lambda m: m.gate, rates, jax.tree.map(lambda _: of_gate, moving.gate))
    moving, opt_state = adam_step(moving, gradient, state.opt_state, rates, floor)
    return State(eqx.combine(moving, rest), found, opt_state, gate), bound


@program
@gc_paused()
def run_block(state: State, batch: Batch, learning_rate: Rates) -> tuple[State, ELBO]:
    """`BLOCK` steps, and the ELBO of each (with the hyperparameters the step started from)."""
    return jax.lax.scan(lambda s, _: step(s, batch, learning_rate), state, length=BLOCK)


def train(
    state: Any,
    batch: Batch,
    *,
    max_iter: int,
    tol: float,
    rate: float = LEARNING_RATE,
    block: Block = run_block,
    parts: Any = 1.0,
    stop: Stop = never,
    callback: Callback = no_callback,
    phase: str = "train",
    log: RunLog = NO_LOG,
) -> Result:
    """Run blocks until the ELBO stops rising, or `stop` says that the rest is not worth it.

    A block that gains less than `tol` per data point, or less than it loses in between, lowers the
    learning rate; at the smallest rate, one that gains less than `tol` means convergence. A block
    that ends in NaN, or far below its start, is repeated at a lower rate: steps that are harmless
    elsewhere may cost a function almost without noise all of its fit. `parts` are factors of the
    rate. Returns the best state, or the result in the `log` if there is one.
    """
    known, run = log.replay(Result, LoopState, state)
    if known is not None:
        return known
    total = float(np.sum(to_host(batch.weight)))
    first = run or initial_state(state, rate)
    told: dict[str, Any] = {"callback": callback, "phase": phase, "save": log.save_progress}
    told["stop"] = stop
    schedule = training_schedule(first, total, max_iter, tol, **told)
    reply = None
    while True:
        try:
            run = schedule.send(reply)
        except StopIteration as end:
            log.append(end.value)
            return end.value
        following, bounds = block(run.state, batch, np.asarray(run.rate * parts))
        reply = following, np.asarray(bounds.value, np.float64)


def initial_state(state: Any, rate: float) -> LoopState:
    """State of the host loop before its first block."""
    return LoopState(state, state, -np.inf, -np.inf, rate, 0, 0, np.zeros(0))


def training_schedule(
    run: LoopState,
    total: float,
    max_iter: int,
    tol: float,
    *,
    stop: Stop = never,
    callback: Callback = no_callback,
    phase: str = "train",
    save: Callable[[LoopState], Any] = lambda _: None,
) -> TrainingSchedule:
    """Host loop between blocks (learning rate, convergence, retries), as a generator."""
    status: Status = "budget"
    while run.done < max_iter:
        if run.done >= COOLING * max_iter >= LONG:
            run = run._replace(rate=min(run.rate, SMALLEST_RATE))
        following, values = yield run
        run = run._replace(done=run.done + BLOCK)
        if not np.all(np.isfinite(values)) or values[-1] < max(run.bound, values[0]) - total:
            run = run.again(values[0])
            if run.retries > _RETRIES:
                status = "diverged"
                break
            continue
        gain, run = values[-1] - run.bound, run.after(following, values)
        if callback(Progress(phase, 0, run.done, run.bound)):
            status = "stopped"
            break
        if stop(run):
            break
        # Steps that overshoot lower the ELBO in between by more than they gain.
        drop = float(np.max(np.maximum.accumulate(values) - values))
        if gain < tol * total:
            if run.rate <= SMALLEST_RATE:
                status = "converged"
                break
            run = run._replace(rate=max(run.rate / 3, SMALLEST_RATE))
        elif drop > max(gain, tol * total):
            run = run._replace(rate=max(run.rate / 2, min(run.rate, SMALLEST_RATE)))
        save(run)
    if run.done and not np.isfinite(run.highest):
        status = "diverged"
    return Result(run.best, run.highest, run.trace, status, run.rate)


def settled(result: Result, batch: Batch) -> Result:
    """The result with every q converged under its final hyperparameters, unless that diverges."""
    model, given = result.state.model, result.state.responsibilities
    # From the previous responsibilities: right after a change of the hyperparameters the functions
    # fit badly, and their responsibilities would lead to another optimum.
    state, bound, _ = refine_q(model, batch, given, StepRange(1, 1 + _REST_STEPS))
    value, total = float(bound.value), float(np.sum(to_host(batch.weight)))
    # Natural-gradient steps of heteroscedastic noise may diverge far from its optimum.
    return result._replace(state=state, bound=value) if value >= result.bound - total else result
