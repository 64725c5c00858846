"""Gates: the prior over which process is relevant where."""

import abc
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from scipy.stats import norm, qmc

from dagp.kernels import SquaredExponential
from dagp.parameters import LogNormal, parameter
from dagp.processes import GP, Setting
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
    curvature: PerProcess
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
    which Gauss-Hermite nodes solve almost exactly. Otherwise the points are quasi-random, with
    exact mean and covariance. Without the right covariance the error has the same sign at every
    data point, and training learns to exploit it.
    """
    if processes == 2:
        nodes, masses = np.polynomial.hermite_e.hermegauss(min(count, 64))
        return Rule(nodes[:, None] * np.array([0.5, -0.5]), masses / masses.sum())
    pairs = max(count // 2, 2 * processes)
    sobol = qmc.Sobol(processes, scramble=True, rng=np.random.default_rng(0))
    uniform = sobol.random_base2(int(np.ceil(np.log2(pairs))))
    half = norm.ppf(np.clip(uniform, 1e-6, 1 - 1e-6))
    lower = np.linalg.cholesky(half.T @ half / len(half))
    half = np.linalg.solve(lower, half.T).T
    points = np.concatenate([half, -half])
    return Rule(points, np.full(len(points), 1 / len(points)))


class GPGate(Gate):
    """K functions with a common GP prior, through a softmax."""

    latent: SparseGP
    rule: Rule

    def project(self, X: Inputs) -> Projection:
        return self.latent.project(X)

    def marginals(self, projection: Projection) -> GateMarginals:
        latent = self.latent.marginals(projection)
        draws = latent.mean + self._displacements(latent.variance)
        # One exponential serves the normaliser and the softmax.
        top = jax.lax.stop_gradient(jnp.max(draws, axis=-1, keepdims=True))
        odds = jnp.exp(draws - top)
        total = jnp.sum(odds, axis=-1, keepdims=True)
        weights = odds / total
        return GateMarginals(
            latent,
            latent.mean - self._expect(jnp.log(total) + top),
            self._expect(weights),
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
        gradient = weight[:, None] * (responsibilities - marginals.weights)
        curvature = weight[:, None] * marginals.curvature
        latent = self.latent.natural_step(projection, marginals.latent, gradient, curvature, rate)
        return eqx.tree_at(lambda gate: gate.latent, self, latent)

    def kl(self) -> Scalar:
        return self.latent.q.kl()

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
        return GateMarginals(latent, log_weights, weights, weights * (1 - weights))

    def natural_step(
        self,
        projection: Any,
        marginals: GateMarginals,
        responsibilities: PerProcess,
        weight: PerPoint,
        rate: Scalar | float,
    ) -> "ConstantGate":
        # The optimum is the mean responsibility. One pseudo-count, shared among the processes,
        # keeps the weight of an unused process above zero so that it can come back.
        count = jnp.sum(weight[:, None] * responsibilities, axis=0) + 1 / responsibilities.shape[1]
        optimum = jnp.log(count) - jnp.log(jnp.sum(count))
        log_weights = (1 - rate) * jax.nn.log_softmax(self.log_weights) + rate * optimum
        return eqx.tree_at(lambda gate: gate.log_weights, self, log_weights)

    def kl(self) -> Scalar:
        return jnp.asarray(0.0)

    def refined(self) -> "ConstantGate":
        return self


def build_gate(prior: GP | str | None, setting: Setting, processes: int) -> Gate:
    """The gate a user asked for, for standardised data."""
    if processes == 1 or prior == "constant":
        return ConstantGate(np.zeros(processes))
    prior = DEFAULT_GATE if prior is None else prior
    if not isinstance(prior, GP):
        raise ValueError(f'gate must be None, "constant" or a GP, got {prior!r}.')
    # Gate functions are log odds: they have no unit, whatever the unit of y.
    unitless = setting._replace(y_centre=np.zeros(1), y_unit=np.ones(1))
    return GPGate(
        prior.latent(unitless, outputs=processes),
        gate_rule(processes),
    )
