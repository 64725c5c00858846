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

from collections.abc import Iterator
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from dagp.bounds import responsibilities
from dagp.data import Sample, canonical, to_batch
from dagp.garbage import uncollected
from dagp.model import Batch, DataAssociation
from dagp.posterior import CHUNK, Posterior
from dagp.processes import Function, Process, Uneven
from dagp.runtime import numerics
from dagp.sparse import Marginals, Natural, Projection, SparseGP
from dagp.typing import Array, Float, Outputs, PerPoint

__all__ = ["doubted"]

Information = Float[Array, "P M M"]


def doubted(posterior: Posterior, sample: Sample) -> Posterior:
    """The posterior with functions that know what their points are in doubt about.

    Functions of several layers keep the variances they have.

    >>> from dagp import DAGP, GP, Noise, datasets
    >>> data = datasets.noise_separation(outliers=0.3, n=80, random_state=0)
    >>> model = DAGP(processes=[GP(), Noise()], n_init=1, tol=1e-1).fit(data.X, data.y)
    >>> rows = Sample(data.X, data.y[:, None], np.ones(80), np.full(80, -1))
    >>> trained = Posterior(model.stream_.model, model.posterior_.units)
    >>> before = trained.mixture(data.X, noise=False)
    >>> after = doubted(trained, rows).mixture(data.X, noise=False)
    >>> bool(np.all(after.variances >= before.variances - 1e-12))
    True
    """
    model, units = posterior.model, posterior.units
    if model.n_processes == 1 or not any(map(_concerned, model.groups)):
        return posterior
    # In canonical order, so that the sums do not depend on that of the rows.
    standard = units.apply(canonical(sample)[0])
    lost: Any = None
    with numerics(posterior.dtype):
        for batch in _batches(standard, model.n_processes):
            part = jax.tree.map(lambda a: np.asarray(a, np.float64), _information(model, batch))
            lost = part if lost is None else jax.tree.map(np.add, lost, part)
    groups = tuple(
        group if information is None else _without(group, information)
        for group, information in zip(model.groups, lost, strict=True)
    )
    return Posterior(DataAssociation(groups, model.gate, model.members), units, posterior.dtype)


def _concerned(process: Process) -> bool:
    """Whether a process (or a stack of its kind) has a function whose q we know how to widen."""
    if not isinstance(process, Function) or not isinstance(process.latent, SparseGP):
        return False
    return isinstance(process.latent.q, Natural)


def _batches(sample: Sample, processes: int) -> Iterator[Batch]:
    # Pieces of one length: the rest of the last one costs less than another program.
    length = None if len(sample.X) <= CHUNK else CHUNK
    for at in range(0, len(sample.X), CHUNK):
        piece = Sample(*(column[at : at + CHUNK] for column in sample))
        yield to_batch(piece, processes, length)


@jax.jit
@uncollected()
def _information(
    model: DataAssociation, batch: Batch
) -> tuple[Float[Array, "G P M M"] | None, ...]:
    """What doubt takes from the precisions, for each group of processes; None for other kinds."""
    projection = model.project(batch.X)
    marginals = model.marginals(projection)
    shares = responsibilities(model.log_joint(marginals, batch))
    doubt = (batch.weight[:, None] * shares * (1 - shares)).T

    def lost(process: Process, at: Any, part: Any, doubt: PerPoint) -> Information:
        function = at.function if isinstance(at, Uneven) else at
        assert isinstance(function, Projection)
        # The root first: the square of a slope that no doubt is left to multiply may overflow.
        weight = (jnp.sqrt(doubt)[:, None] * _slope(process, part, batch.y)) ** 2
        return jnp.einsum("mn,np,ln->pml", function.basis, weight, function.basis)

    return tuple(
        jax.vmap(lost)(group, at, part, doubt[np.asarray(members)]) if _concerned(group) else None
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


def _without(group: Any, lost: Float[np.ndarray, "G P M M"]) -> Any:
    """A group of processes whose q has lost some information; its means stay."""
    q = group.latent.q
    before, shift = np.asarray(q.precision, np.float64), np.asarray(q.shift, np.float64)
    values, vectors = np.linalg.eigh(before - lost)
    # Nobody knows less than the prior, whose precision is one in every direction.
    after = (vectors * np.maximum(values, 1.0)[..., None, :]) @ np.swapaxes(vectors, -1, -2)
    mean = np.linalg.solve(before, shift[..., None])
    return eqx.tree_at(
        lambda g: g.latent.q,
        group,
        Natural(after.astype(q.precision.dtype), (after @ mean)[..., 0].astype(q.shift.dtype)),
    )
