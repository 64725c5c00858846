"""Data sets harder than the paper's, with the truth about every point.

Beside ``X``, ``y`` and ``process`` every ``Bunch`` holds ``separable``: could somebody who knows
the functions and the noise tell from y which process produced the row? At such rows every other
function is at least six noise standard deviations (of the noisier of both) away from the row's own.
A method cannot be blamed for the others. The test set holds the noise-free functions on a regular
grid, (n_test, K), NaN where a process does not live. Functions are drawn anew for every seed.
"""

import math
import numbers
from typing import Literal

import numpy as np
from sklearn.utils import Bunch

from dagp.datasets.curves import END, Function, braid, passing, wave
from dagp.seeds import random_source
from dagp.typing import RandomState

__all__ = ["crossings", "heteroscedastic", "rare", "sheets", "switch", "trajectories"]

Touch = Literal["point", "curve"]

_CURVES_APART, _CLUTTER_APART = 6.0, 4.0
"""How many noise standard deviations tell a curve from another, and clutter from a curve."""


def crossings(
    processes: int = 2,
    crossings: int = 3,
    noise: float = 0.05,
    n: int | None = None,
    n_test: int = 1000,
    random_state: RandomState = None,
) -> Bunch:
    """Smooth curves of which every two cross a given number of times.

    Two to five `processes` share a trend and wind around each other on [0, 10], up and down over
    about `processes` units. Every pair crosses exactly `crossings` times, never at a flat angle and
    never where another pair does. Each row comes from any of the curves with equal probability.
    `n` rows, 200 per process unless stated.

    >>> data = crossings(processes=3, crossings=1, random_state=0)
    >>> data.X.shape, data.y_test.shape
    ((600, 1), (1000, 3))
    >>> gap = data.y_test[:, 0] - data.y_test[:, 2]
    >>> int(np.sum(np.diff(np.sign(gap)) != 0))
    1
    """
    check_whole("processes", processes, 2, 5)
    check_whole("crossings", crossings, 0)
    n = 200 * processes if n is None else n
    check_sizes(n, n_test)
    check_noise(noise)
    rng = random_source(random_state)
    curves = braid(processes, crossings, processes / 2, rng)
    x = rng.uniform(0, END, n)
    process = rng.choice(processes, n)
    return _observe(curves, lambda x: np.full((len(x), processes), noise), x, process, n_test, rng)


def heteroscedastic(
    noise: float = 0.02,
    ratio: float = 5.0,
    variation: float = 3.0,
    crossings: int = 2,
    n: int = 400,
    n_test: int = 1000,
    random_state: RandomState = None,
) -> Bunch:
    """A quiet and a loud curve that cross, with noise that depends on the input.

    The noise of the loud curve (``process == 1``) is everywhere `ratio` times that of the quiet
    one, whose standard deviation swells and shrinks over the range by a factor `variation`, with
    geometric mean `noise`. The test set has the standard deviations in ``std_test``, (n_test, 2).

    >>> data = heteroscedastic(random_state=0)
    >>> low, high = data.std_test.min(axis=0), data.std_test.max(axis=0)
    >>> (high / low).round(1).tolist(), (high[1] / high[0]).round(1).item()
    ([3.0, 3.0], 5.0)
    """
    check_whole("crossings", crossings, 0)
    check_sizes(n, n_test)
    check_noise(noise)
    for name, value in (("ratio", ratio), ("variation", variation)):
        if not 1 <= value < math.inf:
            raise ValueError(f"{name} is a factor of at least 1, got {value!r}.")
    rng = random_source(random_state)
    curves = braid(2, crossings, 1.5, rng)
    phase = rng.uniform(0, 2 * np.pi)

    def std(x: np.ndarray) -> np.ndarray:
        swell = variation ** (np.sin(2 * np.pi * x / END + phase) / 2)
        return noise * swell[:, None] * [1.0, ratio]

    x = rng.uniform(0, END, n)
    data = _observe(curves, std, x, rng.choice(2, n), n_test, rng)
    return Bunch(**data, std_test=std(data.X_test[:, 0]))


