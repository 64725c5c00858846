"""What the script of a page draws, as plain values of bounded size."""

from typing import Any, NamedTuple

import numpy as np

from dagp.report import slices
from dagp.report.calibration import BINS, LEVELS, Calibration
from dagp.report.case import Case
from dagp.report.relevance import typical_spread
from dagp.report.text import short
from dagp.typing import Int

__all__ = ["Outliers", "drawn", "outliers", "payload"]

_POINTS = 5000
_POINT_NUMBERS = 300_000
_CELLS = 60_000
_TRACE = 1000


class Outliers(NamedTuple):
    """Points that a process without a function most likely produced."""

    rows: Int[np.ndarray, " found"]
    """Their places among the rows of the case, those in the page."""
    total: int
    """How many there are."""


def outliers(case: Case) -> Outliers:
    """The outliers in the order of the data; the surest ones where they are too many for a page."""
    found = np.flatnonzero(np.isin(case.owner, case.clutter))
    total = len(found)
    most = max(_CELLS // (len(case.inputs) + len(case.outputs) + 3), 100)
    if total > most:
        sure = case.shares[found].max(axis=1)
        found = np.sort(found[np.argsort(-sure, kind="stable")[:most]])
    return Outliers(found, total)


def drawn(case: Case) -> Int[np.ndarray, " drawn"]:
    """Rows that are drawn: all, or the same random ones every time."""
    N, D = case.X.shape
    most = min(_POINTS, max(_POINT_NUMBERS // (D + case.y.shape[1] + case.shares.shape[1]), 200))
    if most >= N:
        return np.arange(N)
    return np.sort(np.random.default_rng(0).choice(N, most, replace=False))


def payload(
    case: Case,
    found: Calibration,
    cuts: list[slices.Slice],
    listed: Outliers,
) -> dict[str, Any]:
    """Everything that the script needs, by name."""
    return {
        "inputs": case.inputs,
        "outputs": case.outputs,
        "processes": _processes(case),
        "points": _points(case),
        "typical": slices.typical(case.X).tolist(),
        "spread": [typical_spread(column) for column in case.X.T],
        "slices": [slices.packed(one) for one in cuts],
        "levels": list(LEVELS),
        "coverage": found.coverage.round(4).tolist(),
        "pit": found.pit.round(5).tolist(),
        "chance": float(2 * np.sqrt((1 - 1 / BINS) / BINS / len(case.y))),
        "bound": _bound(case),
        "outliers": _outlier_rows(case, listed),
    }


def _processes(case: Case) -> list[dict[str, Any]]:
    return [
        {
            "name": case.name(k),
            "colour": case.colour(k),
            "active": bool(case.model.active_[k]),
            "clutter": k in case.clutter,
            # Which of the slices' curves are its own.
            "curve": case.active.index(k) if k in case.active else -1,
        }
        for k in range(case.shares.shape[1])
    ]


def _points(case: Case) -> dict[str, Any]:
    rows = drawn(case)
    return {
        "row": case.rows[rows].tolist(),
        "x": [short(column) for column in case.X[rows].T],
        "y": [short(column) for column in case.y[rows].T],
        "owner": case.owner[rows].tolist(),
        # In thousandths: whole numbers are the shortest.
        "share": np.rint(1000 * case.shares[rows]).astype(int).T.tolist(),
    }


def _bound(case: Case) -> dict[str, Any]:
    trace = np.asarray(case.model.lower_bounds_, np.float64)
    at = np.unique(np.linspace(0, max(len(trace) - 1, 0), _TRACE).astype(int))[: len(trace)]
    return {
        "step": (at + 1).tolist(),
        "bound": short(trace[at], 6),
        "ends": [
            {
                "step": start["steps"],
                "bound": short([start["bound"]], 8)[0],
                "kept": bool(start["kept"]),
            }
            for start in case.model.restarts_
        ],
    }


def _outlier_rows(case: Case, listed: Outliers) -> dict[str, Any]:
    rows = listed.rows
    columns = [
        case.rows[rows].tolist(),
        *case.X[rows].T.tolist(),
        *case.y[rows].T.tolist(),
        case.owner[rows].tolist(),
        case.shares[rows].max(axis=1).round(4).tolist(),
    ]
    return {
        "header": ["row", *case.inputs, *case.outputs, "process", "responsibility"],
        "columns": columns,
    }
