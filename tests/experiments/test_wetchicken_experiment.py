"""Wet-chicken: how decisions are scored, and the chain of networks of the baseline."""

import itertools

import jax
import numpy as np
import pytest

from dagp import datasets
from dagp.baselines.bnnlv import BNNLV, Draws
from dagp.core.precision import numerics
from dagp.dynamics import Policy
from dagp.experiments.chained import ChainDynamics, ChainModel, Link
from dagp.experiments.wetchicken import WETCHICKEN, Decision, Reward, drop_regimes, score
from dagp.inference.standardize import Units

DATA = datasets.wet_chicken(100, random_state=0)


class Truth:
    """A transition model that is right."""

    n_regimes_ = 2

    def predict_regimes(self, states, actions):
        drop = DATA.simulator.drop_probability(states, actions)
        return np.stack([1 - drop, drop], axis=1)

    def predict(self, states, actions):
        mean, std = DATA.simulator.drifting(states, actions)
        shape = np.ones((1, 2, 2))
        return mean[:, None, None] * shape, std[:, None, None] * shape


def ahead(parameters, state):
    return parameters + 0 * state


def test_a_right_model_has_no_errors_and_policies_are_tried_on_the_river():
    policies = Policy(ahead, np.ones(2)), Policy(ahead, -np.ones(2))
    row = score(Decision(Truth(), (1,), *policies), DATA)
    for name in ("drop_error", "flow_error", "turbulence_error"):
        assert row[name] == pytest.approx(0.0, abs=1e-9)
    assert row["restart_error"] > 0.05
    bold = DATA.simulator.evaluate(policies[0], random_state=0)
    assert (row["return"], row["drops"]) == pytest.approx(bold)
    assert row["careful_drops"] < row["drops"]
    few = DATA.simulator.evaluate(policies[0], steps=5, n=10_000, random_state=1)[0]
    assert row["short_return"] == pytest.approx(few, abs=0.05)


def test_drop_regimes_are_those_that_end_at_the_start():
    class Found:
        n_regimes_ = 3

        class model_:  # noqa: N801
            assignment_ = np.where(DATA.process == 1, 2, 0)

    assert drop_regimes(Found(), DATA) == (2,)
    assert Reward.of(Found())(None, None, [4.0], [0.5, 0.25, 0.25]) == pytest.approx(4.0)
    reward = Reward.of(Found(), (2,))
    assert reward(None, None, [4.0], [0.5, 0.25, 0.25]) == pytest.approx(4 * 0.75 - 5 * 0.25)


def test_every_published_figure_has_a_place():
    for metric, variant, model in WETCHICKEN.published:
        assert metric in WETCHICKEN.metrics
        assert variant in WETCHICKEN.variants
        assert model in WETCHICKEN.competitors


def test_a_chain_of_networks_passes_states_on():
    """Networks without weights but for the last bias: constant outputs, with noise."""

    def constant(inputs, value):
        model = BNNLV()
        sizes = (inputs + 1, *model.hidden, 1)
        count = sum(i * o + o for i, o in itertools.pairwise(sizes))
        weights = np.zeros((5, count))
        weights[:, -1] = value
        model.draws_ = Draws(sizes, weights, np.zeros(5), 0.01)
        model.units_ = Units(np.zeros(inputs), np.ones(inputs), np.full(1, 2.0), np.full(1, 3.0))
        return model

    chain = ChainModel(DATA.simulator.bounds, DATA.simulator.action_bounds)
    chain.networks_ = [constant(4, 0.5), constant(5, -0.5)]
    dynamics = chain.dynamics()
    assert isinstance(dynamics, ChainDynamics)
    assert Link.of(chain.networks_[0]).noise_std == pytest.approx(0.1)
    with numerics():
        key = jax.random.key(0)
        drawn = dynamics.begin(key, 2000)
        found = dynamics.outcomes(drawn, np.ones((2000, 2)), np.zeros((2000, 2)), key)
    after = np.asarray(found.candidates)[:, 0]
    np.testing.assert_allclose(after.mean(axis=0), [3.5, 0.5], atol=0.03)
    assert after[:, 0].std() == pytest.approx(0.3, rel=0.1)
    assert np.all(after >= 0)
