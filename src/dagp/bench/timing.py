"""Timing of repeated measurements: median, quartiles, and growth exponent with problem size."""

import math
import statistics
import time
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from threadpoolctl import threadpool_limits

Summary = dict[str, Any]
"""Median with quartiles, or the reason why a measurement was skipped."""


def seconds(function: Callable[[], Any]) -> float:
    """Wall time of a call, in seconds."""
    begin = time.perf_counter()
    function()
    return time.perf_counter() - begin


def product_ms(repeats: int = 20) -> float:
    """Milliseconds of a product of two 600 × 600 matrices on one thread: how fast the machine is in
    this minute."""
    matrix = np.ones((600, 600))
    with threadpool_limits(1, user_api="blas"):
        return 1e3 * statistics.median(seconds(lambda: matrix @ matrix) for _ in range(repeats))


def summary(values: Sequence[float], unit: str) -> Summary:
    """Median, quartiles and the values."""
    shown = [_rounded(value) for value in values]
    low, high = np.quantile(values, (0.25, 0.75))
    return {
        "unit": unit,
        "median": _rounded(statistics.median(values)),
        "quartiles": [_rounded(low), _rounded(high)],
        "repeats": len(shown),
        "values": shown,
    }


def _rounded(value: float) -> float:
    """Five significant digits: more than the timings are accurate to."""
    return float(f"{value:.5g}")


def repeated(
    function: Callable[[], Any],
    unit: str = "s",
    *,
    repeats: int = 5,
    warm_up: int = 1,
    scale: float = 1,
) -> Summary:
    """Seconds of a call times `scale`, after `warm_up` unmeasured calls."""
    for _ in range(warm_up):
        function()
    return summary([scale * seconds(function) for _ in range(repeats)], unit)


def exponent(sizes: Sequence[float], values: Sequence[float]) -> Summary:
    """Growth exponent of values with size: slope of a linear fit to the logarithms.

    With its standard error, which needs more than two points.
    """
    x, y = np.log(np.asarray(sizes, float)), np.log(np.asarray(values, float))
    spread = float(np.sum((x - x.mean()) ** 2))
    if len(x) < 2 or spread == 0:
        raise ValueError(f"sizes must hold at least two different sizes, got {list(sizes)}.")
    slope = float(np.sum((x - x.mean()) * y)) / spread
    residual = y - y.mean() - slope * (x - x.mean())
    free = len(x) - 2
    error = math.sqrt(float(residual @ residual) / free / spread) if free else None
    return {
        "exponent": round(slope, 3),
        "standard_error": None if error is None else round(error, 3),
        "sizes": list(sizes),
    }
