"""The estimator as a user meets it."""

import copy
import pickle

import jax
import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from sklearn.base import clone
from sklearn.exceptions import ConvergenceWarning, NotFittedError
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from dagp import DAGP, GP, Noise, Uniform, datasets, fitting, fixed, kernels
from dagp.describe import summary
from dagp.inference import train
from dagp.predict import posterior
from dagp.tables.columns import Columns

QUICK = {"n_init": 2, "tol": 1e-3, "inducing": 12, "random_state": 0}


def two_lines(n=60, outputs=1, seed=0):
    """As few rows as are compiled for anyway: nearly all tests then share one program."""
    rng = np.random.default_rng(seed)
    x = np.sort(rng.uniform(-2, 2, n))
    process = rng.integers(2, size=n)
    levels = np.stack([np.sin(2 * x), 3 + x], axis=1)[np.arange(n), process]
    y = levels[:, None] + 0.1 * rng.standard_normal((n, outputs))
    return x[:, None], y[:, 0] if outputs == 1 else y, process


@pytest.fixture(scope="module")
def fitted():
    X, y, process = two_lines()
    return DAGP(**QUICK).fit(X, y), X, y, process


def test_two_functions_are_told_apart(fitted):
    model, _, _, process = fitted
    agreement = np.mean(model.assignment_ == process)
    assert max(agreement, 1 - agreement) > 0.97
    assert model.active_.all()


def test_shapes_and_sums(fitted):
    model, X, y, _ = fitted
    assert model.responsibilities_.shape == (60, 2)
    for rows in (
        model.responsibilities_,
        model.predict_assignment(X),
        model.responsibilities(X, y),
        model.predict_mixture(X).weights,
    ):
        np.testing.assert_allclose(rows.sum(axis=1), 1.0, atol=1e-12)
    mean, std = model.predict(X, return_std=True)
    assert mean.shape == std.shape == (60,)
    assert model.sample_y(X, 3, random_state=0).shape == (3, 60)
    assert model.score_samples(X, y).shape == (60,)
    assert model.log_score(X, y) == pytest.approx(model.score_samples(X, y).mean())
    assert np.all(np.isfinite(model.score_samples(X, y)))


def test_fitted_processes_answer_alone(fitted):
    model, X, _, _ = fitted
    mixture = model.predict_mixture(X, noise=False)
    for k, process in enumerate(model.processes_):
        mean, std = process.predict(X, return_std=True)
        np.testing.assert_allclose(mean, mixture.means[:, k])
        np.testing.assert_allclose(std**2, mixture.variances[:, k])
        draws = process.sample_y(X, 4000, random_state=0)
        assert draws.shape == (4000, 60)
        np.testing.assert_allclose(draws.mean(axis=0), mean, atol=0.1 * std.max() + 1e-3)
        np.testing.assert_allclose(draws.std(axis=0), std, rtol=0.1)
        assert process.noise_std_[0] == pytest.approx(0.1, rel=0.5)
        assert 0.3 < process.share_ < 0.7
        assert process.weight_ == process.share_  # its name before version 0.2


def test_far_away_the_prior_comes_back(fitted):
    model, *_ = fitted
    far = model.predict_mixture([[1e6]])
    np.testing.assert_allclose(far.weights, 0.5, atol=0.02)
    assert np.isfinite(far.log_prob(np.zeros(1))).all()
    kernel = model.processes_[0].kernel_
    expected = kernel.variance.in_user_units + model.processes_[0].noise_std_[0] ** 2
    np.testing.assert_allclose(far.variances[0, 0], expected, rtol=1e-6)


def test_same_seed_same_result(fitted):
    model, X, y, _ = fitted
    again = DAGP(**QUICK).fit(X, y)
    np.testing.assert_array_equal(again.responsibilities_, model.responsibilities_)


def test_second_fit_of_a_padded_shape_compiles_nothing(fitted):
    _, X, y, _ = fitted
    DAGP(**QUICK).fit(X, y).predict(X)
    before = (train.run_block._cache_size(), posterior._predictive._cache_size())
    DAGP(**{**QUICK, "random_state": 5}).fit(X[3:] * 2, y[3:]).predict(X[:5])
    assert (train.run_block._cache_size(), posterior._predictive._cache_size()) == before


def test_the_users_jax_flags_are_untouched(fitted):
    model, X, _, _ = fitted
    assert not jax.config.jax_enable_x64
    assert jax.numpy.ones(1).dtype == np.float32
    assert model.predict(X).dtype == np.float64


