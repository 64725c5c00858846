"""Full-batch gradient ascent by Adam, with the optimiser and training loop of `DAGP`."""

import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from dagp.core.typing import Array, Float, Inputs, PerPoint, Scalar
from dagp.inference.standardize import Units
from dagp.inference.train import ADAM, BLOCK, Result, adam_step, train
from dagp.model.association import Batch
from dagp.model.kernel import Kernel
from dagp.model.parameters import Parameter, parameter, trainable


class AdamState(NamedTuple):
    """Model and optimiser state."""

    model: Any
    opt_state: Any


class ObjectiveTrace(NamedTuple):
    """The objective at each step of a block."""

    value: Float[Array, " T"]


def full_batch(X: Inputs, y: PerPoint) -> Batch:
    """All data as one batch."""
    n = len(X)
    return Batch(jnp.asarray(X), jnp.asarray(y)[:, None], jnp.ones(n), jnp.zeros((n, 1)))


def initial_gp(
    kernel: Kernel, units: Units, lengthscale: float, noise_std: float
) -> tuple[Kernel, Parameter]:
    """Kernel and noise of a GP at initial values, in standardised units."""
    lengthscale *= float(np.sqrt(len(units.x_unit)))
    log_unit = 2 * float(np.log(units.y_unit[0]))
    noise = parameter(None).in_units(units.y_unit[0]).starting_at(noise_std)
    return kernel.in_units(units.x_unit, log_unit, lengthscale), noise


Objective = Callable[[Any, Batch], Scalar]
"""Module-level function, not a closure: it is the key of the compiled code."""


def maximise(
    objective: Objective, model: Any, batch: Batch, *, max_iter: int, tol: float
) -> Result:
    """Maximise an objective over the trainable parameters of a model until it converges."""
    state = AdamState(model, ADAM.init(eqx.filter(model, trainable(model))))
    block = functools.partial(_block, objective)
    return train(state, batch, max_iter=max_iter, tol=tol, block=block)


@functools.partial(jax.jit, static_argnums=0)
def _block(
    objective: Objective, state: AdamState, batch: Batch, rate: Scalar
) -> tuple[AdamState, ObjectiveTrace]:
    mask = trainable(state.model)

    def step(state: AdamState, _: None) -> tuple[AdamState, Scalar]:
        moving, rest = eqx.partition(state.model, mask)

        def loss(moving: Any) -> Scalar:
            return -objective(eqx.combine(moving, rest), batch)

        value, gradient = jax.value_and_grad(loss)(moving)
        moving, opt_state = adam_step(moving, gradient, state.opt_state, rate)
        return AdamState(eqx.combine(moving, rest), opt_state), -value

    state, values = jax.lax.scan(step, state, length=BLOCK)
    return state, ObjectiveTrace(values)
