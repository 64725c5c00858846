"""Covariance functions.

Kernels can be added and multiplied; ``active`` restricts one to some of the input columns.
Parameters are in the user's units; those left out start from the data, with ARD length scales.

>>> import numpy as np
>>> k = 2.0 * SquaredExponential(lengthscale=0.5) + Linear(active=[0])
>>> k(np.zeros((3, 2)), np.ones((4, 2))).shape
(3, 4)
"""

from dagp.model.kernel import Constant, Kernel, Product, Sum
from dagp.model.kernels import (
    Linear,
    Matern12,
    Matern32,
    Matern52,
    Periodic,
    RationalQuadratic,
    SquaredExponential,
    White,
)

__all__ = [
    "Constant",
    "Kernel",
    "Linear",
    "Matern12",
    "Matern32",
    "Matern52",
    "Periodic",
    "Product",
    "RationalQuadratic",
    "SquaredExponential",
    "Sum",
    "White",
]
