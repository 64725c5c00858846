"""Data for the charts of the report: JSON-compatible values of bounded size."""

from typing import Any, NamedTuple

import numpy as np

from dagp.core.typing import Int
from dagp.report import slices
from dagp.report.calibration import BINS, LEVELS, Calibration
from dagp.report.case import PALETTE, Case
from dagp.report.relevance import typical_spread
from dagp.report.text import short

# Limits on what is embedded, to keep the page small.
_POINTS = 5000
_POINT_NUMBERS = 300_000
_CELLS = 60_000
_TRACE = 1000
_CHARACTERS = 1_000_000
"""Limit on the text of the assignments."""
_PARTS = 10_000
"""Responsibilities in the download of the assignments are whole multiples of 1 / _PARTS."""


class Outliers(NamedTuple):
    """Points whose most probable process is clutter (without a function)."""

    rows: Int[np.ndarray, " found"]
    """Row indices within the case, of those listed in the page."""
    total: int
    """Number of all outliers."""


def outliers(case: Case) -> Outliers:
    """Outliers in the order of the data; those of highest responsibility if there are too many."""
    found = np.flatnonzero(np.isin(case.owner, case.clutter))
    total = len(found)
    most = max(_CELLS // (len(case.inputs) + len(case.outputs) + 3), 100)
    if total > most:
        sure = case.responsibilities[found].max(axis=1)
        found = np.sort(found[np.argsort(-sure, kind="stable")[:most]])
    return Outliers(found, total)


def drawn(case: Case) -> Int[np.ndarray, " drawn"]:
    """Rows that are drawn: all, or a random sample with a fixed seed."""
    N, D = case.X.shape
    numbers = D + case.y.shape[1] + case.responsibilities.shape[1]
    most = min(_POINTS, max(_POINT_NUMBERS // numbers, 200))
    if most >= N:
        return np.arange(N)
    return np.sort(np.random.default_rng(0).choice(N, most, replace=False))


def downloaded(case: Case) -> int:
    """Number of rows in the download of the assignments: the first ones, or all."""
    digits = len(f"{_PARTS},")
    each = np.array([len(str(label)) for label in case.labels]) + digits * (
        1 + case.responsibilities.shape[1]
    )
    return int(np.searchsorted(np.cumsum(each), _CHARACTERS, side="right"))


def payload(
    case: Case, found: Calibration, cuts: list[slices.Slice], listed: Outliers
) -> dict[str, Any]:
    """The data of all charts, by name."""
    return {
        "inputs": case.inputs,
        "outputs": case.outputs,
        "processes": _processes(case),
        "points": _points(case),
        "typical": case.model.columns_.typical(slices.typical(case.X)).tolist(),
        "spread": [typical_spread(column) for column in case.X.T],
        "slices": [slices.packed(one) for one in cuts],
        "levels": list(LEVELS),
        "coverage": found.coverage.round(4).tolist(),
        "pit": found.pit.round(5).tolist(),
        "chance": (2 * np.sqrt((1 - 1 / BINS) / BINS / np.maximum(found.counts, 1))).tolist(),
        "bound": _bound(case),
        "outliers": _outlier_rows(case, listed),
        "assignments": _assignments(case),
    }


def _processes(case: Case) -> list[dict[str, Any]]:
    return [
        {
            "name": case.name(k),
            "shade": k % len(PALETTE),
            "active": bool(case.model.active_[k]),
            "clutter": k in case.clutter,
            # Index of its curves in the slices.
            "curve": case.active.index(k) if k in case.active else -1,
        }
        for k in range(case.responsibilities.shape[1])
    ]


def _points(case: Case) -> dict[str, Any]:
    rows, labels = drawn(case), case.rows
    return {
        "row": [labels[i] for i in rows],
        "x": [short(column) for column in case.X[rows].T],
        "y": [short(column) for column in case.y[rows].T],
        "owner": case.owner[rows].tolist(),
        # Responsibilities in thousandths: integers take the least space.
        "share": np.rint(1000 * case.responsibilities[rows]).astype(int).T.tolist(),
    }


def _bound(case: Case) -> dict[str, Any]:
    trace = np.asarray(case.model.lower_bounds_, np.float64)
    at = np.unique(np.linspace(0, max(len(trace) - 1, 0), _TRACE).astype(int))[: len(trace)]
    ends = [
        {"step": one["steps"], "bound": short([one["bound"]], 8)[0], "kept": bool(one["kept"])}
        for one in case.model.restarts_
    ]
    return {"step": (at + 1).tolist(), "bound": short(trace[at], 6), "ends": ends}


def _outlier_rows(case: Case, listed: Outliers) -> dict[str, Any]:
    rows, labels = listed.rows, case.rows
    columns = [
        [labels[i] for i in rows],
        *case.X[rows].T.tolist(),
        *[[None if v != v else v for v in column] for column in case.y[rows].T.tolist()],
        case.owner[rows].tolist(),
        case.largest[rows].round(4).tolist(),
    ]
    header = ["row", *case.inputs, *case.outputs, "process", "responsibility"]
    return {"header": header, "columns": columns}


def _assignments(case: Case) -> dict[str, Any]:
    """Process and responsibilities of all rows given, null for those that were left out."""
    count = downloaded(case)
    used = case.used[:count]
    known = int(used.sum())
    owner = case.owner[:known].tolist()
    shares = np.rint(_PARTS * case.responsibilities[:known]).astype(int)
    at = [int(p) if here else None for p, here in zip(np.cumsum(used) - 1, used, strict=True)]
    return {
        # Positions need not be listed.
        "row": None if case.origin == "position" else case.labels[:count],
        "owner": [None if p is None else owner[p] for p in at],
        "share": [[None if p is None else column[p] for p in at] for column in shares.T.tolist()],
        "parts": _PARTS,
    }
