"""One sparse Gaussian process, in the whitened space and in natural parameters.

With ``L = chol(K_ZZ)`` and ``b_n = L⁻¹ k_Z(x_n)``, a Gaussian q over the whitened inducing values
has the marginals ``mean_n = μ(x_n) + b_nᵀ m`` and ``var_n = k(x_n, x_n) − b_nᵀ b_n + b_nᵀ S b_n``.
Here q is kept as precision ``Λ = S⁻¹`` and shift ``η = Λ m``, in which a natural-gradient step is
a weighted average and the prior is ``Λ = I, η = 0``.

One object serves several outputs that share kernel and inducing inputs but have a q each: the
outputs of a process, or the K functions of a gate.
"""

from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp

from dagp.kernels import Kernel
from dagp.linalg import cholesky, inverse_factor, jitter_used, log_det
from dagp.means import Mean
from dagp.parameters import Parameter
from dagp.typing import Array, Float, Inputs, Outputs, PerPoint, Scalar

__all__ = ["Marginals", "Natural", "Projection", "SparseGP"]


class Projection(NamedTuple):
    """What a sparse GP needs to know of a batch of inputs: independent of q."""

    basis: Float[Array, "M N"]
    residual: PerPoint
    """Prior variance that the inducing points do not explain."""
    mean: Outputs
    """Prior mean."""


class Marginals(NamedTuple):
    """Mean and variance of the function at each point."""

    mean: Outputs
    variance: Outputs


class Natural(eqx.Module):
    """q over whitened inducing values, one per output."""

    precision: Float[Array, "P M M"]
    shift: Float[Array, "P M"]

    @staticmethod
    def prior(outputs: int, inducing: int) -> "Natural":
        """The prior itself: what q is before any data."""
        eye = jnp.broadcast_to(jnp.eye(inducing), (outputs, inducing, inducing))
        return Natural(eye, jnp.zeros((outputs, inducing)))

    def root(self) -> Float[Array, "P M M"]:
        """Inverse Cholesky factor of the precision. Λ is never below the identity: no jitter."""
        return inverse_factor(jnp.linalg.cholesky(self.precision))

    def kl(self) -> Scalar:
        """KL divergence from the whitened prior N(0, I), summed over outputs."""
        lower = jnp.linalg.cholesky(self.precision)
        root = inverse_factor(lower)
        white = jnp.einsum("pij,pj->pi", root, self.shift)
        mean = jnp.einsum("pij,pi->pj", root, white)
        trace = jnp.sum(root**2) - self.shift.size
        return 0.5 * (trace + jnp.sum(mean**2) + jnp.sum(log_det(lower)))


class SparseGP(eqx.Module):
    """A GP prior, its inducing inputs, and q."""

    kernel: Kernel
    mean: Mean
    inducing: Parameter
    q: Natural

    def project(self, X: Inputs) -> Projection:
        """Project a batch onto the whitened inducing values."""
        Z = self.inducing.value
        whiten = inverse_factor(cholesky(self.kernel(Z, Z)))
        basis = whiten @ self.kernel(Z, X)
        explained = jnp.sum(basis**2, axis=0)
        # Rounding may push the difference below zero where an inducing point sits on a datum.
        residual = jnp.maximum(self.kernel.diagonal(X) - explained, 0.0)
        return Projection(basis, residual, self.mean(X))

    def marginals(self, projection: Projection) -> Marginals:
        """Mean and variance of the function at the projected points."""
        root = self.q.root()
        white = jnp.einsum("pij,pj->pi", root, self.q.shift)
        spread = root @ projection.basis
        mean = projection.mean + jnp.einsum("pi,pin->np", white, spread)
        variance = projection.residual[:, None] + jnp.sum(spread**2, axis=1).T
        return Marginals(mean, variance)

    def natural_step(
        self,
        projection: Projection,
        marginals: Marginals,
        gradient: Outputs,
        weight: Outputs,
        rate: Scalar | float,
    ) -> "SparseGP":
        """One natural-gradient step on any bound that sees q through its marginals.

        `gradient` is ∂L/∂mean and `weight` is −2 ∂L/∂variance, both per point and output.
        With a Gaussian likelihood and ``rate = 1`` this is the exact weighted solution.
        """
        basis = projection.basis
        target = gradient + weight * (marginals.mean - projection.mean)
        precision = jax.vmap(lambda w: (basis * w) @ basis.T)(weight.T) + jnp.eye(basis.shape[0])
        q = Natural(
            (1 - rate) * self.q.precision + rate * precision,
            (1 - rate) * self.q.shift + rate * (basis @ target).T,
        )
        return eqx.tree_at(lambda gp: gp.q, self, q)

    def covariance(self, X: Inputs) -> Float[Array, "P N N"]:
        """Joint covariance of the function values at the rows of `X`, per output."""
        projection = self.project(X)
        basis, spread = projection.basis, self.q.root() @ projection.basis
        prior = self.kernel(X, X) - basis.T @ basis
        return prior + jnp.einsum("pin,pil->pnl", spread, spread)

    def jitter(self) -> Scalar:
        """Relative jitter the inducing covariance needs."""
        return jitter_used(self.kernel(self.inducing.value, self.inducing.value))
