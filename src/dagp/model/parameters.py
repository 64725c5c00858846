"""Parameters: constrained, with a unit, possibly with a prior, possibly frozen.

Every number the optimiser may move is a `Parameter`. `in_user_units` is its value in the units of
the data, in which priors and results are stated; `value` is in standardised units, of order one.
"""

import abc
import dataclasses
from collections.abc import Callable, Sequence
from typing import Any, Literal, TypeVar, overload

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.special import gammaln

from dagp.core.tags import storable
from dagp.core.text import quoted
from dagp.core.typing import Array, Float, Scalar

Support = Literal["real", "positive"]
Tree = TypeVar("Tree")
Part = TypeVar("Part", bound=eqx.Module)
"""A kernel or mean function."""
Numbers = (
    float | Sequence[float] | Sequence[Sequence[float]] | np.floating[Any] | np.integer[Any] | Array
)
"""A number, or one per input or output, or both."""


class Prior(eqx.Module):
    """A density on a positive parameter, in the user's units."""

    @abc.abstractmethod
    def log_prob(self, value: Float[Array, "..."] | float) -> Float[Array, "..."]:
        """Log density at `value`."""


@storable("density/LogNormal")
class LogNormal(Prior):
    """Log-normal prior: the logarithm is normal around ``log(median)``.

    Parameters
    ----------
    median : float or array-like
        In the user's units.
    std : float, default=1.0
        Standard deviation of the logarithm.

    Examples
    --------
    >>> bool(LogNormal(median=0.1, std=0.5).log_prob(0.1) > LogNormal(1.0, 0.5).log_prob(0.1))
    True
    """

    median: Array
    std: Array

    def __init__(self, median: Numbers, std: float = 1.0):
        self.median = _positive(median, "median")
        self.std = _positive(std, "std")

    def log_prob(self, value: Float[Array, "..."] | float) -> Float[Array, "..."]:
        z = (jnp.log(value) - jnp.log(self.median)) / self.std
        return -0.5 * z**2 - jnp.log(self.std * value) - 0.5 * np.log(2 * np.pi)


@storable("density/Gamma")
class Gamma(Prior):
    """Gamma prior; its mean is ``shape / rate``.

    Parameters
    ----------
    shape, rate : float
        Shape, and rate in the inverse of the user's units.

    Examples
    --------
    >>> round(float(Gamma(shape=1.0, rate=2.0).log_prob(0.0 + 1e-12)), 3)
    0.693
    """

    shape: Array
    rate: Array

    def __init__(self, shape: float, rate: float):
        self.shape = _positive(shape, "shape")
        self.rate = _positive(rate, "rate")

    def log_prob(self, value: Float[Array, "..."] | float) -> Float[Array, "..."]:
        return (
            self.shape * jnp.log(self.rate)
            - gammaln(self.shape)
            + (self.shape - 1) * jnp.log(value)
            - self.rate * value
        )


@storable("density/HalfCauchy")
class HalfCauchy(Prior):
    """Half-Cauchy prior: flat up to the median, with a heavy tail beyond it.

    Parameters
    ----------
    median : float
        In the user's units.

    Examples
    --------
    >>> round(float(HalfCauchy(median=1.0).log_prob(1e-9)), 3)
    -0.452
    """

    median: Array

    def __init__(self, median: float):
        self.median = _positive(median, "median")

    def log_prob(self, value: Float[Array, "..."] | float) -> Float[Array, "..."]:
        ratio = value / self.median
        return np.log(2 / np.pi) - jnp.log(self.median) - jnp.log1p(ratio**2)


@storable("parameter/Parameter")
class Parameter(eqx.Module):
    """One trainable quantity.

    The optimiser moves `raw`: for ``"positive"`` the logarithm of the value in the user's units,
    for ``"real"`` the value in standardised units, so that its steps do not depend on the units of
    the data. One standardised unit is `unit` user's units (a logarithm for ``"positive"``, so that
    data of size 1e±200 stay representable). `automatic` marks a value the user did not give.
    """

    raw: Array
    unit: Array
    prior: Prior | None
    support: Support = eqx.field(static=True)
    frozen: bool = eqx.field(static=True)
    automatic: bool = eqx.field(static=True)
    tie: str | None = eqx.field(static=True, default=None)
    """Parameters of several processes with the same name here share one value."""
    entries: tuple[int, ...] | None = eqx.field(static=True, default=None)
    """Which entry belongs to each input column, where columns share one; None: one for each."""

    @property
    def value(self) -> Float[Array, "..."]:
        """The value in standardised units, per input column where columns share an entry."""
        value = jnp.exp(self.raw - self.unit) if self.support == "positive" else self.raw
        return jnp.asarray(value if self.entries is None else value[..., np.array(self.entries)])

    @property
    def in_user_units(self) -> Float[Array, "..."]:
        if self.support == "positive":
            return jnp.exp(jnp.asarray(self.raw))
        return jnp.asarray(self.raw * self.unit)

    @property
    def natural(self) -> Float[Array, "..."]:
        """`in_user_units` under its name before version 0.2."""
        return self.in_user_units

    def in_units(self, unit: Any) -> "Parameter":
        """The same quantity for another standardised unit; automatic values are rescaled."""
        unit = np.asarray(unit, np.float64)
        if self.support == "positive":
            return self.in_log_units(np.log(unit))
        raw = self.raw if self.automatic else self.raw * self.unit / unit
        return dataclasses.replace(self, raw=np.asarray(raw), unit=unit)

    def in_log_units(self, log_unit: Any) -> "Parameter":
        """As `in_units`, for a positive quantity whose unit may overflow."""
        log_unit = np.asarray(log_unit, np.float64)
        raw = self.raw + log_unit if self.automatic else self.raw
        return dataclasses.replace(self, raw=np.asarray(raw), unit=log_unit)

    def starting_at(self, value: Any) -> "Parameter":
        """The parameter with its standardised value replaced, unless the user gave one."""
        if not self.automatic:
            return self
        value = np.asarray(value, np.float64)
        raw = np.log(value) + self.unit if self.support == "positive" else value
        return dataclasses.replace(self, raw=np.asarray(raw))