def test_fitted_attributes_are_numpy_and_survive_pickle_and_copy(fitted):
    model, X, _, _ = fitted
    for name, value in vars(model).items():
        assert not isinstance(value, jax.Array), name
    assert not any(isinstance(leaf, jax.Array) for leaf in jax.tree.leaves(model.posterior_.model))
    for other in (pickle.loads(pickle.dumps(model)), copy.deepcopy(model)):
        np.testing.assert_array_equal(other.predict(X), model.predict(X))
    with pytest.raises(NotFittedError):
        clone(model).predict(X)


def test_several_outputs_share_the_assignment():
    X, y, process = two_lines(outputs=2)
    model = DAGP(**QUICK).fit(X, y * [1.0, 100.0])
    agreement = np.mean(model.assignment_ == process)
    assert max(agreement, 1 - agreement) > 0.97
    assert model.predict(X).shape == (60, 2)
    assert model.predict_mixture(X).means.shape == (60, 2, 2)
    assert model.processes_[0].noise_std_.shape == (2,)
    ratio = model.processes_[0].noise_std_[1] / model.processes_[0].noise_std_[0]
    assert ratio == pytest.approx(100, rel=0.3)
    assert model.processes_[0].sample_y(X, 2, random_state=0).shape == (2, 60, 2)


def test_a_column_vector_of_outputs_keeps_its_shape():
    X, y, _ = two_lines(40)
    model = DAGP(**QUICK).fit(X, y[:, None])
    assert model.predict(X).shape == (40, 1)


def test_labels_are_obeyed_and_fix_the_order():
    X, y, process = two_lines()
    labels = np.where(np.arange(60) < 12, 1 - process, -1)
    model = DAGP(**QUICK).fit(X, y, labels=labels)
    np.testing.assert_array_equal(model.assignment_[:12], labels[:12])
    assert np.mean(model.assignment_ == 1 - process) > 0.95


def test_one_process_is_a_gaussian_process_regression():
    X, y, _ = two_lines()
    y = np.sin(2 * X[:, 0]) + 0.1 * y
    model = DAGP(n_processes=1, **QUICK).fit(X, y)
    np.testing.assert_array_equal(model.responsibilities_, 1.0)
    assert model.score(X, y) > 0.5


@pytest.mark.parametrize("clutter", [Noise(), Uniform()])
def test_clutter_is_separated(clutter):
    data = datasets.noise_separation(outliers=0.3, n=200, random_state=3)
    model = DAGP(processes=[GP(), clutter], **QUICK).fit(data.X, data.y)
    signal = model.processes_[0].predict(data.X_test)
    assert np.sqrt(np.mean((signal - data.y_test) ** 2)) < 0.1
    assert np.mean(model.assignment_ == data.process) > 0.85
    assert model.processes_[1].kernel_ is None
    low, high = model.predict_mixture(data.X).interval(0.9)
    assert np.mean((low <= data.y) & (data.y <= high)) > 0.8


def test_constant_gate_has_the_same_weights_everywhere():
    X, y, _ = two_lines()
    model = DAGP(gate="constant", **QUICK).fit(X, y)
    weights = model.predict_assignment(np.array([[-2.0], [0.0], [50.0]]))
    np.testing.assert_allclose(weights, weights[[0, 0, 0]])
    share = model.responsibilities_.mean(axis=0)
    np.testing.assert_allclose(weights[0], (60 * share + 0.5) / 61, atol=1e-3)


def test_an_unused_process_is_reported():
    X, y, _ = two_lines()
    model = DAGP(n_processes=3, **{**QUICK, "n_init": 6}).fit(X, y)
    assert model.active_.sum() == 2
    assert "unused" in model.summary()
    assert "2 of 3 processes in use" in model.summary()


def test_frozen_parameters_and_stated_kernels_are_kept():
    X, y, _ = two_lines()
    kernel = kernels.SquaredExponential(lengthscale=fixed(0.5)) + kernels.Constant(1.0)
    model = DAGP(processes=[GP(kernel, noise_std=fixed(0.2))], **QUICK).fit(X, y)
    first = model.processes_[0]
    assert first.kernel_.first.lengthscale.in_user_units == pytest.approx(0.5)
    np.testing.assert_allclose(first.noise_std_, 0.2, rtol=1e-6)


