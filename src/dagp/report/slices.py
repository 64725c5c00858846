"""The processes and the gate along one input at a time, at several values of the others."""

import itertools
from typing import Any, NamedTuple

import numpy as np

from dagp.report.case import Case
from dagp.report.text import short
from dagp.typing import Float

__all__ = ["LEVEL", "Plan", "Slice", "cut", "packed", "plan", "typical"]

LEVEL = 0.95
"""Probability inside the band of a process."""
_FINE, _COARSE = 301, 41
"""Positions along the axis: of a single input, and of each of many slices."""
_NUMBERS = 200_000
"""Most numbers that all slices together may put into a page."""
_AXES = 8
_SLIDERS = 4
_STOPS = (9, 7, 5, 3)


class Plan(NamedTuple):
    """Which slices fit into a page."""

    axes: list[int]
    """Inputs that may be put on the axis."""
    sliders: int
    """How many of the other inputs can be moved; the rest stay at a typical value."""
    stops: int
    """Values per slider."""
    grid: int


class Slice(NamedTuple):
    """Curves along one input, for every combination of the sliders' values."""

    axis: int
    grid: Float[np.ndarray, " G"]
    sliders: list[tuple[int, Float[np.ndarray, " stops"]]]
    weights: Float[np.ndarray, "combinations K G"]
    means: Float[np.ndarray, "combinations K P G"]
    lows: Float[np.ndarray, "combinations K P G"]
    highs: Float[np.ndarray, "combinations K P G"]


def plan(inputs: int, processes: int, outputs: int, relevance: Float[np.ndarray, " D"]) -> Plan:
    """The most detailed slices within the budget; inputs that matter more come first.

    >>> plan(1, 3, 1, np.ones(1))
    Plan(axes=[0], sliders=0, stops=1, grid=301)
    >>> plan(5, 2, 1, np.ones(5))
    Plan(axes=[0, 1, 2, 3, 4], sliders=4, stops=3, grid=41)
    """
    if inputs == 1:
        return Plan([0], 0, 1, _FINE)
    axes = sorted(np.argsort(-relevance, kind="stable")[:_AXES].tolist())
    slices = _NUMBERS // (processes * (1 + 3 * outputs) * _COARSE * len(axes))
    for sliders, stops in itertools.product(range(min(inputs - 1, _SLIDERS), 0, -1), _STOPS):
        if stops**sliders <= slices:
            return Plan(axes, sliders, stops, _COARSE)
    return Plan(axes, 0, 1, _COARSE)


def cut(case: Case, relevance: Float[np.ndarray, " D"]) -> list[Slice]:
    """One slice per input that may be put on the axis."""
    D, P = case.X.shape[1], case.y.shape[1]
    planned = plan(D, len(case.active), P, relevance)
    order = np.argsort(-relevance, kind="stable").tolist()
    found = []
    for axis in planned.axes:
        moved = sorted([d for d in order if d != axis][: planned.sliders])
        stops = [(d, _stops(case.X[:, d], planned.stops)) for d in moved]
        found.append(_along(case, axis, planned.grid, stops))
    return found


def typical(X: Float[np.ndarray, "N D"]) -> Float[np.ndarray, " D"]:
    """The median of every input, as a value that occurs.

    >>> typical(np.array([[0.0], [1.0], [1.0], [9.0]]))
    array([1.])
    """
    return np.quantile(X, 0.5, axis=0, method="inverted_cdf")


def _stops(column: Float[np.ndarray, " N"], count: int) -> Float[np.ndarray, " stops"]:
    """Values for a slider: all there are if they are few, quantiles otherwise."""
    distinct = np.unique(column)
    if len(distinct) <= count:
        return distinct
    # Values that occur: half a gear or 0.5 of a switch would be no place to look.
    levels = np.linspace(0.05, 0.95, count)
    return np.unique(np.quantile(column, levels, method="inverted_cdf"))


def _along(
    case: Case, axis: int, size: int, sliders: list[tuple[int, Float[np.ndarray, " stops"]]]
) -> Slice:
    low, high = case.X[:, axis].min(), case.X[:, axis].max()
    reach = 0.05 * (high - low) if case.X.shape[1] == 1 else 0.0
    grid = np.linspace(low - reach, high + reach, size)
    combinations = list(itertools.product(*[values for _, values in sliders]))
    rows = np.tile(typical(case.X), (len(combinations), size, 1))
    rows[..., axis] = grid
    for place, (column, _) in enumerate(sliders):
        rows[..., column] = np.array([c[place] for c in combinations])[:, None]
    mixture = case.model.posterior_.mixture(rows.reshape(-1, rows.shape[-1]), flat=False)
    weights = case.model.posterior_.gate(rows.reshape(-1, rows.shape[-1]))
    alone = [mixture.marginal(k) for k in case.active]
    bands = [(one.mean(), *one.interval(LEVEL)) for one in alone]
    shape = (len(combinations), size, len(case.active))
    means, lows, highs = (
        np.stack([band[i] for band in bands], axis=1).reshape(*shape, -1).transpose(0, 2, 3, 1)
        for i in range(3)
    )
    weights = weights[:, case.active].reshape(shape).transpose(0, 2, 1)
    return Slice(axis, grid, sliders, weights, means, lows, highs)


def packed(one: Slice) -> dict[str, Any]:
    """A slice for the page: flat lists of numbers, the position along the axis running fastest."""
    return {
        "axis": one.axis,
        "grid": short(one.grid),
        "sliders": [{"input": d, "stops": short(values)} for d, values in one.sliders],
        "weight": short(np.round(one.weights, 3)),
        "mean": _by_output(one.means),
        "low": _by_output(one.lows),
        "high": _by_output(one.highs),
    }


def _by_output(curves: Float[np.ndarray, "combinations K P G"]) -> list[list[float | None]]:
    return [short(curves[:, :, p]) for p in range(curves.shape[2])]
