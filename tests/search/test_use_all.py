"""Exact inference in place of inducing inputs, and rows that clutter should not have."""

import numpy as np
import pytest
from searched import begun

from dagp import DAGP, GP, Noise
from dagp.core.precision import numerics
from dagp.inference.problem import Problem, Start, build
from dagp.inference.standardize import Sample, Units
from dagp.model.kernels import Matern52
from dagp.search.exact import _little_clutter, use_all

RNG = np.random.default_rng(0)
X = RNG.uniform(-1, 1, (60, 2))
WAVY = np.sin(6 * X[:, :1]) + np.cos(5 * X[:, 1:]) + 0.02 * RNG.standard_normal((60, 1))


@pytest.fixture(autouse=True)
def precision():
    with numerics("float64"):
        yield


def test_wrong_rows_are_not_reclaimed():
    wrong = np.arange(60) % 6 == 0
    y = WAVY + 8.0 * wrong[:, None] * RNG.choice([-1, 1], (60, 1))
    model = DAGP(processes=[GP(), Noise()], inducing=16, n_init=2, tol=1e-2, random_state=0)
    model.fit(X, y)
    assert np.mean(model.responsibilities_[wrong, 1]) > 0.9


def test_candidates_of_the_exact_fit_find_the_outliers():
    wrong = np.array([4, 20, 33])
    y = WAVY.copy()
    y[wrong] += 6.0
    sample = Sample(X, y, np.ones(60), np.full(60, -1))
    problem = Problem(sample, Units.of(sample, False), (GP(), Noise()), "constant", X)
    model = build(problem, Start("given", np.full((60, 2), 0.5), 1.0, 0.2))
    shares = _little_clutter(problem, model, np.full((60, 2), 0.5))
    assert set(wrong) <= set(np.flatnonzero(shares[:, 1] > 0.5))
    assert np.allclose(shares.sum(axis=1), 1)


def test_details_are_found_that_much_noise_would_explain():
    """Begun with much noise only, the second input is taken for noise (bound 57)."""
    inputs = np.random.default_rng(0).uniform(-1.7, 1.7, (60, 2))
    y = inputs[:, :1] + 0.1 * np.sin(9 * inputs[:, 1:])
    sample = Sample(inputs, y / y.std(), np.ones(60), np.full(60, -1))
    places = inputs[:4]
    problem = Problem(sample, Units.of(sample, False), (GP(Matern52()),), "constant", places)
    solution, trainer = begun(problem, np.ones((60, 1)), 6, 1.4, 0.2)
    use_all(solution, trainer._replace(tol=1e-4))
    assert solution.bound > 140
    assert len(solution.problem.inducing) == 60
    noise = np.sqrt(np.asarray(solution.state.model.process(0).noise_variance()))
    assert noise < 0.01


@pytest.mark.parametrize("inducing", ["some", "none"])
def test_other_words_for_inducing_are_refused(inducing):
    with pytest.raises(ValueError, match='inducing must be "auto", "all"'):
        DAGP(1, inducing=inducing, n_init=1).fit(X, WAVY[:, 0])
