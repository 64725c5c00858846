"""Densities, units and error messages of each kind of process."""

import equinox as eqx
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.stats
from reference import curve, expectation, setting, smooth

from dagp import kernels
from dagp.model.clutter import Noise, Uniform
from dagp.model.gp import GP
from dagp.model.parameters import LogNormal, fixed
from dagp.model.sparse_gp import Marginals

pytestmark = pytest.mark.usefixtures("float64")

INDUCING = np.linspace(0, 3, 5)[:, None]
Y = np.random.default_rng(0).uniform(-4, 4, (12, 2))
UNITS = {"y_centre": np.array([3.0, -1.0]), "y_unit": np.array([2.0, 0.1])}
"""With these, a standardised y is (y - centre) / unit."""


def log_density(process, y):
    marginals = process.marginals(process.project(np.zeros((len(y), 1))))
    return process.expected_log_density(marginals, jnp.asarray(y))


@pytest.mark.parametrize("mean", [None, -0.4, [0.5, 2.0]])
@pytest.mark.parametrize("std", [1.7, [0.5, 2.0]])
def test_noise_is_a_normal_density(mean, std):
    process = Noise(mean=mean, std=std).build(setting(INDUCING, outputs=2))
    centre = 0.0 if mean is None else mean
    expected = scipy.stats.norm(centre, std).logpdf(Y).sum(axis=1)
    np.testing.assert_allclose(log_density(process, Y), expected)
    assert float(process.kl()) == 0.0


def test_noise_keeps_its_level_in_the_users_units():
    here = setting(INDUCING, outputs=2, **UNITS)
    process = Noise(mean=[2.0, 0.0], std=1.5).build(here)
    users = scipy.stats.norm([2.0, 0.0], 1.5).logpdf(Y).sum(axis=1)
    standard = (Y - here.y_centre) / here.y_unit
    np.testing.assert_allclose(log_density(process, standard) - np.log(here.y_unit).sum(), users)
    mean, variance = process.marginals(process.project(np.zeros((3, 1))))
    np.testing.assert_allclose(mean[0] * here.y_unit + here.y_centre, [2.0, 0.0], atol=1e-12)
    np.testing.assert_allclose(variance[0] + process.noise_variance(), (1.5 / here.y_unit) ** 2)
    automatic = Noise().build(here)
    np.testing.assert_allclose(automatic.std.value, [1.0, 1.0])
    np.testing.assert_allclose(automatic.mean.value, [0.0, 0.0])


def test_even_noise_is_flat_over_the_range_with_a_little_beyond():
    process = Noise(shape="uniform").build(setting(INDUCING, outputs=2))
    marginals = process.marginals(process.project(np.zeros((12, 1))))
    flat = 0.95 * scipy.stats.uniform(-3.0, 6.0).pdf(Y).prod(axis=1)
    broad = 0.05 * scipy.stats.norm(0.0, 3.0).pdf(Y).prod(axis=1)
    found = process.expected_log_density(marginals, Y)
    np.testing.assert_allclose(found, np.log(flat + broad), rtol=1e-10)
    assert process.uniform


def test_the_shape_of_noise_is_open_unless_something_is_stated():
    here = setting(INDUCING, uniform=True)
    assert Noise().build(here).uniform
    for stated in (Noise(std=1.0), Noise(mean=0.0), Noise(shape="normal")):
        assert not stated.build(here).uniform
    with pytest.raises(ValueError, match="shape"):
        Noise(shape="square").build(here)  # pyright: ignore[reportArgumentType]


def test_uniform_is_a_uniform_density():
    process = Uniform(low=-2.0, high=3.0).build(setting(INDUCING, outputs=2))
    expected = scipy.stats.uniform(-2.0, 5.0).logpdf(Y).sum(axis=1)
    ours = np.asarray(log_density(process, Y))
    inside = np.isfinite(expected)
    assert 0 < inside.sum() < len(Y)
    np.testing.assert_allclose(ours[inside], expected[inside])
    assert np.all(ours[~inside] < -1e20) and np.all(np.isfinite(ours))
    mean, variance = process.marginals(process.project(np.zeros((1, 1))))
    np.testing.assert_allclose(mean, [[0.5, 0.5]])
    np.testing.assert_allclose(variance, [[25 / 12, 25 / 12]])
    assert process.is_uniform and float(process.kl()) == 0.0


def test_uniform_covers_the_observed_range_or_what_the_user_stated_in_their_units():
    here = setting(INDUCING, outputs=2, **UNITS)
    observed = Uniform().build(here)
    np.testing.assert_allclose([observed.low, observed.high], [[-3.0] * 2, [3.0] * 2])
    np.testing.assert_allclose(log_density(observed, np.array([[3.0, -3.0]])), -2 * np.log(6))
    stated = Uniform(low=-1.0, high=7.0).build(here)
    np.testing.assert_allclose(stated.low * here.y_unit + here.y_centre, [-1.0, -1.0])
    np.testing.assert_allclose(stated.high * here.y_unit + here.y_centre, [7.0, 7.0])


def test_uniform_has_a_range_where_an_output_never_varies():
    # The first never varies, the second by so little that its variance would be zero in float32.
    still = {"y_low": np.array([1.0, 0.0, -3.0]), "y_high": np.array([1.0, 1e-21, 3.0])}
    process = Uniform().build(setting(INDUCING, outputs=3, **still))
    np.testing.assert_array_equal(process.low, [0.5, -0.5, -3.0])
    np.testing.assert_array_equal(process.high, [1.5, 0.5, 3.0])


