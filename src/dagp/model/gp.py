"""GP processes: a function with a GP prior, observed with noise.

The noise is constant (`GPProcess`) or heteroscedastic (`HeteroscedasticProcess`), and normal or
heavy-tailed (`NoiseShape`). `GP` is the prior given by the user, of a process or of the gate.
"""

import dataclasses
from dataclasses import dataclass
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from dagp.core.tags import storable
from dagp.core.typing import Array, Float, Inputs, Outputs, PerPoint, Rate, Scalar
from dagp.model.gates import GatePrior, GPGate, unitless
from dagp.model.kernel import Kernel
from dagp.model.kernels import SquaredExponential
from dagp.model.means import Centred, InUnits, Mean
from dagp.model.noise_shapes import GaussianShape, NoiseName, NoiseShape, check_shape, noise_shape
from dagp.model.noisy import NoisyFunction
from dagp.model.parameters import LogNormal, ParameterLike, Prior, is_parameter, parameter
from dagp.model.process import (
    BuildContext,
    Components,
    Process,
    ProcessPrior,
    observed,
    split_samples,
)
from dagp.model.sparse_gp import Marginals, Projection, SparseGP
from dagp.model.variational import NaturalGaussian

NOISE_FLOOR = 1e-4
"""Least noise standard deviation in standardised units: without a floor the ELBO is unbounded."""
NOISE_MEDIAN = 0.1
NOISE_WIDTH = 2.0
"""Default log-normal prior of the noise: median, in standardised units, and standard deviation of
the logarithm. It favours a signal over pure noise and is weak otherwise."""
_NODES = 5
"""Noise levels per predictive density with uncertain noise variance."""
_LONGEST_STEP = 4.0
"""Most that a natural-gradient step may change the log noise variance at a data point. Where a
function leaves almost no residuals its curvature vanishes, and whole steps would be endless."""
_NOISE_GP_RATE = 0.3
"""Step size of the noise GP, which is not conjugate: full steps overshoot."""


@storable("process/GP")
class GPProcess(NoisyFunction):
    """A function with a sparse (possibly deep) GP prior, observed with noise."""

    shape: NoiseShape = GaussianShape()

    @property
    def heavy_tailed(self) -> bool:
        return not isinstance(self.shape, GaussianShape)

    def project(self, X: Inputs) -> Projection:
        return self.latent.project(X)

    def marginals(self, projection: Projection) -> Marginals:
        return self.latent.marginals(projection)

    def expected_log_density(self, marginals: Marginals, y: Outputs) -> PerPoint:
        variance = self.noise_variance()
        square = self.squared_error(marginals, y) / variance
        return self.shape.log_density(square, jnp.log(variance), observed(y)[1])

    def natural_step(
        self,
        projection: Projection,
        marginals: Marginals,
        y: Outputs,
        responsibility: PerPoint,
        rate: Rate,
    ) -> "GPProcess":
        variance = self.noise_variance()
        square = self.squared_error(marginals, y) / variance
        precision = responsibility[:, None] / self.latent.samples / variance
        precision = precision * self.shape.weight(square, observed(y)[1])
        latent = self.conjugate_step(projection, y, precision, rate)
        return eqx.tree_at(lambda process: process.latent, self, latent)

    def kl(self) -> Scalar:
        return self.latent.kl()

    def tail_variance(self) -> Scalar:
        return jnp.dot(*self.shape.nodes())

    def uncertain_precision(self, marginals: Marginals, y: Outputs) -> Outputs:
        return self.lacking(self.shape, marginals, y, 1 / self.noise_variance())

    def check(self, dtype: str) -> None:
        super().check(dtype)
        check_shape(self.shape)

    def components(self, marginals: Marginals) -> Components:
        samples = self.latent.samples
        mean, variance = (split_samples(part, samples) for part in marginals)
        masses, factors = self.shape.nodes()
        noise = jnp.broadcast_to(self.noise_variance(), mean.shape[1:])
        return _with_noise(mean, variance, masses, factors[:, None, None] * noise)


def _with_noise(
    mean: Float[Array, "S N P"],
    variance: Float[Array, "S N P"],
    masses: Float[Array, " C"],
    noise: Float[Array, "C N P"],
) -> Components:
    """Every sample of a function with every component of its noise."""
    samples, count = len(mean), len(masses)
    return Components(
        jnp.tile(masses, samples) / samples,
        jnp.repeat(mean, count, axis=0),
        jnp.repeat(variance, count, axis=0),
        jnp.tile(noise, (samples, 1, 1)),
    )


class Heteroscedastic(NamedTuple):
    """Projections, or marginals, of a function and of the log of its noise variance."""

    function: Any
    log_noise: Any


