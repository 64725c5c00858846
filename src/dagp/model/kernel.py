"""Kernels: the base class, and how kernels are combined.

A kernel says how two *points* covary (`evaluate`); the base class maps that over arrays. Kernels
add and multiply; ``active`` restricts one to some of the input columns.
"""

import abc
import dataclasses
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from dagp.core.tags import storable
from dagp.core.text import quoted
from dagp.core.typing import Array, Columns, Float, Inputs, PerPoint, Scalar
from dagp.model.parameters import (
    Parameter,
    ParameterLike,
    is_parameter,
    map_parameters,
    parameter,
    parameters_of,
)

Point = Float[Array, " D"]


# Fields call `eqx.field` with these converters directly: through a function of ours, type checkers
# would not see the converter, and would refuse numbers.
def positive(name: str) -> Callable[[ParameterLike], Parameter]:
    """Converter of a field for a positive parameter: a number, numbers, a `Parameter`, or None."""

    def convert(value: ParameterLike) -> Parameter:
        return parameter(value, name=name)

    return convert


def as_columns(active: Columns | None) -> tuple[int, ...] | None:
    """Converter of a field for the active columns."""
    return None if active is None else tuple(int(column) for column in active)


if TYPE_CHECKING:
    # As a field of a module, it would be the first argument of every kernel to type checkers.
    class _Restricted:
        active: tuple[int, ...] | None
else:

    class _Restricted(eqx.Module):
        active: eqx.AbstractVar[tuple[int, ...] | None]


class Kernel(_Restricted, eqx.Module):
    """A covariance function."""

    @abc.abstractmethod
    def evaluate(self, a: Point, b: Point) -> Scalar:
        """Covariance of the function at two points that hold the active columns only."""

    @abc.abstractmethod
    def in_units(
        self, x_unit: np.ndarray, log_variance_unit: float, lengthscale: float
    ) -> "Kernel":
        """This kernel for standardised data.

        One standardised unit of input column d holds ``x_unit[d]`` of the user's, one of the value
        ``exp(log_variance_unit)``. Length scales that were not stated start at `lengthscale`.
        """

    def select(self, X: Float[Array, "... D"]) -> Float[Array, "... A"]:
        """The active columns."""
        return X if self.active is None else X[..., np.asarray(self.active)]

    def __call__(self, A: Inputs, B: Float[Array, "N2 D"]) -> Float[Array, "N N2"]:
        """Covariance matrix between the rows of `A` and the rows of `B`."""
        if jnp.ndim(A) != 2 or jnp.ndim(B) != 2 or A.shape[1] != B.shape[1]:
            expected = "two arrays of shape (n, columns) with equal columns"
            found = f"{jnp.shape(A)} and {jnp.shape(B)}"
            raise ValueError(f"A kernel takes {expected}, got {found}.")
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


@storable("kernel/Constant")
class Constant(Kernel):
    r"""An unknown constant: :math:`k(x, x') = \sigma^2`.

    Parameters
    ----------
    variance : float or Parameter, default=None
        Variance of the constant.
    active : sequence of int, default=None
        Without effect.

    Examples
    --------
    >>> float(Constant(2.0)(np.zeros((1, 1)), np.ones((1, 1)))[0, 0])
    2.0
    """

    variance: Parameter = eqx.field(default=None, converter=positive("variance"))
    active: tuple[int, ...] | None = eqx.field(default=None, converter=as_columns, static=True)

    def evaluate(self, a: Point, b: Point) -> Scalar:
        return self.variance.value + 0.0 * a[0]

    def in_units(self, x_unit: np.ndarray, log_variance_unit: float, lengthscale: float) -> Kernel:
        return dataclasses.replace(self, variance=self.variance.in_log_units(log_variance_unit))


@storable("kernel/Sum")
class Sum(Kernel):
    """Sum of two kernels, :math:`k_1 + k_2`: a function that is the sum of two independent ones."""

    first: Kernel
    second: Kernel
    active: tuple[int, ...] | None = eqx.field(static=True, default=None)

    def evaluate(self, a: Point, b: Point) -> Scalar:
        return _part(self.first, a, b) + _part(self.second, a, b)

    def matrix(self, A: Inputs, B: Float[Array, "N2 D"]) -> Float[Array, "N N2"]:
        return self.first(A, B) + self.second(A, B)

    def in_units(self, x_unit: np.ndarray, log_variance_unit: float, lengthscale: float) -> Kernel:
        first = self.first.in_units(x_unit, log_variance_unit, lengthscale)
        second = self.second.in_units(x_unit, log_variance_unit, lengthscale)
        return Sum(first=first, second=second)


@storable("kernel/Product")
class Product(Kernel):
    """Product of two kernels, :math:`k_1 k_2`. The first factor carries the unit of the product."""

    first: Kernel
    second: Kernel
    active: tuple[int, ...] | None = eqx.field(static=True, default=None)

    def evaluate(self, a: Point, b: Point) -> Scalar:
        return _part(self.first, a, b) * _part(self.second, a, b)

    def matrix(self, A: Inputs, B: Float[Array, "N2 D"]) -> Float[Array, "N N2"]:
        return self.first(A, B) * self.second(A, B)

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
        expected = "one of dagp.kernels, such as SquaredExponential()"
        raise ValueError(f"kernel must be {expected}, got {quoted(kernel)}.")
    if isinstance(kernel, Sum | Product):
        check_columns(kernel.first, columns)
        check_columns(kernel.second, columns)
        return
    if kernel.active is not None and not all(-columns <= c < columns for c in kernel.active):
        raise ValueError(
            f"{quoted(kernel)} asks for a column that X, with {columns} columns, lacks."
        )
    seen = columns if kernel.active is None else len(kernel.active)
    for node in parameters_of(kernel):
        size = np.size(node.raw) if node.entries is None else len(node.entries)
        if size not in (1, seen):
            expected = f"a parameter for each of {size} columns, and sees {seen}"
            raise ValueError(f"{quoted(kernel)} has {expected}.")


def over_groups(kernel: Kernel, groups: Sequence[int]) -> Kernel:
    """A kernel of inputs as a kernel of the columns that encode them: column c is part of input
    ``groups[c]``, and the columns of an input share the parameters of that input."""
    if isinstance(kernel, Sum | Product):
        parts = over_groups(kernel.first, groups), over_groups(kernel.second, groups)
        return dataclasses.replace(kernel, first=parts[0], second=parts[1])
    inputs = max(groups) + 1
    seen = range(inputs) if kernel.active is None else [i % inputs for i in kernel.active]
    pairs = [(c, n) for n, i in enumerate(seen) for c, group in enumerate(groups) if group == i]
    columns, entries = zip(*pairs, strict=True)

    def shared(p: Parameter) -> Parameter:
        shape = np.broadcast_shapes(np.shape(p.raw), np.shape(p.unit))
        return dataclasses.replace(p, entries=entries) if shape == (len(seen),) else p

    kernel = map_parameters(shared, kernel)
    return kernel if kernel.active is None else dataclasses.replace(kernel, active=columns)
