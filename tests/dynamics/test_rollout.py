"""Roll-outs against closed forms: moments, frequencies, covariances and gradients."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from dagp import DAGP, GP, Noise, fixed, kernels, parameter
from dagp.core.precision import numerics
from dagp.dynamics import Policy, TransitionModel, network_policy, paths
from dagp.dynamics.functions import (
    cosine,
    draw_features,
    draw_functions,
    prepared,
    with_functions,
    without_processes,
)
from dagp.dynamics.rollout import discounted, simulate, surrogate
from dagp.dynamics.separate import enough_inducing
from dagp.model.association import DataAssociation
from dagp.model.gates import ConstantGate
from dagp.model.gp import GPProcess
from dagp.model.means import Centred, Projection
from dagp.model.sparse_gp import SparseGP
from dagp.model.variational import NaturalGaussian

outside = pytest.mark.filterwarnings("ignore:.*leave the training data")
QUICK = {"n_init": 1, "tol": 1e-1, "inducing": 8, "random_state": 0}


@pytest.fixture(scope="module")
def line():
    """s' = 0.3 + 0.8 s, with noise and with a posterior that is linear too."""
    rng = np.random.default_rng(0)
    s = rng.uniform(-1, 1, (30, 1))
    prior = GP(kernels.Linear() + kernels.Constant(), noise_std=fixed(0.2))
    model = TransitionModel(DAGP(1, prior, **QUICK), differences=False)
    return model.fit(s, None, 0.3 + 0.8 * s + 0.2 * rng.standard_normal(s.shape))


@pytest.fixture(scope="module")
def machine():
    """Drifts with its action; above, it is likely to restart at zero."""
    rng = np.random.default_rng(1)
    s, a = rng.uniform(-1, 1, (60, 1)), rng.uniform(-1, 1, (60, 1))
    after = 0.8 * s + 0.3 * a + 0.05 * rng.standard_normal(s.shape)
    broken = rng.uniform(size=s.shape) < 1 / (1 + np.exp(-4 * (s + a - 0.5)))
    prior = GP(noise_std=fixed(0.05))
    model = TransitionModel(
        DAGP(1, prior, **QUICK), reset=[0.0], bounds=[(-2, 2)], action_bounds=[(-1, 1)]
    )
    return model.fit(s, a, np.where(broken, 0.0, after))


def towards(gain, state):
    return jnp.tanh(gain * (1.0 - state))


@outside
def test_moments_of_a_linear_model_follow_the_recursion(line):
    probe = np.array([[-1.0], [0.0], [1.0]])
    mean, std = line.model_.predict(probe, return_std=True)
    mean, variance = np.ravel(mean), np.ravel(std) ** 2
    a, b = mean[1], (mean[2] - mean[0]) / 2
    assert mean[0] + mean[2] == pytest.approx(2 * mean[1], abs=1e-8)
    v0, v1 = variance[1], (variance[2] - variance[0]) / 2
    v2 = (variance[0] + variance[2]) / 2 - v0
    first, second = 0.7, 0.7**2
    run = line.rollout(None, [0.7], horizon=3, n_samples=20_000, random_state=0)
    for t in (1, 2, 3):
        spread = v0 + v1 * first + v2 * second
        second = spread + a**2 + 2 * a * b * first + b**2 * second
        first = a + b * first
        found = run.states[:, t, 0]
        std = np.sqrt(second - first**2)
        assert found.mean() == pytest.approx(first, abs=5 * std / 140)
        assert found.std() == pytest.approx(std, rel=0.03)


@pytest.mark.parametrize("functions", ["step", "trajectory"])
def test_one_step_has_the_predicted_mixture(machine, functions):
    run = machine.rollout(
        lambda s: np.full((len(s), 1), 0.6), [0.5], 1, 8000, random_state=1, functions=functions
    )
    weights = machine.predict_regimes([[0.5]], [[0.6]])[0]
    assert 0.2 < weights[1] < 0.95
    seen = np.bincount(run.regimes[:, 0], minlength=2) / 8000
    np.testing.assert_allclose(seen, weights, atol=5 * np.sqrt(0.25 / 8000))
    np.testing.assert_allclose(run.regime_probabilities()[0], weights, atol=0.02)
    drifted = run.states[run.regimes[:, 0] == 0, 1, 0]
    mixture = machine.model_.predict_mixture([[0.5, 0.6]]).marginal(0)
    std = np.sqrt(mixture.variance().item())
    assert drifted.mean() == pytest.approx(mixture.mean().item(), abs=0.1 * std)
    assert drifted.std() == pytest.approx(std, rel=0.08)
    assert np.all(run.states[run.regimes[:, 0] == 1, 1] == 0.0)


