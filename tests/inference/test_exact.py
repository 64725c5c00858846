"""Exact inference: the same bound and posterior as with every input as an inducing input."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.gaussian_process.kernels import RBF, ConstantKernel

from dagp import GP, DeepGP, Noise, kernels
from dagp.core.linalg import smallest_jitter
from dagp.core.precision import numerics
from dagp.inference import exact
from dagp.inference.elbo import elbo_and_responsibilities
from dagp.inference.exact import (
    Exact,
    _update,
    applies,
    fit_exact,
    function_elbo,
    function_marginals,
    log_evidence,
    maximise,
)
from dagp.inference.problem import Problem, Start, build, deepened
from dagp.inference.standardize import Sample, Units, to_batch
from dagp.inference.train import begin
from dagp.model.parameters import trainable
from dagp.model.process import Deepening

N = 30
RNG = np.random.default_rng(0)
X = RNG.uniform(-1, 1, (N, 2))
Y = np.sin(3 * X[:, :1]) + X[:, 1:] + 0.1 * RNG.standard_normal((N, 1))
WEIGHT = RNG.uniform(0.5, 1.5, N)
GIVEN = RNG.dirichlet([3.0, 1.0], N)


def problem(priors, gate="constant"):
    sample = Sample(X, Y, WEIGHT, np.full(N, -1))
    return Problem(sample, Units.of(sample, standardize=False), priors, gate, X)


WITH_CLUTTER = (GP(), Noise())


def model_and_batch(priors=WITH_CLUTTER):
    own = problem(priors)
    start = Start("given", GIVEN, 0.8, 0.2)
    return build(own, start), to_batch(own.sample, len(priors)), own, start


def padded(shares, batch):
    return np.vstack([shares, np.full((len(batch.X) - N, shares.shape[1]), 0.5)])


@pytest.fixture(autouse=True)
def precision():
    with numerics("float64"):
        yield


def test_log_evidence_and_its_gradient_are_those_of_the_formula():
    A = RNG.standard_normal((6, 6))
    K, root, y = A @ A.T, RNG.uniform(0.1, 2.0, 6), RNG.standard_normal(6)

    def plain(K, root, y):
        B, t = jnp.eye(6) + root[:, None] * root * K, root * y
        return -0.5 * t @ jnp.linalg.solve(B, t) - 0.5 * jnp.linalg.slogdet(B)[1]

    assert np.allclose(log_evidence(K, root, y), plain(K, root, y))
    own, other = (jax.grad(f, argnums=(0, 1, 2))(K, root, y) for f in (log_evidence, plain))
    # A symmetric argument: the formula's gradient may be distributed otherwise over K and Kᵀ.
    assert np.allclose(own[0] + own[0].T, other[0] + other[0].T)
    assert np.allclose(own[1], other[1])
    assert np.allclose(own[2], other[2])


def test_the_gradient_of_log_evidence_is_finite_where_a_row_has_no_weight():
    slopes = jax.grad(log_evidence, argnums=(0, 1, 2))(
        jnp.eye(2), jnp.array([0.0, 1.0]), jnp.ones(2)
    )
    assert all(np.all(np.isfinite(slope)) and np.allclose(slope[0], 0) for slope in slopes)


def test_a_single_function_is_the_exact_gp():
    model, batch, *_ = model_and_batch((GP(noise_std=0.2),))
    process = model.process(0)
    kernel = process.latent.kernel
    counts = np.append(np.ones(N), np.zeros(len(batch.X) - N))
    variance, lengthscale = float(kernel.variance.value), np.asarray(kernel.lengthscale.value)
    prior = ConstantKernel(variance) * RBF(lengthscale)
    noise = float(process.noise_variance()[0])
    exact = GaussianProcessRegressor(prior, alpha=noise, optimizer=None).fit(X, Y[:, 0])
    assert np.isclose(
        function_elbo(process, batch, counts), exact.log_marginal_likelihood_value_, atol=1e-8
    )
    mean, std = exact.predict(X, return_std=True)
    found = function_marginals(process, batch, counts)
    assert np.allclose(found.mean[:N, 0], mean, atol=1e-8)
    assert np.allclose(np.sqrt(found.variance[:N, 0]), std, atol=1e-7)


def test_the_bound_is_that_of_all_inputs_as_inducing_inputs():
    model, batch, *_ = model_and_batch()
    given = padded(GIVEN, batch)
    begun, responsibilities = model, given
    for _ in range(60):
        begun, responsibilities, bound, _ = _update(begun, batch, responsibilities)
    state, _ = begin(model, batch, responsibilities, 60)
    sparse, found, _ = elbo_and_responsibilities(state.model, state.model.project(batch.X), batch)
    assert np.isclose(bound, sparse.value, atol=1e-4)
    assert np.allclose(found[:N], responsibilities[:N], atol=1e-4)


def test_rounding_does_not_decide_where_the_noise_is_smaller():
    """A smooth function with a huge variance: jitter is as much as with inducing inputs."""
    prior = GP(kernels.Matern52(lengthscale=300.0, variance=1e6), noise_std=2e-4)
    model, batch, *_ = model_and_batch((prior, Noise()))
    given = padded(np.tile([0.99, 0.01], (N, 1)), batch)
    counts = np.asarray(batch.weight)[:, None] * given
    bound = float(function_elbo(model.process(0), batch, counts[:, 0]))
    process, there = model.process(0), counts[:N, 0]
    inputs = np.asarray(batch.X)[:N]
    noise = float(process.noise_variance()[0])
    # A row that counts partly is a row with more noise, up to a constant.
    K = np.asarray(process.latent.kernel(inputs, inputs)) + np.diag(noise / there)
    lower = np.linalg.cholesky(K + smallest_jitter(K.dtype) * 1e6 * np.eye(N))
    white = np.linalg.solve(lower, np.asarray(batch.y)[:N, 0])
    expected = -0.5 * white @ white - np.sum(np.log(np.diag(lower)))
    expected -= 0.5 * np.sum(np.log(there / noise) + there * np.log(2 * np.pi * noise))
    assert np.isclose(bound, expected, rtol=1e-3)


def test_rounds_raise_the_bound_until_they_gain_little():
    model, batch, *_ = model_and_batch()
    seen = []
    begun = Exact(model, padded(GIVEN, batch))
    found = fit_exact(begun, batch, 1e-3, report=seen.append)
    assert np.all(np.diff(seen) > 0)
    assert found.bound == seen[-1]
    again = fit_exact(found, batch, 1e-3)
    assert again.bound - found.bound < 1e-2 * N


def test_maximise_survives_values_that_are_not_finite(monkeypatch):
    monkeypatch.setattr(exact, "EVALUATIONS", 60)

    def value(tree):
        x = tree["x"]
        inside = jnp.all(x < 1)
        return jnp.where(inside, -jnp.sum((x - 0.9) ** 2), jnp.nan), {"x": -2 * (x - 0.9)}

    found, _ = maximise(value, {"x": jnp.array([-3.0, 0.0])}, 0.0)
    assert np.allclose(found["x"], 0.9, atol=1e-2)


def test_maximise_survives_values_that_are_not_finite_where_all_are_low():
    # What is not finite is worse than anything before, however low that is.
    def value(x):
        return jnp.where(x[0] < 1, -1e12 * (1 - 0.5 * x[0]), jnp.nan), jnp.array([5e11])

    found, _ = maximise(value, jnp.array([0.0]), 0.0)
    assert 0.9 < found[0] < 1


def test_a_hyperparameter_cannot_run_away(monkeypatch):
    # The ELBO rises with the length scale, always by as much: L-BFGS doubles its steps.
    def slope(model, batch, given):
        moving = eqx.filter(model, trainable(model))
        up = eqx.tree_at(
            lambda m: m.groups[0].latent.kernel.lengthscale.raw,
            jax.tree.map(jnp.zeros_like, moving),
            replace_fn=jnp.ones_like,
        )
        raw = model.groups[0].latent.kernel.lengthscale.raw
        return jnp.sum(raw), up

    monkeypatch.setattr(exact, "_slope", slope)
    model, batch, *_ = model_and_batch()
    before = np.asarray(model.groups[0].latent.kernel.lengthscale.raw)
    begun = Exact(model, padded(GIVEN, batch))
    found = fit_exact(begun, batch, 0.0, rounds=1)
    after = np.asarray(found.model.groups[0].latent.kernel.lengthscale.raw)
    assert np.all(after > before + 1)
    assert np.all(after <= before + exact.EVALUATIONS * exact.REACH)


def _bowl(x):
    return -jnp.sum(jnp.array([1.0, 9.0]) * (x - 5.0) ** 2), jnp.array([-2.0, -18.0]) * (x - 5.0)


def test_no_number_moves_further_than_its_reach_in_a_step(monkeypatch):
    monkeypatch.setattr(exact, "EVALUATIONS", 1)
    found, curvature = maximise(_bowl, jnp.array([0.0, 4.999]), 0.0)
    assert found[0] == exact.REACH
    assert len(curvature) == 1


def test_curvature_is_kept():
    start = jnp.array([4.5, 5.5])
    _, curvature = maximise(_bowl, start, 0.0)
    error = [np.abs(maximise(_bowl, start, 0.0, known)[0] - 5.0).max() for known in ((), curvature)]
    assert error[1] <= error[0]


def test_only_single_layers_with_constant_noise_are_exact():
    plain, _, own, start = model_and_batch()
    assert applies(plain)
    deep = problem((DeepGP(), Noise()))
    assert not applies(deepened(deep, start, build(deep, start), Deepening()))
    assert own.plain
    assert not deep.plain
    assert not problem((GP(noise_gp=GP()),)).plain
