"""The paper's experiments with default settings: small versions, and slow ones with seeds."""

import numpy as np
import pytest
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.gaussian_process.kernels import RBF, ConstantKernel, WhiteKernel
from sklearn.metrics import adjusted_rand_score

from dagp import DAGP, GP, Noise, datasets

REPORTING_SEEDS = range(100, 105)
long = pytest.mark.usefixtures("thorough")
"""Quick code is worth its compilation only where it runs for long."""


def rmse(a, b):
    return np.sqrt(np.mean((a - b) ** 2))


def ratio_to_oracle(outliers, seed, rows=1000):
    """RMSE of the signal process over that of an exact GP which knows the inliers."""
    data = datasets.noise_separation(outliers, n=rows, random_state=seed)
    model = DAGP(processes=[GP(), Noise()], random_state=seed).fit(data.X, data.y)
    inlier = data.process == 0
    kernel = ConstantKernel(1.0) * RBF(1.0) + WhiteKernel(0.02)
    oracle = GaussianProcessRegressor(kernel).fit(data.X[inlier], data.y[inlier])
    ours = model.processes_[0].predict(data.X_test)
    return rmse(ours, data.y_test) / rmse(oracle.predict(data.X_test), data.y_test)


def separates(seed):
    """Whether the multimodal example ends in three processes that match the truth."""
    data = datasets.multimodal(random_state=seed)
    model = DAGP(4, random_state=seed).fit(data.X, data.y)
    middle = (data.X[:, 0] > 0) & (data.X[:, 0] < 5)
    score = adjusted_rand_score(data.process[middle], model.assignment_[middle])
    return model.active_.sum() == 3 and score >= 0.95


fewer_rows = pytest.mark.parametrize("rows", [400, pytest.param(1000, marks=pytest.mark.slow)])


@fewer_rows
def test_noise_separation_once(rows):
    assert ratio_to_oracle(0.4, 100, rows) < 1.3


@fewer_rows
def test_noise_free_signals_are_found_exactly(rows):
    data = datasets.noise_separation(0.4, n=rows, noise=0.0, random_state=100)
    model = DAGP(processes=[GP(), Noise()], random_state=100).fit(data.X, data.y)
    assert rmse(model.processes_[0].predict(data.X_test), data.y_test) < 0.002
    assert np.mean(model.assignment_ == data.process) > 0.99


@long
@pytest.mark.slow
@pytest.mark.parametrize("outliers", [0.0, 0.2, 0.4])
def test_noise_separation(outliers):
    assert np.median([ratio_to_oracle(outliers, seed) for seed in REPORTING_SEEDS]) < 1.3


@long
@pytest.mark.slow
def test_multimodal():
    assert all(separates(seed) for seed in REPORTING_SEEDS)


@long
@pytest.mark.slow
def test_cartpole():
    data = datasets.cartpole(random_state=100)
    model = DAGP(2, random_state=100).fit(data.X, data.y)
    accuracy = np.mean(model.assignment_ == data.process)
    assert max(accuracy, 1 - accuracy) > 0.94
    assert model.log_score(data.X_test, data.y_test) > 0.6
