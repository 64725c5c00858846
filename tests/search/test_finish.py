"""Finishers: gates, shared functions, inducing inputs, the number of processes, noise GPs."""

import equinox as eqx
import numpy as np
import pytest
from scipy.stats import norm
from searched import begun, problem_of, view_of

from dagp import DAGP, GP, Noise
from dagp.core.precision import numerics
from dagp.core.sharding import to_host
from dagp.inference import train
from dagp.inference.train import BLOCK
from dagp.kernels import Matern32
from dagp.search import finish
from dagp.search.finish import (
    arrangements,
    log_predictive,
    more_inducing,
    one_less,
    simpler,
    unexplained,
    without_unused,
)
from dagp.search.settings import LEFT, WORTH
from dagp.search.trial import View, climb


@pytest.fixture(autouse=True)
def precision():
    with numerics("float64"):
        yield


def fork(shared):
    """Two curves that are one on the left, where every point has `shared` of process 0: a trained
    solution, its trainer, and what lies on the left."""
    x = np.repeat(np.linspace(-1.5, 1.5, 100), 2)
    apart = np.tile([1.0, -1.0], 100) * np.maximum(x, 0) ** 2
    y = apart + 0.03 * np.random.default_rng(0).standard_normal(200)
    problem = problem_of(x[:, None], y, [GP(), GP()])
    left, above = problem.sample.X[:, 0] < 0, problem.sample.y[:, 0] > problem.sample.y.mean()
    given = np.where(left[:, None], [shared, 1 - shared], np.eye(2)[above.astype(int)])
    solution, trainer = begun(problem, given, 10)
    solution.adopt(trainer.train(solution.state, 4 * BLOCK))
    return solution, trainer, left


def weights(solution, where):
    """Mean gate of the points at `where`, largest first."""
    gate = to_host(solution.state.gate.weights)[: len(where)]
    return np.sort(gate[where].mean(axis=0))[::-1]


def test_one_process_takes_what_two_share_and_training_ends():
    solution, trainer, left = fork(0.5)
    np.testing.assert_allclose(weights(solution, left), 0.5, atol=0.2)
    before = solution.bound
    assert climb(solution, [(simpler,)], trainer)
    assert weights(solution, left)[0] > 0.9
    np.testing.assert_allclose(weights(solution, ~left), 0.5, atol=0.1)
    assert solution.bound > before - 0.2 * left.sum() / 2
    # It is trained to its end: more steps neither gain much nor lead back.
    simple = solution.bound
    solution.adopt(trainer.train(solution.state, 2 * BLOCK, solution.rate))
    assert solution.bound < simple + 1.0
    assert weights(solution, left)[0] > 0.9


def test_what_one_process_has_is_not_handed_to_the_other():
    solution, trainer, left = fork(1.0)
    before = solution.bound
    changed = climb(solution, [(simpler,)], trainer)
    assert weights(solution, left)[0] > 0.9
    assert not changed or solution.bound > before


RNG = np.random.default_rng(0)
PLACES = RNG.uniform(-1, 1, (60, 2))
WAVY = np.sin(6 * PLACES[:, :1]) + np.cos(5 * PLACES[:, 1:]) + 0.02 * RNG.standard_normal((60, 1))


def wavy(inducing, steps=48):
    """A function of two inputs that needs many inducing inputs, trained with some."""
    problem = problem_of(PLACES, WAVY, [GP()], gate="constant", inducing=inducing)
    solution, trainer = begun(problem, np.ones((60, 1)), 6, 0.5)
    if steps:
        solution.adopt(trainer.train(solution.state, steps))
    return solution, trainer


def test_more_inducing_inputs_where_the_data_need_them():
    solution, trainer = wavy(8)
    before, bound = unexplained(View.of(solution, trainer)), solution.bound
    assert before > LEFT
    assert climb(solution, [(more_inducing,)], trainer)
    count = solution.state.model.groups[0].latent.inducing.raw.shape[-2]
    assert count == len(solution.problem.inducing) and count in (16, 32)
    assert solution.bound > bound + 1
    assert unexplained(View.of(solution, trainer)) < before


