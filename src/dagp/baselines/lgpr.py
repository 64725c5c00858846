"""Leveraged Gaussian process regression (Choi, Kim, Lee, Oh 2015; Choi, Lee, Oh 2016).

Every training point has a leverage γ in [−1, 1], a new point has leverage 1, and the covariance
of two points is multiplied by cos(π/2 (γ − γ')). A point of leverage 1 is evidence for the
function f, one of leverage −1 evidence against it, and one of leverage 0 uninformative:
equivalently, a point observes sin(πγ/2) f + cos(πγ/2) g, with g a second draw from the prior.
"""

from dataclasses import KW_ONLY, dataclass, replace
from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from dagp.baselines.base import DensityBaseline, Predicted, setting
from dagp.baselines.capabilities import Capabilities
from dagp.baselines.optimise import full_batch, initial_gp, maximise
from dagp.core.linalg import cholesky, inverse_factor, log_det
from dagp.core.text import quoted
from dagp.core.typing import Array, Float, Inputs, Int, PerPoint, RandomState, Scalar
from dagp.model.association import Batch
from dagp.model.gp import NOISE_FLOOR
from dagp.model.kernel import Kernel, check_columns
from dagp.model.kernels import SquaredExponential
from dagp.model.parameters import Parameter, fixed, log_prior, parameter
from dagp.model.process import LOG_2PI

NOISE_STD = 0.3
LENGTHSCALE = 0.5
"""Initial noise and length scale, in standardised units."""


class LeveragedGP(eqx.Module):
    """GP with leverages of the training points, in standardised units."""

    kernel: Kernel
    noise_std: Parameter
    angle: Parameter
    """One per training point; the leverage is its cosine, an unconstrained parametrisation."""

    def leverages(self) -> PerPoint:
        """Leverages of the training points."""
        return jnp.cos(self.angle.value)

    def noise_variance(self) -> Scalar:
        """Variance of the observation noise."""
        return self.noise_std.value**2 + NOISE_FLOOR**2

    def covariance(self, X: Inputs) -> Float[Array, "N N"]:
        """Covariance of the training outputs."""
        leveraged = self.kernel(X, X) * leverage_factor(self.leverages(), self.leverages())
        return leveraged + self.noise_variance() * jnp.eye(len(X))


def leverage_factor(first: PerPoint, second: Float[Array, " N2"]) -> Float[Array, "N N2"]:
    """Factor by which leverages multiply the covariance.

    Positive semi-definite, as cos(a − b) = cos a cos b + sin a sin b.
    """
    return jnp.cos(np.pi / 2 * (first[:, None] - second))


@jax.custom_vjp
def log_evidence(covariance: Float[Array, "N N"], y: PerPoint) -> Scalar:
    """Log marginal likelihood: density of the outputs under N(0, covariance)."""
    return _evidence_fwd(covariance, y)[0]


def _evidence_fwd(
    covariance: Float[Array, "N N"], y: PerPoint
) -> tuple[Scalar, tuple[Array, Array]]:
    lower = cholesky(covariance)
    inverse = inverse_factor(lower)
    white = inverse @ y
    value = -0.5 * (white @ white + log_det(lower) + len(y) * LOG_2PI)
    return value, (white @ inverse, inverse)


def _evidence_bwd(residuals: tuple[Array, Array], cotangent: Scalar) -> tuple[Array, Array]:
    """Backward pass in closed form: differentiating the Cholesky factorisation costs more."""
    coefficients, inverse = residuals
    outer = coefficients[:, None] * coefficients
    return 0.5 * cotangent * (outer - inverse.T @ inverse), -cotangent * coefficients


log_evidence.defvjp(_evidence_fwd, _evidence_bwd)


def objective(model: tuple[LeveragedGP, Array], batch: Batch) -> Scalar:
    """Penalised log evidence."""
    leveraged, penalty = model
    evidence = log_evidence(leveraged.covariance(batch.X), batch.y[:, 0])
    return evidence + log_prior(leveraged) - penalty * jnp.sum(1 - leveraged.leverages())


class Posterior(NamedTuple):
    """A trained model conditioned on the data."""

    model: LeveragedGP
    X: Inputs
    evidence: Scalar
    coefficients: PerPoint
    inverse: Float[Array, "N N"]


@jax.jit
def condition(model: LeveragedGP, batch: Batch) -> Posterior:
    """Condition on the data."""
    evidence, residuals = _evidence_fwd(model.covariance(batch.X), batch.y[:, 0])
    return Posterior(model, batch.X, evidence, *residuals)


@jax.jit
def _predict(posterior: Posterior, X: Inputs) -> Predicted:
    """Predictive distribution at new points of leverage 1."""
    model, X_train, _, coefficients, inverse = posterior
    cross = model.kernel(X, X_train) * leverage_factor(jnp.ones(len(X)), model.leverages())
    explained = jnp.sum((cross @ inverse.T) ** 2, axis=1)
    variance = jnp.maximum(model.kernel.diagonal(X) - explained, 0.0)
    noise = jnp.broadcast_to(model.noise_variance(), (len(X), 1))
    mean = cross @ coefficients
    return Predicted(jnp.ones((len(X), 1)), mean[:, None], variance[:, None], noise)


