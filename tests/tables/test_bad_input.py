"""Bad input gets one clear sentence."""

import numpy as np
import pandas as pd
import pytest
import scipy.sparse

from dagp import DAGP, GP, Uniform, kernels

X = np.linspace(0, 1, 30)[:, None]
Y = np.sin(6 * X[:, 0])
QUICK = {"n_init": 1, "tol": 1e-2, "inducing": 8, "random_state": 0}
SPREAD = np.linspace(0, 1, 8)[:, None]
"""Inducing inputs for data that have fewer distinct ones: every other number is compiled anew."""


WORDS = [f"word {i}" for i in range(30)]


def with_value(array, index, value):
    array = array.copy()
    array[index] = value
    return array


@pytest.mark.parametrize(
    ("inputs", "outputs", "message"),
    [
        (np.empty((0, 1)), np.empty(0), "0 sample"),
        (X[:, 0], Y, "[Rr]eshape"),
        (np.empty((30, 0)), Y, "0 feature"),
        (X, Y[:-1], "X has 30 rows and y has 29"),
        (scipy.sparse.csr_matrix(X), Y, "[Ss]parse"),
        (X + 1j, Y, "[Cc]omplex"),
        (X, np.zeros((30, 2, 2)), "y must have shape|dim"),
        (X, None, "requires y"),
        (X, Y * 1e300, "Rescale y"),
        (X, Y * 1e-300, "Rescale y"),
        (with_value(X, (4, 0), np.nan), Y, "X contains NaN: 1 value.*row 4, column 0.*drop"),
        (X, with_value(Y, 7, np.nan), "y contains NaN: 1 value.*row 7"),
        (with_value(X, (2, 0), np.inf), Y, "X contains infinity: 1 value.*row 2"),
        (X, with_value(Y, 2, -np.inf), "y contains infinity"),
        (pd.DataFrame({"a": X[:, 0], "name": WORDS}), Y, "column 'name' of X holds text"),
        (X, pd.date_range("2026-01-01", periods=30), "y holds dates or times"),
        (pd.DataFrame({"a": with_value(X[:, 0], 3, np.nan)}), Y, "row 3, column 'a'"),
        (np.array(WORDS)[:, None], Y, "column 0 of X holds text"),
    ],
)
def test_data_that_cannot_be_used(inputs, outputs, message):
    with pytest.raises((ValueError, TypeError), match=message) as caught:
        assert np.all(np.isfinite(DAGP(**QUICK).fit(inputs, outputs).predict(inputs)))
    assert len(str(caught.value).splitlines()) <= 4


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"n_processes": 0}, "n_processes must be a whole number"),
        ({"n_processes": 2.5}, "n_processes"),
        ({"n_processes": 31}, "31 processes need at least as many rows"),
        ({"n_init": 0}, "n_init"),
        ({"max_iter": -1}, "max_iter"),
        ({"tol": -1.0}, "tol"),
        ({"inference": "magic"}, "inference"),
        ({"dtype": "float16"}, "dtype"),
        ({"missing": "guess"}, "missing"),
        ({"gate": "open"}, "gate must be None"),
        ({"processes": []}, "empty list"),
        ({"processes": [GP(), "noise"]}, r"processes\[1\] must be"),
        ({"processes": "gp"}, "must be a GP"),
        ({"processes": [GP(kernels.SquaredExponential(active=[3]))]}, "column"),
        ({"processes": [GP(), Uniform(low=2.0, high=1.0)]}, "low < high"),
        ({"inducing": 0}, "inducing must be at least 1"),
        ({"inducing": np.zeros((3, 2))}, 'inducing must be "auto", "all", a number or of shape'),
    ],
)
def test_parameters_are_checked_when_fitting_not_before(parameters, message):
    model = DAGP(**{**QUICK, **parameters})
    with pytest.raises(ValueError, match=message):
        model.fit(X, Y)


