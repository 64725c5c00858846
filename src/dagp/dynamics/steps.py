"""One step ahead: what each regime makes of a state and an action, and the regimes' probabilities.

`Dynamics` is what roll-outs and policy search need of a model; `ModelDynamics` is that of a fitted
`DAGP`. Trees of arrays, to be passed through compiled programs.
"""

import abc
from collections.abc import Sequence
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp

from dagp.core.typing import Array, Float, Inputs
from dagp.dynamics.functions import (
    draw_features,
    draw_functions,
    prepared,
    with_functions,
    without_processes,
)
from dagp.inference.standardize import Units
from dagp.model.association import DataAssociation
from dagp.model.process import Components, Process
from dagp.predict.posterior import Posterior

States = Float[Array, "N S"]
Actions = Float[Array, "N A"]


class Outcomes(NamedTuple):
    """The next step of N trajectories."""

    candidates: Float[Array, "N K S"]
    """A draw of the next state under each regime."""
    weights: Float[Array, "N K"]
    """Probability of each regime."""


class Dynamics(eqx.Module):
    """A model of transitions, as roll-outs use it."""

    @property
    @abc.abstractmethod
    def n_regimes(self) -> int:
        """Number of regimes K."""

    @abc.abstractmethod
    def begin(self, key: Array, count: int) -> Any:
        """What is drawn once for each of so many trajectories."""

    @abc.abstractmethod
    def outcomes(self, drawn: Any, states: States, actions: Actions, key: Array) -> Outcomes:
        """Draws of the next state, for what `begin` has drawn."""


class Frame(NamedTuple):
    """How the model's outputs become states."""

    lower: Float[Array, " S"]
    upper: Float[Array, " S"]
    """Bounds of the states; infinite where there are none."""
    period: Float[Array, " S"]
    """Period of states such as angles, which then are between plus and minus half of it; infinite
    for the others."""
    reset: Float[Array, " S"] | None
    """State after a reset; None without such a regime."""
    standing: Float[Array, ""]
    """One if outputs are differences of states, zero if they are states."""

    def placed(self, states: Float[Array, "N K S"]) -> Float[Array, "N K S"]:
        """States inside of their bounds and periods."""
        # The period that is used must be finite: zero turns of infinity are not zero.
        finite = jnp.where(jnp.isinf(self.period), 1.0, self.period)
        around = jnp.where(jnp.isinf(self.period), 0.0, finite * jnp.round(states / finite))
        return jnp.clip(states - around, self.lower, self.upper)


class Single(NamedTuple):
    """The function of one state in one regime."""

    model: DataAssociation
    units: Units


