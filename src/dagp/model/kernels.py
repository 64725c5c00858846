"""Kernels that users combine: stationary, periodic, linear and white.

Parameters are in the user's units; one left out is chosen from the data (length scales per input).
"""

import abc
import dataclasses
from typing import ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from dagp.core.tags import storable
from dagp.core.typing import Array, Float, Inputs, Scalar
from dagp.model.kernel import Kernel, Point, as_columns, positive
from dagp.model.parameters import Parameter

_Distances = Float[Array, "*pairs"]
"""Of one pair of points, or of many at once."""


class _Stationary(Kernel):
    """Kernels of the scaled distance, :math:`r^2 = \\sum_d (x_d - x'_d)^2 / \\ell_d^2`.

    A subclass states the correlation as a function of r².
    """

    lengthscale: Parameter = eqx.field(default=None, converter=positive("lengthscale"))
    variance: Parameter = eqx.field(default=None, converter=positive("variance"))
    active: tuple[int, ...] | None = eqx.field(default=None, converter=as_columns, static=True)

    flat: ClassVar[bool] = True
    """Whether the correlation has a finite slope in r² at zero distance."""

    @abc.abstractmethod
    def correlation(self, squared_distance: _Distances) -> _Distances:
        """Correlation at a squared distance, measured in length scales."""

    def evaluate(self, a: Point, b: Point) -> Scalar:
        z = (a - b) / self.lengthscale.value
        return self.variance.value * self.correlation(jnp.sum(z**2))

    def matrix(self, A: Inputs, B: Float[Array, "N2 D"]) -> Float[Array, "N N2"]:
        return self.variance.value * self.correlation(self.squares(A, B))

    def squares(self, A: Inputs, B: Float[Array, "N2 D"]) -> Float[Array, "N N2"]:
        """Squared distances between the rows of `A` and the rows of `B`, in length scales."""
        if A.shape[1] == 1 or not self.flat:
            # Divided beforehand: the slopes of the length scales come from points, not from pairs.
            a, b = A / self.lengthscale.value, B / self.lengthscale.value
            return jnp.sum((a[:, None] - b) ** 2, axis=-1)
        # By the binomial formula the distances, and their gradients, are matrix products: no
        # array over points, points and columns. What cancellation costs, a kernel that is flat at
        # zero distance does not notice, as long as the points are not far from zero.
        origin = jax.lax.stop_gradient(jnp.median(A, axis=0))
        a, b = (A - origin) / self.lengthscale.value, (B - origin) / self.lengthscale.value
        squares = jnp.sum(a**2, axis=1)[:, None] + jnp.sum(b**2, axis=1) - 2 * a @ b.T
        return jnp.maximum(squares, 0.0)

    def in_units(self, x_unit: np.ndarray, log_variance_unit: float, lengthscale: float) -> Kernel:
        return dataclasses.replace(
            self,
            lengthscale=self.lengthscale.in_units(self.select(x_unit)).starting_at(lengthscale),
            variance=self.variance.in_log_units(log_variance_unit),
        )


def _distance(squared: _Distances) -> _Distances:
    # The square root has no finite slope at zero; the detour keeps gradients finite there. NaN is
    # no zero: a parameter that is not a number must not look like a kernel that is constant.
    zero = squared <= 0
    return jnp.where(zero, 0.0, jnp.sqrt(jnp.where(zero, 1.0, squared)))


@storable("kernel/SquaredExponential")
class SquaredExponential(_Stationary):
    r"""Infinitely smooth functions (RBF, Gaussian kernel).

    .. math:: k(x, x') = \sigma^2 \exp(-r^2 / 2)

    with :math:`r^2 = \sum_d (x_d - x'_d)^2 / \ell_d^2`.

    Parameters
    ----------
    lengthscale : float, array of shape (D,) or Parameter, default=None
        Distance over which values are correlated, in the user's units.
    variance : float or Parameter, default=None
        Variance of the function.
    active : sequence of int, default=None
        Input columns the kernel sees; all if None.

    Examples
    --------
    >>> SquaredExponential(lengthscale=1.0, variance=2.0)
    SquaredExponential(lengthscale=1, variance=2)
    """

    def correlation(self, squared_distance: _Distances) -> _Distances:
        return jnp.exp(-0.5 * squared_distance)


