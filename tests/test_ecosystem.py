"""The estimator among its neighbours: scikit-learn's routing and scorers, xarray, data frames."""

import copy
import json
import subprocess
import sys

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
import sklearn
from sklearn.base import clone
from sklearn.compose import TransformedTargetRegressor
from sklearn.linear_model import LinearRegression
from sklearn.metrics import r2_score
from sklearn.model_selection import GridSearchCV, KFold, cross_val_score, cross_validate
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from dagp import DAGP, GP, Mixture, Uniform, datasets
from dagp.baselines.mdn import MDN
from dagp.baselines.mlp import MLP
from dagp.scoring import log_score

QUICK = {"n_init": 1, "max_iter": 200, "tol": 1e-1, "inducing": 8, "random_state": 0}
ROWS = 60


def two_levels(outputs=1):
    rng = np.random.default_rng(0)
    x = rng.uniform(-2, 2, (ROWS, 1))
    process = rng.integers(2, size=ROWS)
    y = 3.0 * process + np.sin(x[:, 0]) + 0.1 * rng.standard_normal(ROWS)
    return x, np.stack([y, 10 * y], axis=1) if outputs == 2 else y, process


@pytest.fixture(scope="module")
def fitted():
    X, y, process = two_levels()
    frame = pd.DataFrame({"speed": X[:, 0]}, index=np.arange(ROWS) * 10)
    return DAGP(**QUICK).fit(frame, y, labels=process), frame, y


# ----------------------------------------------------------------------------------- xarray


def test_a_fit_as_a_dataset(fitted):
    model, X, y = fitted
    data = model.to_xarray((X, y))
    assert dict(data.sizes) == {
        "point": ROWS,
        "process": 2,
        "feature": 1,
        "step": len(model.lower_bounds_),
    }
    np.testing.assert_array_equal(data["x"].sel(feature="speed", point=30), X["speed"].loc[30])
    np.testing.assert_array_equal(data["y"], y)
    np.testing.assert_array_equal(data["responsibilities"], model.responsibilities_)
    np.testing.assert_array_equal(data["assignment"], model.assignment_)
    np.testing.assert_array_equal(data["weights"], model.predict_assignment(X))
    for k, process in enumerate(model.processes_):
        mean, std = process.predict(X, return_std=True)
        np.testing.assert_array_equal(data["mean"].sel(process=k), mean)
        np.testing.assert_array_equal(data["std"].sel(process=k), std)
        assert data["noise_std"].sel(process=k) == process.noise_std_[0]
    np.testing.assert_array_equal(data["lower_bounds"], model.lower_bounds_)
    settings = json.loads(data.attrs["settings"])
    assert settings["n_init"] == 1
    assert data.attrs["lower_bound"] == model.lower_bound_


def test_a_fit_without_its_data_as_a_dataset(fitted):
    model, *_ = fitted
    data = model.to_xarray()
    assert not {"x", "y", "mean"} & set(data)
    np.testing.assert_array_equal(data["responsibilities"], model.responsibilities_)


def test_several_outputs_have_a_dimension_and_dropped_rows_are_nan():
    X, y, process = two_levels(outputs=2)
    y[4, 1] = np.nan
    y[5] = np.nan
    named = pd.DataFrame(y, columns=["near", "far"])
    inducing = np.linspace(-2, 2, 5)[:, None]
    model = DAGP(processes=[GP(), GP()], **{**QUICK, "inducing": inducing}, missing="drop").fit(
        X, named, labels=process
    )
    data = model.to_xarray((X, named))
    assert data["mean"].dims == ("point", "process", "output")
    assert data.sizes["point"] == ROWS
    assert np.flatnonzero(data["assignment"] < 0).tolist() == [5]
    assert np.flatnonzero(np.isnan(data["mean"]).any(["process", "output"])).tolist() == [5]
    expected = model.processes_[1].predict(X[:4])[:, 1]
    np.testing.assert_array_equal(data["mean"].sel(process=1, output="far")[:4], expected)
    np.testing.assert_array_equal(data["y"].sel(output="far"), y[:, 1])
    settings = json.loads(data.attrs["settings"])
    assert settings["inducing"] == inducing.tolist()
    assert settings["processes"][0].startswith("GP(")


