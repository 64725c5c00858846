"""Mean functions of a GP prior, in the user's units."""

import abc
import dataclasses
from collections.abc import Callable

import equinox as eqx
import jax.numpy as jnp
import numpy as np

from dagp.core.tags import storable
from dagp.core.typing import Array, Float, Inputs, Outputs
from dagp.model.parameters import Parameter, ParameterLike, parameter


def _real(name: str) -> Callable[[ParameterLike], Parameter]:
    """Converter of a field for an unconstrained parameter; see `dagp.model.kernel.positive`."""

    def convert(value: ParameterLike) -> Parameter:
        return parameter(value, default=0.0, support="real", name=name)

    return convert


def _moved(level: Parameter, by: np.ndarray | float) -> Parameter:
    """A parameter with `by`, in the user's units, added to its value; zero if that is automatic."""
    raw = np.asarray(level.raw, np.float64)
    raw = np.zeros_like(raw) if level.automatic else raw + by / level.unit
    return dataclasses.replace(level, raw=np.asarray(raw))


def _in_units(quantity: Parameter, unit: np.ndarray, name: str, of: str) -> Parameter:
    """The parameter in these units, with an entry for each, also where the user gave one number."""
    raw, shape = np.asarray(quantity.raw), np.shape(unit)
    if raw.ndim > len(shape) and raw.shape[-1] == 1:
        raw = raw[..., 0]
    elif raw.ndim == 1 and len(shape) == 2:
        raw = raw[:, None]  # the same slopes for every output
    try:
        np.broadcast_to(raw, shape)
    except ValueError:
        raise ValueError(
            f"{name} has shape {np.shape(quantity.raw)}, but one number or {of} is expected, "
            f"here {shape}."
        ) from None
    quantity = dataclasses.replace(quantity, raw=raw)
    scaled = quantity.in_units(unit)
    return dataclasses.replace(scaled, raw=np.broadcast_to(scaled.raw, shape))


class Mean(eqx.Module):
    """Mean function: maps inputs (N, D) to an array that broadcasts to outputs (N, P)."""

    @abc.abstractmethod
    def __call__(self, X: Inputs) -> Float[Array, "N _"]:
        """The prior mean at each row of `X`."""

    def in_units(self, x_unit: np.ndarray, y_unit: np.ndarray | float) -> "Mean":
        """The same function, with parameters scaled to these units for the optimiser.

        `y_unit` is a number for one output, and an array (P,) for several.
        """
        return self

    def seen_from(self, x: np.ndarray, y: np.ndarray | float) -> "Mean | None":
        """The mean function μ(x + ·) − y, around the point (x, y); None if its parameters cannot
        express it. Values that the user did not give begin at that point.

        Around the centre of the data, level and slope of a line are nearly independent. Its
        intercept at zero may be far from the data, and then changes with every step of the slope.
        """
        return None


@storable("mean/Zero")
class Zero(Mean):
    r"""Zero in the user's units: :math:`\mu(x) = 0`.

    >>> Zero()(np.ones((2, 1))).tolist()
    [[0.0], [0.0]]
    """

    def __call__(self, X: Inputs) -> Float[Array, "N _"]:
        return jnp.zeros_like(X, shape=(X.shape[0], 1))


@storable("mean/Constant")
class Constant(Mean):
    r"""Learned constant: :math:`\mu(x) = c`, one for each output.

    Parameters
    ----------
    constant : float, array-like of shape (P,) or Parameter, default=None
        Initial value of c, in the user's units; None is the centre of the outputs.

    Examples
    --------
    >>> Constant(3.0)(np.ones((2, 1))).tolist()
    [[3.0], [3.0]]
    """

    constant: Parameter = eqx.field(default=None, converter=_real("constant"))

    def __call__(self, X: Inputs) -> Float[Array, "N _"]:
        constant = jnp.atleast_1d(self.constant.in_user_units)
        return jnp.broadcast_to(constant, (X.shape[0], *constant.shape))

    def in_units(self, x_unit: np.ndarray, y_unit: np.ndarray | float) -> "Constant":
        unit = np.asarray(y_unit)
        return Constant(_in_units(self.constant, unit, "means.Constant", "one for each output"))

    def seen_from(self, x: np.ndarray, y: np.ndarray | float) -> "Constant | None":
        return Constant(_moved(self.constant, -y)) if self.constant.tie is None else None


