"""Processes: what a user names (`GP`, `Noise`, `Uniform`) and what the model computes with.

A *prior* is a plain description in the user's units. Its `build` makes the trainable process for
standardised data. Every process answers the same few questions: its marginals at some inputs, the
expected log density of an output, its distance from the prior, and a natural-gradient step.
"""

import abc
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, NamedTuple

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
    "NoiseTails",
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
_TAILS = 0.05
"""Share of evenly spread noise that is left for its tails."""
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
    even: bool = False
    """Whether clutter of unknown shape starts evenly spread rather than normal."""

    @property
    def log_variance_unit(self) -> float:
        """Unit of a kernel's variance. Several outputs share a kernel, each in its own unit."""
        return 2 * float(np.log(self.y_unit[0])) if len(self.y_unit) == 1 else 0.0


class Process(eqx.Module):
    """A process in standardised units."""

    @property
    def uniform(self) -> bool:
        """Whether observations are uniform rather than normal."""
        return False

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


class UniformProcess(Process):
    """Clutter, equally likely anywhere between two levels."""

    low: Float[Array, " P"]
    high: Float[Array, " P"]

    @property
    def uniform(self) -> bool:
        return True

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


class NoiseTails(eqx.Module):
    """What evenly spread noise has beyond its range: a little of a broad normal.

    The range is only as wide as the data were; the next point may lie outside and must not be
    impossible.
    """

    share: Array
    mean: Float[Array, " P"]
    std: Float[Array, " P"]

    def around(self, core: PerPoint, y: Outputs) -> PerPoint:
        """Log density of a core with these tails."""
        tails = _log_normal(y, self.mean, self.std)
        return jnp.logaddexp(jnp.log1p(-self.share) + core, jnp.log(self.share) + tails)


class NoiseProcess(Process):
    """White noise, normal around a constant or spread evenly over the range of the data.

    The function *is* the noise, so q(f) is known exactly.
    """

    mean: Parameter
    std: Parameter
    spread: UniformProcess
    tails: "NoiseTails"
    even: Array
    """One where the noise is spread evenly, zero where it is normal."""
    open: bool = eqx.field(static=True)
    """Whether the shape is for the search to find."""

    @property
    def uniform(self) -> bool:
        return bool(self.even)

    def project(self, X: Inputs) -> Float[Array, "N 1"]:
        return self.spread.project(X)

    def marginals(self, projection: Float[Array, "N 1"]) -> Marginals:
        flat = self.spread.marginals(projection)
        return Marginals(
            jnp.where(self.even, flat.mean, self.mean.value + projection),
            jnp.where(self.even, flat.variance, self.std.value**2 + projection),
        )

    def noise_variance(self) -> Float[Array, " P"]:
        return jnp.zeros_like(self.std.value)

    def expected_log_density(self, marginals: Marginals, y: Outputs) -> PerPoint:
        normal = _log_normal(y, self.mean.value, self.std.value)
        core = self.spread.expected_log_density(marginals, y)
        return jnp.where(self.even, self.tails.around(core, y), normal)

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

    def reshaped(self) -> "NoiseProcess":
        """The same noise in the other shape."""
        return eqx.tree_at(lambda p: p.even, self, 1 - self.even)


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
    """Clutter that carries no information about the input.

    Parameters
    ----------
    mean, std
        Centre and standard deviation to start from (``std=fixed(...)`` to stay there), in the
        user's units.
    std_prior
        Prior on the standard deviation, in the user's units.
    shape
        ``"normal"``, ``"uniform"`` over the observed range, or None: whichever explains the data
        better. Stating a mean, a standard deviation or its prior means a normal.

    >>> Noise(std=2.0)
    Noise(mean=None, std=2.0, std_prior=None, shape=None)
    """

    clutter: ClassVar[bool] = True
    mean: Any = None
    std: Any = None
    std_prior: Prior | None = None
    shape: Literal["normal", "uniform"] | None = None

    def build(self, setting: Setting) -> NoiseProcess:
        if self.shape not in (None, "normal", "uniform"):
            raise ValueError(f'Noise(shape=...) is "normal" or "uniform", got {self.shape!r}.')
        if isinstance(self.mean, Parameter):
            raise ValueError(
                "Noise(mean=...) takes numbers; fix the level with Noise(std=fixed(...))."
            )
        open_shape = all(
            stated is None for stated in (self.shape, self.mean, self.std, self.std_prior)
        )
        even = setting.even if open_shape else self.shape == "uniform"
        centre = (
            0.0
            if self.mean is None
            else (np.asarray(self.mean) - setting.y_centre) / setting.y_unit
        )
        centre = np.broadcast_to(centre, (len(setting.y_unit),))
        return NoiseProcess(
            parameter(centre, support="real", name="mean"),
            parameter(self.std, prior=self.std_prior, name="std").in_units(setting.y_unit),
            *_spread(setting),
            np.asarray(float(even)),
            open_shape,
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


def _spread(setting: Setting) -> tuple[UniformProcess, NoiseTails]:
    """Even clutter over the observed range, with tails."""
    width = setting.y_high - setting.y_low
    half = np.where(width > 0, width / 2, 0.5)
    middle = (setting.y_low + setting.y_high) / 2
    tails = NoiseTails(np.asarray(_TAILS), middle, half)
    return UniformProcess(middle - half, middle + half), tails


def _log_normal(y: Outputs, mean: Any, std: Any) -> PerPoint:
    z = (y - mean) / std
    return -jnp.sum(0.5 * z**2 + jnp.log(std) + 0.5 * _LOG_2PI, axis=-1)


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
