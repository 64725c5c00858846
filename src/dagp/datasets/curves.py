"""Random smooth curves, noisy observations of them, and checks of the common arguments."""

import itertools
import math
import numbers
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

import numpy as np
from sklearn.utils import Bunch

from dagp.core.random import as_random_state
from dagp.core.typing import RandomState

Array = np.ndarray
Function = Callable[[Array], Array]
"""Maps inputs (N,) to (N,), or to (N, K) for K curves together."""

if TYPE_CHECKING:

    class Dataset(Bunch):
        """A Bunch with the entries that every data set has, for type checkers."""

        X: Array
        y: Array
        process: Array
        X_test: Array
        y_test: Array
        feature_names: list[str]
        target_names: list[str]

        def __getattr__(self, key: str) -> Any: ...
else:
    Dataset = Bunch

END = 10.0
"""One-dimensional inputs are in [0, 10]."""
_APART = 6.0
"""Distance between curves, in noise standard deviations, from which rows are separable."""


def check_whole(name: str, value: int, low: int, high: int | None = None) -> None:
    """Raise unless value is a whole number in that range."""
    if not isinstance(value, numbers.Integral) or value < low or (high and value > high):
        span = f"of at least {low}" if high is None else f"from {low} to {high}"
        raise ValueError(f"{name} must be a whole number {span}, got {value!r}.")


def check_common(
    noise: float | Iterable[float], n: int, n_test: int, random_state: RandomState
) -> np.random.RandomState:
    """Check the arguments that all data sets have; returns the random generator."""
    for std in noise if isinstance(noise, Iterable) else (noise,):
        if not 0 <= std < math.inf:
            raise ValueError(f"noise must be a standard deviation of at least 0, got {std!r}.")
    check_whole("n", n, 1)
    check_whole("n_test", n_test, 1)
    return as_random_state(random_state)


def wave(rng: np.random.RandomState, lowest: int = 1, end: float = END) -> Function:
    """A random sum of three sines, the longest of period `end` / `lowest`; mean square 1."""
    frequency = lowest + np.arange(3)
    size = rng.standard_normal(3) / frequency**2
    size *= np.sqrt(2 / np.sum(size**2))
    phase = rng.uniform(0, 2 * np.pi, 3)
    return lambda x: np.sin(2 * np.pi * frequency * x[:, None] / end + phase) @ size


def braid(processes: int, crossings: int, amplitude: float, rng: np.random.RandomState) -> Function:
    """Curves of which every two cross `crossings` times, by rejection sampling."""
    # The gap between neighbours is a sine of about this height, with at least 0.6 of its mean
    # angular speed; the individual waves of the curves must not reduce its slope much.
    height = 2 * amplitude * np.sin(np.pi / processes)
    steepness = 0.35 * height * crossings * np.pi / END
    draws = (_strands(processes, crossings, amplitude, rng) for _ in itertools.count())
    return next(curves for curves in draws if _cross_clearly(curves, crossings, steepness, 0.5))


def _strands(
    processes: int, crossings: int, amplitude: float, rng: np.random.RandomState
) -> Function:
    """Cosines of a common angle with different phases, so that differences are sinusoids too."""
    # Over the range the angle grows, at varying speed, by π per crossing: one zero in every π.
    warp = rng.uniform(0, 2 * np.pi)
    if crossings:
        spread = np.arange(processes) + rng.uniform(-0.15, 0.15, processes)
        phase = 2 * np.pi * (spread / processes + rng.uniform())
    else:
        phase = np.arccos(np.linspace(1, -1, processes))
    phase = rng.permutation(phase)
    size = rng.uniform(0.85, 1.15, processes)
    trend, own = wave(rng), [wave(rng) for _ in range(processes)]

    def curves(x: Array) -> Array:
        t = 2 * np.pi * x / END
        angle = crossings / 2 * (t + 0.4 * np.sin(t + warp))
        cosines = size * np.cos(angle[:, None] + phase)
        waves = 0.1 * np.stack([single(x) for single in own], axis=1)
        return 0.5 * trend(x)[:, None] + amplitude * (cosines + waves)

    return curves


