"""Gates: expectations under a softmax, their derivatives, and natural-gradient steps."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from reference import curve, differences, expectation, posterior, random_shares, setting, smooth
from scipy.special import log_softmax, softmax

from dagp.inference.problem import build_gate
from dagp.model.gates import ConstantGate, GPGate, gate_quadrature
from dagp.model.gp import GP
from dagp.model.sparse_gp import Projection
from dagp.model.variational import NaturalGaussian

pytestmark = pytest.mark.usefixtures("float64")

INDUCING = np.linspace(0, 3, 6)[:, None]
N = 5
seeds = st.integers(0, 10_000)


def at(mean, variance):
    """A gate and a projection under which the K functions have these marginals (N, K)."""
    n, k = mean.shape
    gate = build_gate(smooth(), setting(np.linspace(0, 1, n)[:, None]), k)
    precision = jax.vmap(jnp.diag)(1 / variance.T)
    gate = eqx.tree_at(lambda g: g.latent.q, gate, NaturalGaussian(precision, (mean / variance).T))
    return gate, Projection(jnp.eye(n), jnp.zeros(n), jnp.zeros((n, 1)))


@jax.jit
def expectations(mean, variance):
    gate, projection = at(mean, variance)
    return gate.marginals(projection)


def functions(seed, processes, largest=2.0):
    rng = np.random.default_rng(seed)
    mean = 2 * rng.standard_normal((N, processes))
    return mean, rng.uniform(0.05, largest, (N, processes))


def test_the_helper_sets_the_marginals():
    mean, variance = functions(0, 3)
    latent = expectations(mean, variance).latent
    np.testing.assert_allclose(latent.mean, mean)
    np.testing.assert_allclose(latent.variance, variance)


def with_rule(gate, rule):
    return eqx.tree_at(lambda g: g.quadrature, gate, rule)


@pytest.mark.parametrize("processes", [3, 4, 6, 9])
def test_points_have_the_moments_of_a_standard_normal(processes):
    points, masses = gate_quadrature(processes)
    np.testing.assert_allclose(masses.sum(), 1.0)
    np.testing.assert_allclose(masses @ points, 0.0, atol=1e-12)
    np.testing.assert_allclose((points.T * masses) @ points, np.eye(processes), atol=1e-10)
    np.testing.assert_array_equal(points, gate_quadrature(processes).points)


def test_the_rule_for_two_processes_has_the_moments_of_a_standard_normal_difference():
    points, masses = gate_quadrature(2)
    np.testing.assert_allclose(points.sum(axis=1), 0.0, atol=1e-12)
    difference = points[:, 0] - points[:, 1]
    moments = [masses @ difference**power for power in range(7)]
    np.testing.assert_allclose(moments, [1, 0, 1, 0, 3, 0, 15], atol=1e-10)


def moments(mean, variance):
    """Expected log weights, weights and curvature at one point, by a tensor grid."""

    def stacked(a):
        weights = softmax(a, -1)
        return np.stack([log_softmax(a, -1), weights, weights * (1 - weights)], -2)

    return expectation(stacked, mean, variance, nodes=60 if len(mean) == 2 else 30)


# What the fixed points achieve, in absolute terms, for functions with variances up to `largest`:
# with two processes they are Gauss-Hermite nodes, with more they are 32 quasi-random ones.
@pytest.mark.parametrize(
    ("processes", "largest", "tolerance"),
    [(2, 0.25, 1e-6), (2, 4.0, 0.01), (3, 0.25, 0.01), (3, 1.0, 0.03), (3, 4.0, 0.1)],
)
def test_expectations_by_quadrature(processes, largest, tolerance):
    for seed in range(4):
        mean, variance = functions(seed, processes, largest)
        ours = expectations(mean, variance)
        for n in range(N):
            mine = np.stack([ours.log_weights[n], ours.weights[n], ours.curvature[n]])
            np.testing.assert_allclose(mine, moments(mean[n], variance[n]), atol=tolerance)


@pytest.mark.parametrize("processes", [2, 3, 4, 6])
def test_a_priori_every_process_is_equally_likely(processes):
    ours = expectations(np.zeros((N, processes)), np.ones((N, processes)))
    np.testing.assert_allclose(ours.weights, 1 / processes, atol=0.02)
    np.testing.assert_allclose(ours.log_weights, ours.log_weights[0, 0])


def test_many_points_converge_to_the_quadrature():
    mean, variance = functions(3, 3)
    gate, projection = at(mean, variance)
    ours = with_rule(gate, gate_quadrature(3, 4096)).marginals(projection)
    expected = [moments(mean[n], variance[n])[1] for n in range(N)]
    np.testing.assert_allclose(ours.weights, expected, atol=1e-3)


@pytest.mark.parametrize(("processes", "tolerance"), [(2, 0.01), (3, 0.05)])
@given(seed=seeds)
@settings(max_examples=3)
def test_gradients_of_the_expected_log_weights(processes, tolerance, seed):
    mean, variance = functions(seed, processes)
    shares = random_shares(seed, N, processes)

    def term(mean, variance):
        return jnp.sum(shares * expectations(mean, variance).log_weights)

    by_mean, by_variance = jax.grad(term, argnums=(0, 1))(jnp.asarray(mean), jnp.asarray(variance))
    numeric = differences(lambda m: float(term(m, variance)), mean)
    np.testing.assert_allclose(by_mean, numeric, atol=1e-7)
    numeric = differences(lambda v: float(term(mean, v)), variance)
    np.testing.assert_allclose(by_variance, numeric, atol=1e-7)
    # Bonnet's theorem holds for the fixed points exactly, Price's as well as they integrate.
    ours = expectations(mean, variance)
    np.testing.assert_allclose(by_mean, shares - ours.weights, atol=1e-10)
    np.testing.assert_allclose(by_variance, -ours.curvature / 2, atol=tolerance)


def test_prices_theorem_in_the_limit_of_many_points():
    mean, variance = functions(5, 3)
    gate, projection = at(mean, variance)
    many = gate_quadrature(3, 8192)

    def term(variance):
        gate, projection = at(jnp.asarray(mean), variance)
        return jnp.sum(with_rule(gate, many).marginals(projection).log_weights)

    curvature = with_rule(gate, many).marginals(projection).curvature
    # Three log weights per point, each with the same normaliser.
    gradient = jax.jit(jax.grad(term))(jnp.asarray(variance)) / 3
    np.testing.assert_allclose(gradient, -curvature / 2, atol=2e-3)


@given(seeds)
@settings(max_examples=5)
def test_weights_are_weights(seed):
    mean, variance = functions(seed, 4, largest=9.0)
    ours = expectations(10 * mean, variance)
    np.testing.assert_allclose(ours.weights.sum(axis=1), 1.0)
    assert np.all(ours.weights >= 0) and np.all(ours.curvature >= 0)
    # Jensen: the expected logarithm is below the logarithm of the expectation.
    assert np.all(ours.log_weights <= np.log(ours.weights) + 1e-9)


def test_huge_functions_do_not_overflow():
    mean = np.array([[1e4, -1e4], [0.0, 900.0]])
    ours = expectations(mean, np.full((2, 2), 1e-3))
    np.testing.assert_allclose(ours.log_weights, [[0.0, -2e4], [-900.0, 0.0]], atol=0.1)


@jax.jit
def step(gate, X, shares, rate, weight=None):
    projection = gate.project(X)
    weight = jnp.ones(len(X)) if weight is None else weight
    return gate.natural_step(projection, gate.marginals(projection), shares, weight, rate)


@given(seeds)
@settings(max_examples=3)
def test_the_precision_stays_above_the_identity(seed):
    X, _ = curve(seed)
    gate = build_gate(smooth(), setting(INDUCING), 3)
    for rate in (1.0, 0.3, 0.9):
        gate = step(gate, X, jnp.asarray(random_shares(seed, 20, 3)), rate)
        assert np.linalg.eigvalsh(gate.latent.q.precision).min() >= 1 - 1e-9


def test_a_step_from_the_prior_in_dense_algebra():
    X, _ = curve(0)
    shares, weight = random_shares(0, 20, 3), np.random.default_rng(0).uniform(0, 2, 20)
    gate = build_gate(smooth(), setting(INDUCING), 3)
    moved = step(gate, X, jnp.asarray(shares), 0.4, jnp.asarray(weight))
    before = posterior(gate, X)
    kernel = gate.latent.kernel
    basis = np.linalg.solve(np.linalg.cholesky(kernel(INDUCING, INDUCING)), kernel(INDUCING, X))
    for k in range(3):
        bend = weight * before.curvature[:, k]
        precision = np.eye(6) + 0.4 * (basis * bend) @ basis.T
        np.testing.assert_allclose(moved.latent.q.precision[k], precision, atol=1e-6)
        shift = 0.4 * basis @ (weight * (shares[:, k] - before.weights[:, k]))
        np.testing.assert_allclose(moved.latent.q.shift[k], shift, atol=1e-6)


def test_the_gate_learns_where_each_process_is():
    X, _ = curve(0)
    shares = jnp.asarray(np.eye(2)[(X[:, 0] > 1.5).astype(int)])
    gate = build_gate(None, setting(INDUCING), 2)
    for _ in range(40):
        gate = step(gate, X, shares, 0.3)
    weights = posterior(gate, X).weights
    assert np.all((weights[:, 1] > 0.5) == (X[:, 0] > 1.5))
    assert weights[0, 0] > 0.7 and weights[-1, 1] > 0.7


@given(seeds)
@settings(max_examples=3)
def test_a_constant_gate_steps_to_the_mean_responsibilities_with_one_pseudo_count(seed):
    X, _ = curve(seed)
    shares = random_shares(seed, 20, 3)
    weight = np.random.default_rng(seed).uniform(0, 2, 20)
    gate = step(build_gate("constant", setting(INDUCING), 3), X, shares, 1.0, jnp.asarray(weight))
    marginals = posterior(gate, X)
    expected = (weight @ shares + 1 / 3) / (weight.sum() + 1)
    np.testing.assert_allclose(marginals.weights, np.tile(expected, (20, 1)))
    np.testing.assert_allclose(marginals.log_weights, np.log(np.tile(expected, (20, 1))))
    assert float(gate.kl()) == 0.0
    # Half a step is the geometric mean, up to its sum.
    half = step(build_gate("constant", setting(INDUCING), 3), X, shares, 0.5, jnp.asarray(weight))
    weights = posterior(half, X).weights[0]
    np.testing.assert_allclose(weights, np.sqrt(expected) / np.sqrt(expected).sum())


def test_build_gate():
    here = setting(INDUCING, y_unit=np.array([50.0]), y_centre=np.array([9.0]))
    assert isinstance(build_gate(None, here, 1), ConstantGate)
    assert isinstance(build_gate("constant", here, 2), ConstantGate)
    gate = build_gate(GP(kernel=smooth().kernel), here, 4)
    assert isinstance(gate, GPGate)
    assert gate.latent.q.shift.shape == (4, 6) and gate.quadrature.points.shape[1] == 4
    # Log odds have no unit, whatever the unit of y.
    np.testing.assert_allclose(gate.latent.kernel.variance.value, 1.3)
    for wrong in ("gp", 3):
        with pytest.raises((ValueError, TypeError)):
            build_gate(wrong, here, 2)