def test_clutter_that_goes_on_covers_the_data_at_hand():
    before, now = setting(INDUCING), setting(INDUCING, y_high=np.array([9.0]))
    uniform = Uniform().resumed(Uniform().build(before), now)
    np.testing.assert_array_equal([uniform.low, uniform.high], [now.y_low, now.y_high])
    stated = Uniform(low=-5.0, high=5.0)
    kept = stated.resumed(stated.build(before), now)
    np.testing.assert_array_equal([kept.low, kept.high], [[-5.0], [5.0]])
    trained = eqx.tree_at(lambda noise: noise.std.raw, Noise().build(before), np.array(7.0))
    noise = Noise().resumed(trained, now)
    assert float(noise.std.raw) == 7.0
    np.testing.assert_array_equal(noise.spread.high, now.y_high)
    np.testing.assert_array_equal(noise.tails.mean, (now.y_low + now.y_high) / 2)


@pytest.mark.parametrize("floor", [0.0, 0.7])
def test_gp_expected_log_density_by_quadrature(floor):
    rng = np.random.default_rng(1)
    mean, variance = rng.standard_normal((12, 2)), rng.uniform(0.01, 2, (12, 2))
    process = GP(noise_std=[0.3, 0.8]).build(setting(INDUCING, outputs=2))
    process = eqx.tree_at(lambda p: p.floor, process, np.asarray(floor))
    noise = np.sqrt(np.array([0.3, 0.8]) ** 2 + floor**2)
    np.testing.assert_allclose(process.noise_variance(), noise**2)
    marginals = Marginals(jnp.asarray(mean), jnp.asarray(variance))
    ours = process.expected_log_density(marginals, jnp.asarray(Y))
    for n in range(12):
        expected = sum(
            expectation(
                lambda f, n=n, p=p: scipy.stats.norm(f[..., 0], noise[p]).logpdf(Y[n, p]),
                [mean[n, p]],
                [variance[n, p]],
            )
            for p in range(2)
        )
        np.testing.assert_allclose(ours[n], expected, rtol=1e-9)


def test_gp_in_units():
    here = setting(INDUCING, outputs=2, **UNITS)
    stated, automatic = GP(noise_std=0.5).build(here), GP().build(here)
    np.testing.assert_allclose(stated.noise_std.value, 0.5 / here.y_unit)
    np.testing.assert_allclose(automatic.noise_std.value, [0.3, 0.3])
    np.testing.assert_allclose(automatic.noise_std.in_user_units, 0.3 * here.y_unit)
    np.testing.assert_allclose(automatic.latent.kernel.lengthscale.value, [0.5])
    prior = GP(noise_prior=LogNormal(0.1)).build(here).noise_std.prior
    np.testing.assert_allclose(prior.median, 0.1)
    one = setting(INDUCING, y_unit=np.array([3.0]))
    kernel = GP(kernel=kernels.Matern32(1.0, 4.5)).build(one).latent.kernel
    np.testing.assert_allclose(kernel.variance.value, 0.5)


def test_a_gp_step_weighs_points_by_share_and_the_others_do_not_move():
    X, y = curve(0)
    process = smooth().build(setting(INDUCING))
    projection = process.project(X)
    marginals = process.marginals(projection)
    nothing = process.natural_step(projection, marginals, y, jnp.zeros(20), 1.0)
    np.testing.assert_allclose(nothing.latent.q.precision, process.latent.q.precision)
    np.testing.assert_allclose(nothing.latent.q.shift, process.latent.q.shift)
    assert float(nothing.kl()) == pytest.approx(0.0, abs=1e-12)
    everything = process.natural_step(projection, marginals, y, jnp.ones(20), 1.0)
    assert float(everything.kl()) > 1.0
    for prior in (Noise(), Uniform()):
        still = prior.build(setting(INDUCING))
        projection = still.project(X)
        moved = still.natural_step(projection, still.marginals(projection), y, jnp.ones(20), 1.0)
        assert moved is still


@pytest.mark.parametrize(("low", "high"), [(1.0, 1.0), (2.0, -1.0), (4.0, None), (None, -5.0)])
def test_uniformneeds_low_below_high(low, high):
    with pytest.raises(ValueError, match="low < high"):
        Uniform(low=low, high=high).build(setting(INDUCING))


WRONG = kernels.Linear(active=[2])
RIGHT = kernels.Matern32(active=[0])


@pytest.mark.parametrize(
    "kernel",
    [
        WRONG,
        kernels.Matern32(active=[0, -3]),
        RIGHT + WRONG,
        WRONG * RIGHT,
        2.0 * (RIGHT + WRONG),
        RIGHT + (RIGHT + WRONG * RIGHT),
    ],
    ids=repr,
)
def test_columns_out_of_range(kernel):
    with pytest.raises(ValueError, match="columns"):
        GP(kernel=kernel).build(setting(np.zeros((3, 2)) + np.arange(3)[:, None]))


def test_columns_in_range():
    kernel = 2.0 * (kernels.Matern32(active=[-2]) + kernels.Linear(active=[1, 0]))
    process = GP(kernel=kernel).build(setting(np.zeros((3, 2)) + np.arange(3)[:, None]))
    assert process.latent.inducing.raw.shape == (3, 2)


def test_values_that_cannot_be():
    with pytest.raises(ValueError, match="noise_std must be positive"):
        GP(noise_std=0.0).build(setting(INDUCING))
    with pytest.raises(ValueError, match="std must be positive"):
        Noise(std=-1.0).build(setting(INDUCING))
    with pytest.raises(ValueError, match="takes numbers"):
        Noise(mean=fixed(1.0)).build(setting(INDUCING))
