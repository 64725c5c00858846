"""Mean functions in the user's units and in standardised ones."""

import dataclasses

import equinox as eqx
import jax
import numpy as np
import pytest
from reference import setting

from dagp import DAGP, fixed, means
from dagp.model.gp import GP
from dagp.model.means import Centred, InUnits

pytestmark = pytest.mark.usefixtures("float64")

X = np.random.default_rng(0).standard_normal((6, 2)) * 3 + 5
Y_CENTRE, Y_UNIT = np.array([4.0, -1.0]), np.array([2.0, 0.5])
X_CENTRE, X_UNIT = np.array([5.0, 4.0]), np.array([3.0, 0.1])

MEANS = [
    (means.Zero(), np.zeros((6, 1))),
    (means.Constant(3.0), np.full((6, 1), 3.0)),
    (means.Linear(slope=[2.0, -1.0], intercept=0.5), (2 * X[:, 0] - X[:, 1] + 0.5)[:, None]),
    (means.Linear(slope=2.0), 2 * X.sum(axis=1, keepdims=True)),
    (means.Constant([3.0, -1.0]), np.tile([3.0, -1.0], (6, 1))),
    (means.Linear([[2.0, 0.0], [0.0, -1.0]], [0.5, 3.0]), X * [2.0, -1.0] + [0.5, 3.0]),
    (means.Identity(), X),
    (Centred(), np.zeros((6, 1))),
]


@pytest.mark.parametrize(("mean", "expected"), MEANS)
def test_values(mean, expected):
    np.testing.assert_allclose(mean(X), expected)


@pytest.mark.parametrize(("mean", "expected"), MEANS[:-1])
def test_in_units_is_the_users_mean_seen_from_standardised_data(mean, expected):
    seen = InUnits(mean, X_CENTRE, X_UNIT, Y_CENTRE, Y_UNIT)((X - X_CENTRE) / X_UNIT)
    np.testing.assert_allclose(
        seen * Y_UNIT + Y_CENTRE, np.broadcast_to(expected, (6, 2)), rtol=1e-9
    )


def test_a_process_takes_its_mean_in_the_users_units_and_else_the_centre_of_the_data():
    standard = (X - X_CENTRE) / X_UNIT
    units = {"x_centre": X_CENTRE, "x_unit": X_UNIT, "y_centre": Y_CENTRE, "y_unit": Y_UNIT}
    here = setting(standard, outputs=2, **units)
    stated = GP(mean=means.Constant(3.0)).build(here)
    marginals = stated.marginals(stated.project(standard))
    np.testing.assert_allclose(marginals.mean * Y_UNIT + Y_CENTRE, np.full((6, 2), 3.0))
    default = GP().build(here)
    marginals = default.marginals(default.project(standard))
    np.testing.assert_allclose(marginals.mean * Y_UNIT + Y_CENTRE, np.tile(Y_CENTRE, (6, 1)))


FAR_X, FAR_Y = np.array([1e9]), np.array([1e6])
FAR_UNITS = {"x_centre": FAR_X, "x_unit": np.array([2.0]), "y_centre": FAR_Y, "y_unit": [10.0]}


def built_far_away(mean):
    """The mean of a process built for data many of their spreads from zero, and its values at the
    standardised inputs 0 and 1, in the user's units."""
    there = setting(np.array([[0.0], [1.0]]), **{k: np.asarray(v) for k, v in FAR_UNITS.items()})
    built = GP(mean=mean).build(there).latent.mean
    return built, np.ravel(built(np.array([[0.0], [1.0]]))) * 10.0 + FAR_Y


@pytest.mark.parametrize(
    ("mean", "expected"),
    [
        (means.Linear(), [1e6, 1e6]),
        (means.Constant(), [1e6, 1e6]),
        (means.Linear(slope=[3.0]), [1e6, 1e6 + 6.0]),
        (means.Linear(slope=[1.0], intercept=5.0), [1e9 + 5.0, 1e9 + 7.0]),
        (means.Constant(3.0), [3.0, 3.0]),
        (means.Linear(slope=[1.0], intercept=fixed(5.0, support="real")), [1e9 + 5.0, 1e9 + 7.0]),
    ],
)
def test_a_mean_begins_at_the_data_or_where_the_user_says(mean, expected):
    np.testing.assert_allclose(built_far_away(mean)[1], expected, rtol=1e-12)