def trained(kernel):
    """A model of one process whose q is that of some observations, without a fit."""
    rng = np.random.default_rng(0)
    Z = rng.uniform(-1, 1, (8, 2))
    root = rng.standard_normal((8, 20))
    q = NaturalGaussian((np.eye(8) + root @ root.T)[None], 2 * rng.standard_normal((1, 8)))
    latent = SparseGP(kernel, Centred(), parameter(Z, support="real"), q)
    process = GPProcess(latent, parameter(np.full(1, 0.3)), np.asarray(1e-4))
    return DataAssociation.assemble([process], ConstantGate(np.zeros(1)))


def test_the_cosine_of_features_and_its_slope():
    turns = np.concatenate([np.linspace(-2, 2, 1001), [1e4 + 0.3, -1e6]])
    with numerics():
        value, slope = jax.vmap(jax.value_and_grad(cosine))(turns)
    np.testing.assert_allclose(value, np.cos(2 * np.pi * turns), atol=1e-9)
    np.testing.assert_allclose(slope, -2 * np.pi * np.sin(2 * np.pi * turns), atol=1e-8)
    np.testing.assert_allclose(value[:1001], np.cos(2 * np.pi * turns[:1001]), atol=1e-13)


def test_a_model_without_some_processes_has_the_functions_of_the_others():
    with numerics():
        processes = [trained(kernels.Matern52(scale, 1.0)).process(0) for scale in (0.3, 0.6, 0.9)]
        whole = DataAssociation.assemble(processes, ConstantGate(np.zeros(3)))
        part = without_processes(whole, [1])
        assert part.members == ((0, 2),)
        assert without_processes(whole, [0, 1, 2]).groups == ()
        X = np.random.default_rng(0).uniform(-1, 1, (5, 2))
        expected, found = (m.marginals(m.project(X)) for m in (whole, part))
        np.testing.assert_array_equal(found.gate.weights, expected.gate.weights)
        np.testing.assert_allclose(
            found.groups[0].mean, np.asarray(expected.groups[0].mean)[[0, 2]]
        )


@pytest.mark.parametrize(
    "kernel",
    [
        kernels.SquaredExponential(0.5, 1.0),
        kernels.Matern52(0.5, 1.0),
        kernels.Linear(1.0)
        + kernels.Constant(0.5)
        + 2.0 * kernels.Matern12(1.0, 1.0)
        + kernels.SquaredExponential(1.0, 0.5, active=[0]),
    ],
    ids=["SE", "Matern52", "sum"],
)
def test_whole_functions_have_the_covariance_of_the_posterior(kernel):
    # Some of them are far from the inducing points.
    points = np.array([[0.0, 0.0], [0.3, 0.1], [2.0, 2.0], [2.3, 2.1]])
    with numerics():
        model = trained(kernel)
        ready = prepared(model)
        function = model.process(0).function
        expected = function.covariance(points)[0]
        mean = function.marginals(function.project(points)).mean[:, 0]

        def values(key):
            feature_key, own = jax.random.split(key)
            features = draw_features(ready, feature_key)
            drawn = with_functions(ready, features, draw_functions(ready, features, own))
            latent = drawn.process(0).latent
            return latent.marginals(latent.project(points))

        found = jax.jit(jax.vmap(values))(jax.random.split(jax.random.key(0), 3000))
        assert np.max(np.asarray(found.variance)) == 0.0
    draws = np.asarray(found.mean)[:, :, 0]
    largest = float(np.max(np.diag(expected)))
    np.testing.assert_allclose(draws.mean(axis=0), mean, atol=0.08 * np.sqrt(largest))
    np.testing.assert_allclose(np.cov(draws.T), expected, atol=0.1 * largest)


