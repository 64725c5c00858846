"""Modal regression: a smooth function along a mode of the data, robust to most of them.

Used to start from signals among clutter, and to lead a function through points that clutter holds.
"""

import numpy as np

from dagp.core.typing import Float

WIDTH = 0.15
"""Final kernel width, in standardised units."""
STEPS = 12


def random_basis(
    X: Float[np.ndarray, "N D"], lengthscale: float, rng: np.random.Generator
) -> Float[np.ndarray, "N J"]:
    """Random Fourier features of a squared exponential kernel."""
    count = 32 * min(X.shape[1], 2)
    frequency = rng.standard_normal((X.shape[1], count)) / lengthscale
    return np.sqrt(2 / count) * np.cos(X @ frequency + rng.uniform(0, 2 * np.pi, count))


def closeness(residual: Float[np.ndarray, "N P"], width: float = WIDTH) -> Float[np.ndarray, " N"]:
    """1 for points on the function, falling to 0 with their distance in units of the width."""
    return np.exp(-0.5 * np.sum(residual**2, axis=1) / width**2)


def modal_regression(
    A: Float[np.ndarray, "N J"],
    y: Float[np.ndarray, "N P"],
    weight: Float[np.ndarray, " N"],
    rng: np.random.Generator,
    held: Float[np.ndarray, " N"] | float = 0.0,
) -> tuple[float, Float[np.ndarray, "J P"]]:
    """Coefficients of a function along a mode, and the weight of the points on it.

    Points have the weight `held` wherever the function is, and `weight` where it is close.
    """
    coefficients = rng.standard_normal((A.shape[1], y.shape[1]))
    ridge = 0.05 * np.eye(A.shape[1])
    for width in np.geomspace(rng.uniform(0.3, 1.0), WIDTH, STEPS):
        B = A * (held + weight * closeness(y - A @ coefficients, width))[:, None]
        coefficients = np.linalg.solve(A.T @ B + width * ridge, B.T @ y)
    return float(weight @ closeness(y - A @ coefficients)), coefficients
