"""Regimes that are another one stopped at a known bound."""

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from dagp import DAGP
from dagp.dynamics import TransitionModel
from dagp.dynamics.stops import fit_past_stops, stopped_targets
from dagp.predict.mixture import Mixture

N, STD = 40, 0.01
LOW, HIGH = np.zeros((N, 2)), np.ones((N, 2))


def case(first: Any, second: Any) -> tuple[Any, np.ndarray, np.ndarray]:
    """A model of a free regime, and of one whose next states are `first` and `second`; half of the
    rows are of each. The free one leads to (.5, 1.3), which is stopped at 1."""
    rng = np.random.default_rng(0)
    owner = np.arange(N) % 2
    free = np.array([0.5, 1.3])
    target = np.clip(free + STD * rng.standard_normal((N, 2)), LOW, HIGH)
    target[owner == 0, 1] = np.linspace(0.1, 0.9, N // 2)
    means = np.broadcast_to(free, (N, 2, 2)).copy()
    means[:, 1] = first, second
    target[owner == 1] += np.array([first - free[0], second - 1])
    mixture = Mixture(np.full((N, 2), 0.5), means, np.full((N, 2, 2), STD**2))
    model = SimpleNamespace(
        assignment_=owner, processes_=[None, None], predict_mixture=lambda X: mixture
    )
    return model, target, owner


def test_a_regime_that_is_another_one_at_a_bound_is_found():
    model, target, owner = case(0.5, 1.0)
    stopped = stopped_targets(model, np.zeros((N, 1)), target, LOW, HIGH)
    np.testing.assert_array_equal(stopped[:, 1], owner == 1)
    assert not stopped[:, 0].any()


@pytest.mark.parametrize(
    ("first", "second", "why"),
    [
        (0.5, 0.0, "the other regime leads to the other bound"),
        (0.5, 0.8, "not at a bound"),
    ],
)
def test_a_regime_of_its_own_stays(first, second, why):
    model, target, _ = case(first, second)
    assert not stopped_targets(model, np.zeros((N, 1)), target, LOW, HIGH).any(), why


def test_a_noisy_state_says_something_at_its_bound():
    model, target, _ = case(0.5, 1.0)
    target[::2, 1] = np.random.default_rng(1).uniform(0.96, 0.99, N // 2)
    assert not stopped_targets(model, np.zeros((N, 1)), target, LOW, HIGH).any()


def test_a_reset_at_a_corner_stays():
    model, target, owner = case(0.5, 1.0)
    target[owner == 1, 0] = 1.0
    assert not stopped_targets(model, np.zeros((N, 1)), target, LOW, HIGH).any()


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:.*leave the training data")
def test_walls_are_no_regimes_and_trajectories_stop_at_them():
    rng = np.random.default_rng(1)
    states, actions = rng.uniform(0, 1, (250, 2)), rng.uniform(-1, 1, (250, 1))
    after = states + np.c_[0.2 * rng.standard_normal(250), 0.5 * actions]
    after[:, 1] = np.clip(after[:, 1], 0, 1)
    bounds: Any = {"bounds": [None, (0, 1)], "action_bounds": [(-1, 1)]}
    estimator = DAGP("auto", inducing=20, tol=1e-2, random_state=0)
    model = TransitionModel(estimator, **bounds).fit(states, actions, after)
    assert model.n_regimes_ == 1
    assert model.estimator.missing == model.model_.missing == "raise"
    mean, std = model.predict([[0.5, 0.9]], [[1.0]])
    assert mean[0, 0, 1] > 1.2 and std[0, 0, 1] < 0.1, "not flattened by rows at the wall"
    paths = model.rollout(lambda s: np.ones((len(s), 1)), [0.5, 0.9], 3, 5, random_state=0)
    np.testing.assert_array_equal(paths.states[:, 1:, 1], 1.0)


def walled():
    """A model that takes a wall for a regime until the stopped states are unknown."""
    fits: list[Any] = []
    model, target, _ = case(0.5, 1.0)
    model.n_processes, model.missing, model.checkpoint = "auto", "raise", "there"

    def fit(X, target):
        fits.append((model.checkpoint, model.missing))
        if np.isnan(target).any():
            model.assignment_ = np.zeros(N, int)

    model.fit = fit
    model.set_params = lambda **given: (vars(model).update(given), model)[1]
    return model, target, fits


def test_each_fit_has_a_checkpoint_of_its_own():
    """After a stop in the second one, the first would refuse to resume from its checkpoint."""
    model, target, fits = walled()
    found = fit_past_stops(model, np.zeros((N, 1)), target, LOW, HIGH)
    assert fits == [("there", "raise"), ("there.2", "drop")]
    assert (model.checkpoint, model.missing) == ("there", "raise")
    assert np.isnan(found[1::2, 1]).all() and not np.isnan(found[::2]).any()


def test_a_fit_that_is_stopped_leaves_the_model_as_it_was(monkeypatch):
    rng = np.random.default_rng(0)
    states = rng.uniform(0, 1, (20, 1))
    model = TransitionModel(DAGP(1, inducing=5, n_init=1, tol=1e-2, random_state=0))
    model.fit(states, None, states + 0.1)
    before = model.predict(states)

    def stopped(*given):
        raise KeyboardInterrupt

    monkeypatch.setattr("dagp.dynamics.transition.own_functions", stopped)
    with pytest.raises(KeyboardInterrupt):
        model.fit(states, None, 1 - states)
    np.testing.assert_array_equal(model.predict(states), before)
