"""What must not break: shapes, types and values of the data, one test per case."""

import datetime

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
import scipy.sparse

from dagp import DAGP, GP, Noise

N = 24
X = np.linspace(0, 1, N)[:, None]
Y = np.sin(6 * X[:, 0]) + 0.1 * np.cos(50 * X[:, 0])
TWO_X = np.repeat(X[::2], 2, axis=0)
TWO_Y = np.sin(3 * TWO_X[:, 0]) + np.tile([0.0, 5.0], N // 2) + 0.01 * np.cos(np.arange(N))
"""Every input twice, with outputs far apart."""
# Nothing here asks for a good fit: the steps shorten as fast as they may.
SPREAD = np.linspace(0, 1, 6)[:, None]
"""Inducing inputs for data that have fewer distinct ones: every shape is compiled anew."""
QUICK = {"n_init": 1, "max_iter": 200, "tol": 1e3, "inducing": 6, "random_state": 0}


def fit(inputs=X, outputs=Y, n_processes=1, weight=None, labels=None, **settings):
    return DAGP(n_processes, **{**QUICK, **settings}).fit(inputs, outputs, weight, labels)


def sound(model, inputs, outputs):
    """Whether everything a model says about its data is finite and a distribution."""
    mixture = model.predict_mixture(inputs)
    np.testing.assert_allclose(mixture.weights.sum(axis=1), 1.0)
    assert np.all(np.isfinite(mixture.means))
    assert np.all(np.isfinite(mixture.variances)) and np.all(mixture.variances > 0)
    assert np.all(np.isfinite(model.score_samples(inputs, outputs)))
    return model


def refused(message, inputs=X, outputs=Y, **more):
    with pytest.raises((ValueError, TypeError), match=message) as caught:
        fit(inputs, outputs, **more)
    assert "\n" not in str(caught.value)


def changed(array, place, value):
    array = np.array(array)
    array[place] = value
    return array


@pytest.fixture(scope="module")
def plain():
    return fit()


# ---------------------------------------------------------------------------- shapes and types


def test_zero_rows():
    refused(r"0 sample\(s\)", X[:0], Y[:0])
    refused(r"0 sample\(s\)", pd.DataFrame({"a": X[:0, 0]}), Y[:0])


def test_one_row():
    sound(fit(X[:1], Y[:1], inducing=SPREAD), X[:1], Y[:1])
    said = "2 processes need at least as many rows, X has n_samples = 1"
    refused(said, X[:1], Y[:1], n_processes=2)


@pytest.mark.parametrize("make", [np.array, list, pd.Series, pl.Series, pa.array])
def test_one_dimensional_inputs_hint_to_reshape(make):
    refused(r"got 1D array instead\. Reshape your data with X\.reshape\(-1, 1\)", make(X[:, 0]))


def test_lengths_that_differ():
    refused("X has 24 rows and y has 23", X, Y[:-1])
    refused("X has 24 rows and sample_weight has 23", weight=np.ones(23))
    refused("X has 24 rows and labels has 23", labels=np.zeros(23))
    refused("rows differ in length", [[1.0], [1.0, 2.0]] * 12)


def test_zero_columns():
    refused(r"0 feature\(s\)", X[:, :0])
    refused(r"0 feature\(s\)", pd.DataFrame(index=range(N)))


def test_sparse_inputs():
    refused("Sparse data was passed for X, but dense", scipy.sparse.csr_array(X))
    refused("Sparse data was passed for y, but dense", X, scipy.sparse.csr_array(Y[:, None]))


def test_complex_numbers():
    refused("X holds complex numbers", X + 1j)
    refused("y holds complex numbers", X, Y + 1j)
    refused("column 'a' of X has 1j in row 0", pd.DataFrame({"a": X[:, 0] + 1j}))


def test_strings_name_the_column():
    text = [f"u{i}" for i in range(N)]
    free = (
        "column 'b' of X holds text with 24 different values in 24 rows, .* Leave it out, or state"
    )
    for frame in (pd.DataFrame, pl.DataFrame, pa.table):
        refused(free, frame({"a": X[:, 0], "b": text}))
    mixed = pd.DataFrame({"a": X[:, 0], "b": [*range(N - 1), "u"]})
    refused("column 'b' of X holds text \\('u' in row 23\\)", mixed)
    refused("column 1 of X holds text", np.column_stack([X.astype(object), text]))
    refused("column 0 of X holds text", np.array(text)[:, None])
    refused("y holds text", X, text)


def test_objects_that_are_numbers_are_coerced(plain):
    for inputs in (X.astype(object), pd.DataFrame({"a": X[:, 0]}, dtype=object).to_numpy()):
        np.testing.assert_array_equal(fit(inputs, Y.astype(object)).predict(X), plain.predict(X))
    refused("column 0 of X, row 3: .* not 'dict'", changed(X.astype(object), (3, 0), {}))


@pytest.mark.parametrize(
    "inputs", [(100 * X).astype(int), X > 0.5, X.astype(np.float16)], ids=["int", "bool", "float16"]
)
def test_other_numbers_are_cast(inputs):
    expected = fit(inputs.astype(float), inducing=SPREAD).predict(inputs.astype(float))
    found = fit(inputs, inducing=SPREAD).predict(inputs)
    assert found.dtype == np.float64
    np.testing.assert_array_equal(found, expected)


def test_read_only_memmap_is_accepted(plain, tmp_path):
    for name, array in (("X.npy", X), ("y.npy", Y)):
        np.save(tmp_path / name, array)
    inputs, outputs = (np.load(tmp_path / name, mmap_mode="r") for name in ("X.npy", "y.npy"))
    model = fit(inputs, outputs)
    assert not inputs.flags.writeable
    np.testing.assert_array_equal(model.predict(inputs), plain.predict(X))


def test_fortran_order_is_accepted_and_not_modified():
    columns = np.hstack([X, X**2])
    fortran = np.asfortranarray(columns)
    model = fit(fortran)
    assert fortran.flags.f_contiguous
    np.testing.assert_array_equal(fortran, columns)
    np.testing.assert_array_equal(model.predict(fortran), fit(columns).predict(columns))


def test_shape_of_y_is_kept(plain):
    column = fit(X, Y[:, None]).predict(X)
    assert column.shape == (N, 1)
    np.testing.assert_array_equal(column[:, 0], plain.predict(X))
    assert fit(X, pd.DataFrame({"y": Y})).predict(X).shape == (N, 1)
    refused("y must have shape|dim", X, np.zeros((N, 2, 2)))
    refused("number for every row", X, 3.0)


@pytest.fixture(scope="module")
def named():
    return fit(pd.DataFrame({"speed": X[:, 0], "load": X[:, 0] ** 2}))


def test_reordered_columns_at_predict(named):
    with pytest.raises(ValueError, match="must be in the same order"):
        named.predict(pd.DataFrame({"load": X[:, 0] ** 2, "speed": X[:, 0]}))


def test_missing_columns_at_predict(named):
    with pytest.raises(ValueError, match=r"(?s)missing.*- load"):
        named.predict(pd.DataFrame({"speed": X[:, 0]}))
    with pytest.raises(ValueError, match=r"(?s)unseen at fit time:\n- mass"):
        named.predict(pd.DataFrame({"speed": X[:, 0], "load": X[:, 0], "mass": X[:, 0]}))


def test_wrong_number_of_columns(plain):
    with pytest.raises(ValueError, match="X has 2 features, but DAGP is expecting 1 features"):
        plain.predict(np.hstack([X, X]))


@pytest.mark.parametrize(
    "times",
    [
        pd.date_range("2026-01-01", periods=N),
        pd.timedelta_range(0, periods=N, freq="h"),
        pd.period_range("2026-01", periods=N, freq="M"),
        [datetime.date(2026, 1, 1 + i) for i in range(N)],
    ],
    ids=["time", "duration", "period", "objects"],
)
def test_times_are_numbers_in_a_unit(times):
    model = fit(pd.DataFrame({"t": times}))
    unit = "hours" if isinstance(times, pd.TimedeltaIndex) else "days"
    assert model.columns_.names[0].startswith(f"t ({unit}")
    if not isinstance(times, pd.PeriodIndex):  # months differ in length
        count = np.arange(float(N))[:, None]
        found = model.predict(pd.DataFrame({"t": times}))
        np.testing.assert_array_equal(found, fit(count).predict(count))


def test_outputs_that_are_times_hint_at_numbers():
    days = np.datetime64("2026-01-01") + np.arange(N)
    refused("y holds dates or times; convert", X, days - days[0])
    refused("column 'd' of y holds dates", X, pl.DataFrame({"d": days}))


# -------------------------------------------------------------------------------------- values


def test_nan_in_inputs_is_counted_and_placed():
    gaps = changed(X, ([4, 7], 0), np.nan)
    refused(r"X contains NaN: 2 value\(s\), the first in row 4, column 0 \(missing='drop'", gaps)
    refused("the first in row 4, column 'a'", pd.DataFrame({"a": gaps[:, 0]}))


def test_nan_in_outputs_is_counted_and_placed():
    refused(r"y contains NaN: 1 value\(s\), the first in row 7 \(missing", X, changed(Y, 7, np.nan))


def test_nan_rows_are_dropped_on_request():
    keep = ~np.isin(np.arange(N), [3, 5])
    model = fit(changed(X, (3, 0), np.nan), changed(Y, 5, np.nan), missing="drop")
    np.testing.assert_array_equal(model.predict(X), fit(X[keep], Y[keep]).predict(X))
    refused("y contains NaN only: it has no values", X, np.full(N, np.nan), missing="drop")
    refused("infinity", changed(X, (3, 0), np.inf), missing="drop")


@pytest.mark.parametrize("value", [np.inf, -np.inf])
def test_infinities(value):
    refused(r"X contains infinity: 1 value\(s\), the first in row 2", changed(X, (2, 0), value))
    refused("y contains infinity", X, changed(Y, 2, value))


def test_nullable_na_is_missing(plain):
    column = [None, *range(N - 1)]
    place = r"X contains NaN: 1 value\(s\), the first in row 0, column 'a'"
    for dtype in ("Int64", "Float64", object):
        refused(place, pd.DataFrame({"a": pd.array(column, dtype=dtype)}))
    refused(place, pd.DataFrame({"a": pd.array([None, *[True] * (N - 1)], dtype="boolean")}))
    refused(place, pd.DataFrame({"a": pd.Series([pd.NA, *range(N - 1)], dtype=object)}))
    for frame in (pl.DataFrame, pa.table):
        refused(place, frame({"a": column}))
    refused("y contains NaN", X, pd.Series(column, dtype="Float64"))
    whole = pd.array(X[:, 0], dtype="Float64")
    found = fit(pd.DataFrame({"a": whole}).to_numpy(dtype=object), Y)
    np.testing.assert_array_equal(found.predict(X), plain.predict(X))


def test_masked_cells_are_missing():
    refused("X contains NaN.*row 2", np.ma.masked_equal(X, X[2, 0]))


def test_constant_y():
    outputs = np.full(N, 3.0)
    model = sound(fit(X, outputs), X, outputs)
    np.testing.assert_allclose(model.predict(X), 3.0, atol=0.1)


def test_constant_column(plain):
    inputs = np.hstack([X, np.full((N, 1), 7.0)])
    model = sound(fit(inputs), inputs, Y)
    np.testing.assert_allclose(model.predict(inputs), plain.predict(X), atol=0.3)


@pytest.mark.parametrize("scale", [1e12, 1e-12])
def test_scaled_inputs_are_the_same_fit(plain, scale):
    np.testing.assert_allclose(fit(X * scale).predict(X * scale), plain.predict(X), atol=1e-2)


@pytest.mark.parametrize("scale", [1e12, 1e-12])
def test_scaled_outputs_are_the_same_fit(plain, scale):
    np.testing.assert_allclose(fit(X, Y * scale).predict(X) / scale, plain.predict(X), atol=1e-2)


def test_inputs_of_1e300(plain):
    np.testing.assert_allclose(fit(X * 1e300).predict(X * 1e300), plain.predict(X), atol=1e-2)
    wild = changed(X, (4, 0), 1e300)
    sound(fit(wild), wild, Y)
    refused(r"X reaches 1e\+300.*standardize=False", X * 1e300, standardize=False)


def test_outputs_of_1e300_are_refused():
    refused("y spreads over about 6e.299.*Rescale y", X, Y * 1e300)
    refused(r"y is 1e\+300 in row 4.*Correct that row", X, changed(Y, 4, 1e300))
    refused(r"y is 1e\+30 in row 4.*float32", X, changed(Y, 4, 1e30), dtype="float32")


@pytest.mark.parametrize("scale", [5e-324, 1e-310])
def test_denormals(scale):
    sound(fit(X * scale, inducing=SPREAD), X * scale, Y)
    sound(fit(X, Y * scale), X, Y * scale)
    refused("y spreads over about 6e-301.*Rescale y", X, Y * 1e-300)


def test_duplicate_rows_count_as_often_as_they_are_there():
    twice = fit(np.repeat(X, 2, axis=0), np.repeat(Y, 2))
    np.testing.assert_array_equal(twice.predict(X), fit(weight=np.full(N, 2.0)).predict(X))
    only_one = np.zeros((N, 1)), np.zeros(N)
    sound(fit(*only_one, inducing=SPREAD), *only_one)


def test_conflicting_outputs_are_the_job():
    model = sound(fit(TWO_X, TWO_Y, 2), TWO_X, TWO_Y)
    upper = np.tile([False, True], N // 2)
    assert model.assignment_[1] != model.assignment_[0]
    np.testing.assert_array_equal(model.assignment_ == model.assignment_[1], upper)


@pytest.mark.parametrize("value", [1e9, -1e100])
def test_one_extreme_outlier_spoils_nothing_else(value):
    outputs = changed(Y, 4, value)
    model = sound(fit(X, outputs, processes=[GP(), Noise()]), X, outputs)
    np.testing.assert_array_equal(model.assignment_, np.arange(N) == 4)
    np.testing.assert_allclose(model.processes_[0].predict(X), Y, atol=0.3)


def test_fewer_rows_than_inducing_points_is_said():
    with pytest.warns(UserWarning, match="inducing=50 is more than X has distinct rows; 6 are"):
        sound(fit(X[:6], Y[:6], inducing=50), X[:6], Y[:6])


def test_fewer_distinct_inputs_than_inducing_points_is_said():
    inputs = np.repeat(X[:6], 4, axis=0)
    with pytest.warns(UserWarning, match="inducing=9 is more than X has distinct rows; 6 are used"):
        sound(fit(inputs, Y, inducing=9), inputs, Y)


def test_more_processes_than_rows():
    refused("25 processes need at least as many rows, X has n_samples = 24", n_processes=25)
    refused("weights of 0.24 in all", weight=np.full(N, 0.01))


def test_one_process_takes_everything(plain):
    np.testing.assert_array_equal(plain.responsibilities_, 1.0)
    np.testing.assert_array_equal(plain.predict_assignment(X), 1.0)


def test_an_empty_process_is_finite_and_reported():
    model = sound(fit(n_processes=2, labels=np.zeros(N)), X, Y)
    assert model.active_.tolist() == [True, False]
    assert "unused" in model.summary()
    mean, std = model.processes_[1].predict(X, return_std=True)
    assert np.all(np.isfinite(mean)) and np.all(np.isfinite(std))


@pytest.mark.parametrize(
    ("weight", "message"),
    [
        (changed(np.ones(N), 5, -1.0), "sample_weight must be .* non-negative, row 5 has -1"),
        (changed(np.ones(N), 5, np.nan), "sample_weight must be finite .* row 5 has nan"),
        (np.zeros(N), "sample_weight is zero in every row"),
        (["u"] * N, "sample_weight holds text"),
        (np.ones((N, 2)), "sample_weight must hold one number per row"),
    ],
    ids=["negative", "nan", "zero", "text", "table"],
)
def test_weights_that_are_none(weight, message):
    refused(message, weight=weight)


@pytest.mark.parametrize("label", [2, -2, 0.5, np.nan, np.inf])
def test_labels_out_of_range(label):
    expected = rf"labels must be -1 \(unknown\) or a process from 0 to 1, row 3 has {label}"
    refused(expected, n_processes=2, labels=changed(np.zeros(N), 3, label))
    refused("labels holds text", n_processes=2, labels=["first"] * N)
