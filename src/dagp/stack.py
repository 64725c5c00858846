"""Deep functions: sparse GPs in a row, each taking the values of the one before.

The values between layers are sampled, point by point: given a sample of its input, the last layer
is a sparse GP like any other, with exact marginals and natural-gradient steps. The samples use
fixed points of a normal distribution, so the bound stays deterministic and two solutions can be
compared. A stack of one layer is a sparse GP, to the last digit.
"""

import functools

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from scipy.stats import norm, qmc

from dagp.sparse import Marginals, Projection, SparseGP
from dagp.typing import Array, Float, Inputs, Outputs, Scalar

__all__ = ["DeepStack", "last_layer", "normal_points"]


def normal_points(dimensions: int, count: int) -> Float[np.ndarray, "S W"]:
    """At least `count` points of a standard normal, with exactly its mean and covariance.

    Quasi-random and in opposite pairs. Without the right covariance the error would have the same
    sign at every data point, and training would learn to exploit it.
    """
    pairs = max(-(-count // 2), dimensions)
    sobol = qmc.Sobol(dimensions, scramble=True, rng=np.random.default_rng(0))
    uniform = sobol.random_base2(int(np.ceil(np.log2(pairs))))[:pairs]
    half = norm.ppf(np.clip(uniform, 1e-6, 1 - 1e-6))
    lower = np.linalg.cholesky(half.T @ half / len(half))
    half = np.linalg.solve(lower, half.T).T
    return np.concatenate([half, -half])


def last_layer(latent: "SparseGP | DeepStack") -> SparseGP:
    """The layer that makes the outputs."""
    return latent.last if isinstance(latent, DeepStack) else latent


class DeepStack(eqx.Module):
    """Layers of sparse GPs; `inner` ones move by the optimiser, the last by natural gradients."""

    inner: tuple[SparseGP, ...]
    last: SparseGP
    points: Float[Array, "S W"]
    """A standard normal deviate for every sample and inner value, all layers side by side."""

    @property
    def samples(self) -> int:
        """Rows of a projection per row of the inputs."""
        return self.points.shape[-2] if self.inner else 1

    def hidden(self, X: Inputs) -> Float[Array, "SN W"]:
        """Samples of the input of the last layer."""
        rows, used = X, 0
        for index, layer in enumerate(self.inner):
            mean, variance = layer.marginals(layer.project(rows))
            width = mean.shape[1]
            deviates = self.points[:, None, used : used + width]
            used += width
            # All samples of the first layer share their input: one projection serves them.
            shape = (self.samples if index else 1, -1, width)
            mean, variance = mean.reshape(shape), variance.reshape(shape)
            # The tiny number keeps the square root's slope finite where the variance vanishes.
            rows = (mean + jnp.sqrt(variance + 1e-12) * deviates).reshape(-1, width)
        return rows

    def project(self, X: Inputs) -> Projection:
        """Project samples of the last layer's input."""
        return self.last.project(self.hidden(X))

    def marginals(self, projection: Projection) -> Marginals:
        """Mean and variance of the function for every sample and point."""
        return self.last.marginals(projection)

    def natural_step(
        self,
        projection: Projection,
        target: Outputs,
        weight: Outputs,
        rate: Scalar | float,
    ) -> "DeepStack":
        """One natural-gradient step of the last layer."""
        last = self.last.natural_step(projection, target, weight, rate)
        return eqx.tree_at(lambda stack: stack.last, self, last)

    def kl(self) -> Scalar:
        """KL divergence of every q from its prior."""
        return sum((layer.kl() for layer in self.inner), start=self.last.kl())

    def jitter(self) -> Scalar:
        """Largest relative jitter any layer needs."""
        return functools.reduce(jnp.maximum, (gp.jitter() for gp in (*self.inner, self.last)))
