"""The assembled model: the user's order, special cases, weights and padding."""

import equinox as eqx
import jax
import numpy as np
import pytest
from reference import batch, build, curve, evaluate, random_shares, setting, smooth, stepped

from dagp.inference.problem import build_gate
from dagp.kernels import Matern32
from dagp.model.association import DataAssociation, NaturalRates
from dagp.model.clutter import Noise, Uniform
from dagp.model.gp import GP, NOISE_FLOOR, GPProcess
from dagp.model.parameters import LogNormal, log_prior

pytestmark = pytest.mark.usefixtures("float64")

INDUCING = np.linspace(0, 3, 6)[:, None]
MIXED = [
    smooth(noise_std=0.1),
    Noise(std=2.0),
    smooth(lengthscale=0.4, noise_std=0.3),
    Uniform(low=-2.0, high=2.5),
    smooth(lengthscale=0.9, noise_std=0.5),
    GP(kernel=Matern32(0.5, 1.0), noise_std=0.7),
]
"""The order of the groups is not its own inverse."""


RATES = NaturalRates(1.0, 0.3)


def test_processes_of_one_make_are_stacked():
    model = build(MIXED, INDUCING)
    assert model.members == ((0, 2, 4), (1,), (3,), (5,))
    assert model.n_processes == 6
    assert model.is_uniform == (False, False, False, True, False, False)


def test_a_process_on_the_host_is_made_of_arrays():
    model = build(MIXED, INDUCING)
    leaves = [leaf for k in range(6) for leaf in jax.tree.leaves(model.process(k))]
    assert {type(leaf) for leaf in leaves} == {np.ndarray}


@jax.jit
def answered(process, X, y, share):
    """A process on its own after a full step, and its expected log density."""
    projection = process.project(X)
    process = process.natural_step(projection, process.marginals(projection), y, share, 1.0)
    return process, process.expected_log_density(process.marginals(projection), y)


def test_everything_is_in_the_users_order():
    X, y = curve(0)
    model, data = build(MIXED, INDUCING), batch(X, y, 6)
    shares = random_shares(0, 20, 6)
    model = stepped(model, data, shares, RATES)
    _, log_joint, marginals = evaluate(model, data)
    gate = marginals.gate.log_weights
    for k, prior in enumerate(MIXED):
        alone = prior.build(setting(INDUCING))
        alone, density = answered(alone, X, y, shares[:, k])
        np.testing.assert_allclose(log_joint[:, k], density + gate[:, k], rtol=1e-8, atol=1e-8)
        member = model.process(k)
        assert type(member) is type(alone)
        for ours, theirs in zip(jax.tree.leaves(member), jax.tree.leaves(alone), strict=True):
            np.testing.assert_allclose(ours, theirs, atol=1e-8)
    floor = NOISE_FLOOR**2
    noise = [0.1**2 + floor, 0.0, 0.3**2 + floor, 0.0, 0.5**2 + floor, 0.7**2 + floor]
    np.testing.assert_allclose(model.noise_variances(), np.reshape(noise, (6, 1)))


def test_divergence_is_the_sum_of_all():
    X, y = curve(1)
    model = stepped(build(MIXED, INDUCING), batch(X, y, 6), random_shares(1, 20, 6), RATES)
    parts = [model.process(k).kl() for k in range(6)]
    assert sum(float(part) > 0.1 for part in parts) == 4
    np.testing.assert_allclose(model.kl(), sum(parts) + model.gate.kl())


@pytest.mark.parametrize("k", [-1, 6])
def test_no_such_process(k):
    with pytest.raises(IndexError, match="this model has 6"):
        build(MIXED, INDUCING).process(k)


@pytest.mark.parametrize("noise_std", [None, 0.3])
@pytest.mark.parametrize("outputs", [1, 2])
def test_log_prior_of_a_model_is_the_sum_over_its_processes(noise_std, outputs):
    priors = [
        GP(noise_std=noise_std, noise_prior=LogNormal(median, 0.5)) for median in (0.1, 0.2, 0.4)
    ]
    model = build(priors, INDUCING, outputs, gate="constant")
    single = [log_prior(prior.build(setting(INDUCING, outputs))) for prior in priors]
    np.testing.assert_allclose(model.log_prior(), sum(single))


def test_several_outputs_share_the_assignment_and_nothing_else():
    X, y = curve(2, outputs=2)
    shares = random_shares(2, 20, 2)
    gate = build_gate("constant", setting(INDUCING), 2)

    def fitted(y, outputs):
        model, data = build([smooth(), Noise(std=2.0)], INDUCING, outputs, gate), batch(X, y, 2)
        bound, log_joint, marginals = evaluate(stepped(model, data, shares), data)
        return np.append(log_joint - marginals.gate.log_weights, bound.kl)

    separate = [fitted(y[:, [p]], 1) for p in range(2)]
    np.testing.assert_allclose(fitted(y, 2), sum(separate), rtol=1e-8)


def test_q_of_a_process_depends_on_its_own_shares_only():
    X, y = curve(3)
    shares = random_shares(3, 20, 3)
    swapped = shares[:, [0, 2, 1]]
    model, data = build([smooth()] * 3, INDUCING), batch(X, y, 3)
    one, other = stepped(model, data, shares), stepped(model, data, swapped)
    assert isinstance(one.process(0), GPProcess)
    for a, b in ((0, 0), (1, 2), (2, 1)):
        ours, theirs = one.process(a).latent.q, other.process(b).latent.q
        np.testing.assert_allclose(ours.precision, theirs.precision, atol=1e-10)
        np.testing.assert_allclose(ours.shift, theirs.shift, atol=1e-10)


def test_a_model_is_a_tree_that_survives_flattening():
    model = build(MIXED, INDUCING)
    leaves, structure = jax.tree.flatten(model)
    again = jax.tree.unflatten(structure, leaves)
    assert isinstance(again, DataAssociation) and again.members == model.members
    assert eqx.tree_equal(model, again)
    assert all(isinstance(leaf, jax.Array | np.ndarray) for leaf in leaves)
