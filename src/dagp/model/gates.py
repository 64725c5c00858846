"""Gates (gating networks): the prior probability of each process, given the input.

The ELBO, training, prediction and files use a gate through `Gate` alone, so a new gate needs no
change elsewhere. `GatePrior` is the prior given by the user.
"""

import abc
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from dagp.core.tags import storable
from dagp.core.typing import Array, Float, Inputs, PerPoint, PerProcess, Rate, Scalar
from dagp.model.deep_stack import normal_points
from dagp.model.process import BuildContext, over_samples, per_sample
from dagp.model.sparse_gp import LatentFunction, Marginals, Projection, draw_marginals


@storable("gate/Marginals")
class GateMarginals(NamedTuple):
    """Expectations of a gate at a batch of inputs, each (N, K)."""

    latent: Marginals
    log_weights: PerProcess
    """E_q[log softmax_k(α(x_n))]."""
    weights: PerProcess
    """E_q[softmax_k(α(x_n))]; rows sum to one."""
    slope: Float[Array, "SN K"]
    """`weights` for every sample of a deep gate; a single-layer gate has one sample."""
    curvature: Float[Array, "SN K"]
    """E_q[π(1 − π)] with π = softmax(α): curvature of the log weights."""


class Gate(eqx.Module):
    """Mixing weights of the processes, given an input."""

    @abc.abstractmethod
    def project(self, X: Inputs) -> Any:
        """Quantities that depend on the inputs and the hyperparameters, but not on q."""

    @abc.abstractmethod
    def marginals(self, projection: Any) -> GateMarginals:
        """Expectations under q at the projected points."""

    @abc.abstractmethod
    def natural_step(
        self,
        projection: Any,
        marginals: GateMarginals,
        responsibilities: PerProcess,
        weight: PerPoint,
        rate: Rate,
    ) -> "Gate":
        """Move q towards its optimum given the responsibilities."""

    @abc.abstractmethod
    def kl(self) -> Scalar:
        """KL divergence of q from the prior."""

    @property
    def has_quadrature(self) -> bool:
        """Whether `marginals` are approximate, so that `refined` ones would differ."""
        return False

    def refined(self) -> "Gate":
        """The same gate with finer quadrature, for predictions."""
        return self

    def refined_log_weights(self, marginals: GateMarginals) -> PerProcess:
        """The log weights of these marginals with finer quadrature."""
        return marginals.log_weights

    def sampled_log_weights(self, marginals: GateMarginals, key: Array) -> PerProcess:
        """Log weights for functions drawn from q, point by point."""
        return marginals.log_weights

    def counted(self, counts: Float[Array, " K"], rate: Rate) -> "Gate":
        """Move a gate without q towards the weight of the points of each process (minibatches)."""
        return self

    def jitter(self) -> Scalar | None:
        """Relative jitter of its inducing covariance; None if it has none."""
        return None

    def check(self, n_processes: int, dtype: str) -> None:
        """Raise ValueError if a gate read from a file is invalid for this number of processes."""


@storable("gate/Quadrature")
class Quadrature(NamedTuple):
    """Points and weights of a quadrature under N(0, I); fixed, so the ELBO is deterministic."""

    points: Float[Array, "S K"]
    masses: Float[Array, " S"]


def gate_quadrature(processes: int, count: int = 16) -> Quadrature:
    """Quadrature for K functions: Gauss-Hermite for K = 2, where the softmax depends on their
    difference alone, otherwise quasi-random."""
    if processes == 2:
        nodes, masses = np.polynomial.hermite_e.hermegauss(min(count, 64))
        return Quadrature(nodes[:, None] * np.array([0.5, -0.5]), masses / masses.sum())
    points = normal_points(processes, max(count, 4 * processes))
    return Quadrature(points, np.full(len(points), 1 / len(points)))


def _within_precision(latent: Marginals) -> tuple[Marginals, Float[Array, "N 1"]]:
    """Marginals in units in which rounding errors of the functions are small beside one.

    The unit is one, unless functions are so large that the softmax picks the largest of them in
    any unit. Compilers may round their values in two ways, and the largest of them would not be
    the same in both.
    """
    size = jnp.max(jnp.abs(latent.mean) + 4 * jnp.sqrt(latent.variance), axis=1, keepdims=True)
    largest = 0.01 / jnp.finfo(size.dtype).eps
    unit = jax.lax.stop_gradient(jnp.maximum(size / largest, 1.0))
    return Marginals(latent.mean / unit, latent.variance / unit**2), unit


