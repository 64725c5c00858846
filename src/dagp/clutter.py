"""Clutter: processes that carry no information about the input (`Noise`, `Uniform`)."""

from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import equinox as eqx
import jax.numpy as jnp
import numpy as np

from dagp.parameters import Parameter, Prior, parameter
from dagp.processes import LOG_2PI, Components, Process, ProcessPrior, Setting
from dagp.sparse import Marginals
from dagp.typing import Array, Float, Inputs, Outputs, PerPoint, Scalar

__all__ = ["Noise", "NoiseProcess", "NoiseTails", "Uniform", "UniformProcess"]

_NARROWEST = 1e-15
"""Width of a range, in standardised units, whose square is a number in single precision too."""
_TAILS = 0.05
"""Share of evenly spread noise that is left for its tails."""
_OUTSIDE = -1e30
"""Log density where a density is zero: finite, so that no product with zero turns into NaN."""


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

    def components(self, marginals: Marginals) -> Components:
        mean, variance = (part[None] for part in marginals)
        return Components(jnp.ones(1), mean, variance, jnp.zeros_like(mean))


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

    def components(self, marginals: Marginals) -> Components:
        # A normal has no tails of its own: theirs have no mass.
        share = self.tails.share * self.even
        mean = jnp.stack([marginals.mean, jnp.broadcast_to(self.tails.mean, marginals.mean.shape)])
        broad = jnp.broadcast_to(self.tails.std**2, marginals.mean.shape)
        variance = jnp.stack([marginals.variance, broad])
        return Components(jnp.stack([1 - share, share]), mean, variance, jnp.zeros_like(mean))


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
        )

    def resumed(self, trained: Process, setting: Setting) -> Process:
        ranges = _spread(setting)
        return eqx.tree_at(lambda noise: (noise.spread, noise.tails), trained, ranges)


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

        low, high = map(bound, (self.low, self.high), _observed_range(setting))
        if not np.all(low < high):
            raise ValueError(f"Uniform needs low < high, got low={self.low} and high={self.high}.")
        return UniformProcess(low, high)

    def resumed(self, trained: Process, setting: Setting) -> Process:
        return self.build(setting)


def _spread(setting: Setting) -> tuple[UniformProcess, NoiseTails]:
    """Even clutter over the observed range, with tails."""
    low, high = _observed_range(setting)
    tails = NoiseTails(np.asarray(_TAILS), (low + high) / 2, (high - low) / 2)
    return UniformProcess(low, high), tails


def _observed_range(setting: Setting) -> tuple[np.ndarray, np.ndarray]:
    """Ends of the outputs; an output that hardly varies has a range of one standardised unit."""
    room = np.where(setting.y_high - setting.y_low > _NARROWEST, 0.0, 0.5)
    return setting.y_low - room, setting.y_high + room


def _log_normal(y: Outputs, mean: Any, std: Any) -> PerPoint:
    z = (y - mean) / std
    return -jnp.sum(0.5 * z**2 + jnp.log(std) + 0.5 * LOG_2PI, axis=-1)
