"""The data sets are what the paper, or their own words, say they are."""

import functools
import itertools

import numpy as np
import pytest

from dagp import datasets


def signal(x):
    return np.cos(np.pi * x / 2) * np.exp(-((x / 2) ** 2))


def test_noise_separation():
    data = datasets.noise_separation(outliers=0.4, n=20000, random_state=0)
    inlier = data.process == 0
    residual = data.y[inlier] - signal(data.X[inlier, 0])
    assert np.mean(~inlier) == pytest.approx(0.4, abs=0.02)
    assert residual.std() == pytest.approx(0.15, rel=0.03)
    clutter = data.y[~inlier]
    assert clutter.min() >= -1
    assert clutter.max() <= 3
    assert clutter.mean() == pytest.approx(1.0, abs=0.05)
    np.testing.assert_allclose(data.y_test, signal(data.X_test[:, 0]))
    assert data.X_test[[0, -1], 0].tolist() == [-3.0, 3.0]


def test_noise_separation_without_noise():
    data = datasets.noise_separation(outliers=0.4, noise=0.0, random_state=0)
    inlier = data.process == 0
    np.testing.assert_allclose(data.y[inlier], signal(data.X[inlier, 0]), atol=1e-15)
    with pytest.raises(ValueError, match="share between 0 and 1"):
        datasets.noise_separation(outliers=1.5)


@pytest.mark.parametrize(("noise", "level"), [(0.005, -1.0), (0.05, -2.25)])
def test_multimodal(noise, level):
    data = datasets.multimodal(noise=noise, n=5000, random_state=0)
    x = data.X[:, 0]
    curves = [
        np.sin(x),
        np.sin(x) - 2 * np.exp(-((x - 2) ** 2) / 2),
        level - 3 * x / (8 * np.pi) + 0.3 * np.sin(2 * x),
    ]
    for k, curve in enumerate(curves):
        residual = (data.y - curve)[data.process == k]
        assert residual.std() == pytest.approx(noise, rel=0.05)
        assert abs(residual.mean()) < noise / 10
    np.testing.assert_array_equal(x[:5000], x[5000:10000])


def scalar_cartpole(state, force, pole_mass, half_length):
    """One Euler step written for one cart-pole, term by term as in the classic environment."""
    x, x_dot, theta, theta_dot = state
    total_mass, polemass_length = 1.0 + pole_mass, pole_mass * half_length
    temp = (force + polemass_length * theta_dot**2 * np.sin(theta)) / total_mass
    theta_acc = (9.8 * np.sin(theta) - np.cos(theta) * temp) / (
        half_length * (4.0 / 3.0 - pole_mass * np.cos(theta) ** 2 / total_mass)
    )
    x_acc = temp - polemass_length * theta_acc * np.cos(theta) / total_mass
    return [
        x + 0.02 * x_dot,
        x_dot + 0.02 * x_acc,
        theta + 0.02 * theta_dot,
        theta_dot + 0.02 * theta_acc,
    ]


@pytest.mark.parametrize(("system", "pole"), [("default", (0.1, 0.5)), ("short", (0.05, 0.05))])
def test_cartpole_transitions(system, pole):
    data = datasets.cartpole(system, n=40, n_test=10, noise=0.0, random_state=1)
    for row, turn in zip(data.X, data.y, strict=True):
        state = list(row[:4])
        for _ in range(5):
            state = scalar_cartpole(state, 10 * row[4], *pole)
        assert state[2] - row[2] == pytest.approx(turn, abs=1e-9)
    assert np.all(np.abs(data.X[:, 2]) <= np.pi)
    assert np.all(np.abs(data.X[:, 4]) <= 1)


def test_cartpole_mixture():
    data = datasets.cartpole(n=500, n_test=50, random_state=0)
    assert data.X.shape == (1000, 5)
    assert data.X_test.shape == (100, 5)
    assert np.bincount(data.process).tolist() == [500, 500]
    starts = data.X[::10]
    assert np.all(np.abs(starts[:, :4]) <= 0.05)
    noisy = datasets.cartpole("default", n=2000, random_state=0)
    clean = datasets.cartpole("default", n=2000, noise=0.0, random_state=0)
    assert (noisy.y - clean.y).std() == pytest.approx(0.1, rel=0.05)
    with pytest.raises(ValueError, match="system must be"):
        datasets.cartpole("long")
    unwrapped = datasets.cartpole("short", n=500, wrap_angle=False, random_state=0)
    assert np.abs(unwrapped.X[:, 2]).max() > np.pi


