"""Gates: the prior over which process is relevant where."""

import abc
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from dagp.deep import DeepGP, DeepStack, normal_points
from dagp.kernels import SquaredExponential
from dagp.parameters import LogNormal, parameter
from dagp.processes import GP, Setting, over_samples, per_sample
from dagp.sparse import Marginals, Projection, SparseGP
from dagp.typing import Array, Float, Inputs, PerPoint, PerProcess, Scalar

__all__ = [
    "ConstantGate",
    "GPGate",
    "Gate",
    "GateMarginals",
    "Rule",
    "build_gate",
    "gate_rule",
    "grown_gate",
]


DEFAULT_GATE = GP(SquaredExponential(variance=parameter(None, prior=LogNormal(median=4.0))))
"""Gate functions are log odds; ones beyond ±10 say nothing that ±5 does not."""


class GateMarginals(NamedTuple):
    """What the bound needs of a gate at a batch of inputs, each (N, K)."""

    latent: Marginals
    log_weights: PerProcess
    """E_q[log softmax_k(α(x_n))]."""
    weights: PerProcess
    """E_q[softmax_k(α(x_n))]; rows sum to one."""
    slope: Float[Array, "SN K"]
    """The same for every sample of a deep gate; a plain one has a single sample."""
    curvature: Float[Array, "SN K"]
    """E_q[π(1 − π)] with π = softmax(α): how fast the log weights bend."""


class Gate(eqx.Module):
    """Mixing weights of the processes, given an input."""

    @abc.abstractmethod
    def project(self, X: Inputs) -> Any:
        """What depends on the inputs and the hyperparameters, but not on q."""

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
        rate: Scalar | float,
    ) -> "Gate":
        """Move q towards its optimum given the responsibilities."""

    @abc.abstractmethod
    def kl(self) -> Scalar:
        """KL divergence of q from the prior."""

    @abc.abstractmethod
    def refined(self) -> "Gate":
        """The same gate with its expectations taken more finely, for predictions."""


class Rule(NamedTuple):
    """Points and masses for expectations under a standard normal.

    Fixed points make the bound deterministic, so that two solutions can be compared.
    """

    points: Float[Array, "S K"]
    masses: Float[Array, " S"]


def gate_rule(processes: int, count: int = 16) -> Rule:
    """Points for the K functions of a gate.

    With two processes the softmax sees only the difference of the two functions: one dimension,
    which Gauss-Hermite nodes solve almost exactly. Otherwise the points are quasi-random.
    """
    if processes == 2:
        nodes, masses = np.polynomial.hermite_e.hermegauss(min(count, 64))
        return Rule(nodes[:, None] * np.array([0.5, -0.5]), masses / masses.sum())
    points = normal_points(processes, max(count, 4 * processes))
    return Rule(points, np.full(len(points), 1 / len(points)))


class GPGate(Gate):
    """K functions with a common GP prior, through a softmax."""

    latent: SparseGP | DeepStack
    rule: Rule

    def project(self, X: Inputs) -> Projection:
        return self.latent.project(X)

    def marginals(self, projection: Projection) -> GateMarginals:
        return self.expectations(self.latent.marginals(projection))

    def expectations(self, latent: Marginals) -> GateMarginals:
        """What the gate says where its functions have these marginals."""
        draws = latent.mean + self._displacements(latent.variance)
        # One exponential serves the normaliser and the softmax.
        top = jax.lax.stop_gradient(jnp.max(draws, axis=-1, keepdims=True))
        odds = jnp.exp(draws - top)
        total = jnp.sum(odds, axis=-1, keepdims=True)
        weights = odds / total
        log_weights = latent.mean - self._expect(jnp.log(total) + top)
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
        # The tiny number keeps the square root's slope finite where the variance vanishes.
        return self.rule.points[:, None, :] * jnp.sqrt(variance + 1e-12)

    def _expect(self, values: Float[Array, "S N J"]) -> Float[Array, "N J"]:
        return jnp.tensordot(self.rule.masses, values, axes=1)

    def natural_step(
        self,
        projection: Projection,
        marginals: GateMarginals,
        responsibilities: PerProcess,
        weight: PerPoint,
        rate: Scalar | float,
    ) -> "GPGate":
        # Bonnet's and Price's theorems: derivatives with respect to a Gaussian's mean and
        # variance are expected first and (halved) second derivatives. The second one of
        # logsumexp is π(1 − π) ≥ 0, so the precision stays above the identity.
        samples = self.latent.samples
        weight = per_sample(weight[:, None] / samples, samples)
        gradient = weight * (per_sample(responsibilities, samples) - marginals.slope)
        curvature = weight * marginals.curvature
        target = gradient + curvature * (marginals.latent.mean - projection.mean)
        latent = self.latent.natural_step(projection, target, curvature, rate)
        return eqx.tree_at(lambda gate: gate.latent, self, latent)

    def kl(self) -> Scalar:
        return self.latent.kl()

    def refined(self) -> "GPGate":
        return GPGate(self.latent, gate_rule(self.rule.points.shape[1], 256))


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
        rate: Scalar | float,
    ) -> "ConstantGate":
        return self.counted(weight @ responsibilities, rate)

    def counted(self, count: Float[Array, " K"], rate: Scalar | float) -> "ConstantGate":
        """Move the weights towards what was counted: how many points each process has."""
        # The optimum is the mean responsibility. One pseudo-count, shared among the processes,
        # keeps the weight of an unused process above zero so that it can come back.
        count = count + 1 / len(count)
        optimum = jnp.log(count) - jnp.log(jnp.sum(count))
        log_weights = (1 - rate) * jax.nn.log_softmax(self.log_weights) + rate * optimum
        return eqx.tree_at(lambda gate: gate.log_weights, self, log_weights)

    def kl(self) -> Scalar:
        return jnp.asarray(0.0)

    def refined(self) -> "ConstantGate":
        return self


def build_gate(prior: GP | DeepGP | str | None, setting: Setting, processes: int) -> Gate:
    """The gate a user asked for, for standardised data."""
    if processes == 1 or prior == "constant":
        return ConstantGate(np.zeros(processes))
    prior = DEFAULT_GATE if prior is None else prior
    if not isinstance(prior, GP | DeepGP):
        raise ValueError(f'gate must be None, "constant", a GP or a DeepGP, got {prior!r}.')
    return GPGate(prior.latent(_unitless(setting), outputs=processes), gate_rule(processes))


def grown_gate(prior: GP | DeepGP | str | None, plain: Gate, setting: Setting) -> Gate:
    """The gate that was asked for, beginning as the plain one that the search found."""
    if not isinstance(prior, DeepGP) or not isinstance(plain, GPGate):
        return plain
    assert isinstance(plain.latent, SparseGP)
    return GPGate(prior.deepened(plain.latent, _unitless(setting)), plain.rule)


def _unitless(setting: Setting) -> Setting:
    """Gate functions are log odds: they have no unit, whatever the unit of y."""
    return setting._replace(y_centre=np.zeros(1), y_unit=np.ones(1))
