"""Modal regression: a smooth function along a mode of the data, robust to most of them.

Used to start from signals among clutter, and to lead a function through points that clutter holds.
"""

import numpy as np

from dagp.core.typing import Float

WIDTH = 0.15
"""Final kernel width by default, in standardised units."""
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
) -> tuple[float, Float[np.ndarray, "J P"]]:
    """Coefficients of a function along a mode, and the weight of the points on it."""
    coefficients = rng.standard_normal((A.shape[1], y.shape[1]))
    return _along_mode(
        A, y, weight, coefficients, np.geomspace(rng.uniform(0.3, 1.0), WIDTH, STEPS)
    )


def extended_regression(
    A: Float[np.ndarray, "N J"],
    y: Float[np.ndarray, "N P"],
    weight: Float[np.ndarray, " N"],
    held: Float[np.ndarray, " N"],
    through: Float[np.ndarray, " N"],
    width: float,
) -> tuple[float, Float[np.ndarray, "J P"]]:
    """As `modal_regression`, for a function that has the weight `held` wherever it is, and that
    begins by passing through some points."""
    coefficients = _ridge(A, y, through, WIDTH)
    return _along_mode(A, y, weight, coefficients, np.geomspace(2 * width, width, STEPS), held)


def _along_mode(
    A: np.ndarray,
    y: np.ndarray,
    weight: np.ndarray,
    coefficients: np.ndarray,
    widths: np.ndarray,
    held: np.ndarray | float = 0.0,
) -> tuple[float, Float[np.ndarray, "J P"]]:
    """Points count by `weight` where the function is close, and by `held` wherever it is."""
    for width in widths:
        near = weight * closeness(y - A @ coefficients, width)
        coefficients = _ridge(A, y, held + near, width)
    return float(weight @ closeness(y - A @ coefficients, widths[-1])), coefficients


def _ridge(A: np.ndarray, y: np.ndarray, weight: np.ndarray, width: float) -> np.ndarray:
    B = A * weight[:, None]
    return np.linalg.solve(A.T @ B + 0.05 * width * np.eye(A.shape[1]), B.T @ y)
