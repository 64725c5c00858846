"""Training: a pure compiled block of steps, and a host loop around it.

One step lets every q settle by natural gradients, then moves everything else by Adam, both from
one set of projections. Between blocks the host reports, checks, adapts the step size and stops.
"""

from collections.abc import Callable, Generator
from typing import Any, Literal, NamedTuple, TypeAlias

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax

from dagp.bounds import Bound, associated, responsibilities, settle, summed_out
from dagp.garbage import uncollected
from dagp.gate import GateMarginals
from dagp.memory import current
from dagp.model import Batch, DataAssociation, NaturalRates
from dagp.parameters import trainable
from dagp.placement import fetched
from dagp.response import Information, information
from dagp.sparse import rooted
from dagp.typing import Array, Float, Int, PerProcess, Scalar

__all__ = [
    "ADAM",
    "BLOCK",
    "LEARNING_RATE",
    "ROUNDING",
    "Block",
    "Climb",
    "Outlook",
    "Progress",
    "Report",
    "Result",
    "State",
    "Status",
    "Stretch",
    "apply",
    "begin",
    "climbing",
    "first",
    "outlook",
    "resume",
    "run_block",
    "settled",
    "step",
    "train",
]

Status = Literal["converged", "budget", "stopped", "diverged"]

BLOCK = 25
"""Steps between two looks of the host."""
LEARNING_RATE = 0.05
SMALLEST_RATE = LEARNING_RATE / 9
"""A run has converged when even steps of this size gain nothing more."""
COOLING, LONG = 0.8, 200
"""The last fifth of a long run takes small steps: one that has not converged by then must not end
in the middle of a leap."""
_SETTLE_STEPS = 2
_REST_STEPS = 60
"""Steps in which every q comes to rest where nothing else moves."""
_RETRIES = 3
_EPS = 1e-8
ADAM = optax.scale_by_adam(b1=0.9, b2=0.99, eps=_EPS)
ROUNDING = 1e-6
"""Gradients per data point that say nothing: Adam would blow up even their rounding to full steps,
and a sum over the data in another order would lead elsewhere."""


class State(NamedTuple):
    """Everything a step reads and writes."""

    model: DataAssociation
    responsibilities: PerProcess
    moments: Any


class Progress(NamedTuple):
    """What a callback is told between two blocks. A callback that returns true stops the run."""

    phase: str
    start: int
    step: int
    bound: float


Report = Callable[[int, float], bool]
"""Called with the number of steps done and the bound; true means stop."""
Block = Callable[[Any, Any, Scalar], tuple[Any, Any]]
"""`BLOCK` steps from a state on a batch at a learning rate: the next state, and bounds whose
`value` is the bound at each step."""


class Result(NamedTuple):
    """A state, the bound there, its history, and the reason training ended."""

    state: Any
    """A `State`, or whatever the block of steps works on."""
    bound: float
    trace: np.ndarray
    status: Status
    rate: float
    """Learning rate reached, for whoever goes on from here."""


class Stretch(NamedTuple):
    """How far a training run has come."""

    state: Any
    best: Any
    """The state where the bound was highest."""
    bound: float
    highest: float
    rate: float
    retries: int
    done: int
    trace: Float[np.ndarray, " T"]

    def after(self, state: Any, values: Float[np.ndarray, " T"]) -> "Stretch":
        """After a block of steps that went well."""
        bound = float(values[-1])
        best, highest = (state, bound) if bound > self.highest else (self.best, self.highest)
        trace = np.concatenate([self.trace, values])
        return self._replace(state=state, best=best, bound=bound, highest=highest, trace=trace)


Climb: TypeAlias = Generator[Stretch, Any, Result]
"""Asks for blocks of steps, is sent where they ended, and returns how it went."""


class Outlook(NamedTuple):
    """What a model says about a batch, for whoever looks at it from outside."""

    means: Float[Array, "K N P"]
    noise_variances: Float[Array, "K P"]
    log_joint: PerProcess
    gate: GateMarginals
    lost: Information
    """What doubt about the assignments takes from the precisions."""
    jitters: dict[str, Scalar]


