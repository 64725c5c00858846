"""The search as a whole, and its starts."""

import re

import jax
import numpy as np
import pytest
from searched import problem_of, sample_of
from sklearn.metrics import adjusted_rand_score

from dagp import DAGP, GP, FitError, Noise, datasets
from dagp.core.precision import numerics
from dagp.inference.inducing import k_means
from dagp.inference.problem import Start, build, with_inducing
from dagp.inference.standardize import Sample, Units, canonical, padded_length, to_batch
from dagp.inference.train import Result
from dagp.search.algorithm import search
from dagp.search.solution import Options
from dagp.search.starts import KINDS, Task, starts
from dagp.search.tracking import follow


def crossing(n=60):
    """Two lines that cross in the middle, a point on each at every x."""
    x = np.tile(np.linspace(-1.5, 1.5, n), 2)
    process = np.repeat([0, 1], n)
    y = np.where(process == 0, x, -x) + 0.02 * np.random.default_rng(0).standard_normal(2 * n)
    return x[:, None], y, process


@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_of_start_uses_every_process(kind):
    X, y, _ = crossing()
    task = Task(sample_of(X, y), 2, log_mask=np.zeros((len(X), 2)))
    members = next(KINDS[kind](task, np.random.default_rng(1))).members
    assert members.shape == (len(X), 2)
    assert set(members.argmax(axis=1).tolist()) == {0, 1}
    assert np.all(members >= 0)
    assert np.all(members.sum(axis=1) <= 1 + 1e-12)


def test_starts_are_distributions_and_obey_labels():
    X, y, process = crossing()
    problem = problem_of(X, y, [GP(), GP(), Noise()], labels=np.where(X[:, 0] < 0, process, -1))
    found = list(starts(problem, 5, np.random.default_rng(0)))
    assert len(found) == 5
    known = problem.sample.labels >= 0
    for start in found:
        np.testing.assert_allclose(start.responsibilities.sum(axis=1), 1.0)
        hard = start.responsibilities[known].argmax(axis=1)
        np.testing.assert_array_equal(hard, problem.sample.labels[known])


def test_curves_are_followed_through_their_crossings():
    data = datasets.crossings(3, 3, random_state=1)
    order = np.argsort(data.X[:, 0])
    standard = Units.of(sample_of(data.X, data.y)).apply(sample_of(data.X, data.y))
    x, y = standard.X[order, 0], standard.y[order]
    clear = data.separable[order]
    for tracks in follow(x, y, 3, False, np.random.default_rng(0)):
        assert adjusted_rand_score(data.process[order][clear], tracks.member[clear]) > 0.97
        # The noise is 5 % of one unit of y; the setting next to that must win.
        assert tracks.noise_std in (0.02, 0.05)


def test_more_inducing_points_keep_what_was_learned():
    x = np.linspace(-1, 1, 60)
    y = np.sin(3 * x) + 0.05 * np.random.default_rng(0).standard_normal(60)
    problem = problem_of(x[:, None], y, [GP(), GP()])
    fewer = problem._replace(inducing=problem.inducing[::2])
    start = Start("given", np.full((60, 2), 0.5), 0.7, 0.3)
    trained = build(fewer, start._replace(lengthscale=0.2, noise_std=0.05))
    finer = with_inducing(problem, start, trained)
    kernels = [model.process(0).latent.kernel for model in (trained, finer)]
    np.testing.assert_array_equal(*(kernel.lengthscale.value for kernel in kernels))
    noise = [model.process(1).noise_std.value for model in (trained, finer)]
    np.testing.assert_array_equal(*noise)
    np.testing.assert_array_equal(finer.process(0).latent.inducing.raw, problem.inducing)
    assert finer.gate.latent.q.shift.shape[-1] == len(problem.inducing)


def test_consensus_finds_a_signal_that_most_points_do_not_belong_to():
    data = datasets.noise_separation(0.8, random_state=1)
    standard = Units.of(sample_of(data.X, data.y)).apply(sample_of(data.X, data.y))
    guess = next(KINDS["consensus"](Task(standard, 1, clutter=True), np.random.default_rng(0)))
    belongs = guess.members[:, 0]
    assert belongs[data.process == 0].mean() > 0.7
    assert belongs[data.process == 1].mean() < 0.25


