"""Moves: other associations, proposed from a trained solution.

A run can end with one function shared by two processes, or with two processes that change places
where their functions meet. Gradients do not leave such optima. Where two functions cross, a run may
also follow the upper and the lower envelope; with several inputs the boundary is then where they
are close: without the points there, what is left falls into parts, or can be cut into parts.
"""

import itertools
from collections.abc import Iterable, Iterator

import numpy as np
from scipy.sparse import coo_array, csr_array
from scipy.sparse.csgraph import connected_components
from scipy.sparse.linalg import ArpackNoConvergence, eigsh
from scipy.spatial import KDTree

from dagp.core.typing import Bool, Float
from dagp.search.settings import (
    AGREE,
    ALIKE,
    BEYOND,
    CUTS,
    GAIN,
    GAPS,
    LEFT_OUT,
    MEETINGS,
    MOST_POINTS,
    NEAR,
    NEAREST,
    UNUSED,
    WIDE,
)
from dagp.search.starts import on_mode
from dagp.search.trial import Accept, Proposal, View


def higher(view: View) -> Accept:
    """A move is accepted if it raises the ELBO by more than a few steps of training would."""
    return Accept(GAIN * float(view.sample.weight.sum()))


def annex(view: View) -> Iterator[Proposal]:
    """Assign the points of one process to another where both functions agree."""
    for i, j in itertools.permutations(view.used, 2):
        width = AGREE * np.minimum(view.noise_std[i], view.noise_std[j])
        shared = np.all(np.abs(view.means[i] - view.means[j]) < width, axis=1)
        held = view.sample.weight[shared] @ view.responsibilities[shared] / view.sample.weight.sum()
        if min(held[i], held[j]) >= UNUSED:
            given = view.hand_over(j, i, shared)
            yield Proposal(f"annex {j} to {i}", frozenset((i, j)), given, higher(view))


def merge(view: View) -> Iterator[Proposal]:
    """Assign all points of one process to another: both may fit the same function."""
    everywhere = np.ones(len(view.sample.X), bool)
    for i, j in itertools.combinations(view.used, 2):
        given = view.hand_over(j, i, everywhere)
        yield Proposal(f"merge {j} into {i}", frozenset((i, j)), given, higher(view))


def swap(view: View) -> Iterator[Proposal]:
    """Exchange two processes beyond an input where their functions meet, or, with several inputs,
    in a part of them that such places enclose."""
    for i, j in itertools.combinations(view.used, 2):
        if view.sample.X.shape[1] > 1:
            places = parts(view.sample.X, distance(view, i, j), UNUSED)
        else:
            places = (view.sample.X[:, 0] > meeting for meeting in meetings(view, i, j))
        yield from _exchanged(view, i, j, places, "swap {} and {} beyond {}")


def exchange(view: View) -> Iterator[Proposal]:
    """The same wherever two processes may have changed places: also between two such inputs, and at
    gaps of a single input, in which their functions may have met."""
    if view.sample.X.shape[1] > 1:
        yield from swap(view)
        return
    x = view.sample.X[:, 0]
    for i, j in itertools.combinations(view.used, 2):
        ends = np.sort([*meetings(view, i, j), *gaps(x)])
        beyond = [x > end for end in ends]
        between = [a & ~b for a, b in itertools.pairwise(beyond)]
        yield from _exchanged(view, i, j, beyond, "swap {} and {} beyond {}")
        yield from _exchanged(view, i, j, between, "swap {} and {} within {}")


def _exchanged(
    view: View, i: int, j: int, places: Iterable[Bool[np.ndarray, " N"]], name: str
) -> Iterator[Proposal]:
    """Two processes exchanged in each of some places, where both have points.

    Between processes of the same prior, and without labels, an exchange elsewhere is the same
    association with the names exchanged: where less than half of their points are, the others keep
    the length scales and the noise they were trained with.
    """
    both = view.sample.weight[:, None] * view.responsibilities[:, [i, j]]
    kinds = view.home.problem.kinds
    alike = kinds[i] == kinds[j] and not np.isin(view.sample.labels, (i, j)).any()
    for number, where in enumerate(places):
        held = both[where].sum(axis=0)
        if min(held) < UNUSED * view.sample.weight.sum():
            continue
        if alike and held.sum() > both.sum() / 2:
            where = ~where
        given = view.responsibilities.copy()
        given[where, i] = view.responsibilities[where, j]
        given[where, j] = view.responsibilities[where, i]
        yield Proposal(name.format(i, j, number), frozenset((i, j)), given, higher(view))


def extend(view: View) -> Iterator[Proposal]:
    """Lead a function, or an unused one, along the mode of what clutter holds.

    Clutter takes the points of a function that has lost its way, or of a regime that no function
    has found; they then lie on a curve.
    """
    clutter, weight = view.clutter, view.sample.weight
    lost = weight * view.responsibilities[:, clutter].sum(axis=1)
    if lost.sum() < UNUSED * weight.sum():
        return
    near = on_mode(view.sample, lost, np.random.default_rng(0))
    if lost[near].sum() < UNUSED * weight.sum():
        return
    unused = [k for k in view.smooth if k not in view.used]
    for k in (*view.used, *unused[:1]):
        given = view.responsibilities.copy()
        given[near, k] += given[near][:, clutter].sum(axis=1)
        given[near[:, None] & clutter] = 0.0
        changed = frozenset((k, *np.flatnonzero(clutter).tolist()))
        yield Proposal(f"extend {k}", changed, given, higher(view))


