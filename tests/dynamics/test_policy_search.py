"""Policy search, environments and pictures of models that are right."""

import matplotlib as mpl
import numpy as np
import pytest
from matplotlib.colors import to_hex

from dagp import DAGP, GP, fixed
from dagp.dynamics import Policy, TransitionModel, improve_policy

mpl.use("agg")
from matplotlib import pyplot as plt

from dagp import plot

QUICK = {"n_init": 1, "tol": 1e-1, "inducing": 8, "random_state": 0}


@pytest.fixture(scope="module")
def cliff():
    """A cart that moves by its action, and restarts at 0 the more often the further it is."""
    rng = np.random.default_rng(0)
    s, a = rng.uniform(-1, 1, (64, 1)), rng.uniform(-0.5, 0.5, (64, 1))
    after = np.clip(s + a + 0.02 * rng.standard_normal(s.shape), -1, 1)
    fell = rng.uniform(size=s.shape) < 1 / (1 + np.exp(-8 * (s + a - 0.3)))
    model = TransitionModel(
        DAGP(1, GP(noise_std=fixed(0.05)), **QUICK), reset=[0.0], bounds=[(-1, 1)]
    )
    return model.fit(s, a, np.where(fell, 0.0, after))


def follow(place, state):
    """Moves to a place, as fast as is allowed."""
    import jax.numpy as jnp

    return jnp.clip(place - state, -0.4, 0.4)


def test_a_reward_that_sees_regimes_keeps_away_from_one(cliff):
    def place(price):
        reward = lambda s, a, after, p: after[0] - price * p[1]  # noqa: E731
        start = Policy(follow, np.zeros(1))
        found = improve_policy(
            cliff, reward, start, horizon=3, max_iter=75, learning_rate=0.03, random_state=0
        )
        return found.policy.parameters.item(), found

    bold, found = place(0.0)
    careful, _ = place(2.0)
    assert bold > 0.05
    assert careful < bold - 0.1
    # The value is that of longer roll-outs of the model, here computed by others.
    starts = cliff.states_[np.random.default_rng(0).integers(64, size=400)]
    paths = cliff.rollout(found.policy, starts, 12, 5, random_state=5)
    again = paths.states[:, :, 1:, 0].mean(axis=(0, 2))
    assert found.value == pytest.approx(again.mean(), abs=5 * found.value_std + 0.02)
    assert len(found.history) == 1


def test_the_best_of_several_starts_is_kept(cliff, monkeypatch):
    starts = [Policy(follow, np.full(1, at)) for at in (-0.9, 0.2)]
    reward = lambda s, a, after, p: after[0]  # noqa: E731
    found = improve_policy(
        cliff, reward, starts, horizon=2, max_iter=1, learning_rate=1e-6, random_state=0
    )
    assert found.policy.parameters.item() == pytest.approx(0.2, abs=1e-3)
    assert [len(h) for h in found.history] == [1, 1]
    # In one thread instead of two, the same.
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    again = improve_policy(
        cliff, reward, starts, horizon=2, max_iter=1, learning_rate=1e-6, random_state=0
    )
    assert again.history == found.history


def test_a_model_is_an_environment(cliff):
    pytest.importorskip("gymnasium")
    from dagp.dynamics.gym import ModelEnv

    env = ModelEnv(cliff, lambda s, a, after, p: after[0], horizon=3, terminal=1)
    first, _ = env.reset(seed=0)
    assert env.observation_space.contains(first)
    action = env.action_space.sample() * 0
    episode = [env.step(action) for _ in range(3)]
    state, reward, terminated, truncated, info = episode[-1]
    assert truncated and reward == state[0]
    assert terminated == (info["regime"] == 1)
    assert info["probabilities"].sum() == pytest.approx(1.0)
    again, _ = env.reset(seed=0)
    np.testing.assert_array_equal(first, again)
    np.testing.assert_array_equal(env.step(action)[0], episode[0][0])
    with pytest.raises(ValueError, match="left the allowed range"):
        env.step(action + 9)


def test_a_fan_is_coloured_by_regime(cliff):
    run = cliff.rollout(Policy(follow, np.full(1, 0.8)), [0.0], 5, 30, random_state=0)
    ax = plot.fan(run, name="place", ax=plt.figure().gca())
    shades = [to_hex(c).upper() for c in ax.collections[0].get_colors()]
    assert shades == [plot.colour(k) for k in run.regimes.ravel()]
    assert ax.get_ylabel() == "place"
    np.testing.assert_allclose(ax.lines[1].get_ydata(), np.median(run.states[..., 0], axis=0))
    with pytest.raises(ValueError, match="one start"):
        plot.fan(cliff.rollout(Policy(follow, np.zeros(1)), [[0.0], [0.1]], 2))


def test_a_hazard_map_holds_the_probabilities_of_the_regime():
    rng = np.random.default_rng(0)
    s, a = rng.uniform(-1, 1, (40, 2)), rng.uniform(-1, 1, (40, 1))
    model = TransitionModel(DAGP(2, **QUICK)).fit(s, a, np.where(s[:, :1] > 0, s + 1, -s))
    ax = plot.hazard(model, 1, policy=[0.3], ax=plt.figure().gca())
    levels = np.asarray(ax.collections[0].get_array()).ravel()
    low, high = model.range_
    corner = model.predict_regimes([[low[0], low[1]], [high[0], high[1]]], [[0.3], [0.3]])[:, 1]
    np.testing.assert_allclose(levels[[0, -1]], corner, atol=1e-9)
    with pytest.raises(ValueError, match="no regime 2"):
        plot.hazard(model, 2)
