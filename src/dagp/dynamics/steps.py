"""One step ahead: what each regime makes of a state and an action, and the regimes' probabilities.

`Dynamics` is what roll-outs and policy search need of a model; `ModelDynamics` is that of a fitted
`DAGP`. Trees of arrays, to be passed through compiled programs.
"""

import abc
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp

from dagp.core.typing import Array, Float, Inputs
from dagp.dynamics.functions import draw_functions, prepared, with_functions
from dagp.inference.standardize import Units
from dagp.model.association import DataAssociation
from dagp.model.process import Components, Process

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
        """What is drawn once for each of so many trajectories; first axis: trajectories."""

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


class ModelDynamics(Dynamics):
    """Transitions of a trained model of data association."""

    model: DataAssociation
    units: Units
    frame: Frame
    reset_regime: int | None = eqx.field(static=True)
    whole: bool = eqx.field(static=True)
    """Whether a function is drawn for a whole trajectory, or its value at every step."""
    uniform: tuple[bool, ...] = eqx.field(static=True)
    """Which regimes have uniform rather than normal observations."""

    @staticmethod
    def of(
        model: DataAssociation,
        units: Units,
        frame: Frame,
        reset_regime: int | None,
        whole: bool,
    ) -> "ModelDynamics":
        """The dynamics of a trained model, prepared for many steps."""
        ready = prepared(model)
        return ModelDynamics(ready, units, frame, reset_regime, whole, model.is_uniform)

    @property
    def n_regimes(self) -> int:
        return self.model.n_processes

    def begin(self, key: Array, count: int) -> Any:
        if not self.whole:
            return ()
        return jax.vmap(lambda own: draw_functions(self.model, own))(jax.random.split(key, count))

    def outcomes(self, drawn: Any, states: States, actions: Actions, key: Array) -> Outcomes:
        X = jnp.concatenate([states, actions], axis=1)
        X = (X - self.units.x_centre) / self.units.x_unit
        if self.whole:
            weights, parts = jax.vmap(self._predict_along)(drawn, X)
        else:
            weights, parts = _predictive(self.model, X)
        values = self._observations(parts, key) * self.units.y_unit + self.units.y_centre
        candidates = values + self.frame.standing * states[:, None]
        if self.reset_regime is not None:
            candidates = candidates.at[:, self.reset_regime].set(self.frame.reset)
        return Outcomes(self.frame.placed(candidates), weights)

    def _predict_along(self, draws: Any, x: Float[Array, " D"]) -> tuple[Any, list[Components]]:
        """Prediction at one point, of the functions of one trajectory."""
        weights, parts = _predictive(with_functions(self.model, draws), x[None])
        return weights[0], [part._replace(**_first_point(part)) for part in parts]

    def _observations(self, parts: list[Components], key: Array) -> Float[Array, "N K P"]:
        """A draw from every regime at every point."""
        # Regimes share their deviates: only one of them comes true.
        component_key, normal_key, uniform_key = jax.random.split(key, 3)
        drawn = []
        for k, part in enumerate(parts):
            mean, std = _one_component(part, self.whole, component_key)
            if self.uniform[k]:
                flat = jax.random.uniform(uniform_key, mean.shape, minval=-1.0, maxval=1.0)
                drawn.append(mean + jnp.sqrt(3.0) * std * flat)
            else:
                drawn.append(mean + std * jax.random.normal(normal_key, mean.shape))
        return jnp.stack(drawn, axis=1)


def _predictive(model: DataAssociation, X: Inputs) -> tuple[Float[Array, "N K"], list[Components]]:
    """Mixing weights and the components of each process, in their order."""
    marginals = model.marginals(model.project(X))

    def of_group(group: Process, part: Any) -> Components:
        return jax.vmap(lambda process, own: process.components(own))(group, part)

    groups = tuple(map(of_group, model.groups, marginals.groups))
    found: dict[int, Components] = {}
    for group, members in zip(groups, model.members, strict=True):
        for i, k in enumerate(members):
            found[k] = Components(*(leaf[i] for leaf in group))
    return marginals.gate.weights, [found[k] for k in sorted(found)]


def _first_point(part: Components) -> dict[str, Any]:
    return {name: getattr(part, name)[:, 0] for name in ("mean", "variance", "noise")}


def _one_component(
    part: Components, along: bool, key: Array
) -> tuple[Float[Array, "N P"], Float[Array, "N P"]]:
    """Mean and standard deviation of one component for every point, drawn by their masses."""
    if along:
        # First axis trajectories, then components.
        mean, variance, masses = part.mean, part.variance + part.noise, part.masses[0]
    else:
        spread = part.variance + part.noise
        mean, variance, masses = part.mean.swapaxes(0, 1), spread.swapaxes(0, 1), part.masses
    count, components = mean.shape[:2]
    # The offset keeps the derivative of the root finite at zero variance.
    std = jnp.sqrt(variance + 1e-18)
    if components == 1:
        return mean[:, 0], std[:, 0]
    chosen = jax.random.categorical(key, jnp.log(masses), shape=(count,))[:, None, None]
    picked = (jnp.take_along_axis(array, chosen, axis=1)[:, 0] for array in (mean, std))
    return next(picked), next(picked)
