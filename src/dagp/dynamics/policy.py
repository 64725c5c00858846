"""Policies: JAX functions of parameters and a state, with their parameters."""

import itertools
from collections.abc import Sequence
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from dagp.core.precision import numerics
from dagp.core.random import as_random_state
from dagp.core.typing import Array, Float, RandomState
from dagp.dynamics.checks import table


class Policy(eqx.Module):
    """A policy: a JAX function of parameters and one state, with the parameters.

    Calling it with states of shape (N, S) returns actions of shape (N, A) as a NumPy array.

    Parameters
    ----------
    function : callable
        Takes the parameters and a state of shape (S,), and returns an action of shape (A,).
    parameters : tree of arrays
        Numbers, arrays, or tuples, lists and dicts of these.

    Examples
    --------
    >>> brake = Policy(lambda gain, state: -gain * state[:1], 0.5)
    >>> brake([[2.0, 0.0], [4.0, 1.0]]).tolist()
    [[-1.0], [-2.0]]
    """

    function: Any
    parameters: Any

    def __call__(self, states: Any) -> Float[np.ndarray, "N A"]:
        with numerics():
            return np.asarray(_act(self, table("states", states)))


@eqx.filter_jit
def _act(policy: Policy, states: Float[Array, "N S"]) -> Float[Array, "N A"]:
    return jax.vmap(lambda state: policy.function(policy.parameters, state))(states)


class Call(eqx.Module):
    """A function with the arrays that it holds apart, as an argument of compiled programs."""

    arrays: Any
    rest: Any = eqx.field(static=True)

    @staticmethod
    def of(function: Any) -> Any:
        """The function itself, where it is nothing but arrays and the code of its class."""
        if all(map(_is_array, jax.tree.leaves(function))):
            return function
        return Call(*eqx.partition(function, _is_array))

    def __call__(self, *arguments: Any) -> Any:
        return eqx.combine(self.arrays, self.rest)(*arguments)


def _is_array(leaf: Any) -> bool:
    return isinstance(leaf, np.ndarray | jax.Array)


class Network(eqx.Module):
    """A ReLU network from a state to an action between bounds."""

    centre: Float[Array, " S"]
    unit: Float[Array, " S"]
    low: Float[Array, " A"]
    high: Float[Array, " A"]

    def __call__(self, layers: Any, state: Float[Array, " S"]) -> Float[Array, " A"]:
        values = (state - self.centre) / self.unit
        for weights, biases in layers[:-1]:
            values = jax.nn.relu(values @ weights + biases)
        weights, biases = layers[-1]
        middle, half = (self.low + self.high) / 2, (self.high - self.low) / 2
        return middle + half * jnp.tanh(values @ weights + biases)


def network_policy(
    states: Any,
    action_bounds: Any,
    hidden: Sequence[int] = (20, 20),
    random_state: RandomState = None,
) -> Policy:
    """A network with ReLU units, whose actions stay between bounds.

    Parameters
    ----------
    states : array-like of shape (N, S)
        Typical states, by whose mean and standard deviation inputs are scaled.
    action_bounds : sequence of A pairs (low, high)
    hidden : sequence of int, default=(20, 20)
        Number of units of each layer.
    random_state : int, Generator, RandomState or None, default=None

    Returns
    -------
    Policy

    Examples
    --------
    >>> policy = network_policy([[0.0, 0.0], [5.0, 5.0]], [(-1, 1)], random_state=0)
    >>> policy([[2.0, 3.0]]).shape
    (1, 1)
    """
    seen = table("states", states)
    bounds = np.asarray(action_bounds, np.float64)
    if bounds.ndim != 2 or bounds.shape[1] != 2 or not np.all(np.isfinite(bounds)):
        raise ValueError(
            f"action_bounds must be finite pairs (low, high), one per action, got "
            f"{action_bounds!r}."
        )
    unit = seen.std(axis=0)
    network = Network(seen.mean(axis=0), np.where(unit > 0, unit, 1.0), bounds[:, 0], bounds[:, 1])
    rng = as_random_state(random_state)
    sizes = [seen.shape[1], *map(int, hidden), len(bounds)]
    layers = []
    for i, (before, after) in enumerate(itertools.pairwise(sizes)):
        # He's initialisation; small at the end, so that first actions are near the middle.
        std = np.sqrt(2 / before) * (0.1 if i == len(sizes) - 2 else 1.0)
        layers.append((std * rng.standard_normal((before, after)), np.zeros(after)))
    return Policy(network, layers)