def test_more_inducing_inputs_that_end_lower_are_left(monkeypatch):
    solution, trainer = wavy(8)
    state, bound, steps = solution.state, solution.bound, solution.steps
    sound = finish.with_inducing

    def damaged(*given):
        model = sound(*given)
        scales = model.groups[0].latent.kernel.lengthscale.raw
        rough = np.full_like(scales, -6.0)
        return eqx.tree_at(lambda m: m.groups[0].latent.kernel.lengthscale.raw, model, rough)

    monkeypatch.setattr(finish, "with_inducing", damaged)
    monkeypatch.setattr("dagp.search.trial.PATIENT_STEPS", BLOCK)
    assert not climb(solution, [(more_inducing,)], trainer)
    assert solution.state is state
    assert (solution.bound, solution.steps) == (bound, steps)


def test_time_limits_the_inducing_inputs(monkeypatch):
    monkeypatch.setattr(finish, "MOST_COST", 60 * 15**2)
    solution, trainer = wavy(8)
    assert list(more_inducing(View.of(solution, trainer))) == []


def test_where_more_have_gained_little_no_more_follow():
    solution, trainer = wavy(8)
    assert len(list(more_inducing(View.of(solution, trainer)))) == 1
    solution.moves.append(("16 inducing inputs", 0.01))
    assert list(more_inducing(View.of(solution, trainer))) == []


def test_nothing_is_unexplained_with_all_inputs():
    assert unexplained(View.of(*wavy(60, steps=0))) < 1e-4


@pytest.mark.parametrize("lost", [1e6, np.nan])
def test_last_steps_of_q_that_diverge_are_left(monkeypatch, lost):
    solution, trainer = wavy(8)
    result = solution.result()
    assert train.settled(result, trainer.batch).state is not result.state
    sound = train.refine_q

    def diverging(*given):
        state, bound, evaluation = sound(*given)
        return state, bound._replace(value=bound.value - lost), evaluation

    monkeypatch.setattr(train, "refine_q", diverging)
    assert train.settled(result, trainer.batch) is result


def waves(count, n=120, seed=0):
    """Functions that lie above each other."""
    rng = np.random.default_rng(seed)
    X, process = rng.uniform(-1.7, 1.7, (n, 1)), np.arange(n) % count
    y = 1.5 * process + 0.4 * np.sin(2 * X.sum(axis=1)) + 0.03 * rng.standard_normal(n)
    return X, (y - y.mean()) / y.std(), process


def trained(member, X, y, K=3):
    """A solution trained from these processes of the rows, which are sorted by the input."""
    problem = problem_of(X, y, [GP()] * K)
    order = np.lexsort((y, X[:, 0]))
    solution, trainer = begun(problem, np.eye(K)[member[order]], 5)
    trainer.converge(solution, 1000)
    return solution, trainer, order


def test_a_process_that_shares_a_function_is_removed():
    X, y, process = waves(2)
    # The upper function is divided along its input.
    solution, trainer, order = trained(np.where((process == 1) & (X[:, 0] > 0), 2, process), X, y)
    before = solution.bound
    assert climb(solution, [(one_less,)], trainer)
    assert solution.problem.n_processes == solution.state.model.n_processes == 2
    assert solution.bound > before - WORTH
    found = solution.responsibilities.argmax(axis=1)
    right = np.mean(found == process[order])
    assert max(right, 1 - right) > 0.97


def test_processes_that_are_needed_are_kept():
    X, y, process = waves(3)
    solution, trainer, _ = trained(process, X, y)
    state = solution.state
    assert not climb(solution, [(one_less,)], trainer)
    assert solution.state is state and solution.problem.n_processes == 3


def test_processes_without_data_go_at_once():
    X, y, process = waves(2)
    solution, trainer, _ = trained(process, X, y)
    assert climb(solution, [(without_unused,)], trainer)
    assert solution.problem.n_processes == 2
    assert list(without_unused(View.of(solution, trainer))) == []


