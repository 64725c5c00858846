"""Averages a posterior over several associations, weighted by their evidence.

A solution of the search is one association of points and processes, and its ELBO a bound on the
evidence around it. Where other associations have almost the same, predictions are those of all of
them. The processes of one are matched with those of another by the points that they share.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from scipy.special import softmax

from dagp.core.tags import storable
from dagp.core.typing import Bool, Float
from dagp.model.association import DataAssociation
from dagp.predict.mixture import Mixture
from dagp.predict.posterior import Posterior, Rows
from dagp.search.solution import in_use, matching

LEAST = 0.01
"""Probability below which an association is left out."""


@storable("model/Association")
class Association(NamedTuple):
    """Another association than the best one."""

    weight: float
    """Its probability."""
    model: DataAssociation
    order: tuple[int, ...]
    """Which of its processes matches each process of the best association."""


@storable("model/AveragedPosterior")
@dataclass(frozen=True)
class AveragedPosterior(Posterior):
    """The posterior of the best association, averaged with those of others."""

    others: tuple[Association, ...] = ()

    def associations(self) -> list[tuple[float, Posterior, tuple[int, ...]]]:
        best = 1.0 - sum(other.weight for other in self.others)
        own = tuple(range(self.model.n_processes))
        return [
            (weight, Posterior(model, self.units, self.dtype), order)
            for weight, model, order in [(best, self.model, own), *self.others]
        ]

    def mixture(self, X: Rows, *, noise: bool = True, flat: bool = True) -> Mixture:
        parts, owners = [], []
        for weight, posterior, order in self.associations():
            part = posterior.mixture(X, noise=noise, flat=flat)
            parts.append((weight, part))
            owners += [order.index(k) for k in part.owner]
        return _joined(parts, owners)

    def function(self, X: Rows, k: int, *, flat: bool = True) -> Mixture:
        # Associations keep their weights here, whatever their gates say of the process.
        each = self.associations()
        parts = [(weight, p.function(X, order[k], flat=flat)) for weight, p, order in each]
        return _joined(parts, [0] * sum(len(part.owner) for _, part in parts))

    def gate(self, X: Rows) -> Float[np.ndarray, "N K"]:
        each = [weight * part.gate(X)[:, order] for weight, part, order in self.associations()]
        return np.sum(each, axis=0)

    def noise_std(self, X: Rows, k: int) -> Float[np.ndarray, "N P"]:
        each = self.associations()
        squares = [weight * part.noise_std(X, order[k]) ** 2 for weight, part, order in each]
        return np.sqrt(np.sum(squares, axis=0))


class Attribution(NamedTuple):
    """One association, and what follows from it."""

    posterior: Posterior
    responsibilities: Float[np.ndarray, "N K"]
    bound: float
    """Its ELBO."""
    log_evidence: float
    """The same with the hyperparameters integrated out; NaN if they were taken as known."""
    log_stds: list[dict[str, np.ndarray]]
    """For each process, standard deviations of the logarithms of its hyperparameters."""


def over_associations(
    solutions: list[Attribution], weight: Float[np.ndarray, " N"], priors: Sequence[Any]
) -> tuple[Attribution, Float[np.ndarray, " S"]]:
    """The first solution averaged over all of them, and the probability of each."""
    evidence = [solution.log_evidence for solution in solutions]
    if not np.all(np.isfinite(evidence)):
        evidence = [solution.bound for solution in solutions]
    used = [in_use(solution.responsibilities, weight) for solution in solutions]
    kinds = [repr(prior) for prior in priors]
    shares = probabilities(np.add(evidence, [log_relabellings(kinds, one) for one in used]))
    best, close = solutions[0], np.flatnonzero(shares[1:]) + 1
    if not close.size:
        return best, shares
    found, others = shares[0] * best.responsibilities, []
    for share, other in ((float(shares[s]), solutions[s]) for s in close):
        order = matching(best.responsibilities, other.responsibilities, weight, kinds)
        found += share * other.responsibilities[:, order]
        others.append(Association(share, other.posterior.model, tuple(map(int, order))))
    known = best.posterior
    posterior = AveragedPosterior(known.model, known.units, known.dtype, tuple(others))
    return best._replace(posterior=posterior, responsibilities=found), shares


def _joined(parts: Sequence[tuple[float, Mixture]], owners: Sequence[int]) -> Mixture:
    """A mixture of mixtures with these weights."""
    weights = np.hstack([weight * part.weights for weight, part in parts])
    means, variances = (
        np.concatenate([getattr(part, name) for _, part in parts], axis=1)
        for name in ("means", "variances")
    )
    uniform = [flag for _, part in parts for flag in part.uniform]
    return Mixture(weights, means, variances, uniform, owners)


def probabilities(log_evidence: Any) -> Float[np.ndarray, " S"]:
    """Probabilities of associations, the best one first; zero for improbable ones.

    >>> probabilities([0.0, 0.0, -30.0])
    array([0.5, 0.5, 0. ])
    """
    found = softmax(np.asarray(log_evidence, np.float64))
    kept = found >= LEAST
    kept[0] = True
    return found * kept / np.sum(found * kept)


def log_relabellings(kinds: Sequence[str], used: Bool[np.ndarray, " K"]) -> float:
    """Log of the number of ways in which processes of one kind can be exchanged, unused ones
    among themselves left out: each way is an association of the same evidence.

    >>> round(np.exp(log_relabellings(["GP", "GP", "Noise"], np.array([True, True, True]))))
    2
    """
    count = 0.0
    for kind in set(kinds):
        alike = np.array([other == kind for other in kinds])
        count += math.lgamma(alike.sum() + 1) - math.lgamma((alike & ~used).sum() + 1)
    return count
