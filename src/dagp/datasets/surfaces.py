"""Simulated surfaces over two inputs that touch without crossing, with known assignments."""

import math
from typing import Literal

import numpy as np

from dagp.core.typing import RandomState
from dagp.datasets.curves import Dataset, check_common, separable, wave

Touch = Literal["point", "curve"]


def sheets(
    touch: Touch = "point",
    noise: float = 0.05,
    n: int = 800,
    n_test: int = 1024,
    random_state: RandomState = None,
) -> Dataset:
    """Two smooth surfaces over the square [−1, 1]² that touch without crossing.

    Process 1 is the upper one. Along a curve, only smoothness favours touching over crossing.

    Parameters
    ----------
    touch : {"point", "curve"}, default="point"
        Touch in a point, or along a curve from border to border.
    n_test : int, default=1024
        Number of test inputs on a square grid: a square number.
    noise : float, default=0.05
    n : int, default=800
    random_state : int, Generator, RandomState or None, default=None
        As in every data set of `dagp.datasets`.

    Examples
    --------
    >>> data = sheets(random_state=0)
    >>> data.X.shape, data.X_test.shape
    ((800, 2), (1024, 2))
    >>> bool(np.all(data.y_test[:, 1] >= data.y_test[:, 0]))
    True
    """
    if touch not in ("point", "curve"):
        raise ValueError(f"touch must be 'point' or 'curve', got {touch!r}.")
    rng = check_common(noise, n, n_test, random_state)
    if math.isqrt(n_test) ** 2 != n_test:
        raise ValueError(f"n_test must be a square number, got {n_test}.")
    angle = rng.uniform(0, 2 * np.pi)
    turn = np.array([[np.cos(angle), -np.sin(angle)], [np.sin(angle), np.cos(angle)]])
    centre, bend = rng.uniform(-0.3, 0.3, 2), rng.choice([-1, 1]) * rng.uniform(0.2, 0.5)
    across, along = wave(rng, end=4.0), wave(rng, end=4.0)

    def functions(X: np.ndarray) -> np.ndarray:
        a, b = ((X - centre) @ turn).T
        lower = 0.5 * across(a) + 0.5 * along(b)
        if touch == "point":
            away = (a**2 + b**2) / 0.7**2
        else:
            away = (a - bend * b**2) ** 2 / 0.4**2
        # The gap saturates, so that it does not dominate the outputs far from the contact.
        return np.stack([lower, lower + 2 * (1 - np.exp(-away / 2))], axis=1)

    X = rng.uniform(-1, 1, (n, 2))
    process = rng.choice(2, n)
    truth, std = functions(X), np.full((n, 2), noise)
    side = np.linspace(-1, 1, math.isqrt(n_test))
    grid = np.stack(np.meshgrid(side, side, indexing="ij"), axis=-1).reshape(-1, 2)
    return Dataset(
        X=X,
        y=truth[np.arange(n), process] + noise * rng.standard_normal(n),
        process=process,
        separable=separable(truth, std, process),
        X_test=grid,
        y_test=functions(grid),
        feature_names=["x1", "x2"],
        target_names=["y"],
    )