def test_predictive_densities_are_broad_where_a_function_is_unknown():
    rng = np.random.default_rng(0)
    X, y, means = rng.standard_normal((30, 2)), rng.standard_normal((30, 2)), np.zeros((3, 30, 2))
    means[1] = rng.standard_normal((30, 2))
    variances = rng.uniform(0.0, 2.0, (3, 30, 2))
    seen = view_of(X, y, np.zeros(30, int), means, noise=0.3, variances=variances, clutter=(2,))
    before = seen.log_joint.copy()
    found = log_predictive(seen)
    for k in range(2):
        density = norm.logpdf(y, means[k], np.sqrt(variances[k] + 0.3**2)).sum(axis=1)
        np.testing.assert_allclose(found[:, k], density - np.log(3))
    np.testing.assert_array_equal(found[:, 2], before[:, 2])
    np.testing.assert_array_equal(seen.log_joint, before)


def test_where_a_function_is_known_its_densities_do_not_change():
    X, y, member = waves(2, 50)
    seen = view_of(X, y, member, np.stack([y, y + 1]))
    np.testing.assert_allclose(log_predictive(seen), seen.log_joint)


def arranged(priors, labels=None, n=30):
    X = np.linspace(-1, 1, n)[:, None]
    labels = np.full(n, -1) if labels is None else labels
    problem = problem_of(X, X[:, 0], priors, labels)
    found = np.random.default_rng(0).dirichlet(np.ones(len(priors)), n)
    return found, list(arrangements(problem, found))


def test_every_function_may_take_the_place_of_the_one_whose_noise_varies():
    found, ways = arranged([GP(noise_gp=GP()), GP(), Noise()])
    np.testing.assert_array_equal(ways[0][1], found)
    assert {tuple(order) for order, _ in ways} == {(0, 1, 2), (1, 0, 2)}
    joined = [given for _, given in ways if np.all(given[:, 1] == 0)]
    assert len(joined) == 2
    for _, given in ways:
        np.testing.assert_allclose(given.sum(axis=1), 1.0)
        np.testing.assert_array_equal(given[:, 2], found[:, 2])


def test_functions_of_equal_priors_are_joined_but_not_exchanged():
    _, ways = arranged([GP(noise_gp=GP()), GP(noise_gp=GP())])
    orders = [tuple(o) for o, given in ways if not np.any(np.all(given == 0, axis=0))]
    assert orders == [(0, 1)]


def test_every_two_functions_of_equal_priors_are_joined_once():
    # Under other numbers the same arrangements would be trained again, K times as many.
    found, ways = arranged([GP(noise_gp=GP()) for _ in range(4)])
    assert len(ways) == 1 + 4 * 3 / 2
    assert all(order == [0, 1, 2, 3] for order, _ in ways)
    joined = set()
    for _, given in ways[1:]:
        (gone,) = np.flatnonzero(np.all(given == 0, axis=0))
        (taker,) = np.flatnonzero(np.any(given > found, axis=0))
        assert found[:, gone].sum() < found[:, taker].sum()
        joined.add(frozenset((int(gone), int(taker))))
    assert len(joined) == 6


@pytest.mark.parametrize(
    ("priors", "labels"),
    [
        ([GP(noise_gp=GP()), GP()], np.where(np.arange(30) < 3, 1, -1)),
        ([GP(), Noise()], None),
    ],
)
def test_labels_fix_the_order(priors, labels):
    found, ways = arranged(priors, labels)
    assert len(ways) == 1
    np.testing.assert_array_equal(ways[0][1], found)


def test_priors_that_differ_keep_their_places():
    _, ways = arranged([GP(noise_gp=GP()), GP(Matern32())])
    assert {tuple(order) for order, _ in ways} == {(0, 1)}


def test_a_function_of_varying_noise_is_not_divided():
    # With constant noise its quiet and its loud part are two processes.
    rng = np.random.default_rng(0)
    x = np.sort(rng.uniform(-1, 1, 200))
    y = x + 0.1 * np.exp(2.5 * x) * rng.standard_normal(200)
    settings = {"inducing": 12, "n_init": 4, "tol": 1e-3, "random_state": 0}
    plain = DAGP(2, **settings).fit(x[:, None], y)
    assert min(np.bincount(plain.assignment_, minlength=2)) > 40
    model = DAGP(processes=[GP(), GP(noise_gp=GP())], **settings).fit(x[:, None], y)
    assert np.mean(model.assignment_ == 1) > 0.97
    # Other starts have no noise GPs: the confidence is that before these were added.
    assert model.confidence_ == pytest.approx(plain.confidence_)
