"""Calibration of the predictive mixture: interval coverage and PIT histogram."""

from typing import NamedTuple

import numpy as np

from dagp.core.typing import Float, Int
from dagp.predict.mixture import Mixture

TABLE = (0.5, 0.8, 0.9, 0.95, 0.99)
"""Levels listed in the table."""
LEVELS = tuple(sorted({*np.linspace(0.05, 0.95, 19).round(2).tolist(), *TABLE}))
BINS = 20
_DEVIATIONS = 2.5
"""Standard deviations of sampling noise that are put down to chance. Calibrated predictions exceed
them and `_NEGLIGIBLE` at some level in 3 % of data sets of 100 values, and hardly ever in 1000."""
_NEGLIGIBLE = 0.02
"""A difference of coverage too small to matter."""
_CLOSE = 0.05
"""Largest difference of coverage that counts as right whatever the number of values."""


class Calibration(NamedTuple):
    """Empirical coverage and PIT histogram of each output, over the values that are there."""

    coverage: Float[np.ndarray, "P levels"]
    """Share of the values inside the central interval of each of `LEVELS`."""
    pit: Float[np.ndarray, "P bins"]
    """Share of the values per bin of the predictive cumulative probability."""
    counts: Int[np.ndarray, " P"]
    """Number of values."""


class Verdict(NamedTuple):
    """Whether the intervals of an output are as wide as they should be, at all levels."""

    wide: int | None
    """Index of the level at which intervals hold too many values by most; None if at none."""
    narrow: int | None
    """The same for too few."""
    worst: int
    """Index of the level of largest difference."""
    close: bool
    """Whether that is small; otherwise, if neither too wide nor too narrow, values are few."""


def calibration(mixture: Mixture, y: Float[np.ndarray, "N P"]) -> Calibration:
    """Coverage and the histogram of the probability integral transform, over all rows."""
    columns = [column[~np.isnan(column)] for column in mixture.cdf(y).T]
    levels = np.array(LEVELS)
    coverage, histograms = [], []
    for column in columns:
        inside = np.abs(column - 0.5)[:, None] <= levels / 2
        bins = np.minimum((column * BINS).astype(int), BINS - 1)
        count = max(len(column), 1)
        coverage.append(inside.sum(axis=0) / count)
        histograms.append(np.bincount(bins, minlength=BINS) / count)
    counts = np.array([len(column) for column in columns])
    return Calibration(np.array(coverage), np.array(histograms), counts)


def verdict(found: Calibration, output: int) -> Verdict:
    """Compare the coverage of one output with every level.

    A difference counts if it exceeds `_DEVIATIONS` standard deviations of the coverage of as many
    values, and `_NEGLIGIBLE` besides.
    """
    levels, count = np.array(LEVELS), max(int(found.counts[output]), 1)
    allowed = _DEVIATIONS * np.sqrt(levels * (1 - levels) / count) + _NEGLIGIBLE
    difference = found.coverage[output] - levels
    excess = difference / allowed
    wide, narrow = int(excess.argmax()), int(excess.argmin())
    worst = int(np.abs(difference).argmax())
    return Verdict(
        wide if excess[wide] > 1 else None,
        narrow if excess[narrow] < -1 else None,
        worst,
        bool(abs(difference[worst]) <= _CLOSE),
    )


def words(found: Calibration, output: int) -> str:
    """The verdict in words, with the figures of the worst level."""
    judged = verdict(found, output)
    parts = [
        f"too {word} ({_figures(found, output, level)})"
        for word, level in (("wide", judged.wide), ("narrow", judged.narrow))
        if level is not None
    ]
    if parts:
        return " and ".join(parts)
    right = "as wide as they should be"
    if not judged.close:
        right += f" as far as {found.counts[output]} values can tell"
    return f"{right} (largest difference: {_figures(found, output, judged.worst)})"


def _figures(found: Calibration, output: int, level: int) -> str:
    inside = 100 * found.coverage[output, level]
    return f"{100 * LEVELS[level]:.0f} % intervals hold {inside:.1f} % of the values"