HARDER = {
    "crossings": datasets.crossings,
    "crossings_many": functools.partial(datasets.crossings, 4, 5),
    "heteroscedastic": datasets.heteroscedastic,
    "rare": datasets.rare,
    "sheets": datasets.sheets,
    "sheets_curve": functools.partial(datasets.sheets, "curve"),
    "switch": datasets.switch,
    "trajectories": datasets.trajectories,
}


def curves_at(data):
    """Functions at the rows' inputs, read off the test set."""
    columns = [np.interp(data.X[:, 0], data.X_test[:, 0], column) for column in data.y_test.T]
    return np.stack(columns, axis=1)


def crossing_places(data):
    """Where each pair of functions crosses: {pair: inputs}."""
    places = {}
    for j, k in itertools.combinations(range(data.y_test.shape[1]), 2):
        above = data.y_test[:, j] > data.y_test[:, k]
        places[j, k] = data.X_test[1:, 0][above[1:] != above[:-1]]
    return places


def crossing_slopes(data):
    """How fast the gap between two functions changes where they cross, over all pairs."""
    x = data.X_test[:, 0]
    slopes = np.gradient(data.y_test, x, axis=0)
    parts = [
        np.abs(slopes[:, j] - slopes[:, k])[np.searchsorted(x, place)]
        for (j, k), place in crossing_places(data).items()
    ]
    return np.concatenate(parts)


@pytest.mark.parametrize("draw", HARDER.values(), ids=HARDER.keys())
def test_harder_sets_have_one_shape_and_follow_the_seed(draw):
    data = draw(n=300, n_test=81, random_state=3)
    inputs, labels = len(data.feature_names), data.process.max() + 1
    assert data.X.shape == (300, inputs)
    assert data.y.shape == data.process.shape == data.separable.shape == (300,)
    assert data.process.dtype.kind == "i"
    assert data.separable.dtype == bool
    assert data.X_test.shape == (81, inputs)
    assert data.y_test.shape in ((81, labels), (81, labels - 1))
    assert data.target_names in (["y"], ["position"])
    for column in data.X_test.T:
        np.testing.assert_allclose(np.diff(np.unique(column), 2), 0, atol=1e-12)
    again, other = draw(n=300, n_test=81, random_state=3), draw(n=300, n_test=81, random_state=4)
    for name, value in data.items():
        np.testing.assert_array_equal(value, again[name])
    assert not np.allclose(data.y, other.y)
    assert not np.allclose(data.y_test, other.y_test, equal_nan=True)


@pytest.mark.parametrize("draw", HARDER.values(), ids=HARDER.keys())
def test_harder_sets_come_in_random_order(draw):
    data = draw(n=4000, random_state=0)
    row = np.arange(4000)
    for column in (*data.X.T, data.process):
        assert abs(np.corrcoef(row, column)[0, 1]) < 0.06


@pytest.mark.parametrize("processes", [2, 3, 4, 5])
@pytest.mark.parametrize("crossings", [0, 1, 2, 3, 5])
def test_every_pair_crosses_as_often_as_asked(processes, crossings):
    for seed in range(21):
        data = datasets.crossings(processes, crossings, n_test=5000, random_state=seed)
        assert data.X.shape == (200 * processes, 1)
        places = crossing_places(data)
        assert [len(place) for place in places.values()] == [crossings] * len(places)
        everywhere = np.sort(np.concatenate(list(places.values())))
        assert np.all(np.diff(everywhere) > 0)
        assert data.separable.mean() > 0.7
        if not crossings:
            levels = np.sort(data.y_test, axis=1)
            assert np.diff(levels, axis=1).min() > 0.09 * np.ptp(data.y_test, axis=1).max()
            continue
        # What follows the last crossing must be enough to tell that there was one.
        margin = 2.99 / processes / crossings
        assert everywhere[0] > margin
        assert everywhere[-1] < 10 - margin
        # A sine as high as the gap between neighbours, with that many zeros on [0, 10].
        steep = processes * np.sin(np.pi / processes) * crossings * np.pi / 10
        assert crossing_slopes(data).min() > 0.345 * steep


def test_crossings_draws_every_curve_equally_often():
    data = datasets.crossings(4, 3, n=20000, n_test=20001, random_state=0)
    shares = np.bincount(data.process) / 20000
    np.testing.assert_allclose(shares, 0.25, atol=0.02)
    residual = data.y - curves_at(data)[np.arange(20000), data.process]
    assert residual.std() == pytest.approx(0.05, rel=0.03)
    lower, upper = np.quantile(data.X[data.process == 2, 0], [0.25, 0.75])
    assert (lower, upper) == pytest.approx((2.5, 7.5), abs=0.2)


