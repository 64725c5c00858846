"""One sparse GP against dense algebra."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from reference import (
    curve,
    exact_gp,
    gaussian_kl,
    posterior,
    setting,
    smooth,
    smooth_covariance,
    sparse_gp,
)

from dagp.means import Linear
from dagp.model.gp import GP
from dagp.model.variational import (
    FactorisedGaussian,
    MeanFactorGaussian,
    NaturalGaussian,
    factorise,
)

pytestmark = pytest.mark.usefixtures("float64")

INDUCING = np.linspace(0.1, 2.9, 7)[:, None]
KZZ = smooth_covariance(INDUCING, INDUCING)
seeds = st.integers(0, 10_000)


def sparse(inducing=INDUCING, outputs=1, q=None):
    gp = smooth().latent(setting(inducing), outputs)
    return gp if q is None else eqx.tree_at(lambda gp: gp.q, gp, q)


def random_q(seed, outputs=1) -> NaturalGaussian:
    inducing = len(INDUCING)
    rng = np.random.default_rng(seed)
    root = rng.standard_normal((outputs, inducing, inducing))
    precision = np.eye(inducing) + root @ root.transpose(0, 2, 1)
    return NaturalGaussian(
        jnp.asarray(precision), jnp.asarray(rng.standard_normal((outputs, inducing)))
    )


def unwhitened(gp, output=0):
    """Mean and covariance of q over the inducing values themselves."""
    lower = np.linalg.cholesky(KZZ)
    covariance = np.linalg.inv(gp.q.precision[output])
    return lower @ covariance @ gp.q.shift[output], lower @ covariance @ lower.T


@jax.jit
def conjugate_step(gp, X, y, weight, rate=1.0):
    """A step on Gaussian likelihoods with precisions `weight` (N,) or (N, P)."""
    projection = gp.project(X)
    weight = jnp.broadcast_to(jnp.reshape(weight, (len(X), -1)), y.shape)
    return gp.natural_step(projection, weight * (y - projection.mean), weight, rate)


def test_the_prior_has_the_prior_marginals_and_no_divergence():
    X, _ = curve(0)
    gp = sparse(outputs=2)
    mean, variance = posterior(gp, X)
    np.testing.assert_allclose(mean, np.zeros((20, 2)))
    np.testing.assert_allclose(variance, np.full((20, 2), 1.3))
    np.testing.assert_allclose(gp.q.kl(), 0.0, atol=1e-12)


@given(seeds)
@settings(max_examples=5)
def test_marginals_and_divergence_of_any_q(seed):
    X, _ = curve(seed)
    gp = sparse(outputs=2, q=random_q(seed, outputs=2))
    marginals = posterior(gp, X)
    A = np.linalg.solve(KZZ, smooth_covariance(INDUCING, X))
    kl = 0.0
    for p in range(2):
        mean, covariance = unwhitened(gp, p)
        explained = np.sum(A * ((covariance - KZZ) @ A), axis=0)
        np.testing.assert_allclose(marginals.mean[:, p], A.T @ mean, atol=1e-7)
        np.testing.assert_allclose(marginals.variance[:, p], 1.3 + explained, atol=1e-7)
        kl += gaussian_kl(mean, covariance, KZZ)
    np.testing.assert_allclose(gp.q.kl(), kl, rtol=1e-6)


def test_a_model_whose_q_are_worked_out_says_the_same():
    X, _ = curve(0)
    stack = [sparse(outputs=2, q=random_q(seed, outputs=2)) for seed in range(3)]
    stacked = jax.tree.map(lambda *leaves: np.stack(leaves), *stack)
    for k, gp in enumerate(stack):
        known = jax.tree.map(lambda leaf, k=k: leaf[k], factorise(stacked))
        assert isinstance(known.q, FactorisedGaussian) and known.q.n_outputs == gp.q.n_outputs
        for mine, theirs in zip(posterior(known, X), posterior(gp, X), strict=True):
            np.testing.assert_allclose(mine, theirs, rtol=1e-10)
        np.testing.assert_allclose(known.kl(), gp.kl(), rtol=1e-10)


def test_inducing_points_on_the_data_give_the_exact_posterior():
    X, y = curve(1)
    gp = conjugate_step(sparse(X), X, y, np.full(20, 1 / 0.2**2))
    exact = exact_gp(smooth_covariance(X, X), y[:, 0], 0.2**2)
    mean, variance = posterior(gp, X)
    np.testing.assert_allclose(mean[:, 0], exact.mean, atol=1e-6)
    np.testing.assert_allclose(variance[:, 0], exact.variance, atol=1e-6)
    new = np.linspace(-1, 4, 9)[:, None]
    exact = exact_gp(
        smooth_covariance(X, X), y[:, 0], 0.2**2, smooth_covariance(new, X), np.full(9, 1.3)
    )
    mean, variance = posterior(gp, new)
    np.testing.assert_allclose(mean[:, 0], exact.mean, atol=1e-4)
    np.testing.assert_allclose(variance[:, 0], exact.variance, atol=1e-4)


@given(seeds)
@settings(max_examples=5)
def test_a_full_step_is_the_weighted_sparse_solution_wherever_it_starts(seed):
    X, y = curve(seed)
    share = np.random.default_rng(seed).uniform(0.01, 1, 20)
    gp = conjugate_step(sparse(q=random_q(seed)), X, y, share / 0.2**2)
    Kzf = smooth_covariance(INDUCING, X)
    dense = sparse_gp(KZZ, Kzf, np.full(20, 1.3), y[:, 0], 0.2**2 / share)
    mean, variance = posterior(gp, X)
    np.testing.assert_allclose(mean[:, 0], dense.mean, atol=1e-6)
    np.testing.assert_allclose(variance[:, 0], dense.variance, atol=1e-6)


@given(seeds, st.floats(0, 1))
@settings(max_examples=5)
def test_a_partial_step_averages_the_natural_parameters_of_q(seed, rate):
    X, y = curve(seed)
    before = sparse(q=random_q(seed))
    after = conjugate_step(before, X, y, np.full(20, 4.0), rate)
    target = conjugate_step(before, X, y, np.full(20, 4.0))
    (m0, S0), (m1, S1), (m, S) = map(unwhitened, (before, target, after))
    inv = np.linalg.inv
    averaged = (1 - rate) * inv(S0) + rate * inv(S1)
    shift = (1 - rate) * inv(S0) @ m0 + rate * inv(S1) @ m1
    np.testing.assert_allclose(S, inv(averaged), atol=1e-6)
    np.testing.assert_allclose(m, inv(averaged) @ shift, atol=1e-6)


def test_outputs_are_separate_gps_with_a_common_kernel():
    X, y = curve(3, outputs=3)
    weight = np.random.default_rng(0).uniform(0.5, 2, (20, 3))
    together = conjugate_step(sparse(outputs=3), X, y, weight)
    mean, variance = posterior(together, X)
    kl = 0.0
    for p in range(3):
        alone = conjugate_step(sparse(), X, y[:, [p]], weight[:, p])
        single = posterior(alone, X)
        np.testing.assert_allclose(mean[:, [p]], single.mean, atol=1e-10)
        np.testing.assert_allclose(variance[:, [p]], single.variance, atol=1e-10)
        kl += alone.q.kl()
    np.testing.assert_allclose(together.q.kl(), kl)


def test_variances_never_fall_below_zero_and_jitter_is_reported():
    X = np.repeat(np.linspace(0, 1, 10), 2)[:, None]
    gp = sparse(X)
    assert np.all(gp.project(X).residual >= 0)
    assert float(gp.jitter()) >= 1e-10
    solved = conjugate_step(gp, X, np.sin(X), np.full(20, 1e6))
    marginals = posterior(solved, X)
    assert np.all(marginals.variance >= 0) and np.all(np.isfinite(marginals.mean))


def test_the_prior_mean_is_added_and_does_not_change_q():
    X, y = curve(4)
    slope = 2 * X + 1
    prior = GP(kernel=smooth().kernel, mean=Linear(slope=2.0, intercept=1.0))
    gp = conjugate_step(prior.latent(setting(INDUCING), 1), X, y + slope, np.full(20, 25.0))
    plain = conjugate_step(sparse(), X, y, np.full(20, 25.0))
    np.testing.assert_allclose(gp.q.shift, plain.q.shift, atol=1e-8)
    with_mean, without = posterior(gp, X), posterior(plain, X)
    np.testing.assert_allclose(with_mean.mean, without.mean + slope, atol=1e-8)


def test_moments_are_the_same_q_as_natural_parameters():
    X, _ = curve(0)
    in_user_units = random_q(3, outputs=2)
    covariance = np.linalg.inv(in_user_units.precision)
    mean = np.einsum("pij,pj->pi", covariance, in_user_units.shift)
    # What stands above the diagonal does not count.
    factor = np.linalg.cholesky(covariance) + np.triu(np.full_like(covariance, 9.0), 1)
    moments = MeanFactorGaussian.of(mean, factor)
    ours, theirs = (posterior(sparse(outputs=2, q=q), X) for q in (moments, in_user_units))
    np.testing.assert_allclose(ours, theirs, rtol=1e-9, atol=1e-9)
    np.testing.assert_allclose(moments.kl(), in_user_units.kl(), rtol=1e-9)
    small = MeanFactorGaussian.isotropic(2, 7, 0.1)
    tight = NaturalGaussian(np.broadcast_to(100 * np.eye(7), (2, 7, 7)), np.zeros((2, 7)))
    np.testing.assert_allclose(small.kl(), tight.kl(), rtol=1e-9)
    assert small.kl() > 0


def test_joint_covariance_beside_dense_algebra():
    X, _ = curve(1)
    gp = sparse(q=random_q(5))
    _, spread = unwhitened(gp)
    gain = np.linalg.solve(KZZ, smooth_covariance(INDUCING, X)).T
    expected = smooth_covariance(X, X) - gain @ KZZ @ gain.T + gain @ spread @ gain.T
    np.testing.assert_allclose(gp.covariance(X)[0], expected, atol=1e-7)
