"""Triangular algebra, and the one home of jitter."""

import functools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.custom_derivatives import SymbolicZero
from jax.scipy.linalg import solve_triangular

from dagp.typing import Array, Factor, Float, Matrix, Scalar

__all__ = [
    "cholesky",
    "firm_cholesky",
    "inverse_factor",
    "jitter_used",
    "log_det",
    "quadratic",
    "whitener",
]

_RUNGS = 9
"""Jitter climbs by a factor of ten from `_first_rung` until the factor is finite."""
_FEW = (3, 6, _RUNGS - 1)
"""Those that are tried after the lowest one where they are tried together."""


def _first_rung(dtype: np.dtype) -> float:
    # Relative to the mean diagonal; large enough to be seen by the dtype's own rounding.
    return 1e-10 if dtype == np.float64 else 1e-6


# A program of its own, because a step has many factors and tracing this takes long: once is enough.
@functools.partial(jax.jit, static_argnames="jitter")
def _climb(matrix: Matrix, jitter: float) -> tuple[Matrix, Scalar]:
    """The factor at the lowest sufficient rung from `jitter` on, and the relative jitter there."""
    return jax.lax.platform_dependent(
        matrix,
        cpu=lambda m: _rung_by_rung(m, jitter),
        default=lambda m: _all_at_once(m, jitter),
    )


def _jittered(matrix: Matrix, relative: Scalar | float) -> Matrix:
    """The factor with this jitter, relative to the mean diagonal."""
    diagonal = jnp.mean(jnp.diagonal(matrix))
    # A function that is known to be zero has a covariance of zeros: any jitter will do.
    diagonal = jnp.where(diagonal > 0, diagonal, 1.0)
    identity = jnp.eye(matrix.shape[-1], dtype=matrix.dtype)
    return jnp.linalg.cholesky(matrix + relative * diagonal * identity)


def _rung_by_rung(matrix: Matrix, jitter: float) -> tuple[Matrix, Scalar]:
    first = _first_rung(matrix.dtype)

    def failed(state: tuple[Array, Array, Array]) -> Array:
        rung, _, lower = state
        return (rung < _RUNGS) & ~jnp.all(jnp.isfinite(lower))

    def climb(state: tuple[Array, Array, Array]) -> tuple[Array, Array, Array]:
        rung, relative, _ = state
        higher = jnp.maximum(10 * relative, first)
        return rung + 1, higher, _jittered(matrix, higher)

    begin = jnp.asarray(jitter, matrix.dtype)
    begun = (jnp.asarray(1), begin, _jittered(matrix, begin))
    _, relative, lower = jax.lax.while_loop(failed, climb, begun)
    return lower, relative


def _all_at_once(matrix: Matrix, jitter: float) -> tuple[Matrix, Scalar]:
    """A few of the rungs, tried together.

    A loop that ends when a number says so makes an accelerator wait for its host at every turn,
    which takes longer than the factors do.
    """
    few = [jitter, *(_first_rung(matrix.dtype) * 10.0**up for up in _FEW)]
    rungs = jnp.asarray(few, matrix.dtype)
    lower = jax.vmap(lambda relative: _jittered(matrix, relative))(rungs)
    # The first that is finite; the first of all where none is.
    pick = jnp.argmax(jnp.all(jnp.isfinite(lower), axis=(1, 2)))
    return lower[pick], rungs[pick]


@jax.custom_jvp
def cholesky(matrix: Matrix) -> Matrix:
    """Lower Cholesky factor of a positive semi-definite matrix, with as little jitter as it takes.

    JAX answers a failed factorisation with NaN, silently, and a second try inside ``where`` or
    ``cond`` poisons the gradient. So the jitter is found first, outside of differentiation, and
    the derivative is that of the factor finally used.

    >>> round(float(cholesky(jnp.array([[4.0]]))[0, 0]), 4)
    2.0
    """
    return _climb(matrix, _first_rung(matrix.dtype))[0]


@jax.custom_jvp
def firm_cholesky(matrix: Matrix) -> Matrix:
    """As `cholesky` for a positive definite matrix: no jitter, unless rounding undid it.

    >>> float(firm_cholesky(jnp.array([[4.0]]))[0, 0])
    2.0
    """
    return _climb(matrix, 0.0)[0]


def _derivative(factor: Callable[[Matrix], Matrix]) -> Callable[..., tuple[Matrix, Matrix]]:
    """The rule for the derivative of a Cholesky factor."""

    def rule(primals: tuple[Matrix], tangents: tuple[Matrix]) -> tuple[Matrix, Matrix]:
        (matrix,), (tangent,) = primals, tangents
        lower = factor(matrix)
        inverse = inverse_factor(lower)
        return lower, lower @ _half(inverse @ ((tangent + tangent.T) / 2) @ inverse.T)

    return rule


def _half(symmetric: Matrix) -> Matrix:
    """The lower triangle whose sum with its transpose this is."""
    return jnp.tril(symmetric) - jnp.diag(jnp.diagonal(symmetric)) / 2


cholesky.defjvp(_derivative(cholesky))
firm_cholesky.defjvp(_derivative(firm_cholesky))


@jax.custom_jvp
def whitener(matrix: Matrix) -> Matrix:
    """Inverse of the factor that `cholesky` gives.

    >>> round(float(whitener(jnp.array([[4.0]]))[0, 0]), 4)
    0.5
    """
    return inverse_factor(cholesky(matrix))


@whitener.defjvp
def _whitener_derivative(primals: tuple[Matrix], tangents: tuple[Matrix]) -> tuple[Matrix, Matrix]:
    # Of the inverse itself: no derivative of the factor, and products in place of solves.
    (matrix,), (tangent,) = primals, tangents
    inverse = whitener(matrix)
    return inverse, -_half(inverse @ ((tangent + tangent.T) / 2) @ inverse.T) @ inverse


@jax.custom_jvp
def quadratic(S: Float[Array, "P M M"], basis: Float[Array, "M N"]) -> Float[Array, "P N"]:
    """``bᵀ S b`` for every column b, S symmetric.

    >>> quadratic(jnp.eye(2)[None], jnp.array([[3.0], [4.0]])).tolist()
    [[25.0]]
    """
    return jnp.sum(basis * (S @ basis), axis=1)


def _quadratic_derivative(primals: tuple[Any, Any], tangents: tuple[Any, Any]) -> tuple[Any, Any]:
    # Known to be symmetric: the product that the value needs is half of the slope as well.
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
    return _climb(matrix, _first_rung(matrix.dtype))[1]


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
