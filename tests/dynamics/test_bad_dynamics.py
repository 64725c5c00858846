"""Wrong states, actions, policies and horizons: answered in words."""

import jax.numpy as jnp
import numpy as np
import pytest

from dagp import DAGP, StorageError
from dagp.dynamics import Policy, TransitionModel, improve_policy, network_policy

QUICK = {"n_init": 1, "tol": 1.0, "inducing": 8, "random_state": 0}
GOOD = np.random.default_rng(0).uniform(-1, 1, (30, 3))
S, A = GOOD[:, :2], GOOD[:, 2:]


@pytest.fixture(scope="module")
def model():
    return TransitionModel(DAGP(1, **QUICK), action_bounds=[(-1, 1)]).fit(S, A, 0.9 * S)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ((S[:, 0], A, S), "states must have rows and columns"),
        ((S, A[:-1], S), "actions must have 30 rows"),
        ((S, A, S[:, :1]), "next_states must have 2 columns, got 1"),
        ((S, A, np.where(S > 0.99, np.nan, S) * np.nan), "next_states must be finite; row 0"),
        ((S, [["fast"]] * 30, S), "actions must be a table of numbers"),
    ],
)
def test_tables_of_wrong_shape_are_refused(arguments, words):
    with pytest.raises(ValueError, match=words):
        TransitionModel().fit(*arguments)


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"bounds": [(0, 1)]}, "pair .* for each of 2 columns"),
        ({"bounds": [(1, 0), None]}, "column 0 must have low < high"),
        ({"bounds": [(-0.1, 0.1), None]}, "states must be within bounds; row"),
        ({"action_bounds": [(-0.1, 0.1)]}, "actions must be within bounds"),
        ({"reset": [0.0]}, "reset must be a state of 2 numbers"),
        ({"periods": [1.0, -1.0]}, "periods must hold a positive number"),
    ],
)
def test_settings_that_do_not_fit_are_refused(settings, words):
    with pytest.raises(ValueError, match=words):
        TransitionModel(**settings).fit(S, A, S)


def still(states):
    return np.zeros((len(states), 1))


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ((still, [0.0, 0.0], 0), "horizon must be a whole number of at least 1, got 0"),
        ((still, [0.0, 0.0], 2, 0), "n_samples must be"),
        ((still, [0.0], 2), "start must have 2 columns, got 1"),
        ((still, [np.nan, 0.0], 2), "start must be finite"),
        ((None, [0.0, 0.0], 2), "has 1 actions"),
        ((lambda s: s, [0.0, 0.0], 2), r"actions of shape \(1, 1\)"),
        ((lambda s: still(s) * np.nan, [0.0, 0.0], 2), "returned nan as action 0 at step 0"),
        ((lambda s: still(s) + 3, [0.0, 0.0], 2), "left the allowed range at step 0: .* 3 in"),
        ((Policy(lambda p, s: s, 0.0), [0.0, 0.0], 2), "must return 1 actions"),
        ((Policy(lambda p, s: s[:1] * jnp.nan, 0.0), [0.0, 0.0], 2), "returned nan"),
        ((Policy(lambda p, s: s[:1] + 2, 0.0), [0.0, 0.0], 2), "left the allowed range"),
    ],
)
def test_roll_outs_that_cannot_be_are_refused(model, arguments, words):
    with pytest.raises(ValueError, match=words):
        model.rollout(*arguments)


@pytest.mark.parametrize("setting", ["functions", "regimes"])
def test_a_wrong_word_is_refused(model, setting):
    with pytest.raises(ValueError, match=f"{setting} must be"):
        model.rollout(still, [0.0, 0.0], 2, **{setting: "all"})


def test_leaving_the_data_is_said_with_how_far(model):
    with pytest.warns(UserWarning, match=r"100% of the trajectories leave .* ranges, in state 1"):
        run = model.rollout(still, [0.0, 5.0], 1)
    low, high = S[:, 1].min(), S[:, 1].max()
    assert run.outside[0, 0] == pytest.approx((5 - high) / (high - low))
    assert model.rollout(still, [0.0, 0.0], 1).outside.max() == 0.0


def test_a_search_refuses_what_does_not_fit(model):
    reward = lambda s, a, after, p: after[0]  # noqa: E731
    with pytest.raises(ValueError, match="policy must be a Policy"):
        improve_policy(model, reward, still)
    with pytest.raises(ValueError, match="reward must return one number"):
        improve_policy(model, lambda s, a, after, p: after, n_init=1)
    with pytest.raises(ValueError, match="must return 1 actions"):
        improve_policy(model, reward, Policy(lambda p, s: s, 0.0))
    with pytest.raises(ValueError, match="not finite"):
        improve_policy(
            model, lambda s, a, after, p: after[0] / 0.0, n_init=1, max_iter=1, horizon=1
        )
    with pytest.raises(ValueError, match="finite pairs"):
        network_policy(S, [(-1, None)])


def test_a_plain_model_is_not_a_transition_model(model, tmp_path):
    path = model.model_.save(tmp_path / "plain.dagp")
    with pytest.raises(StorageError, match="does not hold a transition model"):
        TransitionModel.load(path)
