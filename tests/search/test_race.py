"""The race between starts, rounds of it, and attempts at moves."""

from typing import NamedTuple

import numpy as np
import pytest

from dagp.inference.standardize import Sample, to_batch
from dagp.inference.train import BLOCK, Result, State
from dagp.search import moves
from dagp.search.factory import Start
from dagp.search.improve import Trial, _distinct, attempt, record_move
from dagp.search.race import Contender, limit, race
from dagp.search.search import undecided
from dagp.search.trainer import Trainer

HOME = np.eye(2)[np.repeat([0, 1], 50)]
SAMPLE = Sample(np.arange(100.0)[:, None], np.zeros((100, 1)), np.ones(100), np.full(100, -1))
ROWS = to_batch(SAMPLE, 2)


def state_where(points):
    """A state in which the first so many points have changed hands."""
    shares = HOME.copy()
    shares[:points] = 1 - shares[:points]
    return State(None, np.concatenate([shares, np.full((len(ROWS.X) - 100, 2), 0.5)]), None)


def trial_of(points, bound=0.0):
    state = state_where(points)
    proposal = moves.Proposal("a move", frozenset((0, 1)), state.responsibilities[:100])
    return Trial(proposal, state, bound)


@pytest.mark.parametrize(
    ("moved", "left", "returned"),
    [(40, 0, True), (40, 1, True), (40, 2, False), (40, 40, False), (4, 1, True), (4, 2, False)],
)
def test_a_proposal_has_gone_back_when_little_of_it_is_left(moved, left, returned):
    assert trial_of(moved).returned(state_where(left), state_where(0), ROWS) == returned


class Stage(NamedTuple):
    """Where a stage of an attempt ends."""

    bound: float
    left: int


@pytest.mark.parametrize(
    ("stages", "bound"),
    [
        ([Stage(2.5, 40), Stage(6.0, 40)], 6.0),
        # Back home, and no higher than there.
        ([Stage(4.0, 0)], 4.0),
        # Back home, but higher.
        ([Stage(6.0, 0), Stage(7.0, 0)], 7.0),
        # Too slow.
        ([Stage(0.5, 40)], 0.5),
        ([Stage(-np.inf, 40)], -np.inf),
        # What was reached is not lost again.
        ([Stage(6.0, 40), Stage(-np.inf, 40)], 6.0),
    ],
)
def test_an_attempt_is_given_up_halfway_or_runs_to_its_end(stages, bound, monkeypatch):
    left = list(stages)

    def run(state, *_, rate=0.1, **__):
        stage = left.pop(0)
        # From zero, evenly.
        trace = np.linspace(0.0, stage.bound if np.isfinite(stage.bound) else 0.0, BLOCK)
        return Result(state_where(stage.left), stage.bound, trace, "budget", rate)

    monkeypatch.setattr("dagp.search.trainer.train", run)
    contender = Contender(Start("rank", HOME, 1.0, 1.0), state_where(0), bound=4.5)
    result = attempt(contender, trial_of(40), Trainer(ROWS, 1e-3), 5.0)
    assert (left, result.bound, len(result.trace)) == ([], bound, BLOCK * len(stages))
    assert contender.moves == []
    record_move(contender, "a move", result.bound, Trainer(ROWS, 1e-3))
    assert contender.moves == [("a move", bound - 4.5)]


class Runner(Contender):
    """A contender whose bounds are known in advance."""

    def advance(self, *_, **__):
        self.bound = self.start.noise_std
        self.rungs.append(self.bound)


def runner(kind, bound, points):
    """A runner that ends at this bound, with so many points in the other process."""
    return Runner(Start(kind, HOME, 1.0, bound), state_where(points))


def test_the_best_of_each_kind_survives_the_first_rung():
    bounds = {"rank": (9.0, 8.0, 7.0, 6.0), "magnitude": (2.0, 1.0), "cluster": (3.0, 0.0)}
    field = [
        runner(kind, bound, 2 * int(bound)) for kind, values in bounds.items() for bound in values
    ]
    finalists = race(field, Trainer(ROWS, 1e-3))
    assert [c.bound for c in finalists] == [9.0, 8.0]
    second = {c.bound for c in field if len(c.rungs) == 2}
    assert second == {9.0, 8.0, 3.0, 2.0}
    assert sum(c.fate == "dropped after rung 1" for c in field) == 4


def test_a_start_that_repeats_another_makes_way():
    repeats = [runner("rank", bound, 10) for bound in (9.0, 8.0, 7.0)]
    field = [*repeats, runner("rank", 3.0, 30), runner("rank", 2.0, 40), runner("rank", 1.0, 50)]
    finalists = race(field, Trainer(ROWS, 1e-3))
    assert [c.bound for c in finalists] == [9.0, 3.0]
    assert [len(c.rungs) for c in field] == [2, 1, 1, 2, 2, 1]
    # The race is over when one solution is left.
    assert race([runner("rank", b, 10) for b in (5.0, 6.0)], Trainer(ROWS, 1e-3))[0].bound == 6.0


def test_contenders_may_come_one_by_one(monkeypatch):
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    field = [runner("rank", bound, 10 * int(bound)) for bound in (1.0, 2.0, 3.0, 4.0)]
    ahead = []

    def begun():
        for contender in field:
            ahead.append(sum(not c.rungs for c in field))
            yield contender

    assert [c.bound for c in race(begun(), Trainer(ROWS, 1e-3))] == [4.0, 3.0]
    # Two tell whether there is a race; the others are made after these were trained.
    assert ahead == [4, 4, 2, 1]
    (alone,) = race(iter(field[:1]), Trainer(ROWS, 1e-3))
    assert alone is field[0] and alone.fate == "finalist" and len(alone.rungs) == 1


@pytest.mark.parametrize(
    ("behind", "improved", "ends"), [(3, True, True), (8, True, False), (3, False, False)]
)
def test_rounds_end_when_two_improved_solutions_are_equally_good(behind, improved, ends):
    best, other = (Contender(Start("rank", HOME, 1.0, 1.0), state_where(n)) for n in (0, 30))
    best.bound, best.improved = 100.0, True
    other.bound, other.improved = 100.0 - behind, improved
    assert undecided(500.0, [other, best]) is ends


def test_an_elbo_levels_off_where_its_gains_are_used_up():
    steps = np.arange(BLOCK)
    # Between the limit of a single rate of decay and a multiple of the last gain.
    values = 1 - 0.8**steps
    later = values[-1] - values[BLOCK // 2]
    assert limit(values, 0.0) == pytest.approx(1.0, abs=0.05)
    assert limit(values) == values[-1] + 3 * later
    # What rises evenly may go on for some time; what falls has no further to go.
    assert limit(steps.astype(float)) > 2 * steps[-1]
    assert limit(-steps.astype(float)) == 0.0
    assert limit(np.zeros(0)) == -np.inf


def test_trials_that_end_alike_are_tried_once():
    first, other, rejected = trial_of(40), trial_of(20), {}
    proposal = first.proposal._replace(name="another way")
    same = first._replace(proposal=proposal, state=state_where(39))
    found = _distinct([first, same, other], ROWS, rejected)
    assert [trial is one for trial, one in zip(found, (first, other), strict=True)] == [True] * 2
    assert list(rejected) == ["another way"]
