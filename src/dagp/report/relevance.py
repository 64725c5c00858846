"""Relevance of the inputs for each process and the gate: Sobol total-effect indices."""

from typing import NamedTuple

import numpy as np

from dagp.core.typing import Float, Int
from dagp.report.case import Case

_ROWS = 512


class Relevance(NamedTuple):
    """Effect of changing one input alone.

    Per process and input, the root-mean-square change of the process in standard deviations of
    the output; for the gate, that of its weights. Both are the square root of Sobol's total-effect
    variance (by Jansen's estimator), so they apply to every kernel and to deep processes.
    """

    processes: Float[np.ndarray, "K D"]
    """NaN for processes without a function."""
    gate: Float[np.ndarray, " D"]
    rows: int

    def overall(self) -> Float[np.ndarray, " D"]:
        """The largest effect of each input, over processes and gate."""
        return np.nanmax(np.vstack([self.processes, self.gate]), axis=0)


def relevance(case: Case) -> Relevance:
    """Replace each input alone by its value in another row, and measure the change.

    Where inputs depend on each other, this evaluates combinations that do not occur in the data.
    """
    rows = _sample(case)
    X, responsibilities = case.X[rows], case.responsibilities[rows]
    spread = np.array([typical_spread(column) for column in case.y.T])
    used = [k for k in case.active if k not in case.clutter]
    before, gate_before = _means_and_gate(case, X, used)
    found = np.full((len(case.model.processes_), X.shape[1]), np.nan)
    gate = np.zeros(X.shape[1])
    members = np.array(case.model.columns_.members)
    for i in range(members.max() + 1):
        # All columns that encode an input, such as the levels of a category, change together.
        d = np.flatnonzero(members == i)
        changed = X.copy()
        changed[:, d] = np.roll(X[:, d], 1, axis=0)
        after, gate_after = _means_and_gate(case, changed, used)
        squares = np.mean(((after - before) / spread) ** 2, axis=2) / 2
        gate[d] = np.sqrt(np.mean(np.sum((gate_after - gate_before) ** 2, axis=1)) / 2)
        for i, k in enumerate(used):
            weights = responsibilities[:, k] + 1e-12
            found[k, d] = np.sqrt(np.average(squares[:, i], weights=weights))
    return Relevance(found, gate, len(rows))


def typical_spread(column: Float[np.ndarray, " N"]) -> float:
    """Standard deviation of a column, robust to outliers: from its central 90 %. Skips NaN.

    >>> typical_spread(np.zeros(5))
    1.0
    """
    column = column[~np.isnan(column)]
    if not column.size:
        return 1.0
    low, high = np.quantile(column, [0.05, 0.95])
    bulk = high / 3.29 - low / 3.29
    return float(bulk if bulk > 0 else np.std(column) or 1.0)


def _sample(case: Case) -> Int[np.ndarray, " rows"]:
    """Rows in random order, with about equally many of every process that has any."""
    rng = np.random.default_rng(0)
    owners = np.unique(case.owner)
    each = [rng.permutation(np.flatnonzero(case.owner == k)) for k in owners]
    return rng.permutation(np.concatenate([mine[: _ROWS // len(owners)] for mine in each]))


def _means_and_gate(
    case: Case, X: Float[np.ndarray, "N D"], used: list[int]
) -> tuple[Float[np.ndarray, "N U P"], Float[np.ndarray, "N K"]]:
    """Means of the used processes, and gate weights of all."""
    mixture = case.model.posterior_.mixture(X, noise=False, flat=False)
    means = [mixture.marginal(k).mean() for k in used] or [np.zeros((len(X), case.y.shape[1]))]
    return np.stack(means, axis=1)[:, : len(used)], case.model.posterior_.gate(X)
