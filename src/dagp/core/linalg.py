"""Cholesky factors with adaptive jitter, their derivatives, and triangular algebra."""

import functools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.custom_derivatives import SymbolicZero
from jax.scipy.linalg import solve_triangular

from dagp.core.typing import Array, Factor, Float, Matrix, Scalar

_LEVELS = 9
"""Jitter levels: each ten times the last, from `smallest_jitter`, until the factor is finite."""
_TOGETHER = (3, 6, _LEVELS - 1)
"""Powers of ten, above the smallest jitter, that `_try_jitters_together` tries after the first."""
_LEAST_BLOCK = 128
"""Size from which `inverse_from` divides a factor; smaller blocks save little, and take longer to
compile."""


def smallest_jitter(dtype: np.dtype) -> float:
    """Of a covariance, relative to its mean diagonal."""
    # Large enough not to vanish in the rounding of the dtype.
    return 1e-10 if dtype == np.float64 else 1e-6


# Jitted on its own: a training step has many factors, and tracing this loop takes long.
@functools.partial(jax.jit, static_argnames="jitter")
def _cholesky_with_jitter(matrix: Matrix, jitter: float) -> tuple[Matrix, Scalar]:
    """The factor at the smallest sufficient jitter, from `jitter` upwards, and that jitter."""
    return jax.lax.platform_dependent(
        matrix,
        cpu=lambda m: _try_jitters_in_turn(m, jitter),
        default=lambda m: _try_jitters_together(m, jitter),
    )


def _cholesky_at(matrix: Matrix, relative: Scalar | float) -> Matrix:
    """The factor with this jitter, relative to the mean diagonal; NaN where it fails."""
    diagonal = jnp.mean(jnp.diagonal(matrix))
    # A function fixed at zero has a covariance of zeros: any positive jitter will do.
    diagonal = jnp.where(diagonal > 0, diagonal, 1.0)
    identity = jnp.eye(matrix.shape[-1], dtype=matrix.dtype)
    return jnp.linalg.cholesky(matrix + relative * diagonal * identity)


def _try_jitters_in_turn(matrix: Matrix, jitter: float) -> tuple[Matrix, Scalar]:
    """Increases the jitter in a loop until the factor is finite."""
    first = smallest_jitter(matrix.dtype)

    def failed(state: tuple[Array, Array, Array]) -> Array:
        level, _, lower = state
        return (level < _LEVELS) & ~jnp.all(jnp.isfinite(lower))

    def retry(state: tuple[Array, Array, Array]) -> tuple[Array, Array, Array]:
        level, relative, _ = state
        higher = jnp.maximum(10 * relative, first)
        return level + 1, higher, _cholesky_at(matrix, higher)

    begin = jnp.asarray(jitter, matrix.dtype)
    initial = (jnp.asarray(1), begin, _cholesky_at(matrix, begin))
    _, relative, lower = jax.lax.while_loop(failed, retry, initial)
    return lower, relative


def _try_jitters_together(matrix: Matrix, jitter: float) -> tuple[Matrix, Scalar]:
    """Tries a few jitter levels in one batch."""
    # An accelerator waits for its host at every iteration of a loop with a data-dependent end.
    few = [jitter, *(smallest_jitter(matrix.dtype) * 10.0**up for up in _TOGETHER)]
    levels = jnp.asarray(few, matrix.dtype)
    lower = jax.vmap(lambda relative: _cholesky_at(matrix, relative))(levels)
    # The first finite one; index 0 where none is.
    pick = jnp.argmax(jnp.all(jnp.isfinite(lower), axis=(1, 2)))
    return lower[pick], levels[pick]


@jax.custom_jvp
def cholesky(matrix: Matrix) -> Matrix:
    """Lower Cholesky factor of a positive semi-definite matrix, with the smallest jitter needed.

    A failed factorisation in JAX is NaN, and a retry inside ``where`` makes the gradient NaN: the
    jitter is found outside of differentiation, the derivative is that of the factor finally used.
    """
    return _cholesky_with_jitter(matrix, smallest_jitter(matrix.dtype))[0]


@jax.custom_jvp
def cholesky_positive_definite(matrix: Matrix) -> Matrix:
    """As `cholesky`, but without jitter unless the matrix is indefinite by rounding."""
    return _cholesky_with_jitter(matrix, 0.0)[0]