@storable("kernel/Matern12")
class Matern12(_Stationary):
    r"""Continuous, rough functions (Matérn-1/2, Ornstein-Uhlenbeck).

    .. math:: k(x, x') = \sigma^2 \exp(-r)

    with r and parameters as in `SquaredExponential`.

    Parameters
    ----------
    lengthscale, variance : float, array or Parameter, default=None
    active : sequence of int, default=None

    Examples
    --------
    >>> float(Matern12(1.0, 1.0)(np.zeros((1, 1)), np.zeros((1, 1)))[0, 0])
    1.0
    """

    flat: ClassVar[bool] = False

    def correlation(self, squared_distance: _Distances) -> _Distances:
        return jnp.exp(-_distance(squared_distance))


@storable("kernel/Matern32")
class Matern32(_Stationary):
    r"""Once differentiable functions (Matérn-3/2).

    .. math:: k(x, x') = \sigma^2 (1 + \sqrt{3} r) \exp(-\sqrt{3} r)

    with r and parameters as in `SquaredExponential`.

    Parameters
    ----------
    lengthscale, variance : float, array or Parameter, default=None
    active : sequence of int, default=None

    Examples
    --------
    >>> float(Matern32(1.0, 3.0)(np.zeros((1, 1)), np.zeros((1, 1)))[0, 0])
    3.0
    """

    def correlation(self, squared_distance: _Distances) -> _Distances:
        d = np.sqrt(3.0) * _distance(squared_distance)
        return (1 + d) * jnp.exp(-d)


@storable("kernel/Matern52")
class Matern52(_Stationary):
    r"""Twice differentiable functions (Matérn-5/2): a sound choice for measured curves.

    .. math:: k(x, x') = \sigma^2 (1 + \sqrt{5} r + 5 r^2 / 3) \exp(-\sqrt{5} r)

    with r and parameters as in `SquaredExponential`.

    Parameters
    ----------
    lengthscale, variance : float, array or Parameter, default=None
    active : sequence of int, default=None

    Examples
    --------
    >>> float(Matern52(1.0, 3.0)(np.zeros((1, 1)), np.zeros((1, 1)))[0, 0])
    3.0
    """

    def correlation(self, squared_distance: _Distances) -> _Distances:
        d = np.sqrt(5.0) * _distance(squared_distance)
        return (1 + d + d**2 / 3) * jnp.exp(-d)


@storable("kernel/RationalQuadratic")
class RationalQuadratic(Kernel):
    r"""A scale mixture of squared exponentials.

    .. math:: k(x, x') = \sigma^2 (1 + r^2 / 2 \alpha)^{-\alpha}

    Parameters
    ----------
    lengthscale, variance : float, array or Parameter, default=None
    active : sequence of int, default=None
    alpha : float or Parameter, default=None
        Large values approach the squared exponential.

    Examples
    --------
    >>> RationalQuadratic(alpha=2.0).alpha.in_user_units.item()
    2.0
    """

    lengthscale: Parameter = eqx.field(default=None, converter=positive("lengthscale"))
    variance: Parameter = eqx.field(default=None, converter=positive("variance"))
    alpha: Parameter = eqx.field(default=None, converter=positive("alpha"))
    active: tuple[int, ...] | None = eqx.field(default=None, converter=as_columns, static=True)

    def evaluate(self, a: Point, b: Point) -> Scalar:
        alpha, z = self.alpha.value, (a - b) / self.lengthscale.value
        return self.variance.value * jnp.exp(-alpha * jnp.log1p(jnp.sum(z**2) / (2 * alpha)))

    def in_units(self, x_unit: np.ndarray, log_variance_unit: float, lengthscale: float) -> Kernel:
        return dataclasses.replace(
            self,
            lengthscale=self.lengthscale.in_units(self.select(x_unit)).starting_at(lengthscale),
            variance=self.variance.in_log_units(log_variance_unit),
        )


