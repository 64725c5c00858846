"""The overlapping mixture against exact Gaussian processes and enumerated assignments."""

import itertools
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from reference import differences, exact_gp, squared_exponential
from scipy.special import logsumexp
from scipy.stats import multivariate_normal
from sklearn.metrics import adjusted_rand_score

from dagp import datasets, kernels
from dagp.baselines import omgp
from dagp.baselines.omgp import OMGP
from dagp.baselines.optimise import full_batch
from dagp.core.precision import numerics
from dagp.inference.train import ADAM
from dagp.model.gp import NOISE_FLOOR
from dagp.model.parameters import LogNormal, fixed, parameter, trainable

LENGTHSCALES, VARIANCES = (0.4, 0.9), (1.2, 0.5)
NOISE_VARIANCES = np.array([0.03, 0.1])
RNG = np.random.default_rng(0)
X = RNG.uniform(-2, 2, (12, 1))
Y = np.sin(2 * X[:, 0]) + 0.3 * RNG.standard_normal(12)


condition = jax.jit(omgp.condition)


@pytest.fixture(autouse=True)
def climate():
    with numerics("float64"):
        yield


def smooth(k) -> Any:
    return kernels.SquaredExponential(
        lengthscale=parameter(LENGTHSCALES[k]), variance=parameter(VARIANCES[k])
    )


def mixing(responsibilities, weights=(0.3, 0.7)) -> Any:
    """A state with known hyperparameters."""
    noise = np.sqrt(NOISE_VARIANCES - NOISE_FLOOR**2)
    model = omgp.MixturePrior(
        (smooth(0), smooth(1)),
        tuple(parameter(std) for std in noise),
    )
    model = jax.tree.map(jnp.asarray, model)
    opt_state = ADAM.init(eqx.filter(model, trainable(model)))
    return omgp.MixtureState(model, jnp.asarray(responsibilities), jnp.asarray(weights), opt_state)


def covariance(k, A=X, B=X):
    return squared_exponential(A, B, LENGTHSCALES[k], VARIANCES[k])


def random_responsibilities(n, seed=1):
    return np.random.default_rng(seed).dirichlet([1.0, 1.0], size=n)


def textbook_elbo(responsibilities, weights):
    """The bound as the paper writes it: divisions by responsibilities and all."""
    total = -np.sum(responsibilities * np.log(responsibilities / weights))
    for k, v in enumerate(NOISE_VARIANCES):
        r = responsibilities[:, k]
        total += exact_gp(covariance(k), Y, v / r).evidence
        total += 0.5 * np.sum(np.log(2 * np.pi * v / r) - r * np.log(2 * np.pi * v))
    return total


def test_the_bound_is_the_textbooks():
    responsibilities = random_responsibilities(len(X))
    found = omgp.finalise(mixing(responsibilities), full_batch(X, Y)).elbo
    assert float(found) == pytest.approx(textbook_elbo(responsibilities, [0.3, 0.7]), rel=1e-7)


def test_the_bound_stays_finite_and_continuous_where_responsibilities_vanish():
    responsibilities = random_responsibilities(len(X))
    responsibilities[:4] = [1.0, 0.0]
    exact = omgp.finalise(mixing(responsibilities), full_batch(X, Y))
    responsibilities[:4] = [1 - 1e-9, 1e-9]
    assert float(exact.elbo) == pytest.approx(textbook_elbo(responsibilities, [0.3, 0.7]), rel=1e-5)
    assert all(np.all(np.isfinite(leaf)) for leaf in jax.tree.leaves(exact))


@pytest.mark.parametrize("k", [0, 1])
def test_a_process_answers_with_its_exact_posterior(k):
    share = random_responsibilities(len(X))[:, k]
    noise = NOISE_VARIANCES[k]
    found = condition(jnp.asarray(covariance(k)), Y, jnp.asarray(share), jnp.asarray(noise))
    expected = exact_gp(covariance(k), Y, noise / share)
    np.testing.assert_allclose(found.mean, expected.mean, atol=1e-6)
    np.testing.assert_allclose(found.variance, expected.variance, atol=1e-6)


