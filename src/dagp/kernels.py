"""Covariance functions.

A kernel says how two *points* covary (`evaluate`); the base class maps that over arrays. Kernels
add and multiply; ``active`` restricts one to some of the input columns. Parameters are stated in
the user's units. What is left out is chosen from the data, with one length scale per input.

>>> import numpy as np
>>> k = 2.0 * SquaredExponential(lengthscale=0.5) + Linear(active=[0])
>>> k(np.zeros((3, 2)), np.ones((4, 2))).shape
(3, 4)
"""

import abc
import dataclasses
import functools
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from dagp.parameters import Parameter, is_parameter, parameter
from dagp.typing import Array, Columns, Float, Inputs, PerPoint, Scalar

__all__ = [
    "Constant",
    "Kernel",
    "Linear",
    "Matern12",
    "Matern32",
    "Matern52",
    "Periodic",
    "Product",
    "RationalQuadratic",
    "SquaredExponential",
    "Sum",
    "White",
]

Point = Float[Array, " D"]


def _parameter(name: str) -> Any:
    """A field for a positive parameter: a number, numbers, a `Parameter`, or nothing."""
    return eqx.field(default=None, converter=functools.partial(parameter, name=name))


def _as_columns(active: Columns | None) -> tuple[int, ...] | None:
    return None if active is None else tuple(int(column) for column in active)


def _columns() -> Any:
    """A field for the active columns."""
    return eqx.field(default=None, converter=_as_columns, static=True)


class Kernel(eqx.Module):
    """A covariance function."""

    active: eqx.AbstractVar[tuple[int, ...] | None]

    @abc.abstractmethod
    def evaluate(self, a: Point, b: Point) -> Scalar:
        """Covariance of the function at two points that hold the active columns only."""

    @abc.abstractmethod
    def in_units(
        self, x_unit: np.ndarray, log_variance_unit: float, lengthscale: float
    ) -> "Kernel":
        """This kernel for standardised data.

        One standardised unit of input column d holds ``x_unit[d]`` of the user's, one of the
        kernel's value holds ``exp(log_variance_unit)``. Length scales nobody stated start at
        `lengthscale` standardised units.
        """

    def select(self, X: Float[Array, "... D"]) -> Float[Array, "... A"]:
        """The active columns."""
        return X if self.active is None else X[..., np.asarray(self.active)]

    def __call__(self, A: Inputs, B: Float[Array, "N2 D"]) -> Float[Array, "N N2"]:
        """Covariance matrix between the rows of `A` and the rows of `B`."""
        if jnp.ndim(A) != 2 or jnp.ndim(B) != 2 or A.shape[1] != B.shape[1]:
            raise ValueError(
                "A kernel takes two arrays of shape (n, columns) with equal columns, "
                f"got {jnp.shape(A)} and {jnp.shape(B)}."
            )
        return self.matrix(self.select(jnp.asarray(A)), self.select(jnp.asarray(B)))

    def matrix(self, A: Inputs, B: Float[Array, "N2 D"]) -> Float[Array, "N N2"]:
        """As `__call__`, for arrays that hold the active columns only."""
        return jax.vmap(lambda a: jax.vmap(lambda b: self.evaluate(a, b))(B))(A)

    def diagonal(self, X: Inputs) -> PerPoint:
        """Variance at each row of `X`."""
        return jax.vmap(lambda x: self.evaluate(x, x))(self.select(jnp.asarray(X)))

    def __add__(self, other: "Kernel | float") -> "Kernel":
        return Sum(first=self, second=_as_kernel(other))

    def __radd__(self, other: "Kernel | float") -> "Kernel":
        return Sum(first=_as_kernel(other), second=self)

    def __mul__(self, other: "Kernel | float") -> "Kernel":
        return Product(first=_as_kernel(other), second=self)

    def __rmul__(self, other: "Kernel | float") -> "Kernel":
        return Product(first=_as_kernel(other), second=self)

    def __repr__(self) -> str:
        return _describe(self)


_Distances = Float[Array, "*pairs"]
"""Of one pair of points, or of many at once."""


class _Stationary(Kernel):
    """Kernels of the distance in length scales; a leaf says how correlation falls with it."""

    lengthscale: Parameter = _parameter("lengthscale")
    variance: Parameter = _parameter("variance")
    active: tuple[int, ...] | None = _columns()

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
        # Divided beforehand: the slopes of the length scales come from points, not from pairs.
        a, b = A / self.lengthscale.value, B / self.lengthscale.value
        return jnp.sum((a[:, None] - b) ** 2, axis=-1)

    def in_units(self, x_unit: np.ndarray, log_variance_unit: float, lengthscale: float) -> Kernel:
        return dataclasses.replace(
            self,
            lengthscale=self.lengthscale.in_units(self.select(x_unit)).starting_at(lengthscale),
            variance=self.variance.in_log_units(log_variance_unit),
        )


def _distance(squared: _Distances) -> _Distances:
    # The square root has no finite slope at zero; the detour keeps gradients finite there.
    away = squared > 0
    return jnp.where(away, jnp.sqrt(jnp.where(away, squared, 1.0)), 0.0)


