"""Leveraged regression against exact Gaussian processes."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from reference import differences, exact_gp, squared_exponential

from dagp import datasets, kernels
from dagp.baselines import lgpr
from dagp.baselines.lgpr import LGPR
from dagp.baselines.optimise import full_batch
from dagp.core.precision import numerics
from dagp.model.gp import NOISE_FLOOR
from dagp.model.parameters import parameter

LENGTHSCALE, VARIANCE, NOISE = 0.6, 1.4, 0.05
RNG = np.random.default_rng(0)
X = RNG.uniform(-2, 2, (12, 1))
Y = np.sin(2 * X[:, 0]) + 0.2 * RNG.standard_normal(12)
NEW = np.linspace(-3, 3, 9)[:, None]


@pytest.fixture(autouse=True, scope="module")
def climate():
    with numerics("float64"):
        yield


def leveraged(leverages) -> Any:
    model = lgpr.LeveragedGP(
        kernels.SquaredExponential(
            lengthscale=parameter(LENGTHSCALE), variance=parameter(VARIANCE)
        ),
        parameter(np.sqrt(NOISE - NOISE_FLOOR**2)),
        parameter(np.arccos(leverages), support="real"),
    )
    return jax.tree.map(jnp.asarray, model)


def covariance(A, B):
    return squared_exponential(A, B, LENGTHSCALE, VARIANCE)


def factor(a, b):
    return np.cos(np.pi / 2 * (a[:, None] - b[None, :]))


@pytest.mark.parametrize("leverages", [np.ones(12), RNG.uniform(-1, 1, 12)])
def test_it_is_exact_regression_with_a_leveraged_kernel(leverages):
    found = lgpr.condition(leveraged(leverages), full_batch(X, Y))
    expected = exact_gp(
        covariance(X, X) * factor(leverages, leverages),
        Y,
        NOISE,
        covariance(NEW, X) * factor(np.ones(9), leverages),
        np.full(9, VARIANCE),
    )
    assert float(found.evidence) == pytest.approx(expected.evidence, rel=1e-7)
    predicted = lgpr._predict(found, jnp.asarray(NEW))
    np.testing.assert_allclose(predicted.means[:, 0], expected.mean, atol=1e-6)
    np.testing.assert_allclose(predicted.variances[:, 0], expected.variance, atol=1e-6)
    np.testing.assert_allclose(predicted.noise_variances, NOISE)


def test_all_leverages_at_one_are_a_plain_gp():
    found = lgpr.condition(leveraged(np.ones(12)), full_batch(X, Y))
    expected = exact_gp(covariance(X, X), Y, NOISE, covariance(NEW, X), np.full(9, VARIANCE))
    assert float(found.evidence) == pytest.approx(expected.evidence, rel=1e-7)
    predicted = lgpr._predict(found, jnp.asarray(NEW))
    np.testing.assert_allclose(predicted.means[:, 0], expected.mean, atol=1e-6)


@given(st.lists(st.floats(-1, 1), min_size=8, max_size=8))
def test_leverages_keep_the_kernel_positive_semi_definite(leverages):
    model = leveraged(np.array(leverages))
    values = np.linalg.eigvalsh(np.asarray(model.covariance(jnp.asarray(X[:8]))))
    assert values[0] > 0.99 * NOISE


def test_opposite_leverages_are_evidence_against():
    model = leveraged(-np.ones(12))
    against = lgpr._predict(lgpr.condition(model, full_batch(X, Y)), jnp.asarray(NEW)).means
    support = lgpr._predict(
        lgpr.condition(leveraged(np.ones(12)), full_batch(X, Y)), jnp.asarray(NEW)
    ).means
    np.testing.assert_allclose(against, -support, atol=1e-9)
    nothing = lgpr._predict(
        lgpr.condition(leveraged(np.zeros(12)), full_batch(X, Y)), jnp.asarray(NEW)
    )
    np.testing.assert_allclose(nothing.means, 0.0, atol=1e-9)
    np.testing.assert_allclose(nothing.variances, VARIANCE)


def test_slopes_of_the_evidence():
    K = covariance(X, X) + NOISE * np.eye(12)
    direction = np.exp(-np.abs(X - X.T))
    by_covariance, by_outputs = jax.grad(lgpr.log_evidence, (0, 1))(jnp.asarray(K), jnp.asarray(Y))
    along = differences(lambda t: exact_gp(K + t * direction, Y, 0.0).evidence, np.array(0.0))
    np.testing.assert_allclose(np.sum(by_covariance * direction), along, rtol=1e-4)
    expected = differences(lambda y: exact_gp(K, y, 0.0).evidence, Y)
    np.testing.assert_allclose(by_outputs, expected, rtol=1e-4, atol=1e-6)


def test_the_objective_is_evidence_less_penalty():
    leverages = RNG.uniform(-1, 1, 12)
    model = leveraged(leverages)
    evidence = float(lgpr.condition(model, full_batch(X, Y)).evidence)
    found = float(lgpr.objective((model, jnp.asarray(2.0)), full_batch(X, Y)))
    assert found == pytest.approx(evidence - 2 * np.sum(1 - leverages))


def test_a_heavy_penalty_leaves_an_ordinary_gp():
    model = LGPR(leverage_penalty=1e3, random_state=0).fit(10 * X, 5 * Y + 3)
    assert np.all(model.leverages_ > 1 - 1e-3)
    kernel: Any = model.kernel_
    args = (np.asarray(kernel.lengthscale.in_user_units), float(kernel.variance.in_user_units))
    expected = exact_gp(
        squared_exponential(10 * X, 10 * X, *args),
        5 * Y + 3 - model.units_.y_centre[0],
        model.noise_std_**2,
        squared_exponential(10 * NEW, 10 * X, *args),
        np.full(9, args[1]),
    )
    mean = expected.mean + model.units_.y_centre[0]
    np.testing.assert_allclose(model.predict(10 * NEW), mean, atol=1e-2)
    mixture = model.predict_mixture(10 * NEW, noise=False)
    np.testing.assert_allclose(mixture.variances[:, 0], expected.variance, atol=1e-2)
    assert mixture.weights.shape == (9, 1)


def test_flipped_points_lose_their_leverage():
    rng = np.random.default_rng(0)
    x = np.sort(rng.uniform(0, 6, 60))
    flipped = np.arange(60) % 12 == 5
    y = np.where(flipped, -2, 2) * np.sin(x) + 0.1 * rng.standard_normal(60)
    model = LGPR(random_state=0).fit(x[:, None], y)
    clear = np.abs(np.sin(x)) > 0.5
    assert np.median(model.leverages_[flipped & clear]) < 0.2
    assert model.leverages_[~flipped].min() > 0.9
    grid = np.linspace(0.5, 5.5, 50)
    error = np.sqrt(np.mean((model.predict(grid[:, None]) - 2 * np.sin(grid)) ** 2))
    plain = LGPR(leverage_penalty=1e3, random_state=0).fit(x[:, None], y)
    worse = np.sqrt(np.mean((plain.predict(grid[:, None]) - 2 * np.sin(grid)) ** 2))
    assert error < 0.9 * worse


def test_outliers_lose_leverage():
    data = datasets.noise_separation(0.2, noise=0, n=150, random_state=0)
    model = LGPR(random_state=0).fit(data.X, data.y)
    inlier = data.process == 0
    assert model.leverages_[inlier].mean() > model.leverages_[~inlier].mean() + 0.1
    assert np.all(np.abs(model.leverages_) <= 1)


@pytest.mark.parametrize(
    ("settings", "word"),
    [
        ({"leverage_penalty": -1.0}, "leverage_penalty"),
        ({"max_iter": 0}, "max_iter"),
        ({"tol": "small"}, "tol"),
        ({"kernel": "smooth"}, "kernel"),
        ({"kernel": kernels.Linear(active=(3,))}, "column"),
    ],
)
def test_bad_settings_are_refused(settings, word):
    with pytest.raises(ValueError, match=word):
        LGPR(**settings).fit(X, Y)
