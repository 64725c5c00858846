"""Processes: what a user names (`GP`, `Noise`, `Uniform`) and what the model computes with.

A *prior* is a plain description in the user's units. Its `build` makes the trainable process for
standardised data. Every process answers the same few questions: its marginals at some inputs, the
expected log density of an output, its distance from the prior, and a natural-gradient step.
"""

import abc
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

import equinox as eqx
import jax.numpy as jnp
import numpy as np

from dagp.kernels import Kernel, Product, SquaredExponential, Sum
from dagp.means import Centred, InUnits, Mean
from dagp.parameters import Parameter, Prior, parameter
from dagp.sparse import Marginals, Natural, Projection, SparseGP
from dagp.typing import Array, Float, Inputs, Outputs, PerPoint, Scalar

__all__ = [
    "GP",
    "GPProcess",
    "Noise",
    "NoiseProcess",
    "Process",
    "ProcessPrior",
    "Setting",
    "Uniform",
    "UniformProcess",
]

NOISE_FLOOR = 1e-4
"""Least noise of a function, in standardised units: a signal without any noise has no density,
and a bound that rises for ever."""
_LOG_2PI = float(np.log(2 * np.pi))
_OUTSIDE = -1e30
"""Log density where a density is zero: finite, so that no product with zero turns into NaN."""


class Setting(NamedTuple):
    """What the data say about a process before it is fitted (standardised unless said)."""

    x_centre: np.ndarray
    x_unit: np.ndarray
    y_centre: np.ndarray
    y_unit: np.ndarray
    """Centre and unit of the user's columns: user = standardised * unit + centre."""
    y_low: np.ndarray
    y_high: np.ndarray
    """Observed range of the outputs."""
    inducing: np.ndarray
    """Inducing inputs (M, D) to start from."""
    lengthscale: float
    noise_std: float
    """Where length scales and noise levels start when the user states none."""

    @property
    def log_variance_unit(self) -> float:
        """Unit of a kernel's variance. Several outputs share a kernel, each in its own unit."""
        return 2 * float(np.log(self.y_unit[0])) if len(self.y_unit) == 1 else 0.0


class Process(eqx.Module):
    """A process in standardised units."""

    uniform: ClassVar[bool] = False
    """Whether observations are uniform rather than normal."""

    @abc.abstractmethod
    def project(self, X: Inputs) -> Any:
        """What depends on the inputs and the hyperparameters, but not on q."""

    @abc.abstractmethod
    def marginals(self, projection: Any) -> Marginals:
        """Mean and variance of the latent function at the projected points."""

    @abc.abstractmethod
    def noise_variance(self) -> Float[Array, " P"]:
        """Variance of an observation around the latent function."""

    @abc.abstractmethod
    def expected_log_density(self, marginals: Marginals, y: Outputs) -> PerPoint:
        """E_q[log p(y_n | f(x_n))], summed over outputs."""

    @abc.abstractmethod
    def natural_step(
        self,
        projection: Any,
        marginals: Marginals,
        y: Outputs,
        share: PerPoint,
        rate: Scalar | float,
    ) -> "Process":
        """Move q towards its optimum, each point counting as much as its `share`."""

    @abc.abstractmethod
    def kl(self) -> Scalar:
        """KL divergence of q from the prior."""


class GPProcess(Process):
    """A function with a sparse GP prior, observed with Gaussian noise."""

    latent: SparseGP
    noise_std: Parameter
    floor: Array
    """Standard deviation below which the noise cannot fall."""

    def project(self, X: Inputs) -> Projection:
        return self.latent.project(X)

    def marginals(self, projection: Projection) -> Marginals:
        return self.latent.marginals(projection)

    def noise_variance(self) -> Float[Array, " P"]:
        return self.noise_std.value**2 + self.floor**2

    def expected_log_density(self, marginals: Marginals, y: Outputs) -> PerPoint:
        variance = self.noise_variance()
        square = (y - marginals.mean) ** 2 + marginals.variance
        return -0.5 * jnp.sum(square / variance + jnp.log(variance) + _LOG_2PI, axis=-1)

    def natural_step(
        self,
        projection: Projection,
        marginals: Marginals,
        y: Outputs,
        share: PerPoint,
        rate: Scalar | float,
    ) -> "GPProcess":
        weight = share[:, None] / self.noise_variance()
        gradient = weight * (y - marginals.mean)
        latent = self.latent.natural_step(projection, marginals, gradient, weight, rate)
        return eqx.tree_at(lambda process: process.latent, self, latent)

    def kl(self) -> Scalar:
        return self.latent.q.kl()


class NoiseProcess(Process):
    """White noise around a constant. The function *is* the noise, so q(f) is known exactly."""

    mean: Parameter
    std: Parameter

    def project(self, X: Inputs) -> Float[Array, "N 1"]:
        return jnp.zeros_like(X, shape=(X.shape[0], 1))

    def marginals(self, projection: Float[Array, "N 1"]) -> Marginals:
        return Marginals(self.mean.value + projection, self.std.value**2 + projection)

    def noise_variance(self) -> Float[Array, " P"]:
        return jnp.zeros_like(self.std.value)

    def expected_log_density(self, marginals: Marginals, y: Outputs) -> PerPoint:
        z = (y - self.mean.value) / self.std.value
        return -jnp.sum(0.5 * z**2 + jnp.log(self.std.value) + 0.5 * _LOG_2PI, axis=-1)

    def natural_step(
        self,
        projection: Any,
        marginals: Marginals,
        y: Outputs,
        share: PerPoint,
        rate: Scalar | float,
    ) -> "NoiseProcess":
        return self

    def kl(self) -> Scalar:
        return jnp.asarray(0.0)


