"""Gates: the prior over which process is relevant where."""

import abc
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from scipy.stats import norm, qmc

from dagp.processes import GP, Setting
from dagp.sparse import Marginals, Projection, SparseGP
from dagp.typing import Array, Float, Inputs, PerPoint, PerProcess, Scalar

__all__ = ["ConstantGate", "GPGate", "Gate", "GateMarginals", "build_gate", "normal_points"]

_POINTS = 16


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


def normal_points(dimensions: int, count: int = _POINTS) -> Float[np.ndarray, "S K"]:
    """Quasi-random standard normal points, with exact zero mean and unit variances.

    Fixed points make the bound deterministic, so that two solutions can be compared. They come
    in antithetic pairs (odd moments vanish) and are scaled to the right second moment.
    """
    sobol = qmc.Sobol(dimensions, scramble=True, rng=np.random.default_rng(0)).random(count // 2)
    half = norm.ppf(np.clip(sobol, 1e-6, 1 - 1e-6))
    points = np.concatenate([half, -half])
    return points / np.sqrt(np.mean(points**2, axis=0))


class GPGate(Gate):
    """K functions with a common GP prior, through a softmax."""

    latent: SparseGP
    points: Float[Array, "S K"]

    def project(self, X: Inputs) -> Projection:
        return self.latent.project(X)

    def marginals(self, projection: Projection) -> GateMarginals:
        latent = self.latent.marginals(projection)
        # The tiny number keeps the square root's slope finite where the variance vanishes.
        std = jnp.sqrt(latent.variance + 1e-12)
        draws = latent.mean + std * self.points[:, None, :]
        # One exponential serves the normaliser and the softmax.
        top = jax.lax.stop_gradient(jnp.max(draws, axis=-1, keepdims=True))
        odds = jnp.exp(draws - top)
        total = jnp.sum(odds, axis=-1, keepdims=True)
        weights = odds / total
        return GateMarginals(
            latent,
            latent.mean - jnp.mean(jnp.log(total) + top, axis=0),
            jnp.mean(weights, axis=0),
            jnp.mean(weights * (1 - weights), axis=0),
        )

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


def build_gate(prior: GP | str | None, setting: Setting, processes: int) -> Gate:
    """The gate a user asked for, for standardised data."""
    if processes == 1 or prior == "constant":
        return ConstantGate(np.zeros(processes))
    prior = GP() if prior is None else prior
    if not isinstance(prior, GP):
        raise ValueError(f'gate must be None, "constant" or a GP, got {prior!r}.')
    # Gate functions are log odds: they have no unit, whatever the unit of y.
    unitless = setting._replace(y_centre=np.zeros(1), y_unit=np.ones(1))
    return GPGate(prior.latent(unitless, outputs=processes), normal_points(processes))