@storable("process/Heteroscedastic")
class HeteroscedasticProcess(NoisyFunction):
    """Heteroscedastic noise, ``variance(x) = noise_std² · exp(g(x))``, where g has a GP prior."""

    log_noise: SparseGP
    shape: NoiseShape = GaussianShape()

    @property
    def heavy_tailed(self) -> bool:
        return not isinstance(self.shape, GaussianShape)

    def project(self, X: Inputs) -> Heteroscedastic:
        return Heteroscedastic(self.latent.project(X), self.log_noise.project(X))

    def marginals(self, projection: Heteroscedastic) -> Heteroscedastic:
        return Heteroscedastic(
            self.latent.marginals(projection.function),
            self.log_noise.marginals(projection.log_noise),
        )

    def _precision(self, log_noise: Marginals) -> Outputs:
        """E[1 / variance] at each point."""
        return jnp.exp(log_noise.variance / 2 - log_noise.mean) / self.noise_variance()

    def expected_log_density(self, marginals: Heteroscedastic, y: Outputs) -> PerPoint:
        function, log_noise = marginals
        quadratic = self.squared_error(function, y) * self._precision(log_noise)
        log_variance = jnp.log(self.noise_variance()) + log_noise.mean
        return self.shape.log_density(quadratic, log_variance, observed(y)[1])

    def natural_step(
        self,
        projection: Heteroscedastic,
        marginals: Heteroscedastic,
        y: Outputs,
        responsibility: PerPoint,
        rate: Rate,
    ) -> "HeteroscedasticProcess":
        function, log_noise = marginals
        there = observed(y)[1]
        counts = responsibility[:, None] * there
        precision, square = self._precision(log_noise), self.squared_error(function, y)
        precision = precision * self.shape.weight(square * precision, there)
        weight = counts / self.latent.samples * precision
        latent = self.conjugate_step(projection.function, y, weight, rate)
        # The derivatives of the expected log density with respect to mean and variance of g.
        quadratic = counts * square * precision
        slope = 0.5 * jnp.sum(quadratic - counts, axis=1, keepdims=True)
        bend = 0.5 * jnp.sum(quadratic, axis=1, keepdims=True)
        target = slope + bend * (log_noise.mean - projection.log_noise.mean)
        slower = _NOISE_GP_RATE * rate
        moved = self.log_noise.natural_step(projection.log_noise, target, bend, slower)
        change = moved.marginals(projection.log_noise).mean - log_noise.mean
        farthest = jnp.max(jnp.abs(change), where=responsibility[:, None] > 0, initial=0.0)
        slower = slower * jnp.minimum(1.0, _LONGEST_STEP / farthest)
        noise = self.log_noise.natural_step(projection.log_noise, target, bend, slower)
        return eqx.tree_at(lambda p: (p.latent, p.log_noise), self, (latent, noise))

    def kl(self) -> Scalar:
        return self.latent.kl() + self.log_noise.kl()

    def tail_variance(self) -> Scalar:
        return jnp.dot(*self.shape.nodes())

    def uncertain_precision(self, marginals: Heteroscedastic, y: Outputs) -> Outputs:
        precision = self._precision(marginals.log_noise)
        return self.lacking(self.shape, marginals.function, y, precision)

    def components(self, marginals: Heteroscedastic) -> Components:
        samples = self.latent.samples
        mean, variance = (split_samples(part, samples) for part in marginals.function)
        nodes, masses = np.polynomial.hermite_e.hermegauss(_NODES)
        centre, spread = marginals.log_noise.mean, jnp.sqrt(marginals.log_noise.variance)
        # Far from the inducing points the log can be large: clip it before exp overflows.
        most = 0.5 * np.log(np.finfo(centre.dtype).max)
        factor = jnp.exp(jnp.minimum(centre + nodes[:, None, None] * spread, most))
        levels = self.noise_variance() * factor
        shares, factors = self.shape.nodes()
        noise = (levels[:, None] * factors[:, None, None]).reshape(-1, *levels.shape[1:])
        masses = (jnp.asarray(masses / masses.sum())[:, None] * shares).ravel()
        return _with_noise(mean, variance, masses, noise)

    def function_projection(self, projection: Heteroscedastic) -> Projection:
        return projection.function

    def function_marginals(self, marginals: Heteroscedastic) -> Marginals:
        return marginals.function

    def with_function_marginals(
        self, marginals: Heteroscedastic, moved: Marginals
    ) -> Heteroscedastic:
        return marginals._replace(function=moved)

    def check(self, dtype: str) -> None:
        super().check(dtype)
        check_shape(self.shape)
        self.log_noise.check(dtype)


