"""Parameters: constraints, units, priors, and what the optimiser may move."""

import dataclasses

import jax
import numpy as np
import pytest
import scipy.stats
from hypothesis import given, settings
from hypothesis import strategies as st
from reference import build

from dagp import kernels
from dagp.model.clutter import Noise, Uniform
from dagp.model.gp import GP
from dagp.model.parameters import (
    Gamma,
    HalfCauchy,
    LogNormal,
    fixed,
    is_parameter,
    log_prior,
    parameter,
    trainable,
)

pytestmark = pytest.mark.usefixtures("float64")
positive = st.floats(1e-3, 1e3)

PRIORS = [
    (LogNormal(median=0.3, std=0.7), scipy.stats.lognorm(s=0.7, scale=0.3)),
    (LogNormal(median=2.0), scipy.stats.lognorm(s=1.0, scale=2.0)),
    (Gamma(shape=2.5, rate=3.0), scipy.stats.gamma(2.5, scale=1 / 3.0)),
    (HalfCauchy(median=0.4), scipy.stats.halfcauchy(scale=0.4)),
]


@pytest.mark.parametrize(("prior", "scipys"), PRIORS)
@given(value=positive)
@settings(max_examples=20)
def test_prior_density_is_scipys(prior, scipys, value):
    np.testing.assert_allclose(prior.log_prob(np.asarray(value)), scipys.logpdf(value), rtol=1e-9)
    carrying = parameter(value, prior=prior)
    # The density of the logarithm.
    expected = scipys.logpdf(value) + np.log(value)
    np.testing.assert_allclose(log_prior(carrying), expected, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("case", range(2))
def test_medians_are_medians(case):
    prior, scipys = [PRIORS[0], PRIORS[3]][case]
    np.testing.assert_allclose(prior.median, scipys.median())


def test_log_prior_sums_over_a_tree_and_ignores_units():
    prior, scipys = PRIORS[0]
    tree = {
        "a": parameter([0.5, 2.0], prior=prior).in_units(7.0),
        "b": [parameter(1.5, prior=prior), parameter(9.0)],
    }
    values = np.array([0.5, 2.0, 1.5])
    np.testing.assert_allclose(log_prior(tree), np.sum(scipys.logpdf(values) + np.log(values)))
    assert float(log_prior([parameter(3.0)])) == 0.0


@given(value=positive, unit=positive)
@settings(max_examples=25)
def test_a_stated_value_stays_in_the_users_units(value, unit):
    p = parameter(value).in_units(unit)
    np.testing.assert_allclose(p.in_user_units, value)
    np.testing.assert_allclose(p.value, value / unit)
    np.testing.assert_allclose(p.starting_at(5.0).value, value / unit)
    real = parameter(-value, support="real").in_units(unit)
    np.testing.assert_allclose(real.in_user_units, -value)
    np.testing.assert_allclose(real.value, -value / unit)


@given(unit=positive, start=positive)
@settings(max_examples=25)
def test_an_automatic_value_stays_in_standardised_units(unit, start):
    for support, sign in (("positive", 1.0), ("real", -1.0)):
        p = parameter(None, default=0.5, support=support).in_units(unit)
        np.testing.assert_allclose(p.value, 0.5)
        np.testing.assert_allclose(p.in_user_units, 0.5 * unit)
        moved = p.starting_at(sign * start)
        np.testing.assert_allclose(moved.value, sign * start)
        np.testing.assert_allclose(moved.in_user_units, sign * start * unit)


def test_one_unit_per_column():
    p = parameter(2.0).in_units([1.0, 10.0])
    np.testing.assert_allclose(p.value, [2.0, 0.2])
    automatic = parameter(None).in_units([1.0, 10.0]).starting_at(0.5)
    np.testing.assert_allclose(automatic.in_user_units, [0.5, 5.0])


@pytest.mark.parametrize("size", [1e-200, 1e200])
def test_units_of_any_size(size):
    np.testing.assert_allclose(parameter(3 * size).in_units(size).value, 3.0)
    np.testing.assert_allclose(parameter(None).in_units(size).value, 1.0)


def marked(tree) -> list[bool]:
    return jax.tree.leaves(trainable(tree))


def test_trainable_marks_the_raw_of_what_is_not_frozen_and_nothing_else():
    kernel = kernels.Periodic(period=fixed(24.0), lengthscale=1.0, variance=2.0)
    mask = trainable(
        {"kernel": kernel, "plain": np.ones(3), "prior": parameter(1.0, prior=Gamma(1, 1))}
    )
    assert mask["kernel"].period.raw is False
    assert mask["kernel"].lengthscale.raw is True
    assert mask["kernel"].lengthscale.unit is False
    assert mask["plain"] is False
    assert mask["prior"].raw is True
    assert jax.tree.leaves(mask["prior"].prior) == [False, False]


def test_trainable_of_a_model_counts_its_parameters():
    inducing = np.linspace(0, 1, 3)[:, None]
    model = build([GP(), GP(noise_std=fixed(0.1)), Noise(), Uniform()], inducing)
    nodes = jax.tree.leaves(model, is_leaf=is_parameter)
    free = [node for node in nodes if is_parameter(node) and not node.frozen]
    # A GP has 4 (length scale, variance, inducing inputs, noise), Noise 2, Uniform 0, the gate 3.
    assert sum(marked(model)) == len(free) == 4 + 3 + 2 + 0 + 3
    assert len(marked(model)) == len(jax.tree.leaves(model))


def test_fixed():
    p = fixed(3.0)
    assert p.frozen and not p.automatic
    np.testing.assert_allclose(p.in_user_units, 3.0)
    assert fixed(-1.0, support="real").in_user_units == -1.0
    assert parameter(p) is p
    assert parameter(p, prior=Gamma(1, 1)).frozen


@pytest.mark.parametrize(
    "wrong",
    [
        lambda: parameter(0.0, name="lengthscale"),
        lambda: parameter(-1.0, name="lengthscale"),
        lambda: parameter([1.0, -1.0], name="lengthscale"),
        lambda: kernels.Matern32(lengthscale=-0.1),
        lambda: fixed(0.0),
        lambda: LogNormal(median=-1.0),
        lambda: LogNormal(median=1.0, std=0.0),
        lambda: Gamma(shape=0.0, rate=1.0),
        lambda: HalfCauchy(median=-2.0),
    ],
)
def test_what_must_be_positive(wrong):
    with pytest.raises(ValueError, match="must be positive"):
        wrong()


@pytest.mark.parametrize("support", ["positive", "real"])
@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_what_must_be_finite(value, support):
    with pytest.raises(ValueError, match="noise_std must be finite"):
        parameter(value, support=support, name="noise_std")


def test_parameters_are_immutable():
    with pytest.raises(dataclasses.FrozenInstanceError):
        parameter(1.0).raw = 2.0


def test_names_of_version_0_1_still_work():
    old = parameter(2.0, share="noise")
    assert old.tie == parameter(2.0, tie="noise").tie == "noise"
    assert float(old.natural) == float(old.in_user_units) == 2.0
