"""Priors, fixed values and shared values, as a user states them."""

import dataclasses

import jax.numpy as jnp
import numpy as np
import pytest

from dagp import DAGP, GP, Gamma, LogNormal, fixed, parameter
from dagp.kernels import SquaredExponential
from dagp.model.parameters import tied
from dagp.model.process import BuildContext

pytestmark = pytest.mark.filterwarnings("ignore::dagp.SearchWarning")


def two_curves(n=60):
    rng = np.random.default_rng(0)
    x = np.sort(rng.uniform(-3, 3, n))
    y = np.where(np.arange(n) % 2 == 0, np.sin(x), 3 + np.cos(2 * x))
    return x[:, None], y + 0.1 * rng.standard_normal(n)


QUICK = {"n_init": 2, "tol": 1e-3, "inducing": 10, "random_state": 0}


def test_tied_gradients_are_summed():
    alone = dataclasses.replace(parameter(1.0), raw=jnp.array([1.0, 2.0]))
    shared = dataclasses.replace(parameter(1.0, share="s"), raw=jnp.array([1.0, 2.0]))
    other = dataclasses.replace(parameter(1.0, share="s"), raw=jnp.array([10.0]))
    found = tied({"alone": alone, "shared": shared, "other": other})
    np.testing.assert_array_equal(found["alone"].raw, [1.0, 2.0])
    np.testing.assert_array_equal(found["shared"].raw, [13.0, 13.0])
    np.testing.assert_array_equal(found["other"].raw, [13.0])


def test_shared_parameters_stay_equal():
    X, y = two_curves()
    kernel = SquaredExponential(lengthscale=parameter(share="smoothness"))
    model = DAGP(2, processes=GP(kernel), **QUICK).fit(X, y)
    first, second = (p.kernel_ for p in model.processes_)
    np.testing.assert_allclose(
        first.lengthscale.in_user_units, second.lengthscale.in_user_units, rtol=1e-10
    )
    assert not np.isclose(first.variance.in_user_units, second.variance.in_user_units, rtol=1e-3)


def test_shared_parameters_must_start_alike():
    X, y = two_curves()
    priors = [GP(noise_std=parameter(value, share="noise")) for value in (0.1, 0.2)]
    with pytest.raises(ValueError, match="must have one initial value"):
        DAGP(processes=priors, **QUICK).fit(X, y)


def test_a_fixed_kernel_stays():
    X, y = two_curves()
    kernel = fixed(SquaredExponential(1.3, 2.0))
    model = DAGP(processes=[GP(kernel), GP()], **QUICK).fit(X, y)
    np.testing.assert_allclose(model.processes_[0].kernel_.lengthscale.in_user_units, 1.3)
    np.testing.assert_allclose(model.processes_[0].kernel_.variance.in_user_units, 2.0)
    assert not np.isclose(model.processes_[1].kernel_.variance.in_user_units, 2.0, rtol=1e-3)


@pytest.mark.parametrize("prior", [LogNormal(2.0, 0.01), Gamma(4e4, 2e4), LogNormal(2.0, 0.02)])
def test_a_strong_prior_on_a_lengthscale_is_obeyed(prior):
    X, y = two_curves()
    kernel = SquaredExponential(lengthscale=parameter(2.0, prior=prior))
    model = DAGP(1, processes=GP(kernel), **QUICK).fit(X, y)
    np.testing.assert_allclose(
        model.processes_[0].kernel_.lengthscale.in_user_units, 2.0, rtol=0.05
    )


def test_a_stated_prior_on_the_noise_is_obeyed_and_replaces_the_default():
    X, y = two_curves()
    strong = GP(noise_prior=LogNormal(0.5, 0.01))
    model = DAGP(2, processes=strong, **QUICK).fit(X, y)
    for process in model.processes_:
        np.testing.assert_allclose(process.noise_std_, 0.5, rtol=0.05)
    here = BuildContext(
        *(np.zeros(1), np.ones(1), np.zeros(1), 4 * np.ones(1)),
        *(np.zeros(1), np.ones(1), np.zeros((2, 1)), 1.0, 0.1),
    )
    default = GP().build(here).noise_std.prior
    assert isinstance(default, LogNormal) and float(default.median.item()) == pytest.approx(0.4)
    assert GP(noise_std=0.3).build(here).noise_std.prior is None
    assert strong.build(here).noise_std.prior is strong.noise_prior


def test_the_default_noise_prior_says_there_is_a_signal():
    """Five points on a line: noise alone would explain them, too."""
    x = np.linspace(-1, 1, 5)[:, None]
    settings = {"n_init": 1, "tol": 1e-3, "random_state": 0}
    model = DAGP(1, **settings).fit(x, 2 * x[:, 0])
    noisy = DAGP(1, processes=GP(noise_prior=LogNormal(100.0, 0.1)), **settings)
    noisy.fit(x, 2 * x[:, 0])
    assert model.processes_[0].noise_std_.item() < 0.3 < noisy.processes_[0].noise_std_.item()
