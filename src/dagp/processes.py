"""Processes: what a user names (`GP`) and what the model computes with.

A *prior* is a plain description in the user's units. Its `build` makes the trainable process for
standardised data. Every process answers the same few questions: its marginals at some inputs, the
expected log density of an output, its distance from the prior, and a natural-gradient step.
"""

import abc
import dataclasses
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

import equinox as eqx
import jax.numpy as jnp
import numpy as np

from dagp.kernels import Kernel, SquaredExponential, check_columns
from dagp.means import Centred, InUnits, Mean
from dagp.parameters import LogNormal, Parameter, Prior, parameter
from dagp.sparse import Marginals, Natural, Projection, SparseGP
from dagp.stack import DeepStack
from dagp.typing import Array, Float, Inputs, Outputs, PerPoint, Scalar

__all__ = [
    "GP",
    "Components",
    "GPProcess",
    "Growth",
    "HeteroscedasticProcess",
    "Process",
    "ProcessPrior",
    "Setting",
]

NOISE_FLOOR = 1e-4
"""Least noise of a function, in standardised units: a signal without any noise has no density,
and a bound that rises for ever."""
NOISE_MEDIAN = 0.1
NOISE_WIDTH = 2.0
"""Prior of a function's noise where the user states nothing: median, in standardised units, and
standard deviation of the logarithm. It says that there is a signal, and little more."""
_NODES = 5
"""Normal densities that stand for one whose variance is uncertain."""
_UNEVEN_RATE = 0.3
LOG_2PI = float(np.log(2 * np.pi))


class Growth(NamedTuple):
    """How the plain form of a deep process is taken to pieces when it grows."""

    stretch: float = 1.0
    """Factor for the length scales of the last layer: what the layers below it then have to do."""
    variance: float = 0.05
    std: float = 0.1
    """Where inner layers begin: variance of the prior, in standardised units, and standard
    deviation of q in its whitened space."""


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
    growth: Growth = Growth()

    @property
    def log_variance_unit(self) -> float:
        """Unit of a kernel's variance. Several outputs share a kernel, each in its own unit."""
        return 2 * float(np.log(self.y_unit[0])) if len(self.y_unit) == 1 else 0.0


class Components(NamedTuple):
    """What an observation of a process is a mixture of, C densities a point."""

    masses: Float[Array, " C"]
    mean: Float[Array, "C N P"]
    variance: Float[Array, "C N P"]
    """Of the function."""
    noise: Float[Array, "C N P"]
    """Variance of an observation around the function."""


class Process(eqx.Module):
    """A process in standardised units.

    Where the function is sampled (in deep processes), the marginals have a row for every sample
    and point, all points of the first sample first.
    """

    @property
    def uniform(self) -> bool:
        """Whether observations are uniform rather than normal."""
        return False

    @abc.abstractmethod
    def project(self, X: Inputs) -> Any:
        """What depends on the inputs and the hyperparameters, but not on q."""

    @abc.abstractmethod
    def marginals(self, projection: Any) -> Any:
        """Mean and variance of the latent function at the projected points."""

    @abc.abstractmethod
    def noise_variance(self) -> Float[Array, " P"]:
        """Variance of an observation around the latent function."""

    @abc.abstractmethod
    def expected_log_density(self, marginals: Any, y: Outputs) -> PerPoint:
        """E_q[log p(y_n | f(x_n))], summed over outputs."""

    @abc.abstractmethod
    def natural_step(
        self,
        projection: Any,
        marginals: Any,
        y: Outputs,
        share: PerPoint,
        rate: Scalar | float,
    ) -> "Process":
        """Move q towards its optimum, each point counting as much as its `share`."""

    @abc.abstractmethod
    def kl(self) -> Scalar:
        """KL divergence of q from the prior."""

    @abc.abstractmethod
    def components(self, marginals: Any) -> Components:
        """The predictive density, for observations at the points of the marginals."""


def per_sample(values: Float[Array, "N *P"], samples: int) -> Float[Array, "SN *P"]:
    """The same rows once for every sample."""
    return values if samples == 1 else jnp.tile(values, (samples, *[1] * (values.ndim - 1)))


def over_samples(values: Float[Array, "SN *P"], samples: int) -> Float[Array, "N *P"]:
    """Mean over the samples of every point."""
    return values if samples == 1 else split_samples(values, samples).mean(axis=0)


def split_samples(values: Float[Array, "SN *P"], samples: int) -> Float[Array, "S N *P"]:
    """An axis for the samples and one for the points."""
    return values.reshape(samples, -1, *values.shape[1:])