def test_a_kernel_without_features_draws_the_rest_at_every_step():
    x = np.linspace(-1, 1, 20)[:, None]
    periodic = GP(kernels.Periodic(period=3.0), noise_std=fixed(0.1))
    model = TransitionModel(DAGP(1, periodic, **{**QUICK, "tol": 10.0})).fit(x, None, 0.9 * x)
    run = model.rollout(None, [0.2], 2, 2000, random_state=0, functions="trajectory")
    mixture = model.model_.predict_mixture([[0.2]])
    found = run.states[:, 1, 0] - 0.2
    assert found.std() == pytest.approx(np.sqrt(np.ravel(mixture.variance())[0]), rel=0.1)


@outside
def test_doubt_of_a_whole_function_does_not_average_out(line):
    def spread(functions):
        run = line.rollout(None, [0.9], 8, 4000, random_state=0, functions=functions)
        return run.states[:, -1, 0].std()

    assert spread("trajectory") > 1.02 * spread("step")


def test_a_kept_regime_stays_along_a_trajectory(machine):
    settings = {"horizon": 6, "n_samples": 200, "random_state": 0}
    still = lambda s: np.full((len(s), 1), 0.3)  # noqa: E731
    kept = machine.rollout(still, [0.5], regimes="trajectory", **settings)
    free = machine.rollout(still, [0.5], **settings)
    assert np.all(kept.regimes == kept.regimes[:, :1])
    assert not np.all(free.regimes == free.regimes[:, :1])


def test_the_system_of_a_trajectory_is_drawn_by_its_share_of_the_data_not_by_the_gate():
    # The first of two systems stays near 0, where most rows are therefore its own; the second
    # leaves. There are twice as many trajectories of the second, all of ten steps from near 0.
    rng, rows = np.random.default_rng(0), []
    for system, count in ((0, 10), (1, 20)):
        x = rng.normal(0, 0.05, count)
        for _ in range(10):
            after = (0.5 * x if system == 0 else x + 0.3) + 0.02 * rng.standard_normal(count)
            rows += list(zip(x, after, [system] * count, strict=True))
            x = after
    x, after, labels = np.array(rows).T
    model = TransitionModel(DAGP(2, n_init=1, tol=1e-1, random_state=0))
    model.fit(x[:, None], None, after[:, None], labels=labels.astype(int))
    assert model.predict_regimes([[0.0]])[0, 0] > 0.6
    run = model.rollout(None, [0.0], 2, 4000, random_state=0, regimes="trajectory")
    assert abs(np.mean(run.regimes == 0) - 1 / 3) < 0.03
    np.testing.assert_allclose(run.regime_probabilities(), [[1 / 3, 2 / 3]] * 2, atol=0.01)


def test_regimes_of_trajectories_have_the_given_probabilities_for_each_start(machine):
    still = lambda s: np.full((len(s), 1), 0.3)  # noqa: E731
    chances = [[1.0, 0.0], [0.0, 2.0], [1.0, 3.0]]
    starts = [[0.2], [0.5], [0.8]]
    run = machine.rollout(still, starts, 2, 2000, random_state=0, regimes=chances)
    found = [np.mean(run.regimes[:, b] == 1) for b in range(3)]
    np.testing.assert_allclose(found, [0.0, 1.0, 0.75], atol=0.03)
    policy = Policy(lambda p, state: 0.3 + 0 * state, ())
    compiled = machine.rollout(policy, starts, 2, 2000, random_state=0, regimes=chances)
    np.testing.assert_allclose(compiled.states, run.states, atol=1e-9)
    assert run.regime_probabilities()[2].tolist() == [[0.25, 0.75]] * 2


@pytest.mark.parametrize(
    "regimes", ["now", [1.0], [[0.5, 0.5]] * 3, [-1.0, 2.0], [0, 0], [np.nan, 1]]
)
def test_regimes_that_are_no_probabilities_are_refused(machine, regimes):
    still = lambda s: np.full((len(s), 1), 0.3)  # noqa: E731
    with pytest.raises(ValueError, match="regimes must be"):
        machine.rollout(still, [0.5], 2, 3, regimes=regimes)


