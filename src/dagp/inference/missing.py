"""Missing outputs in the heuristics of the search; the ELBO itself leaves them out."""

import numpy as np
from scipy.spatial import KDTree

from dagp.inference.standardize import Sample


def filled(sample: Sample) -> Sample:
    """The sample with every missing output taken from the row that is nearest in the inputs and in
    the outputs that are there.

    >>> X, y = np.array([[0.0], [1.0], [1.1]]), np.array([[0.0, 5.0], [1.0, 7.0], [1.0, np.nan]])
    >>> filled(Sample(X, y, np.ones(3), np.full(3, -1))).y[2].tolist()
    [1.0, 7.0]
    """
    there = ~np.isnan(sample.y)
    if there.all():
        return sample
    y = sample.y.copy()
    for pattern in np.unique(there[~there.all(axis=1)], axis=0):
        rows = np.flatnonzero((there == pattern).all(axis=1))
        table = np.hstack([sample.X, sample.y[:, pattern]])
        for missing in np.flatnonzero(~pattern):
            donors = np.flatnonzero(there[:, missing] & there[:, pattern].all(axis=1))
            if len(donors) == 0:
                y[rows, missing] = np.nanmedian(sample.y[:, missing])
                continue
            nearest = KDTree(table[donors]).query(table[rows])[1]
            y[rows, missing] = sample.y[donors[nearest], missing]
    return sample._replace(y=y)
