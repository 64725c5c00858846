"""Functions averaged over uncertain hyperparameters."""

from types import SimpleNamespace

import numpy as np
import pytest

from dagp import DAGP, GP, DeepGP, Noise, datasets, fixed
from dagp.kernels import SquaredExponential
from dagp.model.variational import NaturalGaussian
from dagp.predict import averaging
from dagp.predict.averaging import _inverse, _settings, _with

QUICK = {"n_init": 1, "tol": 1e-3, "random_state": 0}


def few_points():
    rng = np.random.default_rng(3)
    X = np.sort(rng.uniform(0, 3, (14, 1)), axis=0)
    return X, np.sin(2 * X[:, 0]) + 0.3 * rng.normal(size=14)


def log_density(values, X, y, centre, unit):
    """Log posterior of log length scale, variance and noise, as the library states it."""
    lengthscale, variance, noise = np.exp(values)
    K = variance * np.exp(-0.5 * ((X - X.T) / lengthscale) ** 2) + noise**2 * np.eye(len(X))
    residual = y - centre[1]
    prior = ((values[0] - np.log(unit[0])) / 1.5) ** 2
    prior += ((values[1] - 2 * np.log(unit[1])) / 1.5) ** 2
    prior += ((values[2] - np.log(0.1 * unit[1])) / 2.0) ** 2
    evidence = residual @ np.linalg.solve(K, residual) + np.linalg.slogdet(K)[1]
    return -0.5 * (evidence + prior)


def sampled_band(X, y, X_new, units, draws=4000):
    """Mean and standard deviation by a random walk over the hyperparameters of an exact GP."""
    rng = np.random.default_rng(0)
    centre, unit = (units.x_centre[0], units.y_centre[0]), (units.x_unit[0], units.y_unit[0])
    values = np.log([unit[0], unit[1] ** 2, 0.3 * unit[1]])
    now, means, squares = log_density(values, X, y, centre, unit), [], []
    for step in range(draws):
        proposed = values + 0.4 * rng.normal(size=3)
        then = log_density(proposed, X, y, centre, unit)
        if np.log(rng.uniform()) < then - now:
            values, now = proposed, then
        if step >= draws // 10 and step % 10 == 0:
            lengthscale, variance, noise = np.exp(values)
            K = variance * np.exp(-0.5 * ((X - X.T) / lengthscale) ** 2)
            k = variance * np.exp(-0.5 * ((X_new - X.T) / lengthscale) ** 2)
            gain = np.linalg.solve(K + noise**2 * np.eye(len(X)), k.T).T
            mean = centre[1] + gain @ (y - centre[1])
            means.append(mean)
            squares.append(variance - np.sum(gain * k, axis=1) + mean**2)
    mean = np.mean(means, axis=0)
    return mean, np.sqrt(np.mean(squares, axis=0) - mean**2)


@pytest.mark.filterwarnings("ignore:.*inducing.*")
def test_bands_are_those_of_a_random_walk_over_the_hyperparameters():
    X, y = few_points()
    X_new = np.linspace(0.2, 2.8, 14)[:, None]
    stds = {}
    for posterior in ("best", "averaged"):
        model = DAGP(1, posterior=posterior, **QUICK).fit(X, y)
        stds[posterior] = model.processes_[0].predict(X_new, return_std=True)[1]
    expected = sampled_band(X, y, X_new, model.posterior_.units)[1]
    error = {name: np.mean(np.log(std / expected)) for name, std in stds.items()}
    # Best hyperparameters from 14 points make bands a quarter too narrow.
    assert error["best"] < -0.25
    assert abs(error["averaged"]) < 0.1


def test_a_function_without_a_shape_of_its_own_keeps_a_band():
    """Noise around a constant: maximum likelihood has little doubt that it is constant."""
    rng = np.random.default_rng(4)
    X, y = np.linspace(0, 1, 40)[:, None], rng.normal(size=40)
    stds = {}
    for posterior in ("best", "averaged"):
        model = DAGP(1, posterior=posterior, **QUICK).fit(X, y)
        stds[posterior] = model.processes_[0].predict(X, return_std=True)[1].mean()
    assert stds["best"] < 0.15
    assert 0.15 < stds["averaged"] < 0.5


def test_known_hyperparameters_leave_nothing_to_average():
    X, y = few_points()
    known = GP(fixed(SquaredExponential(0.7, 1.0)), noise_std=fixed(0.3))
    found = [
        DAGP(1, known, inducing=8, posterior=posterior, **QUICK).fit(X, y).predict(X, True)
        for posterior in ("best", "averaged")
    ]
    np.testing.assert_array_equal(found[0], found[1])


@pytest.fixture(scope="module")
def separated():
    data = datasets.noise_separation(outliers=0.3, n=120, random_state=0)
    model = DAGP(
        processes=[GP(), Noise()], inducing=10, posterior="averaged", **QUICK | {"tol": 1e-2}
    )
    return model.fit(data.X, data.y), data


def test_the_summary_has_an_interval_beside_each_number(separated):
    model, _ = separated
    assert set(model.log_stds_[0]) == {"noise_std", "lengthscale", "variance"}
    assert model.log_stds_[1] == {}
    row = model.summary().splitlines()[-2]
    assert row.count("–") == 3
    best = DAGP(**{**model.get_params(), "posterior": "best"}).fit(separated[1].X, separated[1].y)
    assert "–" not in best.summary()
    assert best.lower_bound_ == model.lower_bound_