def test_a_numpy_policy_moves_as_the_same_policy_in_jax(machine):
    policy = network_policy(machine.states_, machine.action_bounds_, random_state=0)
    settings = {"horizon": 5, "n_samples": 20, "random_state": 3}
    ours = machine.rollout(policy, [[0.1], [0.4]], **settings)
    theirs = machine.rollout(lambda s: policy(s), [[0.1], [0.4]], **settings)
    assert ours.states.shape == (20, 2, 6, 1)
    np.testing.assert_allclose(ours.states, theirs.states, atol=1e-9)
    np.testing.assert_array_equal(ours.regimes, theirs.regimes)
    np.testing.assert_array_equal(ours.states[:, 1, 0], 0.4)


def test_batches_have_draws_of_their_own_however_many_cores_compute_them(machine, monkeypatch):
    monkeypatch.setattr(paths, "_BATCH", 4)
    policy = Policy(towards, 2.0)
    settings = {"horizon": 4, "n_samples": 7, "random_state": 7}
    run = machine.rollout(policy, [0.1], **settings)
    # Two batches of four, the second filled up.
    assert run.states.shape == (7, 5, 1)
    assert not np.array_equal(run.states[:3], run.states[4:])
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    np.testing.assert_array_equal(machine.rollout(policy, [0.1], **settings).states, run.states)
    theirs = machine.rollout(lambda s: policy(s), [0.1], **settings)
    np.testing.assert_allclose(theirs.states, run.states, atol=1e-9)


def test_seeds_determine_trajectories_and_flags_of_jax_stay(machine):
    before = jax.config.jax_enable_x64
    policy = Policy(towards, 2.0)
    runs = [machine.rollout(policy, [0.1], 4, 5, random_state=s).states for s in (7, 7, 8)]
    np.testing.assert_array_equal(runs[0], runs[1])
    assert not np.array_equal(runs[0], runs[2])
    assert runs[0].dtype == np.float64
    assert jax.config.jax_enable_x64 == before


@pytest.mark.parametrize("functions", ["step", "trajectory"])
def test_a_loaded_model_rolls_out_alike(machine, tmp_path, functions):
    path = machine.save(tmp_path / "machine.dagp")
    again = TransitionModel.load(path)
    settings = {"horizon": 4, "n_samples": 6, "random_state": 0, "functions": functions}
    policy = Policy(towards, 1.0)
    first, second = (m.rollout(policy, [0.3], **settings) for m in (machine, again))
    np.testing.assert_array_equal(first.states, second.states)
    np.testing.assert_array_equal(first.regimes, second.regimes)
    assert again.reset_regime_ == machine.reset_regime_ == 1
    np.testing.assert_array_equal(again.action_bounds_, machine.action_bounds_)
    assert DAGP.load(path).n_features_in_ == 2


def estimator(model, gradient, count):
    """Mean return of two steps from one start, and an estimate of its gradient."""
    dynamics = model.dynamics()

    def value(gain, key):
        start = jnp.full((count, 1), 0.4)
        steps = simulate(dynamics, towards, gain, start, 2, key, gradient, 0.5)
        rewards = discounted(steps, lambda s, a, after, p: after[0] - 2 * p[-1], 0.9)
        return surrogate(steps, rewards, 1, score=gradient == "score")

    return jax.jit(jax.value_and_grad(value))


def test_the_gradient_of_one_regime_is_that_of_finite_differences():
    rng = np.random.default_rng(0)
    s, a = rng.uniform(-1, 1, (40, 1)), rng.uniform(-1, 1, (40, 1))
    model = TransitionModel(DAGP(1, **QUICK)).fit(s, a, 0.8 * s + 0.3 * a)
    with numerics():
        key, found = jax.random.key(0), estimator(model, "score", 50)
        slope = found(0.7, key)[1]
        up, down = (found(0.7 + h, key)[0] for h in (1e-4, -1e-4))
    assert float(slope) == pytest.approx(float(up - down) / 2e-4, rel=1e-5)


