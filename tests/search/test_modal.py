"""Modal regression: a function along a mode of the data."""

import numpy as np
import pytest

from dagp.search.starts import MODE_WIDTH, closeness, modal_regression, random_basis


def wave_among_clutter(n=300, clutter=0.6, seed=0):
    """A sine, most points of it replaced by uniform clutter."""
    rng = np.random.default_rng(seed)
    X, lost = rng.uniform(-1.7, 1.7, (n, 1)), rng.uniform(size=n) < clutter
    y = np.sin(2 * X) + 0.03 * rng.standard_normal((n, 1))
    y[lost] = rng.uniform(-2, 2, (lost.sum(), 1))
    return X, y, lost


def best_of(A, y, weight, tries=12, seed=0):
    rng = np.random.default_rng(seed)
    found = [modal_regression(A, y, weight, rng) for _ in range(tries)]
    return max(found, key=lambda one: one[0])


def polynomials(X, degree=3):
    return X ** np.arange(degree + 1)


def test_closeness_is_a_gaussian_of_the_distance():
    residual = np.array([[0.0, 0.0], [MODE_WIDTH, 0.0], [0.6, 0.8]])
    np.testing.assert_allclose(closeness(residual)[:2], [1, np.exp(-0.5)])
    np.testing.assert_allclose(closeness(residual, 2.0)[2], np.exp(-0.125))


@pytest.mark.parametrize("D", [1, 2, 3])
def test_the_covariance_of_random_features_is_a_squared_exponential(D):
    rng = np.random.default_rng(0)
    X = rng.standard_normal((15, D))
    covariance = np.mean([A @ A.T for A in (random_basis(X, 0.8, rng) for _ in range(600))], axis=0)
    squares = np.sum((X[:, None] - X) ** 2, axis=2) / 0.8**2
    np.testing.assert_allclose(covariance, np.exp(-0.5 * squares), atol=0.05)


def test_a_function_is_found_that_most_points_do_not_belong_to():
    X, y, lost = wave_among_clutter()
    A = random_basis(X, 0.5, np.random.default_rng(0))
    on, coefficients = best_of(A, y, np.ones(300))
    missed = np.abs(A @ coefficients - np.sin(2 * X))
    assert np.quantile(missed, 0.9) < 0.15
    assert (~lost).sum() * 0.8 < on < (~lost).sum() + 0.25 * lost.sum()
    # An average of the points misses it.
    plain = np.linalg.lstsq(A, y)[0]
    assert np.quantile(np.abs(A @ plain - np.sin(2 * X)), 0.9) > 0.3


def test_all_outputs_count():
    X, y, lost = wave_among_clutter(clutter=0.4)
    rng = np.random.default_rng(0)
    # The second output is clutter where the first is on the function, and the other way round.
    other = np.where(lost[:, None], 0.5, rng.uniform(-2, 2, (300, 1)))
    both = (~lost) & (rng.uniform(size=300) < 0.7)
    other[both] = 0.5
    A = polynomials(X, 5)
    on, coefficients = best_of(A, np.hstack([y, other]), np.ones(300))
    assert coefficients.shape == (6, 2)
    near = closeness(np.hstack([y, other]) - A @ coefficients) > 0.5
    assert near[both].mean() > 0.9
    assert near[~both].mean() < 0.2
    assert on == pytest.approx(both.sum(), rel=0.2)


def test_of_two_modes_the_heavier_is_the_best():
    X = np.linspace(-1, 1, 100)[:, None]
    y = np.where(np.arange(100) % 2, 1.0, -1.0)[:, None]
    for heavy in (1.0, -1.0):
        weight = np.where(y[:, 0] == heavy, 3.0, 1.0)
        on, coefficients = best_of(polynomials(X), y, weight)
        np.testing.assert_allclose(polynomials(X) @ coefficients, heavy, atol=0.05)
        assert on == pytest.approx(150, rel=0.02)


def test_a_weight_counts_as_so_many_rows_and_none_as_no_row():
    X, y, _ = wave_among_clutter(60)
    times = np.random.default_rng(0).integers(0, 3, 60)
    A = polynomials(X)
    one = modal_regression(A, y, times.astype(float), np.random.default_rng(0))
    A, y = np.repeat(A, times, axis=0), np.repeat(y, times, axis=0)
    other = modal_regression(A, y, np.ones(len(y)), np.random.default_rng(0))
    assert one[0] == pytest.approx(other[0])
    np.testing.assert_allclose(one[1], other[1], atol=1e-8)


@pytest.mark.parametrize("n", [1, 2, 50])
def test_equal_rows_lie_on_the_function(n):
    A = polynomials(np.full((n, 1), 0.5))
    on, coefficients = best_of(A, np.full((n, 1), 0.7), np.full(n, 2.0))
    assert on == pytest.approx(2 * n, rel=0.01)
    np.testing.assert_allclose(A @ coefficients, 0.7, atol=0.02)


def test_without_any_weight_nothing_lies_on_the_function():
    X, y, _ = wave_among_clutter(30)
    on, coefficients = modal_regression(polynomials(X), y, np.zeros(30), np.random.default_rng(0))
    assert on == 0.0
    np.testing.assert_array_equal(coefficients, 0.0)