@pytest.mark.parametrize("name", ["crossings_many", "heteroscedastic", "rare", "trajectories"])
def test_separable_rows_are_far_from_every_other_curve(name):
    data = HARDER[name](n=1000, n_test=20001, random_state=1)
    curves = curves_at(data)
    targets = curves.shape[1]
    if name == "heteroscedastic":
        stds = [np.interp(data.X[:, 0], data.X_test[:, 0], std) for std in data.std_test.T]
    else:
        stds = [np.full(1000, 0.03 if name == "trajectories" else 0.05)] * targets
    checked = 0
    for i, k in enumerate(data.process):
        if k == targets:
            distance = min(abs(data.y[i] - curve) / 4 / stds[0][i] for curve in curves[i])
        else:
            distance = min(
                abs(curves[i, j] - curves[i, k]) / 6 / max(stds[j][i], stds[k][i])
                for j in range(targets)
                if j != k
            )
        if abs(distance - 1) > 1e-3:
            assert data.separable[i] == (distance > 1)
            checked += 1
    assert checked > 950
    assert 0.6 < data.separable.mean() < 0.99


def test_switch():
    places = []
    for seed in range(20):
        data = datasets.switch(noise=(0.05, 0.2), jump=1.5, n=4000, n_test=4001, random_state=seed)
        x, grid = data.X[:, 0], data.X_test[:, 0]
        places.append(data.switch)
        np.testing.assert_array_equal(data.process, x >= data.switch)
        np.testing.assert_array_equal(data.separable, np.abs(x - data.switch) > 0.1)
        np.testing.assert_array_equal(np.isnan(data.y_test[:, 0]), grid >= data.switch)
        np.testing.assert_array_equal(np.isnan(data.y_test[:, 1]), grid < data.switch)
        left, right = (column[~np.isnan(column)] for column in data.y_test.T)
        assert abs(right[0] - left[-1]) == pytest.approx(1.5, abs=0.02)
        whole = np.nansum(data.y_test, axis=1)
        residual = data.y - np.interp(x, grid, whole)
        for side, std in enumerate((0.05, 0.2)):
            rows = (data.process == side) & data.separable
            assert residual[rows].std() == pytest.approx(std, rel=0.12)
    assert 2 <= min(places) < 3.5
    assert 6.5 < max(places) <= 8


def test_heteroscedastic_noise_differs_between_curves_and_along_them():
    data = datasets.heteroscedastic(n=40000, n_test=20001, random_state=2)
    assert [len(place) for place in crossing_places(data).values()] == [2]
    residual = data.y - curves_at(data)[np.arange(40000), data.process]
    bins = (data.X[:, 0] / 10 * 20).astype(int)
    measured = np.array(
        [[residual[(bins == b) & (data.process == k)].std() for k in (0, 1)] for b in range(20)]
    )
    np.testing.assert_allclose(measured[:, 1] / measured[:, 0], 5, rtol=0.2)
    np.testing.assert_allclose(measured.max(axis=0) / measured.min(axis=0), 3, rtol=0.15)
    assert np.exp(np.log(measured[:, 0]).mean()) == pytest.approx(0.02, rel=0.05)


@pytest.mark.parametrize(("share", "n", "count"), [(0.05, 1000, 50), (0.2, 300, 60)])
def test_rare(share, n, count):
    data = datasets.rare(share, n=n, random_state=0)
    assert np.bincount(data.process).tolist() == [n - count, count]
    assert [len(place) for place in crossing_places(data).values()] == [1]


@pytest.mark.parametrize("touch", ["point", "curve"])
def test_sheets_touch_without_crossing(touch):
    for seed in range(5):
        data = datasets.sheets(touch, noise=0.05, n=5000, n_test=201**2, random_state=seed)
        gap = data.y_test[:, 1] - data.y_test[:, 0]
        assert 0 <= gap.min() < 1e-3
        assert gap.max() > 1.0
        near = data.X_test[gap < 0.01]
        if touch == "point":
            assert np.ptp(near, axis=0).max() < 0.3
        else:
            assert np.ptp(near, axis=0).max() > 1.2
        nearest = np.round((data.X + 1) * 100).astype(int) @ [201, 1]
        residual = data.y - data.y_test[nearest, data.process]
        assert residual.std() == pytest.approx(0.05, rel=0.1)
        clearly = np.abs(gap[nearest] - 0.3) > 0.05
        np.testing.assert_array_equal((gap[nearest] > 0.3)[clearly], data.separable[clearly])


