"""Subsample: the rows on which the association of a large table is searched.

Even sampling finds what most rows do. A regime that is rare, or a range of inputs that is seldom
visited, shows in few of these rows, so half of them are drawn the more likely the farther they are
from others. Labelled rows come first.
"""

import numpy as np
from scipy.spatial import KDTree

from dagp.core.typing import Int
from dagp.inference.missing import filled
from dagp.inference.standardize import Sample

SEARCH_ROWS = 2000
"""Least size of a subsample."""
REFERENCE = 2000
"""Evenly drawn rows to which distances are measured."""
NEIGHBOURS = 5
MOST_LIKELY = 3.0
"""Most times as likely as a median row. Without a limit most rows would be clutter."""


def subsample(sample: Sample, count: int, rng: np.random.Generator) -> Int[np.ndarray, " S"]:
    """At most `count` rows that cover inputs and outputs, in order."""
    rows = len(sample.X)
    if rows <= count:
        return np.arange(rows)
    labelled = rng.permutation(np.flatnonzero(sample.labels >= 0))[:count]
    others = np.setdiff1d(rng.permutation(rows)[:count], labelled)
    even = rng.permutation(others)[: (count - len(labelled)) // 2]
    chosen = np.concatenate([labelled, even])
    left = np.setdiff1d(np.arange(rows), chosen)
    likely = _sparseness(sample, rng)[left]
    # The largest keys of u^(1/w) are a weighted sample without replacement.
    key = np.log(rng.random(len(left))) / likely
    return np.sort(np.concatenate([chosen, left[np.argsort(-key)[: count - len(chosen)]]]))


def _sparseness(sample: Sample, rng: np.random.Generator) -> np.ndarray:
    """Distance of every row from others, in units of its median and bounded."""
    table = np.hstack([sample.X, filled(sample).y])
    reference = table[rng.permutation(len(table))[:REFERENCE]]
    count = min(NEIGHBOURS, len(reference))
    distance = KDTree(reference).query(table, k=count)[0].reshape(len(table), count)[:, -1]
    median = np.median(distance)
    if median == 0:
        return np.ones(len(table))
    return np.clip(distance / median, 1 / MOST_LIKELY, MOST_LIKELY)
