"""Noise that varies with the input."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from reference import LENGTHSCALE, NOISE, VARIANCE, curve, expectation, posterior, setting, smooth

from dagp import DAGP, GP
from dagp.model.gp import _LONGEST_STEP, HeteroscedasticProcess
from dagp.model.variational import NaturalGaussian

pytestmark = pytest.mark.usefixtures("float64")

INDUCING = np.linspace(0, 3, 6)[:, None]
X, Y = curve(0, n=12)


def with_noise_gp(seed=0):
    """A process in the middle of nowhere: neither function nor noise at their priors."""
    here = setting(INDUCING)
    prior = GP(smooth().kernel, noise_std=NOISE, noise_gp=GP())
    process = prior.deepened(prior.build(here), here)
    rng = np.random.default_rng(seed)

    def random_q():
        A = rng.standard_normal((1, 6, 6))
        return NaturalGaussian(A @ np.swapaxes(A, 1, 2) + np.eye(6), rng.standard_normal((1, 6)))

    return eqx.tree_at(lambda p: (p.latent.q, p.log_noise.q), process, (random_q(), random_q()))


def test_expected_log_density_by_quadrature():
    process = with_noise_gp()
    marginals = posterior(process, X)
    found = process.expected_log_density(marginals, Y)
    base = process.noise_variance().item()
    for n in range(0, 12, 4):
        means = [float(part.mean[n, 0]) for part in marginals]
        variances = [float(part.variance[n, 0]) for part in marginals]

        def log_density(z, y=Y[n, 0]):
            variance = base * np.exp(z[..., 1])
            return -0.5 * ((y - z[..., 0]) ** 2 / variance + np.log(2 * np.pi * variance))

        np.testing.assert_allclose(found[n], expectation(log_density, means, variances), rtol=1e-6)


def test_natural_steps_come_to_rest_at_a_maximum():
    process, share = with_noise_gp(), jnp.ones(len(X))
    projection = process.project(X)

    @jax.jit
    def step(process):
        return process.natural_step(projection, process.marginals(projection), Y, share, 1.0)

    for _ in range(200):
        process = step(process)

    def bound(shifts):
        moved = eqx.tree_at(lambda p: (p.latent.q.shift, p.log_noise.q.shift), process, shifts)
        marginals = moved.marginals(projection)
        return jnp.sum(moved.expected_log_density(marginals, Y)) - moved.kl()

    slopes = jax.jit(jax.grad(bound))((process.latent.q.shift, process.log_noise.q.shift))
    np.testing.assert_allclose(slopes[0], 0, atol=1e-6)
    np.testing.assert_allclose(slopes[1], 0, atol=1e-6)


def test_a_step_without_residuals_is_not_endless():
    """Heavy points that lie on the function have no curvature there."""
    process, share = with_noise_gp(), jnp.full(len(INDUCING), 5000.0)
    certain = NaturalGaussian(1e9 * np.eye(6)[None], np.zeros((1, 6)))
    process = eqx.tree_at(lambda p: p.latent.q, process, certain)
    projection = process.project(INDUCING)
    before = process.marginals(projection)
    moved = process.natural_step(projection, before, before.function.mean, share, 1.0)
    change = moved.marginals(projection).log_noise.mean - before.log_noise.mean
    assert -2 * _LONGEST_STEP < np.min(change) < -_LONGEST_STEP / 2


def test_one_heavy_row_with_a_noise_gp_can_be_fitted_and_saved(tmp_path):
    model = DAGP(1, GP(noise_gp=GP()), n_init=1, max_iter=60, random_state=0)
    model.fit(np.ones((1, 4)), [-2e-6], sample_weight=[5348.0])
    assert np.isfinite(model.lower_bound_)
    assert model.lower_bound_ > 0
    again = DAGP.load(model.save(tmp_path / "one.dagp"))
    assert again.predict(np.ones((1, 4))) == model.predict(np.ones((1, 4)))


def test_certain_constant_noise_is_plain_noise():
    here = setting(INDUCING)
    plain = smooth().build(here)
    process = with_noise_gp()
    silent = NaturalGaussian(1e12 * np.eye(6)[None], np.zeros((1, 6)))
    process = eqx.tree_at(
        lambda p: (p.latent.q, p.log_noise.q, p.log_noise.kernel.variance.raw),
        process,
        (plain.latent.q, silent, np.asarray(-60.0)),
    )
    np.testing.assert_allclose(
        process.expected_log_density(posterior(process, X), Y),
        plain.expected_log_density(posterior(plain, X), Y),
        rtol=1e-6,
    )
    assert process.latent.kernel.lengthscale.in_user_units == pytest.approx(LENGTHSCALE)
    assert process.latent.kernel.variance.in_user_units == pytest.approx(VARIANCE)


def test_components_average_the_noise():
    process = with_noise_gp()
    marginals = posterior(process, X)
    components = process.components(marginals)
    np.testing.assert_allclose(np.sum(components.masses), 1)
    mean, variance = marginals.log_noise
    expected = process.noise_variance().item() * np.exp(mean + variance / 2)
    found = np.tensordot(components.masses, components.noise, axes=1)
    np.testing.assert_allclose(found, expected, rtol=2e-2)


def test_it_finds_where_the_noise_is(tmp_path):
    rng = np.random.default_rng(0)
    x = np.sort(rng.uniform(-1, 1, 150))
    std = np.where(x < 0, 0.03, 0.3)
    y = np.sin(3 * x) + std * rng.standard_normal(150)
    quick = {"n_init": 1, "tol": 1e-3, "inducing": 12, "random_state": 0}
    plain = DAGP(1, **quick).fit(x[:, None], y)
    model = DAGP(1, processes=GP(noise_gp=GP()), **quick).fit(x[:, None], y)
    assert isinstance(model.posterior_.model.process(0), HeteroscedasticProcess)
    assert model.lower_bound_ > plain.lower_bound_ + 10
    left, right = model.processes_[0].noise_std([[-0.7], [0.7]])
    assert left < 0.06 and 0.2 < right < 0.45
    assert model.log_score(x[:, None], y) > plain.log_score(x[:, None], y)
    np.testing.assert_allclose(
        plain.processes_[0].noise_std([[0.0]]), plain.processes_[0].noise_std_, rtol=1e-6
    )
    again = DAGP.load(model.save(tmp_path / "model.dagp"))
    one, other = (m.predict_mixture(x[:, None]) for m in (again, model))
    np.testing.assert_array_equal(one.means, other.means)
    np.testing.assert_array_equal(one.variances, other.variances)
