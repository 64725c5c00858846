"""Data on which the association of several inputs is hard to find, for `recovery.py sheets`.

Functions are drawn from squared exponential priors over [−1, 1]^D: length scales are log-normal
around 0.8 √D, noise is 3 to 15 % of the spread of the functions, weights are equal, uneven (each
process half as large as the one before) or follow smooth gates, and a tenth of the rows may be
clutter. A draw is kept if at least 75 % of its rows can be told apart.
"""

import warnings
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from scipy.special import softmax
from sklearn.metrics import adjusted_rand_score

from dagp import DAGP, GP, Noise
from dagp.core.errors import SearchWarning

Array = np.ndarray

ROWS = (300, 500, 1000)
APART = 4.0
"""Distance to every other function, in noise standard deviations, from which a row can be told
apart."""
CLEAR = 0.75
"""Least share of rows that can be told apart."""
CLUTTER = 0.1
TOLD_APART = 0.9
"""Least adjusted Rand index over the rows that can be told apart."""


class Draw(NamedTuple):
    """Rows, the process of each, and which can be told apart given the true functions."""

    X: Array
    y: Array
    process: Array
    clear: Array
    functions: int
    clutter: bool = False

    def model(self, **settings: Any) -> DAGP:
        """The model that knows the number of processes."""
        processes = [GP() for _ in range(self.functions)] + [Noise()] * self.clutter
        return DAGP(processes=processes, **settings)

    def score(self, model: DAGP) -> float:
        """Adjusted Rand index over the rows that can be told apart."""
        return adjusted_rand_score(self.process[self.clear], model.assignment_[self.clear])


def smooth(X: Array, lengthscale: Array | float, rng: np.random.Generator) -> Array:
    """A function drawn from a squared exponential prior, at the rows of X."""
    scaled = X / lengthscale
    norm = np.sum(scaled**2, axis=1)
    squares = np.maximum(norm[:, None] + norm - 2 * scaled @ scaled.T, 0)
    covariance = np.exp(-0.5 * squares) + 1e-9 * np.eye(len(X))
    return np.linalg.cholesky(covariance) @ rng.standard_normal(len(X))


def observed(
    X: Array, functions: Array, process: Array, noise: float, rng: np.random.Generator
) -> Draw:
    """Noisy observations of the functions (K, N) by the given processes."""
    N = len(X)
    own = functions[process, np.arange(N)]
    gap = np.abs(functions - own)
    gap[process, np.arange(N)] = np.inf
    y = own + noise * rng.standard_normal(N)
    return Draw(X, y, process, gap.min(axis=0) > APART * noise, len(functions))


def polluted(draw: Draw, functions: Array, noise: float, rng: np.random.Generator) -> Draw:
    """The draw with a tenth of its rows replaced by uniform clutter."""
    low, high = functions.min(), functions.max()
    lost = rng.random(len(draw.X)) < CLUTTER
    anywhere = rng.uniform(low - 0.1 * (high - low), high + 0.1 * (high - low), len(draw.X))
    y = np.where(lost, anywhere, draw.y)
    far = np.abs(y - functions).min(axis=0) > APART * noise
    return draw._replace(
        y=y,
        process=np.where(lost, draw.functions, draw.process),
        clear=np.where(lost, far, draw.clear),
        clutter=True,
    )


def functions_of(D: int, K: int, seed: int) -> Draw:
    """K functions of D inputs; rows, shares, gate and clutter vary with the seed."""
    rng = np.random.default_rng([seed, D, K])
    N = ROWS[seed % len(ROWS)]
    uneven, gated, clutter = seed % 2 == 1, seed // 2 % 2 == 1, seed // 4 % 2 == 1
    while True:
        X = rng.uniform(-1, 1, (N, D))
        lengths = 0.8 * np.sqrt(D) * np.exp(0.3 * rng.standard_normal((K, D)))
        functions = np.stack([smooth(X, each, rng) for each in lengths])
        noise = rng.uniform(0.03, 0.15) * functions.std()
        odds = np.tile(-np.log(2.0) * np.arange(K) * uneven, (N, 1))
        if gated:
            odds += 2 * np.stack([smooth(X, 0.8 * np.sqrt(D), rng) for _ in range(K)], axis=1)
        share = softmax(odds, axis=1).cumsum(axis=1)
        process = np.minimum((share < rng.random((N, 1))).sum(axis=1), K - 1)
        draw = observed(X, functions, process, noise, rng)
        sizes = np.bincount(process, minlength=K) / N
        if draw.clear.mean() >= CLEAR and sizes.min() >= 0.05:
            break
    return polluted(draw, functions, noise, rng) if clutter else draw


def crossing(seed: int) -> Draw:
    """Two smooth sheets that cross along a curve."""
    rng = np.random.default_rng([seed, 1001])
    X, angle = rng.uniform(-1, 1, (500, 2)), rng.uniform(0, 2 * np.pi)
    across, along = X @ [np.cos(angle), np.sin(angle)], X @ [-np.sin(angle), np.cos(angle)]
    middle = 0.5 * np.sin(2 * along + rng.uniform(0, 2 * np.pi))
    gap = across + rng.uniform(-0.3, 0.3) * along**2 + rng.uniform(-0.3, 0.3)
    functions = np.stack([middle + gap, middle - gap])
    return observed(X, functions, rng.integers(0, 2, len(X)), 0.05, rng)


def alternating(seed: int) -> Draw:
    """Two regimes that alternate along the second input."""
    rng = np.random.default_rng([seed, 1002])
    X = rng.uniform(-1, 1, (600, 2))
    width = rng.uniform(0.4, 0.8)
    process = (np.floor((X[:, 1] + rng.uniform(0, width)) / width) % 2).astype(int)
    functions = np.stack([smooth(X, 0.8 * np.sqrt(2), rng) for _ in range(2)])
    return observed(X, functions, process, 0.07, rng)


CELLS: dict[str, Callable[[int], Draw]] = {
    **{
        f"{D} input{'s' if D > 1 else ''}, {K} functions": lambda seed, D=D, K=K: functions_of(
            D, K, seed
        )
        for D in (1, 2, 3, 5)
        for K in (2, 3, 4)
    },
    "crossing": crossing,
    "alternating": alternating,
}


def from_truth(draw: Draw, seed: int) -> DAGP:
    """The fit that begins at the true labels: its bound is what the search could have found."""
    model = draw.model(random_state=seed, n_init=1)
    model.fit(draw.X, draw.y, labels=draw.process)
    return model.set_params(warm_start=True).fit(draw.X, draw.y)


def warned_fit(model: DAGP, X: Array, y: Array) -> bool:
    """Fits the model; whether a SearchWarning was issued."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        model.fit(X, y)
    return any(issubclass(w.category, SearchWarning) for w in caught)
