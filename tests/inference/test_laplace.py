"""The posterior of the hyperparameters: by differences, and in closed form."""

import jax
import numpy as np
import pytest
from reference import batch, build, curve, differences, exact_gp, squared_exponential

from dagp import GP, Noise, fixed, parameter
from dagp.inference.laplace import VAGUE, Layout, curvature_at, laplace, optimum, profiled
from dagp.inference.train import StepRange, refine_q
from dagp.kernels import SquaredExponential

pytestmark = pytest.mark.usefixtures("float64")

STEPS = 60


def trained(priors, X, y, gate=None, inducing=None):
    """A state that has settled, and its batch."""
    inducing = np.linspace(0.1, 2.9, 8)[:, None] if inducing is None else inducing
    data = batch(X, y, len(priors))
    given = np.full((len(X), len(priors)), 1 / len(priors))
    given[:, 0] += np.where(y[:, 0] > 0, 0.3, -0.3) if len(priors) > 1 else 0.0
    model = build(priors, inducing, gate=gate)
    return refine_q(model, data, given, StepRange(0, STEPS))[0], data


def test_gradient_with_every_q_at_its_optimum():
    """By the envelope theorem it is that of the ELBO with every q held fixed."""
    X, y = curve(0, 24)
    y[::4] += 1.5
    state, data = trained([GP(), Noise(0.5, std=1.0)], X, y)
    layout = Layout.of(state.model)
    # Length scale, variance and noise of the function; the others belong to clutter and gate.
    assert np.sum(layout.of_functions) == 3 < len(layout.values)

    def at(values):
        return profiled(layout, state.model, data, state.responsibilities, values, STEPS)

    found = at(layout.values).gradient
    expected = differences(lambda v: at(v).value, layout.values, 1e-3)
    np.testing.assert_allclose(found, expected, rtol=1e-3, atol=2e-3)


def log_posterior(values, X, y):
    """Of log length scale, variance and noise of an exact GP, with the priors of `laplace`."""
    lengthscale, variance, noise = np.exp(values)
    K = squared_exponential(X, X, lengthscale, variance) + 1e-9 * np.eye(len(X))
    evidence = exact_gp(K, y[:, 0], noise**2).evidence
    prior = -0.5 * np.sum(values[:2] ** 2) / VAGUE**2
    return evidence + prior - 0.5 * (values[2] - np.log(0.1)) ** 2 / 2.0**2


def test_one_gp_has_the_curvature_of_its_exact_evidence():
    X, y = curve(1, 20)
    state, data = trained([GP()], X, y, inducing=X)
    layout = Layout.of(state.model)
    begun = profiled(layout, state.model, data, state.responsibilities, layout.values)
    bound = begun.value + 0.5 * layout.precision @ (layout.values - layout.centre) ** 2
    found = laplace(state, bound, data)
    assert found is not None
    best = found.best.values
    slope = differences(lambda v: log_posterior(v, X, y), best, 1e-4)
    curvature = -np.stack([
        differences(lambda v, i=i: differences(lambda w: log_posterior(w, X, y), v, 1e-3)[i], best)
        for i in range(3)
    ])  # fmt: skip
    covariance = found.covariance
    np.testing.assert_allclose(found.directions() @ found.directions().T, covariance, atol=1e-9)
    # How far the optimum is above, by the quadratic approximation.
    assert 0.5 * slope @ covariance @ slope < 0.05
    np.testing.assert_allclose(covariance, np.linalg.inv(curvature), rtol=0.1, atol=0.01)
    stds = found.stds().process(0)
    np.testing.assert_allclose(stds.noise_std.raw**2, covariance[2, 2], rtol=1e-6)


def test_optimum_does_not_run_away():
    """Without a prior the length scale of pure noise grows without limit."""
    rng = np.random.default_rng(0)
    X = np.linspace(0, 3, 15)[:, None]
    state, data = trained([GP(SquaredExponential(lengthscale=40.0))], X, rng.normal(size=(15, 1)))
    layout = Layout.of(state.model)
    begun = profiled(layout, state.model, data, state.responsibilities, layout.values)
    best, _ = optimum(layout, begun, data, curvature_at(layout, begun, data))
    assert best.value > begun.value
    assert np.all(np.abs(best.values - layout.centre)[:2] < 2 * VAGUE)


def test_nothing_is_known_of_what_the_data_do_not_touch():
    """A process that is given no point has the vague prior for its function."""
    X, y = curve(2, 16)
    labels = np.zeros(16, int)
    state, data = trained([GP(), GP()], X, y, gate="constant")
    data = batch(X, y, 2, labels=labels)
    state = refine_q(state.model, data, np.eye(2)[labels], StepRange(0, STEPS))[0]
    layout = Layout.of(state.model)
    point = profiled(layout, state.model, data, state.responsibilities, layout.values)
    bound = point.value + 0.5 * layout.precision @ (layout.values - layout.centre) ** 2
    found = laplace(state, bound, data)
    assert found is not None
    unused = found.stds().process(1).latent.kernel
    np.testing.assert_allclose(unused.lengthscale.raw, VAGUE, rtol=0.01)
    assert found.stds().process(0).latent.kernel.lengthscale.raw < 0.5


def test_tied_parameters_are_one_and_frozen_ones_none():
    def prior():
        return GP(SquaredExponential(parameter(tie="length"), fixed(2.0)))

    X, y = curve(3, 12)
    state, _ = trained([prior(), prior()], X, y, gate="constant")
    layout = Layout.of(state.model)
    assert len(layout.values) == 3  # a length scale and two noise levels
    assert np.all(layout.of_functions)
    moved = layout.placed(state.model, layout.values + np.arange(1.0, 4.0))
    lengths = np.asarray(moved.groups[0].latent.kernel.lengthscale.raw)
    assert np.all(lengths == lengths[0])
    before, after = (jax.tree.leaves(m.groups[0].latent.inducing) for m in (state.model, moved))
    assert all(np.array_equal(a, b) for a, b in zip(before, after, strict=True))


def test_a_state_that_does_not_survive_settling_is_left_alone():
    X, y = curve(4, 12)
    state, data = trained([GP()], X, y)
    assert laplace(state, 1e6, data) is None
    known = GP(fixed(SquaredExponential(0.7, 1.0)), noise_std=fixed(0.2))
    assert laplace(trained([known], X, y)[0], 0.0, data) is None
