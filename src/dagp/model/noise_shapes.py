"""Shapes of the observation noise: Gaussian, Student-t and Laplace.

Heavy tails are a scale mixture: given λ > 0, an observation is normal around the function with
variance σ²/λ, and every row has a λ of its own, common to its outputs as its assignment is. In the
ELBO q(λ) is summed out like q(a). The rest depends on the function through its expected squared
error alone:

    max over q(λ)  =  log ∫ p(λ) Π_p N(y_p | λ, E[(y_p − f_p)²]) dλ

which is the density of the noise at the root of the expected squared error. No parameters per row
remain, and given E[λ] at the optimum the function is a conjugate problem with precision E[λ]/σ².
"""

import abc
import dataclasses
from typing import Any, ClassVar, Literal

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.special import gammaln
from scipy.special import ndtri

from dagp.core.tags import storable
from dagp.core.typing import Array, Float, Outputs, PerPoint
from dagp.model.parameters import Gamma, Parameter, ParameterLike, parameter
from dagp.model.process import LOG_2PI

NoiseName = Literal["gaussian", "student", "laplace"]
LEAST_DEGREES, MOST_DEGREES = 1.0, 1000.0
"""Range of the degrees of freedom: from Cauchy noise to noise that cannot be told from normal."""
DEGREES = 4.0
"""Initial degrees of freedom: tails that tolerate gross errors, and have a variance."""
DEGREES_PRIOR = Gamma(shape=2.0, rate=0.1)
"""Their default prior: its weight is between 2 and 60, and it vanishes at both ends (Juárez & Steel
2010)."""
NODES = 20
"""Normal components per predictive density with heavy tails."""
_UNLIKELY = 1e-8
"""Probability of a λ beyond the nodes, where the tails end. Log densities of Student-t noise with 2
degrees of freedom or more are off by less than 0.01 up to where one observation in 10⁴ lies."""
_LOG_VARIANCES = (-9.0, 3.2)
"""Range of the nodes of Laplace noise: below it the cusp is smooth, above it little is left. Log
densities are off by less than 0.02."""
_LEAST_SQUARE = 1e-12
"""Least expected squared error, in noise variances, where its root is differentiated."""


class NoiseShape(eqx.Module):
    """Density of the noise around the function, given its variance σ²: for λ = 1 throughout.

    Arguments are, per output, squared errors divided by σ² (`square`), log σ² (`log_variance`) and
    whether the output is there (`there`).
    """

    name: ClassVar[str]

    @abc.abstractmethod
    def log_density(self, square: Outputs, log_variance: Any, there: Outputs) -> PerPoint:
        """Expected log density of a row, q(λ) summed out."""

    @abc.abstractmethod
    def weight(self, square: Outputs, there: Outputs) -> Float[Array, "N 1"] | float:
        """E[λ] of each row: the weight of its squared error in a fit."""

    @abc.abstractmethod
    def spread(self, square: Outputs, there: Outputs) -> Float[Array, "N 1"] | float:
        """Var[λ] of each row."""

    @abc.abstractmethod
    def nodes(self) -> tuple[Float[Array, " C"], Float[Array, " C"]]:
        """The noise as a mixture of normals: their masses, and their variances divided by σ²."""


@storable("shape/Gaussian")
class GaussianShape(NoiseShape):
    """Normal noise: λ is one."""

    name: ClassVar[str] = "gaussian"

    def log_density(self, square: Outputs, log_variance: Any, there: Outputs) -> PerPoint:
        return -0.5 * jnp.sum(there * (square + log_variance + LOG_2PI), axis=-1)

    def weight(self, square: Outputs, there: Outputs) -> float:
        return 1.0

    def spread(self, square: Outputs, there: Outputs) -> float:
        return 0.0

    def nodes(self) -> tuple[Float[Array, " 1"], Float[Array, " 1"]]:
        return jnp.ones(1), jnp.ones(1)


@storable("shape/Student")
class StudentShape(NoiseShape):
    """Student-t noise: λ has a gamma density, of shape and rate ν/2."""

    name: ClassVar[str] = "student"
    degrees: Parameter

    @property
    def freedom(self) -> Float[Array, ""]:
        """Degrees of freedom ν, within their range; outside of it the prior alone moves them."""
        return jnp.clip(self.degrees.value, LEAST_DEGREES, MOST_DEGREES)

    def log_density(self, square: Outputs, log_variance: Any, there: Outputs) -> PerPoint:
        nu, count, total = self.freedom, jnp.sum(there, axis=-1), jnp.sum(there * square, axis=-1)
        norm = gammaln((nu + count) / 2) - gammaln(nu / 2) - count / 2 * jnp.log(nu / 2)
        level = 0.5 * jnp.sum(there * (log_variance + LOG_2PI), axis=-1)
        return norm - (nu + count) / 2 * jnp.log1p(total / nu) - level

    def weight(self, square: Outputs, there: Outputs) -> Float[Array, "N 1"]:
        count, total = _totals(square, there)
        return (self.freedom + count) / (self.freedom + total)

    def spread(self, square: Outputs, there: Outputs) -> Float[Array, "N 1"]:
        count, total = _totals(square, there)
        return 2 * (self.freedom + count) / (self.freedom + total) ** 2

    def nodes(self) -> tuple[Float[Array, " C"], Float[Array, " C"]]:
        # The integrand is smooth in log λ. Nodes are closer where most of λ is than in its tail.
        nu, (low, high) = self.freedom, self._range()
        t = jnp.linspace(1.0, 0.0, NODES)
        log_factor = -(high - (high - low) * t * (1 + t) / 2)
        log_mass = -nu / 2 * (log_factor + jnp.exp(-log_factor)) + jnp.log(1 + 2 * t)
        return jax.nn.softmax(log_mass), jnp.exp(log_factor)

    def _range(self) -> tuple[Float[Array, ""], Float[Array, ""]]:
        """Ends of log λ beyond which almost none of its mass is.

        By the cube root, which is nearly normal (Wilson & Hilferty 1931), or below by the power law
        of the density near zero, an upper bound on that mass.
        """
        nu, z = self.freedom, float(ndtri(_UNLIKELY))
        centre, std = 1 - 2 / (9 * nu), jnp.sqrt(2 / (9 * nu))
        power = jnp.log(2 / nu) + (np.log(_UNLIKELY) + gammaln(nu / 2 + 1)) * 2 / nu
        cubic = 3 * jnp.log(jnp.maximum(centre + z * std, 1e-30))
        return jnp.maximum(power, cubic), 3 * jnp.log(centre - z * std)


