"""The Bayesian network with latent inputs: its energy, and what it learns."""

import copy
import itertools

import jax
import numpy as np
import pytest
from scipy.special import logsumexp
from scipy.stats import norm

from dagp.baselines.bnnlv import BNNLV, CHUNK, Energy, MeanField, Posterior
from dagp.baselines.network import Minibatch
from dagp.core.precision import numerics

SIZES = (3, 2, 1)
N, D = 6, 2


def sigmoid(x):
    return 1 / (1 + np.exp(-x))


def some_belief(rng, sizes=SIZES, n=N):
    count = sum((i + 1) * o for i, o in itertools.pairwise(sizes))
    return Posterior(
        MeanField(rng.standard_normal(count), rng.normal(-1, 1, count)),
        MeanField(rng.standard_normal(n), rng.standard_normal(n)),
        np.array(-0.3),
    )


def some_rows(rng, place=None, total=N):
    place = np.arange(N) if place is None else place
    X, y = rng.standard_normal((N, D)), rng.standard_normal(N)
    return Minibatch(place, X[place], y[place], np.array(float(total)))


def draws(belief, rows, key, samples, stretch=1.0):
    """Weights, latent inputs and their moments, from the same random numbers as the energy."""
    for_weights, for_latent = jax.random.split(key)
    m, v = belief.weights.mean, sigmoid(belief.weights.logit)
    mz = belief.latent.mean[rows.indices] * stretch
    vz = rows.X.shape[1] * sigmoid(belief.latent.logit[rows.indices] * stretch)
    w = m + np.sqrt(v) * np.asarray(jax.random.normal(for_weights, (samples, len(m))))
    z = mz + np.sqrt(vz) * np.asarray(jax.random.normal(for_latent, (samples, len(mz))))
    return w, z, m, v, mz, vz


def energy(alpha, samples, belief, rows, key, sizes=SIZES):
    return float(jax.jit(Energy(alpha, samples, sizes))(belief, rows, key))


def log_densities(w, z, rows, log_noise):
    """Log p(y_n | W, x_n, z_n) of each draw and point."""
    outputs = []
    for weights, latent in zip(w, z, strict=True):
        inputs = np.column_stack([rows.X, latent])
        hidden = np.maximum(inputs @ weights[:6].reshape(3, 2) + weights[6:8], 0)
        outputs.append(hidden @ weights[8:10] + weights[10])
    return norm.logpdf(rows.y, np.array(outputs), np.exp(log_noise / 2))


def published(alpha, belief, rows, key, samples, stretch=1.0):
    """The energy as the paper writes it, with both priors' normalisers."""
    total = float(rows.total)
    w, z, m, v, mz, vz = draws(belief, rows, key, samples, stretch)
    share = total / len(rows.indices)
    site = np.sum((v - 1) / (2 * v * total) * w**2 + m / (v * total) * w, axis=1)
    site_z = (vz - D) / (2 * D * vz) * z**2 + mz / vz * z
    log_Z = np.sum(0.5 * np.log(2 * np.pi * v) + m**2 / (2 * v))
    log_Z_z = np.sum(0.5 * np.log(2 * np.pi * vz) + mz**2 / (2 * vz))
    log_prior = 0.5 * len(m) * np.log(2 * np.pi) + share * 0.5 * len(mz) * np.log(2 * np.pi * D)
    factors = log_densities(w, z, rows, belief.log_noise) - site[:, None] - site_z
    expected = logsumexp(alpha * factors, axis=0) - np.log(samples)
    return -log_Z - share * log_Z_z - share * expected.sum() / alpha + log_prior


@pytest.mark.parametrize("alpha", [0.1, 0.5])
def test_energy_is_the_published_one(alpha):
    rng = np.random.default_rng(0)
    belief, rows, key = some_belief(rng), some_rows(rng), jax.random.key(1)
    with numerics():
        found = energy(alpha, 7, belief, rows, key)
        assert np.isclose(found, published(alpha, belief, rows, key, 7), rtol=1e-10)


