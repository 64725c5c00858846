"""`RobustGPR`: wrong readings are found, and without any it is GP regression."""

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.gaussian_process.kernels import Matern, WhiteKernel

from dagp import DAGP, RobustGPR, datasets

RNG = np.random.default_rng(0)
X = RNG.uniform(-1, 1, (60, 2))
CLEAN = np.sin(3 * X[:, 0]) + X[:, 1] ** 2 + 0.05 * RNG.standard_normal(60)
WRONG = np.array([3, 17, 40, 41, 55])
Y = CLEAN.copy()
Y[WRONG] += [3, -4, 5, 3, -6]
GRID = RNG.uniform(-0.9, 0.9, (40, 2))
TRUTH = np.sin(3 * GRID[:, 0]) + GRID[:, 1] ** 2


@pytest.fixture(scope="module")
def fitted():
    return RobustGPR(n_init=2, random_state=0).fit(X, Y)


def test_wrong_readings_are_found_and_ignored(fitted):
    assert set(WRONG) <= set(np.flatnonzero(fitted.outliers_))
    assert fitted.outliers_.sum() <= len(WRONG) + 1
    assert np.all(fitted.outlier_probability_[WRONG] > 0.9)
    assert np.sqrt(np.mean((fitted.predict(GRID) - TRUTH) ** 2)) < 0.08
    assert fitted.score(GRID, TRUTH) > 0.98


def test_the_final_fit_is_exact(fitted):
    """A GP with the same hyperparameters, readings weighted by how likely they are right."""
    signal = fitted.model_.posterior_.model.process(0)
    assert len(signal.latent.inducing.raw) == len(X)
    kernel = np.asarray(fitted.kernel_(X, X), np.float64)
    noise = fitted.noise_std_[0] ** 2 / np.maximum(1 - fitted.outlier_probability_, 1e-12)
    centre = float(fitted.model_.posterior_.units.y_centre[0])
    weights = np.linalg.solve(kernel + np.diag(noise), Y - centre)
    expected = centre + np.asarray(fitted.kernel_(GRID, X)) @ weights
    assert np.allclose(fitted.predict(GRID), expected, atol=1e-3)


def test_readings_without_noise():
    """The jitter of the inducing covariance must not count as noise of the readings."""
    inputs = np.random.default_rng(0).uniform(-1, 1, (40, 2))
    outputs = np.sin(3 * inputs[:, 0]) + inputs[:, 1]
    outputs[[3, 9]] += 4.0
    model = RobustGPR(n_init=1, tol=1e-2, random_state=0).fit(inputs, outputs)
    assert np.array_equal(np.flatnonzero(model.outliers_), [3, 9])
    error = model.predict(GRID) - (np.sin(3 * GRID[:, 0]) + GRID[:, 1])
    assert np.sqrt(np.mean(error**2)) < 0.02


def test_almost_no_noise_and_hyperparameters_that_would_run_away():
    """A linear input asks for an ever larger variance: rounding must not end the fit early."""
    rng = np.random.default_rng(1)
    inputs = rng.uniform(-1, 1, (40, 2))
    outputs = np.sin(3 * inputs[:, 0]) + inputs[:, 1]
    outputs = outputs + 1e-4 * outputs.std() * rng.standard_normal(40)
    outputs[[3, 9]] += 4.0
    model = RobustGPR(random_state=1).fit(inputs, outputs)
    assert np.array_equal(np.flatnonzero(model.outliers_), [3, 9])
    assert model.lower_bound_ > 100
    error = model.predict(GRID) - (np.sin(3 * GRID[:, 0]) + GRID[:, 1])
    assert np.sqrt(np.mean(error**2)) < 0.005


def test_without_wrong_readings_it_is_gp_regression():
    robust = RobustGPR(n_init=2, random_state=0).fit(X, CLEAN)
    assert not robust.outliers_.any()
    exact = GaussianProcessRegressor(
        Matern(np.ones(2), nu=2.5) + WhiteKernel(0.01), normalize_y=True
    ).fit(X, CLEAN)
    error, other = (np.mean(np.abs(m.predict(GRID) - TRUTH)) for m in (robust, exact))
    assert error < 1.2 * other