class SquaredExponential(_Stationary):
    """Infinitely smooth functions: ``variance * exp(-d² / 2)``, d in length scales.

    >>> SquaredExponential(lengthscale=1.0, variance=2.0)
    SquaredExponential(lengthscale=1, variance=2)
    """

    def correlation(self, squared_distance: _Distances) -> _Distances:
        return jnp.exp(-0.5 * squared_distance)

    def squares(self, A: Inputs, B: Float[Array, "N2 D"]) -> Float[Array, "N N2"]:
        if A.shape[1] == 1:
            return super().squares(A, B)
        # By the binomial formula the distances, and their gradients, are matrix products: no
        # array over points, points and columns. What cancellation costs, this kernel, flat at
        # zero distance, does not notice, as long as the points are not far from zero.
        origin = jax.lax.stop_gradient(jnp.median(A, axis=0))
        a, b = (A - origin) / self.lengthscale.value, (B - origin) / self.lengthscale.value
        squares = jnp.sum(a**2, axis=1)[:, None] + jnp.sum(b**2, axis=1) - 2 * a @ b.T
        return jnp.maximum(squares, 0.0)


class Matern12(_Stationary):
    """Continuous, rough functions (Ornstein-Uhlenbeck): ``variance * exp(-d)``.

    >>> float(Matern12(1.0, 1.0)(np.zeros((1, 1)), np.zeros((1, 1)))[0, 0])
    1.0
    """

    def correlation(self, squared_distance: _Distances) -> _Distances:
        return jnp.exp(-_distance(squared_distance))


class Matern32(_Stationary):
    """Once differentiable functions.

    >>> float(Matern32(1.0, 3.0)(np.zeros((1, 1)), np.zeros((1, 1)))[0, 0])
    3.0
    """

    def correlation(self, squared_distance: _Distances) -> _Distances:
        d = np.sqrt(3.0) * _distance(squared_distance)
        return (1 + d) * jnp.exp(-d)


class Matern52(_Stationary):
    """Twice differentiable functions: a sound choice for measured curves.

    >>> float(Matern52(1.0, 3.0)(np.zeros((1, 1)), np.zeros((1, 1)))[0, 0])
    3.0
    """

    def correlation(self, squared_distance: _Distances) -> _Distances:
        d = np.sqrt(5.0) * _distance(squared_distance)
        return (1 + d + d**2 / 3) * jnp.exp(-d)


class RationalQuadratic(Kernel):
    """A scale mixture of squared exponentials: ``(1 + d² / 2 alpha) ** -alpha``.

    >>> RationalQuadratic(alpha=2.0).alpha.natural.item()
    2.0
    """

    lengthscale: Parameter = _parameter("lengthscale")
    variance: Parameter = _parameter("variance")
    alpha: Parameter = _parameter("alpha")
    active: tuple[int, ...] | None = _columns()

    def evaluate(self, a: Point, b: Point) -> Scalar:
        alpha, z = self.alpha.value, (a - b) / self.lengthscale.value
        return self.variance.value * jnp.exp(-alpha * jnp.log1p(jnp.sum(z**2) / (2 * alpha)))

    def in_units(self, x_unit: np.ndarray, log_variance_unit: float, lengthscale: float) -> Kernel:
        return dataclasses.replace(
            self,
            lengthscale=self.lengthscale.in_units(self.select(x_unit)).starting_at(lengthscale),
            variance=self.variance.in_log_units(log_variance_unit),
        )


class Periodic(Kernel):
    """Functions that repeat: ``variance * exp(-2 sin²(pi d / period) / lengthscale²)``.

    The length scale is relative to the period and has no unit.

    >>> k = Periodic(period=2.0)
    >>> bool(np.isclose(k(np.zeros((1, 1)), np.full((1, 1), 2.0))[0, 0], 1.0))
    True
    """

    period: Parameter = _parameter("period")
    lengthscale: Parameter = _parameter("lengthscale")
    variance: Parameter = _parameter("variance")
    active: tuple[int, ...] | None = _columns()

    def evaluate(self, a: Point, b: Point) -> Scalar:
        z = jnp.sin(np.pi * (a - b) / self.period.value) / self.lengthscale.value
        return self.variance.value * jnp.exp(-2 * jnp.sum(z**2))

    def in_units(self, x_unit: np.ndarray, log_variance_unit: float, lengthscale: float) -> Kernel:
        return dataclasses.replace(
            self,
            period=self.period.in_units(self.select(x_unit)),
            variance=self.variance.in_log_units(log_variance_unit),
        )


class Linear(Kernel):
    """Straight lines through the centre of the data: ``sum(variance * a * b)``.

    >>> float(Linear(variance=2.0)(np.full((1, 1), 3.0), np.full((1, 1), 4.0))[0, 0])
    24.0
    """

    variance: Parameter = _parameter("variance")
    active: tuple[int, ...] | None = _columns()

    def evaluate(self, a: Point, b: Point) -> Scalar:
        return jnp.sum(self.variance.value * a * b)

    def in_units(self, x_unit: np.ndarray, log_variance_unit: float, lengthscale: float) -> Kernel:
        log_unit = log_variance_unit - 2 * np.log(self.select(x_unit))
        return dataclasses.replace(self, variance=self.variance.in_log_units(log_unit))


