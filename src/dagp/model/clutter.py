"""Clutter: processes that carry no information about the input (`Noise`, `Uniform`)."""

from dataclasses import dataclass
from typing import Any, ClassVar, Literal, Self

import equinox as eqx
import jax.numpy as jnp
import numpy as np

from dagp.core.tags import storable
from dagp.core.text import quoted
from dagp.core.typing import Array, Float, Inputs, Outputs, PerPoint, Rate, Scalar
from dagp.model.parameters import Numbers, Parameter, ParameterLike, Prior, parameter
from dagp.model.process import LOG_2PI, BuildContext, Components, Process, ProcessPrior, observed
from dagp.model.sparse_gp import Marginals

_NARROWEST = 1e-15
"""Narrowest range in standardised units: its square does not underflow in single precision."""
_APART = 8.0
"""Ends of a range are at least so many times the rounding of numbers of their size apart."""
_TAILS = 0.05
"""Mass of uniform noise that is in its tails."""
_OUTSIDE = -1e30
"""Log density where a density is zero: finite, so that no product with zero turns into NaN."""


class Clutter(Process):
    """Base class of processes without a latent function, and so without a q to train."""

    def project(self, X: Inputs) -> Float[Array, "N 1"]:
        return jnp.zeros_like(X, shape=(X.shape[0], 1))

    def natural_step(
        self, projection: Any, marginals: Any, y: Outputs, responsibility: PerPoint, rate: Rate
    ) -> Self:
        return self

    def kl(self) -> Scalar:
        return jnp.asarray(0.0)


@storable("process/Uniform")
class UniformProcess(Clutter):
    """Clutter with a uniform density between two levels."""

    low: Float[Array, " P"]
    high: Float[Array, " P"]

    @property
    def kind(self) -> str:
        return "Uniform"

    @property
    def is_uniform(self) -> bool:
        return True

    def marginals(self, projection: Float[Array, "N 1"]) -> Marginals:
        mean, width = (self.high + self.low) / 2, self.high - self.low
        return Marginals(mean + projection, width**2 / 12 + projection)

    def noise_variance(self) -> Float[Array, " P"]:
        return jnp.zeros_like(self.low)

    def expected_log_density(self, marginals: Marginals, y: Outputs) -> PerPoint:
        inside = jnp.all((self.low <= y) & (y <= self.high) | jnp.isnan(y), axis=-1)
        there = observed(y)[1]
        return jnp.where(inside, -jnp.sum(there * jnp.log(self.high - self.low), axis=-1), _OUTSIDE)

    def components(self, marginals: Marginals) -> Components:
        mean, variance = (part[None] for part in marginals)
        return Components(jnp.ones(1), mean, variance, jnp.zeros_like(mean))

    def check(self, dtype: str) -> None:
        if not np.all(np.asarray(self.low) <= np.asarray(self.high)):
            raise ValueError("low of a uniform process must not be above its high")


_LEAST_STD = 1e-10
"""In standardised units; its square is a number in single precision too."""


@storable("process/NoiseTails")
class NoiseTails(eqx.Module):
    """Normal tails of uniform noise: new points may lie outside the observed range."""

    share: Array
    mean: Float[Array, " P"]
    std: Float[Array, " P"]

    def around(self, core: PerPoint, y: Outputs) -> PerPoint:
        tails = _log_normal(y, self.mean, self.std)
        return jnp.logaddexp(jnp.log1p(-self.share) + core, jnp.log(self.share) + tails)


@storable("process/Noise")
class NoiseProcess(Clutter):
    """White noise, normal around a constant or uniform over the range of the data."""

    mean: Parameter
    std: Parameter
    spread: UniformProcess
    tails: "NoiseTails"
    uniform: Array
    """One if the noise is uniform, zero if it is normal."""

    @property
    def kind(self) -> str:
        return "Noise"

    @property
    def is_uniform(self) -> bool:
        return bool(self.uniform)

    @property
    def normal_std(self) -> Float[Array, " P"]:
        """The standard deviation if the noise is normal, above zero also where all outputs of the
        noise are equal."""
        return jnp.maximum(self.std.value, _LEAST_STD)

    def marginals(self, projection: Float[Array, "N 1"]) -> Marginals:
        flat = self.spread.marginals(projection)
        return Marginals(
            jnp.where(self.uniform, flat.mean, self.mean.value + projection),
            jnp.where(self.uniform, flat.variance, self.normal_std**2 + projection),
        )

    def noise_variance(self) -> Float[Array, " P"]:
        return jnp.zeros_like(self.std.value)

    def expected_log_density(self, marginals: Marginals, y: Outputs) -> PerPoint:
        normal = _log_normal(y, self.mean.value, self.normal_std)
        core = self.spread.expected_log_density(marginals, y)
        return jnp.where(self.uniform, self.tails.around(core, y), normal)

    def components(self, marginals: Marginals) -> Components:
        # Normal noise has no separate tails: their mass is zero.
        share = self.tails.share * self.uniform
        mean = jnp.stack([marginals.mean, jnp.broadcast_to(self.tails.mean, marginals.mean.shape)])
        broad = jnp.broadcast_to(self.tails.std**2, marginals.mean.shape)
        variance = jnp.stack([marginals.variance, broad])
        return Components(jnp.stack([1 - share, share]), mean, variance, jnp.zeros_like(mean))

    def check(self, dtype: str) -> None:
        self.spread.check(dtype)
        share, uniform = np.asarray(self.tails.share), np.asarray(self.uniform)
        if not np.all((share >= 0) & (share <= 1)):
            raise ValueError(f"tails.share of Noise must be between 0 and 1, got {share}")
        if not np.all((uniform == 0) | (uniform == 1)):
            raise ValueError(f"uniform of Noise must be 0 or 1, got {uniform}")


