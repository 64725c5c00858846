"""Checks of what users pass: tables of states and actions, bounds, horizons, policies' actions."""

from numbers import Integral
from typing import Any, NamedTuple

import numpy as np

from dagp.core.errors import warn
from dagp.core.typing import Float

FAR = 0.1
"""Share of the range of a column by which a roll-out may leave the data without being told."""
_ROUNDING = 1e-9
"""Share of the width of bounds by which rounding may exceed them."""


def table(name: str, values: Any, columns: int | None = None) -> Float[np.ndarray, "N C"]:
    """A table of finite numbers, with so many columns if their number is known."""
    try:
        found = np.asarray(values, np.float64)
    except (TypeError, ValueError) as error:
        raise ValueError(f"{name} must be a table of numbers: {error}.") from None
    if found.ndim != 2:
        expected = "rows and columns" if columns is None else f"rows of {columns} numbers"
        raise ValueError(f"{name} must have {expected}, got an array of shape {found.shape}.")
    if columns is not None and found.shape[1] != columns:
        raise ValueError(f"{name} must have {columns} columns, got {found.shape[1]}.")
    bad = np.argwhere(~np.isfinite(found))
    if len(bad):
        row, column = bad[0]
        raise ValueError(f"{name} must be finite; row {row}, column {column} is not.")
    return found


def interval(name: str, bounds: Any, columns: int) -> tuple[np.ndarray, np.ndarray]:
    """Lower and upper bounds of every column; infinite where there are none."""
    if bounds is None:
        return np.full(columns, -np.inf), np.full(columns, np.inf)
    try:
        pairs = [(-np.inf, np.inf) if pair is None else tuple(pair) for pair in bounds]
        found = np.array(
            [[np.nan if end is None else end for end in pair] for pair in pairs], np.float64
        )
    except (TypeError, ValueError):
        found = np.zeros(0)
    if found.shape != (columns, 2):
        expected = f"a pair (low, high), or None, for each of {columns} columns"
        raise ValueError(f"{name} must hold {expected}, got {bounds!r}.")
    low = np.where(np.isnan(found[:, 0]), -np.inf, found[:, 0])
    high = np.where(np.isnan(found[:, 1]), np.inf, found[:, 1])
    if not np.all(low < high):
        column = int(np.flatnonzero(~(low < high))[0])
        raise ValueError(
            f"{name} of column {column} must have low < high, got {low[column]} and {high[column]}."
        )
    return low, high


def periods(given: Any, columns: int) -> Float[np.ndarray, " C"]:
    """Period of every column; infinite where there is none."""
    if given is None:
        return np.full(columns, np.inf)
    try:
        found = np.array([np.inf if period is None else period for period in given], np.float64)
    except (TypeError, ValueError):
        found = np.zeros(0)
    if found.shape != (columns,) or not np.all(found > 0):
        raise ValueError(
            f"periods must hold a positive number, or None, for each of {columns} columns, got "
            f"{given!r}."
        )
    return found


def nearest(differences: np.ndarray, period: np.ndarray) -> np.ndarray:
    """Differences of states, of the shorter way round where a state has a period."""
    finite = np.where(np.isinf(period), 1.0, period)
    return differences - np.where(np.isinf(period), 0.0, finite * np.round(differences / finite))


def inside(name: str, values: np.ndarray, low: np.ndarray, high: np.ndarray) -> None:
    """Raise where a row of a table exceeds bounds."""
    room = _ROUNDING * np.where(np.isfinite(high - low), high - low, 1.0)
    bad = np.argwhere((values < low - room) | (values > high + room))
    if len(bad):
        row, column = bad[0]
        raise ValueError(
            f"{name} must be within bounds; row {row}, column {column} is {values[row, column]:g}, "
            f"and the bounds are {low[column]:g} and {high[column]:g}."
        )


def whole(name: str, value: Any) -> int:
    """A whole number of at least 1."""
    if not isinstance(value, Integral) or isinstance(value, bool) or int(value) < 1:
        raise ValueError(f"{name} must be a whole number of at least 1, got {value!r}.")
    return int(value)


def actions(
    found: Float[np.ndarray, "T N A"],
    states: Float[np.ndarray, "T N S"],
    low: np.ndarray,
    high: np.ndarray,
) -> None:
    """Raise where a policy returned NaN, or an action that is not allowed."""
    bad = np.argwhere(~np.isfinite(found))
    if len(bad):
        step, path, column = bad[0]
        raise ValueError(
            f"The policy returned {found[step, path, column]} as action {column} at step {step}, "
            f"in state {_shown(states[step, path])}."
        )
    room = _ROUNDING * np.where(np.isfinite(high - low), high - low, 1.0)
    bad = np.argwhere((found < low - room) | (found > high + room))
    if len(bad):
        step, path, column = bad[0]
        raise ValueError(
            f"The policy left the allowed range at step {step}: action {column} is "
            f"{found[step, path, column]:g} in state {_shown(states[step, path])}, and its bounds "
            f"are {low[column]:g} and {high[column]:g}."
        )


class Range(NamedTuple):
    """Range of the training states and actions."""

    low: Float[np.ndarray, " D"]
    high: Float[np.ndarray, " D"]

    def beyond(self, X: Float[np.ndarray, "... D"]) -> Float[np.ndarray, "... D"]:
        """How far each value lies outside of the training data, in widths of their range."""
        width = np.where(self.high > self.low, self.high - self.low, 1.0)
        return np.maximum(np.maximum(self.low - X, X - self.high), 0.0) / width


def tell_outside(
    beyond: Float[np.ndarray, "T N D"], n_states: int, warned: bool = True
) -> Float[np.ndarray, "T N"]:
    """How far every step lies outside of the data; warns where that is far."""
    furthest = beyond.max(axis=2, initial=0.0)
    left = furthest.max(axis=0, initial=0.0) > FAR
    if warned and np.any(left):
        step, path, column = np.unravel_index(np.argmax(beyond), beyond.shape)
        what = f"state {column}" if column < n_states else f"action {column - n_states}"
        warn(
            f"{np.mean(left):.0%} of the trajectories leave the training data by more than "
            f"{FAR:.0%} of their range; the furthest by {beyond[step, path, column]:.2g} ranges, "
            f"in {what} at step {step}. The model knows little there."
        )
    return furthest


def _shown(state: np.ndarray) -> str:
    return "(" + ", ".join(f"{value:g}" for value in state) + ")"