ParameterLike = Numbers | Parameter | None
"""What users give for a parameter: a number or several, a `Parameter`, or nothing."""


def parameter(
    value: ParameterLike = None,
    *,
    default: Numbers = 1.0,
    support: Support = "positive",
    prior: Prior | None = None,
    tie: str | None = None,
    share: str | None = None,
    name: str = "value",
) -> Parameter:
    """A trainable parameter: initial value, prior and tying.

    Parameters
    ----------
    value : float, array-like or Parameter, default=None
        Initial value in the user's units; None leaves it to the search.
    default : float or array-like, default=1.0
        Value in standardised units where `value` is None.
    support : {"positive", "real"}, default="positive"
        Set of possible values.
    prior : Prior, default=None
        A density such as `LogNormal`, in the user's units.
    tie : str, default=None
        Parameters of several processes with the same `tie` share one value.
    share : str, default=None
        `tie` under its name before version 0.2.
    name : str, default="value"
        Name of the parameter in error messages.

    Examples
    --------
    >>> from dagp import GP
    >>> from dagp import kernels
    >>> smooth = parameter(prior=LogNormal(2.0, 0.5), tie="smoothness")
    >>> GP(kernels.Matern52(lengthscale=smooth)).kernel.lengthscale.tie
    'smoothness'
    >>> float(parameter(2.0).in_user_units)
    2.0
    """
    if isinstance(value, Parameter):
        return value if prior is None else dataclasses.replace(value, prior=prior)
    automatic = value is None
    number = np.asarray(default if automatic else value, np.float64)
    if not np.all(np.isfinite(number)):
        raise ValueError(f"{name} must be finite, got {quoted(value)}.")
    if support == "positive":
        raw, unit = np.asarray(np.log(_positive(number, name))), 0.0
    else:
        raw, unit = number, 1.0
    return Parameter(raw, np.asarray(unit), prior, support, False, automatic, tie or share)


@overload
def fixed(value: Numbers | Parameter, *, support: Support = ...) -> Parameter: ...


@overload
def fixed(value: Part, *, support: Support = ...) -> Part: ...


def fixed(value: Any, *, support: Support = "positive") -> Any:
    """A parameter that is not trained; of a kernel or mean function, all of its parameters.

    Parameters
    ----------
    value : float, array-like, Parameter, Kernel or Mean
        The value, in the user's units.
    support : {"positive", "real"}, default="positive"
        Set of possible values.

    Examples
    --------
    >>> from dagp import kernels
    >>> kernels.Periodic(period=fixed(24.0)).period.frozen
    True
    >>> fixed(kernels.SquaredExponential(2.0, 1.0)).variance.frozen
    True
    """
    if isinstance(value, eqx.Module) and not isinstance(value, Parameter):
        return map_parameters(fixed, value)
    return dataclasses.replace(parameter(value, support=support), frozen=True)


def is_parameter(node: Any) -> bool:
    """Whether a node of a tree is a `Parameter`."""
    return isinstance(node, Parameter)


def parameters_of(tree: Any) -> list[Any]:
    """The parameters in a tree."""
    return list(filter(is_parameter, jax.tree.leaves(tree, is_leaf=is_parameter)))


def map_parameters(function: Callable[[Parameter], Any], tree: Tree) -> Tree:
    """A tree with its parameters replaced by what `function` makes of them."""
    nodes, structure = jax.tree.flatten(tree, is_leaf=is_parameter)
    return jax.tree.unflatten(structure, [function(n) if is_parameter(n) else n for n in nodes])


def trainable(tree: Tree) -> Tree:
    """A tree of booleans: true for the leaves that the optimiser moves."""

    def mark(node: Any) -> Any:
        nothing = jax.tree.map(lambda _: False, node)
        if not is_parameter(node) or node.frozen:
            return nothing
        return eqx.tree_at(lambda p: p.raw, nothing, True)

    return jax.tree.map(mark, tree, is_leaf=is_parameter)


def tied(tree: Tree) -> Tree:
    """A tree of gradients, stacked by process, with those of tied parameters summed."""
    nodes, structure = jax.tree.flatten(tree, is_leaf=is_parameter)
    totals: dict[str, Any] = {}
    for node in nodes:
        if is_parameter(node) and node.tie is not None and node.raw is not None:
            totals[node.tie] = totals.get(node.tie, 0.0) + jnp.sum(node.raw, axis=0)

    def total(node: Any) -> Any:
        if not is_parameter(node) or node.tie is None or node.raw is None:
            return node
        raw = jnp.broadcast_to(totals[node.tie], node.raw.shape)
        return eqx.tree_at(lambda p: p.raw, node, raw)

    return jax.tree.unflatten(structure, [total(node) for node in nodes]) if totals else tree


def log_prior(tree: Any) -> Scalar:
    """Sum of the log priors in the tree, as densities of the *logarithms* of the parameters."""
    known = [p for p in parameters_of(tree) if p.prior is not None]
    densities = (jnp.sum(p.prior.log_prob(p.in_user_units) + p.raw) for p in known)
    return sum(densities, start=jnp.asarray(0.0))


def _positive(value: Any, name: str) -> np.ndarray:
    value = np.asarray(value, np.float64)
    if not np.all(value > 0):
        raise ValueError(f"{name} must be positive, got {value}.")
    return value
