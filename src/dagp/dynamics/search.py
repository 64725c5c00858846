"""Policy search: gradients of the return through roll-outs of a model.

Regimes are differentiated by the score function. Measured at the same cost, on the wet-chicken
benchmark, the error of such a gradient is a quarter of that of a straight-through relaxation.
"""

import functools
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax

from dagp.core.precision import numerics
from dagp.core.random import as_random_state
from dagp.core.typing import Array, Float, RandomState, Scalar
from dagp.dynamics import checks
from dagp.dynamics.policy import Policy, network_policy
from dagp.dynamics.rollout import Reward, discounted, simulate, surrogate
from dagp.dynamics.steps import Dynamics, States

if TYPE_CHECKING:
    from dagp.dynamics.transition import Functions, TransitionModel

BLOCK = 25
"""Gradient steps between two evaluations on fresh roll-outs."""
PATIENCE = 4
"""Blocks without a higher return after which a start ends."""
BATCH = 25
"""Starts of roll-outs per gradient step."""
FRESH = 1000
"""Starts of roll-outs per evaluation, one trajectory each."""
LONGER = 4
"""Length of the roll-outs of an evaluation, in horizons."""
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


@functools.cache
def _adam(rate: float) -> optax.GradientTransformation:
    # One object for each rate, so that programs are compiled once.
    return optax.adam(rate)


class Starts:
    """Draws states from which roll-outs start, and keys for these."""

    def __init__(self, states: Float[np.ndarray, "N S"], rng: np.random.RandomState):
        self.states, self.rng = states, rng

    def draw(
        self, *shape: int, visited: Float[np.ndarray, "F S"] | None = None
    ) -> tuple[Float[np.ndarray, "*shape S"], Array]:
        """States of this shape, some of them among those `visited`, and a key."""
        chosen = self.states[self.rng.randint(len(self.states), size=shape)]
        if visited is not None:
            others = visited[self.rng.randint(len(visited), size=shape)]
            chosen = np.where(self.rng.uniform(size=(*shape, 1)) < VISITED, others, chosen)
        return chosen, jax.random.key(int(self.rng.randint(2**31 - 1)))


class Task(NamedTuple):
    """What is maximised."""

    dynamics: Dynamics
    reward: Reward
    discount: float
    horizon: int
    n_samples: int
    optimiser: optax.GradientTransformation


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
    when the reward of fresh, longer roll-outs has stopped rising; the best is returned.

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
        Roll-outs from each of 25 starts per gradient step.
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
        reward,
        float(discount),
        checks.whole("horizon", horizon),
        checks.whole("n_samples", n_samples),
        _adam(float(learning_rate)),
    )
    checks.whole("max_iter", max_iter)
    draws = Starts(pool, rng)
    candidates = _candidates(policy, model, checks.whole("n_init", n_init), rng)
    with numerics():
        _check_task(task, candidates[0], model)
        trained = [_train(task, start, max_iter, draws) for start in candidates]
        # All are compared on the same roll-outs, and the best is valued on others.
        fresh = draws.draw(FRESH)
        scores = [float(_fresh(task, found, *fresh)[0]) for found, _ in trained]
        best = trained[int(np.argmax(scores))][0]
        value, error, _ = _fresh(task, best, *draws.draw(FRESH))
    best = jax.tree.map(lambda leaf: np.asarray(leaf) if eqx.is_array(leaf) else leaf, best)
    return Improved(best, float(value), float(error), [history for _, history in trained])


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


def _train(task: Task, policy: Policy, max_iter: int, draws: Starts) -> tuple[Policy, list[float]]:
    """Gradient steps in blocks until fresh roll-outs say that the return does not rise."""
    state = task.optimiser.init(policy.parameters)
    best, history, behind, visited = policy, [], 0, None
    # The same roll-outs for all of its evaluations: their differences are then less noisy.
    fresh = draws.draw(FRESH)
    for _ in range(-(-max_iter // BLOCK)):
        begin = draws.draw(BLOCK, BATCH, visited=visited)
        policy, state = _block(task, policy, state, *begin)
        mean, _, ends = _fresh(task, policy, *fresh)
        value, visited = float(mean), np.asarray(ends)
        if not np.isfinite(value):
            raise ValueError(
                "The return of a roll-out is not finite: the policy or the reward is NaN or "
                "infinite for some state."
            )
        behind = behind + 1 if history and value <= max(history) else 0
        best = policy if behind == 0 else best
        history.append(value)
        if behind >= PATIENCE:
            break
    return best, history


@eqx.filter_jit
def _block(
    task: Task, policy: Policy, state: Any, starts: Float[Array, "L B S"], key: Array
) -> tuple[Policy, Any]:
    """Some gradient steps, each on roll-outs of its own."""

    def loss(parameters: Any, start: States, own: Array) -> Scalar:
        many = jnp.repeat(start, task.n_samples, axis=0)
        steps = simulate(task.dynamics, policy.function, parameters, many, task.horizon, own)
        rewards = discounted(steps, task.reward, task.discount)
        return -surrogate(steps, rewards, len(start), score=True)

    def step(carry: tuple[Any, Any], own: tuple[Array, Array]) -> tuple[tuple[Any, Any], None]:
        parameters, state = carry
        slope = jax.grad(loss)(parameters, *own)
        updates, state = task.optimiser.update(slope, state, parameters)
        return (optax.apply_updates(parameters, updates), state), None

    each = (starts, jax.random.split(key, len(starts)))
    (parameters, state), _ = jax.lax.scan(step, (policy.parameters, state), each)
    return Policy(policy.function, parameters), state


@eqx.filter_jit
def _fresh(task: Task, policy: Policy, start: States, key: Array) -> tuple[Scalar, Scalar, States]:
    """Mean reward per step of longer roll-outs, its standard error, and where they ended."""
    act, parameters = policy.function, policy.parameters
    steps = simulate(task.dynamics, act, parameters, start, LONGER * task.horizon, key)
    rewards = jnp.mean(discounted(steps, task.reward, 1.0), axis=0)
    error = jnp.std(rewards) / np.sqrt(len(start))
    return jnp.mean(rewards), error, steps.next_states[-1]