class Constant(Kernel):
    """An unknown constant.

    >>> float(Constant(2.0)(np.zeros((1, 1)), np.ones((1, 1)))[0, 0])
    2.0
    """

    variance: Parameter = _parameter("variance")
    active: tuple[int, ...] | None = _columns()

    def evaluate(self, a: Point, b: Point) -> Scalar:
        return self.variance.value + 0.0 * a[0]

    def in_units(self, x_unit: np.ndarray, log_variance_unit: float, lengthscale: float) -> Kernel:
        return dataclasses.replace(self, variance=self.variance.in_log_units(log_variance_unit))


class White(Kernel):
    """Independent noise: `variance` where two inputs are the same point, zero elsewhere.

    >>> White(1.0)(np.arange(2.0)[:, None], np.arange(2.0)[:, None]).tolist()
    [[1.0, 0.0], [0.0, 1.0]]
    """

    variance: Parameter = _parameter("variance")
    active: tuple[int, ...] | None = _columns()

    def evaluate(self, a: Point, b: Point) -> Scalar:
        return self.variance.value * jnp.all(a == b)

    def in_units(self, x_unit: np.ndarray, log_variance_unit: float, lengthscale: float) -> Kernel:
        return dataclasses.replace(self, variance=self.variance.in_log_units(log_variance_unit))


class Sum(Kernel):
    """Sum of two kernels: a function that is the sum of two independent ones."""

    first: Kernel
    second: Kernel
    active: tuple[int, ...] | None = eqx.field(static=True, default=None)

    def evaluate(self, a: Point, b: Point) -> Scalar:
        return _part(self.first, a, b) + _part(self.second, a, b)

    def in_units(self, x_unit: np.ndarray, log_variance_unit: float, lengthscale: float) -> Kernel:
        first = self.first.in_units(x_unit, log_variance_unit, lengthscale)
        second = self.second.in_units(x_unit, log_variance_unit, lengthscale)
        return Sum(first=first, second=second)


class Product(Kernel):
    """Product of two kernels. The first factor carries the unit of the product."""

    first: Kernel
    second: Kernel
    active: tuple[int, ...] | None = eqx.field(static=True, default=None)

    def evaluate(self, a: Point, b: Point) -> Scalar:
        return _part(self.first, a, b) * _part(self.second, a, b)

    def in_units(self, x_unit: np.ndarray, log_variance_unit: float, lengthscale: float) -> Kernel:
        first = self.first.in_units(x_unit, log_variance_unit, lengthscale)
        return Product(first=first, second=self.second.in_units(x_unit, 0.0, lengthscale))


def _part(kernel: Kernel, a: Point, b: Point) -> Scalar:
    return kernel.evaluate(kernel.select(a), kernel.select(b))


def _as_kernel(other: "Kernel | float") -> Kernel:
    return other if isinstance(other, Kernel) else Constant(variance=parameter(other))


def _describe(kernel: Kernel) -> str:
    if isinstance(kernel, Sum):
        return f"{kernel.first!r} + {kernel.second!r}"
    if isinstance(kernel, Product):
        factors = (kernel.first, kernel.second)
        return " * ".join(f"({f!r})" if isinstance(f, Sum) else repr(f) for f in factors)
    fields = [(f.name, getattr(kernel, f.name)) for f in dataclasses.fields(kernel)]
    words = [f"{name}={_number(p)}" for name, p in fields if is_parameter(p)]
    if kernel.active is not None:
        words.append(f"active={list(kernel.active)}")
    return f"{type(kernel).__name__}({', '.join(words)})"


def _number(p: Parameter) -> str:
    values = np.exp(np.asarray(p.raw, np.float64))
    if values.ndim == 0:
        return f"{values:.4g}"
    return "[" + ", ".join(f"{v:.4g}" for v in values.ravel()) + "]"


def check_columns(kernel: Any, columns: int) -> None:
    """Whether this is a kernel, and one for inputs of so many columns."""
    if not isinstance(kernel, Kernel):
        raise ValueError(
            f"kernel must be one of dagp.kernels, such as SquaredExponential(), got {kernel!r}."
        )
    if isinstance(kernel, Sum | Product):
        check_columns(kernel.first, columns)
        check_columns(kernel.second, columns)
        return
    if kernel.active is not None and not all(-columns <= c < columns for c in kernel.active):
        raise ValueError(f"{kernel!r} asks for a column that X, with {columns} columns, lacks.")
    seen = columns if kernel.active is None else len(kernel.active)
    for node in jax.tree.leaves(kernel, is_leaf=is_parameter):
        if is_parameter(node) and np.size(node.raw) not in (1, seen):
            raise ValueError(
                f"{kernel!r} has a parameter for each of {np.size(node.raw)} columns, "
                f"and sees {seen}."
            )
