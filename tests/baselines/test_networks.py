"""Rivals that are networks."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.stats import norm

from dagp import datasets
from dagp.baselines.choicenet import ChoiceNet, Heads, Weights, drawn_means, drawn_std
from dagp.baselines.mdn import MDN, mixture_log_density
from dagp.baselines.mlp import MLP
from dagp.baselines.network import Layer, forward, init_network, sum_of_squares, train_network
from dagp.core.precision import numerics


def rmse(a, b):
    return float(np.sqrt(np.mean((np.asarray(a) - b) ** 2)))


def test_a_network_is_affine_maps_with_relus_between():
    rng = np.random.default_rng(0)
    layers = init_network([2, 3, 1], rng)
    X = rng.standard_normal((5, 2))
    hidden = np.maximum(X @ layers[0].matrix + layers[0].offset, 0)
    expected = hidden @ layers[1].matrix + layers[1].offset
    with numerics("float64"):
        np.testing.assert_allclose(forward(layers, X), expected)


def quadratic(parameters, rows, key):
    return jnp.mean((parameters["w"] - rows.y) ** 2)


def test_training_sees_every_row_equally():
    """The minimiser of the squared error is the mean of all rows, not of some."""
    y = np.arange(10.0)
    with numerics("float64"):
        found, losses = train_network(
            quadratic,
            {"w": np.zeros(())},
            y[:, None],
            y,
            np.random.default_rng(0),
            steps=1000,
            batch_size=5,
            rate=0.05,
        )
    assert abs(float(found["w"]) - 4.5) < 0.3
    assert len(losses) == 1000


def test_squares_are_those_of_all_leaves():
    assert float(sum_of_squares([np.array([1.0, 2.0]), {"a": np.array(3.0)}])) == 14.0


def test_mlp_learns_the_conditional_mean():
    data = datasets.noise_separation(0.4, noise=0.0, random_state=0)
    model = MLP(steps=1500, random_state=0).fit(data.X, data.y)
    expected = 0.6 * data.y_test + 0.4 * 1.0
    assert rmse(model.predict(data.X_test), expected) < 0.12
    assert rmse(model.predict(data.X_test), data.y_test) > 0.3


def test_mixture_log_density_against_scipy():
    rng = np.random.default_rng(0)
    logits, means = rng.standard_normal((2, 4, 3))
    variances, y = rng.uniform(0.1, 2.0, (4, 3)), rng.standard_normal(4)
    weights = np.exp(logits) / np.exp(logits).sum(axis=1, keepdims=True)
    parts = weights * norm.pdf(y[:, None], means, np.sqrt(variances))
    with numerics("float64"):
        found = mixture_log_density(logits, means, variances, jnp.asarray(y))
    np.testing.assert_allclose(found, np.log(parts.sum(axis=1)), rtol=1e-10)


def test_mdn_fits_a_known_mixture():
    rng = np.random.default_rng(1)
    X = rng.uniform(-1, 1, (2000, 1))
    branch = rng.uniform(size=2000) < 0.3
    y = np.where(branch, 2 + X[:, 0], -1.0) + np.where(branch, 0.1, 0.3) * rng.standard_normal(2000)
    model = MDN(3, steps=1500, random_state=0).fit(X, y)
    entropy = -(0.3 * np.log(0.3) + 0.7 * np.log(0.7))
    noise = 0.3 * np.log(0.1) + 0.7 * np.log(0.3) + 0.5 * np.log(2 * np.pi * np.e)
    assert abs(model.log_score(X, y) - (-entropy - noise)) < 0.1
    mixture = model.predict_mixture([[0.5]])
    assert abs(mixture.cdf(1.0)[0] - 0.7) < 0.06
    assert abs(mixture.modes()[0][:2].max() - 2.5) < 0.15
    assert abs(model.predict_heaviest([[0.5]])[0] + 1) < 0.15


def one_point(rho):
    features = np.array([[1.0, 2.0]])
    return Heads(features, np.array([rho]), np.zeros((1, len(rho))), np.ones((1, 1)))


def test_cholesky_block_draws_what_it_says():
    """Moments of W · h for W drawn feature by feature, as the block is defined."""
    rng = np.random.default_rng(0)
    mean, rho = np.array([0.5, -1.0]), np.array([1.0, 0.6, 0.0])
    found = one_point(rho)
    empty = Layer(np.zeros((2, 1)), np.zeros(1))
    weights = Weights([empty], empty, empty, empty, mean)
    with numerics("float64"):
        draw = jax.vmap(lambda key: drawn_means(weights, found, key)[0])
        ours = np.asarray(draw(jax.random.split(jax.random.key(0), 20_000)))
        stds = np.asarray(drawn_std(found))[0]
    towards, away = rng.standard_normal((2, 20_000, 3, 2))
    r = rho[:, None]
    theirs = (r * mean + (1 - r**2) * (r * towards + np.sqrt(1 - r**2) * away)) @ [1.0, 2.0]
    np.testing.assert_allclose(ours.mean(axis=0), theirs.mean(axis=0), atol=0.06)
    np.testing.assert_allclose(ours.std(axis=0), theirs.std(axis=0), atol=0.04)
    np.testing.assert_allclose(stds, theirs.std(axis=0), atol=0.04)


@pytest.mark.usefixtures("thorough_here")
def test_choicenet_recovers_the_target_under_corruption():
    data = datasets.noise_separation(0.4, noise=0.0, random_state=0)
    model = ChoiceNet(steps=2500, n_init=1, random_state=0).fit(data.X, data.y)
    assert rmse(model.predict(data.X_test), data.y_test) < 0.08
    correlations = model.predict_correlations(data.X_test)
    assert np.all(correlations[:, 0] == 1.0)
    assert correlations[:, 1:].min() < 0.5


def test_choicenet_with_the_target_alone_is_a_regression():
    X = np.linspace(-1, 1, 60)[:, None]
    model = ChoiceNet(1, (8,), steps=500, n_init=1, random_state=0).fit(X, 10 * X[:, 0])
    assert model.score(X, 10 * X[:, 0]) > 0.95
    mixture = model.predict_mixture(X)
    assert np.all(mixture.weights == 1.0)
    np.testing.assert_allclose(mixture.mean(), model.predict(X))


@pytest.mark.parametrize("model", [MLP, MDN, ChoiceNet])
def test_the_same_seed_gives_the_same_network(model):
    data = datasets.noise_separation(0.2, n=60, random_state=0)
    answers = [model(steps=50, random_state=3).fit(data.X, data.y).predict(data.X) for _ in "ab"]
    np.testing.assert_array_equal(*answers)


@pytest.mark.parametrize(
    "settings", [{"hidden": ()}, {"hidden": (0,)}, {"steps": 0}, {"l2": -1.0}, {"batch_size": 1.5}]
)
def test_settings_that_make_no_sense(settings):
    with pytest.raises(ValueError, match=next(iter(settings))):
        MLP(**settings).fit([[0.0], [1.0]], [0.0, 1.0])
