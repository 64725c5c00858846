"""A trained model, asked in the user's units.

One compiled shape serves every call: inputs go through in chunks of the same size, so memory is
bounded and no new length compiles anything.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from dagp.bounds import responsibilities
from dagp.data import Units, allowed, padded
from dagp.mixture import Mixture
from dagp.model import Batch, DataAssociation
from dagp.processes import NoiseProcess, NoiseTails
from dagp.runtime import numerics
from dagp.typing import Float, Inputs, Int, PerProcess

__all__ = ["CHUNK", "Posterior"]

CHUNK = 1024


@jax.jit
def _predictive(model: DataAssociation, X: Inputs) -> tuple[PerProcess, Any, Any]:
    model = eqx.tree_at(lambda m: m.gate, model, model.gate.refined())
    marginals = model.marginals(model.project(X))
    mean = model.in_order(tuple(part.mean for part in marginals.groups))
    variance = model.in_order(tuple(part.variance for part in marginals.groups))
    return marginals.gate.weights, jnp.moveaxis(mean, 0, 1), jnp.moveaxis(variance, 0, 1)


@jax.jit
def _shares(model: DataAssociation, batch: Batch) -> PerProcess:
    return responsibilities(model.log_joint(model.marginals(model.project(batch.X)), batch))


@dataclass(frozen=True)
class Posterior:
    """A trained model with the units of its data. Holds NumPy arrays only."""

    model: DataAssociation
    units: Units
    dtype: str = "float64"

    def mixture(
        self, X: Float[np.ndarray, "N D"], *, noise: bool = True, flat: bool = True
    ) -> Mixture:
        """The predictive mixture; `flat` drops the axis of a single output."""
        weights, means, variances = self._predictive(X)
        if noise:
            with numerics(self.dtype):
                variances = variances + np.asarray(self.model.noise_variances())
        owner = list(range(weights.shape[1]))
        for k in owner.copy():
            process = self.model.process(k)
            if isinstance(process, NoiseProcess) and process.uniform:
                weights, means, variances = _with_tails(process.tails, k, weights, means, variances)
                owner.append(k)
        means = means * self.units.y_unit + self.units.y_centre
        variances = variances * self.units.y_unit**2
        if flat:
            means, variances = means[..., 0], variances[..., 0]
        flags = self.model.uniform + (False,) * (len(owner) - self.model.n_processes)
        return Mixture(weights, means, variances, flags, owner)

    def gate(self, X: Float[np.ndarray, "N D"]) -> Float[np.ndarray, "N K"]:
        """Mixing weights at `X`."""
        return self._predictive(X)[0]

    def shares(
        self,
        X: Float[np.ndarray, "N D"],
        y: Float[np.ndarray, "N P"],
        labels: Int[np.ndarray, " N"],
    ) -> Float[np.ndarray, "N K"]:
        """q(a) at training rows: the optimal responsibilities in the evidence bound."""
        columns = (
            self.units.standard_x(X),
            self.units.standard_y(y),
            np.ones(len(X)),
            allowed(labels, self.model.n_processes),
        )
        with numerics(self.dtype):
            parts = [
                np.asarray(_shares(self.model, Batch(*chunk)), np.float64)
                for chunk in _chunks(*columns)
            ]
        shares = np.concatenate(parts)[: len(X)]
        return shares / shares.sum(axis=1, keepdims=True)

    def _predictive(self, X: Float[np.ndarray, "N D"]) -> tuple[np.ndarray, ...]:
        with numerics(self.dtype):
            parts = [
                [np.asarray(part, np.float64) for part in _predictive(self.model, chunk)]
                for (chunk,) in _chunks(self.units.standard_x(X))
            ]
        weights, means, variances = (
            np.concatenate(column)[: len(X)] for column in zip(*parts, strict=True)
        )
        return weights / weights.sum(axis=1, keepdims=True), means, variances


def _with_tails(
    tails: NoiseTails, k: int, weights: np.ndarray, means: np.ndarray, variances: np.ndarray
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Component k gives a part of its weight to a new one, its tails."""
    part = weights[:, [k]] * tails.share
    weights = np.hstack([weights, part])
    weights[:, [k]] -= part
    shape = (len(weights), 1, means.shape[2])
    return (
        weights,
        np.hstack([means, np.broadcast_to(tails.mean, shape)]),
        np.hstack([variances, np.broadcast_to(tails.std**2, shape)]),
    )


def _chunks(*columns: np.ndarray) -> Iterator[tuple[np.ndarray, ...]]:
    for begin in range(0, len(columns[0]), CHUNK):
        yield tuple(padded(column[begin : begin + CHUNK], CHUNK) for column in columns)
