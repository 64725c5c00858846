"""The collapsed bound against exact evidences, and what must not change it."""

import functools

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from reference import (
    FORBIDDEN,
    NOISE,
    batch,
    build,
    curve,
    evaluate,
    exact_gp,
    expectation,
    normalised,
    random_shares,
    smooth,
    smooth_covariance,
    sparse_gp,
    stepped,
    two_lines,
    uncollapsed,
)
from scipy.special import logsumexp

from dagp.inference.elbo import (
    collapsed_elbo,
    elbo_and_responsibilities,
    marginal_elbo,
    responsibilities,
    settle,
)
from dagp.model.association import NaturalRates
from dagp.model.clutter import Noise
from dagp.model.gates import ConstantGate
from dagp.model.parameters import trainable

pytestmark = pytest.mark.usefixtures("float64")

INDUCING = np.linspace(0.1, 2.9, 7)[:, None]
seeds = st.integers(0, 10_000)


@jax.jit
def gradient(model, batch):
    moving, rest = eqx.partition(model, trainable(model))

    def value(moving):
        model = eqx.combine(moving, rest)
        return collapsed_elbo(model, model.project(batch.X), batch).value

    return jax.grad(value)(moving)


@functools.partial(jax.jit, static_argnames="steps")
def compiled_settle(model, batch, shares, steps, rates):
    """As in training steps without a change of hyperparameters: each goes on from the last."""
    projection = model.project(batch.X)
    gate = model.gate.marginals(projection.gate)
    for _ in range(steps):
        model = settle(model, projection, batch, shares, gate, rates)
        _, shares, gate = elbo_and_responsibilities(model, projection, batch)
    return model, shares


compiled_elbo = jax.jit(lambda model, batch: collapsed_elbo(model, model.project(batch.X), batch))


def assert_same(one, other, **tolerance):
    for a, b in zip(jax.tree.leaves(one), jax.tree.leaves(other), strict=True):
        np.testing.assert_allclose(a, b, **({"rtol": 1e-8, "atol": 1e-8} | tolerance))


# ------------------------------------------------------------------ one process


def test_one_process_with_inducing_points_on_the_data_is_exact_regression():
    X, y = curve(0)
    data = batch(X, y, 1)
    model = stepped(build([smooth()], X), data, np.ones((20, 1)))
    exact = exact_gp(smooth_covariance(X, X), y[:, 0], NOISE**2)
    bound, _, marginals = evaluate(model, data)
    np.testing.assert_allclose(bound.value, exact.evidence, atol=1e-6)
    np.testing.assert_allclose(marginals.groups[0].mean[0, :, 0], exact.mean, atol=1e-6)
    np.testing.assert_allclose(marginals.groups[0].variance[0, :, 0], exact.variance, atol=1e-6)


@given(seeds)
@settings(max_examples=4)
def test_one_process_is_the_bound_of_titsias(seed):
    X, y = curve(seed)
    data = batch(X, y, 1)
    model = stepped(build([smooth()], INDUCING), data, np.ones((20, 1)))
    Kzz, Kzf = smooth_covariance(INDUCING, INDUCING), smooth_covariance(INDUCING, X)
    dense = sparse_gp(Kzz, Kzf, np.full(20, 1.3), y[:, 0], NOISE**2)
    bound = evaluate(model, data)[0]
    np.testing.assert_allclose(bound.value, dense.evidence, atol=1e-6)
    assert bound.value < exact_gp(smooth_covariance(X, X), y[:, 0], NOISE**2).evidence


# ------------------------------------------------------------------ known assignments


@pytest.mark.parametrize("gate", ["constant", None])
def test_known_labels_are_independent_regressions(gate):
    X, y = curve(1)
    labels = np.random.default_rng(0).integers(0, 2, 20)
    data = batch(X, y, 2, labels=labels)
    if gate == "constant":
        gate = ConstantGate(np.log([0.3, 0.7]))
    model = build([smooth(), smooth()], X, gate=gate)
    # Whatever the functions are, the responsibilities are the labels.
    shares = responsibilities(evaluate(model, data)[1])
    np.testing.assert_array_equal(shares, np.eye(2)[labels])
    model = stepped(model, data, shares)
    bound, _, marginals = evaluate(model, data)
    evidence = 0.0
    for k in range(2):
        mine = labels == k
        K, K_new = smooth_covariance(X[mine], X[mine]), smooth_covariance(X, X[mine])
        exact = exact_gp(K, y[mine, 0], NOISE**2, K_new, np.full(20, 1.3))
        evidence += exact.evidence
        np.testing.assert_allclose(marginals.groups[0].mean[k, :, 0], exact.mean, atol=1e-6)
        np.testing.assert_allclose(marginals.groups[0].variance[k, :, 0], exact.variance, atol=1e-6)
    if isinstance(gate, ConstantGate):
        evidence += np.sum(np.log([0.3, 0.7])[labels])
    else:
        # The gate is at its prior: normal log odds around zero.
        variance = np.full(2, model.gate.latent.kernel.variance.value)
        evidence -= 20 * expectation(lambda a: logsumexp(a, axis=-1), np.zeros(2), variance)
    np.testing.assert_allclose(bound.data - bound.kl, evidence, atol=1e-4)