@storable("prior/GP")
@dataclass(frozen=True)
class GP(ProcessPrior, GatePrior):
    """GP prior of a function, observed with noise.

    Parameters
    ----------
    kernel : Kernel, default=None
        Covariance function; None is squared exponential with one length scale per input.
    mean : Mean, default=None
        Mean function in the user's units; None is the centre of the data.
    noise_std : float, array-like or Parameter, default=None
        Initial standard deviation of the noise in the user's units; ``fixed(...)`` holds it. Of
        Student-t noise with ν degrees of freedom that of the normal noise it becomes for large ν;
        the standard deviation is then `noise_std` times sqrt(ν / (ν − 2)), for ν > 2.
    noise_prior : Prior, default=None
        Prior of that standard deviation, in the user's units. Without this and `noise_std` it is
        log-normal, around a tenth of the spread of the data within a factor of e².
    noise_gp : GP, default=None
        Prior of the log noise variance around that level, for heteroscedastic noise.
    noise : {"gaussian", "student", "laplace"}, default="gaussian"
        Shape of the noise. The others have heavy tails, so that single large errors move the
        function little; all outputs of a row share one error size.
    degrees : float or Parameter, default=None
        Initial degrees of freedom of Student-t noise, from 1 (the heaviest tails) to 1000;
        ``fixed(...)`` holds them. Their prior, unless stated, is ``Gamma(2.0, 0.1)``.

    Examples
    --------
    >>> from dagp import fixed, kernels
    >>> GP(kernel=kernels.Matern52(), noise_std=0.1).noise_std
    0.1
    >>> GP(noise="student", degrees=fixed(4.0)).noise
    'student'
    """

    kernel: Kernel | None = None
    mean: Mean | None = None
    noise_std: ParameterLike = None
    noise_prior: Prior | None = None
    noise_gp: "GP | None" = None
    noise: NoiseName = "gaussian"
    degrees: ParameterLike = None

    def __post_init__(self) -> None:
        noise_shape(self.noise, self.degrees)

    def build(self, context: BuildContext) -> GPProcess:
        noise = parameter(self.noise_std, prior=self.noise_prior, name="noise_std")
        if noise.automatic and noise.prior is None:
            prior = LogNormal(NOISE_MEDIAN * context.y_unit, NOISE_WIDTH)
            noise = dataclasses.replace(noise, prior=prior)
        process = GPProcess(
            self.latent(context, n_outputs=len(context.y_unit)),
            noise.in_units(context.y_unit).starting_at(context.noise_std),
            np.asarray(NOISE_FLOOR),
            noise_shape(self.noise, self.degrees),
        )
        _check_variances(process, float(np.min(context.y_unit)))
        return process

    def deepened(self, trained: GPProcess, context: BuildContext) -> Process:
        return with_noise_gp(trained, self.noise_gp, context)

    def build_gate(self, context: BuildContext, n_processes: int) -> GPGate:
        return GPGate.of(self.latent(unitless(context), n_outputs=n_processes))

    def latent(self, context: BuildContext, n_outputs: int) -> SparseGP:
        """The sparse GP alone, as processes and gates use it."""
        kernel = self.kernel if self.kernel is not None else SquaredExponential()
        return SparseGP(
            context.kernel(kernel),
            _mean_in_units(self.mean, context),
            parameter(context.inducing, support="real", name="inducing"),
            NaturalGaussian.prior(n_outputs, context.inducing.shape[0]),
        )


_POWERS = {"noise_std": 2, "variance": 1}
"""Which powers of the parameters of a process are variances."""
_ROOM = 10.0
"""Logarithm of what is left between a variance and the largest number, for sums over points."""
DEFAULT_LOG_NOISE = SquaredExponential(variance=parameter(None, prior=LogNormal(median=1.0)))
"""Prior of the log noise: distant inputs differ by a factor of about e."""


def with_noise_gp(process: GPProcess, prior: GP | None, context: BuildContext) -> Process:
    """The process with heteroscedastic noise, initially constant, if there is a prior for it."""
    if prior is None:
        return process
    if prior.kernel is None:
        prior = dataclasses.replace(prior, kernel=DEFAULT_LOG_NOISE)
    logarithmic = unitless(context)._replace(lengthscale=float(np.sqrt(context.n_inputs)))
    return HeteroscedasticProcess(
        latent=process.latent,
        noise_std=process.noise_std,
        floor=process.floor,
        log_noise=prior.latent(logarithmic, n_outputs=1),
        shape=process.shape,
    )


def _mean_in_units(mean: Mean | None, context: BuildContext) -> Mean:
    if mean is None:
        return Centred()
    x, y, y_unit = context.x_centre, context.y_centre, context.y_unit
    several = len(y_unit) > 1
    scaled = mean.in_units(context.x_unit, y_unit if several else float(y_unit[0]))
    near = scaled.seen_from(x, y if several else float(y[0]))
    if near is None:
        return InUnits(scaled, x, context.x_unit, y, y_unit)
    return InUnits(near, np.zeros_like(x), context.x_unit, np.zeros_like(y), y_unit)


def _check_variances(process: GPProcess, y_unit: float) -> None:
    """Raise if a variance that the user gave exceeds floating point in standardised units."""
    numbers = np.finfo(jnp.result_type(float))
    for path, node in jax.tree_util.tree_leaves_with_path(process, is_leaf=is_parameter):
        name = getattr(path[-1], "name", "")
        if name not in _POWERS or not is_parameter(node) or node.automatic:
            continue
        raw, unit = np.asarray(node.raw, np.float64), np.asarray(node.unit, np.float64)
        if np.any(_POWERS[name] * (raw - unit) > np.log(numbers.max) - _ROOM):
            raise ValueError(
                f"{name} is {np.exp(raw.max()):.0e}, but y spreads over about {y_unit:.0e}: the "
                f"variance exceeds {numbers.dtype}. Choose a smaller one, or none."
            )