def test_a_dataset_survives_a_file(fitted, tmp_path):
    xarray = pytest.importorskip("xarray")
    model, X, y = fitted
    data = model.to_xarray((X, y))
    data.to_netcdf(tmp_path / "fit.nc", engine="scipy")
    with xarray.open_dataset(tmp_path / "fit.nc", engine="scipy") as again:
        xarray.testing.assert_equal(again, data)
        assert again.attrs["dagp"] == data.attrs["dagp"]


def test_other_data_are_refused(fitted):
    model, X, y = fitted
    for wrong in ((X[:-1], y[:-1]), (X + 1, y), (X, y[:, None])):
        with pytest.raises(ValueError, match="fitted to"):
            model.to_xarray(wrong)


def test_a_mixture_as_a_dataset():
    mixture = Mixture(
        [[0.3, 0.5, 0.2]], [[[0.0], [1.0], [2.0]]], [[[1.0], [4.0], [9.0]]], [0, 1, 0], [0, 1, 0]
    )
    data = mixture.to_xarray()
    assert dict(data.sizes) == {"point": 1, "component": 3, "output": 1}
    assert data["process"].values.tolist() == [0, 1, 0]
    assert data["uniform"].values.tolist() == [False, True, False]
    mine = data["weights"].groupby("process").sum()
    np.testing.assert_allclose(mine.sel(process=0), 0.5)
    np.testing.assert_array_equal(data["variances"], mixture.variances)


def test_without_xarray_the_extra_is_named():
    code = (
        "import sys; sys.modules['xarray'] = None\n"
        "from dagp import Mixture\n"
        "try: Mixture([[1.0]], [[0.0]], [[1.0]]).to_xarray()\n"
        "except ImportError as error: print(error)\n"
    )
    said = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    assert "dagp[xarray]" in said.stdout


# ---------------------------------------------------------------------------- metadata routing


@pytest.fixture
def routing():
    with sklearn.config_context(enable_metadata_routing=True):
        yield


def routed():
    """An estimator that says what reaches it."""
    return Spy(**QUICK).set_fit_request(labels=True, sample_weight=True)


class Spy(DAGP):
    """Remembers what `fit` and `score` were given."""

    def __init__(self, n_processes=2, **settings):
        super().__init__(n_processes, **settings)

    @classmethod
    def _get_param_names(cls):
        return DAGP._get_param_names()

    def fit(self, X, y, sample_weight=None, labels=None):
        self.given_ = (np.asarray(X), np.asarray(sample_weight), np.asarray(labels))
        return super().fit(X, y, sample_weight, labels)

    def score(self, X, y, sample_weight=None):
        self.scored_ = None if sample_weight is None else np.asarray(sample_weight)
        return super().score(X, y, sample_weight)


def test_labels_and_weights_reach_the_end_of_a_pipeline(routing):
    X, y, process = two_levels()
    swapped = np.where(np.arange(ROWS) < 20, 1 - process, -1)
    weight = np.where(np.arange(ROWS) == 40, 0.0, 1.0)
    pipeline = make_pipeline(StandardScaler().set_fit_request(sample_weight=False), routed())
    pipeline.fit(X, y, labels=swapped, sample_weight=weight)
    model = pipeline[-1]
    np.testing.assert_array_equal(model.given_[1], weight)
    np.testing.assert_array_equal(model.given_[2], swapped)
    np.testing.assert_array_equal(model.assignment_[:20], swapped[:20])


def test_every_fold_gets_its_own_labels_and_weights(routing):
    X, y, process = two_levels()
    weight = np.random.default_rng(1).uniform(0.5, 2.0, ROWS)
    model = routed().set_score_request(sample_weight=True)
    folds = KFold(2, shuffle=True, random_state=0)
    found = cross_validate(
        model,
        X,
        y,
        cv=folds,
        params={"labels": process, "sample_weight": weight},
        return_estimator=True,
    )
    for model, (train, test), score in zip(
        found["estimator"], folds.split(X), found["test_score"], strict=True
    ):
        np.testing.assert_array_equal(model.given_[0], X[train])
        np.testing.assert_array_equal(model.given_[1], weight[train])
        np.testing.assert_array_equal(model.given_[2], process[train])
        np.testing.assert_array_equal(model.scored_, weight[test])
        expected = r2_score(y[test], model.predict(X[test]), sample_weight=weight[test])
        assert score == pytest.approx(expected)