def rare(
    share: float = 0.05,
    noise: float = 0.05,
    crossings: int = 1,
    n: int = 1000,
    n_test: int = 1000,
    random_state: RandomState = None,
) -> Bunch:
    """Two curves that cross, one of which produced only a small share of the rows.

    ``process == 1`` for exactly ``round(share * n)`` of the `n` rows.

    >>> np.bincount(rare(random_state=0).process).tolist()
    [950, 50]
    """
    if not 0 < share <= 0.5:
        raise ValueError(f"share is above 0 and at most 0.5, got {share!r}.")
    check_whole("crossings", crossings, 0)
    check_sizes(n, n_test)
    check_noise(noise)
    rng = random_source(random_state)
    curves = braid(2, crossings, 1.0, rng)
    x = rng.uniform(0, END, n)
    process = rng.permutation((np.arange(n) < round(share * n)).astype(int))
    return _observe(curves, lambda x: np.full((len(x), 2), noise), x, process, n_test, rng)


def switch(
    noise: tuple[float, float] = (0.05, 0.2),
    jump: float = 1.0,
    n: int = 400,
    n_test: int = 1000,
    random_state: RandomState = None,
) -> Bunch:
    """One process left of a place in the input, another one right of it.

    The place, kept in ``switch``, is somewhere in the middle 60 % of the range [0, 10]. The right
    process moves faster, has noise of its own and begins `jump` above or below where the left one
    ends. ``process`` is the side, 0 for left. As only one process lives anywhere, all rows are
    ``separable`` but those within 1 % of the range around the switch. In ``y_test`` each function
    is NaN on the other side.

    >>> data = switch(random_state=0)
    >>> bool(np.all((data.X[:, 0] >= data.switch) == data.process))
    True
    >>> int(np.isnan(data.y_test).sum()) == len(data.y_test)
    True
    """
    if np.shape(noise) != (2,):
        raise ValueError(f"noise is a pair, left and right of the switch, got {noise!r}.")
    for side in noise:
        check_noise(side)
    if not 0 <= jump < math.inf:
        raise ValueError(f"jump is a height of at least 0, got {jump!r}.")
    check_sizes(n, n_test)
    rng = random_source(random_state)
    place = rng.uniform(0.2 * END, 0.8 * END)
    slow, fast = wave(rng), wave(rng, lowest=3)
    step = jump * rng.choice([-1, 1]) + slow(np.array([place])) - fast(np.array([place]))

    def sides(x: np.ndarray) -> np.ndarray:
        return np.stack([slow(x), fast(x) + step], axis=1)

    x = rng.uniform(0, END, n)
    process = (x >= place).astype(int)
    y = np.take_along_axis(sides(x), process[:, None], axis=1)[:, 0]
    grid = np.linspace(0, END, n_test)
    elsewhere = (grid >= place)[:, None] != np.array([False, True])
    return Bunch(
        X=x[:, None],
        y=y + np.asarray(noise)[process] * rng.standard_normal(n),
        process=process,
        separable=np.abs(x - place) > 0.01 * END,
        switch=place,
        X_test=grid[:, None],
        y_test=np.where(elsewhere, np.nan, sides(grid)),
        feature_names=["x"],
        target_names=["y"],
    )


def sheets(
    touch: Touch = "point",
    noise: float = 0.05,
    n: int = 800,
    n_test: int = 1024,
    random_state: RandomState = None,
) -> Bunch:
    """Two smooth sheets over a square that touch without crossing.

    Inputs fill [−1, 1]². The upper sheet (``process == 1``) comes down to the lower one in a point,
    or along a bent line from border to border. Along a line, sheets that cross there fit the rows
    almost as well: only smoothness speaks for touching. The test set is a square grid, so `n_test`
    must be a square number.

    >>> data = sheets(random_state=0)
    >>> data.X.shape, data.X_test.shape
    ((800, 2), (1024, 2))
    >>> bool(np.all(data.y_test[:, 1] >= data.y_test[:, 0]))
    True
    """
    if touch not in ("point", "curve"):
        raise ValueError(f"touch must be 'point' or 'curve', got {touch!r}.")
    check_sizes(n, n_test)
    if math.isqrt(n_test) ** 2 != n_test:
        raise ValueError(f"n_test must be a square number, got {n_test}.")
    check_noise(noise)
    rng = random_source(random_state)
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
        # The gap levels off, so that what is far away does not dwarf the place where they touch.
        return np.stack([lower, lower + 2 * (1 - np.exp(-away / 2))], axis=1)

    X = rng.uniform(-1, 1, (n, 2))
    process = rng.choice(2, n)
    truth, std = functions(X), np.full((n, 2), noise)
    side = np.linspace(-1, 1, math.isqrt(n_test))
    grid = np.stack(np.meshgrid(side, side, indexing="ij"), axis=-1).reshape(-1, 2)
    return Bunch(
        X=X,
        y=truth[np.arange(n), process] + noise * rng.standard_normal(n),
        process=process,
        separable=_separable(truth, std, process),
        X_test=grid,
        y_test=functions(grid),
        feature_names=["x1", "x2"],
        target_names=["y"],
    )


