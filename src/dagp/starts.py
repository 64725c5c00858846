"""Starts: where a run begins.

The start decides which optimum a run ends in, and no kind of start wins everywhere. Each kind here
proposes which points belong together from a different idea of what a process looks like.
"""

from collections.abc import Callable, Iterator
from typing import NamedTuple

import numpy as np
from scipy.spatial import KDTree

from dagp.data import Sample, Units, allowed
from dagp.gate import build_gate
from dagp.model import DataAssociation
from dagp.processes import GP, ProcessPrior, Setting
from dagp.typing import Float, Int

__all__ = ["KINDS", "Problem", "Start", "build", "choose_inducing", "k_means", "starts"]


class Problem(NamedTuple):
    """What is to be fitted: standardised data and the priors."""

    sample: Sample
    units: Units
    priors: tuple[ProcessPrior, ...]
    gate: GP | str | None
    inducing: Float[np.ndarray, "M D"]

    @property
    def n_processes(self) -> int:
        """K."""
        return len(self.priors)

    @property
    def clutter(self) -> tuple[bool, ...]:
        """Which processes carry no information about the input."""
        return tuple(prior.clutter for prior in self.priors)


class Start(NamedTuple):
    """Where a run begins: responsibilities, and the hyperparameters nobody stated."""

    kind: str
    responsibilities: Float[np.ndarray, "N K"]
    lengthscale: float
    noise_std: float


def choose_inducing(
    X: Float[np.ndarray, "N D"], count: int, rng: np.random.Generator
) -> Float[np.ndarray, "M D"]:
    """At most `count` inputs spread over the data: denser where data are, but everywhere."""
    distinct = np.unique(X, axis=0)
    if len(distinct) <= count:
        return distinct
    return k_means(distinct, count, rng)[0]


def k_means(
    points: Float[np.ndarray, "N D"], count: int, rng: np.random.Generator, limit: int = 5000
) -> tuple[Float[np.ndarray, "M D"], Int[np.ndarray, " N"]]:
    """Centres and the nearest centre of each point (Lloyd's algorithm after k-means++ seeding)."""
    some = points
    if len(points) > limit:
        some = points[np.sort(rng.choice(len(points), limit, replace=False))]
    centres = some[[rng.integers(len(some))]]
    nearest = np.full(len(some), np.inf)
    while len(centres) < count:
        nearest = np.minimum(nearest, np.sum((some - centres[-1]) ** 2, axis=1))
        pick = np.searchsorted(np.cumsum(nearest), rng.uniform(0, nearest.sum()))
        centres = np.vstack([centres, some[min(pick, len(some) - 1)]])
    for _ in range(20):
        member = KDTree(centres).query(some)[1]
        sizes = np.bincount(member, minlength=count)
        sums = np.stack([np.bincount(member, column, minlength=count) for column in some.T], axis=1)
        centres = np.where(sizes[:, None] > 0, sums / np.maximum(sizes, 1)[:, None], centres)
    return centres, np.asarray(KDTree(centres).query(points)[1])


Labeller = Callable[[Sample, int, np.random.Generator], Int[np.ndarray, " N"]]


def by_rank(sample: Sample, count: int, rng: np.random.Generator) -> Int[np.ndarray, " N"]:
    """Rank of y among the points with the nearest inputs: layers of a one-dimensional picture."""
    neighbours = _neighbours(sample.X)
    level = sample.y @ rng.standard_normal(sample.y.shape[1])
    rank = np.mean(level[neighbours] < level[:, None], axis=1)
    return np.searchsorted(np.quantile(rank, np.sort(rng.uniform(0.1, 0.9, count - 1))), rank)


def by_magnitude(sample: Sample, count: int, rng: np.random.Generator) -> Int[np.ndarray, " N"]:
    """Distance of y from its middle: regimes that respond weakly and strongly."""
    size = np.linalg.norm(sample.y - np.median(sample.y, axis=0), axis=1)
    inner = (np.arange(1, count) + rng.uniform(-0.3, 0.3, count - 1)) / count
    return np.searchsorted(np.quantile(size, inner), size)


