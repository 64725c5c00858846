"""Calibration of the predictive mixture: interval coverage and PIT histogram."""

from typing import NamedTuple

import numpy as np

from dagp.core.typing import Float
from dagp.predict.mixture import Mixture

TABLE = (0.5, 0.8, 0.9, 0.95, 0.99)
"""Levels listed in the table."""
LEVELS = tuple(sorted({*np.linspace(0.05, 0.95, 19).round(2).tolist(), *TABLE}))
BINS = 20


class Calibration(NamedTuple):
    """Empirical coverage and PIT histogram of each output."""

    coverage: Float[np.ndarray, "P levels"]
    """Share of the points inside the central interval of each of `LEVELS`."""
    pit: Float[np.ndarray, "P bins"]
    """Share of the points per bin of the predictive cumulative probability."""


def calibration(mixture: Mixture, y: Float[np.ndarray, "N P"]) -> Calibration:
    """Coverage and the histogram of the probability integral transform, over all rows."""
    pit = mixture.cdf(y)
    levels = np.array(LEVELS)
    inside = np.abs(pit - 0.5)[..., None] <= levels / 2
    bins = np.minimum((pit * BINS).astype(int), BINS - 1)
    counts = [np.bincount(column, minlength=BINS) for column in bins.T]
    return Calibration(inside.mean(axis=0), np.array(counts) / len(y))


def verdict(found: Calibration, count: int, output: int) -> str:
    """The coverage of one output in words."""
    level = 0.9
    excess = found.coverage[output, LEVELS.index(level)] - level
    # Three standard deviations of sampling noise, plus a deviation too small to matter.
    tolerance = 3 * np.sqrt(level * (1 - level) / count) + 0.02
    if abs(excess) <= tolerance:
        return "well calibrated"
    return "too wide" if excess > 0 else "too narrow"