@storable("prior/Noise")
@dataclass(frozen=True)
class Noise(ProcessPrior):
    """Clutter that carries no information about the input.

    Parameters
    ----------
    mean : float or array-like of shape (P,), default=None
        Initial centre in the user's units; None is the centre of the data.
    std : float, array-like or Parameter, default=None
        Initial standard deviation in the user's units; ``fixed(...)`` holds it constant.
    std_prior : Prior, default=None
        Prior of the standard deviation, in the user's units.
    shape : {"normal", "uniform"}, default=None
        Normal, or uniform over the observed range. None chooses by the ELBO, or is normal where
        another argument is given.

    Examples
    --------
    >>> Noise(std=2.0)
    Noise(mean=None, std=2.0, std_prior=None, shape=None)
    """

    clutter: ClassVar[bool] = True
    mean: Numbers | None = None
    std: ParameterLike = None
    std_prior: Prior | None = None
    shape: Literal["normal", "uniform"] | None = None

    def build(self, context: BuildContext) -> NoiseProcess:
        if self.shape not in (None, "normal", "uniform"):
            raise ValueError(
                f'Noise(shape=...) must be "normal" or "uniform", got {quoted(self.shape)}.'
            )
        if isinstance(self.mean, Parameter):
            raise ValueError(
                "Noise(mean=...) takes numbers, got a Parameter; only std can be fixed(...)."
            )
        stated = (self.shape, self.mean, self.std, self.std_prior)
        open_shape = all(value is None for value in stated)
        uniform = context.uniform if open_shape else self.shape == "uniform"
        mean = context.y_centre if self.mean is None else np.asarray(self.mean)
        centre = np.broadcast_to((mean - context.y_centre) / context.y_unit, context.y_unit.shape)
        return NoiseProcess(
            parameter(centre, support="real", name="mean"),
            parameter(self.std, prior=self.std_prior, name="std").in_units(context.y_unit),
            *_spread(context),
            np.asarray(float(uniform)),
        )

    def resumed(self, trained: NoiseProcess, context: BuildContext) -> Process:
        ranges = _spread(context)
        return eqx.tree_at(lambda noise: (noise.spread, noise.tails), trained, ranges)


@storable("prior/Uniform")
@dataclass(frozen=True)
class Uniform(ProcessPrior):
    """Clutter with a uniform density between two levels.

    Parameters
    ----------
    low, high : float, default=None
        Ends in the user's units; None is the end of the observed range.

    Examples
    --------
    >>> Uniform(low=-1.0, high=3.0)
    Uniform(low=-1.0, high=3.0)
    """

    clutter: ClassVar[bool] = True
    low: float | None = None
    high: float | None = None

    def build(self, context: BuildContext) -> UniformProcess:
        def bound(stated: float | None, observed: np.ndarray) -> np.ndarray:
            if stated is None:
                return observed
            return np.broadcast_to((stated - context.y_centre) / context.y_unit, observed.shape)

        low, high = map(bound, (self.low, self.high), _observed_range(context))
        if not np.all(low < high):
            raise ValueError(f"Uniform must have low < high, got {self.low} and {self.high}.")
        return UniformProcess(low, high)

    def resumed(self, trained: Process, context: BuildContext) -> Process:
        return self.build(context)


def _spread(context: BuildContext) -> tuple[UniformProcess, NoiseTails]:
    """Uniform clutter over the observed range, and its tails."""
    low, high = _observed_range(context)
    tails = NoiseTails(np.asarray(_TAILS), (low + high) / 2, (high - low) / 2)
    return UniformProcess(low, high), tails


def _observed_range(context: BuildContext) -> tuple[np.ndarray, np.ndarray]:
    """Range of the outputs; one standardised unit for an output that is nearly constant, or more
    where numbers of its size are further apart."""
    low, high = context.y_low, context.y_high
    rounding = _APART * np.finfo(jnp.result_type(float)).eps * np.maximum(np.abs(low), np.abs(high))
    room = np.where(high - low > np.maximum(_NARROWEST, rounding), 0.0, np.maximum(0.5, rounding))
    return low - room, high + room


def _log_normal(y: Outputs, mean: Any, std: Any) -> PerPoint:
    y, there = observed(y)
    z = (y - mean) / std
    return -jnp.sum(there * (0.5 * z**2 + jnp.log(std) + 0.5 * LOG_2PI), axis=-1)
