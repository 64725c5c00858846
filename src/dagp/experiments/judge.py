"""Recovery criteria: whether a fit found the true association of the paper's data sets.

Imports NumPy only, so that it runs in the environments of other packages too.
"""

from typing import Any

import numpy as np

PROBES = (-4.0, 2.0)
"""Inputs at which the gate is tested: two functions coincide at the first, none at the second."""
_TOLERANCE = 0.07
"""Maximum error of a mixing weight."""
_USED = 0.01
"""Minimum share of the points of a process that is in use."""
_AGREEMENT = 0.95
"""Minimum adjusted Rand index."""
_ACCURACY = 0.9
_RMSE = 0.05
"""Maximum error: a third of the noise standard deviation."""


def rand_index(first: Any, second: Any) -> float:
    """Adjusted Rand index of two groupings: 1 if identical, about 0 if unrelated."""
    rows, columns = (np.unique(labels, return_inverse=True)[1] for labels in (first, second))
    table = np.zeros((rows.max() + 1, columns.max() + 1))
    np.add.at(table, (rows, columns), 1)

    def pairs(counts: np.ndarray) -> float:
        return float(np.sum(counts * (counts - 1) / 2))

    both, one, other = pairs(table), pairs(table.sum(axis=1)), pairs(table.sum(axis=0))
    chance = one * other / pairs(table.sum())
    most = (one + other) / 2
    return 1.0 if most == chance else (both - chance) / (most - chance)


def multimodal(x: Any, process: Any, assignment: Any, gate: Any = None) -> dict[str, Any]:
    """Criteria: three processes, the true grouping where they differ, the true gate weights.

    `gate` holds the weights at `PROBES`; without it, only the association is evaluated.
    """
    x, process, assignment = map(np.asarray, (x, process, assignment))
    middle = (x > 0) & (x < 5)
    row: dict[str, Any] = {
        "processes": int(np.sum(np.bincount(assignment) > _USED * len(x))),
        "ari": rand_index(process[middle], assignment[middle]),
    }
    row["associated"] = row["processes"] == 3 and row["ari"] >= _AGREEMENT
    if gate is None:
        return row
    left, centre = -np.sort(-np.asarray(gate))
    near = [left[:2] - [2 / 3, 1 / 3], centre[:3] - 1 / 3]
    row["gate"] = bool(all(np.all(np.abs(gap) < _TOLERANCE) for gap in near))
    return row | {"recovered": row["associated"] and row["gate"]}


def cartpole(process: Any, assignment: Any) -> dict[str, Any]:
    """Criterion: accuracy of the assignment to two systems, up to a permutation."""
    right = float(np.mean(np.asarray(process) == np.asarray(assignment)))
    accuracy = max(right, 1 - right)
    return {"accuracy": accuracy, "recovered": accuracy >= _ACCURACY}


def noise(truth: Any, found: Any) -> dict[str, Any]:
    """Criterion: error of the function recovered from noise and outliers.

    >>> noise([0.0, 1.0], [0.01, 1.01])["recovered"]
    True
    """
    rmse = float(np.sqrt(np.mean((np.asarray(truth) - np.asarray(found)) ** 2)))
    return {"rmse": rmse, "recovered": rmse <= _RMSE}
