"""What doubt about the assignments adds to the variances of the functions.

The bound takes functions and assignments for independent, q(f) q(a). A point that belongs to a
function with probability r then counts as r of a point, however far away it lies. But were it known
to belong there, or not to, the function would lie elsewhere: that spread is missing in q(f).

Linear response finds it. The covariance of q(u) is how far its mean moves when it is pulled at, and
that is governed by how the bound bends once the responsibilities are free to follow:

    Λ − Σ_n r_n (1 − r_n) g_n² b_n b_nᵀ,    g_n = ∂ E_q[log p(y_n | f)] / ∂ E_q[f(x_n)]

in place of Λ, the precision of q in whitened space. A point that is certain to be the function's
own, or not to be, changes nothing, and neither does one that lies on the function.
"""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from dagp.model import Batch, DataAssociation, ModelMarginals, ModelProjection
from dagp.processes import Function, Process, Uneven
from dagp.sparse import Marginals, Natural, Projection, Rooted, SparseGP
from dagp.typing import Array, Float, Outputs, PerPoint, PerProcess

__all__ = ["Information", "concerned", "information"]

Information = tuple[Float[Array, "G P M M"] | None, ...]
"""For each group of processes; None for those whose q we do not know how to widen."""


def concerned(process: Process) -> bool:
    """Whether a process (or a stack of its kind) has a function whose q we know how to widen."""
    if not isinstance(process, Function) or not isinstance(process.latent, SparseGP):
        return False
    return isinstance(process.latent.q, Natural | Rooted)


def information(
    model: DataAssociation,
    projection: ModelProjection,
    marginals: ModelMarginals,
    shares: PerProcess,
    batch: Batch,
) -> Information:
    """What doubt takes from the precisions."""
    doubt = (batch.weight[:, None] * shares * (1 - shares)).T

    def lost(process: Process, at: Any, part: Any, doubt: PerPoint) -> Float[Array, "P M M"]:
        function = at.function if isinstance(at, Uneven) else at
        assert isinstance(function, Projection)
        # The root first: the square of a slope that no doubt is left to multiply may overflow.
        weight = (jnp.sqrt(doubt)[:, None] * _slope(process, part, batch.y)) ** 2
        return jax.vmap(lambda w: (function.basis * w) @ function.basis.T)(weight.T)

    return tuple(
        jax.vmap(lost)(group, at, part, doubt[np.asarray(members)]) if concerned(group) else None
        for group, at, part, members in zip(
            model.groups, projection.groups, marginals.groups, model.members, strict=True
        )
    )


def _slope(process: Process, marginals: Any, y: Outputs) -> Outputs:
    """Derivative of each point's expected log density with respect to the mean of the function."""
    uneven = isinstance(marginals, Uneven)
    function = marginals.function if uneven else marginals

    def total(mean: Outputs) -> Float[Array, ""]:
        moved = Marginals(mean, function.variance)
        moved = marginals._replace(function=moved) if uneven else moved
        return jnp.sum(process.expected_log_density(moved, y))

    return jax.grad(total)(function.mean)
