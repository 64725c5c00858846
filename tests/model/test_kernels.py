"""Every kernel passes the same property tests; known values come from scikit-learn."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.gaussian_process import kernels as sk

from dagp import kernels as dk
from dagp.model.parameters import is_parameter

pytestmark = pytest.mark.usefixtures("float64")

SE = dk.SquaredExponential(lengthscale=0.7, variance=1.3)
LEAVES = {
    "squared exponential": SE,
    "squared exponential, ARD": dk.SquaredExponential([0.5, 2.0, 9.0], 0.4),
    "squared exponential, active": dk.SquaredExponential([0.5, 2.0], 0.4, active=[2, 0]),
    "matern 1/2": dk.Matern12(0.7, 1.3),
    "matern 3/2": dk.Matern32(0.7, 1.3),
    "matern 5/2": dk.Matern52([0.7, 1.0, 2.0], 1.3),
    "rational quadratic": dk.RationalQuadratic(0.7, 1.3, alpha=0.6),
    "periodic": dk.Periodic(period=1.7, lengthscale=0.9, variance=1.3),
    "periodic, active": dk.Periodic(period=1.7, lengthscale=0.9, variance=1.3, active=[1]),
    "linear": dk.Linear(variance=1.3),
    "linear, ARD": dk.Linear(variance=[1.3, 0.2, 0.5]),
    "linear, active": dk.Linear(variance=1.3, active=[-1]),
    "constant": dk.Constant(1.3),
    "white": dk.White(1.3),
}
COMBINED = {
    "sum": SE + dk.Linear(0.4, active=[1]),
    "sum with a number": SE + 0.5,
    "number plus kernel": 0.5 + SE,
    "product": dk.Matern32(0.7, 1.3, active=[0]) * dk.Periodic(1.7, 0.9, 0.5, active=[1]),
    "product of lines": dk.Linear(0.3) * dk.Linear(0.4, active=[0]),
    "number times kernel": 2.0 * SE,
    "kernel times integer": SE * 2,
    "nested": 2.0 * (SE + dk.White(0.1)) * dk.Matern12(0.5, 1.1, active=[2]) + dk.Constant(0.2),
}
KERNELS = LEAVES | COMBINED
every_kernel = pytest.mark.parametrize("kernel", KERNELS.values(), ids=KERNELS.keys())


def inputs(seed: int, n: int = 6) -> np.ndarray:
    return np.random.default_rng(seed).uniform(-2, 2, (n, 3))


@jax.jit
def views(kernel, X):
    """The whole matrix, a part of it computed alone, and the diagonal."""
    return kernel(X, X), kernel(X[:3], X[2:]), kernel.diagonal(X)


@every_kernel
@given(seed=st.integers(0, 10_000), size=st.sampled_from([0.1, 1.0, 10.0]))
@settings(max_examples=8)
def test_symmetric_positive_semidefinite_and_diagonal(kernel, seed, size):
    X = size * inputs(seed)
    X[4:] = X[:2]
    K, part, diagonal = map(np.asarray, views(kernel, X))
    np.testing.assert_allclose(K, K.T, rtol=1e-12, atol=1e-12)
    assert np.linalg.eigvalsh(K).min() > -1e-10 * np.trace(K)
    np.testing.assert_allclose(diagonal, np.diag(K), rtol=1e-12)
    # An entry depends on its two rows only.
    np.testing.assert_allclose(part, K[:3, 2:], rtol=1e-12, atol=1e-14)


ONE_INPUT = {
    "squared exponential, one input": dk.SquaredExponential(0.7, 1.3, active=[1]),
    "matern 5/2, one input": dk.Matern52(0.7, 1.3, active=[1]),
}


@pytest.mark.parametrize("kernel", (LEAVES | ONE_INPUT).values(), ids=(LEAVES | ONE_INPUT).keys())
def test_a_matrix_has_the_values_and_slopes_of_its_pairs(kernel):
    A, B = map(jnp.asarray, (inputs(0, 4), inputs(1, 5)))
    mask = jnp.asarray(np.random.default_rng(2).standard_normal((4, 5)))

    def pairs(kernel, A, B):
        return dk.Kernel.matrix(kernel, kernel.select(A), kernel.select(B))

    def value_and_slopes(f):
        def masked(kernel, A, B):
            value = f(kernel, A, B)
            return jnp.sum(mask * value), value

        return jax.jit(jax.grad(masked, argnums=(0, 1, 2), has_aux=True))(kernel, A, B)

    slopes, values = zip(*map(value_and_slopes, (type(kernel).__call__, pairs)), strict=True)
    np.testing.assert_allclose(*values, rtol=1e-10)
    for mine, theirs in zip(*map(jax.tree.leaves, slopes), strict=True):
        np.testing.assert_allclose(mine, theirs, atol=1e-10)


@every_kernel
def test_gradients_are_finite_also_at_zero_distance(kernel):
    X = jnp.asarray(np.concatenate([inputs(0, 3), inputs(0, 3)]))

    def total(kernel, X):
        return jnp.sum(kernel(X, X) ** 2) + jnp.sum(kernel.diagonal(X))

    for leaf in jax.tree.leaves(jax.jit(jax.grad(total, argnums=(0, 1)))(kernel, X)):
        assert np.all(np.isfinite(leaf))


S = 1.3
SCIKIT = {
    "squared exponential": S * sk.RBF(0.7),
    "squared exponential, ARD": 0.4 * sk.RBF([0.5, 2.0, 9.0]),
    "matern 1/2": S * sk.Matern(0.7, nu=0.5),
    "matern 3/2": S * sk.Matern(0.7, nu=1.5),
    "matern 5/2": S * sk.Matern([0.7, 1.0, 2.0], nu=2.5),
    "rational quadratic": S * sk.RationalQuadratic(0.7, alpha=0.6),
    "linear": S * sk.DotProduct(sigma_0=0.0),
    "constant": sk.ConstantKernel(S),
    "sum with a number": S * sk.RBF(0.7) + 0.5,
    "number plus kernel": S * sk.RBF(0.7) + 0.5,
    "number times kernel": 2 * S * sk.RBF(0.7),
    "kernel times integer": 2 * S * sk.RBF(0.7),
}


@jax.jit
def between(kernel, A, B):
    return kernel(A, B), kernel(A, A)


@pytest.mark.parametrize("name", SCIKIT)
def test_values_are_scikit_learns(name):
    A, B = inputs(1), inputs(2, 4)
    other, same = between(KERNELS[name], A, B)
    np.testing.assert_allclose(other, SCIKIT[name](A, B), rtol=1e-10)
    np.testing.assert_allclose(same, SCIKIT[name](A), rtol=1e-10)


def test_periodic_is_scikit_learns_in_one_dimension_and_a_product_in_several():
    A, B = inputs(1), inputs(2, 4)
    theirs = S * sk.ExpSineSquared(length_scale=0.9, periodicity=1.7)
    np.testing.assert_allclose(KERNELS["periodic, active"](A, B), theirs(A[:, 1:2], B[:, 1:2]))
    columns = [sk.ExpSineSquared(0.9, 1.7)(A[:, [d]], B[:, [d]]) for d in range(3)]
    np.testing.assert_allclose(KERNELS["periodic"](A, B), S * np.prod(columns, axis=0))


def test_white_is_scikit_learns_where_inputs_are_the_same_and_zero_elsewhere():
    A = inputs(1)
    np.testing.assert_allclose(KERNELS["white"](A, A), sk.WhiteKernel(S)(A))
    np.testing.assert_array_equal(KERNELS["white"](A, inputs(2)), np.zeros((6, 6)))


def test_active_columns_and_combinations_by_hand():
    A, B = inputs(1), inputs(2, 4)
    select = [2, 0]
    expected = 0.4 * sk.RBF([0.5, 2.0])(A[:, select], B[:, select])
    np.testing.assert_allclose(KERNELS["squared exponential, active"](A, B), expected)
    np.testing.assert_allclose(KERNELS["linear, active"](A, B), S * A[:, 2:] @ B[:, 2:].T)
    np.testing.assert_allclose(KERNELS["linear, ARD"](A, B), (A * [1.3, 0.2, 0.5]) @ B.T)
    first, second = S * sk.Matern(0.7, nu=1.5), 0.5 * sk.ExpSineSquared(0.9, 1.7)
    expected = first(A[:, :1], B[:, :1]) * second(A[:, 1:2], B[:, 1:2])
    np.testing.assert_allclose(KERNELS["product"](A, B), expected)
    expected = S * sk.RBF(0.7)(A, B) + 0.4 * A[:, 1:2] @ B[:, 1:2].T
    np.testing.assert_allclose(KERNELS["sum"](A, B), expected)


def test_active_inside_a_combination_that_is_itself_evaluated_on_all_columns():
    both = dk.Linear(1.0, active=[1]) + dk.Linear(1.0, active=[2])
    A = inputs(3)
    np.testing.assert_allclose(both(A, A), A[:, 1:] @ A[:, 1:].T)


@every_kernel
@given(seed=st.integers(0, 1000), y_unit=st.sampled_from([1e-3, 0.3, 50.0]))
@settings(max_examples=4)
def test_in_units_is_the_same_kernel_on_standardised_inputs(kernel, seed, y_unit):
    rng = np.random.default_rng(seed)
    x_unit = np.exp(rng.uniform(-3, 3, 3))
    # A line goes through the centre of the data, so the data are centred here.
    X = inputs(seed) * [1.0, 2.0, 0.5]
    standardised = kernel.in_units(x_unit, 2 * np.log(y_unit), lengthscale=0.123)
    for ours, users in zip(views(standardised, X / x_unit), views(kernel, X), strict=True):
        np.testing.assert_allclose(y_unit**2 * ours, users, rtol=1e-8, atol=1e-12)


@pytest.mark.parametrize(
    "make", [dk.SquaredExponential, dk.Matern12, dk.Matern32, dk.Matern52, dk.RationalQuadratic]
)
def test_what_nobody_stated_starts_in_standardised_units(make):
    x_unit = np.array([0.1, 1.0, 30.0])
    kernel = make().in_units(x_unit, np.log(49.0), lengthscale=0.25)
    np.testing.assert_allclose(kernel.lengthscale.value, [0.25] * 3)
    np.testing.assert_allclose(kernel.lengthscale.in_user_units, 0.25 * x_unit)
    np.testing.assert_allclose(kernel.variance.value, 1.0)
    np.testing.assert_allclose(kernel.variance.in_user_units, 49.0)
    some = make(active=[2, 0]).in_units(x_unit, np.log(49.0), lengthscale=0.25)
    np.testing.assert_allclose(some.lengthscale.in_user_units, 0.25 * x_unit[[2, 0]])


def test_stated_scalar_and_number_are_the_users():
    kernel = (4.0 * dk.Matern32()).in_units(np.array([10.0]), np.log(100.0), lengthscale=0.5)
    np.testing.assert_allclose(kernel.first.variance.in_user_units, 4.0)
    np.testing.assert_allclose(kernel.diagonal(np.zeros((1, 1))) * 100.0, [4.0])


@every_kernel
def test_parameter_that_is_not_a_number_shows(kernel):
    leaves, tree = jax.tree.flatten(kernel, is_leaf=is_parameter)
    for i, leaf in enumerate(leaves):
        lost = dataclasses.replace(leaf, raw=jnp.full_like(leaf.raw, jnp.nan))
        damaged = jax.tree.unflatten(tree, [*leaves[:i], lost, *leaves[i + 1 :]])
        assert np.isnan(damaged(inputs(0), inputs(0))).any()


REPRS = {
    "squared exponential": "SquaredExponential(lengthscale=0.7, variance=1.3)",
    "squared exponential, active": (
        "SquaredExponential(lengthscale=[0.5, 2], variance=0.4, active=[2, 0])"
    ),
    "number times kernel": (
        "Constant(variance=2) * SquaredExponential(lengthscale=0.7, variance=1.3)"
    ),
    "sum": "SquaredExponential(lengthscale=0.7, variance=1.3) + Linear(variance=0.4, active=[1])",
}


@pytest.mark.parametrize("name", REPRS)
def test_repr(name):
    assert repr(KERNELS[name]) == REPRS[name]


@every_kernel
def test_repr_can_be_read_back(kernel):
    again = eval(repr(kernel), vars(dk))
    for ours, users in zip(views(again, inputs(0)), views(kernel, inputs(0)), strict=True):
        np.testing.assert_allclose(ours, users, rtol=1e-3)


@every_kernel
def test_parameters_are_found_in_the_tree(kernel):
    nodes = jax.tree.leaves(kernel, is_leaf=is_parameter)
    assert nodes and all(is_parameter(node) for node in nodes)


@pytest.mark.parametrize(("a", "b"), [((3,), (3, 1)), ((2, 1), (2, 2)), ((1, 2, 1), (2, 1))])
def test_wrong_shapes(a, b):
    with pytest.raises((ValueError, TypeError)):
        SE(np.zeros(a), np.zeros(b))
