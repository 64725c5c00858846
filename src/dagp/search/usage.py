"""Usage: share of the data of each process, which processes are in use, and how far two solutions
agree on the assignment."""

from collections.abc import Sequence

import numpy as np
from scipy.optimize import linear_sum_assignment

from dagp.core.typing import Bool, Float, Int

UNUSED = 0.01
"""A process with at least this share of the data is in use."""
NEEDED = 10.0
"""One with less is in use if the others explain its data worse by this log likelihood."""


def shares_of_data(
    responsibilities: Float[np.ndarray, "N K"], weight: Float[np.ndarray, " N"]
) -> Float[np.ndarray, " K"]:
    """Share of the data that each process accounts for."""
    return weight @ responsibilities / weight.sum()


def in_use(
    responsibilities: Float[np.ndarray, "N K"], weight: Float[np.ndarray, " N"]
) -> Bool[np.ndarray, " K"]:
    """Which processes are in use: by their share of the data, or because a few points need them.

    >>> in_use(np.array([[1.0, 0.0]] * 200 + [[0.0, 1.0]]), np.ones(201))
    array([ True,  True])
    """
    # Without process k the likelihood of a point falls by the factor 1 − r_k.
    # Below one also in single precision.
    largest = np.minimum(np.asarray(responsibilities, np.float64), 1 - 1e-12)
    loss = -weight @ np.log1p(-largest)
    return (shares_of_data(responsibilities, weight) >= UNUSED) | (loss >= NEEDED)


def _together(
    first: Float[np.ndarray, "N K"],
    second: Float[np.ndarray, "N K"],
    weight: Float[np.ndarray, " N"],
) -> Float[np.ndarray, "K K"]:
    """Weight of the data by the processes that two solutions assign them to."""
    K = first.shape[1]
    pairs = K * first.argmax(axis=1) + second.argmax(axis=1)
    return np.bincount(pairs, weight, minlength=K * K).reshape(K, K)


def matching(
    first: Float[np.ndarray, "N K"],
    second: Float[np.ndarray, "N K"],
    weight: Float[np.ndarray, " N"],
    kinds: Sequence[str] | None = None,
) -> Int[np.ndarray, " K"]:
    """The process of the second solution that matches each process of the first; of the same kind,
    if `kinds` of the processes are given."""
    together = _together(first, second, weight)
    if kinds is not None:
        alike = np.equal.outer(kinds, kinds)
        together[~alike] = -1 - weight.sum() * len(kinds)
    return linear_sum_assignment(-together)[1]


def agreement(
    first: Float[np.ndarray, "N K"],
    second: Float[np.ndarray, "N K"],
    weight: Float[np.ndarray, " N"],
    kinds: Sequence[str] | None = None,
) -> float:
    """Share of the data that two solutions assign alike, up to a permutation of the processes; of
    those of the same kind, if `kinds` are given.

    >>> one, other = np.array([[1.0, 0.0], [0.0, 1.0]]), np.array([[0.1, 0.9], [0.8, 0.2]])
    >>> agreement(one, other, np.ones(2))
    1.0
    """
    order = matching(first, second, weight, kinds)
    together = _together(first, second, weight)
    return float(together[np.arange(len(order)), order].sum() / weight.sum())
