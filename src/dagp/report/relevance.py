"""Which inputs matter, for each process and for the gate."""

from typing import NamedTuple

import numpy as np

from dagp.report.case import Case
from dagp.typing import Float, Int

__all__ = ["Relevance", "relevance", "typical_spread"]

_ROWS = 512


class Relevance(NamedTuple):
    """What changing one input alone does.

    Per process and input, the typical change of the process in spreads of the output; for the
    gate, the typical change of its weights. Both are the square root of the total-effect variance
    (Sobol's, by Jansen's formula), so they hold for every kernel and for deep processes.
    """

    processes: Float[np.ndarray, "K D"]
    """NaN for processes without a function."""
    gate: Float[np.ndarray, " D"]
    rows: int

    def overall(self) -> Float[np.ndarray, " D"]:
        """The most an input does anywhere."""
        stacked = np.vstack([self.processes, self.gate])
        return np.where(np.isnan(stacked), 0.0, stacked).max(axis=0)


def relevance(case: Case) -> Relevance:
    """Give each input, alone, the value it has in another row, and see what changes.

    Where inputs depend on each other this asks about pairs of values that do not occur.
    """
    rows = _sample(case)
    X, shares = case.X[rows], case.shares[rows]
    spread = np.array([typical_spread(column) for column in case.y.T])
    used = [k for k in case.active if k not in case.clutter]
    before, gate_before = _outlook(case, X, used)
    found = np.full((len(case.model.processes_), X.shape[1]), np.nan)
    gate = np.zeros(X.shape[1])
    for d in range(X.shape[1]):
        changed = X.copy()
        changed[:, d] = np.roll(X[:, d], 1)
        after, gate_after = _outlook(case, changed, used)
        squares = np.mean(((after - before) / spread) ** 2, axis=2) / 2
        gate[d] = np.sqrt(np.mean(np.sum((gate_after - gate_before) ** 2, axis=1)) / 2)
        for i, k in enumerate(used):
            found[k, d] = np.sqrt(np.average(squares[:, i], weights=shares[:, k] + 1e-12))
    return Relevance(found, gate, len(rows))


def typical_spread(column: Float[np.ndarray, " N"]) -> float:
    """Standard deviation of the bulk of a column: outliers do not count.

    >>> typical_spread(np.zeros(5))
    1.0
    """
    low, high = np.quantile(column, [0.05, 0.95])
    bulk = high / 3.29 - low / 3.29
    return float(bulk if bulk > 0 else np.std(column) or 1.0)


def _sample(case: Case) -> Int[np.ndarray, " rows"]:
    """Some rows, in random order, in which every process that produced any is well represented."""
    rng = np.random.default_rng(0)
    owners = np.unique(case.owner)
    each = [rng.permutation(np.flatnonzero(case.owner == k)) for k in owners]
    return rng.permutation(np.concatenate([mine[: _ROWS // len(owners)] for mine in each]))


def _outlook(
    case: Case, X: Float[np.ndarray, "N D"], used: list[int]
) -> tuple[Float[np.ndarray, "N U P"], Float[np.ndarray, "N K"]]:
    """Means of the processes in use, and the weights of all."""
    mixture = case.model.posterior_.mixture(X, noise=False, flat=False)
    means = [mixture.marginal(k).mean() for k in used] or [np.zeros((len(X), case.y.shape[1]))]
    return np.stack(means, axis=1)[:, : len(used)], case.model.posterior_.gate(X)
