"""Regression data of which some outputs are wrong, and functions for them."""

from typing import Any, Literal

import numpy as np

from dagp.core.random import as_random_state
from dagp.core.typing import Bool, Float, RandomState
from dagp.datasets.curves import Dataset, check_common, check_whole

Corruption = Literal["none", "uniform", "asymmetric", "focused"]
CORRUPTIONS: tuple[Corruption, ...] = ("none", "uniform", "asymmetric", "focused")
_NEAREST, _FARTHEST = 3.0, 9.0
"""Distance of wrong readings from the right ones, in standard deviations of the outputs."""
_TIGHT = 0.1
"""Spread of focused ones: of their inputs and outputs, in standard deviations of the data."""


def corrupt(
    X: Float[np.ndarray, "N D"],
    y: Float[np.ndarray, " N"],
    kind: Corruption = "uniform",
    share: float = 0.1,
    random_state: RandomState = None,
) -> tuple[Float[np.ndarray, "N D"], Float[np.ndarray, " N"], Bool[np.ndarray, " N"]]:
    """Make some readings wrong.

    Parameters
    ----------
    X : array of shape (N, D)
    y : array of shape (N,)
    kind : {"none", "uniform", "asymmetric", "focused"}, default="uniform"
        Wrong readings are off by 3 to 9 standard deviations of y to either side, or downwards
        (``"asymmetric"``), or form a tight cluster near the median inputs, 3 standard deviations
        above the median output (``"focused"``).
    share : float, default=0.1
        Share of the readings that become wrong.
    random_state : int, Generator, RandomState or None, default=None

    Returns
    -------
    X, y, wrong : arrays
        Inputs and outputs after the corruption, and which readings are wrong.

    Examples
    --------
    >>> X, y, wrong = corrupt(np.zeros((50, 1)), np.arange(50.0), random_state=0)
    >>> int(wrong.sum())
    5
    """
    if kind not in CORRUPTIONS:
        raise ValueError(f"kind must be one of {', '.join(CORRUPTIONS)}, got {kind!r}.")
    if not 0 <= share <= 1:
        raise ValueError(f"share must be between 0 and 1, got {share}.")
    rng = as_random_state(random_state)
    X, y, wrong = np.array(X, float), np.array(y, float), np.zeros(len(y), bool)
    if kind == "none":
        return X, y, wrong
    chosen = rng.choice(len(y), round(share * len(y)), replace=False)
    wrong[chosen] = True
    spread = y.std()
    if kind == "focused":
        X[chosen] = np.median(X, axis=0) + _TIGHT * X.std(axis=0) * rng.standard_normal(
            (len(chosen), X.shape[1])
        )
        y[chosen] = np.median(y) + spread * (_NEAREST + _TIGHT * rng.standard_normal(len(chosen)))
        return X, y, wrong
    size = rng.uniform(_NEAREST, _FARTHEST, len(chosen))
    sign = -1.0 if kind == "asymmetric" else rng.choice([-1.0, 1.0], len(chosen))
    y[chosen] += sign * size * spread
    return X, y, wrong


def neal(
    noise: float = 0.1,
    n: int = 100,
    n_test: int = 1000,
    corruption: Corruption = "uniform",
    random_state: RandomState = None,
) -> Dataset:
    """Neal's function of one input, with some wrong readings.

    ``0.3 + 0.4 x + 0.5 sin(2.7 x) + 1.1 / (1 + x²)`` on [−3, 3].

    Parameters
    ----------
    noise : float, default=0.1
    n : int, default=100
    n_test : int, default=1000
    corruption : {"none", "uniform", "asymmetric", "focused"}, default="uniform"
        See `corrupt`.
    random_state : int, Generator, RandomState or None, default=None

    Examples
    --------
    >>> data = neal(random_state=0)
    >>> data.X.shape, int(data.process.sum())
    ((100, 1), 10)
    """
    rng = check_common(noise, n, n_test, random_state)

    def truth(X: Any) -> Any:
        x = X[:, 0]
        return 0.3 + 0.4 * x + 0.5 * np.sin(2.7 * x) + 1.1 / (1 + x**2)

    X, X_test = rng.uniform(-3, 3, (n, 1)), np.linspace(-3, 3, n_test)[:, None]
    return _observed(truth, X, X_test, noise, corruption, rng)


def friedman(
    inputs: int = 10,
    noise: float = 1.0,
    n: int = 100,
    n_test: int = 1000,
    corruption: Corruption = "uniform",
    random_state: RandomState = None,
) -> Dataset:
    """Friedman's function of five inputs, and others without effect, with some wrong readings.

    ``10 sin(π x₁ x₂) + 20 (x₃ − ½)² + 10 x₄ + 5 x₅`` on the unit cube.

    Parameters
    ----------
    inputs : int, default=10
        Number of inputs, at least 5.
    noise : float, default=1.0
    n : int, default=100
    n_test : int, default=1000
    corruption : {"none", "uniform", "asymmetric", "focused"}, default="uniform"
        See `corrupt`.
    random_state : int, Generator, RandomState or None, default=None

    Examples
    --------
    >>> friedman(inputs=5, random_state=0).X.shape
    (100, 5)
    """
    check_whole("inputs", inputs, 5)
    rng = check_common(noise, n, n_test, random_state)

    def truth(X: Any) -> Any:
        return (
            10 * np.sin(np.pi * X[:, 0] * X[:, 1])
            + 20 * (X[:, 2] - 0.5) ** 2
            + 10 * X[:, 3]
            + 5 * X[:, 4]
        )

    X, X_test = rng.uniform(size=(n, inputs)), rng.uniform(size=(n_test, inputs))
    return _observed(truth, X, X_test, noise, corruption, rng)


def _observed(
    truth: Any, X: Any, X_test: Any, noise: float, corruption: Corruption, rng: Any
) -> Dataset:
    y = truth(X) + noise * rng.standard_normal(len(X))
    X, y, wrong = corrupt(X, y, corruption, random_state=rng)
    found = {"X": X, "y": y, "process": wrong.astype(int)}
    return Dataset(**found, X_test=X_test, y_test=truth(X_test), noise=noise)
