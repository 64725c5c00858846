"""Starts, moves and the race."""

import re

import jax
import numpy as np
import pytest
from sklearn.metrics import adjusted_rand_score

from dagp import DAGP, GP, FitError, Noise, datasets
from dagp.core.precision import numerics
from dagp.inference.standardize import (
    Sample,
    Units,
    canonical,
    padded,
    padded_length,
    to_batch,
    to_device_batch,
)
from dagp.inference.train import Result, begin
from dagp.search import moves
from dagp.search.factory import Problem, Start, build, with_inducing
from dagp.search.improve import _excess, renew_gate
from dagp.search.inducing import choose_inducing, k_means
from dagp.search.race import Contender
from dagp.search.search import search
from dagp.search.starts import KINDS, Task, starts
from dagp.search.tracking import follow
from dagp.search.trainer import Trainer


def sample_of(X, y, labels=None):
    labels = np.full(len(X), -1) if labels is None else labels
    return Sample(X, np.reshape(y, (len(X), -1)), np.ones(len(X)), labels)


def crossing(n=60):
    """Two lines that cross in the middle, a point on each at every x."""
    x = np.tile(np.linspace(-1.5, 1.5, n), 2)
    process = np.repeat([0, 1], n)
    y = np.where(process == 0, x, -x) + 0.02 * np.random.default_rng(0).standard_normal(2 * n)
    return x[:, None], y, process


def problem_of(X, y, priors, labels=None):
    sample, _ = canonical(sample_of(X, y, labels))
    units = Units.of(sample)
    standard = units.apply(sample)
    inducing = choose_inducing(standard.X, 12, np.random.default_rng(0))
    return Problem(standard, units, tuple(priors), None, inducing)


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


def view(shares, means, X, y, noise=0.1):
    K = shares.shape[1]
    return moves.View(
        sample_of(X, y),
        shares,
        np.asarray(means)[:, :, None],
        np.zeros((K, len(X), 1)),
        np.full((K, 1), noise),
        np.log(np.maximum(shares, 1e-9)),
        list(range(K)),
        list(range(K)),
    )


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


@pytest.mark.parametrize("blind", [True, False])
def test_a_gate_is_renewed_only_if_it_misses_something(blind):
    rng = np.random.default_rng(0)
    x = rng.uniform(-1, 1, 400)
    found = np.eye(2)[(rng.random(400) < (0.9 * (np.sin(6 * x) > 0) + 0.05)).astype(int)]
    known = 0.9 * (np.sin(6 * x) > 0) + 0.05
    gate = np.full((400, 2), 0.5) if blind else np.stack([1 - known, known], axis=1)
    excess = _excess(x[:, None], found - gate, 8)
    assert (excess > 2.5) == blind


def test_consensus_finds_a_signal_that_most_points_do_not_belong_to():
    data = datasets.noise_separation(0.8, random_state=1)
    standard = Units.of(sample_of(data.X, data.y)).apply(sample_of(data.X, data.y))
    guess = next(KINDS["consensus"](Task(standard, 1, clutter=True), np.random.default_rng(0)))
    belongs = guess.members[:, 0]
    assert belongs[data.process == 0].mean() > 0.7
    assert belongs[data.process == 1].mean() < 0.25


def test_functions_meet_where_they_cross_and_where_they_nearly_touch():
    x = np.linspace(-2, 2, 81)
    means = [np.abs(x - 1) + 0.05, np.zeros_like(x), x + 1]
    shares = np.full((len(x), 3), 1 / 3)
    seen = view(shares, means, x[:, None], np.zeros_like(x), noise=0.02)
    np.testing.assert_allclose(seen.meetings(0, 1), [1.0])
    np.testing.assert_allclose(seen.meetings(1, 2), [-1.0])


def test_functions_that_coincide_do_not_meet_everywhere():
    x = np.linspace(-2, 2, 81)
    rough = 1e-9 * np.random.default_rng(0).random(81)
    shares = np.full((len(x), 3), 1 / 3)
    flat = np.zeros_like(x)
    seen = view(shares, [flat, flat, rough], x[:, None], flat, noise=0.02)
    assert len(seen.meetings(0, 1)) <= 1
    assert 0 < len(seen.meetings(0, 2)) <= 12


def test_merge_hands_everything_over():
    X, y, process = crossing()
    shares = np.eye(3)[process]
    (proposal,) = moves.merge(view(shares, np.zeros((3, len(X))), X, y))
    np.testing.assert_array_equal(proposal.responsibilities.sum(axis=1), 1.0)
    assert sorted(proposal.responsibilities.sum(axis=0)) == [0, 0, len(X)]


