"""Wet-chicken: the closed forms against the simulator."""

import numpy as np
import pytest

from dagp import datasets

RIVER = datasets.WetChicken()


@pytest.mark.parametrize(
    "place", [(2.0, 1.0, 0.5, 0.2), (3.5, 4.0, -0.5, -1.0), (0.2, 0.3, -1, -1)]
)
def test_closed_forms_are_frequencies(place):
    rows = np.tile(place, (40_000, 1))
    after, dropped = RIVER.step(rows[:, :2], rows[:, 2:], random_state=0)
    one = rows[:1, :2], rows[:1, 2:]
    assert dropped.mean() == pytest.approx(RIVER.drop_probability(*one)[0], abs=0.01)
    restarts = np.all(after == 0, axis=1)
    assert restarts.mean() == pytest.approx(RIVER.restart_probability(*one)[0], abs=0.01)
    mean, std = RIVER.drifting(*one)
    left = after[dropped == 0, 0]
    assert left.mean() == pytest.approx(mean[0], abs=0.03)
    assert left.std() == pytest.approx(std[0], abs=0.03)
    assert np.all(after[dropped == 1] == 0)
    assert np.all((after >= 0) & (after <= 5))


def test_random_paddling_is_what_it_is_known_to_be():
    rng = np.random.default_rng(0)
    reward, drops = RIVER.evaluate(lambda s: rng.uniform(-1, 1, s.shape), random_state=0)
    assert reward == pytest.approx(1.29, abs=0.02)
    assert 0 < drops < 0.3


def test_the_data_set_agrees_with_its_parts():
    data = datasets.wet_chicken(50, n_test=20, random_state=3)
    np.testing.assert_array_equal(data.X, np.hstack([data.states, data.actions]))
    np.testing.assert_array_equal(data.y, data.next_states)
    assert np.all(data.y[data.process == 1] == 0)
    expected = data.simulator.drop_probability(data.X_test[:, :2], data.X_test[:, 2:])
    np.testing.assert_array_equal(data.y_test, expected)
    with pytest.raises(ValueError, match="n must be"):
        datasets.wet_chicken(0)
    with pytest.raises(ValueError, match="shape"):
        RIVER.flow([1.0, 2.0])


def test_the_cart_pole_is_that_of_the_data():
    data = datasets.cartpole("short", n=20, n_test=1, noise=0.0, random_state=0)
    after = datasets.CartPole().step(data.X[:, :4], data.X[:, 4:], "short")
    np.testing.assert_allclose(after[:, 2] - data.X[:, 2], data.y, atol=1e-9)
    with pytest.raises(ValueError, match="system"):
        datasets.CartPole().step(data.X[:, :4], data.X[:, 4:], "long")