def test_a_line_is_learned_as_level_and_slope_at_the_centre_of_the_data():
    """A step of its slope turns it there, and does not throw it off the data."""
    built, before = built_far_away(means.Linear())
    slope = built.mean.slope
    turned = eqx.tree_at(
        lambda m: m.mean.slope, built, dataclasses.replace(slope, raw=slope.raw + 0.1)
    )
    after = np.ravel(turned(np.array([[0.0], [1.0]]))) * 10.0 + FAR_Y
    np.testing.assert_allclose(after - before, [0.0, 1.0], atol=1e-6)


def test_a_line_has_a_slope_for_each_input():
    here = setting(X, outputs=1)
    assert np.shape(GP(mean=means.Linear()).build(here).latent.mean.mean.slope.raw) == (2,)


UNITS = {"x_centre": X_CENTRE, "x_unit": X_UNIT, "y_centre": Y_CENTRE, "y_unit": Y_UNIT}


@pytest.mark.parametrize(
    ("mean", "expected"),
    [
        (means.Linear(), np.tile(Y_CENTRE, (6, 1))),
        (means.Constant(), np.tile(Y_CENTRE, (6, 1))),
        (means.Linear([2.0, -1.0], 0.5), np.tile((X @ [2.0, -1.0] + 0.5)[:, None], (1, 2))),
        (means.Constant([3.0, -1.0]), np.tile([3.0, -1.0], (6, 1))),
        (means.Linear([[2.0, 0.0], [0.0, -1.0]], [0.5, 3.0]), X * [2.0, -1.0] + [0.5, 3.0]),
    ],
)
def test_each_output_has_its_own_line_or_constant(mean, expected):
    standard = (X - X_CENTRE) / X_UNIT
    built = GP(mean=mean).build(setting(standard, outputs=2, **UNITS)).latent.mean
    np.testing.assert_allclose(built(standard) * Y_UNIT + Y_CENTRE, expected, rtol=1e-9)
    for raw in jax.tree.leaves(eqx.filter(built.mean, eqx.is_array_like)):
        assert np.shape(raw)[-1] == 2


@pytest.mark.parametrize(
    "mean",
    [means.Constant([1.0, 2.0, 3.0]), means.Linear([1.0] * 3), means.Linear(None, [1.0] * 3)],
)
def test_a_mean_of_the_wrong_width_is_refused_in_words(mean):
    with pytest.raises(ValueError, match=r"means\.\w+ has shape \(3,\), but one number or one for"):
        GP(mean=mean).build(setting(X, outputs=2, **UNITS))


def test_a_line_for_each_of_two_outputs_is_learned():
    """Outputs of other sizes and slopes, beyond the data: neither follows the other."""
    rng = np.random.default_rng(0)
    x = rng.uniform(0, 1, (40, 1))
    lines = np.array([[2.0, -300.0]]), np.array([1.0, 5000.0])
    y = x @ lines[0] + lines[1] + rng.standard_normal((40, 2)) * [0.01, 1.0]
    model = DAGP(processes=[GP(mean=means.Linear())], random_state=0).fit(x, y)
    beyond = np.array([[3.0]])
    expected = beyond @ lines[0] + lines[1]
    np.testing.assert_allclose(model.predict(beyond), expected, atol=1.0, rtol=0.05)


def test_a_fit_with_a_line_does_not_depend_on_where_zero_is():
    """Seconds since 1970: the line over an hour of them, and beyond."""
    rng = np.random.default_rng(0)
    seconds = rng.uniform(0, 3600, (60, 1))
    y = 3 + 2e-3 * seconds[:, 0] + 0.1 * rng.standard_normal(60)
    later = np.array([[7200.0]])
    near, far = (
        DAGP(processes=[GP(mean=means.Linear())], random_state=0).fit(zero + seconds, y)
        for zero in (0.0, 1.7e9)
    )
    assert far.lower_bound_ == pytest.approx(near.lower_bound_, abs=0.1)
    np.testing.assert_allclose(far.predict(1.7e9 + later), near.predict(later), atol=0.05)
    np.testing.assert_allclose(near.predict(later), 3 + 2e-3 * 7200, atol=0.2)
