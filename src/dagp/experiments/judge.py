"""Whether the association was found.

Needs NumPy alone, so that other packages can be judged by it in environments of their own.
"""

from typing import Any

import numpy as np

__all__ = ["PROBES", "cartpole", "multimodal", "noise", "rand_index"]

PROBES = (-4.0, 2.0)
"""Inputs where the gate of the multimodal data is looked at: two of its three functions coincide
at the first, none at the second."""
_TOLERANCE = 0.07
"""How far mixing weights may be off."""
_USED = 0.01
"""Least share of the points of a process that counts."""
_AGREEMENT = 0.95
"""Least adjusted Rand index."""
_ACCURACY = 0.9
_RMSE = 0.05
"""A third of the noise."""


def rand_index(first: Any, second: Any) -> float:
    """Agreement of two groupings: 1 if they are the same, about 0 if they are unrelated.

    >>> rand_index([0, 0, 1, 1], [2, 2, 0, 0])
    1.0
    """
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
    """Three processes, the right points in each where they differ, and the right weights.

    `gate` has the weights at `PROBES`; where there are none, only the association is judged.

    >>> x, process = np.linspace(-6, 6, 90), np.arange(90) % 3
    >>> multimodal(x, process, process, [[0.34, 0.33, 0.33, 0], [0.33, 0.34, 0.33, 0]])["gate"]
    False
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
    """Which of two systems produced each point, whatever they are called.

    >>> cartpole([0, 0, 1, 1], [1, 1, 0, 0])
    {'accuracy': 1.0, 'recovered': True}
    """
    right = float(np.mean(np.asarray(process) == np.asarray(assignment)))
    accuracy = max(right, 1 - right)
    return {"accuracy": accuracy, "recovered": accuracy >= _ACCURACY}


def noise(truth: Any, found: Any) -> dict[str, Any]:
    """The function beneath noise and outliers.

    >>> noise([0.0, 1.0], [0.01, 1.01])["recovered"]
    True
    """
    rmse = float(np.sqrt(np.mean((np.asarray(truth) - np.asarray(found)) ** 2)))
    return {"rmse": rmse, "recovered": rmse <= _RMSE}
