"""The race between starts, and when another start confirms a solution."""

import numpy as np
import pytest
from searched import solution_of

from dagp.inference.train import BLOCK, LoopState, Result
from dagp.search import race as module
from dagp.search.race import DROPPED, close_to, confirmed, improve, race
from dagp.search.settings import FIRST_STEPS, PATIENT_STEPS

HOME = np.eye(2)[np.repeat([0, 1], 50)]


def runner(kind, bound, points):
    """A start that ends at this bound, with so many points in the other process."""
    shares = HOME.copy()
    shares[:points] = 1 - shares[:points]
    return solution_of(shares, bound, kind, rungs=0, fate="running")


class Known:
    """A trainer of solutions whose bounds are known in advance."""

    def __init__(self):
        self.trained = []

    def together(self, pool, steps):
        for one in pool:
            self.trained.append((one.bound, steps))
            yield one, Result(one.state, one.bound, np.zeros(steps), "budget", 0.1)

    def train(self, state, steps, rate, stop):
        bound = self.of(state)
        self.trained.append((bound, steps))
        return Result(state, bound, np.zeros(steps), "budget", 0.1)

    def of(self, state):
        return self.ends[id(state)]

    def notify(self, _):
        pass

    def racing(self, field, ends=None):
        """The finalists of a race, which end at these bounds; by default where they are."""
        ends = [one.bound for one in field] if ends is None else ends
        self.ends = {id(one.state): end for one, end in zip(field, ends, strict=True)}
        return race(field, self)


def test_the_best_two_that_differ_are_trained_further():
    field = [runner("rank", bound, points) for bound, points in ((1, 20), (9, 0), (8, 0), (3, 40))]
    known = Known()
    assert [s.bound for s in known.racing(field)] == [9, 3]
    assert known.trained == [(b, FIRST_STEPS) for b in (1, 9, 8, 3)] + [
        (b, PATIENT_STEPS) for b in (9, 3)
    ]
    assert [s.fate for s in field] == [DROPPED, "finalist", DROPPED, "finalist"]
    assert [len(s.rungs) for s in field] == [1, 2, 1, 2]


def test_the_best_of_another_kind_goes_before_the_second_best():
    field = [runner("rank", 9.0, 0), runner("rank", 8.0, 20), runner("track", 1.0, 40)]
    assert [s.bound for s in Known().racing(field)] == [9.0, 1.0]
    # But not where it has found the same.
    field = [runner("rank", 9.0, 0), runner("rank", 8.0, 20), runner("track", 1.0, 0)]
    assert [s.bound for s in Known().racing(field)] == [9.0, 8.0]


def test_the_finalist_that_ends_higher_comes_first():
    field = [runner("rank", bound, points) for bound, points in ((9.0, 0), (8.0, 20))]
    assert [s.bound for s in Known().racing(field, [9.5, 12.0])] == [12.0, 9.5]


def test_one_start_is_a_race_too():
    (alone,) = Known().racing([runner("rank", 5.0, 0)])
    assert alone.fate == "finalist"
    assert [s.bound for s in Known().racing([runner("rank", b, 10) for b in (5.0, 6.0)])] == [6.0]


def test_training_ends_where_the_best_cannot_be_reached():
    """A finalist whose ELBO would level off further below than a tenth of a nat per data point."""
    rules = []

    class Asked(Known):
        def train(self, state, steps, rate, stop):
            rules.append(stop)
            return super().train(state, steps, rate, stop)

    Asked().racing([runner("rank", bound, points) for bound, points in ((100.0, 0), (90.0, 30))])
    rising = np.r_[-1e6, np.linspace(0.0, 30.0, BLOCK - 1)]
    for level, ends in ((-200.0, True), (40.0, False)):
        run = LoopState(None, None, level + 30.0, level + 30.0, 0.1, 0, 0, rising + level)
        assert rules[1](run) is ends


def test_a_finalist_far_behind_is_not_improved(monkeypatch):
    climbed = []
    monkeypatch.setattr(module, "climb", lambda solution, *_: climbed.append(solution))
    best, near, far, same = (
        runner("rank", bound, points)
        for bound, points in ((100.0, 0), (70.0, 30), (40.0, 30), (99.0, 0))
    )
    pool = [best, near, far, same]
    for one in pool:
        one.fate = "finalist"
    for one in pool:
        improve(one, pool, [], Known())
    # A tenth of a nat per data point, of at least 500; and not what has been improved already.
    assert climbed == [best, near]
    assert [one.climbed for one in pool] == [True, True, False, False]


@pytest.mark.parametrize(("points", "found"), [(4, True), (6, False)])
def test_a_solution_is_confirmed_by_another_start(points, found):
    pool = [runner("rank", 10.0, 0), runner("track", 9.0, points)]
    assert confirmed(pool) is found
    assert not confirmed(pool[:1])


@pytest.mark.parametrize(("behind", "points", "close"), [(49, 30, 2), (51, 30, 1), (49, 0, 1)])
def test_finalists_are_close_that_differ_and_are_not_far_behind(behind, points, close):
    best, other = runner("rank", 100.0, 0), runner("rank", 100.0 - behind, points)
    best.fate = other.fate = "finalist"
    assert len(close_to(best, [best, other])) == close
