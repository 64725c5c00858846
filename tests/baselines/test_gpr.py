"""Sparse GP regression as a rival."""

import numpy as np
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.gaussian_process.kernels import RBF, ConstantKernel, WhiteKernel

from dagp import datasets
from dagp.baselines.gpr import GPR


def test_with_many_inducing_points_it_is_the_exact_gp():
    rng = np.random.default_rng(0)
    X = rng.uniform(-3, 3, (80, 1))
    y = np.sin(2 * X[:, 0]) + 0.1 * rng.standard_normal(80)
    model = GPR(inducing=30, random_state=0).fit(X, y)
    exact = GaussianProcessRegressor(ConstantKernel() * RBF() + WhiteKernel(0.01)).fit(X, y)
    grid = np.linspace(-3, 3, 50)[:, None]
    mean, std = exact.predict(grid, return_std=True)
    found, spread = model.predict(grid, return_std=True)
    np.testing.assert_allclose(found, mean, atol=0.02)
    np.testing.assert_allclose(spread, std, rtol=0.15)
    assert model.model_.lower_bound_ < exact.log_marginal_likelihood_value_ + 1


def test_outliers_pull_it():
    data = datasets.noise_separation(0.4, noise=0.0, n=400, random_state=0)
    error = GPR(random_state=0).fit(data.X, data.y).predict(data.X_test) - data.y_test
    assert 0.3 < np.sqrt(np.mean(error**2)) < 0.6
