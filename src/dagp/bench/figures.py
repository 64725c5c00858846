"""What a repeated measurement says: a median, its spread, and how it grows with a size."""

import math
import statistics
import time
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

__all__ = ["Figure", "exponent", "repeated", "seconds", "summary"]

Figure = dict[str, Any]
"""A median with its quartiles, or a reason why there is none."""


def seconds(job: Callable[[], Any]) -> float:
    """How long it takes, in seconds.

    >>> seconds(lambda: None) < 1
    True
    """
    begin = time.perf_counter()
    job()
    return time.perf_counter() - begin


def summary(values: Sequence[float], unit: str) -> Figure:
    """Median and quartiles, and the values themselves.

    >>> summary([3.0, 1.0, 2.0], "s")
    {'unit': 's', 'median': 2.0, 'quartiles': [1.5, 2.5], 'repeats': 3, 'values': [3.0, 1.0, 2.0]}
    """
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
    """Five digits: more than any clock here is good for."""
    return float(f"{value:.5g}")


def repeated(
    job: Callable[[], Any], unit: str = "s", *, repeats: int = 5, warm_up: int = 1, scale: float = 1
) -> Figure:
    """Seconds of a job times `scale`, after it has run `warm_up` times unmeasured.

    >>> repeated(lambda: None, repeats=3)["repeats"]
    3
    """
    for _ in range(warm_up):
        job()
    return summary([scale * seconds(job) for _ in range(repeats)], unit)


def exponent(sizes: Sequence[float], values: Sequence[float]) -> Figure:
    """The power of the size that values grow with: a straight line through the logarithms.

    The standard error is that of its slope; two points lie on a line, and have none.

    >>> exponent([1, 2, 4], [3.0, 12.0, 48.0])["exponent"]
    2.0
    """
    x, y = np.log(np.asarray(sizes, float)), np.log(np.asarray(values, float))
    spread = float(np.sum((x - x.mean()) ** 2))
    if len(x) < 2 or spread == 0:
        raise ValueError(f"An exponent needs two different sizes, got {list(sizes)}.")
    slope = float(np.sum((x - x.mean()) * y)) / spread
    residual = y - y.mean() - slope * (x - x.mean())
    free = len(x) - 2
    error = math.sqrt(float(residual @ residual) / free / spread) if free else None
    return {
        "exponent": round(slope, 3),
        "standard_error": None if error is None else round(error, 3),
        "sizes": list(sizes),
    }
