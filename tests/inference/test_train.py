"""Training on a small toy: it gains, it repeats, it compiles once, it says why it ended."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from reference import batch, build, evaluate, normalised, two_lines

from dagp.inference import train
from dagp.kernels import SquaredExponential
from dagp.model.gp import GP
from dagp.model.parameters import LogNormal, fixed, is_parameter

pytestmark = pytest.mark.usefixtures("float64")

X, Y, LABELS = two_lines(0)
INDUCING = np.linspace(-1, 1, 5)[:, None]
RATE = train.LEARNING_RATE


def begin(seed=0):
    """The toy with a start that has two in three labels right; the first process is half frozen."""
    half_frozen = GP(kernel=SquaredExponential(fixed(0.8), 1.0), noise_std=fixed(0.3))
    free = GP(noise_prior=LogNormal(0.1))
    model = build([half_frozen, free], INDUCING)
    wrong = np.random.default_rng(seed).uniform(size=len(X)) < 1 / 3
    shares = 0.8 * np.eye(2)[np.where(wrong, 1 - LABELS, LABELS)] + 0.1
    data = batch(X, Y, 2)
    return train.begin(model, data, jnp.asarray(shares), 0)[0], data


def block(state, data):
    return train.run_block(state, data, RATE * train.BOTH)


@pytest.fixture(scope="module")
def trained(float64):
    state, data = begin()
    return state, *block(state, data)


def test_begin_answers_the_given_responsibilities_in_full():
    state, _ = begin()
    kernel = state.model.process(1).latent.kernel
    basis = np.linalg.solve(np.linalg.cholesky(kernel(INDUCING, INDUCING)), kernel(INDUCING, X))
    weight = state.responsibilities[:, 1] / 0.3**2
    q = state.model.process(1).latent.q
    np.testing.assert_allclose(q.shift[0], basis @ (weight * Y[:, 0]), rtol=1e-6)
    np.testing.assert_allclose(q.precision[0], np.eye(5) + (basis * weight) @ basis.T, rtol=1e-6)


def test_the_bound_rises_and_the_lines_are_found(trained):
    _, after, bounds = trained
    values = np.asarray(bounds.value)
    assert values.shape == (train.BLOCK,) and np.all(np.isfinite(values))
    assert values[-1] > values[0] + 10
    np.testing.assert_array_equal(np.argmax(after.responsibilities, axis=1), LABELS)


def test_the_reported_bound_is_that_of_the_settled_model(trained):
    before, _, bounds = trained
    _, data = begin()
    # With a learning rate of zero only q moves, and the bound can be computed again.
    after, still = train.run_block(before, data, 0 * train.BOTH)
    np.testing.assert_allclose(still.value[0], bounds.value[0], rtol=1e-9)
    bound, log_joint, _ = evaluate(after.model, data)
    np.testing.assert_allclose(bound.value, still.value[-1], rtol=1e-9)
    np.testing.assert_allclose(after.responsibilities, normalised(log_joint), atol=1e-9)


def test_every_q_comes_to_rest_where_it_was_heading(trained):
    _, after, bounds = trained
    _, data = begin()
    moved = train.Result(after, float(bounds.value[-1]), np.zeros(0), "budget", 0.05)
    rest = train.settled(moved, data)
    still, long = after, bounds
    for _ in range(6):
        still, long = train.run_block(still, data, 0 * train.BOTH)
    assert rest.bound > float(bounds.value[-1])
    np.testing.assert_allclose(rest.bound, long.value[-1], atol=1e-2)
    np.testing.assert_allclose(rest.state.responsibilities, still.responsibilities, atol=1e-3)
    bound, *_ = evaluate(rest.state.model, data)
    np.testing.assert_allclose(bound.value, rest.bound, rtol=1e-9)


def test_the_gate_can_move_alone(trained):
    _, state, _ = trained
    moved = train.run_block(state, begin()[1], RATE * train.GATE)[0].model
    for before, after in zip(raw(state.model.groups), raw(moved.groups), strict=True):
        np.testing.assert_array_equal(before, after)
    pairs = list(zip(raw(state.model.gate), raw(moved.gate), strict=True))
    assert pairs and not any(np.array_equal(before, after) for before, after in pairs)


def raw(part):
    """Hyperparameters of a part of a model."""
    leaves = jax.tree.leaves(part, is_leaf=is_parameter)
    return [np.asarray(leaf.raw) for leaf in leaves if is_parameter(leaf)]


def test_the_same_inputs_give_the_same_outputs(trained):
    before, after, bounds = trained
    once_more, bounds_again = block(before, begin()[1])
    assert eqx.tree_equal(after, once_more) and eqx.tree_equal(bounds, bounds_again)


def test_a_block_compiles_once_for_the_same_shapes(trained):
    compiled = train.run_block._cache_size()
    state, data = begin(seed=1)
    state, _ = block(state, data)
    train.run_block(state, data._replace(y=data.y + 0.1), 0.01 * train.BOTH)
    assert train.run_block._cache_size() == compiled


def parameters_of(process):
    return [node for node in jax.tree.leaves(process, is_leaf=is_parameter) if is_parameter(node)]


def test_frozen_parameters_do_not_move_and_all_others_do(trained):
    before, after, _ = trained
    moved = {True: 0, False: 0}
    for k in range(2):
        parts = map(parameters_of, (before.model.process(k), after.model.process(k)))
        for old, new in zip(*parts, strict=True):
            np.testing.assert_array_equal(old.unit, new.unit)
            assert np.array_equal(old.raw, new.raw) == old.frozen
            moved[old.frozen] += 1
    assert moved == {True: 2, False: 6}
    assert eqx.tree_equal(after.model.gate.quadrature, before.model.gate.quadrature)
    prior, prior_after = (s.model.process(1).noise_std.prior for s in (before, after))
    assert eqx.tree_equal(prior, prior_after)


def test_train_runs_out_of_budget(trained):
    state, data = begin()
    result = train.train(state, data, max_iter=2 * train.BLOCK, tol=0.0)
    assert result.status == "budget"
    assert result.trace.shape == (2 * train.BLOCK,)
    np.testing.assert_allclose(result.trace[: train.BLOCK], trained[2].value, rtol=1e-9)
    assert result.bound == result.trace[-1] > result.trace[0]


def test_train_converges_when_nothing_is_gained():
    state, data = begin()
    result = train.train(state, data, max_iter=40 * train.BLOCK, tol=10.0)
    assert result.status == "converged"
    assert len(result.trace) < 10 * train.BLOCK


def test_train_stops_when_told():
    state, data = begin()
    seen = []

    def callback(progress):
        seen.append((progress.step, progress.bound))
        return len(seen) == 2

    result = train.train(state, data, max_iter=10 * train.BLOCK, tol=0.0, callback=callback)
    assert result.status == "stopped"
    assert [done for done, _ in seen] == [train.BLOCK, 2 * train.BLOCK]
    assert seen[-1][1] == result.bound


def test_train_gives_up_on_nan_and_returns_what_it_was_given():
    state, data = begin()
    # NaN is a missing output, infinity is broken.
    broken = data._replace(y=data.y.at[0].set(jnp.inf))
    result = train.train(state, broken, max_iter=100 * train.BLOCK, tol=0.0)
    assert result.status == "diverged"
    assert eqx.tree_equal(result.state, state)


def replies(blocks, *, max_iter=20, first=0.15):
    """The rates of a run whose ELBO passes through these values in each block, and its result."""
    begun = train.initial_state("start", first)
    schedule = train.training_schedule(begun, 10.0, max_iter * train.BLOCK, 1e-3)
    run, rates = next(schedule), []
    for i, block in enumerate(blocks):
        rates.append(run.rate)
        at = np.linspace(0, len(block) - 1, train.BLOCK)
        try:
            run = schedule.send((f"after {i}", np.interp(at, np.arange(len(block)), block)))
        except StopIteration as end:
            return rates, end.value
    raise AssertionError("the run did not end")


def test_a_first_block_that_falls_far_below_its_start_is_repeated_more_slowly():
    """Steps that move a function almost without noise lose it, however few they are."""
    rates, result = replies([(100, -500), (100, -50), (100, 101), (101, 101)], first=0.005)
    np.testing.assert_allclose(rates, 0.005 / np.array([1, 3, 9, 9]))
    assert (result.state, result.bound, result.status) == ("after 2", 101, "converged")
    assert len(result.trace) == 2 * train.BLOCK


def test_a_start_that_all_steps_lower_is_the_result():
    _, result = replies([(100, -500)] * 4)
    assert (result.state, result.bound, result.status) == ("start", 100, "diverged")


def test_tries_are_counted_for_each_block():
    _, result = replies([(0, -90), (0, -90), (0, 9), (9, -90), (9, -90), (9, 9)], first=0.005)
    assert (result.state, result.bound, result.status) == ("after 2", 9, "converged")


def test_small_rates_are_not_raised_where_steps_overshoot():
    rates, _ = replies([(0, -90), (0, 3), (3, 9, 3, 5), (5, 5)], first=0.005)
    np.testing.assert_allclose(rates[1:], 0.005 / 3)
