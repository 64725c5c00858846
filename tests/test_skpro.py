"""The face towards skpro."""

import numpy as np
import pandas as pd
import pytest
from scipy import integrate

from dagp import DAGP, GP, Mixture, Uniform, datasets
from dagp.baselines.mdn import MDN

skpro = pytest.importorskip("skpro")

from skpro.distributions import NormalMixture  # noqa: E402
from skpro.metrics import CRPS  # noqa: E402
from skpro.utils import check_estimator  # noqa: E402

from dagp.skpro import MixtureDistribution, MixtureRegressor  # noqa: E402

WEIGHTS = np.array([[0.3, 0.5, 0.2], [0.1, 0.2, 0.7]])
MEANS = np.array([[-2.0, 1.0, 4.0], [0.5, 0.0, -3.0]])
VARIANCES = np.array([[0.25, 1.0, 4.0], [2.0, 0.1, 1.0]])
UNIFORM = [False, True, True]


@pytest.fixture(scope="module")
def both():
    """Two outputs and their distribution, with components of both kinds."""
    mixture = Mixture(
        WEIGHTS,
        np.stack([MEANS, 10 * MEANS], axis=2),
        np.stack([VARIANCES, 100 * VARIANCES], axis=2),
        UNIFORM,
    )
    labels = {"index": pd.Index(["u", "v"]), "columns": pd.Index(["near", "far"])}
    return mixture, MixtureDistribution(mixture, **labels)


def test_every_output_has_the_density_of_its_own_mixture(both):
    _, distribution = both
    alone = Mixture(WEIGHTS, 10 * MEANS, 100 * VARIANCES, UNIFORM)
    y = np.array([3.0, -2.0])
    x = pd.DataFrame({"near": y / 10, "far": y}, index=["u", "v"])
    np.testing.assert_allclose(distribution.log_pdf(x)["far"], alone.log_prob(y))
    np.testing.assert_allclose(distribution.pdf(x)["far"], np.exp(alone.log_prob(y)))
    np.testing.assert_allclose(distribution.pdf(x)["near"], 10 * distribution.pdf(x)["far"])
    np.testing.assert_allclose(distribution.cdf(x)["far"], alone.cdf(y))
    np.testing.assert_allclose(distribution.mean()["far"], alone.mean())
    np.testing.assert_allclose(distribution.var()["far"], alone.variance())
    np.testing.assert_allclose(distribution.ppf(distribution.cdf(x)), x)


def test_parts_keep_their_labels(both):
    _, distribution = both
    part = distribution.loc[["v"], ["far"]]
    assert (list(part.index), list(part.columns)) == (["v"], ["far"])
    assert part.mean().iloc[0, 0] == distribution.mean().loc["v", "far"]
    assert distribution.iat[1, 0].mean() == distribution.mean().loc["v", "near"]
    assert distribution.iat[1, 0].cdf(0.1) == distribution.cdf(0.1).loc["v", "near"]


def test_draws_share_the_process(both):
    mixture, distribution = both
    draws = distribution.sample(20_000)
    assert draws.shape == (40_000, 2)
    assert draws.index.nlevels == 2
    of_u = draws.xs("u", level=1)
    np.testing.assert_allclose(of_u.mean(), mixture.mean()[0], rtol=0.15)
    # The outputs are independent given the process; what they have in common is its mean.
    between = WEIGHTS[0] @ (MEANS[0] - WEIGHTS[0] @ MEANS[0]) ** 2
    assert np.cov(of_u.T)[0, 1] == pytest.approx(10 * between, rel=0.15)
    assert distribution.sample().shape == (2, 2)


def test_energies_are_integrals(both):
    _, distribution = both
    one = distribution.iloc[:, [0]]
    alone = Mixture(WEIGHTS, MEANS, VARIANCES, UNIFORM)
    edges = np.linspace(-20, 20, 20_001)
    F = np.stack([alone.cdf(x) for x in edges])
    np.testing.assert_allclose(
        one.energy()["energy"], 2 * integrate.simpson(F * (1 - F), edges, axis=0), rtol=1e-5
    )
    x = np.array([0.7, -1.0])
    below, above = edges[:, None] < x, edges[:, None] >= x
    expected = integrate.simpson(F * below + (1 - F) * above, edges, axis=0)
    np.testing.assert_allclose(one.energy(x[:, None])["energy"], expected, rtol=1e-3)
    assert distribution.energy()["energy"].to_numpy() == pytest.approx(
        11 * one.energy()["energy"].to_numpy()
    )


def test_normal_components_agree_with_the_mixture_of_skpro():
    distribution = MixtureDistribution(Mixture(WEIGHTS, MEANS, VARIANCES))
    theirs = NormalMixture(WEIGHTS, MEANS, np.sqrt(VARIANCES))
    x = np.array([[0.3], [-1.0]])
    for view in ("pdf", "log_pdf", "cdf", "energy"):
        ours, others = getattr(distribution, view)(x), getattr(theirs, view)(x)
        np.testing.assert_allclose(ours, others, rtol=1e-10)
    np.testing.assert_allclose(distribution.ppf(0.3), theirs.ppf(0.3), rtol=1e-8)


def test_a_regressor_predicts_what_its_estimator_does():
    data = datasets.noise_separation(outliers=0.1, n=50, random_state=0)
    X = pd.DataFrame({0: data.X[:, 0], "bias": 1.0}, index=range(50, 100))
    y = pd.DataFrame({"reading": data.y}, index=X.index)
    model = MixtureRegressor(MDN(steps=20, random_state=0)).fit(X, y)
    inner = model.estimator_.predict_mixture(X.rename(columns=str))
    np.testing.assert_array_equal(model.predict(X)["reading"], inner.mean())
    assert list(model.predict(X).index) == list(X.index)
    low, high = inner.interval(0.8)
    bands = model.predict_interval(X, coverage=0.8)["reading"][0.8]
    np.testing.assert_allclose(bands["lower"], low)
    np.testing.assert_allclose(bands["upper"], high)
    score = CRPS()(y, model.predict_proba(X))
    draws = inner.sample(4000, random_state=0)
    gaps = np.abs(draws - data.y).mean() - 0.5 * np.abs(draws[::2] - draws[1::2]).mean()
    assert score == pytest.approx(gaps, rel=0.02)


def test_settings_of_the_estimator_can_be_reached():
    model = MixtureRegressor(DAGP(2))
    assert model.get_params()["estimator__n_processes"] == 2
    assert model.set_params(estimator__n_processes=3).estimator.n_processes == 3


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(
    "subject",
    [
        MixtureDistribution,
        MixtureRegressor,
        MixtureRegressor(DAGP(processes=[GP(), Uniform()], n_init=1, tol=1e-1, random_state=0)),
    ],
    ids=["distribution", "regressor", "with uniform clutter"],
)
def test_skpros_own_checks(subject):
    found = check_estimator(subject, verbose=False)
    failed = {name: outcome for name, outcome in found.items() if outcome != "PASSED"}
    assert found and not failed
