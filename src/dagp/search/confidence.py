"""Confidence in a solution: the probability that the search has found the best association.

Starts are independent attempts at the same question. A solution that several of them reach is
probably the best one; one that a single start has reached may have better ones beside it that none
has reached. A second solution of almost the same ELBO leaves open which of the two is right.
"""

from typing import NamedTuple

import numpy as np
from scipy.special import expit

from dagp.core.sharding import to_host
from dagp.core.typing import Float, Int
from dagp.search.race import Contender
from dagp.search.usage import agreement, matching

CONFIRMED = 0.95
"""Share of equally assigned data from which another start confirms a solution."""
SLOPE, OFFSET = 1.6, 4.7
"""Log odds of the best association: OFFSET less SLOPE times the log of the percentage of data that
the next start assigns differently. Fitted to 86 fits of `benchmarks/recovery.py sheets`, with seeds
below 100."""
DOUBTED = 0.9
"""Confidence below which a fit is warned about."""
MOST_ROWS = 3
"""Rows whose labels are asked for."""


class Verdict(NamedTuple):
    """Confidence in a solution, and what would settle the doubt."""

    confidence: float
    """NaN if there was nothing to compare."""
    rows: tuple[int, ...] = ()
    """Rows whose labels would decide between the solution and its rival."""

    @property
    def doubted(self) -> bool:
        return self.confidence < DOUBTED


def support(kept: Contender, others: list[Contender], weight: Float[np.ndarray, " N"]) -> float:
    """Largest share of the data that another start assigns as the kept one does; 0 without one."""
    found = to_host(kept.state.responsibilities)[: len(weight)]
    alike = [
        agreement(found, to_host(other.state.responsibilities)[: len(weight)], weight)
        for other in others
        if other is not kept
    ]
    return max(alike, default=0.0)


def confidence(share: float, lead: float, margin: float) -> float:
    """Probability of the best association, from the share of the data that the next start assigns
    alike, and the lead over the best other solution in units of what its ELBO may be wrong by.

    >>> confidence(0.7, 50.0, 1.0) < 0.5 < 0.9 < confidence(0.99, 50.0, 1.0)
    True
    """
    found = expit(OFFSET - SLOPE * np.log(max(100 * (1 - share), 0.1)))
    return float(found * expit(lead / margin))


def decisive_rows(
    kept: Float[np.ndarray, "N K"], rival: Float[np.ndarray, "N K"], weight: Float[np.ndarray, " N"]
) -> Int[np.ndarray, " R"]:
    """A few rows that two solutions assign differently and without doubt: one for each of the
    largest groups that have moved from one process to another."""
    K = kept.shape[1]
    rival = rival[:, matching(kept, rival, weight)]
    group = K * kept.argmax(axis=1) + rival.argmax(axis=1)
    size = np.bincount(group, weight, minlength=K * K)
    size[:: K + 1] = 0.0
    sure = kept.max(axis=1) * rival.max(axis=1)
    largest = [g for g in np.argsort(-size, kind="stable")[:MOST_ROWS] if size[g] > 0]
    return np.array([np.argmax(np.where(group == g, sure, -1.0)) for g in largest], int)
