"""Sparse variational GPs: one GP prior, its inducing inputs and q(u), in the whitened space.

With ``L = chol(K_ZZ)`` and ``b_n = L⁻¹ k_Z(x_n)``, a Gaussian ``q = N(m, S)`` over the whitened
inducing values has the marginals ``mean_n = μ(x_n) + b_nᵀ m`` and
``var_n = k(x_n, x_n) − b_nᵀ b_n + b_nᵀ S b_n``.

One object serves several outputs that share kernel and inducing inputs but have a q each: the
outputs of a process, or the K functions of a gate.
"""

import abc
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp

from dagp.core.linalg import jitter_used, whitener
from dagp.core.tags import storable
from dagp.core.typing import Array, Float, Inputs, Outputs, PerPoint, Rate, Scalar
from dagp.model.kernel import Kernel, check_columns
from dagp.model.means import Mean
from dagp.model.parameters import Parameter
from dagp.model.variational import GaussianQ, NaturalGaussian


class Projection(NamedTuple):
    """Quantities at a batch of inputs that do not depend on q."""

    basis: Float[Array, "M N"]
    residual: PerPoint
    """Prior variance that the inducing points do not explain."""
    mean: Outputs
    """Prior mean."""


@storable("gp/Marginals")
class Marginals(NamedTuple):
    """Mean and variance of the function at each point."""

    mean: Outputs
    variance: Outputs


class LatentFunction(eqx.Module):
    """A function with a (possibly deep) GP prior and its variational posterior."""

    @property
    @abc.abstractmethod
    def samples(self) -> int:
        """Rows of a projection per row of the inputs: Monte Carlo samples of inner layers."""

    @property
    @abc.abstractmethod
    def layers(self) -> "tuple[SparseGP, ...]":
        """The sparse GPs it is composed of, from the input to the output."""

    @property
    @abc.abstractmethod
    def can_widen(self) -> bool:
        """Whether linear response applies: a single layer, with q defined by its precision."""

    @abc.abstractmethod
    def project(self, X: Inputs) -> Projection:
        """Quantities that depend on inputs and hyperparameters, but not on q of the last layer."""

    @abc.abstractmethod
    def marginals(self, projection: Projection) -> Marginals:
        """Mean and variance of the function at the projected points."""

    @abc.abstractmethod
    def natural_step(
        self, projection: Projection, target: Outputs, weight: Outputs, rate: Rate
    ) -> "LatentFunction":
        """One natural-gradient step of the last layer's q; see `SparseGP.natural_step`."""

    @abc.abstractmethod
    def with_natural_q(self) -> "LatentFunction":
        """The same function with q of its last layer in natural parameters."""

    def kl(self) -> Scalar:
        *inner, last = self.layers
        return sum((layer.q.kl() for layer in inner), start=last.q.kl())

    def jitter(self) -> Scalar:
        """Largest relative jitter that the inducing covariance of a layer needs."""
        each = [jitter_used(gp.kernel(gp.inducing.value, gp.inducing.value)) for gp in self.layers]
        return jnp.max(jnp.stack(each))

    def check(self, dtype: str) -> None:
        """Raise ValueError if a function read from a file is invalid."""
        for gp in self.layers:
            check_columns(gp.kernel, gp.inducing.raw.shape[-1])
            gp.q.check(dtype)


@storable("gp/Sparse")
class SparseGP(LatentFunction):
    """A GP prior, its inducing inputs, and q."""

    kernel: Kernel
    mean: Mean
    inducing: Parameter
    q: GaussianQ

    @property
    def samples(self) -> int:
        return 1

    @property
    def layers(self) -> "tuple[SparseGP, ...]":
        return (self,)

    @property
    def can_widen(self) -> bool:
        return self.q.has_precision

    def project(self, X: Inputs) -> Projection:
        Z = self.inducing.value
        basis = whitener(self.kernel(Z, Z)) @ self.kernel(Z, X)
        explained = jnp.sum(basis**2, axis=0)
        # Rounding may make the difference negative where an inducing point equals an input.
        residual = jnp.maximum(self.kernel.diagonal(X) - explained, 0.0)
        return Projection(basis, residual, self.mean(X))

    def marginals(self, projection: Projection) -> Marginals:
        mean, spread = self.q.moments(projection.basis)
        return Marginals(projection.mean + mean.T, projection.residual[:, None] + spread.T)

    def natural_step(
        self, projection: Projection, target: Outputs, weight: Outputs, rate: Rate
    ) -> "SparseGP":
        """One natural-gradient step on an ELBO that depends on q through its marginals.

        `weight` is −2 ∂L/∂variance and `target` is ∂L/∂mean + weight · (mean − prior mean), both
        per point and output. With a Gaussian likelihood the target does not depend on q, and with
        ``rate = 1`` this is the exact weighted solution.
        """
        if not isinstance(self.q, NaturalGaussian):
            raise TypeError(f"q must be a NaturalGaussian, got {type(self.q).__name__}.")
        basis = projection.basis
        precision = jax.vmap(lambda w: (basis * w) @ basis.T)(weight.T) + jnp.eye(basis.shape[0])
        q = self.q.moved(precision, (basis @ target).T, rate)
        return eqx.tree_at(lambda gp: gp.q, self, q)

    def with_natural_q(self) -> "SparseGP":
        return eqx.tree_at(lambda gp: gp.q, self, self.q.as_natural())

    def covariance(self, X: Inputs) -> Float[Array, "P N N"]:
        """Joint covariance of the function values at the rows of `X`, per output."""
        projection = self.project(X)
        basis, spread = projection.basis, self.q.mean_and_root()[1] @ projection.basis
        prior = self.kernel(X, X) - basis.T @ basis
        return prior + jnp.einsum("pin,pil->pnl", spread, spread)


def draw_marginals(tree: Any, key: Array) -> Any:
    """A tree of marginals with each replaced by a draw, point by point, of variance zero."""
    nodes, structure = jax.tree.flatten(tree, is_leaf=lambda node: isinstance(node, Marginals))
    drawn = []
    for node, own in zip(nodes, jax.random.split(key, len(nodes)), strict=True):
        deviate = jax.random.normal(own, node.mean.shape, node.mean.dtype)
        std = jnp.sqrt(node.variance + 1e-12)
        drawn.append(Marginals(node.mean + std * deviate, jnp.zeros_like(node.variance)))
    return jax.tree.unflatten(structure, drawn)
