"""Parameters: constrained, with a unit, possibly with a prior, possibly frozen.

Every number the optimiser may move is a `Parameter`, and nothing else is. Its `natural` value is in
the *user's* units, its `value` is what the standardised model computes with. So priors are stated,
and results read, in the units of the data, while training sees numbers of order one.
"""

import abc
import dataclasses
from typing import Any, Literal, TypeVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.special import gammaln

from dagp.typing import Array, Float, Scalar

__all__ = [
    "Gamma",
    "HalfCauchy",
    "LogNormal",
    "Parameter",
    "Prior",
    "Support",
    "fixed",
    "is_parameter",
    "log_prior",
    "parameter",
    "tied",
    "trainable",
]

Support = Literal["real", "positive"]
Tree = TypeVar("Tree")


class Prior(eqx.Module):
    """A density on a positive parameter, in the user's units."""

    @abc.abstractmethod
    def log_prob(self, value: Float[Array, "..."] | float) -> Float[Array, "..."]:
        """Log density at `value`."""


class LogNormal(Prior):
    """Log-normal prior: the logarithm is normal around ``log(median)``.

    >>> bool(LogNormal(median=0.1, std=0.5).log_prob(0.1) > LogNormal(1.0, 0.5).log_prob(0.1))
    True
    """

    median: Array
    std: Array

    def __init__(self, median: Any, std: float = 1.0):
        self.median = _positive(median, "median")
        self.std = _positive(std, "std")

    def log_prob(self, value: Float[Array, "..."] | float) -> Float[Array, "..."]:
        z = (jnp.log(value) - jnp.log(self.median)) / self.std
        return -0.5 * z**2 - jnp.log(self.std * value) - 0.5 * np.log(2 * np.pi)


class Gamma(Prior):
    """Gamma prior with shape and rate; its mean is ``shape / rate``.

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


class HalfCauchy(Prior):
    """Half-Cauchy prior: flat up to `median`, with a heavy tail beyond it.

    >>> round(float(HalfCauchy(median=1.0).log_prob(1e-9)), 3)
    -0.452
    """

    median: Array

    def __init__(self, median: float):
        self.median = _positive(median, "median")

    def log_prob(self, value: Float[Array, "..."] | float) -> Float[Array, "..."]:
        ratio = value / self.median
        return np.log(2 / np.pi) - jnp.log(self.median) - jnp.log1p(ratio**2)


class Parameter(eqx.Module):
    """One trainable quantity.

    `raw` is what the optimiser moves: for ``"positive"`` the logarithm of the value in the user's
    units, for ``"real"`` the value in standardised units, so that a step of the optimiser means
    the same whatever the data are measured in. `unit` says how many user's units one
    standardised unit holds (as a logarithm for ``"positive"``: data of size 1e±200 stay
    representable). `automatic` marks a value nobody stated: the search may choose it.
    """

    raw: Array
    unit: Array
    prior: Prior | None
    support: Support = eqx.field(static=True)
    frozen: bool = eqx.field(static=True)
    automatic: bool = eqx.field(static=True)
    share: str | None = eqx.field(static=True, default=None)
    """Processes whose parameters carry the same name here have one value in common."""

    @property
    def value(self) -> Float[Array, "..."]:
        """What the standardised model computes with."""
        if self.support == "positive":
            return jnp.exp(self.raw - self.unit)
        return jnp.asarray(self.raw)

    @property
    def natural(self) -> Float[Array, "..."]:
        """The value in the user's units."""
        if self.support == "positive":
            return jnp.exp(jnp.asarray(self.raw))
        return jnp.asarray(self.raw * self.unit)

    def in_units(self, unit: Any) -> "Parameter":
        """The same quantity for a model whose standardised unit is `unit` user's units.

        A stated value stays what the user said; an automatic one is stated in standardised units.
        """
        unit = np.asarray(unit, np.float64)
        if self.support == "positive":
            return self.in_log_units(np.log(unit))
        raw = self.raw if self.automatic else self.raw * self.unit / unit
        return dataclasses.replace(self, raw=np.asarray(raw), unit=unit)

    def in_log_units(self, log_unit: Any) -> "Parameter":
        """As `in_units`, for a positive quantity whose unit may be beyond floating point."""
        log_unit = np.asarray(log_unit, np.float64)
        raw = self.raw + log_unit if self.automatic else self.raw
        return dataclasses.replace(self, raw=np.asarray(raw), unit=log_unit)

    def starting_at(self, value: Any) -> "Parameter":
        """The same parameter with its standardised value replaced, unless the user stated one."""
        if not self.automatic:
            return self
        value = np.asarray(value, np.float64)
        raw = np.log(value) + self.unit if self.support == "positive" else value
        return dataclasses.replace(self, raw=np.asarray(raw))


