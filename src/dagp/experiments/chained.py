"""Transitions of BNN+LV, which has one output: a network per state, each given those before it.

The chain ``p(x' | s, a) p(y' | x', s, a)`` is a model of both outputs together, so that a drop, of
which both are known, is one event.
"""

import itertools
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from dagp.baselines.bnnlv import BNNLV, network_output
from dagp.core.typing import Array, Float
from dagp.dynamics.steps import Actions, Dynamics, Outcomes, States


class Link(NamedTuple):
    """Networks of one output, sampled from the posterior, with the units of their data."""

    weights: Float[Array, "S n"]
    noise_std: Float[Array, ""]
    x_centre: Float[Array, " D"]
    x_unit: Float[Array, " D"]
    y_centre: Float[Array, ""]
    y_unit: Float[Array, ""]

    @staticmethod
    def of(model: BNNLV) -> "Link":
        """The networks of a fitted baseline."""
        units, draws = model.units_, model.draws_
        noise = np.sqrt(draws.noise_variance)
        return Link(draws.weights, noise, units.x_centre, units.x_unit, *_scalars(units))


def _scalars(units: Any) -> tuple[np.ndarray, np.ndarray]:
    return units.y_centre[0], units.y_unit[0]


class ChainDynamics(Dynamics):
    """Transitions of a chain of networks: one regime."""

    links: tuple[Link, ...]
    lower: Float[Array, " S"]
    upper: Float[Array, " S"]

    @property
    def n_regimes(self) -> int:
        return 1

    def begin(self, key: Array, count: int) -> Any:
        """One network of each output for a whole trajectory."""
        keys = jax.random.split(key, len(self.links))
        return [
            link.weights[jax.random.randint(own, (count,), 0, len(link.weights))]
            for link, own in zip(self.links, keys, strict=True)
        ]

    def outcomes(self, drawn: Any, states: States, actions: Actions, key: Array) -> Outcomes:
        rows = jnp.concatenate([states, actions], axis=1)
        keys = jax.random.split(key, len(self.links))
        for link, weights, own in zip(self.links, drawn, keys, strict=True):
            column = _output(link, weights, rows, own)
            rows = jnp.concatenate([rows, column[:, None]], axis=1)
        after = rows[:, states.shape[1] + actions.shape[1] :]
        after = jnp.clip(after, self.lower, self.upper)
        return Outcomes(after[:, None], jnp.ones((len(states), 1)))


def _output(
    link: Link, weights: Float[Array, "N n"], rows: Float[Array, "N D"], key: Array
) -> Float[Array, " N"]:
    """One output of every row, of a network of its own with a latent input of its own."""
    latent_key, noise_key = jax.random.split(key)
    X = (rows - link.x_centre) / link.x_unit
    sizes = _sizes(X.shape[1], weights.shape[1])
    z = np.sqrt(X.shape[1]) * jax.random.normal(latent_key, (len(X),))

    def one(own: Array, latent: Array, x: Array) -> Array:
        return network_output(sizes, own, latent, x[None])[0]

    standard = jax.vmap(one)(weights, z, X)
    standard = standard + link.noise_std * jax.random.normal(noise_key, standard.shape)
    return standard * link.y_unit + link.y_centre


def _sizes(inputs: int, weights: int) -> tuple[int, ...]:
    """Sizes of layers of the default network, of which the number of weights is that given."""
    hidden = BNNLV().hidden
    sizes = (inputs + 1, *hidden, 1)
    expected = sum(i * o + o for i, o in itertools.pairwise(sizes))
    if expected != weights:
        raise ValueError(f"the network has {weights} weights instead of {expected}")
    return sizes


class ChainModel:
    """BNN+LV of each state in turn, as `improve_policy` uses a model."""

    def __init__(self, bounds: Any, action_bounds: Any, **settings: Any):
        self.bounds, self.settings = np.asarray(bounds, float), settings
        self.action_bounds_ = np.asarray(action_bounds, float)
        self.n_regimes_ = 1

    def fit(self, states: np.ndarray, actions: np.ndarray, after: np.ndarray) -> "ChainModel":
        """Fit a network per state, each given the states before it."""
        self.states_ = states
        self.n_states_, self.n_actions_ = states.shape[1], actions.shape[1]
        rows, self.networks_ = np.hstack([states, actions]), []
        for column in after.T:
            self.networks_.append(BNNLV(**self.settings).fit(rows, column))
            rows = np.column_stack([rows, column])
        return self

    def dynamics(self, functions: Any = "trajectory") -> ChainDynamics:
        """The networks as a tree of arrays."""
        return ChainDynamics(tuple(map(Link.of, self.networks_)), *self.bounds.T)
