"""Jittered Cholesky factor, its derivative, and triangular algebra."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.linalg
from hypothesis import given, settings
from hypothesis import strategies as st
from reference import differences

from dagp.core import linalg
from dagp.core.precision import numerics

pytestmark = pytest.mark.usefixtures("float64")


def positive_definite(seed: int, size: int = 5) -> np.ndarray:
    root = np.random.default_rng(seed).standard_normal((size, size))
    return root @ root.T + size * np.eye(size)


def singular(size: int = 6, rank: int = 2) -> np.ndarray:
    root = np.random.default_rng(3).standard_normal((size, rank))
    return root @ root.T


factorise = jax.jit(linalg.cholesky)


@given(st.integers(0, 1000))
@settings(max_examples=10)
def test_factor_is_scipys(seed):
    matrix = positive_definite(seed)
    lower = factorise(jnp.asarray(matrix))
    np.testing.assert_allclose(lower, scipy.linalg.cholesky(matrix, lower=True), atol=1e-8)


def weighted_sum(factorise):
    weights = np.random.default_rng(1).standard_normal((5, 5))
    return lambda matrix: jnp.sum(weights * jnp.tril(factorise(matrix)) ** 2)


def test_gradient_is_that_of_jax_and_of_finite_differences():
    matrix = positive_definite(0)
    ours = jax.grad(weighted_sum(linalg.cholesky))(jnp.asarray(matrix))
    theirs = jax.grad(weighted_sum(jnp.linalg.cholesky))(jnp.asarray(matrix))
    np.testing.assert_allclose(ours, theirs, rtol=1e-7, atol=1e-9)

    def symmetrised(m):
        return float(weighted_sum(np.linalg.cholesky)((m + m.T) / 2))

    np.testing.assert_allclose(ours, differences(symmetrised, matrix), rtol=1e-5, atol=1e-7)


def test_second_derivatives_and_forward_mode_work():
    matrix = jnp.asarray(positive_definite(4))
    ours, theirs = (
        jax.jit(jax.hessian(lambda t, f=f: weighted_sum(f)(matrix + t * matrix @ matrix)))(0.1)
        for f in (linalg.cholesky, jnp.linalg.cholesky)
    )
    np.testing.assert_allclose(ours, theirs, rtol=1e-6)


@pytest.mark.parametrize("dtype", ["float64", "float32"])
def test_singular_matrix_has_a_finite_factor_and_gradient(dtype):
    with numerics(dtype):
        matrix = jnp.asarray(singular(), dtype)
        lower = linalg.cholesky(matrix)
        gradient = jax.grad(lambda m: jnp.sum(linalg.cholesky(m)))(matrix)
        relative = float(linalg.jitter_used(matrix))
    assert lower.dtype == dtype
    assert np.all(np.isfinite(lower)) and np.all(np.isfinite(gradient))
    added = relative * np.mean(np.diag(singular()))
    tolerance = 2 * added + 1e-5 * (dtype == "float32") + 1e-12
    np.testing.assert_allclose(lower @ lower.T, singular(), atol=tolerance)


def test_jitter_starts_at_the_first_rung_and_climbs_by_tens():
    assert float(linalg.jitter_used(jnp.asarray(positive_definite(0)))) == pytest.approx(1e-10)
    # Least eigenvalue -3e-6 of a matrix with mean diagonal one: 1e-6 is too little, 1e-5 enough.
    indefinite = jnp.asarray(np.diag([2.000003, 1.0, -3e-6]))
    assert float(linalg.jitter_used(indefinite)) == pytest.approx(1e-5)
    lower = linalg.cholesky(indefinite)
    np.testing.assert_allclose(lower @ lower.T, indefinite + 1e-5 * np.eye(3), atol=1e-9)


def test_jitter_is_relative_to_the_size_of_the_matrix():
    for size in (1e-8, 1.0, 1e8):
        np.testing.assert_allclose(
            linalg.jitter_used(size * singular()), linalg.jitter_used(singular())
        )


def test_a_hopeless_matrix_stays_nan_instead_of_looping():
    assert np.all(np.isnan(np.diag(linalg.cholesky(jnp.full((3, 3), jnp.nan)))))
    assert not np.all(np.isfinite(linalg.cholesky(-jnp.eye(3))))


def test_vmap_and_jit_change_nothing():
    stack = jnp.asarray(np.stack([positive_definite(0, 6), singular(), positive_definite(2, 6)]))
    singles = np.stack([linalg.cholesky(m) for m in stack])
    np.testing.assert_allclose(jax.jit(jax.vmap(linalg.cholesky))(stack), singles, atol=1e-12)
    jitters = jax.vmap(linalg.jitter_used)(stack)
    np.testing.assert_allclose(jitters, [linalg.jitter_used(m) for m in stack])
    batched = jax.jit(jax.vmap(jax.grad(lambda m: jnp.sum(linalg.cholesky(m)))))(stack)
    single = jax.grad(lambda m: jnp.sum(linalg.cholesky(m)))(stack[2])
    np.testing.assert_allclose(batched[2], single, atol=1e-10)
    assert np.all(np.isfinite(batched))


def test_whitener_is_the_inverse_of_the_factor_with_its_derivative():
    matrix, mask = jnp.asarray(positive_definite(0)), jnp.asarray(positive_definite(1))

    def plain(m):
        return jnp.linalg.inv(
            jnp.linalg.cholesky(m + 1e-10 * jnp.mean(jnp.diag(m)) * jnp.eye(len(m)))
        )

    np.testing.assert_allclose(linalg.whitener(matrix), plain(matrix), atol=1e-8)
    ours, theirs = (
        jax.jit(jax.grad(lambda m, f=f: jnp.sum(mask * f((m + m.T) / 2))))(matrix)
        for f in (linalg.whitener, plain)
    )
    np.testing.assert_allclose(ours, theirs, rtol=1e-6, atol=1e-9)
    singular_slope = jax.grad(lambda m: jnp.sum(linalg.whitener(m)))(jnp.asarray(singular()))
    assert np.all(np.isfinite(singular_slope))


def test_quadratic_has_the_derivatives_of_the_plain_form():
    rng = np.random.default_rng(0)
    S = jnp.asarray(np.stack([positive_definite(0), positive_definite(1)]))
    basis = jnp.asarray(rng.standard_normal((len(S[0]), 7)))
    mask = jnp.asarray(rng.standard_normal((2, 7)))

    def through(f):
        return lambda S, b: jnp.sum(mask * f((S + jnp.swapaxes(S, 1, 2)) / 2, jnp.sin(b)))

    ours, plain = (
        through(linalg.quadratic),
        through(lambda S, b: jnp.einsum("mn,pml,ln->pn", b, S, b)),
    )
    np.testing.assert_allclose(ours(S, basis), plain(S, basis), rtol=1e-12)
    for wrt in (0, 1, (0, 1)):
        slopes = (jax.tree.leaves(jax.jit(jax.grad(f, wrt))(S, basis)) for f in (ours, plain))
        for mine, theirs in zip(*slopes, strict=True):
            np.testing.assert_allclose(mine, theirs, atol=1e-10)
    bends = (jax.jit(jax.hessian(f, 1))(S, basis) for f in (ours, plain))
    np.testing.assert_allclose(*bends, atol=1e-10)


def test_the_slope_of_quadratic_costs_no_further_product():
    S, basis = jnp.eye(4)[None], jnp.ones((4, 7))
    slope = jax.grad(lambda b: jnp.sum(linalg.quadratic(S, b)))
    assert str(jax.make_jaxpr(slope)(basis)).count("dot_general") == 1


def test_inverse_factor_and_log_det():
    matrices = np.stack([positive_definite(0), positive_definite(1)])
    lower = np.linalg.cholesky(matrices)
    np.testing.assert_allclose(linalg.inverse_factor(lower), np.linalg.inv(lower), atol=1e-12)
    np.testing.assert_allclose(linalg.log_det(lower), np.linalg.slogdet(matrices)[1])
    np.testing.assert_allclose(linalg.inverse_factor(lower[0]), np.linalg.inv(lower[0]), atol=1e-12)


def test_float32_factor():
    with numerics("float32"):
        matrix = jnp.asarray(positive_definite(0), "float32")
        lower = linalg.cholesky(matrix)
        gradient = jax.grad(weighted_sum(linalg.cholesky))(matrix)
    assert lower.dtype == gradient.dtype == np.float32
    np.testing.assert_allclose(
        lower, np.linalg.cholesky(positive_definite(0)), rtol=2e-5, atol=1e-5
    )


def test_rungs_tried_together_find_what_the_ladder_finds():
    sound, flat = (jnp.asarray(m, jnp.float64) for m in (positive_definite(2), singular()))
    for matrix in (sound, flat):
        lower, relative = linalg._try_jitters_together(matrix, 1e-10)
        expected, used = linalg._try_jitters_in_turn(matrix, 1e-10)
        assert relative == used
        np.testing.assert_allclose(lower, expected, rtol=1e-12)


def test_rungs_tried_together_go_up_where_they_must():
    below = jnp.asarray(singular() - 1e-5 * np.eye(6), jnp.float64)
    lower, relative = linalg._try_jitters_together(below, 1e-10)
    assert jnp.all(jnp.isfinite(lower)) and relative == pytest.approx(1e-4)
    hopeless, _ = linalg._try_jitters_together(-jnp.eye(3, dtype=jnp.float64) * jnp.inf, 1e-10)
    assert not jnp.all(jnp.isfinite(hopeless))


@pytest.mark.parametrize("size", [1, 3, 50, 301])
def test_inverse_from_the_factor(size):
    matrix = positive_definite(2, size)
    lower = np.linalg.cholesky(matrix)
    upper, found = linalg.inverse_from(jnp.asarray(lower))
    np.testing.assert_allclose(upper, np.linalg.inv(lower).T, atol=1e-10)
    np.testing.assert_allclose(found, np.linalg.inv(matrix), atol=1e-10)
    np.testing.assert_allclose(found, found.T, atol=1e-12)