def test_slopes_are_the_derivatives_of_a_processes_part_of_the_bound():
    share, noise = jnp.asarray(random_responsibilities(len(X))[:, 0]), jnp.asarray(0.1)
    K = covariance(0)

    def value(matrix, noise):
        return float(condition(jnp.asarray(matrix), Y, share, jnp.asarray(noise)).value)

    found = omgp.gradients(condition(jnp.asarray(K), Y, share, noise), Y, share, noise)
    by_noise = differences(lambda v: value(K, v), np.array(0.1))
    np.testing.assert_allclose(found.noise_variance, by_noise, rtol=1e-5)
    direction = np.exp(-np.abs(X - X.T))
    along = differences(lambda t: value(K + t * direction, 0.1), np.array(0.0))
    np.testing.assert_allclose(np.sum(found.covariance * direction), along, rtol=1e-5)


def test_the_bound_never_falls_while_only_responsibilities_move():
    state = mixing(random_responsibilities(len(X)), (0.5, 0.5))
    after, heights = omgp.block(state, full_batch(X, Y), jnp.asarray(0.0))
    assert np.all(np.diff(heights.value) > -1e-9)
    assert heights.value[-1] > heights.value[0] + 1
    np.testing.assert_allclose(np.sum(after.responsibilities, axis=1), 1.0)
    np.testing.assert_allclose(after.weights, np.mean(after.responsibilities, axis=0))
    kernel, before = after.model.kernels[0], state.model.kernels[0]
    assert float(kernel.lengthscale.raw) == float(before.lengthscale.raw)


def test_steps_climb_the_bound():
    state = mixing(random_responsibilities(len(X)), (0.5, 0.5))
    still, _ = omgp.block(state, full_batch(X, Y), jnp.asarray(0.0))
    _, heights = omgp.block(still, full_batch(X, Y), jnp.asarray(0.02))
    assert heights.value[-1] > heights.value[0] + 0.1


def test_the_bound_is_below_the_sum_over_all_assignments():
    n, weights = 5, np.array([0.3, 0.7])
    terms = []
    for assignment in itertools.product([0, 1], repeat=n):
        which = np.array(assignment)
        term = np.sum(np.log(weights[which]))
        for k, v in enumerate(NOISE_VARIANCES):
            mine = np.flatnonzero(which == k)
            if len(mine):
                matrix = covariance(k)[np.ix_(mine, mine)] + v * np.eye(len(mine))
                term += multivariate_normal(np.zeros(len(mine)), matrix).logpdf(Y[mine])
        terms.append(term)
    evidence = logsumexp(terms)
    best = -np.inf
    for seed in range(3):
        state = mixing(random_responsibilities(n, seed), weights)
        batch = full_batch(X[:n], Y[:n])
        assert float(omgp.finalise(state, batch).elbo) < evidence
        # The weights of the sum above are held.
        for _ in range(20):
            found = [
                condition(
                    jnp.asarray(covariance(k)[:n, :n]), Y[:n], state.responsibilities[:, k], v
                )
                for k, v in enumerate(jnp.asarray(NOISE_VARIANCES))
            ]
            stacked = jax.tree.map(lambda *leaves: jnp.stack(leaves), *found)
            responsibilities, _ = omgp.update_responsibilities(
                stacked, Y[:n], jnp.asarray(NOISE_VARIANCES), weights
            )
            state = state._replace(responsibilities=responsibilities)
        best = max(best, float(omgp.finalise(state, batch).elbo))
    assert evidence - 3 < best < evidence


def test_one_process_is_exact_regression():
    model = OMGP(1, n_init=1, max_iter=25, random_state=0).fit(10 * X, 5 * Y + 3)
    y = model.units_.standard_y((5 * Y + 3)[:, None])[:, 0]
    kernel: Any = model.kernels_[0]
    lengthscale, variance = kernel.lengthscale.in_user_units, kernel.variance.in_user_units
    new = np.linspace(-30, 30, 7)[:, None]
    unit, centre = model.units_.y_unit[0], model.units_.y_centre[0]
    args = (np.asarray(lengthscale), float(variance) / unit**2)
    expected = exact_gp(
        squared_exponential(10 * X, 10 * X, *args),
        y,
        (model.noise_std_[0] / unit) ** 2,
        squared_exponential(new, 10 * X, *args),
        np.full(len(new), args[1]),
    )
    assert model.lower_bound_ == pytest.approx(expected.evidence, rel=1e-6)
    mixture = model.predict_mixture(new, noise=False)
    np.testing.assert_allclose(mixture.means[:, 0], expected.mean * unit + centre, rtol=1e-5)
    np.testing.assert_allclose(mixture.variances[:, 0], expected.variance * unit**2, atol=1e-5)
    noisy = model.predict_mixture(new).variances - mixture.variances
    np.testing.assert_allclose(noisy[:, 0], model.noise_std_[0] ** 2)
    np.testing.assert_allclose(model.predict(new), mixture.means[:, 0])


