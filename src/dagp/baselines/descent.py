"""Gradient training of the rivals, by the optimiser and the loop that train `DAGP` itself."""

import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp

from dagp.model import Batch
from dagp.parameters import trainable
from dagp.train import ADAM, BLOCK, Result, apply, train
from dagp.typing import Array, Float, Inputs, PerPoint, Scalar

__all__ = ["Climber", "Heights", "climb", "whole"]


class Climber(NamedTuple):
    """What a step on the whole data reads and writes."""

    model: Any
    moments: Any


class Heights(NamedTuple):
    """The objective at each step of a block."""

    value: Float[Array, " T"]


def whole(X: Inputs, y: PerPoint) -> Batch:
    """All data as one batch."""
    n = len(X)
    return Batch(jnp.asarray(X), jnp.asarray(y)[:, None], jnp.ones(n), jnp.zeros((n, 1)))


def climb(
    objective: Callable[[Any, Batch], Scalar],
    model: Any,
    batch: Batch,
    *,
    max_iter: int,
    tol: float,
) -> Result:
    """Move the parameters of a model up an objective until it stops rising.

    `objective` is a function of its own, not a closure: compiled code is kept by its identity.
    """
    state = Climber(model, ADAM.init(eqx.filter(model, trainable(model))))
    block = functools.partial(_block, objective)
    return train(state, batch, max_iter=max_iter, tol=tol, block=block)


@functools.partial(jax.jit, static_argnums=0)
def _block(
    objective: Callable[[Any, Batch], Scalar], state: Climber, batch: Batch, rate: Scalar
) -> tuple[Climber, Heights]:
    mask = trainable(state.model)

    def step(state: Climber, _: None) -> tuple[Climber, Scalar]:
        moving, rest = eqx.partition(state.model, mask)

        def loss(moving: Any) -> Scalar:
            return -objective(eqx.combine(moving, rest), batch)

        value, gradient = jax.value_and_grad(loss)(moving)
        moving, moments = apply(moving, gradient, state.moments, rate)
        return Climber(eqx.combine(moving, rest), moments), -value

    state, values = jax.lax.scan(step, state, length=BLOCK)
    return state, Heights(values)
