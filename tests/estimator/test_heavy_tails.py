"""Student-t and Laplace noise from the fit to files, reports and exports."""

import jax
import matplotlib as mpl
import matplotlib.pyplot as plt
import numpy as np
import pytest
from scipy.stats import t

from dagp import DAGP, GP, plot, report
from dagp.deploy import Predictor
from dagp.model.noise_shapes import LaplaceShape, StudentShape
from dagp.model.sparse_gp import Marginals

mpl.use("agg")

N = 64


def two_curves(seed=0, n=N):
    """Two curves, both with heavy tails, and which of them each point is from."""
    rng = np.random.default_rng(seed)
    X, label = rng.uniform(-1, 1, (n, 1)), rng.integers(2, size=n)
    f = np.where(label == 1, 2 + np.sin(3 * X[:, 0]), -2 * X[:, 0] - 2)
    return X, f + 0.1 * rng.standard_t(2, n), label, f


@pytest.fixture(scope="module")
def data():
    return two_curves()


@pytest.fixture(scope="module")
def model(data):
    priors = [GP(noise="student"), GP(noise="laplace")]
    settings = {"n_init": 2, "inducing": 8, "tol": 1e-2, "gate": "constant", "random_state": 0}
    return DAGP(processes=priors, **settings).fit(*data[:2])


def test_both_curves_are_found(model, data):
    X, _, label, f = data
    agree = np.mean(model.assignment_ == label)
    assert max(agree, 1 - agree) > 0.95
    first = int(agree < 0.5)
    for k in range(2):
        own = label == (k if first == 0 else 1 - k)
        assert np.sqrt(np.mean((model.processes_[k].predict(X) - f)[own] ** 2)) < 0.12


def test_processes_tell_their_noise(model):
    student, laplace = model.processes_
    assert (student.noise_, laplace.noise_, laplace.degrees_) == ("student", "laplace", None)
    assert 1 <= student.degrees_ < 20
    assert isinstance(model.posterior_.model.process(0).shape, StudentShape)
    assert isinstance(model.posterior_.model.process(1).shape, LaplaceShape)
    for process in model.processes_:
        assert process.noise_std([[0.0], [0.5]]) == pytest.approx(process.noise_std_[0], rel=1e-6)


def test_degrees_are_trained(model):
    trained = model.stream_.model.process(0).shape.degrees
    assert trained.automatic and abs(float(trained.raw) - np.log(4.0)) > 0.1


def test_intervals_and_densities_have_heavy_tails(model, data):
    mixture = model.predict_mixture(data[0][:3])
    for k in range(2):
        alone = mixture.marginal(k)
        assert len(alone.uniform) == 20
        narrow, wide = (np.ptp(alone.interval(level), axis=0) for level in (0.5, 0.998))
        assert np.all(wide / narrow > 5.5)  # 4.58 if it were normal
        assert np.all(
            np.isfinite(alone.log_prob(alone.mean() + 20 * model.processes_[k].noise_std_))
        )
    assert np.all(np.isfinite(model.score_samples(*data[:2])))


def test_skpro_has_its_quantiles(model, data):
    pytest.importorskip("skpro")
    from dagp.skpro import MixtureDistribution

    mixture = model.predict_mixture(data[0][:3])
    found = MixtureDistribution(mixture)
    np.testing.assert_allclose(np.ravel(found.ppf(0.99)), mixture.quantile(0.99), rtol=1e-8)
    assert np.all(np.isfinite(found.energy()))


def test_q_is_widened_for_uncertain_sizes_and_assignments(model):
    for k in range(2):
        trained, answers = (m.process(k) for m in (model.stream_.model, model.posterior_.model))
        loss = trained.latent.q.precision - answers.latent.q.precision
        assert np.linalg.eigvalsh(loss).min() > -1e-6 * np.linalg.norm(trained.latent.q.precision)
        assert np.linalg.norm(loss) > 1e-3 * np.linalg.norm(trained.latent.q.precision)


def test_it_is_described(model, data, tmp_path):
    X, y, *_ = data
    degrees = f"{model.processes_[0].degrees_:.3g} degrees of freedom"
    assert f"(Student-t, {degrees})" in model.summary() and "(Laplace)" in model.summary()
    page = report.write(model, X, y, tmp_path / "own.html").read_text()
    assert f"larger errors are frequent (Student-t, {degrees})" in page
    assert "(Laplace)" in page
    assert "probability" in str(model.explain(X[0], y[0]))
    found = model.to_xarray((X, y))
    assert found["noise"].values.tolist() == ["student", "laplace"]
    np.testing.assert_array_equal(found["degrees"], [model.processes_[0].degrees_, np.nan])


def test_bands_of_plots_hold_a_probability(model, data):
    axes = plot.posterior(model, *data[:2])
    bands = [c.get_paths() for c in axes.collections if hasattr(c, "get_paths")]
    heights = [np.ptp(p.vertices[:, 1]) for paths in bands for p in paths]
    plt.close("all")
    assert 0 < np.median(heights) < 3


def test_it_is_saved_exported_and_goes_on_learning(model, data, tmp_path):
    X, y, *_ = data
    again = DAGP.load(model.save(tmp_path / "own.dagp", (X, y)))
    assert again.processes == model.processes
    np.testing.assert_array_equal(again.predict(X), model.predict(X))
    assert again.processes_[0].degrees_ == model.processes_[0].degrees_
    exported = Predictor(model.export(tmp_path / "export"))
    np.testing.assert_allclose(exported.score_samples(X, y), model.score_samples(X, y), rtol=1e-8)
    more, values, label, _ = two_curves(1)
    again.partial_fit(more, values)
    agree = np.mean(again.assignment_ == label)
    assert again.stream_.seen == 2 * N and max(agree, 1 - agree) > 0.9
    assert again.processes_[0].degrees_ != model.processes_[0].degrees_


def test_minibatches_in_single_precision():
    rng = np.random.default_rng(0)
    X = rng.uniform(-1, 1, (N, 1))
    y = np.sin(3 * X[:, 0]) + 0.1 * rng.standard_t(1.5, N)
    settings = {"n_init": 1, "inducing": 8, "tol": 1e-2, "max_iter": 100, "random_state": 0}
    model = DAGP(1, GP(noise="student"), batch_size=32, dtype="float32", **settings)
    model.fit(X, y)
    assert np.sqrt(np.mean((model.predict(X) - np.sin(3 * X[:, 0])) ** 2)) < 0.08
    assert model.processes_[0].degrees_ < 4


def test_sampled_functions_see_the_density_itself(model, data):
    """What ``inference="concrete"`` averages: the density of the noise around a drawn function."""
    process, y = model.stream_.model.process(0), data[1][:5, None]
    with jax.enable_x64(True):
        drawn = Marginals(np.zeros_like(y), np.zeros_like(y))
        found = process.expected_log_density(drawn, y)
        std, degrees = np.sqrt(process.noise_variance()[0]), float(process.shape.freedom)
    np.testing.assert_allclose(found, t.logpdf(y[:, 0], degrees, 0, std), rtol=1e-8)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:Training ended before")
def test_the_concrete_scheme_learns_it(data):
    X, y, label, _ = data
    priors = [GP(noise="student"), GP(noise="laplace")]
    settings = {"n_init": 2, "inducing": 8, "gate": "constant", "max_iter": 400}
    model = DAGP(processes=priors, inference="concrete", random_state=0, **settings).fit(X, y)
    agree = np.mean(model.assignment_ == label)
    assert max(agree, 1 - agree) > 0.9