def curves(n=80, seed=0):
    rng = np.random.default_rng(seed)
    x, process = rng.uniform(0, 6, n), rng.integers(2, size=n)
    y = np.where(process == 1, np.sin(x), 2.5 + np.cos(1.5 * x))
    return x[:, None], y + 0.05 * rng.standard_normal(n), process


def test_two_curves_are_told_apart():
    inputs, y, process = curves()
    model = OMGP(2, n_init=9, random_state=0).fit(inputs, y)
    assert adjusted_rand_score(process, model.assignment_) > 0.95
    assert model.responsibilities_.shape == (80, 2)
    np.testing.assert_allclose(model.weights_, model.responsibilities_.mean(axis=0), atol=1e-9)
    mixture = model.predict_mixture(inputs)
    np.testing.assert_allclose(mixture.weights, np.tile(model.weights_, (80, 1)), atol=1e-9)
    assert model.log_score(inputs, y) > 0
    np.testing.assert_allclose(model.noise_std_, 0.05, rtol=0.5)


def test_the_order_of_the_processes_does_not_matter():
    state, batch, rate = (
        mixing(random_responsibilities(len(X))),
        full_batch(X, Y),
        jnp.asarray(0.05),
    )
    model = omgp.MixturePrior(state.model.kernels[::-1], state.model.noise_stds[::-1])
    opt_state = ADAM.init(eqx.filter(model, trainable(model)))
    swapped = omgp.MixtureState(
        model, state.responsibilities[:, ::-1], state.weights[::-1], opt_state
    )
    (one, height), (other, same) = omgp.block(state, batch, rate), omgp.block(swapped, batch, rate)
    np.testing.assert_allclose(height.value, same.value, rtol=1e-9)
    np.testing.assert_allclose(one.responsibilities, other.responsibilities[:, ::-1], atol=1e-9)
    np.testing.assert_allclose(one.model.noise_variances(), other.model.noise_variances()[::-1])


def test_a_signal_is_found_among_outliers():
    data = datasets.noise_separation(0.4, noise=0, n=200, random_state=0)
    pair = [kernels.SquaredExponential(), kernels.White()]
    model = OMGP(2, pair, n_init=1, random_state=0).fit(data.X, data.y)
    signal = model.predict_mixture(data.X_test, noise=False).means[:, 0]
    assert np.sqrt(np.mean((signal - data.y_test) ** 2)) < 0.01
    assert np.mean(model.assignment_ == data.process) > 0.97


def test_more_starts_are_never_worse():
    inputs, y, _ = curves()
    settings: Any = {"max_iter": 25, "random_state": 3}
    one = OMGP(2, n_init=1, **settings).fit(inputs, y)
    three = OMGP(2, n_init=3, **settings).fit(inputs, y)
    again = OMGP(2, n_init=3, **settings).fit(inputs, y)
    assert three.lower_bound_ >= one.lower_bound_
    assert again.lower_bound_ == three.lower_bound_


def learnt(model) -> Any:
    return model.kernels_[0]


def test_what_is_fixed_stays_and_priors_count():
    inputs, y, _ = curves(30)
    stated = kernels.SquaredExponential(
        lengthscale=fixed(0.7), variance=parameter(2.0, prior=LogNormal(3.0, 1e-2))
    )
    model = OMGP(1, [stated], n_init=1, max_iter=25).fit(inputs, y)
    assert float(learnt(model).lengthscale.in_user_units) == pytest.approx(0.7)
    assert float(learnt(model).variance.in_user_units) == pytest.approx(3.0, rel=0.05)


@pytest.mark.parametrize(
    ("settings", "word"),
    [
        ({"n_processes": 0}, "n_processes"),
        ({"n_processes": 1.5}, "n_processes"),
        ({"n_init": 0}, "n_init"),
        ({"max_iter": 0}, "max_iter"),
        ({"tol": -1.0}, "tol"),
        ({"kernels": [kernels.White()]}, "n_processes=2"),
        ({"kernels": kernels.White()}, "list"),
        ({"kernels": [kernels.White(), "white"]}, r"kernels\[1\]"),
        ({"kernels": [kernels.White(), kernels.Linear(active=(4,))]}, "column"),
        ({"kernels": [kernels.White(variance=parameter(share="a")), kernels.White()]}, "tie"),
    ],
)
def test_bad_settings_are_refused(settings, word):
    with pytest.raises(ValueError, match=word):
        OMGP(**settings).fit(X, Y)
