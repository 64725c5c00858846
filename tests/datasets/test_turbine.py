"""The simulated turbine is what its own words say it is."""

import functools
import itertools

import numpy as np
import pytest

from dagp.datasets import turbine
from dagp.datasets.turbine import RATED


@functools.cache
def large():
    return turbine(n=40_000, n_test=4001, random_state=0)


def residuals(data):
    """Distance of each row's power from each function, as interpolated on the grid."""
    x = data.X[:, 0]
    truth = np.stack([np.interp(x, data.X_test[:, 0], column) for column in data.y_test.T], axis=1)
    return data.y[:, None] - truth


@pytest.mark.parametrize("curtailments", [0, 1, 2])
def test_states_are_named_in_the_order_of_the_processes(curtailments):
    data = turbine(n=3000, curtailments=curtailments, n_test=50, random_state=0)
    middle = [f"curtailment {i + 1}" for i in range(curtailments)]
    assert data.states == ["healthy", "downtime", *middle, "icing", "clutter"]
    assert data.X.shape == (3000, 1)
    assert data.y.shape == data.process.shape == data.separable.shape == (3000,)
    assert data.X_test.shape == (50, 1)
    # Clutter has no function.
    assert data.y_test.shape == (50, 3 + curtailments)
    assert (data.feature_names, data.target_names) == (["wind speed"], ["power"])
    assert data.separable.dtype == bool
    assert data.process.dtype.kind == "i"
    assert data.process.max() == 3 + curtailments


def test_the_seed_decides():
    one, again, other = (turbine(n=500, n_test=20, random_state=seed) for seed in (3, 3, 4))
    for name, value in one.items():
        np.testing.assert_array_equal(value, again[name])
    assert not np.allclose(one.y, other.y)
    assert not np.allclose(one.y_test, other.y_test, equal_nan=True)


def test_healthy_power_rises_from_cut_in_to_rated():
    for seed in range(10):
        data = turbine(n=2000, n_test=1001, random_state=seed)
        wind, power = data.X_test[:, 0], data.y_test[:, 0]
        assert np.all(np.diff(power) >= 0)
        # Its own consumption, while it stands.
        np.testing.assert_allclose(power[wind < 3.0], -4.0)
        strong = wind > 14
        np.testing.assert_allclose(power[strong], RATED, rtol=0.05)
        assert np.all(np.abs(np.interp([7, 8], wind, power) / RATED - 0.3) < 0.25)


def test_downtime_is_slightly_below_zero_and_icing_below_healthy():
    data = large()
    healthy, downtime, icing = data.y_test[:, 0], data.y_test[:, 1], data.y_test[:, -1]
    np.testing.assert_allclose(downtime, -4.0)
    running = healthy > 0
    assert np.all(icing[running] < healthy[running])
    np.testing.assert_allclose(icing[~running], healthy[~running], atol=4.0)
    assert 0.5 * RATED < icing.max() < 0.7 * RATED


def test_curtailments_are_plateaus_where_the_wind_would_give_more():
    data = large()
    healthy = data.y_test[:, 0]
    levels = [np.unique(column[~np.isnan(column)]) for column in data.y_test[:, 2:4].T]
    for level, column in zip(levels, data.y_test[:, 2:4].T, strict=True):
        assert len(level) == 1
        np.testing.assert_array_equal(np.isnan(column), healthy <= level[0])
    assert 0.3 * RATED <= levels[0][0] <= 0.5 * RATED
    assert 0.6 * RATED <= levels[1][0] <= 0.8 * RATED
    for k in (2, 3):
        rows = data.process == k
        assert rows.sum() > 50
        assert np.interp(data.X[rows, 0], data.X_test[:, 0], healthy).min() > 0.99 * levels[k - 2]
        np.testing.assert_allclose(data.y[rows], levels[k - 2][0], atol=5 * 0.004 * RATED)


def test_states_have_their_shares():
    data = turbine(n=40_000, downtime=0.1, faults=0.08, clutter=0.05, random_state=1)
    shares = np.bincount(data.process) / 40_000
    assert shares[1] == pytest.approx(0.1, abs=0.03)
    assert shares[4] == pytest.approx(0.08, abs=0.03)
    assert shares[5] == pytest.approx(0.05, abs=0.005)
    # A limit is in force for 2 % of the time, and shows in strong wind only.
    assert np.all(shares[2:4] < 0.03)


@pytest.mark.parametrize("state", [1, 4])
def test_states_last_for_hours(state):
    data = turbine(n=40_000, clutter=0.0, random_state=2)
    lengths = [len(list(rows)) for k, rows in itertools.groupby(data.process) if k == state]
    # Two spells of the same state may follow each other.
    assert 32 < np.mean(lengths) < 48