def test_the_score_function_is_right_where_relaxations_are_not(machine):
    """The truth: differences of the mean return, on many trajectories with common deviates."""
    with numerics():
        many, step = estimator(machine, "score", 20_000), 0.1
        pairs = [[many(1.0 + h, jax.random.key(k))[0] for h in (step, -step)] for k in range(4)]
        truth = float(np.mean([up - down for up, down in pairs])) / (2 * step)
        errors = {}
        for how in ("score", "straight-through"):
            few = estimator(machine, how, 1000)
            slopes = [float(few(1.0, jax.random.key(9 + i))[1]) for i in range(10)]
            errors[how] = np.sqrt(np.mean((np.array(slopes) - truth) ** 2))
    assert errors["score"] < 0.7 * errors["straight-through"]
    assert errors["score"] < 0.5 * abs(truth)


@pytest.fixture(scope="module")
def plane():
    """A state that is exact and follows one input, and one that is noisy and follows another."""
    rng = np.random.default_rng(0)
    s, a = rng.uniform(-1, 1, (64, 2)), rng.uniform(-1, 1, (64, 1))
    after = np.stack([2 * np.sin(2 * s[:, 0]) + 0.5 * rng.standard_normal(64), s[:, 1] + a[:, 0]])
    return s, a, after.T


def test_every_state_has_kernels_of_its_own(plane):
    own, shared = (
        TransitionModel(DAGP(1, **QUICK), differences=False, separate=choice).fit(*plane)
        for choice in (True, False)
    )
    rng = np.random.default_rng(1)
    s, a = rng.uniform(-0.9, 0.9, (50, 2)), rng.uniform(-0.9, 0.9, (50, 1))
    truth = np.stack([2 * np.sin(2 * s[:, 0]), s[:, 1] + a[:, 0]], axis=1)
    errors = [np.abs(m.predict(s, a)[0][:, 0] - truth).mean(axis=0) for m in (own, shared)]
    assert errors[0][1] < 0.05
    assert errors[0][0] < 0.8 * errors[1][0]
    # The shared one is the model of `DAGP`, along another path.
    mixture = shared.model_.predict_mixture(np.hstack([s, a]))
    mean, std = shared.predict(s, a)
    np.testing.assert_allclose(mean[:, 0], mixture.mean(), atol=1e-8)
    np.testing.assert_allclose(std[:, 0] ** 2, mixture.variance(), atol=1e-8)


def test_the_joint_fit_has_the_inducing_points_of_a_search_if_functions_are_trained_anew():
    X = np.random.default_rng(0).uniform(size=(150, 3))
    assert enough_inducing("auto", [GP(), Noise()], X, 2) == 100
    assert enough_inducing(None, [GP()], X[:50], 2) == 50
    kept = GP(mean=Projection(np.eye(3, 2)))
    for given, prior, states in ((12, GP(), 2), ("all", GP(), 2), ("auto", GP(), 1)):
        assert enough_inducing(given, [prior], X, states) == given
    assert enough_inducing("auto", [GP(), kept], X, 2) == "auto"


def test_functions_of_single_states_are_saved_too(plane, tmp_path):
    model = TransitionModel(DAGP(1, **QUICK)).fit(*plane)
    assert model.dynamics().model.groups == ()  # nothing is computed that is not used
    again = TransitionModel.load(model.save(tmp_path / "plane.dagp"))
    assert model.own_[0] is not None
    rows = plane[0][:5], plane[1][:5]
    for first, second in zip(model.predict(*rows), again.predict(*rows), strict=True):
        np.testing.assert_array_equal(first, second)


def test_periods_bring_angles_back():
    rng = np.random.default_rng(0)
    angle = rng.uniform(-np.pi, np.pi, (40, 1))
    turned = (angle + 0.5 + np.pi) % (2 * np.pi) - np.pi
    model = TransitionModel(DAGP(1, **QUICK), periods=[2 * np.pi]).fit(angle, None, turned)
    run = model.rollout(None, [3.0], 3, 10, random_state=0)
    expected = (3.0 + 0.5 * np.arange(4) + np.pi) % (2 * np.pi) - np.pi
    np.testing.assert_allclose(run.states.mean(axis=0)[:, 0], expected, atol=0.05)