def parameter(
    value: Any = None,
    *,
    default: Any = 1.0,
    support: Support = "positive",
    prior: Prior | None = None,
    share: str | None = None,
    name: str = "value",
) -> Parameter:
    """A quantity to be fitted, with what is known about it.

    Parameters
    ----------
    value
        Where to start, in the user's units; None leaves that to the search.
    prior
        A density such as `LogNormal`, in the user's units.
    share
        A name: processes whose parameters carry the same one have a single value in common.

    Examples
    --------
    >>> from dagp import GP, kernels
    >>> smooth = parameter(prior=LogNormal(2.0, 0.5), share="smoothness")
    >>> GP(kernels.Matern52(lengthscale=smooth)).kernel.lengthscale.share
    'smoothness'
    >>> float(parameter(2.0).natural)
    2.0
    """
    if isinstance(value, Parameter):
        return value if prior is None else dataclasses.replace(value, prior=prior)
    automatic = value is None
    number = np.asarray(default if automatic else value, np.float64)
    if not np.all(np.isfinite(number)):
        raise ValueError(f"{name} must be finite, got {value!r}.")
    if support == "positive":
        raw, unit = np.asarray(np.log(_positive(number, name))), 0.0
    else:
        raw, unit = number, 1.0
    return Parameter(raw, np.asarray(unit), prior, support, False, automatic, share)


def fixed(value: Any, *, support: Support = "positive") -> Any:
    """A parameter that training leaves alone; of a kernel or a mean, all of its parameters.

    >>> from dagp import kernels
    >>> kernels.Periodic(period=fixed(24.0)).period.frozen
    True
    >>> fixed(kernels.SquaredExponential(2.0, 1.0)).variance.frozen
    True
    """
    if isinstance(value, eqx.Module) and not is_parameter(value):
        return jax.tree.map(
            lambda p: fixed(p) if is_parameter(p) else p, value, is_leaf=is_parameter
        )
    return dataclasses.replace(parameter(value, support=support), frozen=True)


def is_parameter(node: Any) -> bool:
    """Whether a node of a tree is a `Parameter`."""
    return isinstance(node, Parameter)


def trainable(tree: Tree) -> Tree:
    """A tree of booleans: true exactly at what the optimiser may move."""

    def mark(node: Any) -> Any:
        nothing = jax.tree.map(lambda _: False, node)
        if not is_parameter(node) or node.frozen:
            return nothing
        return eqx.tree_at(lambda p: p.raw, nothing, True)

    return jax.tree.map(mark, tree, is_leaf=is_parameter)


def tied(tree: Tree) -> Tree:
    """A tree of gradients in which parameters of one name have the sum of theirs.

    Leaves have a leading axis for processes of the same make.
    """
    nodes, structure = jax.tree.flatten(tree, is_leaf=is_parameter)
    totals: dict[str, Any] = {}
    for node in nodes:
        if is_parameter(node) and node.share is not None and node.raw is not None:
            totals[node.share] = totals.get(node.share, 0.0) + jnp.sum(node.raw, axis=0)

    def total(node: Any) -> Any:
        if not is_parameter(node) or node.share is None or node.raw is None:
            return node
        raw = jnp.broadcast_to(totals[node.share], node.raw.shape)
        return eqx.tree_at(lambda p: p.raw, node, raw)

    return jax.tree.unflatten(structure, [total(node) for node in nodes]) if totals else tree


def log_prior(tree: Any) -> Scalar:
    """Sum of the log priors of every parameter in the tree that carries one.

    Each is the density of the *logarithm* of the parameter: the mode then does not depend on
    how the parameter is written down, and a noise level of zero is never a free lunch.
    """
    nodes = filter(is_parameter, jax.tree.leaves(tree, is_leaf=is_parameter))
    return sum(
        (jnp.sum(p.prior.log_prob(p.natural) + p.raw) for p in nodes if p.prior is not None),
        start=jnp.asarray(0.0),
    )


def _positive(value: Any, name: str) -> np.ndarray:
    value = np.asarray(value, np.float64)
    if not np.all(value > 0):
        raise ValueError(f"{name} must be positive, got {value}.")
    return value
