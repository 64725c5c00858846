"""One sparse Gaussian process, in the whitened space and in natural parameters.

With ``L = chol(K_ZZ)`` and ``b_n = L⁻¹ k_Z(x_n)``, a Gaussian q over the whitened inducing values
has the marginals ``mean_n = μ(x_n) + b_nᵀ m`` and ``var_n = k(x_n, x_n) − b_nᵀ b_n + b_nᵀ S b_n``.
Here q is kept as precision ``Λ = S⁻¹`` and shift ``η = Λ m``, in which a natural-gradient step is
a weighted average and the prior is ``Λ = I, η = 0``.

One object serves several outputs that share kernel and inducing inputs but have a q each: the
outputs of a process, or the K functions of a gate.
"""

from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from dagp.kernels import Kernel
from dagp.linalg import (
    firm_cholesky,
    inverse_factor,
    jitter_used,
    log_det,
    quadratic,
    whitener,
)
from dagp.means import Mean
from dagp.parameters import Parameter, parameter
from dagp.typing import Array, Float, Inputs, Outputs, PerPoint, Scalar

__all__ = ["Marginals", "Moments", "Natural", "Projection", "Rooted", "SparseGP", "rooted"]


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

    def rooted(self) -> "Rooted":
        """The same q with its mean and a root of its covariance worked out."""
        lower = jnp.vectorize(firm_cholesky, signature="(m,m)->(m,m)")(self.precision)
        root = inverse_factor(lower)
        white = jnp.einsum("...ij,...j->...i", root, self.shift)
        return Rooted(jnp.einsum("...ij,...i->...j", root, white), root, log_det(lower))

    def centre_and_root(self) -> tuple[Float[Array, "P M"], Float[Array, "P M M"]]:
        """Mean of q, and a root R of its covariance, ``S = RᵀR``."""
        return self.rooted().centre_and_root()

    def kl(self) -> Scalar:
        """KL divergence from the whitened prior N(0, I), summed over outputs."""
        return self.rooted().kl()


class Rooted(eqx.Module):
    """q as everybody who looks at it wants it: to be worked out once where several do."""

    mean: Float[Array, "*K P M"]
    root: Float[Array, "*K P M M"]
    log_det: Float[Array, "*K P"]
    """Of the precision."""

    def centre_and_root(self) -> tuple[Float[Array, "P M"], Float[Array, "P M M"]]:
        """Mean of q, and a root R of its covariance, ``S = RᵀR``."""
        return self.mean, self.root

    def kl(self) -> Scalar:
        """KL divergence from the whitened prior N(0, I), summed over outputs."""
        trace = jnp.sum(self.root**2) - self.mean.size
        return 0.5 * (trace + jnp.sum(self.mean**2) + jnp.sum(self.log_det))


def rooted(tree: Any) -> Any:
    """A model, or a part of one, with every q in natural parameters worked out."""
    return jax.tree.map(
        lambda node: node.rooted() if isinstance(node, Natural) else node,
        tree,
        is_leaf=lambda node: isinstance(node, Natural),
    )


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
    q: Natural | Rooted | Moments

    @property
    def outputs(self) -> int:
        """Functions that share the kernel and the inducing inputs."""
        q = self.q
        if isinstance(q, Natural):
            return len(q.shift)
        return len(q.mean.raw if isinstance(q, Moments) else q.mean)

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
        mean = projection.mean + (centre @ projection.basis).T
        spread = quadratic(jnp.swapaxes(root, -1, -2) @ root, projection.basis)
        # As above: rounding may leave a little less than nothing.
        variance = projection.residual[:, None] + jnp.maximum(spread, 0.0).T
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
