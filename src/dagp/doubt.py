"""Functions that know what their points are in doubt about: linear response, applied to a fit."""

from collections.abc import Iterator
from typing import Any

import equinox as eqx
import jax
import numpy as np

from dagp.data import Sample, canonical, to_batch
from dagp.model import Batch, DataAssociation
from dagp.posterior import CHUNK, Posterior
from dagp.response import concerned
from dagp.runtime import numerics
from dagp.sparse import Natural
from dagp.train import outlook
from dagp.typing import Float

__all__ = ["doubted"]

WHOLE = 8 * CHUNK
"""Rows that are looked at together, as a fit on all rows has looked at them before."""


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
    if model.n_processes == 1 or not any(map(concerned, model.groups)):
        return posterior
    # In canonical order, so that the sums do not depend on that of the rows.
    standard = units.apply(canonical(sample)[0])
    lost: Any = None
    with numerics(posterior.dtype):
        for batch in _batches(standard, model.n_processes):
            part = jax.tree.map(lambda a: np.asarray(a, np.float64), outlook(model, batch).lost)
            lost = part if lost is None else jax.tree.map(np.add, lost, part)
    groups = tuple(
        group if information is None else _without(group, information)
        for group, information in zip(model.groups, lost, strict=True)
    )
    return Posterior(DataAssociation(groups, model.gate, model.members), units, posterior.dtype)


def _batches(sample: Sample, processes: int) -> Iterator[Batch]:
    rows = len(sample.X)
    # Pieces of one length: the rest of the last one costs less than another program.
    size, length = (rows, None) if rows <= WHOLE else (CHUNK, CHUNK)
    for at in range(0, rows, size):
        piece = Sample(*(column[at : at + size] for column in sample))
        yield to_batch(piece, processes, length)


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
