"""Policy search: gradients of the return through roll-outs of a model.

Regimes are differentiated by the score function. Measured at the same cost, on the wet-chicken
benchmark, the error of such a gradient is a quarter of that of a straight-through relaxation.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax

from dagp.core.precision import numerics
from dagp.core.programs import program
from dagp.core.random import as_random_state
from dagp.core.threads import concurrently, free_cores
from dagp.core.typing import Array, Float, RandomState, Scalar
from dagp.dynamics import checks
from dagp.dynamics.policy import Call, Policy, network_policy
from dagp.dynamics.rollout import Act, Reward, discounted, simulate, surrogate
from dagp.dynamics.steps import Dynamics, States

if TYPE_CHECKING:
    from dagp.dynamics.transition import Functions, TransitionModel

BLOCK = 25
"""Gradient steps between two evaluations on fresh roll-outs."""
PATIENCE = 4
"""Blocks without a return that is higher by its standard error, after which a start ends."""
RUNG = 2
"""Blocks after which the better half of the starts goes on: what the first steps of a network
promise tells the good ones from the bad ones, and the rest of the time is for the good ones."""
BATCH = 10
"""Starts of roll-outs per gradient step."""
FRESH = 1000
"""Starts of roll-outs per evaluation, one trajectory each."""
LONGER = 4
"""Length of the roll-outs of an evaluation, in horizons."""
ADAM = optax.scale_by_adam()
VISITED = 0.5
"""Share of the starts of gradient steps that are states where roll-outs of the last evaluation
ended: a policy has to act well where it leads to, not only where the data are."""


class Improved(NamedTuple):
    """A policy that was improved, and what the model expects of it.

    >>> Improved._fields
    ('policy', 'value', 'value_std', 'history')
    """

    policy: Policy
    value: float
    """Mean reward per step that the model expects, on roll-outs not used in the search, of four
    times its horizon."""
    value_std: float
    """Standard error of that mean, of the roll-outs alone: not the error of the model."""
    history: list[list[float]]
    """That mean on fresh roll-outs after each block of steps, for every start."""


Drawn = tuple[Float[np.ndarray, "*shape S"], np.uint32]
"""States from which roll-outs start, and the seed of their key."""


class Starts:
    """Draws states from which roll-outs start, and keys for these."""

    def __init__(self, states: Float[np.ndarray, "N S"], rng: np.random.RandomState):
        self.states, self.rng = states, rng

    def draw(self, *shape: int, visited: Float[np.ndarray, "F S"] | None = None) -> Drawn:
        """States of this shape, some of them among those `visited`, and the seed of a key."""
        chosen = self.states[self.rng.randint(len(self.states), size=shape)]
        if visited is not None:
            others = visited[self.rng.randint(len(visited), size=shape)]
            chosen = np.where(self.rng.uniform(size=(*shape, 1)) < VISITED, others, chosen)
        return chosen, np.uint32(self.rng.randint(2**31 - 1))


class Task(eqx.Module):
    """What is maximised."""

    dynamics: Dynamics
    reward: Reward
    discount: float
    rate: float
    horizon: int = eqx.field(static=True)
    n_samples: int = eqx.field(static=True)


def improve_policy(
    model: "TransitionModel",
    reward: Reward,
    policy: Policy | Sequence[Policy] | None = None,
    *,
    starts: Any = None,
    horizon: int = 5,
    discount: float = 0.9,
    n_samples: int = 20,
    n_init: int = 3,
    max_iter: int = 500,
    learning_rate: float = 0.01,
    functions: "Functions" = "step",
    random_state: RandomState = None,
) -> Improved:
    """Search for the policy with the highest expected return under a model.

    Follows gradients of the discounted return through sampled roll-outs, with Adam. They start from
    given states and, as many, from states that the policy leads to. Each start of the search ends
    when the reward of fresh, longer roll-outs has stopped rising, or is lower than that of the
    better half of the starts after 50, 100, … steps; the best is returned.

    Parameters
    ----------
    model : TransitionModel
    reward : callable
        JAX function of a state (S,), an action (A,), the next state (S,) and the probabilities (K,)
        of the regimes of this step.
    policy : Policy, sequence of Policy or None, default=None
        Where the search starts; None: from `n_init` networks of two layers of 20 units.
    starts : array-like of shape (B, S), default=None
        States from which roll-outs start; None: the training states.
    horizon : int, default=5
        Steps of a roll-out.
    discount : float, default=0.9
    n_samples : int, default=20
        Roll-outs from each of 10 starts per gradient step.
    n_init : int, default=3
        Number of networks, without `policy`.
    max_iter : int, default=500
        Most gradient steps of each start.
    learning_rate : float, default=0.01
    functions : {"step", "trajectory"}, default="step"
        As in `TransitionModel.rollout`.
    random_state : int, Generator, RandomState or None, default=None

    Returns
    -------
    Improved

    Examples
    --------
    Avoid a regime: ``lambda state, action, after, p: after[0] - 5 * p[1]``.

    >>> import numpy as np
    >>> from dagp import DAGP
    >>> from dagp.dynamics import TransitionModel, improve_policy
    >>> rng = np.random.default_rng(0)
    >>> states, actions = rng.uniform(-1, 1, (40, 1)), rng.uniform(-1, 1, (40, 1))
    >>> model = TransitionModel(DAGP(1, n_init=1, tol=1e-1, random_state=0), bounds=[(-1.5, 1.5)])
    >>> model = model.fit(states, actions, 0.5 * states + 0.5 * actions)
    >>> found = improve_policy(
    ...     model, lambda s, a, after, p: after[0], n_init=1, max_iter=50, random_state=0
    ... )
    >>> bool(found.policy([[0.0]])[0, 0] > 0.5)
    True
    """
    rng = as_random_state(random_state)
    pool = model.states_ if starts is None else checks.table("starts", starts, model.n_states_)
    task = Task(
        model.dynamics(functions),
        Call.of(reward),
        float(discount),
        float(learning_rate),
        checks.whole("horizon", horizon),
        checks.whole("n_samples", n_samples),
    )
    checks.whole("max_iter", max_iter)
    draws = Starts(pool, rng)
    candidates = _candidates(policy, model, checks.whole("n_init", n_init), rng)
    with numerics():
        _check_task(task, candidates[0], model)
        runs = [Run.of(start) for start in candidates]
        _race(task, runs, -(-max_iter // BLOCK), draws)
        # All are compared on the same roll-outs, and the best is valued on others.
        fresh = draws.draw(FRESH)
        values = [float(_fresh(task, run.act, run.best, *fresh)[0]) for run in runs]
        best = runs[int(np.argmax(values))]
        value, error, _ = _fresh(task, best.act, best.best, *draws.draw(FRESH))
    function = candidates[int(np.argmax(values))].function
    found = Policy(function, jax.tree.map(np.asarray, best.best))
    return Improved(found, float(value), float(error), [run.history for run in runs])


def _candidates(
    policy: Any, model: "TransitionModel", n_init: int, rng: np.random.RandomState
) -> list[Policy]:
    if policy is None:
        bounds = model.action_bounds_
        return [network_policy(model.states_, bounds, random_state=rng) for _ in range(n_init)]
    given: list[Any] = [policy] if callable(policy) else list(policy)
    for one in given:
        if not isinstance(one, Policy):
            raise ValueError(
                f"policy must be a Policy, made of a JAX function and its parameters, got {one!r}."
            )
    as_floats = [jax.tree.map(lambda p: np.asarray(p, np.float64), one.parameters) for one in given]
    return [Policy(one.function, p) for one, p in zip(given, as_floats, strict=True)]


def _check_task(task: Task, policy: Policy, model: "TransitionModel") -> None:
    """Raise in words where policy or reward do not fit, before anything is compiled."""
    state = np.zeros(model.n_states_)
    action = jax.eval_shape(policy.function, policy.parameters, state)
    if getattr(action, "shape", None) != (model.n_actions_,):
        raise ValueError(
            f"The policy must return {model.n_actions_} actions for a state, got "
            f"{getattr(action, 'shape', type(action).__name__)}."
        )
    found = jax.eval_shape(task.reward, state, action, state, np.zeros(model.n_regimes_))
    if getattr(found, "shape", None) != ():
        raise ValueError(
            "reward must return one number for a state, an action, a next state and the "
            f"probabilities of the regimes, got {getattr(found, 'shape', type(found).__name__)}."
        )


@dataclass
class Run:
    """The search from one start so far."""

    act: Any
    """The function of the policy."""
    parameters: Any
    state: Any
    """Of the optimiser."""
    best: Any
    """The parameters with the highest return."""
    history: list[float] = field(default_factory=list)
    level: float = -np.inf
    behind: int = 0
    """The return that was last higher by more than its standard error, and blocks since then."""
    visited: Float[np.ndarray, "F S"] | None = None
    """Where roll-outs of the last evaluation ended."""

    @staticmethod
    def of(policy: Policy) -> "Run":
        """The beginning."""
        given = policy.parameters
        return Run(Call.of(policy.function), given, ADAM.init(given), given)

    def advance(self, task: Task, begin: Drawn, fresh: Drawn) -> None:
        """A block of gradient steps, and what fresh roll-outs say of it."""
        now = (self.parameters, self.state)
        self.parameters, self.state = _block(task, self.act, now, *begin)
        mean, error, ends = _fresh(task, self.act, self.parameters, *fresh)
        value, self.visited = float(mean), np.asarray(ends)
        if not np.isfinite(value):
            raise ValueError(
                "The return of a roll-out is not finite: the policy or the reward is NaN or "
                "infinite for some state."
            )
        self.behind += 1
        if value > self.level + float(error):
            self.level, self.behind = value, 0
        if value > max(self.history, default=-np.inf):
            self.best = self.parameters
        self.history.append(value)


def _race(task: Task, runs: list[Run], blocks: int, draws: Starts) -> None:
    """Blocks of steps until fresh roll-outs say that the return does not rise; now and then the
    worse half of the starts ends."""
    # The same roll-outs for all evaluations: their differences are then less noisy.
    fresh = draws.draw(FRESH)
    running = runs
    for block in range(1, blocks + 1):
        begins = [draws.draw(BLOCK, BATCH, visited=run.visited) for run in running]
        pairs = list(zip(running, begins, strict=True))
        list(concurrently(lambda pair: pair[0].advance(task, pair[1], fresh), pairs, free_cores()))
        running = [run for run in running if run.behind < PATIENCE]
        if block % RUNG == 0:
            ranked = sorted(running, key=lambda run: -max(run.history))
            running = ranked[: -(-len(ranked) // 2)]


@program
def _block(
    task: Task, act: Act, now: tuple[Any, Any], starts: Float[Array, "L B S"], seed: Any
) -> tuple[Any, Any]:
    """Parameters and state of the optimiser after some gradient steps, each on its roll-outs."""

    def loss(parameters: Any, start: States, own: Array) -> Scalar:
        many = jnp.repeat(start, task.n_samples, axis=0)
        steps = simulate(task.dynamics, act, parameters, many, task.horizon, own)
        rewards = discounted(steps, task.reward, task.discount)
        return -surrogate(steps, rewards, len(start), score=True)

    def step(carry: tuple[Any, Any], own: tuple[Array, Array]) -> tuple[tuple[Any, Any], None]:
        parameters, state = carry
        slope = jax.grad(loss)(parameters, *own)
        updates, state = ADAM.update(slope, state)
        return (jax.tree.map(lambda p, u: p - task.rate * u, parameters, updates), state), None

    each = (starts, jax.random.split(jax.random.key(seed), len(starts)))
    return jax.lax.scan(step, now, each)[0]


@program
def _fresh(
    task: Task, act: Act, parameters: Any, start: States, seed: Any
) -> tuple[Scalar, Scalar, States]:
    """Mean reward per step of longer roll-outs, its standard error, and where they ended."""
    key = jax.random.key(seed)
    steps = simulate(task.dynamics, act, parameters, start, LONGER * task.horizon, key)
    rewards = jnp.mean(discounted(steps, task.reward, 1.0), axis=0)
    error = jnp.std(rewards) / np.sqrt(len(start))
    return jnp.mean(rewards), error, steps.next_states[-1]