@dataclass(eq=False, repr=False)
class LGPR(DensityBaseline):
    """Leveraged Gaussian process regression.

    Leverages, kernel and noise maximise the log evidence minus ``leverage_penalty * Σ (1 − γ)``, a
    sparsity penalty under which most leverages are 1. Training has three stages: kernel and noise
    with all leverages at 1, then the leverages with kernel and noise fixed, then kernel and noise
    again. More alternations, or joint training, overfit: with a leverage per point and small noise
    the second function lets the first interpolate any data. A leverage is the cosine of an
    unconstrained angle, in place of the second paper's proximal steps.

    Parameters
    ----------
    kernel : Kernel or None, default=None
        Kernel in the units of the data; None: squared exponential, one length scale per input.
    leverage_penalty : float, default=1.5
        Log evidence that one point must gain to give up one unit of leverage.
    max_iter : int, default=100
        Maximum number of steps in each of the three stages. A step takes O(N³) operations.
    tol : float, default=1e-3
        A stage ends when 25 steps gain less than this per data point.
    random_state : int, RandomState, Generator or None, default=None
        Seed of the initial leverages.

    Attributes
    ----------
    leverages_ : ndarray of shape (N,)
        Leverage of each training point.
    log_evidence_ : float
        Log marginal likelihood of the standardised outputs.
    kernel_ : Kernel
        Fitted kernel, in the units of the data.
    noise_std_ : float
        Fitted noise standard deviation, in the units of the data.
    n_iter_ : ndarray of shape (3,)
        Number of steps in each stage.

    Examples
    --------
    >>> import numpy as np
    >>> x = np.linspace(0, 6, 40)
    >>> y = np.where(np.arange(40) % 8 == 5, -2, 2) * np.sin(x)
    >>> model = LGPR(random_state=0).fit(x[:, None], y)
    >>> model.leverages_[5] < model.leverages_[4]
    np.True_
    >>> model.predict_mixture([[2.0]])
    Mixture(1 point, 1 component)
    """

    kernel: Kernel | None = None
    _: KW_ONLY
    leverage_penalty: float = setting(1.5, least=0.0)
    max_iter: int = setting(100, least=1)
    tol: float = setting(1e-3, least=0.0)
    random_state: RandomState = None

    capabilities = Capabilities(bayesian=True, predictive_posterior=True, interpretable_priors=True)

    def _learn(self, X: Inputs, y: PerPoint, rng: np.random.Generator) -> None:
        kernel = self.kernel if self.kernel is not None else SquaredExponential()
        if not isinstance(kernel, Kernel):
            raise ValueError(f"kernel must be a Kernel or None, got {quoted(kernel)}.")
        check_columns(kernel, X.shape[1])
        batch = full_batch(X, y)
        start = initial_gp(kernel, self.units_, LENGTHSCALE, NOISE_STD)
        ones = fixed(np.zeros(len(X)), support="real")
        plain, plain_objective, first = self._maximise(LeveragedGP(*start, ones), batch)
        # Initial leverages must differ: where all are equal, the evidence has zero gradient.
        angle = parameter(jnp.arccos(rng.uniform(0, 1, len(X))), support="real")
        still = LeveragedGP(fixed(plain.kernel), fixed(plain.noise_std), angle)
        moved, _, second = self._maximise(still, batch)
        leveraged = replace(plain, angle=fixed(moved.angle))
        model, final_objective, third = self._maximise(leveraged, batch)
        self.n_iter_: Int[np.ndarray, " 3"] = np.array([first, second, third])
        # Without leverages where they do not raise the objective.
        model = model if final_objective > plain_objective else plain
        # As NumPy arrays: from a pickle, JAX reads its own in the precision of the user's session.
        self._posterior: Posterior = jax.tree.map(np.asarray, condition(model, batch))
        self.log_evidence_: float = float(self._posterior.evidence)
        self.leverages_: Float[np.ndarray, " N"] = np.asarray(model.leverages())
        self.kernel_: Kernel = self._posterior.model.kernel
        self.noise_std_: float = float(np.sqrt(model.noise_variance())) * self.units_.y_unit[0]

    def _maximise(self, model: LeveragedGP, batch: Batch) -> tuple[LeveragedGP, float, int]:
        """The model with its trainable parameters maximised, the objective there, and the steps."""
        initial = (jax.tree.map(jnp.asarray, model), jnp.asarray(float(self.leverage_penalty)))
        found = maximise(objective, initial, batch, max_iter=self.max_iter, tol=self.tol)
        return found.state.model[0], found.bound, len(found.trace)

    def _components(self, X: Inputs) -> Predicted:
        return _predict(self._posterior, jnp.asarray(X))