def test_energy_of_a_batch_counts_for_all_and_stretches_latent_inputs():
    rng = np.random.default_rng(1)
    belief, key = some_belief(rng), jax.random.key(2)
    rows = some_rows(rng, place=np.array([4, 1, 3]), total=12)
    with numerics():
        found = energy(0.5, 5, belief, rows, key)
        assert np.isclose(found, published(0.5, belief, rows, key, 5, stretch=2.0), rtol=1e-10)


def test_small_alpha_is_the_variational_bound():
    rng = np.random.default_rng(2)
    belief, rows, key, samples = some_belief(rng), some_rows(rng), jax.random.key(3), 4000
    with numerics():
        limit, near = (energy(a, samples, belief, rows, key) for a in (0.0, 1e-6))
        w, z, m, v, mz, vz = draws(belief, rows, key, samples)
    assert np.isclose(limit, near, atol=1e-3)
    fit = np.sum(np.mean(log_densities(w, z, rows, belief.log_noise), axis=0))
    kl = 0.5 * np.sum(v + m**2 - 1 - np.log(v))
    kl_z = 0.5 * np.sum((vz + mz**2) / D - 1 - np.log(vz / D))
    # The divergences are known here and averages of draws there: 17 numbers' worth of noise.
    assert np.isclose(limit, -fit + kl + kl_z, atol=0.25)


@pytest.mark.parametrize("alpha", [0.5, 1.0])
def test_energy_is_the_evidence_where_everything_is_linear(alpha):
    """With the weights all but known, y is linear in z and q(z_n) can be exact."""
    rng = np.random.default_rng(3)
    n, noise, slope, steepness, offset = 2000, 0.3, 0.7, 1.1, -0.4
    x = rng.standard_normal(n)
    y = offset + slope * x + steepness * rng.standard_normal(n) + noise * rng.standard_normal(n)
    variance = 1 / (1 + steepness**2 / noise**2)
    mean = variance * steepness / noise**2 * (y - offset - slope * x)
    logit = np.full(n, np.log(variance / (1 - variance)))
    known = MeanField(np.array([slope, steepness, offset]), np.full(3, -18.0))
    belief = Posterior(known, MeanField(mean, logit), np.array(2 * np.log(noise)))
    rows = Minibatch(np.arange(n), x[:, None], y, np.array(float(n)))
    with numerics():
        found = energy(alpha, 400, belief, rows, jax.random.key(0), sizes=(2, 1))
    evidence = norm.logpdf(y, offset + slope * x, np.hypot(steepness, noise)).sum()
    v = sigmoid(-18.0)
    kl = 0.5 * np.sum(v + known.mean**2 - 1 - np.log(v))
    assert np.isclose(found, kl - evidence, atol=0.5)


def branches(n, rng):
    x, sign = rng.uniform(-2, 2, n), rng.choice([-1, 1], n)
    return x[:, None], sign * (1 + 0.3 * x) + 0.05 * rng.standard_normal(n)


SMALL = {"hidden": (20, 20), "samples": 10, "steps": 2500}


@pytest.fixture(scope="module")
def two_branches(thoroughly):
    # Trained for long: that is worth thorough compilation, the other tests are not.
    with thoroughly():
        return BNNLV(**SMALL, random_state=0).fit(*branches(400, np.random.default_rng(0)))


def test_two_branches_are_separated(two_branches):
    at = np.array([-1.5, -0.5, 0.5, 1.5])
    mixture = two_branches.predict_mixture(at[:, None])
    truth = 1 + 0.3 * at
    for side in (-1, 1):
        inside = mixture.cdf(side * truth + 0.2) - mixture.cdf(side * truth - 0.2)
        assert np.all(inside > 0.35)
    for height, modes in zip(truth, mixture.modes(), strict=True):
        assert np.allclose(np.sort(modes[:2]), [-height, height], atol=0.2)