def trajectories(
    targets: int = 3,
    clutter: float = 0.2,
    noise: float = 0.03,
    n: int = 600,
    n_test: int = 1000,
    random_state: RandomState = None,
) -> Bunch:
    """Targets that move past each other, watched by a sensor that also reports clutter.

    One to five `targets` move along a line for ten units of time, at nearly constant velocity with
    gentle manoeuvres; every two pass each other once. Each of `n` scans, in regular intervals, sees
    one of the targets or, with probability `clutter`, something anywhere in the ``observed`` range.
    In ``process`` clutter has the number `targets`; such a row is ``separable`` at least four noise
    standard deviations away from every target. ``y_test`` has a column per target.

    >>> data = trajectories(random_state=0)
    >>> data.y_test.shape, sorted(set(data.process.tolist()))
    ((1000, 3), [0, 1, 2, 3])
    """
    check_whole("targets", targets, 1, 5)
    if not 0 <= clutter < 1:
        raise ValueError(f"clutter is a share from 0 to below 1, got {clutter!r}.")
    check_sizes(n, n_test)
    check_noise(noise)
    rng = random_source(random_state)
    paths = passing(targets, rng)
    everywhere = paths(np.linspace(0, END, 1000))
    margin = 0.1 * np.ptp(everywhere)
    low, high = everywhere.min() - margin, everywhere.max() + margin

    time = rng.permutation(np.linspace(0, END, n))
    seen, lost = rng.choice(targets, n), rng.uniform(size=n) < clutter
    truth, std = paths(time), np.full((n, targets), noise)
    y = truth[np.arange(n), seen] + noise * rng.standard_normal(n)
    y = np.where(lost, rng.uniform(low, high, n), y)
    far = np.all(np.abs(y[:, None] - truth) >= _CLUTTER_APART * std, axis=1)
    grid = np.linspace(0, END, n_test)
    return Bunch(
        X=time[:, None],
        y=y,
        process=np.where(lost, targets, seen),
        separable=np.where(lost, far, _separable(truth, std, seen)),
        observed=(low, high),
        X_test=grid[:, None],
        y_test=paths(grid),
        feature_names=["time"],
        target_names=["position"],
    )


def _observe(
    curves: Function,
    std: Function,
    x: np.ndarray,
    process: np.ndarray,
    n_test: int,
    rng: np.random.RandomState,
) -> Bunch:
    """Noisy values of the curves at x, each of the curve that `process` says."""
    truth, row = curves(x), np.arange(len(x))
    grid = np.linspace(0, END, n_test)
    return Bunch(
        X=x[:, None],
        y=truth[row, process] + std(x)[row, process] * rng.standard_normal(len(x)),
        process=process,
        separable=_separable(truth, std(x), process),
        X_test=grid[:, None],
        y_test=curves(grid),
        feature_names=["x"],
        target_names=["y"],
    )


def _separable(truth: np.ndarray, std: np.ndarray, process: np.ndarray) -> np.ndarray:
    """Whether all other curves are far enough from each row's own, given (N, K) of both."""
    own = process[:, None]
    gap = np.abs(truth - np.take_along_axis(truth, own, axis=1))
    noisier = np.maximum(std, np.take_along_axis(std, own, axis=1))
    itself = own == np.arange(truth.shape[1])
    return np.all(itself | (gap >= _CURVES_APART * noisier), axis=1)


def check_whole(name: str, value: int, low: int, high: int | None = None) -> None:
    """Raise unless value is a whole number in that range."""
    if not isinstance(value, numbers.Integral) or value < low or (high and value > high):
        span = f"of at least {low}" if high is None else f"from {low} to {high}"
        raise ValueError(f"{name} is a whole number {span}, got {value!r}.")


def check_sizes(n: int, n_test: int) -> None:
    """Raise unless there is something to draw."""
    check_whole("n", n, 1)
    check_whole("n_test", n_test, 1)


def check_noise(noise: float) -> None:
    """Raise unless noise can be a standard deviation."""
    if not 0 <= noise < math.inf:
        raise ValueError(f"noise is a standard deviation of at least 0, got {noise!r}.")