def distance(view: View, i: int, j: int) -> Float[np.ndarray, " N"]:
    """Distance of functions i and j in noise standard deviations."""
    noise = np.maximum(np.minimum(view.noise_std[i], view.noise_std[j]), 1e-6)
    return np.linalg.norm((view.means[i] - view.means[j]) / noise, axis=1)


def meetings(view: View, i: int, j: int) -> Float[np.ndarray, " C"]:
    """Values of a single input where functions i and j cross or nearly touch."""
    x, first = np.unique(view.sample.X[:, 0], return_index=True)
    gap = np.linalg.norm(view.means[i] - view.means[j], axis=1)[first]
    near = gap < NEAR * np.linalg.norm(view.noise_std[[i, j]])
    nearest = (gap < np.roll(gap, 1)) & (gap <= np.roll(gap, -1))
    meet = np.flatnonzero((near & nearest)[1:-1]) + 1
    return x[np.sort(meet[np.argsort(gap[meet], kind="stable")[:MEETINGS]])]


def gaps(x: Float[np.ndarray, " N"]) -> list[float]:
    """Middles of the widest gaps of a single input, widest first."""
    x = np.unique(x)
    widths = np.diff(x)
    widest = np.argsort(-widths, kind="stable")[:GAPS]
    return [float(x[g] + widths[g] / 2) for g in widest if widths[g] > WIDE * np.median(widths)]


def parts(
    X: Float[np.ndarray, "N D"], gap: Float[np.ndarray, " N"], least: float
) -> Iterator[Bool[np.ndarray, " N"]]:
    """Parts of the points that the places of small `gap` separate from the others.

    Both sides of each have at least the share `least` of the points.
    """
    # Copies of an input would be each other's only neighbours.
    places, some = np.unique(X, axis=0, return_index=True)
    if len(some) > MOST_POINTS:
        some = np.sort(np.random.default_rng(0).permutation(some)[:MOST_POINTS])
        places = X[some]
    nearest = KDTree(places).query(X)[1]
    known: list[np.ndarray] = []
    for part in (*_islands(places, gap[some]), *_cuts(places, gap[some])):
        if min(part.mean(), 1 - part.mean()) < least:
            continue
        if all(abs(2 * np.mean(part == other) - 1) < 2 * ALIKE - 1 for other in known):
            known.append(part)
            yield part[nearest]


def _graph(X: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Pairs of neighbours."""
    count = min(NEAREST + 1, len(X))
    nearest = KDTree(X).query(X, k=count)[1].reshape(len(X), count)
    return np.repeat(np.arange(len(X)), count - 1), nearest[:, 1:].ravel()


def _islands(X: np.ndarray, gap: np.ndarray) -> Iterator[np.ndarray]:
    """Connected components of the points away from the meetings, but the largest."""
    for share in LEFT_OUT:
        away = np.flatnonzero(gap > np.quantile(gap, share))
        if len(away) <= NEAREST:
            continue
        one, other = _graph(X[away])
        edges = coo_array((np.ones(len(one)), (one, other)), shape=(len(away), len(away)))
        count, component = connected_components(edges, directed=False)
        everywhere = component[KDTree(X[away]).query(X)[1]]
        for island in np.argsort(-np.bincount(component), kind="stable")[1 : min(count, 4)]:
            yield everywhere == island


def _cuts(X: np.ndarray, gap: np.ndarray) -> Iterator[np.ndarray]:
    """Normalised cuts of the neighbours' graph, whose edges are weak where the gap is small."""
    if len(X) <= max(NEAREST, CUTS + 2):
        return
    one, other = _graph(X)
    strength = np.minimum(gap[one], gap[other]) ** 2
    strength = strength / (strength + np.median(gap) ** 2 / 4 + 1e-12) + 1e-6
    weights = csr_array(coo_array((strength, (one, other)), shape=(len(X), len(X))))
    weights = (weights + weights.T) / 2
    degree = weights.sum(axis=1)
    scale = 1 / np.sqrt(degree)
    normal = weights.multiply(scale[:, None]).multiply(scale[None]).tocsr()
    for column in _leading(normal, np.ones(len(X))).T[::-1][1:]:
        level = column * scale
        sides = [level > np.quantile(level, q) for q in np.linspace(0.05, 0.95, 19)]
        yield min(sides, key=lambda side: _normalised_cut(weights, degree, side))


def _leading(normal: csr_array, first: np.ndarray) -> np.ndarray:
    """Eigenvectors of the largest eigenvalues of a normalised graph, the largest last, by
    iterations that begin with `first`."""
    count = CUTS + 1
    try:
        return eigsh(normal, k=count, which="LA", v0=first)[1]
    except ArpackNoConvergence:
        # Eigenvalues that are almost one, of parts that are almost apart, are told apart by the
        # inverse around them, which is slower to begin with.
        return eigsh(normal.tocsc(), k=count, sigma=BEYOND, which="LM", v0=first)[1]


def _normalised_cut(weights: csr_array, degree: np.ndarray, side: np.ndarray) -> float:
    across = float((weights @ side.astype(float)) @ ~side)
    inside, outside = degree[side].sum(), degree[~side].sum()
    return across / max(inside, 1e-12) + across / max(outside, 1e-12)
