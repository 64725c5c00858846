"""Triangular algebra, and the one home of jitter."""

import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.linalg import solve_triangular

from dagp.typing import Array, Factor, Float, Matrix, Scalar

__all__ = ["cholesky", "firm_cholesky", "inverse_factor", "jitter_used", "log_det"]

_RUNGS = 9
"""Jitter climbs by a factor of ten from `_first_rung` until the factor is finite."""


def _first_rung(dtype: np.dtype) -> float:
    # Relative to the mean diagonal; large enough to be seen by the dtype's own rounding.
    return 1e-10 if dtype == np.float64 else 1e-6


def _climb(matrix: Matrix) -> tuple[Matrix, Scalar]:
    """The factor at the lowest sufficient rung, and the relative jitter of that rung."""
    identity = jnp.eye(matrix.shape[-1], dtype=matrix.dtype)
    diagonal = jnp.mean(jnp.diagonal(matrix))
    # A function that is known to be zero has a covariance of zeros: any jitter will do.
    diagonal = jnp.where(diagonal > 0, diagonal, 1.0)
    first = jnp.asarray(_first_rung(matrix.dtype), matrix.dtype)

    def factor(relative: Scalar) -> Matrix:
        return jnp.linalg.cholesky(matrix + relative * diagonal * identity)

    def failed(state: tuple[Array, Array, Array]) -> Array:
        rung, _, lower = state
        return (rung < _RUNGS) & ~jnp.all(jnp.isfinite(lower))

    def climb(state: tuple[Array, Array, Array]) -> tuple[Array, Array, Array]:
        rung, relative, _ = state
        return rung + 1, 10 * relative, factor(10 * relative)

    _, relative, lower = jax.lax.while_loop(failed, climb, (jnp.asarray(1), first, factor(first)))
    return lower, relative


@jax.custom_jvp
def cholesky(matrix: Matrix) -> Matrix:
    """Lower Cholesky factor of a positive semi-definite matrix, with as little jitter as it takes.

    JAX answers a failed factorisation with NaN, silently, and a second try inside ``where`` or
    ``cond`` poisons the gradient. So the jitter is found first, outside of differentiation, and
    the derivative is that of the factor finally used.

    >>> round(float(cholesky(jnp.array([[4.0]]))[0, 0]), 4)
    2.0
    """
    return _climb(matrix)[0]


@cholesky.defjvp
def _cholesky_jvp(primals: tuple[Matrix], tangents: tuple[Matrix]) -> tuple[Matrix, Matrix]:
    (matrix,), (tangent,) = primals, tangents
    lower = cholesky(matrix)
    inverse = inverse_factor(lower)
    inner = inverse @ ((tangent + tangent.T) / 2) @ inverse.T
    half = jnp.tril(inner) - jnp.diag(jnp.diagonal(inner)) / 2
    return lower, lower @ half


def jitter_used(matrix: Matrix) -> Scalar:
    """The relative jitter `cholesky` adds to this matrix (for diagnosis, not for training)."""
    return _climb(matrix)[1]


def firm_cholesky(matrix: Matrix) -> Matrix:
    """Lower Cholesky factor of a matrix that is the identity and something on top of it.

    It needs no jitter, until there is so much on top that the identity is lost in rounding: what
    is added is of the size of that rounding, and so next to nothing otherwise.

    >>> round(float(firm_cholesky(jnp.array([[4.0]]))[0, 0]), 4)
    2.0
    """
    size = matrix.shape[-1]
    largest = jax.lax.stop_gradient(jnp.max(jnp.diagonal(matrix)))
    rounding = 2 * float(jnp.finfo(matrix.dtype).eps) * size**0.5 * largest
    return jnp.linalg.cholesky(matrix + rounding * jnp.eye(size, dtype=matrix.dtype))


def inverse_factor(lower: Factor) -> Factor:
    """Inverse of a lower triangular factor.

    Forming it costs M³/3 once and turns every later solve against N columns into a matrix
    product, which runs on all cores and batches on accelerators.
    """
    identity = jnp.broadcast_to(jnp.eye(lower.shape[-1], dtype=lower.dtype), lower.shape)
    return solve_triangular(lower, identity, lower=True)


def log_det(lower: Factor) -> Float[Array, "*batch"]:
    """Log determinant of the matrix whose lower Cholesky factor this is."""
    return 2 * jnp.sum(jnp.log(jnp.diagonal(lower, axis1=-2, axis2=-1)), axis=-1)
