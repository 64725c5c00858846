"""Leveraged Gaussian process regression (Choi, Kim, Lee, Oh 2015; Choi, Lee, Oh 2016).

Every training point has a leverage γ in [−1, 1], a new point has leverage 1, and the covariance
of two points is multiplied by cos(π/2 (γ − γ')). A point of leverage 1 is evidence for the
function f, one of leverage −1 evidence against it, and one of leverage 0 says nothing about it:
in other words, a point observes sin(πγ/2) f + cos(πγ/2) g, with g a second draw from the prior.
"""

import dataclasses
from collections.abc import Mapping
from typing import Any, ClassVar, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from dagp.baselines.base import DensityBaseline, Predicted
from dagp.baselines.descent import climb, whole
from dagp.capabilities import Capabilities
from dagp.kernels import Kernel, SquaredExponential
from dagp.linalg import cholesky, inverse_factor, log_det
from dagp.model import Batch
from dagp.parameters import Parameter, fixed, log_prior, parameter
from dagp.processes import LOG_2PI, NOISE_FLOOR, check_columns
from dagp.typing import Array, Float, Inputs, PerPoint, RandomState, Scalar

__all__ = ["LGPR"]

NOISE_STD = 0.3
LENGTHSCALE = 0.5
"""Where noise and length scale begin, in standardised units."""


class Leveraged(eqx.Module):
    """The model in standardised units."""

    kernel: Kernel
    noise_std: Parameter
    angle: Parameter
    """Of each training point; the leverage is its cosine, so that any angle is allowed."""

    def leverages(self) -> PerPoint:
        """Of the training points."""
        return jnp.cos(self.angle.value)

    def noise_variance(self) -> Scalar:
        """Of an observation around the function."""
        return self.noise_std.value**2 + NOISE_FLOOR**2

    def covariance(self, X: Inputs) -> Float[Array, "N N"]:
        """Of the training outputs."""
        leveraged = self.kernel(X, X) * agreement(self.leverages(), self.leverages())
        return leveraged + self.noise_variance() * jnp.eye(len(X))


def agreement(first: PerPoint, second: Float[Array, " N2"]) -> Float[Array, "N N2"]:
    """What leverages do to covariances.

    Positive semi-definite, being cos · cos + sin · sin of the leverages.

    >>> [round(float(v), 3) for v in agreement(np.ones(1), np.array([1.0, 0.5, -1.0]))[0]]
    [1.0, 0.707, -1.0]
    """
    return jnp.cos(np.pi / 2 * (first[:, None] - second))


@jax.custom_vjp
def log_evidence(covariance: Float[Array, "N N"], y: PerPoint) -> Scalar:
    """Log density of the outputs under a normal prior around zero."""
    return _factored(covariance, y)[0]


def _factored(covariance: Float[Array, "N N"], y: PerPoint) -> tuple[Scalar, tuple[Array, Array]]:
    lower = cholesky(covariance)
    inverse = inverse_factor(lower)
    white = inverse @ y
    value = -0.5 * (white @ white + log_det(lower) + len(y) * LOG_2PI)
    return value, (white @ inverse, inverse)


def _slopes(kept: tuple[Array, Array], height: Scalar) -> tuple[Array, Array]:
    # In closed form: differentiating the factorisation itself would cost several times as much.
    coefficients, inverse = kept
    outer = coefficients[:, None] * coefficients
    return 0.5 * height * (outer - inverse.T @ inverse), -height * coefficients


log_evidence.defvjp(_factored, _slopes)


def objective(model: tuple[Leveraged, Array], batch: Batch) -> Scalar:
    """Log evidence less the penalty."""
    leveraged, penalty = model
    evidence = log_evidence(leveraged.covariance(batch.X), batch.y[:, 0])
    return evidence + log_prior(leveraged) - penalty * jnp.sum(1 - leveraged.leverages())


class Conclusion(NamedTuple):
    """A trained model, ready to be asked."""

    model: Leveraged
    X: Inputs
    evidence: Scalar
    coefficients: PerPoint
    inverse: Float[Array, "N N"]


@jax.jit
def conclude(model: Leveraged, batch: Batch) -> Conclusion:
    """Condition on the data."""
    evidence, kept = _factored(model.covariance(batch.X), batch.y[:, 0])
    return Conclusion(model, batch.X, evidence, *kept)


@jax.jit
def _ask(conclusion: Conclusion, X: Inputs) -> Predicted:
    model, seen, _, coefficients, inverse = conclusion
    cross = model.kernel(X, seen) * agreement(jnp.ones(len(X)), model.leverages())
    explained = jnp.sum((cross @ inverse.T) ** 2, axis=1)
    variance = jnp.maximum(model.kernel.diagonal(X) - explained, 0.0)
    noise = jnp.broadcast_to(model.noise_variance(), (len(X), 1))
    mean = cross @ coefficients
    return Predicted(jnp.ones((len(X), 1)), mean[:, None], variance[:, None], noise)