class Answers(NamedTuple):
    """Which answers a model is to give, counted from 0."""

    first: int | Int[Array, ""]
    end: int | Int[Array, ""]


@jax.jit
@uncollected()
def _answered(
    model: DataAssociation, batch: Batch, shares: PerProcess, answers: Answers
) -> tuple[State, Bound, Outlook]:
    """A model after some answers to responsibilities, and what it says then.

    The first answer is a full one, the second goes on from there, and only later ones listen to
    the responsibilities that follow. One program serves everybody who looks at a model, because
    compiling another takes longer than all of them do.
    """
    projection = model.project(batch.X)

    def answer(i: Int[Array, ""], model: DataAssociation) -> DataAssociation:
        marginals = model.marginals(projection)
        found = responsibilities(model.log_joint(marginals, batch))
        rates = NaturalRates(*(jnp.where(i == 0, 1.0, rate) for rate in NaturalRates()))
        given = jnp.where(i < 2, shares, found)
        return model.natural_step(projection, marginals, batch, given, rates)

    model = jax.lax.fori_loop(answers.first, answers.end, answer, model)
    known = rooted(model)
    marginals = known.marginals(projection)
    log_joint = known.log_joint(marginals, batch)
    bound, found = summed_out(known, log_joint, batch), responsibilities(log_joint)
    seen = Outlook(
        known.means(marginals),
        known.noise_variances(),
        log_joint,
        marginals.gate,
        information(known, projection, marginals, found, batch),
        known.jitters(),
    )
    moments = ADAM.init(eqx.filter(model, trainable(model)))
    return State(model, jnp.where(answers.end == 1, shares, found), moments), bound, seen


def begin(
    model: DataAssociation, batch: Batch, shares: PerProcess, steps: int
) -> tuple[State, Bound]:
    """A state in which every q has answered the given responsibilities, and the bound there.

    After one full answer, `steps` more let the responsibilities settle too.
    """
    return _answered(model, batch, shares, Answers(0, steps + 1))[:2]


def resume(model: DataAssociation, batch: Batch) -> State:
    """A state that goes on from a trained model, possibly with other data."""
    return _answered(model, batch, batch.allowed, Answers(0, 0))[0]


def outlook(model: DataAssociation, batch: Batch) -> Outlook:
    """What a model says about a batch as it is."""
    return _answered(model, batch, batch.allowed, Answers(0, 0))[2]


def apply(
    moving: Any, gradient: Any, moments: Any, rate: Scalar, floor: Scalar | float = _EPS
) -> tuple[Any, Any]:
    """One step of Adam down the gradient; parameters whose gradient is far below `floor` stay."""
    gradient = jax.tree.map(
        lambda node: node.tied() if isinstance(node, DataAssociation) else node,
        gradient,
        is_leaf=lambda node: isinstance(node, DataAssociation),
    )
    # Adam does not care for the size of a gradient, except beside its ε.
    gradient = jax.tree.map(lambda g: g * (_EPS / floor), gradient)
    updates, moments = ADAM.update(gradient, moments)
    return jax.tree.map(lambda p, u: p - rate * u, moving, updates), moments


def step(state: State, batch: Batch, learning_rate: Scalar) -> tuple[State, Bound]:
    """Settle every q, then one Adam step on the hyperparameters, noise and inducing inputs."""
    mask = trainable(state.model)
    moving, rest = eqx.partition(state.model, mask)
    # With one process there is nobody to agree with.
    steps = _SETTLE_STEPS if state.model.n_processes > 1 else 1

    def loss(moving: Any) -> tuple[Scalar, tuple[Any, PerProcess, Bound]]:
        model = eqx.combine(moving, rest)
        projection = model.project(batch.X)
        still = jax.lax.stop_gradient((model, projection))
        settled = settle(*still, batch, state.responsibilities, steps, NaturalRates())
        settled_rest = eqx.filter(settled, mask, inverse=True)
        bound, shares = associated(eqx.combine(moving, settled_rest), projection, batch)
        return -bound.value, (settled_rest, shares, bound)

    gradient, (rest, shares, bound) = jax.grad(loss, has_aux=True)(moving)
    floor = ROUNDING * jnp.sum(batch.weight)
    moving, moments = apply(moving, gradient, state.moments, learning_rate, floor)
    return State(eqx.combine(moving, rest), shares, moments), bound