def test_a_search_over_pipelines_passes_labels_on(routing):
    X, y, process = two_levels()
    scorer = log_score.set_score_request(sample_weight="held_out")
    grid = GridSearchCV(
        make_pipeline(StandardScaler(), routed().set_fit_request(sample_weight=False)),
        {"spy__tol": [1e-1, 1.0]},
        scoring=scorer,
        cv=2,
    )
    weight = np.r_[np.ones(ROWS - 1), 0.0]
    grid.fit(X, y, labels=1 - process, held_out=weight)
    np.testing.assert_array_equal(grid.best_estimator_[-1].assignment_, 1 - process)
    train, test = next(KFold(2).split(X))
    again = clone(grid.best_estimator_).fit(X[train], y[train], labels=1 - process[train])
    expected = scorer(again, X[test], y[test], weight[test])
    assert grid.cv_results_["split0_test_score"][grid.best_index_] == pytest.approx(expected)


def test_what_nobody_asked_for_is_refused(routing):
    X, y, process = two_levels()
    with pytest.raises(ValueError, match="labels"):
        make_pipeline(StandardScaler(), DAGP(**QUICK)).fit(X, y, labels=process)


def test_score_weighs_its_rows(fitted):
    model, X, y = fitted
    weight = np.r_[np.zeros(ROWS // 2), np.ones(ROWS // 2)]
    assert model.score(X, y, weight) == pytest.approx(model.score(X[30:], y[30:]))
    assert model.log_score(X, y, weight) == pytest.approx(model.log_score(X[30:], y[30:]))
    assert model.log_score(X, y, weight) != pytest.approx(model.log_score(X, y))


# ------------------------------------------------------------------------------------- scorer


def test_the_scorer_is_the_density_of_the_held_out_rows():
    X, y, _ = two_levels()
    folds = KFold(2, shuffle=True, random_state=0)
    plain = cross_val_score(MDN(steps=10, random_state=0), X, y, cv=folds, scoring=log_score)
    pipeline = make_pipeline("passthrough", make_pipeline(MDN(steps=10, random_state=0)))
    nested = GridSearchCV(pipeline, {"pipeline__mdn__l2": [MDN().l2]}, scoring=log_score, cv=folds)
    np.testing.assert_array_equal(cross_val_score(nested, X, y, cv=folds, scoring=log_score), plain)
    train, test = next(folds.split(X))
    model = MDN(steps=10, random_state=0).fit(X[train], y[train])
    assert plain[0] == model.predict_mixture(X[test]).log_prob(y[test]).mean()


def test_the_scorer_sees_inputs_as_the_model_does(fitted):
    model, X, y = fitted
    pipeline = make_pipeline(StandardScaler(), clone(model)).fit(np.asarray(X), y)
    inner = pipeline[-1].log_score(pipeline[0].transform(np.asarray(X)), y)
    assert log_score(pipeline, np.asarray(X), y) == inner


@pytest.mark.parametrize(
    ("model", "message"),
    [
        (LinearRegression(), "LinearRegression does not"),
        (make_pipeline(StandardScaler(), MLP(steps=1)), "MLP does not"),
        (TransformedTargetRegressor(LinearRegression()), "TransformedTargetRegressor"),
    ],
)
def test_what_has_no_density_has_no_log_score(model, message):
    X, y, _ = two_levels()
    with pytest.raises(TypeError, match=message):
        log_score(model.fit(X, y), X, y)


# ---------------------------------------------------------------------------------- data frames


@pytest.mark.parametrize("library", [pd, pl], ids=["pandas", "polars"])
def test_series_of_outputs_weights_and_labels(library, fitted):
    model, X, y = fitted
    _, _, process = two_levels()
    parts = [library.Series(list(part)) for part in (y, np.ones(ROWS), process)]
    again = clone(model).fit(X, parts[0], sample_weight=parts[1], labels=parts[2])
    np.testing.assert_array_equal(again.predict(X), model.predict(X))
    assert again.log_score(X, parts[0]) == model.log_score(X, y)


def test_a_chunked_array_of_outputs(fitted):
    model, X, y = fitted
    table = pa.table({"speed": X["speed"].to_numpy()})
    outputs = pa.chunked_array([y[:20], y[20:]])
    assert model.log_score(table, outputs) == model.log_score(X, y)


@pytest.mark.parametrize("frame", [pd.DataFrame, pl.DataFrame, pa.table])
def test_predictions_do_not_depend_on_the_kind_of_table(frame, fitted):
    model, X, _ = fitted
    table = frame({"speed": X["speed"].to_numpy()})
    np.testing.assert_array_equal(model.predict(table), model.predict(X))
    with pytest.raises(ValueError, match="feature names"):
        model.predict(frame({"load": X["speed"].to_numpy()}))


@pytest.mark.parametrize("dtype", ["Float64", "float64[pyarrow]"])
def test_nullable_columns(dtype, fitted):
    model, X, y = fitted
    nullable = X.astype(dtype)
    np.testing.assert_array_equal(model.predict(nullable), model.predict(X))
    nullable.iloc[3, 0] = pd.NA
    with pytest.raises(ValueError, match=r"X contains NaN.*row 30, column 'speed'"):
        model.predict(nullable)
    outputs = pd.Series(y, index=X.index).astype(dtype)
    outputs.iloc[5] = pd.NA
    with pytest.raises(ValueError, match=r"y contains NaN.*row 5"):
        model.score_samples(X, outputs)


def test_nullable_whole_numbers_and_nulls_of_polars():
    whole = [*range(ROWS)]
    X = pl.DataFrame({"a": [None if i == 2 else i for i in whole]})
    y = pl.Series([None if i == 1 else i % 2 for i in whole])
    model = DAGP(**QUICK, missing="drop").fit(X, y)
    assert np.flatnonzero(~model.used_mask_).tolist() == [1, 2]
    assert np.flatnonzero(np.isnan(model.predict(X))).tolist() == [2]
    with pytest.raises(ValueError, match="row 2, column 'a'"):
        model.predict_mixture(X)


def test_output_containers_of_scikit_learn_are_followed(fitted):
    model, X, _ = fitted
    with sklearn.config_context(transform_output="pandas"):
        assert model.predict(X).index.equals(X.index)
        assert isinstance(model.predict(X, output="numpy"), np.ndarray)
        pipeline = make_pipeline(StandardScaler(), clone(model)).fit(X, two_levels()[1])
        assert list(pipeline[-1].feature_names_in_) == ["speed"]


# -------------------------------------------------------------------------- seeds and notebooks


def test_generators_are_seeds():
    X, y, _ = two_levels()
    both = [DAGP(**{**QUICK, "random_state": np.random.default_rng(3)}).fit(X, y) for _ in range(2)]
    np.testing.assert_array_equal(both[0].predict(X), both[1].predict(X))
    generator = np.random.default_rng(3)
    draws = [both[0].processes_[0].sample_y(X, 2, generator) for _ in range(2)]
    assert np.all(draws[0] != draws[1])
    data = [datasets.multimodal(n=5, random_state=np.random.default_rng(s)).y for s in (0, 0, 1)]
    np.testing.assert_array_equal(data[0], data[1])
    assert np.all(data[0] != data[2])
    assert both[0].to_xarray().attrs["settings"].count('"random_state": null') == 1


def test_notebooks_show_a_diagram_before_the_fit_and_the_processes_after(fitted):
    before = DAGP(processes=[GP(), Uniform(-1.0, 1.0)])._repr_html_()
    assert "sk-top-container" in before
    model = copy.copy(fitted[0])
    assert "sk-top-container" not in model._repr_html_()
    assert model._repr_html_().count("<tr>") == 3
    model.processes_ = [
        type(process)(**{**vars(process), "kind": "<script>"}) for process in model.processes_
    ]
    assert "<script>" not in model._repr_html_()
    assert model._repr_html_().count("&lt;script&gt;") == 2