def by_cluster(sample: Sample, count: int, rng: np.random.Generator) -> Int[np.ndarray, " N"]:
    """Clusters in inputs and outputs together: regimes that live in different places."""
    return k_means(np.hstack([sample.X, sample.y]), count, rng)[1]


def by_draw(sample: Sample, count: int, rng: np.random.Generator) -> Int[np.ndarray, " N"]:
    """The nearest of some random smooth functions."""
    D, features = sample.X.shape[1], 64
    frequency = rng.standard_normal((D, features)) / np.sqrt(D)
    phase = rng.uniform(0, 2 * np.pi, features)
    basis = np.sqrt(2 / features) * np.cos(sample.X @ frequency + phase)
    draws = np.einsum(
        "nf,fkp->nkp", basis, rng.standard_normal((features, count, sample.y.shape[1]))
    )
    return np.argmin(np.sum((sample.y[:, None, :] - draws) ** 2, axis=2), axis=1)


KINDS: dict[str, Labeller] = {
    "rank": by_rank,
    "magnitude": by_magnitude,
    "cluster": by_cluster,
    "draw": by_draw,
}


def _neighbours(X: Float[np.ndarray, "N D"]) -> Int[np.ndarray, "N J"]:
    # A twentieth of the data, but never so many that the table outgrows them.
    count = min(len(X), max(10, min(len(X) // 20, 200)))
    return KDTree(X).query(X, k=count)[1].reshape(len(X), count)


def isolation(sample: Sample) -> Float[np.ndarray, " N"]:
    """How alone each point is among its neighbours in x: 0 in the densest part, 1 in the thinnest.

    Points of a curve crowd around it; clutter does not.
    """
    y = sample.y[_neighbours(sample.X)]
    gaps = np.linalg.norm(y - sample.y[:, None, :], axis=2)
    near = np.sort(gaps, axis=1)[:, : max(2, gaps.shape[1] // 5)].mean(axis=1)
    return np.argsort(np.argsort(near, kind="stable"), kind="stable") / len(near)


def starts(problem: Problem, count: int, rng: np.random.Generator) -> Iterator[Start]:
    """`count` starts, taking the kinds in turn and varying the hyperparameters along."""
    D = problem.sample.X.shape[1]
    base = min(0.3 * D**1.2, np.sqrt(D))
    kinds = list(KINDS) if problem.clutter.count(False) > 1 else ["rank"]
    for index in range(count):
        kind, lap = kinds[index % len(kinds)], index // len(kinds)
        yield Start(
            kind,
            _responsibilities(problem, KINDS[kind], lap, rng),
            lengthscale=base * (1.0, 2.0)[lap % 2],
            noise_std=(0.2, 0.1)[index % 2],
        )


def _responsibilities(
    problem: Problem, labeller: Labeller, lap: int, rng: np.random.Generator
) -> Float[np.ndarray, "N K"]:
    """Soft responsibilities from a hard proposal; clutter gets the isolated points."""
    sample, clutter = problem.sample, np.array(problem.clutter)
    smooth, broad = np.flatnonzero(~clutter), np.flatnonzero(clutter)
    N, K = len(sample.X), problem.n_processes
    proposal = np.full((N, K), 0.1 / K)
    broad_share = np.zeros(N)
    if len(broad):
        broad_share = isolation(sample) ** (1.0, 0.5, 2.0)[lap % 3] if len(smooth) else np.ones(N)
        proposal[:, broad] += 0.9 * broad_share[:, None] / len(broad)
    if len(smooth):
        member = labeller(sample, len(smooth), rng) if len(smooth) > 1 else np.zeros(N, int)
        proposal[np.arange(N), smooth[member]] += 0.9 * (1 - broad_share)
    proposal *= np.exp(allowed(sample.labels, K))
    return proposal / proposal.sum(axis=1, keepdims=True)


def build(problem: Problem, start: Start) -> DataAssociation:
    """The model a start begins with."""
    setting = Setting(
        *problem.units,
        y_low=problem.sample.y.min(axis=0),
        y_high=problem.sample.y.max(axis=0),
        inducing=problem.inducing,
        lengthscale=start.lengthscale,
        noise_std=start.noise_std,
    )
    processes = [prior.build(setting) for prior in problem.priors]
    return DataAssociation.assemble(processes, build_gate(problem.gate, setting, len(processes)))
