"""Variational distributions: the Gaussian q(u) over whitened inducing values.

With ``u = L v``, ``L = chol(K_ZZ)``, every q here is a Gaussian over v, whose prior is N(0, I). One
object holds a q for each of several outputs. Representations share the base class `GaussianQ`:
natural parameters (natural-gradient steps are weighted averages), the same with mean and covariance
root precomputed (for evaluation), and, for Adam, mean with covariance factor or with standard
deviations.
"""

import abc
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from dagp.core.linalg import cholesky_positive_definite, inverse_factor, log_det, quadratic
from dagp.core.tags import storable
from dagp.core.typing import Array, Float, Rate, Scalar
from dagp.model.parameters import Parameter, parameter


class GaussianQ(eqx.Module):
    """A Gaussian q(v) over whitened inducing values, one for each output."""

    @property
    @abc.abstractmethod
    def n_outputs(self) -> int:
        """Number of outputs, each with a q of its own."""

    @property
    @abc.abstractmethod
    def has_precision(self) -> bool:
        """Whether q is given by its precision, which linear response reduces."""

    @abc.abstractmethod
    def mean_and_root(self) -> tuple[Float[Array, "P M"], Float[Array, "P M M"]]:
        """Mean of q, and a root R of its covariance, ``S = RᵀR``."""

    @abc.abstractmethod
    def kl(self) -> Scalar:
        """KL divergence from the whitened prior N(0, I), summed over outputs."""

    def moments(
        self, basis: Float[Array, "M N"]
    ) -> tuple[Float[Array, "P N"], Float[Array, "P N"]]:
        """Mean and variance of ``bᵀv`` for every column b of the basis."""
        mean, root = self.mean_and_root()
        spread = quadratic(jnp.swapaxes(root, -1, -2) @ root, basis)
        # Rounding may make this negative.
        return mean @ basis, jnp.maximum(spread, 0.0)

    def as_natural(self) -> "NaturalGaussian":
        mean, root = self.mean_and_root()
        inverse = inverse_factor(jnp.swapaxes(root, -1, -2))
        precision = jnp.swapaxes(inverse, -1, -2) @ inverse
        return NaturalGaussian(precision, jnp.einsum("pij,pj->pi", precision, mean))

    def as_mean_factor(self) -> "MeanFactorGaussian":
        mean, root = self.mean_and_root()
        # By QR, because rounding could make the product RᵀR indefinite.
        upper = np.linalg.qr(np.asarray(root), mode="r")
        upper *= np.sign(np.diagonal(upper, axis1=-2, axis2=-1))[..., None]
        return MeanFactorGaussian.of(np.asarray(mean), np.swapaxes(upper, -1, -2))

    def check(self, dtype: str) -> None:
        """Raise ValueError if a q read from a file is not a distribution."""


@storable("q/Natural")
class NaturalGaussian(GaussianQ):
    """q in natural parameters: precision ``Λ = S⁻¹`` and shift ``η = Λ m``.

    The prior is ``Λ = I, η = 0``. Processes of the same structure are stacked along a first axis.
    """

    precision: Float[Array, "*K P M M"]
    shift: Float[Array, "*K P M"]

    @staticmethod
    def prior(n_outputs: int, inducing: int) -> "NaturalGaussian":
        """The prior itself: q before any data."""
        eye = np.broadcast_to(np.eye(inducing), (n_outputs, inducing, inducing))
        return NaturalGaussian(eye, np.zeros((n_outputs, inducing)))

    @property
    def n_outputs(self) -> int:
        return len(self.shift)

    @property
    def has_precision(self) -> bool:
        return True

    def factorised(self) -> "FactorisedGaussian":
        """The same q with its mean and covariance root precomputed."""
        lower = jnp.vectorize(cholesky_positive_definite, signature="(m,m)->(m,m)")(self.precision)
        root = inverse_factor(lower)
        white = jnp.einsum("...ij,...j->...i", root, self.shift)
        mean = jnp.einsum("...ij,...i->...j", root, white)
        return FactorisedGaussian(mean, root, log_det(lower))

    def mean_and_root(self) -> tuple[Float[Array, "P M"], Float[Array, "P M M"]]:
        return self.factorised().mean_and_root()

    def kl(self) -> Scalar:
        return self.factorised().kl()

    def as_natural(self) -> "NaturalGaussian":
        return self

    def moved(
        self, precision: Float[Array, "*K P M M"], shift: Float[Array, "*K P M"], rate: Rate
    ) -> "NaturalGaussian":
        """A natural-gradient step: the weighted average of q and its target."""
        return NaturalGaussian(
            (1 - rate) * self.precision + rate * precision, (1 - rate) * self.shift + rate * shift
        )

    def check(self, dtype: str) -> None:
        precision = np.asarray(self.precision, np.float64)
        values = np.linalg.eigvalsh((precision + np.swapaxes(precision, -1, -2)) / 2)
        # Training in `dtype` may have left eigenvalues below zero by rounding alone.
        rounding = precision.shape[-1] * np.finfo(dtype).eps * values[..., -1]
        if not np.all(values[..., 0] > -rounding):
            raise ValueError("precision of q must be positive definite")


