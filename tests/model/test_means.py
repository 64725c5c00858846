"""Mean functions in the user's units and in standardised ones."""

import numpy as np
import pytest
from reference import setting

from dagp import means
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


@pytest.mark.parametrize("mean", [means.Linear(), means.Constant(), means.Linear(slope=[3.0])])
def test_a_mean_begins_at_the_data(mean):
    """Outputs a thousand of their spreads from zero, inputs as far from it."""
    centre, unit = np.array([1e4]), np.array([2.0])
    started = mean.in_units(unit, 10.0).through(centre, 1e6)
    np.testing.assert_allclose(started(centre[None]), 1e6)
    stated = means.Linear(slope=[1.0], intercept=5.0).in_units(unit, 10.0).through(centre, 1e6)
    np.testing.assert_allclose(stated(np.array([[2.0]])), 7.0)