def test_annex_takes_only_where_functions_agree():
    X, y, _ = crossing()
    shares = np.full((len(X), 2), 0.5)
    means = np.stack([np.zeros(len(X)), np.where(X[:, 0] < 0, 0.0, 5.0)])
    left = X[:, 0] < 0
    for proposal in moves.annex(view(shares, means, X, y)):
        np.testing.assert_array_equal(proposal.responsibilities[~left], 0.5)
        assert set(proposal.responsibilities[left].ravel().tolist()) == {0.0, 1.0}


def test_split_separates_above_from_below():
    X, y, _ = crossing()
    shares = np.tile([1.0, 0.0], (len(X), 1))
    (proposal,) = moves.split(view(shares, np.zeros((2, len(X))), X, y))
    taken = proposal.responsibilities[:, 1] == 1
    assert np.all(y[taken] > 0) or np.all(y[taken] < 0)
    assert 0.4 < taken.mean() < 0.6


def test_swap_trades_places_beyond_a_crossing():
    X, y, process = crossing()
    order = np.argsort(X[:, 0], kind="stable")
    X, y, process = X[order], y[order], process[order]
    means = np.stack([X[:, 0], -X[:, 0]])
    (proposal,) = moves.swap(view(np.eye(2)[process], means, X, y))
    changed = proposal.responsibilities.argmax(axis=1) != process
    np.testing.assert_array_equal(changed, X[:, 0] > X[changed, 0].min() - 1e-9)


@pytest.mark.parametrize(
    ("kinds", "label", "beyond"),
    [(("GP", "GP"), -1, False), (("GP", "other"), -1, True), (("GP", "GP"), 0, True)],
)
def test_swap_moves_the_fewer_points_where_names_may_be_exchanged(kinds, label, beyond):
    """The others keep the length scales and the noise that they were trained with."""
    X, y, process = crossing()
    place = X[:, 0] + 0.5
    # The functions meet at -0.5, so that two thirds of the points lie beyond.
    seen = view(np.eye(2)[process], np.stack([place, -place]), X, y)._replace(kinds=kinds)
    labels = np.where(np.arange(len(y)) == 0, label, -1)
    (proposal,) = moves.swap(seen._replace(sample=seen.sample._replace(labels=labels)))
    changed = proposal.responsibilities.argmax(axis=1) != process
    apart = np.abs(place) > 0.05
    np.testing.assert_array_equal(changed[apart], (place[apart] > 0) == beyond)


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
        trainer = Trainer(to_device_batch(problem.sample, 2), 1e-3)
        result, ranking = search(
            problem, trainer, n_init=3, max_iter=300, rng=np.random.default_rng(0)
        )
    assert result.bound >= max(c.bound for c in ranking[1:])
    bounds = [c.bound for c in ranking if len(c.rungs) == 1]
    assert bounds == sorted(bounds, reverse=True)


def test_starts_that_all_fail_say_why(monkeypatch):
    X, y, _ = crossing(20)
    nothing = np.zeros(0)

    def failing(state, *_, rate=0.0, **__):
        return Result(state, -np.inf, nothing, "diverged", rate)

    monkeypatch.setattr("dagp.search.trainer.train", failing)
    for module in ("search", "improve"):
        monkeypatch.setattr(f"dagp.search.{module}.settled", lambda result, _: result)
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


def regimes(gate=None):
    """A contender for two levels that alternate along the input, given their association."""
    x = np.linspace(-1, 1, 120)
    process = (np.floor(3 * x) % 2).astype(int)
    y = process + 0.03 * np.random.default_rng(0).standard_normal(120)
    problem = problem_of(x[:, None], y, [GP(), GP()])._replace(gate=gate)
    batch = to_device_batch(problem.sample, 2)
    given = padded(np.eye(2)[process], len(batch.X))
    start = Start("given", given, 0.3, 0.1)
    # The gate has lost its input.
    blind = build(problem, start._replace(lengthscale=300.0)).gate
    state, bound = begin(build(problem, start).with_gate(blind), batch, given, 10)
    return problem, Trainer(batch, 1e-3), Contender(start, state, float(bound.value))


def test_a_gate_that_has_lost_its_input_is_renewed():
    with numerics():
        problem, trainer, contender = regimes()
        before = contender.bound
        assert renew_gate(problem, contender, trainer)
        assert contender.bound > before + 10
        assert contender.moves == [("renew the gate", pytest.approx(contender.bound - before))]
        # The new one is not replaced by another unless that is better.
        state, bound = contender.state, contender.bound
        if not renew_gate(problem, contender, trainer):
            assert contender.state is state
        assert contender.bound >= bound


def test_a_constant_gate_cannot_be_renewed():
    with numerics():
        problem, trainer, contender = regimes("constant")
        assert not renew_gate(problem, contender, trainer)
        assert contender.moves == []
