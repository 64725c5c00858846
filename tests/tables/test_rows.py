"""Rows keep their names: dropped rows, missing outputs, and data frames in and out."""

import numpy as np
import pandas as pd
import polars as pl
import pytest
import sklearn
from sklearn.metrics import adjusted_rand_score

from dagp import DAGP, GP, Noise
from dagp.inference.missing import filled
from dagp.inference.standardize import Sample

N = 60
OUTLIER = 40
DROPPED = [3, 7, 20]
SETTINGS = {"inducing": 9, "n_init": 1, "tol": 1e-1, "random_state": 0}


def polluted():
    """A line with an outlier in one row and missing cells before it."""
    x = np.linspace(-1, 1, N)
    y = x + 0.02 * np.random.default_rng(0).standard_normal(N)
    y[OUTLIER] += 5
    X = x[:, None].copy()
    X[DROPPED[:2]] = np.nan
    y[DROPPED[2]] = np.nan
    return X, y


@pytest.fixture(scope="module")
def frame():
    X, y = polluted()
    named = pd.Index([f"r{i}" for i in range(N)], name="reading")
    return pd.DataFrame({"wind": X[:, 0], "power": y}, index=named)


@pytest.fixture(scope="module")
def model(frame):
    model = DAGP(processes=[GP(), Noise()], missing="drop", **SETTINGS)
    return model.fit(frame[["wind"]], frame["power"])


def test_attributes_cover_all_rows(model):
    used = np.isin(np.arange(N), DROPPED, invert=True)
    np.testing.assert_array_equal(model.used_mask_, used)
    assert model.responsibilities_.shape == (N, 2)
    assert np.isnan(model.responsibilities_[DROPPED]).all()
    assert np.isfinite(model.responsibilities_[used]).all()
    np.testing.assert_array_equal(model.assignment_ == -1, ~used)
    assert all(len(other.assignment_) == N for other in model.alternatives_)


def test_an_outlier_keeps_its_name(model, frame):
    assert model.outliers().tolist() == [f"r{OUTLIER}"]
    assert frame.loc[model.outliers(), "power"].item() > 4


def test_rows_of_arrays_are_called_by_their_position():
    X, y = polluted()
    model = DAGP(processes=[GP(), Noise()], missing="drop", **SETTINGS).fit(X, y)
    assert model.outliers().tolist() == [OUTLIER]
    np.testing.assert_array_equal(model.index_, np.arange(N))


def test_incomplete_rows_are_predicted_as_nan(model, frame):
    X = frame[["wind"]]
    mean, std = model.predict(X, return_std=True)
    shares = model.predict_assignment(X)
    for found in (mean, std, shares):
        lost = np.isnan(found.reshape(N, -1)).all(axis=1)
        np.testing.assert_array_equal(np.flatnonzero(lost), DROPPED[:2])
    shares = model.responsibilities(X, frame["power"])
    np.testing.assert_array_equal(np.flatnonzero(np.isnan(shares[:, 0])), DROPPED)
    assert np.isnan(model.predict(pd.DataFrame({"wind": [np.nan]}))).all()
    with pytest.raises(ValueError, match="infinity"):
        model.predict(pd.DataFrame({"wind": [np.inf]}))


def test_a_model_that_refuses_missing_cells_refuses_them_in_predictions(frame):
    complete = frame.dropna()
    model = DAGP(1, **SETTINGS).fit(complete[["wind"]], complete["power"])
    with pytest.raises(ValueError, match="NaN"):
        model.predict(frame[["wind"]])


