"""Mean functions of a process's prior, written in the user's units."""

import abc
from functools import partial
from typing import Any

import equinox as eqx
import jax.numpy as jnp
import numpy as np

from dagp.parameters import Parameter, parameter
from dagp.typing import Array, Float, Inputs, Outputs

__all__ = ["Centred", "Constant", "Identity", "InUnits", "Linear", "Mean", "Projection", "Zero"]


def _real(name: str) -> Any:
    """A field for an unconstrained parameter that starts at zero."""
    return eqx.field(default=0.0, converter=partial(parameter, support="real", name=name))


class Mean(eqx.Module):
    """A mean function maps inputs (N, D) to something that broadcasts to outputs (N, P)."""

    @abc.abstractmethod
    def __call__(self, X: Inputs) -> Float[Array, "N _"]:
        """The prior mean at each row of `X`."""

    def in_units(self, x_unit: np.ndarray, y_unit: float) -> "Mean":
        """The same function, with parameters that move in steps fit for these units."""
        return self


class Zero(Mean):
    """Zero, in the user's units.

    >>> Zero()(np.ones((2, 1))).tolist()
    [[0.0], [0.0]]
    """

    def __call__(self, X: Inputs) -> Float[Array, "N _"]:
        return jnp.zeros_like(X, shape=(X.shape[0], 1))


class Constant(Mean):
    """A learned constant.

    >>> Constant(3.0)(np.ones((2, 1))).tolist()
    [[3.0], [3.0]]
    """

    constant: Parameter = _real("constant")

    def __call__(self, X: Inputs) -> Float[Array, "N _"]:
        return jnp.broadcast_to(self.constant.natural, (X.shape[0], 1))

    def in_units(self, x_unit: np.ndarray, y_unit: float) -> "Constant":
        return Constant(self.constant.in_units(y_unit))


class Linear(Mean):
    """A straight line (or plane): ``X @ slope + intercept``.

    >>> Linear(slope=[2.0], intercept=1.0)(np.array([[3.0]])).tolist()
    [[7.0]]
    """

    slope: Parameter = _real("slope")
    intercept: Parameter = _real("intercept")

    def __call__(self, X: Inputs) -> Float[Array, "N _"]:
        slope = jnp.broadcast_to(self.slope.natural, X.shape[1:])
        return (X @ slope + self.intercept.natural)[:, None]

    def in_units(self, x_unit: np.ndarray, y_unit: float) -> "Linear":
        return Linear(self.slope.in_units(y_unit / x_unit), self.intercept.in_units(y_unit))


class Identity(Mean):
    """The input itself (for inner layers, where inputs and outputs match in width).

    >>> Identity()(np.ones((1, 2))).tolist()
    [[1.0, 1.0]]
    """

    def __call__(self, X: Inputs) -> Outputs:
        return jnp.asarray(X)


class Projection(Mean):
    """The input in other directions (for inner layers whose width is not that of the input).

    >>> Projection(np.array([[1.0], [2.0]]))(np.ones((1, 2))).tolist()
    [[3.0]]
    """

    axes: Float[Array, "D W"]

    def __call__(self, X: Inputs) -> Outputs:
        return X @ self.axes


class Centred(Mean):
    """Zero in standardised units: the centre of the data, the default of every process."""

    def __call__(self, X: Inputs) -> Float[Array, "N _"]:
        return jnp.zeros_like(X, shape=(X.shape[0], 1))


class InUnits(Mean):
    """A mean function stated in the user's units, seen from the standardised model."""

    mean: Mean
    x_centre: Array
    x_unit: Array
    y_centre: Array
    y_unit: Array

    def __call__(self, X: Inputs) -> Float[Array, "N _"]:
        return (self.mean(X * self.x_unit + self.x_centre) - self.y_centre) / self.y_unit