def test_files_exports_and_copies_keep_it(separated, tmp_path):
    model, data = separated
    again = DAGP.load(model.save(tmp_path / "model.dagp"))
    np.testing.assert_array_equal(again.predict(data.X, True), model.predict(data.X, True))
    np.testing.assert_equal(again.log_stds_, model.log_stds_)
    assert again.summary() == model.summary()
    assert again.posterior == "averaged"


def test_fits_continue_from_the_trained_model(separated):
    model, data = separated
    other = DAGP(**model.get_params()).set_params(warm_start=True)
    other.fit(data.X, data.y).fit(data.X, data.y)
    assert other.lower_bound_ > model.lower_bound_ - 1.0
    other.partial_fit(data.X[:20], data.y[:20])
    assert other.log_stds_ == [{}, {}]


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
@pytest.mark.parametrize(
    ("settings", "reason"),
    [
        ({"processes": [DeepGP(layers=2)]}, "must have one layer"),
        ({"inference": "concrete"}, "collapsed inference"),
        ({"batch_size": 30}, "in minibatches"),
        ({"callbacks": [lambda progress: True]}, "the fit was stopped"),
    ],
    ids=["deep", "concrete", "minibatch", "stopped"],
)
def test_where_it_does_not_apply_a_warning_says_so(settings, reason):
    X, y = few_points()
    quick = {"n_init": 1, "max_iter": 24, "tol": 1.0, "random_state": 0, "inducing": 5}
    model = DAGP(1, posterior="averaged", **{**quick, **settings})
    with pytest.warns(UserWarning, match=f"does not apply, because .*{reason}"):
        model.fit(np.repeat(X, 4, axis=0), np.repeat(y, 4))
    assert model.log_stds_ == [{}]


def test_other_words_are_refused():
    with pytest.raises(ValueError, match="posterior must be 'best' or 'averaged', got 'mean'"):
        DAGP(posterior="mean").fit(*few_points())  # pyright: ignore[reportArgumentType]


def test_a_function_that_is_zero_everywhere_changes_nothing():
    np.testing.assert_array_equal(_inverse(np.zeros((1, 3, 5))), 0.0)


def test_an_average_that_is_not_finite_is_not_used(separated, monkeypatch):
    found = averaging._variance_between

    def lost(*given):
        return [None if add is None else np.nan * add for add in found(*given)]

    monkeypatch.setattr(averaging, "_variance_between", lost)
    model, data = separated
    with pytest.warns(UserWarning, match="do not settle at other hyperparameters"):
        again = DAGP(**model.get_params(deep=False)).fit(data.X, data.y)
    assert again.log_stds_ == [{}, {}]
    assert np.all(np.isfinite(again.predict(data.X, return_std=True)))


def test_a_setting_far_better_than_the_approximation_says_has_a_bounded_weight(monkeypatch):
    better = SimpleNamespace(model=None), 1e6
    monkeypatch.setattr(averaging, "settled_at", lambda *given: better)
    best = SimpleNamespace(value=0.0, values=np.zeros(1), state=SimpleNamespace(model=None))
    best.state.responsibilities = np.ones((1, 1))
    laplace = SimpleNamespace(best=best, layout=None, directions=lambda: np.eye(1))
    assert [weight for weight, _ in _settings(laplace, None)] == pytest.approx([1 / 3, 1 / 3])


def enlarged(precision, more, mean):
    """Precision and shift of a q after its covariance is enlarged."""
    q = NaturalGaussian(precision[None, None], (precision @ mean)[None, None])
    holder = SimpleNamespace(
        function=SimpleNamespace(layers=[SimpleNamespace(q=q)]), with_function_q=lambda q: q
    )
    after = _with(holder, more[None, None])
    return np.asarray(after.precision)[0, 0], np.asarray(after.shift)[0, 0]


def test_a_covariance_is_enlarged_around_the_same_mean():
    rng = np.random.default_rng(0)
    A, B, mean = rng.normal(size=(5, 5)), rng.normal(size=(5, 2)), rng.normal(size=5)
    precision, more = np.eye(5) + A @ A.T, B @ B.T
    after, shift = enlarged(precision, more, mean)
    np.testing.assert_allclose(np.linalg.inv(after), np.linalg.inv(precision) + more, atol=1e-9)
    np.testing.assert_allclose(np.linalg.solve(after, shift), mean)


def test_the_precision_of_a_function_almost_without_noise_stays_positive():
    """Of fifteen decimal digits, rounding leaves nothing of what the data do not determine."""
    rng = np.random.default_rng(0)
    vectors = np.linalg.qr(rng.normal(size=(60, 60)))[0]
    precision = (vectors * np.geomspace(1.0, 3e15, 60)) @ vectors.T
    B = rng.normal(size=(60, 60))
    after, _ = enlarged((precision + precision.T) / 2, B @ B.T, rng.normal(size=60))
    values = np.linalg.eigvalsh(after)
    assert values[0] > -60 * np.finfo(float).eps * values[-1]
    assert np.all(np.isfinite(NaturalGaussian(after[None], np.zeros((1, 60))).mean_and_root()[1]))
