"""How many processes: what mixtures of regressions count, and which processes are removed."""

import numpy as np
import pytest

from dagp import DAGP, GP, Noise
from dagp.core.precision import numerics
from dagp.inference.standardize import Sample, Units, to_device_batch
from dagp.inference.train import begin
from dagp.search import number, refine
from dagp.search.factory import Problem, Start, build
from dagp.search.number import prune, with_fewer
from dagp.search.trainer import Trainer


def problem_of(X, y, priors, weight=None):
    y = np.reshape(y, (len(X), -1))
    weight = np.ones(len(X)) if weight is None else weight
    sample = Sample(X, y, weight, np.full(len(X), -1))
    return Problem(sample, Units.of(sample), tuple(priors), None, X[:: max(1, len(X) // 12)])


def waves(count, n=240, D=1, seed=0):
    """Functions that lie above each other, standardised."""
    rng = np.random.default_rng(seed)
    X, process = rng.uniform(-1.7, 1.7, (n, D)), np.arange(n) % count
    y = 1.5 * process + 0.4 * np.sin(2 * X.sum(axis=1)) + 0.03 * rng.standard_normal(n)
    return X, (y - y.mean()) / y.std(), process


@pytest.mark.parametrize(("count", "D"), [(1, 1), (2, 1), (3, 1), (2, 2)])
def test_mixtures_of_regressions_count_functions(count, D):
    X, y, _ = waves(count, D=D)
    found = with_fewer(problem_of(X, y, [GP()] * 6), np.random.default_rng(0))
    # Some more where the functions are rough for regressions, and never fewer.
    assert count <= found.n_processes <= count + 2


def test_clutter_is_kept_and_helps_to_count():
    X, y, _ = waves(2)
    stray = np.arange(len(y)) % 7 == 0
    y[stray] = np.random.default_rng(1).uniform(-3, 3, stray.sum())
    priors = [GP()] * 5 + [Noise()]
    found = with_fewer(problem_of(X, y, priors), np.random.default_rng(0))
    assert found.clutter in ((False, False, True), (False, False, False, True))


def test_the_count_depends_on_the_data_alone():
    X, y, _ = waves(3)
    first, second = (
        with_fewer(problem_of(X, y, [GP()] * 6), np.random.default_rng(3)) for _ in range(2)
    )
    assert first.n_processes == second.n_processes
    few = problem_of(X[:3], y[:3], [GP()] * 6)
    assert 1 <= with_fewer(few, np.random.default_rng(0)).n_processes <= 6


@pytest.mark.parametrize("priors", [[Noise()], [GP()], [GP(), Noise()]])
def test_without_a_choice_there_is_nothing_to_count(priors):
    X, y, _ = waves(2, n=40)
    problem = problem_of(X, y, priors)
    assert with_fewer(problem, np.random.default_rng(0)) is problem


def trained(problem, member, steps=1000):
    """A model trained from these processes of the rows."""
    batch = to_device_batch(problem.sample, problem.n_processes)
    trainer = Trainer(batch, 1e-3)
    given = np.zeros((len(batch.X), problem.n_processes))
    given[:, 0] = 1.0
    given[: len(member)] = np.eye(problem.n_processes)[member]
    state, _ = begin(build(problem, Start("given", given, 0.6, 0.1)), batch, given, 5)
    return trainer.train(state, steps), trainer


def test_a_process_that_shares_a_function_is_removed():
    X, y, process = waves(2, n=120)
    # The upper function is divided along its input.
    member = np.where((process == 1) & (X[:, 0] > 0), 2, process)
    with numerics():
        problem = problem_of(X, y, [GP()] * 3)
        result, trainer = trained(problem, member)
        smaller, left, restricted = prune(problem, result, trainer, 1000)
    assert smaller.status == "converged"
    assert left.n_processes == restricted.batch.label_log_mask.shape[1] == 2
    assert smaller.bound > result.bound - number.WORTH
    found = np.asarray(smaller.state.responsibilities)[:120].argmax(axis=1)
    assert max(np.mean(found == process), np.mean(found != process)) > 0.97
    assert len(smaller.trace) > len(result.trace)


def test_what_is_left_is_trained_on_also_after_a_few_steps_without_a_gain(monkeypatch):
    """The gate of fewer processes is new, and may not have moved yet."""
    X, y, process = waves(2, n=120)
    given, asked = Trainer.train, []

    def train(self, state, max_iter, *others):
        asked.append(max_iter)
        return given(self, state, max_iter, *others)._replace(status="converged")

    with numerics():
        problem = problem_of(X, y, [GP()] * 3)
        result, trainer = trained(problem, process)
        monkeypatch.setattr(Trainer, "train", train)
        prune(problem, result, trainer, 120)
    assert asked == [number.REMOVAL_STEPS, 120]


def test_processes_that_are_needed_are_kept():
    X, y, process = waves(3, n=120)
    with numerics():
        problem = problem_of(X, y, [GP()] * 3)
        result, trainer = trained(problem, process)
        assert result.status == "converged"
        kept, left, same = prune(problem, result, trainer, 1000)
    assert kept is result
    assert left is problem
    assert same is trainer


def two_planes():
    """Two functions of two inputs that a few inducing inputs can follow, standardised."""
    rng = np.random.default_rng(0)
    X, process = rng.uniform(-1.7, 1.7, (120, 2)), np.arange(120) % 2
    y = 1.5 * process + 0.2 * X.sum(axis=1) + 0.05 * rng.standard_normal(120)
    return X, (y - y.mean()) / y.std(), process


VARYING = {"inducing": 12, "n_init": 2, "tol": 1e-1, "random_state": 0}


def test_noise_gps_are_counted_with_fewer_inducing_inputs_than_the_fit_has(monkeypatch):
    monkeypatch.setattr("dagp.search.search.SEARCH_INDUCING", 8)
    counts, pruned = [], number.prune

    def watched(problem, *others):
        counts.append((len(problem.inducing), problem.n_processes))
        return pruned(problem, *others)

    monkeypatch.setattr("dagp.search.fit.prune", watched)
    X, y, process = two_planes()
    model = DAGP("auto", GP(noise_gp=GP()), **VARYING).fit(X, y)
    assert [inducing for inducing, _ in counts] == [8, 12]
    assert counts[1][1] == len(model.processes_) == 2
    (group,) = model.posterior_.model.groups
    assert group.latent.inducing.raw.shape == group.log_noise.inducing.raw.shape == (2, 12, 2)
    assert max(np.mean(model.assignment_ == process), np.mean(model.assignment_ != process)) > 0.97


def test_a_callback_stops_a_count_also_while_inducing_inputs_are_added(monkeypatch):
    monkeypatch.setattr("dagp.search.search.SEARCH_INDUCING", 8)
    added, after = [], []

    def use_inducing(*given):
        added.append(True)
        refine.use_inducing(*given)

    def callback(progress):
        after.extend(added)
        return bool(added)

    def watched(*given):
        counted.append(True)
        return pruned(*given)

    pruned, counted = number.prune, []
    monkeypatch.setattr("dagp.search.fit.prune", watched)
    monkeypatch.setattr("dagp.search.search.use_inducing", use_inducing)
    X, y, _ = two_planes()
    model = DAGP("auto", GP(noise_gp=GP()), callbacks=[callback], **VARYING).fit(X, y)
    assert added == after == counted == [True]
    assert np.isfinite(model.lower_bound_)