@storable("gate/GP")
class GPGate(Gate):
    """K functions with a common GP prior, through a softmax."""

    latent: LatentFunction
    quadrature: Quadrature

    def project(self, X: Inputs) -> Projection:
        return self.latent.project(X)

    def marginals(self, projection: Projection) -> GateMarginals:
        return self.expectations(self.latent.marginals(projection))

    def expectations(self, latent: Marginals) -> GateMarginals:
        """Expectations of the gate, given the marginals of its functions."""
        scaled, unit = _within_precision(latent)
        draws = scaled.mean + self._displacements(scaled.variance)
        # The normaliser and the softmax share one exponential.
        top = jax.lax.stop_gradient(jnp.max(draws, axis=-1, keepdims=True))
        odds = jnp.exp(draws - top)
        total = jnp.sum(odds, axis=-1, keepdims=True)
        weights = odds / total
        log_weights = unit * (scaled.mean - self._expect(jnp.log(total) + top))
        slope, samples = self._expect(weights), self.latent.samples
        return GateMarginals(
            latent,
            over_samples(log_weights, samples),
            over_samples(slope, samples),
            slope,
            self._expect(weights * (1 - weights)),
        )

    def _displacements(self, variance: PerProcess) -> Float[Array, "S N K"]:
        if variance.shape[1] == 2:
            variance = jnp.sum(variance, axis=1, keepdims=True)
        # The offset keeps the derivative of the root finite at zero variance.
        return self.quadrature.points[:, None, :] * jnp.sqrt(variance + 1e-12)

    def _expect(self, values: Float[Array, "S N J"]) -> Float[Array, "N J"]:
        return jnp.tensordot(self.quadrature.masses, values, axes=1)

    def natural_step(
        self,
        projection: Projection,
        marginals: GateMarginals,
        responsibilities: PerProcess,
        weight: PerPoint,
        rate: Rate,
    ) -> "GPGate":
        # Bonnet's and Price's theorems: derivatives with respect to a Gaussian's mean and variance
        # are expected first and (halved) second derivatives. The second derivative of logsumexp
        # is π(1 − π) ≥ 0, so the precision stays above the identity.
        samples = self.latent.samples
        weight = per_sample(weight[:, None] / samples, samples)
        gradient = weight * (per_sample(responsibilities, samples) - marginals.slope)
        curvature = weight * marginals.curvature
        target = gradient + curvature * (marginals.latent.mean - projection.mean)
        latent = self.latent.natural_step(projection, target, curvature, rate)
        return eqx.tree_at(lambda gate: gate.latent, self, latent)

    def kl(self) -> Scalar:
        return self.latent.kl()

    @staticmethod
    def of(latent: LatentFunction) -> "GPGate":
        """The gate whose K functions are the outputs of `latent`."""
        return GPGate(latent, gate_quadrature(latent.layers[-1].q.n_outputs))

    @property
    def has_quadrature(self) -> bool:
        return True

    def refined(self) -> "GPGate":
        return GPGate(self.latent, gate_quadrature(self.quadrature.points.shape[1], 256))

    def refined_log_weights(self, marginals: GateMarginals) -> PerProcess:
        return self.refined().expectations(marginals.latent).log_weights

    def sampled_log_weights(self, marginals: GateMarginals, key: Array) -> PerProcess:
        alpha = draw_marginals(marginals.latent, key).mean
        return over_samples(jax.nn.log_softmax(alpha), self.latent.samples)

    def jitter(self) -> Scalar:
        return self.latent.jitter()

    def check(self, n_processes: int, dtype: str) -> None:
        if self.quadrature.points.shape[1:] != (n_processes,):
            raise ValueError(f"gate must have {n_processes} processes")
        self.latent.check(dtype)


@storable("gate/Constant")
class ConstantGate(Gate):
    """Mixing weights that do not depend on the input."""

    log_weights: Float[Array, " K"]

    def project(self, X: Inputs) -> Float[Array, "N 1"]:
        return jnp.zeros_like(X, shape=(X.shape[0], 1))

    def marginals(self, projection: Float[Array, "N 1"]) -> GateMarginals:
        latent = Marginals(self.log_weights + projection, projection)
        log_weights = jax.nn.log_softmax(latent.mean, axis=-1)
        weights = jnp.exp(log_weights)
        return GateMarginals(latent, log_weights, weights, weights, weights * (1 - weights))

    def natural_step(
        self,
        projection: Any,
        marginals: GateMarginals,
        responsibilities: PerProcess,
        weight: PerPoint,
        rate: Rate,
    ) -> "ConstantGate":
        return self.counted(weight @ responsibilities, rate)

    def counted(self, counts: Float[Array, " K"], rate: Rate) -> "ConstantGate":
        # The optimum is the mean responsibility. One pseudo-count, divided among the processes,
        # keeps the weight of an unused process above zero, so that it can be used again.
        counts = counts + 1 / len(counts)
        optimum = jnp.log(counts) - jnp.log(jnp.sum(counts))
        log_weights = (1 - rate) * jax.nn.log_softmax(self.log_weights) + rate * optimum
        return eqx.tree_at(lambda gate: gate.log_weights, self, log_weights)

    def kl(self) -> Scalar:
        return jnp.asarray(0.0)

    def check(self, n_processes: int, dtype: str) -> None:
        if self.log_weights.shape != (n_processes,):
            raise ValueError(f"gate must have {n_processes} processes")


class GatePrior(abc.ABC):
    """Prior of the gate, as given by the user."""

    @abc.abstractmethod
    def build_gate(self, context: BuildContext, n_processes: int) -> Gate:
        """The trainable gate for standardised data, in the single-layer form used by the search."""

    def deepened_gate(self, trained: Any, context: BuildContext) -> Gate:
        """The gate of this prior, starting from the single-layer one that the search trained."""
        return trained


def unitless(context: BuildContext) -> BuildContext:
    """The context for functions without a unit: log odds, log variances."""
    return context._replace(y_centre=np.zeros(1), y_unit=np.ones(1))