def _derivative(factor: Callable[[Matrix], Matrix]) -> Callable[..., tuple[Matrix, Matrix]]:
    """The forward-mode derivative rule of a Cholesky factor."""

    def rule(primals: tuple[Matrix], tangents: tuple[Matrix]) -> tuple[Matrix, Matrix]:
        (matrix,), (tangent,) = primals, tangents
        lower = factor(matrix)
        inverse = inverse_factor(lower)
        return lower, lower @ _half(inverse @ ((tangent + tangent.T) / 2) @ inverse.T)

    return rule


def _half(symmetric: Matrix) -> Matrix:
    """The lower triangle L with L + Lᵀ equal to the argument."""
    return jnp.tril(symmetric) - jnp.diag(jnp.diagonal(symmetric)) / 2


cholesky.defjvp(_derivative(cholesky))
cholesky_positive_definite.defjvp(_derivative(cholesky_positive_definite))


@jax.custom_jvp
def whitener(matrix: Matrix) -> Matrix:
    """Inverse of the `cholesky` factor."""
    return inverse_factor(cholesky(matrix))


@whitener.defjvp
def _whitener_derivative(primals: tuple[Matrix], tangents: tuple[Matrix]) -> tuple[Matrix, Matrix]:
    # Derivative of the inverse directly: products instead of solves, and none of the factor.
    (matrix,), (tangent,) = primals, tangents
    inverse = whitener(matrix)
    return inverse, -_half(inverse @ ((tangent + tangent.T) / 2) @ inverse.T) @ inverse


@jax.custom_jvp
def quadratic(S: Float[Array, "P M M"], basis: Float[Array, "M N"]) -> Float[Array, "P N"]:
    """``bᵀ S b`` for every column b, S symmetric."""
    return jnp.sum(basis * (S @ basis), axis=1)


def _quadratic_derivative(primals: tuple[Any, Any], tangents: tuple[Any, Any]) -> tuple[Any, Any]:
    # S is symmetric: the product S b of the value is half of the gradient in b as well.
    (S, basis), (dS, dbasis) = primals, tangents
    image = S @ basis
    slope = jnp.zeros(image.shape[::2], image.dtype)
    if not isinstance(dbasis, SymbolicZero):
        slope += 2 * jnp.sum(dbasis * image, axis=1)
    if not isinstance(dS, SymbolicZero):
        slope += jnp.sum(basis * (dS @ basis), axis=1)
    return jnp.sum(basis * image, axis=1), slope


quadratic.defjvp(_quadratic_derivative, symbolic_zeros=True)


def jitter_used(matrix: Matrix) -> Scalar:
    """The relative jitter `cholesky` adds to this matrix (for diagnosis, not for training)."""
    return _cholesky_with_jitter(matrix, smallest_jitter(matrix.dtype))[1]


def inverse_factor(lower: Factor) -> Factor:
    """Inverse of a lower triangular factor.

    It costs M³/3 once and turns every later solve into a product, which runs on all cores.
    """
    identity = jnp.broadcast_to(jnp.eye(lower.shape[-1], dtype=lower.dtype), lower.shape)
    return solve_triangular(lower, identity, lower=True)


def inverse_from(lower: Factor) -> tuple[Float[Array, "M M"], Float[Array, "M M"]]:
    """``L⁻ᵀ``, and the inverse of ``L Lᵀ``, by blocks: products with nothing but zeros are left
    out, and no left factor is transposed, which takes XLA twice as long."""
    size = len(lower)
    if size <= _LEAST_BLOCK:
        upper = inverse_factor(lower).T
        return upper, upper @ upper.T
    half = size // 2
    (first, above), (last, below) = (
        inverse_from(lower[part, part]) for part in (slice(half), slice(half, size))
    )
    corner = -(first @ lower[half:, :half].T) @ last
    upper = jnp.block([[first, corner], [jnp.zeros_like(corner.T), last]])
    aside = corner @ last.T
    return upper, jnp.block([[above + corner @ corner.T, aside], [aside.T, below]])


def log_det(lower: Factor) -> Float[Array, "*batch"]:
    """Log determinant of the matrix whose lower Cholesky factor this is."""
    return 2 * jnp.sum(jnp.log(jnp.diagonal(lower, axis1=-2, axis2=-1)), axis=-1)
