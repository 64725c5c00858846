"""Warnings point to the user's program."""

import warnings
from pathlib import Path

import numpy as np
import pytest
from sklearn.exceptions import ConvergenceWarning

from dagp import DAGP, GP, Noise

X = np.linspace(-1, 1, 40)[:, None]
Y = 2 * X[:, 0]
QUICK = {"inducing": 9, "n_init": 1, "tol": 1e-1, "random_state": 0}


def unconverged():
    DAGP(1, **{**QUICK, "tol": 0.0}, max_iter=12).fit(X, Y + np.sin(20 * X[:, 0]))


def shifted():
    DAGP(1, warm_start=True, **QUICK).fit(X, Y).fit(X + 1e6, Y)


def changed():
    model = DAGP(processes=[GP(), Noise()], warm_start=True, **QUICK).fit(X, Y)
    model.set_params(processes=[GP(), GP()]).fit(X, Y)


@pytest.mark.parametrize(
    ("call", "category", "words"),
    [
        (unconverged, ConvergenceWarning, "before the ELBO converged"),
        (shifted, UserWarning, "the data lie elsewhere"),
        (changed, UserWarning, "had other priors before"),
    ],
)
def test_a_warning_points_to_the_line_that_called(call, category, words):
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        call()
    (found,) = [w for w in caught if words in str(w.message)]
    assert found.category is category
    assert Path(found.filename) == Path(__file__)