@storable("mean/Linear")
class Linear(Mean):
    r"""Learned linear function: :math:`\mu(x) = b^\top x + c`, one for each output.

    Parameters
    ----------
    slope : float, array-like of shape (D,) or (D, P) or Parameter, default=None
        Initial value of b, in the user's units; None is zero.
    intercept : float, array-like of shape (P,) or Parameter, default=None
        Initial value of c, in the user's units; None lets the line begin at the centre of the data.

    Examples
    --------
    >>> Linear(slope=[2.0], intercept=1.0)(np.array([[3.0]])).tolist()
    [[7.0]]
    """

    slope: Parameter = eqx.field(default=None, converter=_real("slope"))
    intercept: Parameter = eqx.field(default=None, converter=_real("intercept"))

    def __call__(self, X: Inputs) -> Float[Array, "N _"]:
        slope = self.slope.in_user_units
        if slope.ndim < 2:
            slope = jnp.broadcast_to(slope, X.shape[1:])[:, None]
        return X @ slope + self.intercept.in_user_units

    def in_units(self, x_unit: np.ndarray, y_unit: np.ndarray | float) -> "Linear":
        unit = np.asarray(y_unit)
        steepness = unit / (x_unit[:, None] if unit.ndim else x_unit)
        inputs = "one for each input" + (" and output" if unit.ndim else "")
        return Linear(
            _in_units(self.slope, steepness, "slope of means.Linear", inputs),
            _in_units(self.intercept, unit, "intercept of means.Linear", "one for each output"),
        )

    def seen_from(self, x: np.ndarray, y: np.ndarray | float) -> "Linear | None":
        if self.intercept.frozen or self.intercept.tie is not None:
            return None
        # With NumPy: inputs may be too large for single precision.
        rise = x @ (np.asarray(self.slope.raw, np.float64) * self.slope.unit)
        return Linear(self.slope, _moved(self.intercept, rise - y))


@storable("mean/Identity")
class Identity(Mean):
    r"""Identity: :math:`\mu(x) = x`, for inner layers as wide as their input.

    >>> Identity()(np.ones((1, 2))).tolist()
    [[1.0, 1.0]]
    """

    def __call__(self, X: Inputs) -> Outputs:
        return jnp.asarray(X)


@storable("mean/Projection")
class Projection(Mean):
    r"""Projection: :math:`\mu(x) = W^\top x` with fixed `axes` W, for inner layers of other width.

    >>> Projection(np.array([[1.0], [2.0]]))(np.ones((1, 2))).tolist()
    [[3.0]]
    """

    axes: Float[Array, "D W"]

    def __call__(self, X: Inputs) -> Outputs:
        return X @ self.axes


@storable("mean/Centred")
class Centred(Mean):
    r"""Zero in standardised units, :math:`\mu(x) = \bar y`: the centre of the data (default)."""

    def __call__(self, X: Inputs) -> Float[Array, "N _"]:
        return jnp.zeros_like(X, shape=(X.shape[0], 1))


@storable("mean/InUnits")
class InUnits(Mean):
    """A mean function in the user's units, as a function of standardised inputs."""

    mean: Mean
    x_centre: Array
    x_unit: Array
    y_centre: Array
    y_unit: Array

    def __call__(self, X: Inputs) -> Float[Array, "N _"]:
        return (self.mean(X * self.x_unit + self.x_centre) - self.y_centre) / self.y_unit
