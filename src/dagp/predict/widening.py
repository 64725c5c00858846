"""Widens q(f) for uncertain assignments and sizes of errors: linear response applied to a trained
model."""

from collections.abc import Iterator
from typing import Any

import jax
import numpy as np

from dagp.core.precision import numerics
from dagp.core.sharding import to_host
from dagp.core.typing import Float
from dagp.inference.standardize import Sample, to_batch
from dagp.inference.train import evaluate
from dagp.model.association import Batch, DataAssociation
from dagp.model.process import Process
from dagp.model.variational import NaturalGaussian
from dagp.predict.posterior import CHUNK, Posterior

WHOLE = 8 * CHUNK
"""Rows up to which all are evaluated together, in the shape compiled by the fit."""


def widened(posterior: Posterior, sample: Sample, batch: Batch | None = None) -> Posterior:
    """The posterior with q(f) widened for uncertain assignments, and with heavy-tailed noise for
    uncertain sizes of errors (see `linear_response`).

    Deep functions stay, and those whose loss of precision is not finite. `sample` are the rows as
    in `Prepared`, `batch` the same on the devices.
    """
    model = posterior.model
    certain = model.n_processes == 1
    if not any(group.can_widen and (group.heavy_tailed or not certain) for group in model.groups):
        return posterior
    lost: Any = None
    with numerics(posterior.dtype):
        for piece in _batches(sample, model.n_processes) if batch is None else [batch]:
            found = evaluate(model, piece).lost
            part = jax.tree.map(lambda a: to_host(a).astype(np.float64), found)
            lost = part if lost is None else jax.tree.map(np.add, lost, part)
    # In single precision, losses of almost noise-free functions may overflow.
    groups = tuple(
        _without(group, loss) if loss is not None and np.all(np.isfinite(loss)) else group
        for group, loss in zip(model.groups, lost, strict=True)
    )
    wider = DataAssociation(groups, model.gate, model.members)
    return Posterior(wider, posterior.units, posterior.dtype)


def _batches(sample: Sample, processes: int) -> Iterator[Batch]:
    rows = len(sample.X)
    # Chunks of one length: padding the last one costs less than another compilation.
    size, length = (rows, None) if rows <= WHOLE else (CHUNK, CHUNK)
    for at in range(0, rows, size):
        piece = sample.take(slice(at, at + size))
        yield to_batch(piece, processes, length)


def _without(group: Process, lost: Float[np.ndarray, "G P M M"]) -> Process:
    """A group of processes with the precision of q reduced and its mean unchanged."""
    assert group.function is not None
    q = group.function.layers[-1].q.as_natural()
    before, shift = np.asarray(q.precision, np.float64), np.asarray(q.shift, np.float64)
    values, vectors = np.linalg.eigh(before - lost)
    # The posterior is not wider than the prior, whose precision is one in every direction.
    after = (vectors * np.maximum(values, 1.0)[..., None, :]) @ np.swapaxes(vectors, -1, -2)
    mean = np.linalg.solve(before, shift[..., None])
    shift = (after @ mean)[..., 0].astype(q.shift.dtype)
    return group.with_function_q(NaturalGaussian(after.astype(q.precision.dtype), shift))
