"""Noise GPs after the search: which process has them, and what is joined to it."""

import numpy as np
import pytest

from dagp import DAGP, GP, Noise
from dagp.inference.standardize import Sample, Units
from dagp.kernels import Matern32
from dagp.search.deepen import _arrangements
from dagp.search.factory import Problem


def arrangements(priors, labels=None, n=30):
    X = np.linspace(-1, 1, n)[:, None]
    labels = np.full(n, -1) if labels is None else labels
    sample = Sample(X, X, np.ones(n), labels)
    problem = Problem(sample, Units.of(sample), tuple(priors), None, X[::5])
    found = np.random.default_rng(0).dirichlet(np.ones(len(priors)), n)
    return found, list(_arrangements(problem, found))


def test_every_function_may_take_the_place_of_the_one_whose_noise_varies():
    found, ways = arrangements([GP(noise_gp=GP()), GP(), Noise()])
    np.testing.assert_array_equal(ways[0].given, found)
    assert {tuple(way.order) for way in ways} == {(0, 1, 2), (1, 0, 2)}
    joined = [way for way in ways if np.all(way.given[:, 1] == 0)]
    assert len(joined) == 2
    for way in ways:
        np.testing.assert_allclose(way.given.sum(axis=1), 1.0)
        np.testing.assert_array_equal(way.given[:, 2], found[:, 2])


def test_functions_of_equal_priors_are_joined_but_not_exchanged():
    _, ways = arrangements([GP(noise_gp=GP()), GP(noise_gp=GP())])
    orders = [tuple(way.order) for way in ways if not np.any(np.all(way.given == 0, axis=0))]
    assert orders == [(0, 1)]


def test_every_two_functions_of_equal_priors_are_joined_once():
    # Under other numbers the same arrangements would be trained again, K times as many.
    found, ways = arrangements([GP(noise_gp=GP()) for _ in range(4)])
    assert len(ways) == 1 + 4 * 3 / 2
    assert all(way.order == [0, 1, 2, 3] for way in ways)
    joined = set()
    for way in ways[1:]:
        (gone,) = np.flatnonzero(np.all(way.given == 0, axis=0))
        (taker,) = np.flatnonzero(np.any(way.given > found, axis=0))
        assert found[:, gone].sum() < found[:, taker].sum()
        joined.add(frozenset((int(gone), int(taker))))
    assert len(joined) == 6


@pytest.mark.parametrize(
    ("priors", "labels"),
    [
        ([GP(noise_gp=GP()), GP()], np.where(np.arange(30) < 3, 1, -1)),
        ([GP(), Noise()], None),
    ],
)
def test_labels_fix_the_order(priors, labels):
    found, ways = arrangements(priors, labels)
    assert len(ways) == 1
    np.testing.assert_array_equal(ways[0].given, found)


def test_priors_that_differ_keep_their_places():
    _, ways = arrangements([GP(noise_gp=GP()), GP(Matern32())])
    assert {tuple(way.order) for way in ways} == {(0, 1)}


def test_a_function_of_varying_noise_is_not_divided():
    # With constant noise its quiet and its loud part are two processes.
    rng = np.random.default_rng(0)
    x = np.sort(rng.uniform(-1, 1, 200))
    y = x + 0.1 * np.exp(2.5 * x) * rng.standard_normal(200)
    settings = {"inducing": 12, "n_init": 4, "tol": 1e-3, "random_state": 0}
    plain = DAGP(2, **settings).fit(x[:, None], y)
    assert min(np.bincount(plain.assignment_, minlength=2)) > 40
    model = DAGP(processes=[GP(), GP(noise_gp=GP())], **settings).fit(x[:, None], y)
    assert np.mean(model.assignment_ == 1) > 0.97
    # Other starts have no noise GPs: the confidence is that before these were added.
    assert model.confidence_ == pytest.approx(plain.confidence_)