class GPProcess(Process):
    """A function with a sparse (possibly deep) GP prior, observed with Gaussian noise."""

    latent: SparseGP | DeepStack
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
        variance, samples = self.noise_variance(), self.latent.samples
        square = (per_sample(y, samples) - marginals.mean) ** 2 + marginals.variance
        square = over_samples(square, samples)
        return -0.5 * jnp.sum(square / variance + jnp.log(variance) + LOG_2PI, axis=-1)

    def natural_step(
        self,
        projection: Projection,
        marginals: Marginals,
        y: Outputs,
        share: PerPoint,
        rate: Scalar | float,
    ) -> "GPProcess":
        samples = self.latent.samples
        weight = per_sample(share[:, None] / samples / self.noise_variance(), samples)
        target = weight * (per_sample(y, samples) - projection.mean)
        latent = self.latent.natural_step(projection, target, weight, rate)
        return eqx.tree_at(lambda process: process.latent, self, latent)

    def kl(self) -> Scalar:
        return self.latent.kl()

    def components(self, marginals: Marginals) -> Components:
        samples = self.latent.samples
        mean, variance = (split_samples(part, samples) for part in marginals)
        noise = jnp.broadcast_to(self.noise_variance(), mean.shape)
        return Components(jnp.full(samples, 1 / samples), mean, variance, noise)


class Uneven(NamedTuple):
    """Projections, or marginals, of a function and of the log of its noise."""

    function: Any
    log_noise: Any


class HeteroscedasticProcess(Process):
    """A function whose noise varies with the input, ``variance(x) = noise_std² · exp(g(x))``.

    The log g has a GP prior of its own. Everything the bound needs is known in closed form.
    """

    latent: SparseGP | DeepStack
    log_noise: SparseGP
    noise_std: Parameter
    floor: Array

    def project(self, X: Inputs) -> Uneven:
        return Uneven(self.latent.project(X), self.log_noise.project(X))

    def marginals(self, projection: Uneven) -> Uneven:
        return Uneven(
            self.latent.marginals(projection.function),
            self.log_noise.marginals(projection.log_noise),
        )

    def noise_variance(self) -> Float[Array, " P"]:
        return self.noise_std.value**2 + self.floor**2

    def _precision(self, log_noise: Marginals) -> Outputs:
        """E[1 / variance] at each point."""
        return jnp.exp(log_noise.variance / 2 - log_noise.mean) / self.noise_variance()

    def _squares(self, function: Marginals, y: Outputs) -> Outputs:
        """Expected squared distance of each output from the function."""
        samples = self.latent.samples
        square = (per_sample(y, samples) - function.mean) ** 2 + function.variance
        return over_samples(square, samples)

    def expected_log_density(self, marginals: Uneven, y: Outputs) -> PerPoint:
        function, log_noise = marginals
        quadratic = self._squares(function, y) * self._precision(log_noise)
        log_variance = jnp.log(self.noise_variance()) + log_noise.mean
        return -0.5 * jnp.sum(quadratic + log_variance + LOG_2PI, axis=-1)

    def natural_step(
        self,
        projection: Uneven,
        marginals: Uneven,
        y: Outputs,
        share: PerPoint,
        rate: Scalar | float,
    ) -> "HeteroscedasticProcess":
        function, log_noise = marginals
        samples, precision = self.latent.samples, self._precision(log_noise)
        weight = per_sample(share[:, None] / samples * precision, samples)
        target = weight * (per_sample(y, samples) - projection.function.mean)
        latent = self.latent.natural_step(projection.function, target, weight, rate)
        # The derivatives of the expected log density with respect to mean and variance of g.
        quadratic = share[:, None] * self._squares(function, y) * precision
        slope = 0.5 * jnp.sum(quadratic - share[:, None], axis=1, keepdims=True)
        bend = 0.5 * jnp.sum(quadratic, axis=1, keepdims=True)
        # Not conjugate: full steps overshoot.
        target = slope + bend * (log_noise.mean - projection.log_noise.mean)
        noise = self.log_noise.natural_step(projection.log_noise, target, bend, _UNEVEN_RATE * rate)
        return eqx.tree_at(lambda p: (p.latent, p.log_noise), self, (latent, noise))

    def kl(self) -> Scalar:
        return self.latent.kl() + self.log_noise.kl()

    def components(self, marginals: Uneven) -> Components:
        samples = self.latent.samples
        mean, variance = (split_samples(part, samples) for part in marginals.function)
        nodes, masses = np.polynomial.hermite_e.hermegauss(_NODES)
        centre, spread = marginals.log_noise.mean, jnp.sqrt(marginals.log_noise.variance)
        # Far from the inducing points it takes a huge log to move it at all: cut before infinity.
        most = 0.5 * np.log(np.finfo(centre.dtype).max)
        grown = jnp.exp(jnp.minimum(centre + nodes[:, None, None] * spread, most))
        noise = self.noise_variance() * grown
        masses = np.tile(masses / masses.sum(), samples) / samples
        return Components(
            jnp.asarray(masses),
            jnp.repeat(mean, _NODES, axis=0),
            jnp.repeat(variance, _NODES, axis=0),
            jnp.tile(noise, (samples, 1, 1)),
        )


