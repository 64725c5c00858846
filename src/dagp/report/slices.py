"""One-dimensional slices of the processes and the gate, at several values of the other inputs."""

import itertools
from typing import Any, NamedTuple

import numpy as np

from dagp.core.typing import Float
from dagp.report.case import Case
from dagp.report.text import short

LEVEL = 0.95
"""Probability inside the predictive band of a process."""
_FINE, _COARSE = 301, 41
"""Grid points along the axis: with a single input, and for each of many slices."""
_NUMBERS = 200_000
"""Limit on the numbers of all slices together, for the size of the page."""
_AXES = 8
_SLIDERS = 4
_STOPS = (9, 7, 5, 3)


class Plan(NamedTuple):
    """Which slices are computed."""

    axes: list[int]
    """Inputs that can be chosen for the axis."""
    sliders: int
    """Number of other inputs with a slider; the rest stay at their median."""
    stops: int
    """Values per slider."""
    grid: int


class Slice(NamedTuple):
    """Curves along one input, for every combination of slider values."""

    axis: int
    grid: Float[np.ndarray, " G"]
    sliders: list[tuple[int, Float[np.ndarray, " stops"]]]
    weights: Float[np.ndarray, "combinations K G"]
    """Gate weights of all processes; the rest is of those in use."""
    means: Float[np.ndarray, "combinations U P G"]
    lows: Float[np.ndarray, "combinations U P G"]
    highs: Float[np.ndarray, "combinations U P G"]


def plan(inputs: int, numbers: int, relevance: Float[np.ndarray, " D"]) -> Plan:
    """The most detailed slices within the budget; more relevant inputs come first.

    `numbers` is how many are needed at each position.
    """
    if inputs == 1:
        return Plan([0], 0, 1, _FINE)
    axes = sorted(np.argsort(-relevance, kind="stable")[:_AXES].tolist())
    slices = _NUMBERS // (numbers * _COARSE * len(axes))
    for sliders, stops in itertools.product(range(min(inputs - 1, _SLIDERS), 0, -1), _STOPS):
        if stops**sliders <= slices:
            return Plan(axes, sliders, stops, _COARSE)
    return Plan(axes, 0, 1, _COARSE)


def cut(case: Case, relevance: Float[np.ndarray, " D"]) -> list[Slice]:
    """One slice per input that can be chosen for the axis."""
    D, P = case.X.shape[1], case.y.shape[1]
    planned = plan(D, len(case.model.processes_) + 3 * P * len(case.active), relevance)
    order = np.argsort(-relevance, kind="stable").tolist()
    found = []
    for axis in planned.axes:
        moved = sorted([d for d in order if d != axis][: planned.sliders])
        stops = [(d, _stops(case.X[:, d], planned.stops)) for d in moved]
        found.append(_along(case, axis, planned.grid, stops))
    return found


def typical(X: Float[np.ndarray, "N D"]) -> Float[np.ndarray, " D"]:
    """The median of every input, as a value that occurs in the data.

    >>> typical(np.array([[0.0], [1.0], [1.0], [9.0]]))
    array([1.])
    """
    return np.quantile(X, 0.5, axis=0, method="inverted_cdf")


def _stops(column: Float[np.ndarray, " N"], count: int) -> Float[np.ndarray, " stops"]:
    """Values of a slider: all distinct ones if few, quantiles otherwise."""
    distinct = np.unique(column)
    if len(distinct) <= count:
        return distinct
    # Values that occur in the data: an input may be discrete, such as a gear or a switch.
    levels = np.linspace(0.05, 0.95, count)
    return np.unique(np.quantile(column, levels, method="inverted_cdf"))


def _along(
    case: Case, axis: int, size: int, sliders: list[tuple[int, Float[np.ndarray, " stops"]]]
) -> Slice:
    low, high = case.X[:, axis].min(), case.X[:, axis].max()
    reach = 0.05 * (high - low) if case.X.shape[1] == 1 else 0.0
    grid = np.linspace(low - reach, high + reach, size)
    combinations = list(itertools.product(*[values for _, values in sliders]))
    middle = case.model.columns_.typical(typical(case.X))
    rows = np.tile(middle, (len(combinations), size, 1))
    rows[..., axis] = grid
    for i, (column, _) in enumerate(sliders):
        rows[..., column] = np.array([c[i] for c in combinations])[:, None]
    rows = rows.reshape(-1, rows.shape[-1])
    posterior = case.model.posterior_
    mixture, weights = posterior.mixture(rows, flat=False), posterior.gate(rows)
    alone = [mixture.marginal(k) for k in case.active]
    bands = [(one.mean(), *one.interval(LEVEL)) for one in alone]
    shape = (len(combinations), size, len(case.active))
    means, lows, highs = (
        np.stack([band[i] for band in bands], axis=1).reshape(*shape, -1).transpose(0, 2, 3, 1)
        for i in range(3)
    )
    weights = weights.reshape(*shape[:2], -1).transpose(0, 2, 1)
    return Slice(axis, grid, sliders, weights, means, lows, highs)


def packed(one: Slice) -> dict[str, Any]:
    """A slice as flat lists of numbers, with the position along the axis varying fastest."""
    bands = {"mean": one.means, "low": one.lows, "high": one.highs}
    return {
        "axis": one.axis,
        "grid": short(one.grid),
        "sliders": [{"input": d, "stops": short(values)} for d, values in one.sliders],
        "weight": short(np.round(one.weights, 3)),
        **{name: [short(c) for c in np.moveaxis(band, 2, 0)] for name, band in bands.items()},
    }