@storable("shape/Laplace")
class LaplaceShape(NoiseShape):
    """Laplace noise of variance σ²: 1/λ has an exponential density of mean one."""

    name: ClassVar[str] = "laplace"

    def log_density(self, square: Outputs, log_variance: Any, there: Outputs) -> PerPoint:
        level = 0.5 * jnp.sum(there * log_variance, axis=-1)
        if square.shape[-1] == 1:
            root = jnp.sqrt(2 * jnp.maximum(square, _LEAST_SQUARE)) + 0.5 * np.log(2)
            return -jnp.sum(there * root, axis=-1) - level
        return jax.nn.logsumexp(self._log_joint(square, there), axis=-1) - level

    def weight(self, square: Outputs, there: Outputs) -> Float[Array, "N 1"]:
        if square.shape[-1] == 1:
            return jnp.sqrt(2 / jnp.maximum(square, _LEAST_SQUARE))
        return self._moment(square, there, 1)

    def spread(self, square: Outputs, there: Outputs) -> Float[Array, "N 1"]:
        if square.shape[-1] == 1:
            square = jnp.maximum(square, _LEAST_SQUARE)
            return jnp.sqrt(2.0) * square**-1.5
        return self._moment(square, there, 2) - self._moment(square, there, 1) ** 2

    def nodes(self) -> tuple[Float[Array, " C"], Float[Array, " C"]]:
        log_factor = jnp.linspace(*_LOG_VARIANCES, NODES)
        return jax.nn.softmax(log_factor - jnp.exp(log_factor)), jnp.exp(log_factor)

    def _log_joint(self, square: Outputs, there: Outputs) -> Float[Array, "N C"]:
        """Of several outputs, whose density is a Bessel function: that of each node."""
        (masses, factors), (count, total) = self.nodes(), _totals(square, there)
        return jnp.log(masses) - 0.5 * (count * (jnp.log(factors) + LOG_2PI) + total / factors)

    def _moment(self, square: Outputs, there: Outputs, power: int) -> Float[Array, "N 1"]:
        """E[λ^power]."""
        posterior = jax.nn.softmax(self._log_joint(square, there), axis=-1)
        return jnp.sum(posterior * self.nodes()[1] ** -power, axis=-1, keepdims=True)


def _totals(square: Outputs, there: Outputs) -> tuple[Float[Array, "N 1"], Float[Array, "N 1"]]:
    """Number of outputs of each row that are there, and the sum of their squares."""
    return jnp.sum(there, axis=-1, keepdims=True), jnp.sum(there * square, axis=-1, keepdims=True)


def check_shape(shape: Any) -> None:
    """Raise ValueError if a shape read from a file is invalid."""
    if not isinstance(shape, NoiseShape):
        raise ValueError(f"shape of the noise must be a NoiseShape, got {type(shape).__name__}")
    if isinstance(shape, StudentShape) and np.shape(shape.degrees.raw) != ():
        raise ValueError("degrees of freedom must be one number")


def noise_shape(noise: str, degrees: ParameterLike) -> NoiseShape:
    """The shape of this name; ValueError for unknown names and invalid degrees of freedom."""
    shapes = {shape.name: shape for shape in (GaussianShape, LaplaceShape)}
    names = (GaussianShape.name, StudentShape.name, LaplaceShape.name)
    if noise not in names:
        known = ", ".join(f'"{name}"' for name in names)
        raise ValueError(f"noise must be one of {known}, got {noise!r}.")
    if noise != StudentShape.name:
        if degrees is not None:
            raise ValueError(f'degrees are those of noise="student", got noise="{noise}".')
        return shapes[noise]()
    found = parameter(degrees, default=DEGREES, name="degrees")
    value = np.exp(np.asarray(found.raw, np.float64))
    if value.size != 1 or not LEAST_DEGREES <= value.item() <= MOST_DEGREES:
        expected = f"one number from {LEAST_DEGREES:g} to {MOST_DEGREES:g}"
        raise ValueError(f"degrees must be {expected}, got {value.tolist()}.")
    prior = DEGREES_PRIOR if found.prior is None else found.prior
    return StudentShape(dataclasses.replace(found, raw=found.raw.reshape(()), prior=prior))