Function = GPProcess | HeteroscedasticProcess
"""Processes that are functions of the input."""


class ProcessPrior(abc.ABC):
    """What a user says about a process before seeing data."""

    clutter: ClassVar[bool] = False
    """Whether the process carries no information about the input."""

    @abc.abstractmethod
    def build(self, setting: Setting) -> Process:
        """The trainable process for standardised data, in the plain form the search works with."""

    def grown(self, plain: Process, setting: Setting) -> Process:
        """The process that was asked for, beginning as the plain one that the search found."""
        return plain

    def resumed(self, trained: Process, setting: Setting) -> Process:
        """A trained process, to go on with other data."""
        return trained


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
        Prior on that standard deviation, in the user's units. Where neither is stated, the noise
        is a priori about a tenth of the spread of the data, give or take a factor of seven:
        there is a signal. A few dozen points overrule it.
    noise_gp
        Where the noise varies with the input: prior of the log of its variance around the level
        above, ``GP()`` for a smooth change.

    >>> from dagp import kernels
    >>> GP(kernel=kernels.Matern52(), noise_std=0.1).noise_std
    0.1
    """

    kernel: Kernel | None = None
    mean: Mean | None = None
    noise_std: Any = None
    noise_prior: Prior | None = None
    noise_gp: "GP | None" = None

    def build(self, setting: Setting) -> GPProcess:
        noise = parameter(self.noise_std, prior=self.noise_prior, name="noise_std")
        if noise.automatic and noise.prior is None:
            noise = dataclasses.replace(
                noise, prior=LogNormal(NOISE_MEDIAN * setting.y_unit, NOISE_WIDTH)
            )
        return GPProcess(
            self.latent(setting, outputs=len(setting.y_unit)),
            noise.in_units(setting.y_unit).starting_at(setting.noise_std),
            np.asarray(NOISE_FLOOR),
        )

    def grown(self, plain: Process, setting: Setting) -> Process:
        return uneven(plain, self.noise_gp, setting)

    def latent(self, setting: Setting, outputs: int) -> SparseGP:
        """The sparse GP alone, as processes and gates use it."""
        kernel = self.kernel if self.kernel is not None else SquaredExponential()
        check_columns(kernel, setting.inducing.shape[1])
        return SparseGP(
            kernel.in_units(setting.x_unit, setting.log_variance_unit, setting.lengthscale),
            _mean_in_units(self.mean, setting),
            parameter(setting.inducing, support="real", name="inducing"),
            Natural.prior(outputs, setting.inducing.shape[0]),
        )


DEFAULT_LOG_NOISE = SquaredExponential(variance=parameter(None, prior=LogNormal(median=1.0)))
"""Noise that differs by a factor of e or so between far places."""


def uneven(process: Process, prior: GP | None, setting: Setting) -> Process:
    """The process with noise that varies, where a prior says how; it begins constant."""
    if prior is None:
        return process
    assert isinstance(process, GPProcess)
    if prior.kernel is None:
        prior = dataclasses.replace(prior, kernel=DEFAULT_LOG_NOISE)
    columns = setting.inducing.shape[1]
    logarithmic = setting._replace(
        y_centre=np.zeros(1), y_unit=np.ones(1), lengthscale=float(np.sqrt(columns))
    )
    log_noise = prior.latent(logarithmic, outputs=1)
    return HeteroscedasticProcess(process.latent, log_noise, process.noise_std, process.floor)


def _mean_in_units(mean: Mean | None, setting: Setting) -> Mean:
    if mean is None:
        return Centred()
    scaled = mean.in_units(setting.x_unit, float(np.mean(setting.y_unit)))
    return InUnits(scaled, setting.x_centre, setting.x_unit, setting.y_centre, setting.y_unit)