def test_user_given_inducing_points():
    X, y, _ = two_lines(40)
    model = DAGP(**{**QUICK, "inducing": np.linspace(-2, 2, 12)[:, None]}).fit(X, y)
    assert model.posterior_.model.groups[0].latent.inducing.raw.shape == (2, 12, 1)


def test_more_inducing_points_than_rows_are_reduced_and_said():
    X, y, _ = two_lines(12)
    with pytest.warns(UserWarning, match="12 are used"):
        DAGP(**{**QUICK, "inducing": 50}).fit(X, y)


@pytest.mark.parametrize("frame", [pd.DataFrame, pl.DataFrame, pa.table])
def test_data_frames_by_column_name(frame):
    X, y, _ = two_lines(40)
    table = frame({"speed": X[:, 0], "load": X[:, 0] ** 2})
    model = DAGP(**QUICK).fit(table, y)
    assert list(model.feature_names_in_) == ["speed", "load"]
    assert model.predict(table).shape == (40,)
    swapped = frame({"load": X[:, 0] ** 2, "speed": X[:, 0]})
    with pytest.raises(ValueError, match="feature names"):
        model.predict(swapped)


def test_callbacks_see_progress_and_can_stop():
    X, y, _ = two_lines(40)
    seen = []

    def stop(progress):
        seen.append(progress)
        return progress.phase == "train"

    model = DAGP(**QUICK, callbacks=[stop]).fit(X, y)
    assert {p.phase for p in seen} >= {"race", "train"}
    assert not model.converged_
    assert sum(p.phase == "train" for p in seen) == 1


def test_a_callback_can_stop_during_the_race():
    X, y, _ = two_lines(40)
    seen = []
    model = DAGP(**QUICK, callbacks=[lambda progress: seen.append(progress) or len(seen) == 1])
    model.fit(X, y)
    assert len(seen) == 1
    assert not model.converged_
    assert model.restarts_[0]["kept"]
    assert np.isfinite(model.predict(X)).all()


def test_no_convergence_is_a_warning():
    X, y, _ = two_lines(40)
    with pytest.warns(ConvergenceWarning, match="max_iter"):
        model = DAGP(**{**QUICK, "max_iter": 25, "tol": 0.0}).fit(X, y)
    assert not model.converged_


def test_warm_start_goes_on_from_the_last_fit():
    X, y, _ = two_lines()
    model = DAGP(**QUICK, warm_start=True).fit(X, y)
    first = model.lower_bound_
    model.fit(X, y)
    assert model.restarts_[0]["kind"] == "warm"
    assert model.lower_bound_ > first - 1.0


def test_missing_rows_can_be_dropped():
    X, y, _ = two_lines(40)
    y = y.copy()
    y[3] = np.nan
    model = DAGP(**QUICK, missing="drop").fit(X, y)
    np.testing.assert_array_equal(np.flatnonzero(model.assignment_ < 0), [3])
    assert model.used_mask_.sum() == 39


def test_float32_is_close_to_float64(fitted):
    model, X, y, _ = fitted
    single = DAGP(**QUICK, dtype="float32").fit(X, y)
    np.testing.assert_allclose(single.predict(X), model.predict(X), atol=0.05)


def test_pipeline_and_grid_search():
    X, y, _ = two_lines(40)
    pipeline = make_pipeline(StandardScaler(), DAGP(**QUICK))
    grid = GridSearchCV(pipeline, {"dagp__n_processes": [1, 2]}, cv=2)
    grid.fit(X, y)
    assert grid.best_params_["dagp__n_processes"] in (1, 2)


def test_summary_and_html(fitted):
    model, *_ = fitted
    text = model.summary()
    assert "2 of 2 processes in use" in text
    assert text.count("length scale") == 2
    html = model._repr_html_()
    assert "<table>" in html
    assert "everywhere" in html
    assert "DAGP" in DAGP()._repr_html_()


def test_a_kernel_in_words_has_a_number_for_every_column():
    kernel = kernels.Periodic(period=[3.0, 24.0], lengthscale=0.5, variance=4.0)
    words = summary._function(kernel, Columns(()))
    assert words == "Periodic, length scale 0.5, period 3, 24, std 2"


def test_many_rows_are_trained_in_minibatches_which_is_said():
    with pytest.warns(UserWarning, match="20001 rows: training in minibatches of 1000"):
        assert fitting._batch_size(DAGP(), 20_001) == 1000
    assert fitting._batch_size(DAGP(), 20_000) is None
    assert fitting._batch_size(DAGP(batch_size=7), 20_001) == 7