def test_crossing_lines_are_followed_through_the_crossing():
    X, y, process = crossing()
    model = DAGP(2, inducing=12, random_state=0).fit(X, y)
    away = np.abs(X[:, 0]) > 0.2
    agreement = np.mean(model.assignment_[away] == process[away])
    assert max(agreement, 1 - agreement) > 0.98
    kept, *others = model.restarts_
    assert kept["kept"]
    assert not any(row["kept"] for row in others)
    # Rounds of eight starts, until a second one confirms the best.
    assert len(model.restarts_) % 8 == 0
    assert all("dropped" in row["fate"] or row["fate"] == "finalist" for row in others)


def test_the_search_keeps_the_best_bound_it_saw():
    X, y, _ = crossing(30)
    problem = problem_of(X, y, [GP(), GP()])
    with numerics():
        options = Options(3, 300, 1e-3, None, False, np.random.default_rng(0))
        found = search(problem, options)
    assert found.best.bound >= max(s.bound for s in found.pool)
    assert [s.fate == "kept" for s in found.pool].count(True) == 1


def test_starts_that_all_fail_say_why(monkeypatch):
    X, y, _ = crossing(20)
    nothing = np.zeros(0)

    def failing(state, *_, rate=0.0, **__):
        return Result(state, -np.inf, nothing, "diverged", rate)

    monkeypatch.setattr("dagp.search.trial.train", failing)
    monkeypatch.setattr("dagp.search.solution.settled", lambda result, _: result)
    with pytest.raises(FitError, match="track: diverged; rank: diverged"):
        DAGP(2, n_init=2, inducing=8, random_state=0).fit(X, y)


def test_k_means_finds_separate_clusters():
    rng = np.random.default_rng(0)
    points = np.concatenate([rng.normal(m, 0.1, (50, 2)) for m in (-5.0, 0.0, 5.0)])
    centres, member = k_means(points, 3, rng)
    np.testing.assert_allclose(np.sort(centres[:, 0]), [-5, 0, 5], atol=0.1)
    assert len(set(member[:50])) == len(set(member[50:100])) == 1


def test_canonical_rows_are_sorted_distinct_and_weighted():
    X = np.array([[2.0], [1.0], [2.0], [3.0]])
    y = np.array([[1.0], [1.0], [1.0], [0.0]])
    sample = Sample(X, y, np.array([1.0, 2.0, 0.5, 0.0]), np.full(4, -1))
    rows, place = canonical(sample)
    assert rows.X.ravel().tolist() == [1.0, 2.0]
    assert rows.weight.tolist() == [2.0, 1.5]
    assert place.tolist() == [1, 0, 1, -1]


@pytest.mark.parametrize("n", [1, 63, 64, 65, 1000, 1050, 12345])
def test_padding_is_short_and_has_no_weight(n):
    length = padded_length(n)
    assert 0 <= length - n < max(64, n / 16 + 1)
    batch = to_batch(sample_of(np.zeros((n, 1)), np.zeros(n)), 2)
    assert batch.weight.sum() == n
    assert len(batch.X) == length


def test_units_ignore_a_few_wild_values():
    rng = np.random.default_rng(0)
    y = rng.standard_normal(500)
    wild = y.copy()
    wild[:5] = 1e9
    plain = Units.of(sample_of(y[:, None], y))
    other = Units.of(sample_of(y[:, None], wild))
    assert plain.y_unit[0] == pytest.approx(1.0, rel=0.1)
    assert other.y_unit[0] == pytest.approx(plain.y_unit[0], rel=0.1)


def test_a_fit_compiles_two_programs_and_hardly_anything_else(caplog):
    # Every operation outside of a program is a program of its own, and none is free.
    data = datasets.crossings(2, 1, n=150, random_state=0)
    with jax.log_compiles(), caplog.at_level("WARNING", logger="jax"):
        DAGP(2, n_init=2, inducing=9, tol=1e-1, random_state=0).fit(data.X, data.y)
    found = {re.search(r"XLA compilation of jit\((\w+)\)", line) for line in caplog.messages}
    names = {match[1] for match in found if match}
    assert {"refine_q", "run_block"} <= names <= {"refine_q", "run_block", "_noise_variance"}
