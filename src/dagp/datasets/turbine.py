"""A simulated year of a wind turbine: power over wind speed, with faults, and known assignments."""

import numpy as np
from scipy.special import ndtr

from dagp.core.typing import RandomState
from dagp.datasets.curves import Dataset, check_common, check_whole, one_input

RATED = 2000.0
"""Rated power, in kW."""
_IDLE = -0.002
"""Power of a turbine that does not run, as a share of rated power."""
_SPELL = 36
"""Mean number of rows for which a state lasts: six hours of ten-minute means."""
_APART = 4.0
"""Distance to every other function, in noise standard deviations, of separable rows."""


def turbine(
    n: int = 50_000,
    curtailments: int = 2,
    downtime: float = 0.05,
    faults: float = 0.03,
    clutter: float = 0.01,
    n_test: int = 1000,
    random_state: RandomState = None,
) -> Dataset:
    """Ten-minute means of a wind turbine: wind speed in m/s, power in kW.

    Process 0 is healthy operation: a curve from cut-in to rated power, with noise that is largest
    on its slope. Process 1 is downtime: slightly below zero, as below cut-in. Then follow the
    curtailments, each a plateau below rated power for 2 % of the time, icing (or a pitch fault), a
    curve below the healthy one, and clutter, uniform over the range of power. States last for
    hours, and strong winds are rare. The Bunch also holds the names of the processes, ``states``,
    and ``separable``.

    Parameters
    ----------
    n : int, default=50_000
    curtailments : int, default=2
        Number of plateaus, 0 to 2.
    downtime, faults, clutter : float, default=0.05, 0.03 and 0.01
        Shares of downtime, of icing and of clutter.
    n_test : int, default=1000
    random_state : int, Generator, RandomState or None, default=None
        As in every data set of `dagp.datasets`.

    Examples
    --------
    >>> data = turbine(n=5000, random_state=0)
    >>> data.states
    ['healthy', 'downtime', 'curtailment 1', 'curtailment 2', 'icing', 'clutter']
    >>> data.X.shape, data.y_test.shape
    ((5000, 1), (1000, 5))
    """
    check_whole("curtailments", curtailments, 0, 2)
    shares = [downtime, *[0.02] * curtailments, faults, clutter]
    if not (min(shares) >= 0 and sum(shares) <= 0.5):
        raise ValueError(
            "downtime, faults and clutter must be shares of the rows that leave, with the "
            f"curtailments, half of them healthy, got {downtime!r}, {faults!r} and {clutter!r}."
        )
    rng = check_common(0.0, n, n_test, random_state)
    start, width, shape = rng.uniform(3.0, 3.8), rng.uniform(6.0, 7.0), rng.uniform(2.4, 2.9)
    levels = np.sort(rng.uniform([0.3, 0.6], [0.5, 0.8]))[:curtailments]
    loss = rng.uniform(0.5, 0.7)

    def functions(wind: np.ndarray) -> np.ndarray:
        running = 1 - np.exp(-((np.maximum(wind - start, 0) / width) ** shape))
        healthy = _IDLE + (1 - _IDLE) * running
        # A limit that is not reached limits nothing.
        plateaus = [np.where(healthy > level, level, np.nan) for level in levels]
        return np.stack(
            [healthy, np.full_like(wind, _IDLE), *plateaus, _IDLE + (loss - _IDLE) * running],
            axis=1,
        )

    def noise(values: np.ndarray) -> np.ndarray:
        output = np.maximum(values - _IDLE, 0)
        std = 0.0005 + 0.008 * np.tanh(output / 0.004) + 0.08 * output * np.maximum(1 - output, 0)
        std[:, 2:-1] = 0.004
        return std

    wind = _wind(n, rng)
    names = [f"curtailment {i + 1}" for i in range(curtailments)]
    states = ["healthy", "downtime", *names, "icing", "clutter"]
    process = _spells(n, np.array([1 - sum(shares), *shares]), rng)
    truth = functions(wind)
    spread = noise(truth)
    row, lost = np.arange(n), process == len(states) - 1
    own = np.where(lost, 0, process)
    own[np.isnan(truth[row, own])] = 0
    process = np.where(lost, process, own)
    y = truth[row, own] + spread[row, own] * rng.standard_normal(n)
    y[lost] = rng.uniform(-0.05, 1.05, lost.sum())
    # A row is separable by its function, clutter by its power.
    clear = _separable(truth, spread, own)
    clear[lost] = ~np.any(np.abs(y[:, None] - truth) < _APART * spread, axis=1)[lost]
    grid = np.linspace(0, wind.max(), n_test)
    found = one_input(
        wind, RATED * y, process, grid, RATED * functions(grid), separable=clear, states=states
    )
    return Dataset(**found | {"feature_names": ["wind speed"], "target_names": ["power"]})


def _separable(truth: np.ndarray, std: np.ndarray, own: np.ndarray) -> np.ndarray:
    """Whether every other function that is present is far from each row's own."""
    column = own[:, None]
    gap = np.abs(truth - np.take_along_axis(truth, column, axis=1))
    noisier = np.maximum(std, np.take_along_axis(std, column, axis=1))
    # Comparisons with absent functions, NaN, are false.
    return ~np.any((column != np.arange(truth.shape[1])) & (gap < _APART * noisier), axis=1)


def _wind(n: int, rng: np.random.RandomState) -> np.ndarray:
    """Wind speeds with a Weibull distribution, correlated over about a day."""
    # Not used by other data sets, and slow to import.
    from scipy.signal import lfilter

    persistence = 0.99
    steps = np.sqrt(1 - persistence**2) * rng.standard_normal(n)
    steps[0] /= np.sqrt(1 - persistence**2)
    level = np.asarray(lfilter([1.0], [1.0, -persistence], steps))
    return 8.0 * np.sqrt(-np.log(np.clip(ndtr(-level), 1e-12, 1.0)))


def _spells(n: int, shares: np.ndarray, rng: np.random.RandomState) -> np.ndarray:
    """A state for every row, in spells; clutter, the last state, in single rows."""
    count = 2 + n // 4
    state = rng.choice(len(shares) - 1, count, p=shares[:-1] / shares[:-1].sum())
    length = 1 + rng.poisson(_SPELL - 1, count)
    process = np.repeat(state, length)[:n]
    process[rng.uniform(size=n) < shares[-1]] = len(shares) - 1
    return process
