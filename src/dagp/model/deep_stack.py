"""Deep GPs: a stack of sparse GPs, each taking the values of the one before as its inputs.

Values between layers are sampled point by point. Given a sample of its input, the last layer is a
sparse GP with exact marginals and natural-gradient steps. The samples are fixed quasi-random
points, so the ELBO is deterministic and solutions can be compared.
"""

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from scipy.special import ndtri

from dagp.core.tags import storable
from dagp.core.typing import Array, Float, Inputs, Outputs, Rate
from dagp.model.sparse_gp import LatentFunction, Marginals, Projection, SparseGP


def normal_points(dimensions: int, count: int) -> Float[np.ndarray, "S W"]:
    """At least `count` points of a standard normal, with exactly its mean and covariance.

    Quasi-random, in antithetic pairs if these are enough for the covariance. With another
    covariance the error would have the same sign at every data point, and training would exploit
    it. No fewer than one point more than dimensions can have it.
    """
    # Not used by most fits, and slow to import.
    from scipy.stats import qmc

    pairs = -(-count // 2)
    antithetic = pairs >= dimensions
    drawn = pairs if antithetic else max(count, dimensions + 1)
    sobol = qmc.Sobol(dimensions, scramble=True, rng=np.random.default_rng(0))
    uniform = sobol.random_base2(int(np.ceil(np.log2(drawn))))[:drawn]
    points = ndtri(np.clip(uniform, 1e-6, 1 - 1e-6))
    if not antithetic:
        points -= points.mean(axis=0)
    lower = np.linalg.cholesky(points.T @ points / len(points))
    points = np.linalg.solve(lower, points.T).T
    return np.concatenate([points, -points]) if antithetic else points


@storable("gp/DeepStack")
class DeepStack(LatentFunction):
    """Layers of sparse GPs; q of `inner` moves by Adam, q of `last` by natural gradients."""

    inner: tuple[SparseGP, ...]
    last: SparseGP
    points: Float[Array, "S W"]
    """A standard normal deviate for every sample and inner value, all layers side by side."""

    @property
    def samples(self) -> int:
        return self.points.shape[-2] if self.inner else 1

    @property
    def layers(self) -> tuple[SparseGP, ...]:
        return (*self.inner, self.last)

    @property
    def can_widen(self) -> bool:
        return False

    def hidden(self, X: Inputs) -> Float[Array, "SN W"]:
        """Samples of the input of the last layer."""
        rows, used = X, 0
        for index, layer in enumerate(self.inner):
            mean, variance = layer.marginals(layer.project(rows))
            width = mean.shape[1]
            deviates = self.points[:, None, used : used + width]
            used += width
            # All samples of the first layer share their input, and so one projection.
            shape = (self.samples if index else 1, -1, width)
            mean, variance = mean.reshape(shape), variance.reshape(shape)
            # The offset keeps the derivative of the root finite at zero variance.
            rows = (mean + jnp.sqrt(variance + 1e-12) * deviates).reshape(-1, width)
        return rows

    def project(self, X: Inputs) -> Projection:
        return self.last.project(self.hidden(X))

    def marginals(self, projection: Projection) -> Marginals:
        return self.last.marginals(projection)

    def natural_step(
        self, projection: Projection, target: Outputs, weight: Outputs, rate: Rate
    ) -> "DeepStack":
        last = self.last.natural_step(projection, target, weight, rate)
        return eqx.tree_at(lambda stack: stack.last, self, last)

    def with_natural_q(self) -> "DeepStack":
        return eqx.tree_at(lambda stack: stack.last, self, self.last.with_natural_q())