def test_clutter_comes_in_single_rows_over_the_range_of_power():
    data = turbine(n=40_000, clutter=0.05, random_state=2)
    lost = data.process == 5
    assert np.mean(lost[1:][lost[:-1]]) < 0.1
    power = data.y[lost] / RATED
    assert (power.min(), power.max()) == pytest.approx((-0.05, 1.05), abs=0.01)
    assert power.mean() == pytest.approx(0.5, abs=0.03)
    assert power.std() == pytest.approx(1.1 / np.sqrt(12), rel=0.05)


def test_wind_is_mostly_weak_and_lasts():
    # The correlation lasts for about 100 rows, so there are few independent ones.
    winds = np.stack([turbine(n=20_000, random_state=seed).X[:, 0] for seed in range(5)])
    # A Weibull distribution of shape 2 and scale 8 m/s.
    assert winds.mean() == pytest.approx(8 * np.sqrt(np.pi) / 2, rel=0.05)
    assert np.mean(winds > 12) == pytest.approx(np.exp(-((12 / 8) ** 2)), abs=0.03)
    assert winds.min() >= 0
    for wind in winds:
        assert np.corrcoef(wind[1:], wind[:-1])[0, 1] > 0.97
        assert abs(np.corrcoef(wind[2000:], wind[:-2000])[0, 1]) < 0.4


def test_the_first_row_is_like_any_other():
    winds = np.concatenate([turbine(n=1, n_test=1, random_state=s).X[:, 0] for s in range(300)])
    assert winds.mean() == pytest.approx(8 * np.sqrt(np.pi) / 2, rel=0.1)
    assert winds.std() == pytest.approx(8 * np.sqrt(1 - np.pi / 4), rel=0.15)


def test_noise_is_largest_on_the_slope():
    data = large()
    healthy = data.process == 0
    residual = residuals(data)[healthy, 0] / RATED
    output = (data.y[healthy] / RATED) - residual
    assert abs(residual.mean()) < 0.001
    spread = {
        name: residual[where].std()
        for name, where in {
            "still": output < -0.001,
            "slope": np.abs(output - 0.5) < 0.1,
            "rated": output > 0.99,
        }.items()
    }
    assert spread["slope"] == pytest.approx(0.028, rel=0.1)
    assert spread["rated"] == pytest.approx(0.0085, rel=0.1)
    assert spread["still"] < 0.003


def test_rows_are_separable_where_no_other_function_is_near():
    data = large()
    wind = data.X[:, 0]
    # Below cut-in all functions are the same.
    calm = (wind < 2.9) & (data.process < 5)
    assert calm.sum() > 1000
    assert not data.separable[calm].any()
    storm = (wind > 12) & (data.process < 5)
    assert storm.sum() > 1000
    assert data.separable[storm].mean() > 0.9


def test_clutter_is_separable_where_it_lies_on_no_function():
    # By what is observed: on a curve nobody could tell.
    data = turbine(n=20_000, clutter=0.3, n_test=4001, random_state=0)
    distance = np.abs(residuals(data))
    running = (data.process == 5) & (data.X[:, 0] > 8)
    on = running & (distance[:, 0] < 0.02 * RATED)
    assert on.sum() > 20
    assert not data.separable[on].any()
    far = running & (np.nanmin(distance, axis=1) > 0.13 * RATED)
    assert far.sum() > 20
    assert data.separable[far].all()


def test_separable_rows_are_nearest_to_their_own_function():
    data = large()
    seen = data.separable & (data.process < 5)
    distance = np.abs(residuals(data)[seen])
    distance = np.where(np.isnan(distance), np.inf, distance)
    assert np.mean(distance.argmin(axis=1) == data.process[seen]) > 0.95


def test_without_faults_all_rows_are_healthy():
    data = turbine(n=500, curtailments=0, downtime=0.0, faults=0.0, clutter=0.0, random_state=0)
    np.testing.assert_array_equal(data.process, 0)


@pytest.mark.parametrize("n", [1, 2, 7])
def test_a_few_rows_are_a_data_set_as_well(n):
    data = turbine(n=n, n_test=1, random_state=0)
    assert data.X.shape == (n, 1)
    assert np.isfinite(data.y).all()
    assert data.y_test.shape == (1, 5)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"curtailments": 3}, "curtailments must be a whole number from 0 to 2, got 3"),
        ({"curtailments": -1}, "curtailments must be a whole number from 0 to 2"),
        ({"downtime": -0.1}, "must be shares of the rows"),
        ({"faults": 0.6}, "half of them healthy, got 0.05, 0.6 and 0.01"),
        ({"downtime": 0.2, "faults": 0.2, "clutter": 0.1}, "half of them healthy"),
        ({"clutter": -1e-9}, "must be shares of the rows"),
        ({"n": 0}, "n must be a whole number of at least 1"),
        ({"n_test": 0}, "n_test must be a whole number of at least 1"),
    ],
)
def test_what_is_wrong_is_said(arguments, words):
    with pytest.raises(ValueError, match=words):
        turbine(**arguments)