def test_errors_that_clutter_would_not_make_are_still_wrong():
    """They lie close to the function, but to believe them would spoil it for the other rows."""
    rng = np.random.default_rng(0)
    outputs = np.sin(3 * X[:, 0]) + X[:, 1] ** 2 + 0.02 * rng.standard_normal(60)
    outputs[WRONG] += [0.3, -0.25, 0.4, 0.35, -0.3]
    model = RobustGPR(n_init=2, random_state=0).fit(X, outputs)
    assert np.array_equal(np.flatnonzero(model.outliers_), WRONG)
    assert np.mean(np.abs(model.predict(GRID) - TRUTH)) < 0.02


def test_std_covariance_and_draws_belong_together(fitted):
    mean, std = fitted.predict(GRID, return_std=True)
    again, covariance = fitted.predict(GRID, return_cov=True)
    assert np.allclose(mean, again)
    assert np.allclose(np.sqrt(np.diag(covariance)), std, rtol=1e-5)
    draws = fitted.sample_y(GRID, 400, random_state=1)
    assert draws.shape == (40, 400)
    assert np.allclose(draws.mean(axis=1), mean, atol=5 * std.max() / 20)
    with pytest.raises(ValueError, match="At most one"):
        fitted.predict(GRID, return_std=True, return_cov=True)


def test_the_density_is_that_of_a_good_reading(fitted):
    mixture = fitted.predict_mixture(GRID)
    mean, std = fitted.predict(GRID, return_std=True)
    assert np.allclose(mixture.mean(), mean)
    assert np.allclose(mixture.variance(), std**2 + fitted.noise_std_[0] ** 2)


def test_several_outputs_and_clone():
    both = np.column_stack([Y, CLEAN])
    model = clone(RobustGPR(n_init=1, tol=1e-2, random_state=0)).fit(X, both)
    assert isinstance(model.model_, DAGP)
    assert model.predict(GRID).shape == (40, 2)
    assert model.predict(GRID, return_cov=True)[1].shape == (40, 40, 2)
    assert model.sample_y(GRID, 3).shape == (40, 2, 3)


@pytest.mark.parametrize("kind", datasets.corrupted.CORRUPTIONS)
def test_corrupt_marks_what_it_changes(kind):
    inputs, outputs, wrong = datasets.corrupt(X, CLEAN, kind, share=0.2, random_state=0)
    changed = (outputs != CLEAN) | np.any(inputs != X, axis=1)
    assert np.array_equal(changed, wrong)
    assert wrong.sum() == (0 if kind == "none" else 12)
    if kind in ("uniform", "asymmetric"):
        off = (outputs - CLEAN)[wrong] / CLEAN.std()
        assert np.all((np.abs(off) >= 3) & (np.abs(off) <= 9))
        assert (off > 0).any() == (kind == "uniform")


@pytest.mark.parametrize("wrong", [{"kind": "sideways"}, {"share": 1.5}])
def test_corrupt_refuses_in_words(wrong):
    with pytest.raises(ValueError, match=next(iter(wrong))):
        datasets.corrupt(X, CLEAN, **wrong)


def test_data_sets_hold_what_they_say():
    one, ten = datasets.neal(random_state=0), datasets.friedman(inputs=10, random_state=0)
    assert one.X.shape == (100, 1)
    assert ten.X.shape == (100, 10)
    for data in (one, ten):
        assert data.process.sum() == 10
    clean = datasets.friedman(inputs=5, noise=0.0, corruption="none", random_state=0)
    a, b, c, d, e = clean.X.T
    truth = 10 * np.sin(np.pi * a * b) + 20 * (c - 0.5) ** 2 + 10 * d + 5 * e
    assert np.allclose(clean.y, truth)
    with pytest.raises(ValueError, match="inputs"):
        datasets.friedman(inputs=4)