class ModelDynamics(Dynamics):
    """Transitions of a trained model of data association."""

    model: DataAssociation
    """The gate of all regimes, and the functions of those without models of their own."""
    units: Units
    own: tuple[tuple[Single, ...] | None, ...]
    """Functions of each regime with a model for every state; None: those of `model`."""
    frame: Frame
    reset_regime: int | None = eqx.field(static=True)
    whole: bool = eqx.field(static=True)
    """Whether a function is drawn for a whole trajectory, or its value at every step."""
    uniform: tuple[bool, ...] = eqx.field(static=True)
    """Which regimes have uniform rather than normal observations."""

    @staticmethod
    def of(
        posterior: Posterior,
        own: Sequence[Sequence[Posterior] | None],
        frame: Frame,
        reset_regime: int | None,
        whole: bool,
    ) -> "ModelDynamics":
        """The dynamics of trained models, prepared for many steps."""
        singles = tuple(
            None if parts is None else tuple(Single(prepared(p.model), p.units) for p in parts)
            for parts in own
        )
        model, units = posterior.model, posterior.units
        elsewhere = [k for k, parts in enumerate(own) if parts is not None]
        rest = without_processes(prepared(model), elsewhere)
        return ModelDynamics(rest, units, singles, frame, reset_regime, whole, model.is_uniform)

    @property
    def n_regimes(self) -> int:
        return len(self.own)

    @property
    def _models(self) -> list[DataAssociation]:
        """All models: the joint one, and those of single states."""
        return [self.model, *(single.model for parts in self.own for single in parts or ())]

    def begin(self, key: Array, count: int) -> Any:
        if not self.whole:
            return ()
        feature_key, draw_key = jax.random.split(key)
        pairs = zip(self._models, jax.random.split(feature_key, len(self._models)), strict=True)
        features = [draw_features(model, own) for model, own in pairs]

        def draw(own: Array) -> list[Any]:
            keys = jax.random.split(own, len(features))
            each = zip(self._models, features, keys, strict=True)
            return [draw_functions(*one) for one in each]

        return features, jax.vmap(draw)(jax.random.split(draw_key, count))

    def outcomes(self, drawn: Any, states: States, actions: Actions, key: Array) -> Outcomes:
        weights, mean, variance = self.predictions(drawn, states, actions, key)
        normal_key, uniform_key = jax.random.split(jax.random.fold_in(key, 1))
        # Regimes share their deviates: only one of them comes true.
        shape = mean.shape[:1] + mean.shape[2:]
        normal = jax.random.normal(normal_key, shape, mean.dtype)[:, None]
        flat = jax.random.uniform(uniform_key, shape, mean.dtype, -1.0, 1.0)[:, None]
        uniform = jnp.asarray(self.uniform)[:, None]
        deviate = jnp.where(uniform, jnp.sqrt(3.0) * flat, normal)
        # The offset keeps the derivative of the root finite at zero variance.
        candidates = mean + jnp.sqrt(variance + 1e-18) * deviate
        if self.reset_regime is not None and self.frame.reset is not None:
            reset = jnp.arange(self.n_regimes) == self.reset_regime
            candidates = jnp.where(reset[:, None], jnp.asarray(self.frame.reset), candidates)
        return Outcomes(self.frame.placed(candidates), weights)

    def predictions(
        self, drawn: Any, states: States, actions: Actions, key: Array
    ) -> tuple[Float[Array, "N K"], Float[Array, "N K S"], Float[Array, "N K S"]]:
        """Probability of each regime, and mean and variance of a normal next state in each.

        Where the prediction of a regime is a mixture, one of its components is drawn.
        """
        weights, regimes = self._components(drawn, states, actions)
        parts = [
            [
                _one_component(part, jax.random.fold_in(key, 2 + 100 * k + p))
                for p, part in enumerate(own)
            ]
            for k, own in enumerate(regimes)
        ]
        mean, variance = _side_by_side(parts)
        return weights, mean + self.frame.standing * states[:, None], variance

    def moments(
        self, states: States, actions: Actions
    ) -> tuple[Float[Array, "N K S"], Float[Array, "N K S"]]:
        """Mean and variance of the next state in each regime, without bounds."""
        _, regimes = self._components((), states, actions)
        mean, variance = _side_by_side([[_all_components(p) for p in own] for own in regimes])
        return mean + self.frame.standing * states[:, None], variance

    def _components(
        self, drawn: Any, states: States, actions: Actions
    ) -> tuple[Float[Array, "N K"], list[list[Components]]]:
        """Weights, and of each regime the components, for all states together or one by one."""
        X = jnp.concatenate([states, actions], axis=1)
        found = [
            self._predict(i, model, units, drawn, X)
            for i, (model, units) in enumerate(zip(self._models, self._units, strict=True))
        ]
        weights, joint = found[0]
        rest = iter(found[1:])
        return weights, [
            [joint[k]] if parts is None else [next(rest)[1][0] for _ in parts]
            for k, parts in enumerate(self.own)
        ]

    @property
    def _units(self) -> list[Units]:
        return [self.units, *(single.units for parts in self.own for single in parts or ())]

    def _predict(
        self, index: int, model: DataAssociation, units: Units, drawn: Any, X: Inputs
    ) -> tuple[Float[Array, "N K"], dict[int, Components]]:
        """Weights and components of one of the models, in the user's units."""
        standard = (X - units.x_centre) / units.x_unit
        if self.whole:
            features, draws = (part[index] for part in drawn)

            def along(own: Any, x: Float[Array, " D"]) -> Any:
                return _predictive(with_functions(model, features, own), x[None])

            weights, parts = jax.vmap(along)(draws, standard)
            weights = weights[:, 0]
            parts = {k: _trajectories_last(part) for k, part in parts.items()}
        else:
            weights, parts = _predictive(model, standard)
        return weights, {k: _in_units(part, units) for k, part in parts.items()}


def _trajectories_last(part: Components) -> Components:
    """Components of one point per trajectory, as those of one trajectory's many points."""
    mean, variance, noise = (jnp.swapaxes(a[:, :, 0], 0, 1) for a in part[1:])
    return Components(part.masses[0], mean, variance, noise)


def _in_units(part: Components, units: Units) -> Components:
    square = units.y_unit**2
    mean = part.mean * units.y_unit + units.y_centre
    return Components(part.masses, mean, part.variance * square, part.noise * square)


def _predictive(
    model: DataAssociation, X: Inputs
) -> tuple[Float[Array, "N K"], dict[int, Components]]:
    """Mixing weights and the components of each process that the model has functions for."""
    marginals = model.marginals(model.project(X))

    def of_group(group: Process, part: Any) -> Components:
        return jax.vmap(lambda process, own: process.components(own))(group, part)

    groups = tuple(map(of_group, model.groups, marginals.groups))
    found: dict[int, Components] = {}
    for group, members in zip(groups, model.members, strict=True):
        for i, k in enumerate(members):
            found[k] = Components(*(leaf[i] for leaf in group))
    return marginals.gate.weights, found


def _one_component(part: Components, key: Array) -> tuple[Float[Array, "N P"], Float[Array, "N P"]]:
    """Mean and variance of one component for every point, drawn by their masses."""
    mean, variance = part.mean, part.variance + part.noise
    if len(mean) == 1:
        return mean[0], variance[0]
    chosen = jax.random.categorical(key, jnp.log(part.masses), shape=(mean.shape[1],))
    points = jnp.arange(mean.shape[1])
    return mean[chosen, points], variance[chosen, points]


def _all_components(part: Components) -> tuple[Float[Array, "N P"], Float[Array, "N P"]]:
    """Mean and variance of all components together."""
    mean = jnp.tensordot(part.masses, part.mean, axes=1)
    spread = part.variance + part.noise + (part.mean - mean) ** 2
    return mean, jnp.tensordot(part.masses, spread, axes=1)


def _side_by_side(parts: list[list[tuple[Array, Array]]]) -> tuple[Array, Array]:
    """Means and variances (N, K, S) of regimes whose states come together or one by one."""
    joined = [[jnp.concatenate(p, axis=1) for p in zip(*own, strict=True)] for own in parts]
    mean, variance = (jnp.stack(p, axis=1) for p in zip(*joined, strict=True))
    return mean, variance
