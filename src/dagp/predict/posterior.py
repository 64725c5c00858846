"""The posterior: predictions of a trained model in the user's units.

Inputs come in chunks of one size: memory is bounded, and other row counts need no compilation.
"""

import operator
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import equinox as eqx
import jax
import numpy as np

from dagp.core.gc import gc_paused
from dagp.core.precision import numerics
from dagp.core.programs import program
from dagp.core.tags import storable
from dagp.core.typing import Float, Inputs, Int, PerProcess
from dagp.inference.elbo import responsibilities
from dagp.inference.standardize import Units, label_log_mask, padded
from dagp.model.association import Batch, DataAssociation
from dagp.model.process import Components
from dagp.predict.mixture import Mixture

CHUNK = 1024
Rows = Float[np.ndarray, "N D"]


@program
@gc_paused()
def _predictive(model: DataAssociation, X: Inputs) -> tuple[PerProcess, tuple[Components, ...]]:
    model = eqx.tree_at(lambda m: m.gate, model, model.gate.refined())
    marginals = model.marginals(model.project(X))
    parts = map(jax.vmap(lambda p, m: p.components(m)), model.groups, marginals.groups)
    return marginals.gate.weights, tuple(parts)


@program
@gc_paused()
def _responsibilities(model: DataAssociation, batch: Batch) -> PerProcess:
    return responsibilities(model.log_joint(model.marginals(model.project(batch.X)), batch))


def predictive_shapes(posterior: "Posterior", columns: int) -> tuple[Any, tuple[Components, ...]]:
    """Shapes of the weights and components of a chunk; raises where parts do not fit."""
    with numerics(posterior.dtype):
        X = jax.ShapeDtypeStruct((CHUNK, columns), np.dtype(posterior.dtype))
        return jax.eval_shape(_predictive, posterior.model, X)


@storable("model/Posterior")
@dataclass(frozen=True)
class Posterior:
    """A trained model with the units of its data. Holds NumPy arrays only."""

    model: DataAssociation
    units: Units
    dtype: str = "float64"

    def mixture(self, X: Rows, *, noise: bool = True, flat: bool = True) -> Mixture:
        """The predictive mixture; `flat` drops the axis of a single output."""
        weights, parts = self._predictive(X)
        columns = []
        for k, part in enumerate(parts):
            spread = part.variance + part.noise if noise else part.variance
            columns += [
                # The first component of each process has the index of the process.
                (c > 0, k, self.model.is_uniform[k] and c == 0, mass, part.mean[c], spread[c])
                for c, mass in enumerate(part.masses)
                if c == 0 or mass > 0
            ]
        _, owner, uniform, masses, means, variances = zip(
            *sorted(columns, key=lambda column: column[:2]), strict=True
        )
        means = np.stack(means, axis=1) * self.units.y_unit + self.units.y_centre
        variances = np.stack(variances, axis=1) * self.units.y_unit**2
        if flat:
            means, variances = means[..., 0], variances[..., 0]
        return Mixture(weights[:, owner] * np.array(masses), means, variances, uniform, owner)

    def associations(self) -> "list[tuple[float, Posterior, tuple[int, ...]]]":
        """Probability, posterior and processes of every association, the best one first; the
        processes are in the order in which they match those of the best one."""
        return [(1.0, self, tuple(range(self.model.n_processes)))]

    def draw_associations(self, count: int, rng: np.random.RandomState) -> Int[np.ndarray, " S"]:
        """Indices of associations, drawn by their probabilities."""
        weights = [weight for weight, _, _ in self.associations()]
        # With a single one, no random number is used.
        return (
            np.zeros(count, int)
            if len(weights) == 1
            else rng.choice(len(weights), count, p=weights)
        )

    def function(self, X: Rows, k: int, *, flat: bool = True) -> Mixture:
        """The mixture that stands for the latent function of process k."""
        return self.mixture(X, noise=False, flat=flat).marginal(k)

    def gate(self, X: Rows) -> Float[np.ndarray, "N K"]:
        """Prior probabilities of the processes."""
        return self._predictive(X)[0]

    def noise_std(self, X: Rows, k: int) -> Float[np.ndarray, "N P"]:
        """Standard deviation of an observation of process k around its function; of Student-t
        noise without the factor of its tails (see `GP`)."""
        part, process = self._predictive(X)[1][k], self.model.process(k)
        if process.function is not None:
            variance = np.tensordot(part.masses, part.noise, axes=1)
            with numerics(self.dtype):
                variance = variance / np.asarray(process.tail_variance(), np.float64)
        else:
            # Clutter has no latent function: all of its variance is noise.
            variance = part.variance[0]
        return np.sqrt(variance) * self.units.y_unit

    def responsibilities(
        self, X: Rows, y: Float[np.ndarray, "N P"], labels: Int[np.ndarray, " N"]
    ) -> Float[np.ndarray, "N K"]:
        """q(a) at training rows: the optimal responsibilities of the ELBO."""
        known = label_log_mask(labels, self.model.n_processes)
        columns = (self.units.standard_x(X), self.units.standard_y(y), np.ones(len(X)), known)
        with numerics(self.dtype):
            parts = [
                np.asarray(_responsibilities(self.model, Batch(*chunk)), np.float64)
                for chunk in _chunks(*columns)
            ]
        found = np.concatenate(parts)[: len(X)]
        return found / found.sum(axis=1, keepdims=True)

    def _predictive(self, X: Rows) -> tuple[np.ndarray, list[Components]]:
        """Mixing weights, and the components of each process in standardised units."""
        weights, groups = [], []
        with numerics(self.dtype):
            for (chunk,) in _chunks(self.units.standard_x(X)):
                gate, parts = _predictive(self.model, chunk)
                weights.append(np.asarray(gate, np.float64))
                groups.append(jax.tree.map(lambda a: np.asarray(a, np.float64), parts))
        joined = jax.tree.map(
            lambda *chunks: _join(chunks)[..., : len(X), :] if chunks[0].ndim > 2 else chunks[0],
            *groups,
        )
        by_process = {
            k: jax.tree.map(operator.itemgetter(i), group)
            for group, members in zip(joined, self.model.members, strict=True)
            for i, k in enumerate(members)
        }
        weight = np.concatenate(weights)[: len(X)]
        weight = weight / weight.sum(axis=1, keepdims=True)
        return weight, [by_process[k] for k in sorted(by_process)]


def _join(chunks: tuple[np.ndarray, ...]) -> np.ndarray:
    return np.concatenate(chunks, axis=-2)


def _chunks(*columns: np.ndarray) -> Iterator[tuple[np.ndarray, ...]]:
    for begin in range(0, len(columns[0]), CHUNK):
        yield tuple(padded(column[begin : begin + CHUNK], CHUNK) for column in columns)