class FactorisedGaussian(GaussianQ):
    """A `NaturalGaussian` with its mean and covariance root precomputed."""

    mean: Float[Array, "*K P M"]
    root: Float[Array, "*K P M M"]
    log_det: Float[Array, "*K P"]
    """Log determinant of the precision."""

    @property
    def n_outputs(self) -> int:
        return len(self.mean)

    @property
    def has_precision(self) -> bool:
        return True

    def mean_and_root(self) -> tuple[Float[Array, "P M"], Float[Array, "P M M"]]:
        return self.mean, self.root

    def kl(self) -> Scalar:
        trace = jnp.sum(self.root**2) - self.mean.size
        return 0.5 * (trace + jnp.sum(self.mean**2) + jnp.sum(self.log_det))


@storable("q/MeanFactor")
class MeanFactorGaussian(GaussianQ):
    """q as mean and covariance factor, trained by Adam: the paper's scheme."""

    mean: Parameter
    factor: Parameter
    """Lower triangular, (P, M, M); entries above the diagonal are ignored."""

    @staticmethod
    def of(mean: Float[Array, "P M"], factor: Float[Array, "P M M"]) -> "MeanFactorGaussian":
        return MeanFactorGaussian(
            parameter(mean, support="real", name="mean"),
            parameter(factor, support="real", name="factor"),
        )

    @staticmethod
    def isotropic(n_outputs: int, inducing: int, std: float) -> "MeanFactorGaussian":
        """Zero mean, and this standard deviation in every direction."""
        eye = np.broadcast_to(std * np.eye(inducing), (n_outputs, inducing, inducing))
        return MeanFactorGaussian.of(np.zeros((n_outputs, inducing)), eye)

    @property
    def n_outputs(self) -> int:
        return len(self.mean.raw)

    @property
    def has_precision(self) -> bool:
        return False

    def mean_and_root(self) -> tuple[Float[Array, "P M"], Float[Array, "P M M"]]:
        return self.mean.value, jnp.swapaxes(jnp.tril(self.factor.value), -1, -2)

    def kl(self) -> Scalar:
        mean, root = self.mean_and_root()
        diagonal = jnp.diagonal(root, axis1=-2, axis2=-1)
        # The offset keeps the derivative finite should the optimiser step across zero.
        log_det = jnp.sum(jnp.log(diagonal**2 + 1e-20))
        return 0.5 * (jnp.sum(root**2) + jnp.sum(mean**2) - mean.size - log_det)


@storable("q/Diagonal")
class DiagonalGaussian(GaussianQ):
    """q with independent values, trained by Adam: inner layers of deep GPs.

    Marginals of P outputs at N points cost P·M·N operations, with full covariances P·M²·N.
    """

    mean: Parameter
    std: Parameter

    @staticmethod
    def isotropic(n_outputs: int, inducing: int, std: float) -> "DiagonalGaussian":
        """Zero mean, and this standard deviation of every value."""
        shape = n_outputs, inducing
        return DiagonalGaussian(
            parameter(np.zeros(shape), support="real", name="mean"),
            parameter(np.full(shape, std), name="std"),
        )

    @property
    def n_outputs(self) -> int:
        return len(self.mean.raw)

    @property
    def has_precision(self) -> bool:
        return False

    def mean_and_root(self) -> tuple[Float[Array, "P M"], Float[Array, "P M M"]]:
        return self.mean.value, jax.vmap(jnp.diag)(self.std.value)

    def moments(
        self, basis: Float[Array, "M N"]
    ) -> tuple[Float[Array, "P N"], Float[Array, "P N"]]:
        return self.mean.value @ basis, self.std.value**2 @ basis**2

    def kl(self) -> Scalar:
        variance = self.std.value**2
        return 0.5 * jnp.sum(variance + self.mean.value**2 - 1 - jnp.log(variance))


def is_natural(node: Any) -> bool:
    """Whether a node of a tree is a q in natural parameters."""
    return isinstance(node, NaturalGaussian)


def factorise(tree: Any) -> Any:
    """A tree with every natural q factorised, once for several uses."""
    return jax.tree.map(
        lambda node: node.factorised() if is_natural(node) else node, tree, is_leaf=is_natural
    )