@jax.jit
@uncollected()
def run_block(state: State, batch: Batch, learning_rate: Scalar) -> tuple[State, Bound]:
    """`BLOCK` steps, and the bound of each (with the hyperparameters the step began with)."""
    return jax.lax.scan(lambda s, _: step(s, batch, learning_rate), state, length=BLOCK)


def train(
    state: Any,
    batch: Batch,
    *,
    max_iter: int,
    tol: float,
    rate: float = LEARNING_RATE,
    block: Block = run_block,
    report: Report = lambda *_: False,
) -> Result:
    """Run blocks until the bound stops rising.

    A block that gains less than `tol` per data point shortens the steps; when they are short and
    still gain nothing, the run has converged. A block that ends in NaN, or far below where it
    began, is undone and repeated with shorter steps. What counts is the best there was.
    """
    memory = current()
    known, run = memory.recall(Result, Stretch, state)
    if known is not None:
        return known
    total = float(np.sum(fetched(batch.weight)))
    climb = climbing(
        run or first(state, rate), total, max_iter, tol, report=report, pause=memory.pause
    )
    answer = None
    while True:
        try:
            run = climb.send(answer)
        except StopIteration as end:
            memory.finish(end.value)
            return end.value
        following, bounds = block(run.state, batch, np.asarray(run.rate))
        answer = following, np.asarray(bounds.value, np.float64)


def first(state: Any, rate: float) -> Stretch:
    """Before the first step."""
    return Stretch(state, state, -np.inf, -np.inf, rate, 0, 0, np.zeros(0))


def climbing(
    run: Stretch,
    total: float,
    max_iter: int,
    tol: float,
    *,
    report: Report = lambda *_: False,
    pause: Callable[[Stretch], Any] = lambda _: None,
) -> Climb:
    """What the host decides between blocks, whoever computes them.

    Yields where the next block begins, wants to be sent the state where it ended and the bound at
    each step, and returns how it went.
    """
    status: Status = "budget"
    while run.done < max_iter:
        if run.done >= COOLING * max_iter >= LONG:
            run = run._replace(rate=min(run.rate, SMALLEST_RATE))
        following, values = yield run
        run = run._replace(done=run.done + BLOCK)
        if not np.all(np.isfinite(values)) or values[-1] < run.bound - total:
            run = run._replace(retries=run.retries + 1, rate=run.rate / 3)
            if run.retries > _RETRIES:
                status = "diverged"
                break
            continue
        gain, run = values[-1] - run.bound, run.after(following, values)
        if report(run.done, run.bound):
            status = "stopped"
            break
        if gain < tol * total:
            if run.rate <= SMALLEST_RATE:
                status = "converged"
                break
            run = run._replace(rate=max(run.rate / 3, SMALLEST_RATE))
        pause(run)
    if run.done and not np.isfinite(run.highest):
        status = "diverged"
    return Result(run.best, run.highest, run.trace, status, run.rate)


def settled(result: Result, batch: Batch) -> Result:
    """The result with every q at rest under its final hyperparameters."""
    model, shares, _ = result.state
    # From the responsibilities of before: after the hyperparameters have moved, those that the
    # functions have now would lead elsewhere.
    rest = Answers(1, 1 + _REST_STEPS)
    state, bound, _ = _answered(model, batch, shares, rest)
    value = float(bound.value)
    return result._replace(state=state, bound=value) if np.isfinite(value) else result