class UniformProcess(Process):
    """Clutter, equally likely anywhere between two levels."""

    uniform: ClassVar[bool] = True
    low: Float[Array, " P"]
    high: Float[Array, " P"]

    def project(self, X: Inputs) -> Float[Array, "N 1"]:
        return jnp.zeros_like(X, shape=(X.shape[0], 1))

    def marginals(self, projection: Float[Array, "N 1"]) -> Marginals:
        mean, width = (self.high + self.low) / 2, self.high - self.low
        return Marginals(mean + projection, width**2 / 12 + projection)

    def noise_variance(self) -> Float[Array, " P"]:
        return jnp.zeros_like(self.low)

    def expected_log_density(self, marginals: Marginals, y: Outputs) -> PerPoint:
        inside = jnp.all((self.low <= y) & (y <= self.high), axis=-1)
        return jnp.where(inside, -jnp.sum(jnp.log(self.high - self.low)), _OUTSIDE)

    def natural_step(
        self,
        projection: Any,
        marginals: Marginals,
        y: Outputs,
        share: PerPoint,
        rate: Scalar | float,
    ) -> "UniformProcess":
        return self

    def kl(self) -> Scalar:
        return jnp.asarray(0.0)


class ProcessPrior(abc.ABC):
    """What a user says about a process before seeing data."""

    clutter: ClassVar[bool] = False
    """Whether the process carries no information about the input."""

    @abc.abstractmethod
    def build(self, setting: Setting) -> Process:
        """The trainable process for standardised data."""


@dataclass(frozen=True)
class GP(ProcessPrior):
    """A smooth function observed with Gaussian noise.

    Parameters
    ----------
    kernel
        Covariance function; squared exponential with one length scale per input if left out.
    mean
        Mean function in the user's units; the centre of the data if left out.
    noise_std
        Standard deviation of the noise to start from (or `fixed`), in the user's units.
    noise_prior
        Prior on that standard deviation, in the user's units.

    >>> from dagp import kernels
    >>> GP(kernel=kernels.Matern52(), noise_std=0.1).noise_std
    0.1
    """

    kernel: Kernel | None = None
    mean: Mean | None = None
    noise_std: Any = None
    noise_prior: Prior | None = None

    def build(self, setting: Setting) -> GPProcess:
        noise = parameter(self.noise_std, prior=self.noise_prior, name="noise_std")
        return GPProcess(
            self.latent(setting, outputs=len(setting.y_unit)),
            noise.in_units(setting.y_unit).starting_at(setting.noise_std),
            np.asarray(NOISE_FLOOR),
        )

    def latent(self, setting: Setting, outputs: int) -> SparseGP:
        """The sparse GP alone, as processes and gates use it."""
        kernel = self.kernel if self.kernel is not None else SquaredExponential()
        _check_columns(kernel, setting.inducing.shape[1])
        return SparseGP(
            kernel.in_units(setting.x_unit, setting.log_variance_unit, setting.lengthscale),
            _mean_in_units(self.mean, setting),
            parameter(setting.inducing, support="real", name="inducing"),
            Natural.prior(outputs, setting.inducing.shape[0]),
        )


@dataclass(frozen=True)
class Noise(ProcessPrior):
    """Clutter that carries no information about the input: a broad normal around a constant.

    >>> Noise(std=2.0)
    Noise(mean=None, std=2.0, std_prior=None)
    """

    clutter: ClassVar[bool] = True
    mean: Any = None
    std: Any = None
    std_prior: Prior | None = None

    def build(self, setting: Setting) -> NoiseProcess:
        outputs = len(setting.y_unit)
        if isinstance(self.mean, Parameter):
            raise ValueError(
                "Noise(mean=...) takes numbers; fix the level with Noise(std=fixed(...))."
            )
        centre = (
            0.0
            if self.mean is None
            else (np.asarray(self.mean) - setting.y_centre) / setting.y_unit
        )
        std = parameter(self.std, prior=self.std_prior, name="std").in_units(setting.y_unit)
        return NoiseProcess(
            parameter(np.broadcast_to(centre, (outputs,)), support="real", name="mean"), std
        )


@dataclass(frozen=True)
class Uniform(ProcessPrior):
    """Clutter, equally likely anywhere between `low` and `high` (the observed range if left out).

    >>> Uniform(low=-1.0, high=3.0)
    Uniform(low=-1.0, high=3.0)
    """

    clutter: ClassVar[bool] = True
    low: float | None = None
    high: float | None = None

    def build(self, setting: Setting) -> UniformProcess:
        def bound(stated: float | None, observed: np.ndarray) -> np.ndarray:
            if stated is None:
                return observed
            return np.broadcast_to((stated - setting.y_centre) / setting.y_unit, observed.shape)

        low, high = bound(self.low, setting.y_low), bound(self.high, setting.y_high)
        if not np.all(low < high):
            raise ValueError(f"Uniform needs low < high, got low={self.low} and high={self.high}.")
        return UniformProcess(low, high)


def _mean_in_units(mean: Mean | None, setting: Setting) -> Mean:
    if mean is None:
        return Centred()
    scaled = mean.in_units(setting.x_unit, float(np.mean(setting.y_unit)))
    return InUnits(scaled, setting.x_centre, setting.x_unit, setting.y_centre, setting.y_unit)


def _check_columns(kernel: Kernel, columns: int) -> None:
    if isinstance(kernel, Sum | Product):
        _check_columns(kernel.first, columns)
        _check_columns(kernel.second, columns)
    elif kernel.active is not None and not all(-columns <= c < columns for c in kernel.active):
        raise ValueError(f"{kernel!r} asks for a column that X, with {columns} columns, lacks.")