def test_trajectories():
    data = datasets.trajectories(n=20000, n_test=20001, random_state=0)
    assert np.mean(data.process == 3) == pytest.approx(0.2, abs=0.01)
    np.testing.assert_allclose(np.bincount(data.process)[:3] / 20000, 0.8 / 3, atol=0.01)
    np.testing.assert_allclose(np.sort(data.X[:, 0]), np.linspace(0, 10, 20000))
    assert [len(place) for place in crossing_places(data).values()] == [1, 1, 1]
    seen = data.process < 3
    curves = curves_at(data)
    residual = data.y[seen] - curves[seen, data.process[seen]]
    assert residual.std() == pytest.approx(0.03, rel=0.03)
    low, high = data.observed
    clutter = data.y[~seen]
    assert low < data.y_test.min() < data.y_test.max() < high
    assert (clutter.min(), clutter.max()) == pytest.approx((low, high), abs=0.01 * (high - low))
    assert clutter.std() == pytest.approx((high - low) / np.sqrt(12), rel=0.03)
    # Gentle: the velocity never strays far from its mean.
    velocity = np.gradient(data.y_test, data.X_test[:, 0], axis=0)
    assert np.abs(velocity - velocity.mean(axis=0)).max() < 0.6


@pytest.mark.parametrize("targets", [1, 2, 3, 5])
def test_every_two_targets_pass_each_other_once(targets):
    for seed in range(5):
        data = datasets.trajectories(targets, clutter=0.0, n_test=5000, random_state=seed)
        assert sorted(set(data.process.tolist())) == list(range(targets))
        if targets == 1:
            assert data.separable.all()
            continue
        assert all(len(place) == 1 for place in crossing_places(data).values())
        assert crossing_slopes(data).min() > 0.29


@pytest.mark.parametrize(
    ("draw", "arguments", "words"),
    [
        (
            datasets.crossings,
            {"processes": 6},
            "processes must be a whole number from 2 to 5, got 6",
        ),
        (datasets.crossings, {"crossings": -1}, "crossings must be a whole number of at least 0"),
        (datasets.crossings, {"crossings": 1.5}, "crossings must be a whole number"),
        (datasets.crossings, {"noise": -0.1}, "noise must be a standard deviation"),
        (datasets.crossings, {"n": 0}, "n must be a whole number of at least 1"),
        (datasets.heteroscedastic, {"ratio": 0.5}, "ratio must be a factor"),
        (datasets.heteroscedastic, {"variation": np.nan}, "variation must be a factor"),
        (datasets.rare, {"share": 0.0}, "share must be above 0"),
        (datasets.sheets, {"touch": "edge"}, "touch must be"),
        (datasets.sheets, {"n_test": 1000}, "square number, got 1000"),
        (datasets.switch, {"noise": 0.1}, "noise must be a pair"),
        (datasets.switch, {"noise": (0.1, np.nan)}, "noise must be a standard deviation"),
        (datasets.switch, {"jump": -1.0}, "jump must be a height"),
        (datasets.trajectories, {"targets": 0}, "targets must be a whole number from 1 to 5"),
        (datasets.trajectories, {"clutter": 1.0}, "clutter must be a share"),
        (datasets.steps, {"jumps": 0}, "jumps must be a whole number"),
        (datasets.steps, {"noise": -1.0}, "noise must be a standard deviation"),
    ],
)
def test_harder_sets_say_what_is_wrong(draw, arguments, words):
    with pytest.raises(ValueError, match=words):
        draw(**arguments)


def test_steps_are_levels_with_jumps():
    data = datasets.steps(jumps=3, noise=0.05, n=400, random_state=0)
    assert len(data.jumps) == 3 and np.all(np.diff(data.jumps) > 0.1)
    levels = np.unique(data.f_test)
    assert len(levels) == 4
    order = np.argsort(data.X_test[:, 0])
    changes = np.flatnonzero(np.diff(data.f_test[order]))
    assert len(changes) == 3
    assert abs(np.std(data.y_test - data.f_test) - 0.05) < 0.01
    again = datasets.steps(jumps=3, noise=0.05, n=400, random_state=0)
    np.testing.assert_array_equal(again.y, data.y)
