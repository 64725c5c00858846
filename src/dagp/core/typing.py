"""Array type aliases and the letters that name array dimensions.

N data points, D input columns, P output columns, K processes, M inducing points, L layers of a deep
process, S Monte Carlo or quasi-random points, R restarts.
"""

from collections.abc import Sequence
from typing import Any

import jax
import numpy as np
from jaxtyping import Bool as Bool
from jaxtyping import Float as Float
from jaxtyping import Int as Int

Array = jax.Array | np.ndarray

Scalar = Float[Array, ""]
Rate = Scalar | float
"""Step size of natural gradients: 1 goes to the optimum of a conjugate model."""
Inputs = Float[Array, "N D"]
Outputs = Float[Array, "N P"]
PerPoint = Float[Array, " N"]
PerProcess = Float[Array, "N K"]
Matrix = Float[Array, "M M"]
Factor = Float[Array, "*batch M M"]

RandomState = int | np.random.Generator | np.random.RandomState | None
Columns = Sequence[int]
Table = Any
"""Two-dimensional user data: NumPy, pandas, polars, pyarrow, lists."""
