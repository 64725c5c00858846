"""Starts, usage and streams beside huge values and weights."""

import numpy as np
import pytest

from dagp import GP
from dagp.core.errors import FitError
from dagp.inference.standardize import Sample, Units
from dagp.search.factory import Problem, Start, build
from dagp.search.fit import _check_distributions
from dagp.search.regressions import Basis, Rows, annealed_em
from dagp.search.tracking import CHECKED, follow
from dagp.search.usage import in_use


def test_responsibilities_of_one_count_in_single_precision():
    certain = np.eye(2, dtype=np.float32)[[0, 0, 1]]
    np.testing.assert_array_equal(in_use(certain, np.ones(3)), [True, True])


def test_tracking_goes_on_beside_a_huge_value():
    rng = np.random.default_rng(0)
    x = np.linspace(0, 1, 3 * CHECKED)
    y = np.sin(6 * x)[:, None]
    y[2] = 1e12
    there, back = follow(x, y, 2, False, rng)
    assert len(there.member) == len(back.member) == len(x)


def test_a_regression_with_huge_weights_has_a_solution():
    # A constant and a linear term that are proportional: without a ridge there is no solution.
    X, weight = np.full((8, 1), 2.0**27), np.full(8, 2.0**50)
    rows = Rows(X, np.zeros((len(X), 1)), weight, np.zeros((len(X), 1)), 0.0)
    basis = Basis(np.zeros((0, 1)), np.ones(1), np.zeros((0, 0)))
    found = annealed_em(rows, basis, np.full(3, 0.1), coefficients=np.zeros((1, 2, 1)))
    np.testing.assert_allclose(found.coefficients, 0.0)


def test_a_q_that_is_no_distribution_is_refused_in_words():
    X, y = np.linspace(0, 1, 6)[:, None], np.zeros((6, 1))
    sample = Sample(X, y, np.ones(6), np.full(6, -1))
    problem = Problem(sample, Units.of(sample, False), (GP(), GP()), None, X[:3])
    model = build(problem, Start("random", np.full((6, 2), 0.5), 1.0, 0.1))
    _check_distributions(model, "float64")
    model.groups[0].latent.q.precision[0] = -np.eye(3)
    with pytest.raises(FitError, match="beyond what the model can take in: precision of q"):
        _check_distributions(model, "float64")