class LGPR(DensityBaseline):
    """Leveraged Gaussian process regression.

    Leverages, kernel and noise maximise the log evidence less ``leverage_penalty * Σ (1 − γ)``, a
    sparse penalty by which most leverages end at 1. Kernel and noise are first learnt with all
    leverages at 1, then the leverages with kernel and noise held, then kernel and noise once more.
    Going on in turns, or moving all at once, has no good end: with a leverage per point and a
    small enough noise the second function lets the first pass through anything.

    The second paper takes proximal steps to keep leverages between −1 and 1; here a leverage is
    the cosine of a free angle, and the steps are those of `dagp.DAGP`.

    Parameters
    ----------
    kernel
        Covariance function; squared exponential with one length scale per input if left out.
    leverage_penalty
        Log evidence that one point must gain to give up one unit of leverage.
    max_iter
        Most steps of each of the three stages. A step takes O(N³) operations.
    tol
        Least gain per data point in 25 steps.
    random_state
        Seed of the leverages at the start.

    Attributes
    ----------
    leverages_ : leverage of each training point
    log_evidence_ : log marginal likelihood, for standardised outputs
    kernel_, noise_std_ : what was learnt, in the units of the data

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

    capabilities: ClassVar[Capabilities] = Capabilities(
        bayesian=True, predictive_posterior=True, interpretable_priors=True
    )

    def __init__(
        self,
        kernel: Kernel | None = None,
        *,
        leverage_penalty: float = 1.5,
        max_iter: int = 100,
        tol: float = 1e-3,
        random_state: RandomState = None,
    ) -> None:
        """Only store."""
        self.kernel = kernel
        self.leverage_penalty = leverage_penalty
        self.max_iter = max_iter
        self.tol = tol
        self.random_state = random_state

    def _settings(self) -> Mapping[str, tuple[Any, type, float]]:
        return {
            "leverage_penalty": (self.leverage_penalty, float, 0.0),
            "max_iter": (self.max_iter, int, 1),
            "tol": (self.tol, float, 0.0),
        }

    def _learn(self, X: Inputs, y: PerPoint, rng: np.random.Generator) -> None:
        kernel = self.kernel if self.kernel is not None else SquaredExponential()
        if not isinstance(kernel, Kernel):
            raise ValueError(f"kernel must be a kernel, got {kernel!r}.")
        check_columns(kernel, X.shape[1])
        batch = whole(X, y)
        plain, without = self._climb(self._start(kernel, len(X)), batch)
        # The leverages must differ at first: where all are equal, the evidence is flat in each.
        angle = parameter(jnp.arccos(rng.uniform(0, 1, len(X))), support="real")
        moved, _ = self._climb(Leveraged(fixed(plain.kernel), fixed(plain.noise_std), angle), batch)
        model, height = self._climb(dataclasses.replace(plain, angle=fixed(moved.angle)), batch)
        # Data that one function explains need no leverages, and are better off without.
        model = model if height > without else plain
        self._conclusion = conclude(model, batch)
        self.log_evidence_: float = float(self._conclusion.evidence)
        self.leverages_: Float[np.ndarray, " N"] = np.asarray(model.leverages())
        self.kernel_: Kernel = model.kernel
        self.noise_std_: float = float(np.sqrt(model.noise_variance())) * self.units_.y_unit[0]

    def _climb(self, model: Leveraged, batch: Batch) -> tuple[Leveraged, float]:
        """The model with what is not fixed at its best, and the objective there."""
        begun = (jax.tree.map(jnp.asarray, model), jnp.asarray(float(self.leverage_penalty)))
        found = climb(objective, begun, batch, max_iter=self.max_iter, tol=self.tol)
        return found.state.model[0], found.bound

    def _start(self, kernel: Kernel, n: int) -> Leveraged:
        """An ordinary GP: all leverages are 1."""
        units = self.units_
        lengthscale = LENGTHSCALE * np.sqrt(len(units.x_unit))
        log_unit = 2 * float(np.log(units.y_unit[0]))
        return Leveraged(
            kernel.in_units(units.x_unit, log_unit, lengthscale),
            parameter(None).in_units(units.y_unit[0]).starting_at(NOISE_STD),
            fixed(np.zeros(n), support="real"),
        )

    def _components(self, X: Inputs) -> Predicted:
        return _ask(self._conclusion, jnp.asarray(X))
