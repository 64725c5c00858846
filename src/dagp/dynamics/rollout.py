"""Roll-outs: trajectories of a model under a policy, compiled, batched and differentiable.

Regimes are drawn from their probabilities. Where a gradient with respect to the policy is wanted,
the choice of a regime is differentiated by score function or by a relaxation, see `Gradient`.
"""

from collections.abc import Callable
from typing import Any, Literal, NamedTuple

import jax
import jax.numpy as jnp

from dagp.core.typing import Array, Float, Int
from dagp.dynamics.steps import Actions, Dynamics, States

Act = Callable[[Any, Float[Array, " S"]], Float[Array, " A"]]
"""A policy: a JAX function of its parameters and one state."""
Reward = Callable[..., Any]
"""A JAX function of state, action, next state and the probabilities of the regimes."""
Gradient = Literal["score", "straight-through", "relaxed"]
"""How the choice of a regime is differentiated: by the score function (unbiased), by a Gumbel
softmax whose value is rounded to one regime (straight-through), or by one that is not (relaxed)."""


class Steps(NamedTuple):
    """Trajectories, with the steps along the first axis."""

    states: Float[Array, "T N S"]
    """Before each step."""
    actions: Float[Array, "T N A"]
    next_states: Float[Array, "T N S"]
    weights: Float[Array, "T N K"]
    """Probability of each regime."""
    regimes: Int[Array, "T N"]
    log_weights: Float[Array, "T N"]
    """Log probability of the regime that was drawn."""


def simulate(
    dynamics: Dynamics,
    act: Act,
    parameters: Any,
    start: States,
    horizon: int,
    key: Array,
    gradient: Gradient = "score",
    temperature: float = 1.0,
    kept: Int[Array, " N"] | None = None,
) -> Steps:
    """Trajectories from each row of `start`, each in the regime `kept` if that is given."""
    begin_key, step_key = jax.random.split(key)
    drawn = dynamics.begin(begin_key, len(start))

    def step(states: States, own: Array) -> tuple[States, Steps]:
        actions = jax.vmap(lambda state: act(parameters, state))(states)
        following = advance(dynamics, drawn, states, actions, own, gradient, temperature, kept)
        return following.next_states, following

    return jax.lax.scan(step, start, jax.random.split(step_key, horizon))[1]


def advance(
    dynamics: Dynamics,
    drawn: Any,
    states: States,
    actions: Actions,
    key: Array,
    gradient: Gradient = "score",
    temperature: float = 1.0,
    kept: Int[Array, " N"] | None = None,
) -> Steps:
    """One step of every trajectory, in the regime `kept` if that is given."""
    outcome_key, regime_key = jax.random.split(key)
    candidates, weights = dynamics.outcomes(drawn, states, actions, outcome_key)
    # The offset keeps the logarithm, and its slope, finite where a regime is impossible.
    log_weights = jnp.log(weights + 1e-12)
    perturbed = log_weights + jax.random.gumbel(regime_key, weights.shape, weights.dtype)
    if kept is not None:
        log_weights = jnp.where(jax.nn.one_hot(kept, weights.shape[1], dtype=bool), 0.0, -jnp.inf)
        perturbed = log_weights
    regimes = jnp.argmax(perturbed, axis=1)
    if gradient == "score":
        chosen = jnp.take_along_axis(candidates, regimes[:, None, None], axis=1)[:, 0]
    else:
        soft = jax.nn.softmax(perturbed / temperature, axis=1)
        if gradient == "straight-through":
            hard = jax.nn.one_hot(regimes, weights.shape[1], dtype=soft.dtype)
            soft = hard + soft - jax.lax.stop_gradient(soft)
        chosen = jnp.sum(soft[:, :, None] * candidates, axis=1)
    own = jnp.take_along_axis(log_weights, regimes[:, None], axis=1)[:, 0]
    return Steps(states, actions, chosen, weights, regimes, own)


def discounted(steps: Steps, reward: Reward, discount: float) -> Float[Array, "T N"]:
    """Discounted reward of every step."""
    per_step = jax.vmap(jax.vmap(reward))
    rewards = per_step(steps.states, steps.actions, steps.next_states, steps.weights)
    return rewards * discount ** jnp.arange(len(rewards))[:, None]


def surrogate(
    steps: Steps, rewards: Float[Array, "T N"], groups: int, score: bool
) -> Float[Array, ""]:
    """A number whose gradient estimates that of the mean return.

    With `score`, the log probability of every regime drawn is weighted by the rewards that come
    after it, less those of the other trajectories from the same start (`groups` starts, each with
    N / groups trajectories), which do not depend on this choice and reduce the variance.
    """
    value = jnp.mean(jnp.sum(rewards, axis=0))
    if not score:
        return value
    ahead = jnp.cumsum(rewards[::-1], axis=0)[::-1]
    shared = jax.lax.stop_gradient(ahead).reshape(len(ahead), groups, -1)
    count = shared.shape[2]
    others = (jnp.sum(shared, axis=2, keepdims=True) - shared) / max(count - 1, 1)
    advantage = (shared - others if count > 1 else shared).reshape(ahead.shape)
    scores = jnp.sum(advantage * steps.log_weights, axis=0)
    return value + jnp.mean(scores) - jax.lax.stop_gradient(jnp.mean(scores))
