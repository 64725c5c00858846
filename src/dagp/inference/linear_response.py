"""Linear response: how much uncertain assignments, and sizes of errors, widen q(f).

In the ELBO functions and assignments are independent, q(f) q(a). A point of responsibility r then
counts as r points, however far from the function it lies. The function would differ if the
assignment were known to be true or false; q(f) lacks this variance.

Linear response takes the covariance of q(u) from the curvature of the ELBO in which the
responsibilities follow the function:

    Λ − Σ_n r_n (1 − r_n) g_n² b_n b_nᵀ,    g_n = ∂ E_q[log p(y_n | f)] / ∂ E_q[f(x_n)]

in place of Λ, the precision of q in whitened space. Points of responsibility 0 or 1, and points on
the function, change nothing.

Heavy-tailed noise has a second such q, of the λ that divides the variance of each row, and it also
follows the function. Its part is Σ_n r_n Var[λ_n] d_n² b_n b_nᵀ, d_n = (y_n − E_q[f(x_n)]) / σ².
"""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from dagp.core.typing import Array, Float, Outputs, PerPoint, PerProcess
from dagp.model.association import Batch, DataAssociation, ModelMarginals, ModelProjection
from dagp.model.process import Process
from dagp.model.sparse_gp import Marginals

InformationLoss = tuple[Float[Array, "G P M M"] | None, ...]
"""For each group of processes; None where linear response does not apply."""


def information_loss(
    model: DataAssociation,
    projection: ModelProjection,
    marginals: ModelMarginals,
    responsibilities: PerProcess,
    batch: Batch,
) -> InformationLoss:
    """The precision that these uncertainties remove from every q."""
    held = (batch.weight[:, None] * responsibilities).T
    uncertain = held * (1 - responsibilities).T

    def lost(
        process: Process, at: Any, part: Any, held: PerPoint, variance: PerPoint
    ) -> Float[Array, "P M M"]:
        basis = process.function_projection(at).basis
        # The root first, because the square of a slope may overflow where the variance is zero.
        weight = (jnp.sqrt(variance)[:, None] * _slope(process, part, batch.y)) ** 2
        if process.heavy_tailed:
            weight += held[:, None] * process.uncertain_precision(part, batch.y)
        return jax.vmap(lambda w: (basis * w) @ basis.T)(weight.T)

    def of(values: PerProcess, members: tuple[int, ...]) -> PerProcess:
        return values[np.asarray(members)]

    return tuple(
        jax.vmap(lost)(group, at, part, of(held, members), of(uncertain, members))
        if group.can_widen
        else None
        for group, at, part, members in zip(
            model.groups, projection.groups, marginals.groups, model.members, strict=True
        )
    )


def _slope(process: Process, marginals: Any, y: Outputs) -> Outputs:
    """Derivative of each point's expected log density with respect to the mean of the function."""
    function = process.function_marginals(marginals)

    def total(mean: Outputs) -> Float[Array, ""]:
        moved = process.with_function_marginals(marginals, Marginals(mean, function.variance))
        return jnp.sum(process.expected_log_density(moved, y))

    return jax.grad(total)(function.mean)