def test_two_branches_score_far_above_any_normal(two_branches):
    X, y = branches(1000, np.random.default_rng(1))
    knows_all = np.mean(norm.logpdf(np.abs(y), 1 + 0.3 * X[:, 0], 0.05)) - np.log(2)
    best_normal = np.mean(norm.logpdf(y, 0, np.sqrt((1 + 0.3 * X[:, 0]) ** 2 + 0.05**2)))
    score = two_branches.log_score(X, y)
    assert best_normal + 1.5 < score < knows_all
    assert score > knows_all - 0.3


def test_learned_noise_is_that_of_the_data(two_branches):
    unit = two_branches.units_.y_unit[0]
    assert 0.035 < np.sqrt(two_branches.draws_.noise_variance) * unit < 0.07


def test_networks_disagree_away_from_the_data(two_branches):
    """Weight uncertainty alone: the same latent input everywhere."""
    still, draws = copy.copy(two_branches), two_branches.draws_
    still.draws_ = draws._replace(z=np.zeros_like(draws.z))
    near, far = (
        still.predict_mixture(np.array(x)[:, None], noise=False).variance()
        for x in ([-1.0, 0.0, 1.0], [-20.0, 20.0, 40.0])
    )
    assert np.min(far) > 5 * np.max(near)


def test_predictions_far_away_are_finite_and_wide(two_branches):
    X = np.array([[-1e6], [-50.0], [0.0], [50.0], [1e6]])
    mixture = two_branches.predict_mixture(X)
    assert np.all(np.isfinite(mixture.mean())) and np.all(np.isfinite(mixture.variance()))
    assert np.all(np.isfinite(two_branches.score_samples(X, np.zeros(5))))
    assert np.all(np.diff(mixture.variance()[2:]) > 0)
    assert np.all(np.diff(mixture.variance()[:3]) < 0)


def test_without_noise_only_the_networks_spread(two_branches):
    X = [[0.0], [1.0]]
    noisy, functions = (two_branches.predict_mixture(X, noise=noise) for noise in (True, False))
    unit = two_branches.units_.y_unit[0]
    assert np.all(functions.variances == 0) and functions.variances.shape == (2, 200)
    assert np.array_equal(noisy.means, functions.means)
    assert np.allclose(noisy.variances, two_branches.draws_.noise_variance * unit**2)
    assert np.allclose(functions.mean(), two_branches.predict(X))


def test_a_point_is_answered_alike_in_any_company(two_branches):
    X = np.linspace(-2, 2, CHUNK + 3)[:, None]
    whole, alone = two_branches.predict(X), two_branches.predict(X[-2:])
    assert whole.shape == (CHUNK + 3,)
    assert np.allclose(whole[-2:], alone, rtol=1e-12, atol=1e-12)


def test_same_seed_same_answers_and_latent_inputs_from_their_prior():
    rng = np.random.default_rng(4)
    X, y = rng.standard_normal((30, 4)), rng.standard_normal(30)
    models = [BNNLV((4,), samples=3, steps=25, random_state=seed).fit(X, y) for seed in (0, 0, 1)]
    first, again, other = (model.predict(X) for model in models)
    assert np.array_equal(first, again)
    assert not np.allclose(first, other)
    z = models[0].draws_.z
    levels = norm.cdf(np.sort(z), scale=np.sqrt(4))
    assert np.allclose(levels, (np.arange(200) + 0.5) / 200)
    assert abs(np.corrcoef(z, np.arange(200))[0, 1]) < 0.3


@pytest.mark.parametrize(
    "setting",
    [
        {"hidden": (20, 0)},
        {"hidden": (2.5,)},
        {"hidden": "wide"},
        {"alpha": -0.1},
        {"alpha": float("nan")},
        {"samples": 0},
        {"steps": 1.5},
        {"batch_size": 0},
        {"learning_rate": "fast"},
        {"predictive_samples": True},
    ],
)
def test_bad_settings_are_refused(setting):
    with pytest.raises(ValueError, match=next(iter(setting))):
        BNNLV(**setting).fit([[0.0], [1.0]], [0.0, 1.0])


def test_declares_what_it_can_do():
    declared = {"bayesian", "scalable", "predictive_posterior", "multimodal"}
    assert set(BNNLV.capabilities.names()) == declared
