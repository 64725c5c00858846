"""Array aliases and the letters that name their dimensions.

========  =======================================
letter    counts
========  =======================================
``N``     data points
``D``     input columns
``P``     output columns
``K``     processes
``M``     inducing points
``L``     layers of a deep process
``S``     Monte Carlo or quasi-random points
``R``     restarts
========  =======================================
"""

from collections.abc import Sequence
from typing import Any

import jax
import numpy as np
from jaxtyping import Bool, Float, Int

Array = jax.Array | np.ndarray

Scalar = Float[Array, ""]
Inputs = Float[Array, "N D"]
Outputs = Float[Array, "N P"]
PerPoint = Float[Array, " N"]
PerProcess = Float[Array, "N K"]
Matrix = Float[Array, "M M"]
Factor = Float[Array, "*batch M M"]

RandomState = int | np.random.Generator | np.random.RandomState | None
Columns = Sequence[int]
Table = Any
"""Anything two-dimensional a user hands in: NumPy, pandas, polars, pyarrow, lists."""

__all__ = [
    "Array",
    "Bool",
    "Columns",
    "Factor",
    "Float",
    "Inputs",
    "Int",
    "Matrix",
    "Outputs",
    "PerPoint",
    "PerProcess",
    "RandomState",
    "Scalar",
    "Table",
]
