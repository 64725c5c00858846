"""Parts of the inputs in which two processes may have been exchanged, for several inputs.

Where two functions cross, a run may follow the upper and the lower envelope instead. The boundary
is then where the functions are close: without the points there, what is left falls into parts, or
can be cut into parts.
"""

from collections.abc import Iterator

import numpy as np
from scipy.sparse import coo_array, csr_array
from scipy.sparse.csgraph import connected_components
from scipy.sparse.linalg import ArpackNoConvergence, eigsh
from scipy.spatial import KDTree

from dagp.core.typing import Bool, Float

NEIGHBOURS = 8
LEFT_OUT = (0.1, 0.2, 0.3, 0.4)
"""Shares of the points, closest to a meeting of the functions, that are left out in turn."""
CUTS = 3
"""Normalised cuts that are looked at."""
MOST_POINTS = 3000
"""With more points the parts are found among some of them, and the others join the nearest."""
_SAME = 0.9
BEYOND = 1 + 1e-9
"""Just above all eigenvalues of a normalised graph."""


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
        if all(abs(2 * np.mean(part == other) - 1) < 2 * _SAME - 1 for other in known):
            known.append(part)
            yield part[nearest]


def _graph(X: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Pairs of neighbours."""
    count = min(NEIGHBOURS + 1, len(X))
    nearest = KDTree(X).query(X, k=count)[1].reshape(len(X), count)
    return np.repeat(np.arange(len(X)), count - 1), nearest[:, 1:].ravel()


def _islands(X: np.ndarray, gap: np.ndarray) -> Iterator[np.ndarray]:
    """Connected components of the points away from the meetings, but the largest."""
    for share in LEFT_OUT:
        away = np.flatnonzero(gap > np.quantile(gap, share))
        if len(away) <= NEIGHBOURS:
            continue
        one, other = _graph(X[away])
        edges = coo_array((np.ones(len(one)), (one, other)), shape=(len(away), len(away)))
        count, component = connected_components(edges, directed=False)
        everywhere = component[KDTree(X[away]).query(X)[1]]
        for island in np.argsort(-np.bincount(component), kind="stable")[1 : min(count, 4)]:
            yield everywhere == island


def _cuts(X: np.ndarray, gap: np.ndarray) -> Iterator[np.ndarray]:
    """Normalised cuts of the neighbours' graph, whose edges are weak where the gap is small."""
    if len(X) <= max(NEIGHBOURS, CUTS + 2):
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
