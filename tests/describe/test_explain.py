"""Explanations of single observations."""

import numpy as np
import pytest

from dagp import DAGP, GP, Noise, datasets


@pytest.fixture(scope="module")
def fitted():
    data = datasets.noise_separation(outliers=0.3, n=300, random_state=0)
    model = DAGP(processes=[GP(), Noise()], n_init=2, tol=1e-2, random_state=0)
    return model.fit(data.X, data.y), data


def test_an_outlier_is_explained_by_what_the_signal_would_have_been(fitted):
    model, _ = fitted
    found = model.explain([0.0], 2.8)
    assert found.process == 1
    assert [opinion.process for opinion in found.opinions] == [1, 0]
    signal = found.opinions[1]
    np.testing.assert_allclose(signal.mean, model.processes_[0].predict([[0.0]]))
    assert found.log_density == pytest.approx(model.score_samples([[0.0]], [2.8])[0])
    shares = model.responsibilities([[0.0]], [2.8])[0]
    assert [o.responsibility for o in found.opinions] == pytest.approx([shares[1], shares[0]])
    text = str(found)
    assert text.startswith("y = 2.8 at x = 0: process 1 (Noise)")
    assert "process 0: expected 1" in text


def test_a_doubtful_point_is_called_doubtful(fitted):
    model, _ = fitted
    grid = np.linspace(0.5, 2.5, 200)
    shares = model.responsibilities(np.zeros((200, 1)), grid)
    doubtful = grid[np.argmin(np.abs(shares[:, 0] - 0.5))]
    assert "perhaps" in str(model.explain([0.0], doubtful))


def test_outliers_are_the_rows_of_clutter_surest_first(fitted):
    model, data = fitted
    rows = model.outliers()
    np.testing.assert_array_equal(np.sort(rows), np.flatnonzero(model.assignment_ == 1))
    chance = model.responsibilities_[rows, 1]
    assert np.all(np.diff(chance) <= 0)
    assert len(model.outliers(0.999)) < len(rows)
    assert np.mean(data.process[model.outliers(0.9)] == 1) > 0.95


def test_without_clutter_there_are_no_outliers():
    data = datasets.noise_separation(0.0, n=50, random_state=0)
    assert len(DAGP(1, n_init=1, tol=1e-1).fit(data.X, data.y).outliers()) == 0


def test_several_outputs():
    rng = np.random.default_rng(0)
    X = rng.uniform(-1, 1, (60, 1))
    y = np.column_stack([X[:, 0], -X[:, 0]]) + 0.1 * rng.standard_normal((60, 2))
    found = DAGP(1, n_init=1, tol=1e-1).fit(X, y).explain([0.5], [0.5, -0.5])
    assert found.opinions[0].mean.shape == (2,)
    assert "0.5, -0.5" in str(found)