def passing(targets: int, rng: np.random.RandomState) -> Function:
    """Paths of which every two cross once, by rejection sampling."""
    draws = (_paths(targets, rng) for _ in itertools.count())
    return next(paths for paths in draws if _cross_clearly(paths, 1, 0.3, 1.0))


def _paths(targets: int, rng: np.random.RandomState) -> Function:
    """Nearly straight lines; their order at the end is the reverse of that at the start."""
    # One target per two units of the line, with some distance to the next.
    start, end = 2 * (np.arange(targets) + rng.uniform(0.1, 0.9, (2, targets))) - targets
    order = rng.permutation(targets)
    start, velocity = start[order], (end[::-1] - start)[order] / END
    manoeuvres = [wave(rng) for _ in range(targets)]

    def paths(x: Array) -> Array:
        moved = np.stack([single(x) for single in manoeuvres], axis=1)
        return start + velocity * x[:, None] + 0.2 * moved

    return paths


def _cross_clearly(curves: Function, crossings: int, steepness: float, apart: float) -> bool:
    """Whether every pair crosses that often, steeply, inside the range and away from other pairs.

    Without crossings, no pair may come closer than a tenth of the largest gap.
    """
    grid = np.linspace(0, END, 200 * (crossings + 1) + 1)
    values = curves(grid)
    places = []
    for j, k in itertools.combinations(range(values.shape[1]), 2):
        gap = values[:, j] - values[:, k]
        before = np.flatnonzero(np.diff(np.sign(gap)) != 0)
        slope = (gap[before + 1] - gap[before]) / grid[1]
        if len(before) != crossings or np.any(np.abs(slope) < steepness):
            return False
        if not crossings and np.abs(gap).min() < 0.1 * np.ptp(values, axis=1).max():
            return False
        places.extend(grid[before] - gap[before] / slope)
    if not places:
        return True
    # Both margins shrink with the number of crossings, so that enough draws are accepted: the
    # closest two of n random places are about the range / n² apart.
    margin = 0.3 / values.shape[1] * END / crossings
    inside = margin < min(places) and max(places) < END - margin
    closest = np.diff(np.sort(places)).min(initial=np.inf)
    return bool(inside and closest > apart * END / len(places) ** 2)


def observe(
    curves: Function,
    std: Function | float,
    x: Array,
    process: Array,
    n_test: int,
    rng: np.random.RandomState,
) -> Dataset:
    """Noisy values of the curves at x, each row from the curve that `process` gives."""
    truth, row = curves(x), np.arange(len(x))
    grid = np.linspace(0, END, n_test)
    spread = std(x) if callable(std) else np.full(truth.shape, std)
    y = truth[row, process] + spread[row, process] * rng.standard_normal(len(x))
    clear = separable(truth, spread, process)
    return one_input(x, y, process, grid, curves(grid), separable=clear)


def one_input(
    x: Array, y: Array, process: Array, grid: Array, y_test: Array, **more: Any
) -> Dataset:
    """A data set with one input, tested on a grid."""
    names = {"feature_names": ["x"], "target_names": ["y"]} | more
    return Dataset(X=x[:, None], y=y, process=process, X_test=grid[:, None], y_test=y_test, **names)


def separable(truth: Array, std: Array, process: Array) -> Array:
    """Whether every other curve is far enough from each row's own; both arrays are (N, K)."""
    own = process[:, None]
    gap = np.abs(truth - np.take_along_axis(truth, own, axis=1))
    noisier = np.maximum(std, np.take_along_axis(std, own, axis=1))
    itself = own == np.arange(truth.shape[1])
    return np.all(itself | (gap >= _APART * noisier), axis=1)
