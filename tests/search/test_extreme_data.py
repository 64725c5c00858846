"""Starts, usage and streams beside huge values and weights."""

from types import SimpleNamespace
from typing import Any

import jax
import numpy as np
import pytest
from reference import setting

from dagp import GP, DeepGP, Noise, Uniform
from dagp.core.errors import FitError
from dagp.core.precision import numerics
from dagp.files.integrity import _check_model
from dagp.inference import minibatch
from dagp.inference.laplace import Layout
from dagp.inference.problem import Problem, Start, build
from dagp.inference.standardize import Sample, Units
from dagp.inference.stream import _check_distributions
from dagp.model.association import DataAssociation
from dagp.model.gates import ConstantGate
from dagp.model.sparse_gp import Marginals
from dagp.predict import widening
from dagp.predict.posterior import Posterior
from dagp.search.regressions import Basis, Rows, annealed_em
from dagp.search.solution import in_use
from dagp.search.tracking import CHECKED, follow


def test_responsibilities_of_one_count_in_single_precision():
    certain = np.eye(2, dtype=np.float32)[[0, 0, 1]]
    np.testing.assert_array_equal(in_use(certain, np.ones(3)), [True, True])


def test_tracking_goes_on_beside_a_huge_value():
    rng = np.random.default_rng(0)
    x = np.linspace(0, 1, 3 * CHECKED)
    y = np.sin(6 * x)[:, None]
    y[2] = 1e12
    there, back = follow(x, y, 2, False, rng)
    assert len(there.member) == len(back.member) == len(x)


def test_a_regression_with_huge_weights_has_a_solution():
    # A constant and a linear term that are proportional: without a ridge there is no solution.
    X, weight = np.full((8, 1), 2.0**27), np.full(8, 2.0**50)
    rows = Rows(X, np.zeros((len(X), 1)), weight, np.zeros((len(X), 1)), 0.0)
    basis = Basis(np.zeros((0, 1)), np.ones(1), np.zeros((0, 0)))
    found = annealed_em(rows, basis, np.full(3, 0.1), coefficients=np.zeros((1, 2, 1)))
    np.testing.assert_allclose(found.coefficients, 0.0)


def test_a_q_that_is_no_distribution_is_refused_in_words():
    X, y = np.linspace(0, 1, 6)[:, None], np.zeros((6, 1))
    sample = Sample(X, y, np.ones(6), np.full(6, -1))
    problem = Problem(sample, Units.of(sample, False), (GP(), GP()), None, X[:3])
    model = build(problem, Start("random", np.full((6, 2), 0.5), 1.0, 0.1))
    _check_distributions(model, "float64")
    model.groups[0].latent.q.precision[0] = -np.eye(3)
    with pytest.raises(FitError, match="beyond what the model can take in: precision of q") as told:
        _check_distributions(model, "float64")
    assert "dtype" not in str(told.value)
    with pytest.raises(FitError, match='or use dtype="float64"'):
        _check_distributions(model, "float32")


@pytest.mark.usefixtures("float64")
def test_normal_noise_of_equal_outputs_has_a_density():
    X = np.linspace(0, 1, 6)[:, None]
    noise = Noise(shape="normal", std=1e-30).build(setting(X[:3]))
    marginals = noise.marginals(noise.project(X))
    assert np.all(np.float32(marginals.variance) > 0)
    assert np.all(np.isfinite(noise.expected_log_density(marginals, np.zeros((6, 1)))))


@pytest.mark.parametrize("width", [0.0, 1.0])
def test_clutter_over_outputs_that_single_precision_cannot_tell_apart_has_a_density(width):
    X, y = np.linspace(0, 1, 6)[:, None], np.full((6, 1), 1e12)
    ends = {"y_low": np.array([1e12 - width]), "y_high": np.array([1e12])}
    with numerics("float32"):
        clutter = Uniform().build(setting(X[:3], **ends))
        marginals = clutter.marginals(clutter.project(np.float32(X)))
        density = np.asarray(clutter.expected_log_density(marginals, np.float32(y)))
    assert np.all(np.isfinite(density)) and np.all(density > -50), "wide enough, and it has y"


@pytest.mark.usefixtures("float64")
def test_functions_stay_where_their_loss_of_precision_is_not_finite(monkeypatch):
    X, y = np.linspace(0, 1, 6)[:, None], np.zeros((6, 1))
    sample = Sample(X, y, np.ones(6), np.full(6, -1))
    problem = Problem(sample, Units.of(sample, False), (GP(), GP()), None, X[:3])
    model = build(problem, Start("random", np.full((6, 2), 0.5), 1.0, 0.1))
    lost = SimpleNamespace(lost=(np.full((2, 1, 3, 3), np.nan),))
    monkeypatch.setattr(widening, "evaluate", lambda *_: lost)
    wider = widening.widened(Posterior(model, problem.units, "float64"), sample).model
    kept = wider.groups[0].latent.q.precision
    np.testing.assert_array_equal(kept, model.groups[0].latent.q.precision)


@pytest.mark.usefixtures("float64")
def test_several_deep_processes_of_one_make_are_sound():
    context, prior = setting(np.linspace(0, 1, 3)[:, None]), DeepGP(2)
    process = prior.deepened(prior.build(context), context)
    model = DataAssociation.assemble([process] * 2, ConstantGate(np.zeros(2)))
    _check_model(model, 2, "float64")
    # Units of two processes, one for all inducing points of each.
    group: Any = model.groups[0]
    group.latent.inner[0].q.std.unit[:] = [1.0, 2.0]
    centre = Layout.of(model).centre
    for unit in (1.0, 2.0):
        assert np.sum(centre == unit) == group.latent.inner[0].q.std.raw[0].size
    model.groups[0].latent.inner[0].q.std.raw[1] = 1e3
    with pytest.raises(ValueError, match="parameter must be finite"):
        _check_model(model, 2, "float64")


def test_epochs_that_leave_the_numbers_stand_at_the_bound_to_which_they_return(monkeypatch):
    estimates = np.r_[np.full(20, -3.0), np.full(5, np.nan)]
    monkeypatch.setattr(minibatch, "minibatch_steps", lambda state, *_: (state, estimates))
    monkeypatch.setattr(minibatch, "gather_batches", lambda *_: None)
    state = SimpleNamespace(model=SimpleNamespace(n_processes=1))
    run = minibatch.EpochState(state, -1.0, 0, 0, np.zeros(0), None)
    after = minibatch._epoch(run, None, iter(np.zeros((30, 1), int)), 25.0)
    np.testing.assert_array_equal(after.trace, np.r_[np.full(20, -3.0), np.full(5, -1.0)])


def test_a_gate_far_away_has_weights_however_it_is_compiled():
    # Means so large that rounding alone could leave a draw above the largest of them.
    rng = np.random.default_rng(0)
    mean = np.float32(1e9 * rng.normal(size=(512, 3)))
    variance = np.float32(1e15 * rng.uniform(1, 9, size=(512, 3)))
    X, y = np.linspace(0, 1, 6)[:, None], np.zeros((6, 1))
    sample = Sample(X, y, np.ones(6), np.full(6, -1))
    problem = Problem(sample, Units.of(sample, False), (GP(),) * 3, None, X[:3])
    gate: Any = build(problem, Start("random", np.full((6, 3), 1 / 3), 1.0, 0.1)).gate
    options = {"xla_backend_optimization_level": 0}
    weights = jax.jit(lambda *q: gate.expectations(Marginals(*q)).weights, compiler_options=options)
    np.testing.assert_allclose(np.sum(weights(mean, variance), axis=1), 1.0, atol=1e-5)
