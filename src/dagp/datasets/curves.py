"""Random smooth curves that cross as often as asked, clearly enough to be told apart."""

import itertools
from collections.abc import Callable

import numpy as np

__all__ = ["END", "Function", "braid", "passing", "wave"]

Function = Callable[[np.ndarray], np.ndarray]
"""Of inputs (N,): one function gives (N,), several together (N, K)."""

END = 10.0
"""One-dimensional inputs live on [0, 10]."""


def wave(rng: np.random.RandomState, lowest: int = 1, end: float = END) -> Function:
    """A smooth random function of three waves, the longest of `end` / `lowest`; mean square 1."""
    frequency = lowest + np.arange(3)
    size = rng.standard_normal(3) / frequency**2
    size *= np.sqrt(2 / np.sum(size**2))
    phase = rng.uniform(0, 2 * np.pi, 3)
    return lambda x: np.sin(2 * np.pi * frequency * x[:, None] / end + phase) @ size


def braid(processes: int, crossings: int, amplitude: float, rng: np.random.RandomState) -> Function:
    """Curves of which every two cross `crossings` times, drawn until they clearly do."""
    # The gap between neighbours is a sine of about this height, turning at no less than 0.6 of the
    # mean speed; the waves of the curves' own must not take away much of its slope.
    height = 2 * amplitude * np.sin(np.pi / processes)
    steepness = 0.35 * height * crossings * np.pi / END
    while True:
        curves = _strands(processes, crossings, amplitude, rng)
        if _cross_clearly(curves, crossings, steepness, 0.5):
            return curves


def _strands(
    processes: int, crossings: int, amplitude: float, rng: np.random.RandomState
) -> Function:
    """One curve in `processes` phases of the same turning, so that the difference of two turns too.

    Over the range the phase grows by π per crossing, and a sinusoid has one zero in every π. It
    grows at uneven speed, and every curve has a size and a small wave of its own.
    """
    warp = rng.uniform(0, 2 * np.pi)
    if crossings:
        spread = np.arange(processes) + rng.uniform(-0.15, 0.15, processes)
        phase = 2 * np.pi * (spread / processes + rng.uniform())
    else:
        phase = np.arccos(np.linspace(1, -1, processes))
    phase = rng.permutation(phase)
    size = rng.uniform(0.85, 1.15, processes)
    trend, own = wave(rng), [wave(rng) for _ in range(processes)]

    def curves(x: np.ndarray) -> np.ndarray:
        t = 2 * np.pi * x / END
        turned = crossings / 2 * (t + 0.4 * np.sin(t + warp))
        wound = size * np.cos(turned[:, None] + phase)
        wobble = 0.1 * np.stack([single(x) for single in own], axis=1)
        return 0.5 * trend(x)[:, None] + amplitude * (wound + wobble)

    return curves


def passing(targets: int, rng: np.random.RandomState) -> Function:
    """Paths of which every two cross once, drawn until they clearly do."""
    while True:
        paths = _paths(targets, rng)
        if _cross_clearly(paths, 1, 0.3, 1.0):
            return paths


def _paths(targets: int, rng: np.random.RandomState) -> Function:
    """Nearly straight lines; the order at the end is that at the start, reversed."""
    # One target in every two units of the line, with some distance to the next.
    start, end = 2 * (np.arange(targets) + rng.uniform(0.1, 0.9, (2, targets))) - targets
    order = rng.permutation(targets)
    start, velocity = start[order], (end[::-1] - start)[order] / END
    manoeuvres = [wave(rng) for _ in range(targets)]

    def paths(x: np.ndarray) -> np.ndarray:
        moved = np.stack([single(x) for single in manoeuvres], axis=1)
        return start + velocity * x[:, None] + 0.2 * moved

    return paths


def _cross_clearly(curves: Function, crossings: int, steepness: float, apart: float) -> bool:
    """Whether every pair crosses that often, steeply, inside the range and away from other pairs.

    Without a crossing, no pair comes closer than a tenth of the largest gap.
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
    # Both margins shrink with the number of crossings such that a fair part of the draws passes:
    # the closest two of many random places are about the range over their squared number apart.
    margin = 0.3 / values.shape[1] * END / crossings
    inside = margin < min(places) and max(places) < END - margin
    closest = np.diff(np.sort(places)).min(initial=np.inf)
    return bool(inside and closest > apart * END / len(places) ** 2)