@pytest.mark.parametrize(
    ("weight", "message"),
    [
        (np.full(30, -1.0), "row 0 has -1"),
        (with_value(np.ones(30), 5, np.nan), "row 5 has nan"),
        (np.zeros(30), "zero in every row"),
        (np.ones(29), "inconsistent"),
    ],
)
def test_weights(weight, message):
    with pytest.raises(ValueError, match=message):
        DAGP(**QUICK).fit(X, Y, sample_weight=weight)


@pytest.mark.parametrize(
    ("labels", "message"),
    [
        (np.full(30, 2), "row 0 has 2"),
        (np.full(30, -2), "row 0 has -2"),
        (np.full(30, 0.5), "row 0 has 0.5"),
        (np.zeros(29), "inconsistent"),
    ],
)
def test_labels(labels, message):
    with pytest.raises(ValueError, match=message):
        DAGP(**QUICK).fit(X, Y, labels=labels)


def test_wrong_number_of_columns_at_predict():
    model = DAGP(**QUICK).fit(X, Y)
    with pytest.raises(ValueError, match="2 features"):
        model.predict(np.zeros((3, 2)))
    with pytest.raises(ValueError, match="NaN"):
        model.predict([[np.nan]])
    with pytest.raises(ValueError, match="X has 1 rows and y has 2"):
        model.score_samples([[0.0]], [1.0, 2.0])


@pytest.mark.parametrize(
    ("inputs", "outputs", "inducing"),
    [
        (X, np.full(30, 3.0), 8),
        (np.ones((30, 1)), Y, SPREAD),
        (X[:1], Y[:1], None),
        (X[:2], Y[:2], SPREAD),
        (np.repeat(X[:3], 10, axis=0), Y, None),
        ((X * 100).astype(int), (Y * 10).astype(int), 8),
        (X > 0.5, Y, SPREAD),
        (X.astype(np.float16), Y.astype(np.float16), 8),
        (X.astype(object), Y.astype(object), 8),
        (np.asfortranarray(np.hstack([X, X])), Y, None),
        (X * 1e300, Y, 8),
        (X * 1e-12, Y * 1e12, 8),
        (X, with_value(Y, 4, 1e9), 8),
        (with_value(X, (4, 0), 1e9), Y, 8),
    ],
    ids=[
        "constant y", "constant column", "one row", "two rows", "three distinct x", "integers",
        "bool", "float16", "objects", "fortran", "1e300", "1e12", "wild y", "wild x",
    ],
)  # fmt: skip
@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
def test_unusual_data_are_fitted(inputs, outputs, inducing):
    before = inputs.copy()
    model = DAGP(n_processes=min(2, len(inputs)), **{**QUICK, "inducing": inducing})
    model.fit(inputs, outputs)
    np.testing.assert_array_equal(inputs, before)
    mixture = model.predict_mixture(inputs)
    np.testing.assert_allclose(mixture.weights.sum(axis=1), 1.0)
    assert np.all(np.isfinite(mixture.means))
    assert np.all(mixture.variances > 0)
    assert np.all(np.isfinite(model.score_samples(inputs, outputs)))


def test_read_only_data_are_accepted():
    inputs, outputs = X.copy(), Y.copy()
    inputs.flags.writeable = outputs.flags.writeable = False
    assert np.all(np.isfinite(DAGP(**QUICK).fit(inputs, outputs).predict(inputs)))


def test_columns_of_one_name_in_a_frame_are_refused():
    frame = pd.DataFrame(np.zeros((9, 3)), columns=["a", "b", "a"])
    with pytest.raises(ValueError, match=r"^The data frame has 2 columns called 'a'"):
        DAGP(1).fit(frame, np.arange(9.0))


@pytest.mark.parametrize("rows", [1, 3])
def test_an_automatic_number_of_processes_asks_for_no_more_than_the_rows(rows):
    X = np.arange(float(rows))[:, None]
    model = DAGP("auto", n_init=1, max_iter=200, tol=1e3, random_state=0).fit(X, X[:, 0])
    assert 1 <= len(model.processes_) <= rows
    assert np.all(np.isfinite(model.predict(X)))
