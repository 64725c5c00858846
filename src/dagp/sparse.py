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
import numpy as np

from dagp.kernels import Kernel
from dagp.linalg import firm_cholesky, inverse_factor, jitter_used, log_det, whitener
from dagp.means import Mean
from dagp.parameters import Parameter, parameter
from dagp.typing import Array, Float, Inputs, Outputs, PerPoint, Scalar

__all__ = ["Marginals", "Moments", "Natural", "Projection", "SparseGP"]


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
    """q over whitened inducing values, one per output; processes of the same make are stacked."""

    precision: Float[Array, "*K P M M"]
    shift: Float[Array, "*K P M"]

    @staticmethod
    def prior(outputs: int, inducing: int) -> "Natural":
        """The prior itself: what q is before any data."""
        eye = np.broadcast_to(np.eye(inducing), (outputs, inducing, inducing))
        return Natural(eye, np.zeros((outputs, inducing)))

    def root(self) -> Float[Array, "P M M"]:
        """Inverse Cholesky factor of the precision."""
        return inverse_factor(self._factor())

    def centre_and_root(self) -> tuple[Float[Array, "P M"], Float[Array, "P M M"]]:
        """Mean of q, and a root R of its covariance, ``S = RᵀR``."""
        root = self.root()
        white = jnp.einsum("pij,pj->pi", root, self.shift)
        return jnp.einsum("pij,pi->pj", root, white), root

    def _factor(self) -> Float[Array, "P M M"]:
        return jax.vmap(firm_cholesky)(jnp.asarray(self.precision))

    def kl(self) -> Scalar:
        """KL divergence from the whitened prior N(0, I), summed over outputs."""
        lower = self._factor()
        root = inverse_factor(lower)
        white = jnp.einsum("pij,pj->pi", root, self.shift)
        mean = jnp.einsum("pij,pi->pj", root, white)
        trace = jnp.sum(root**2) - self.shift.size
        return 0.5 * (trace + jnp.sum(mean**2) + jnp.sum(log_det(lower)))


class Moments(eqx.Module):
    """q as mean and covariance factor, both moved by the optimiser.

    For functions that no natural-gradient step reaches: the inner layers of a deep process, and
    everything in the paper's own scheme.
    """

    mean: Parameter
    factor: Parameter
    """Lower triangular, (P, M, M); what is above the diagonal does not count."""

    @staticmethod
    def of(mean: Float[Array, "P M"], factor: Float[Array, "P M M"]) -> "Moments":
        """From numbers."""
        return Moments(
            parameter(mean, support="real", name="mean"),
            parameter(factor, support="real", name="factor"),
        )

    @staticmethod
    def small(outputs: int, inducing: int, std: float) -> "Moments":
        """Zero mean, and this standard deviation in every direction."""
        eye = np.broadcast_to(std * np.eye(inducing), (outputs, inducing, inducing))
        return Moments.of(np.zeros((outputs, inducing)), eye)

    def centre_and_root(self) -> tuple[Float[Array, "P M"], Float[Array, "P M M"]]:
        """Mean of q, and a root R of its covariance, ``S = RᵀR``."""
        return self.mean.value, jnp.swapaxes(jnp.tril(self.factor.value), -1, -2)

    def kl(self) -> Scalar:
        """KL divergence from the whitened prior N(0, I), summed over outputs."""
        mean, root = self.centre_and_root()
        diagonal = jnp.diagonal(root, axis1=-2, axis2=-1)
        # The tiny number keeps the slope finite should the optimiser step across zero.
        log_det = jnp.sum(jnp.log(diagonal**2 + 1e-20))
        return 0.5 * (jnp.sum(root**2) + jnp.sum(mean**2) - mean.size - log_det)


class SparseGP(eqx.Module):
    """A GP prior, its inducing inputs, and q."""

    kernel: Kernel
    mean: Mean
    inducing: Parameter
    q: Natural | Moments

    @property
    def outputs(self) -> int:
        """Functions that share the kernel and the inducing inputs."""
        q = self.q
        return len(q.shift) if isinstance(q, Natural) else len(q.mean.raw)

    @property
    def samples(self) -> int:
        """Rows of a projection per row of the inputs; a deep function has more."""
        return 1

    def project(self, X: Inputs) -> Projection:
        """Project a batch onto the whitened inducing values."""
        Z = self.inducing.value
        basis = whitener(self.kernel(Z, Z)) @ self.kernel(Z, X)
        explained = jnp.sum(basis**2, axis=0)
        # Rounding may push the difference below zero where an inducing point sits on a datum.
        residual = jnp.maximum(self.kernel.diagonal(X) - explained, 0.0)
        return Projection(basis, residual, self.mean(X))

    def marginals(self, projection: Projection) -> Marginals:
        """Mean and variance of the function at the projected points."""
        centre, root = self.q.centre_and_root()
        spread = root @ projection.basis
        mean = projection.mean + (centre @ projection.basis).T
        variance = projection.residual[:, None] + jnp.sum(spread**2, axis=1).T
        return Marginals(mean, variance)

    def natural_step(
        self,
        projection: Projection,
        target: Outputs,
        weight: Outputs,
        rate: Scalar | float,
    ) -> "SparseGP":
        """One natural-gradient step on any bound that sees q through its marginals.

        `weight` is −2 ∂L/∂variance and `target` is ∂L/∂mean + weight · (mean − prior mean), both
        per point and output. With a Gaussian likelihood the target does not depend on q, and with
        ``rate = 1`` this is the exact weighted solution.
        """
        if not isinstance(self.q, Natural):
            raise TypeError("A natural-gradient step needs q in natural parameters.")
        basis = projection.basis
        precision = jax.vmap(lambda w: (basis * w) @ basis.T)(weight.T) + jnp.eye(basis.shape[0])
        q = Natural(
            (1 - rate) * self.q.precision + rate * precision,
            (1 - rate) * self.q.shift + rate * (basis @ target).T,
        )
        return eqx.tree_at(lambda gp: gp.q, self, q)

    def covariance(self, X: Inputs) -> Float[Array, "P N N"]:
        """Joint covariance of the function values at the rows of `X`, per output."""
        projection = self.project(X)
        basis, spread = projection.basis, self.q.centre_and_root()[1] @ projection.basis
        prior = self.kernel(X, X) - basis.T @ basis
        return prior + jnp.einsum("pin,pil->pnl", spread, spread)

    def kl(self) -> Scalar:
        """KL divergence of q from the prior."""
        return self.q.kl()

    def jitter(self) -> Scalar:
        """Relative jitter the inducing covariance needs."""
        return jitter_used(self.kernel(self.inducing.value, self.inducing.value))