def test_a_process_nothing_may_use_leaves_the_others_alone():
    X, y, labels = two_lines(0)

    def settled(processes, known_labels, rates):
        model = build([smooth()] * processes, np.linspace(-1, 1, 5)[:, None])
        data = batch(X, y, processes, labels=known_labels)
        data = data._replace(label_log_mask=data.label_log_mask.at[:, 2:].set(FORBIDDEN))
        shares = np.zeros((30, processes))
        shares[:, :2] = 0.9 * np.eye(2)[labels] + 0.05
        return compiled_settle(model, data, jnp.asarray(shares), 3, rates)

    # Without labels the gate is held: it prefers no process over another, however many there are.
    for known_labels, gate_rate in ((None, 0.0), (labels, 0.3)):
        two, shares_two = settled(2, known_labels, NaturalRates(1.0, gate_rate))
        three, shares_three = settled(3, known_labels, NaturalRates(1.0, gate_rate))
        for k in range(2):
            assert_same(three.process(k), two.process(k))
        np.testing.assert_allclose(shares_three[:, :2], shares_two, atol=1e-9)
        np.testing.assert_allclose(shares_three[:, 2], 0.0)
        assert float(three.process(2).kl()) == pytest.approx(0.0, abs=1e-10)


# ------------------------------------------------------------------ optimal assignments


def mixture(seed, gate=None):
    """A model somewhere on its way, and its data."""
    X, y = curve(seed)
    data = batch(X, y, 3)
    model = build([smooth(), smooth(lengthscale=0.4), Noise(std=1.5)], INDUCING, gate=gate)
    return stepped(model, data, random_shares(seed, 20, 3), NaturalRates(0.7, 0.5)), data


@given(seeds, st.floats(0.0, 1.0))
@settings(max_examples=6)
def test_collapsed_is_uncollapsed_at_the_best_responsibilities(seed, mix):
    model, data = mixture(seed)
    bound, log_joint, _ = evaluate(model, data)
    best = np.asarray(responsibilities(log_joint))
    np.testing.assert_allclose(best, normalised(log_joint), atol=1e-12)
    value = bound.value - bound.prior
    np.testing.assert_allclose(value, uncollapsed(log_joint, best, model.kl()), rtol=1e-10)
    other = (1 - mix) * best + mix * random_shares(seed + 1, 20, 3)
    assert uncollapsed(log_joint, other, model.kl()) <= value + 1e-9
    np.testing.assert_allclose(bound.value, bound.data - bound.kl + bound.prior, rtol=1e-12)


@given(seeds, st.floats(0.05, 1.0))
@settings(max_examples=8)
def test_a_step_of_the_processes_never_lowers_the_bound(seed, rate):
    model, data = mixture(seed)
    bound, log_joint, _ = evaluate(model, data)
    for _ in range(3):
        model = stepped(model, data, normalised(log_joint), NaturalRates(rate, 0.0))
        before, (bound, log_joint, _) = bound, evaluate(model, data)
        assert bound.value >= before.value - 1e-8


@given(seeds, st.floats(0.01, 0.1))
@settings(max_examples=8)
def test_a_small_step_of_the_gate_does_not_lower_the_bound(seed, rate):
    model, data = mixture(seed)
    # Functions and assignments of before, so that the gate has something to learn.
    model = eqx.tree_at(lambda m: m.gate, model, build([smooth()] * 3, INDUCING).gate)
    bound, log_joint, _ = evaluate(model, data)
    after = stepped(model, data, normalised(log_joint), NaturalRates(0.0, rate))
    assert evaluate(after, data)[0].value >= bound.value


