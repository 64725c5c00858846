"""Simulated curves harder than the paper's data sets, with known assignments.

``separable`` marks the rows that can be assigned from y given the true functions and noise: every
other function is at least six noise standard deviations (the larger of the two) away from the
row's own. Errors at the other rows are unavoidable. Each seed draws new functions.
"""

import math

import numpy as np

from dagp.core.typing import RandomState
from dagp.datasets import curves
from dagp.datasets.curves import END, Dataset, check_common, check_whole, observe, one_input, wave

_CLUTTER_APART = 4.0
"""Distance from all curves, in noise standard deviations, from which clutter is separable."""


def crossings(
    processes: int = 2,
    crossings: int = 3,
    noise: float = 0.05,
    n: int | None = None,
    n_test: int = 1000,
    random_state: RandomState = None,
) -> Dataset:
    """Smooth curves of which every two cross a given number of times.

    The curves share a trend on [0, 10] and oscillate over about `processes` units. Crossings are
    never at a flat angle and never where another pair crosses. Every curve is equally probable.

    Parameters
    ----------
    processes : int, default=2
        Number of curves, 2 to 5.
    crossings : int, default=3
        Number of crossings of every pair.
    n : int, default=None
        Number of training rows; 200 per process if None.
    noise : float, default=0.05
    n_test : int, default=1000
    random_state : int, Generator, RandomState or None, default=None
        As in every data set of `dagp.datasets`.

    Examples
    --------
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
    rng = check_common(noise, n, n_test, random_state)
    strands = curves.braid(processes, crossings, processes / 2, rng)
    return observe(strands, noise, rng.uniform(0, END, n), rng.choice(processes, n), n_test, rng)


def heteroscedastic(
    noise: float = 0.02,
    ratio: float = 5.0,
    variation: float = 3.0,
    crossings: int = 2,
    n: int = 400,
    n_test: int = 1000,
    random_state: RandomState = None,
) -> Dataset:
    """Two curves that cross, with heteroscedastic noise of different levels.

    The Bunch also holds the noise standard deviations ``std_test`` of shape (n_test, 2).

    Parameters
    ----------
    noise : float, default=0.02
        Geometric mean of the noise standard deviation of process 0.
    ratio : float, default=5.0
        Noise of process 1 relative to that of process 0, at every input.
    variation : float, default=3.0
        Largest relative to smallest noise standard deviation over the inputs.
    crossings : int, default=2
        Number of crossings.
    n, n_test : int, default=400 and 1000
    random_state : int, Generator, RandomState or None, default=None
        As in every data set of `dagp.datasets`.

    Examples
    --------
    >>> data = heteroscedastic(random_state=0)
    >>> low, high = data.std_test.min(axis=0), data.std_test.max(axis=0)
    >>> (high / low).round(1).tolist(), (high[1] / high[0]).round(1).item()
    ([3.0, 3.0], 5.0)
    """
    check_whole("crossings", crossings, 0)
    for name, value in (("ratio", ratio), ("variation", variation)):
        if not 1 <= value < math.inf:
            raise ValueError(f"{name} must be a factor of at least 1, got {value!r}.")
    rng = check_common(noise, n, n_test, random_state)
    strands = curves.braid(2, crossings, 1.5, rng)
    phase = rng.uniform(0, 2 * np.pi)

    def std(x: np.ndarray) -> np.ndarray:
        relative = variation ** (np.sin(2 * np.pi * x / END + phase) / 2)
        return noise * relative[:, None] * [1.0, ratio]

    data = observe(strands, std, rng.uniform(0, END, n), rng.choice(2, n), n_test, rng)
    return Dataset(**data, std_test=std(data.X_test[:, 0]))


def rare(
    share: float = 0.05,
    noise: float = 0.05,
    crossings: int = 1,
    n: int = 1000,
    n_test: int = 1000,
    random_state: RandomState = None,
) -> Dataset:
    """Two curves that cross, one of which produced only a small share of the rows.

    Parameters
    ----------
    share : float, default=0.05
        Share of process 1, above 0 and at most 0.5: exactly ``round(share * n)`` rows.
    crossings : int, default=1
        Number of crossings.
    noise : float, default=0.05
    n, n_test : int, default=1000
    random_state : int, Generator, RandomState or None, default=None
        As in every data set of `dagp.datasets`.

    Examples
    --------
    >>> np.bincount(rare(random_state=0).process).tolist()
    [950, 50]
    """
    if not 0 < share <= 0.5:
        raise ValueError(f"share must be above 0 and at most 0.5, got {share!r}.")
    check_whole("crossings", crossings, 0)
    rng = check_common(noise, n, n_test, random_state)
    strands = curves.braid(2, crossings, 1.0, rng)
    x = rng.uniform(0, END, n)
    process = rng.permutation((np.arange(n) < round(share * n)).astype(int))
    return observe(strands, noise, x, process, n_test, rng)


def switch(
    noise: tuple[float, float] = (0.05, 0.2),
    jump: float = 1.0,
    n: int = 400,
    n_test: int = 1000,
    random_state: RandomState = None,
) -> Dataset:
    """One process left of a switch point in the input, another one right of it.

    The switch point, ``switch``, is drawn from the middle 60 % of the range [0, 10]; right of it,
    process 1 has a shorter length scale. Only rows within 0.1 of it are not ``separable``.

    Parameters
    ----------
    noise : tuple of float, default=(0.05, 0.2)
        Standard deviations of the noise, left and right.
    jump : float, default=1.0
        Height of the jump at the switch point, upwards or downwards.
    n, n_test : int, default=400 and 1000
    random_state : int, Generator, RandomState or None, default=None
        As in every data set of `dagp.datasets`.

    Examples
    --------
    >>> data = switch(random_state=0)
    >>> bool(np.all((data.X[:, 0] >= data.switch) == data.process))
    True
    >>> int(np.isnan(data.y_test).sum()) == len(data.y_test)
    True
    """
    if np.shape(noise) != (2,):
        raise ValueError(f"noise must be a pair, left and right of the switch, got {noise!r}.")
    if not 0 <= jump < math.inf:
        raise ValueError(f"jump must be a height of at least 0, got {jump!r}.")
    rng = check_common(noise, n, n_test, random_state)
    place = rng.uniform(0.2 * END, 0.8 * END)
    slow, fast = wave(rng), wave(rng, lowest=3)
    step = jump * rng.choice([-1, 1]) + slow(np.array([place])) - fast(np.array([place]))

    def sides(x: np.ndarray) -> np.ndarray:
        return np.stack([slow(x), fast(x) + step], axis=1)

    x = rng.uniform(0, END, n)
    process = (x >= place).astype(int)
    y = np.take_along_axis(sides(x), process[:, None], axis=1)[:, 0]
    grid = np.linspace(0, END, n_test)
    elsewhere = (grid >= place)[:, None] != [False, True]
    y += np.asarray(noise)[process] * rng.standard_normal(n)
    y_test, far = np.where(elsewhere, np.nan, sides(grid)), np.abs(x - place) > 0.01 * END
    return one_input(x, y, process, grid, y_test, separable=far, switch=place)


def trajectories(
    targets: int = 3,
    clutter: float = 0.2,
    noise: float = 0.03,
    n: int = 600,
    n_test: int = 1000,
    random_state: RandomState = None,
) -> Dataset:
    """Multi-target tracking: targets that pass each other, observed with uniform clutter.

    Targets move along a line for ten units of time at nearly constant velocity; every two pass
    each other once. Each scan, at regular intervals, observes one target or clutter. Clutter is
    process number `targets`, uniform on the range ``observed``, and ``separable`` at least four
    noise standard deviations away from every target.

    Parameters
    ----------
    targets : int, default=3
        Number of targets, 1 to 5.
    clutter : float, default=0.2
        Probability of clutter, from 0 to below 1.
    noise : float, default=0.03
    n, n_test : int, default=600 and 1000
    random_state : int, Generator, RandomState or None, default=None
        As in every data set of `dagp.datasets`.

    Examples
    --------
    >>> data = trajectories(random_state=0)
    >>> data.y_test.shape, sorted(set(data.process.tolist()))
    ((1000, 3), [0, 1, 2, 3])
    """
    check_whole("targets", targets, 1, 5)
    if not 0 <= clutter < 1:
        raise ValueError(f"clutter must be a share from 0 to below 1, got {clutter!r}.")
    rng = check_common(noise, n, n_test, random_state)
    paths = curves.passing(targets, rng)
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
    more = {
        "separable": np.where(lost, far, curves.separable(truth, std, seen)),
        "observed": (low, high),
        "feature_names": ["time"],
        "target_names": ["position"],
    }
    return one_input(time, y, np.where(lost, targets, seen), grid, paths(grid), **more)


def steps(
    jumps: int = 3,
    noise: float = 0.05,
    n: int = 200,
    n_test: int = 1000,
    random_state: RandomState = None,
) -> Dataset:
    """A step function on [-1, 1]: constant levels with jumps of about one.

    A composition of smooth functions can represent it, by warping the input first; a single
    function with one length scale cannot. The Bunch also holds the places of the ``jumps``;
    ``y_test`` has noise, ``f_test`` has none.

    Parameters
    ----------
    jumps : int, default=3
        Number of jumps.
    noise : float, default=0.05
    n, n_test : int, default=200 and 1000
    random_state : int, Generator, RandomState or None, default=None
        As in every data set of `dagp.datasets`.

    Examples
    --------
    >>> data = steps(jumps=2, random_state=0)
    >>> len(np.unique(data.f_test))
    3
    """
    check_whole("jumps", jumps, 1)
    rng = check_common(noise, n, n_test, random_state)
    width = 2 / (jumps + 1)
    places = -1 + width * (1 + np.arange(jumps) + rng.uniform(-0.3, 0.3, jumps))
    heights = rng.choice([-1, 1], jumps) * rng.uniform(0.7, 1.3, jumps)
    levels = np.concatenate([[0.0], np.cumsum(heights)])
    x, x_test = rng.uniform(-1, 1, n), rng.uniform(-1, 1, n_test)
    f, f_test = (levels[np.searchsorted(places, at)] for at in (x, x_test))
    return Dataset(
        X=x[:, None],
        y=f + noise * rng.standard_normal(n),
        process=np.zeros(n, int),
        X_test=x_test[:, None],
        y_test=f_test + noise * rng.standard_normal(n_test),
        f_test=f_test,
        jumps=places,
    )