@storable("kernel/Periodic")
class Periodic(Kernel):
    r"""Functions that repeat.

    .. math:: k(x, x') = \sigma^2 \exp(-2 \sum_d \sin^2(\pi (x_d - x'_d) / p) / \ell^2)

    Parameters
    ----------
    period : float, array of shape (D,) or Parameter, default=None
        Period p, in the user's units.
    lengthscale : float or Parameter, default=None
        Length scale relative to the period; it has no unit.
    variance : float or Parameter, default=None
    active : sequence of int, default=None

    Examples
    --------
    >>> k = Periodic(period=2.0)
    >>> bool(np.isclose(k(np.zeros((1, 1)), np.full((1, 1), 2.0))[0, 0], 1.0))
    True
    """

    period: Parameter = eqx.field(default=None, converter=positive("period"))
    lengthscale: Parameter = eqx.field(default=None, converter=positive("lengthscale"))
    variance: Parameter = eqx.field(default=None, converter=positive("variance"))
    active: tuple[int, ...] | None = eqx.field(default=None, converter=as_columns, static=True)

    def evaluate(self, a: Point, b: Point) -> Scalar:
        z = jnp.sin(np.pi * (a - b) / self.period.value) / self.lengthscale.value
        return self.variance.value * jnp.exp(-2 * jnp.sum(z**2))

    def in_units(self, x_unit: np.ndarray, log_variance_unit: float, lengthscale: float) -> Kernel:
        return dataclasses.replace(
            self,
            period=self.period.in_units(self.select(x_unit)),
            variance=self.variance.in_log_units(log_variance_unit),
        )


@storable("kernel/Linear")
class Linear(Kernel):
    r"""Straight lines through the centre of the data.

    .. math:: k(x, x') = \sum_d \sigma_d^2 x_d x'_d

    Parameters
    ----------
    variance : float, array of shape (D,) or Parameter, default=None
        Variance of the slopes.
    active : sequence of int, default=None

    Examples
    --------
    >>> float(Linear(variance=2.0)(np.full((1, 1), 3.0), np.full((1, 1), 4.0))[0, 0])
    24.0
    """

    variance: Parameter = eqx.field(default=None, converter=positive("variance"))
    active: tuple[int, ...] | None = eqx.field(default=None, converter=as_columns, static=True)

    def evaluate(self, a: Point, b: Point) -> Scalar:
        return jnp.sum(self.variance.value * a * b)

    def in_units(self, x_unit: np.ndarray, log_variance_unit: float, lengthscale: float) -> Kernel:
        log_unit = log_variance_unit - 2 * np.log(self.select(x_unit))
        return dataclasses.replace(self, variance=self.variance.in_log_units(log_unit))


@storable("kernel/White")
class White(Kernel):
    r"""Independent noise at every distinct input.

    .. math:: k(x, x') = \sigma^2 [x = x']

    Parameters
    ----------
    variance : float or Parameter, default=None
    active : sequence of int, default=None

    Examples
    --------
    >>> White(1.0)(np.arange(2.0)[:, None], np.arange(2.0)[:, None]).tolist()
    [[1.0, 0.0], [0.0, 1.0]]
    """

    variance: Parameter = eqx.field(default=None, converter=positive("variance"))
    active: tuple[int, ...] | None = eqx.field(default=None, converter=as_columns, static=True)

    def evaluate(self, a: Point, b: Point) -> Scalar:
        return self.variance.value * jnp.all(a == b)

    def in_units(self, x_unit: np.ndarray, log_variance_unit: float, lengthscale: float) -> Kernel:
        return dataclasses.replace(self, variance=self.variance.in_log_units(log_variance_unit))