@pytest.mark.parametrize("gate", [None, "constant"])
def test_the_marginal_bound_is_the_expected_log_of_the_mixture(gate):
    X, y = curve(4)
    weight = np.linspace(0.5, 2.0, 20)
    data = batch(X, y, 2, weight)
    # As many inducing points as above, where they are the data: no other programs then.
    model = build([smooth(), smooth(lengthscale=0.4)], X, gate=gate)
    model = stepped(model, data, random_shares(4, 20, 2), NaturalRates(0.7, 0.5))

    @jax.jit
    def sample(model, keys):
        projection = model.project(data.X)
        return jax.vmap(lambda key: marginal_elbo(model, projection, data, key))(keys)

    bounds = sample(model, jax.random.split(jax.random.key(0), 4000))

    rng, seen = np.random.default_rng(0), evaluate(model, data)[2]
    (functions,), latent = seen.groups, seen.gate.latent
    deviates = rng.standard_normal((2, 4000, 20, 2))
    f = functions.mean[..., 0].T + np.sqrt(functions.variance[..., 0].T) * deviates[0]
    alpha = latent.mean + np.sqrt(np.broadcast_to(latent.variance, (20, 2))) * deviates[1]
    density = np.exp(-0.5 * ((y - f) / NOISE) ** 2) / NOISE / np.sqrt(2 * np.pi)
    mixed = np.sum(np.exp(alpha) / np.exp(alpha).sum(axis=2, keepdims=True) * density, axis=2)
    expected = np.log(mixed) @ weight

    error = np.sqrt(2) * np.std(expected) / np.sqrt(4000)
    assert abs(np.mean(bounds.data) - expected.mean()) < 5 * error
    np.testing.assert_allclose(bounds.value, bounds.data - model.kl() + model.log_prior())


# ------------------------------------------------------------------ batches, padding, weights


@pytest.mark.parametrize("size", [4, 10])
def test_the_mean_over_disjoint_batches_is_the_bound_of_all_data(size):
    model, data = mixture(5)
    order = np.random.default_rng(0).permutation(20).reshape(-1, size)
    parts = [
        evaluate(model, jax.tree.map(lambda leaf, rows=rows: leaf[rows], data), 20 / size)[0]
        for rows in order
    ]
    whole = evaluate(model, data)[0].value
    np.testing.assert_allclose(np.mean([p.value for p in parts]), whole)
    np.testing.assert_allclose(compiled_elbo(model, data).value, whole)


@pytest.mark.parametrize("gate", ["constant", None])
def test_padding_changes_nothing(gate):
    model, data = mixture(6, gate)
    rng = np.random.default_rng(0)
    far_off = 100 * rng.standard_normal((3, 1))
    extra = batch(rng.uniform(0, 3, (3, 1)), far_off, 3, weight=np.zeros(3))
    padded = jax.tree.map(lambda a, b: jnp.concatenate([a, b]), data, extra)
    shares = random_shares(1, 23, 3)
    assert_same(evaluate(model, padded)[0], evaluate(model, data)[0])
    rates = NaturalRates(0.8, 0.4)
    assert_same(stepped(model, padded, shares, rates), stepped(model, data, shares[:20], rates))
    assert_same(gradient(model, padded), gradient(model, data), atol=1e-6)


@pytest.mark.parametrize("gate", ["constant", None])
def test_a_weight_of_two_is_a_row_twice(gate):
    model, data = mixture(7, gate)
    rows = np.concatenate([np.arange(20), [3, 3, 11]])
    repeated = jax.tree.map(lambda leaf: leaf[rows], data)
    weighted = data._replace(weight=data.weight.at[3].set(3.0).at[11].set(2.0))
    shares = random_shares(2, 20, 3)
    assert_same(evaluate(model, weighted)[0], evaluate(model, repeated)[0])
    rates = NaturalRates(0.8, 0.4)
    assert_same(
        stepped(model, weighted, shares, rates), stepped(model, repeated, shares[rows], rates)
    )
    assert_same(gradient(model, weighted), gradient(model, repeated), atol=1e-6)


def test_settle_begins_with_the_given_responsibilities():
    model, data = mixture(8)
    given_shares = jnp.asarray(random_shares(3, 20, 3))
    rates = NaturalRates(1.0, 0.3)
    settled, _ = compiled_settle(model, data, given_shares, 1, rates)
    # The processes move first, on these; then everything, on those that follow from them.
    processes = stepped(model, data, given_shares, NaturalRates(1.0, 0.0))
    assert_same(processes.gate, model.gate)
    shares = normalised(evaluate(processes, data)[1])
    assert_same(settled, stepped(processes, data, shares, rates))


def test_settle_moves_the_gate_from_its_marginals_before():
    model, data = mixture(8)
    given_shares = jnp.asarray(random_shares(3, 20, 3))
    projection = model.project(data.X)
    now = model.gate.marginals(projection.gate)
    other = model.gate.natural_step(projection.gate, now, given_shares, data.weight, 1.0)
    stale = other.marginals(projection.gate)
    moved = settle(model, projection, data, given_shares, stale, NaturalRates(0.0, 0.3))
    # With the processes held, the responsibilities follow from them and the marginals before.
    marginals = model.marginals(projection)._replace(gate=stale)
    shares = jax.nn.softmax(model.log_joint(marginals, data), axis=1)
    expected = model.gate.natural_step(projection.gate, stale, shares, data.weight, 0.3)
    assert_same(moved.gate, expected)