@pytest.mark.parametrize("index", ["names", "times", "numbers", "pairs"])
def test_files_keep_rows_and_names(model, frame, tmp_path, index):
    X, y = frame[["wind"]].copy(), frame["power"].copy()
    labels = {
        "names": X.index,
        "times": pd.date_range("2020-01-01", periods=N, freq="h"),
        "numbers": pd.Index(np.arange(100, 100 + N)),
        "pairs": pd.MultiIndex.from_product([["a", "b"], range(N // 2)]),
    }[index]
    X.index = y.index = labels
    fitted = DAGP(processes=[GP(), Noise()], missing="drop", **SETTINGS).fit(X, y)
    again = DAGP.load(fitted.save(tmp_path / "model.dagp"))
    np.testing.assert_array_equal(again.used_mask_, fitted.used_mask_)
    np.testing.assert_array_equal(again.assignment_, fitted.assignment_)
    assert list(map(str, again.index_)) == list(map(str, labels))
    assert again.target_names_ == ["power"]
    assert X.loc[fitted.outliers()].index.tolist() == [labels[OUTLIER]]


@pytest.mark.parametrize("kind", ["pandas", "polars"])
def test_frames_come_out_where_they_are_asked_for(model, frame, kind):
    X = frame[["wind"]] if kind == "pandas" else pl.from_pandas(frame[["wind"]])
    plain = model.predict(X, output="numpy")
    mean, std = model.predict(X, return_std=True, output=kind)
    shares = model.predict_assignment(X, output=kind)
    assert [list(table.columns) for table in (mean, std)] == [["power"]] * 2
    assert list(shares.columns) == ["process_0", "process_1"]
    np.testing.assert_array_equal(mean.to_numpy()[:, 0], plain)
    found = model.responsibilities(X, frame["power"].to_numpy(), output=kind)
    np.testing.assert_array_equal(np.isnan(found.to_numpy()[:, 0]), ~model.used_mask_)
    if kind == "pandas":
        assert mean.index.equals(frame.index)
        assert found.index.name == "reading"


def test_the_configuration_of_scikit_learn_is_followed(model, frame):
    X, y = frame.dropna()[["wind"]], frame.dropna()["power"]
    plain = model.score(X, y)
    with sklearn.config_context(transform_output="pandas"):
        assert model.predict(X).index.equals(X.index)
        assert model.score(X, y) == plain
    assert isinstance(model.predict(X), np.ndarray)
    with pytest.raises(ValueError, match="output must be one of"):
        model.predict(X, output="arrow")


def two_outputs(n=150, missing=0.0):
    """Two processes that differ in both outputs, with cells missing at random."""
    rng = np.random.default_rng(0)
    x, process = np.sort(rng.uniform(-1, 1, n)), rng.integers(0, 2, n)
    y = np.stack([np.sin(3 * x) + 2 * process, np.cos(2 * x) - 2 * process], axis=1)
    y += 0.1 * rng.standard_normal(y.shape)
    y[rng.random(y.shape) < missing] = np.nan
    return x[:, None], y, process


def test_missing_cells_leave_the_other_outputs_in_use():
    X, y, process = two_outputs(missing=0.3)
    settings = {"inducing": 9, "n_init": 2, "tol": 1e-2, "random_state": 0}
    model = DAGP(2, missing="drop", **settings).fit(X, y)
    there = ~np.isnan(y).all(axis=1)
    np.testing.assert_array_equal(model.used_mask_, there)
    assert 0 < (~there).sum() < 30 < np.isnan(y).any(axis=1).sum()
    assert adjusted_rand_score(process[there], model.assignment_[there]) > 0.98
    # Where an output is missing, its function follows from other rows.
    complete, *_ = two_outputs()[1:]
    mean = np.stack([p.predict(X) for p in model.processes_])[model.assignment_, np.arange(len(X))]
    error = (mean - complete)[there]
    assert np.sqrt(np.mean(error**2)) < 0.15
    # The opinion on an incomplete row is that on the outputs which are there.
    row = np.flatnonzero(np.isnan(y).sum(axis=1) == 1)[0]
    assert model.explain(X[row], y[row]).process == model.assignment_[row]


def test_an_output_without_any_value_is_refused():
    X, y, _ = two_outputs(n=20)
    y[:, 1] = np.nan
    with pytest.raises(ValueError, match="no values in column 1"):
        DAGP(2, missing="drop", **SETTINGS).fit(X, y)


def test_missing_outputs_are_filled_from_the_nearest_row():
    X = np.array([[0.0], [0.1], [5.0], [9.0]])
    y = np.array([[0.0, 1.0, 3.0], [4.0, 2.0, np.nan], [4.1, np.nan, 7.0], [np.nan] * 2 + [1.0]])
    found = filled(Sample(X, y, np.ones(4), np.full(4, -1))).y
    np.testing.assert_array_equal(found[~np.isnan(y)], y[~np.isnan(y)])
    assert np.isfinite(found).all()
    assert found[1, 2] == 3.0


def test_weights_that_would_overflow_are_refused():
    X, y = polluted()
    weight = np.ones(N)
    weight[12] = 1e300
    with pytest.raises(ValueError, match="must not exceed 1e\\+15, row 12 has 1e\\+300"):
        DAGP(1, missing="drop", **SETTINGS).fit(X, y, sample_weight=weight)


def test_a_wrong_cell_behind_dropped_rows_keeps_its_name(model, frame):
    bad = frame.copy()
    bad.loc["r30", "wind"] = np.inf
    fresh = DAGP(processes=[GP(), Noise()], missing="drop", **SETTINGS)
    with pytest.raises(ValueError, match=r"infinity: 1 value\(s\), the first in row r30,"):
        fresh.fit(bad[["wind"]], bad["power"])
    with pytest.raises(ValueError, match="the first in row r30, column 'wind'"):
        model.predict(bad[["wind"]])


def test_wrong_weights_labels_and_cells_are_named_as_the_user_does(frame):
    X, y = frame[["wind"]].fillna(0.0), frame["power"].fillna(0.0)
    fresh = DAGP(2, **SETTINGS)
    with pytest.raises(ValueError, match="row r5 has -1"):
        fresh.fit(X, y, sample_weight=np.where(np.arange(N) == 5, -1.0, 1.0))
    with pytest.raises(ValueError, match="row r6 has 7"):
        fresh.fit(X, y, labels=np.where(np.arange(N) == 6, 7, -1))
    with pytest.raises(ValueError, match="NaN: 2 value\\(s\\), the first in row r3, column 'wind'"):
        fresh.fit(frame[["wind"]], y)
