"""The race between starts, and when another start confirms a solution."""

import numpy as np
import pytest
from searched import solution_of

from dagp.inference.train import Result, State
from dagp.search import race as module
from dagp.search.race import close_to, confirmed, improve, race

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
            self.trained.append((one, steps))
            yield one, Result(one.state, one.bound, np.zeros(steps), "budget", 0.1)

    def train(self, state, steps, rate, stop):
        self.trained.append((state, steps))
        return Result(state, -1.0, np.zeros(steps), "budget", 0.1)

    def notify(self, _):
        pass


def test_the_best_of_each_kind_survives_the_first_rung():
    bounds = {"rank": (9.0, 8.0, 7.0, 6.0), "magnitude": (2.0, 1.0), "cluster": (3.0, 0.0)}
    field = [
        runner(kind, bound, 2 * int(bound)) for kind, values in bounds.items() for bound in values
    ]
    finalists = race(field, Known())
    assert [s.bound for s in finalists] == [9.0, 8.0]
    assert {s.bound for s in field if len(s.rungs) == 2} == {9.0, 8.0, 3.0, 2.0}
    assert sum(s.fate == "dropped after rung 1" for s in field) == 4
    assert [s.fate for s in finalists] == ["finalist"] * 2


def test_a_start_that_repeats_another_makes_way():
    repeats = [runner("rank", bound, 10) for bound in (9.0, 8.0, 7.0)]
    field = [*repeats, runner("rank", 3.0, 30), runner("rank", 2.0, 40), runner("rank", 1.0, 50)]
    assert [s.bound for s in race(field, Known())] == [9.0, 3.0]
    assert [len(s.rungs) for s in field] == [2, 1, 1, 2, 2, 1]
    # The race is over when one solution is left.
    assert race([runner("rank", b, 10) for b in (5.0, 6.0)], Known())[0].bound == 6.0


def test_later_rungs_are_longer():
    known = Known()
    race([runner("rank", bound, 10 * int(bound)) for bound in range(1, 6)], known)
    assert [steps for _, steps in known.trained] == [12] * 5 + [24] * 3


def test_a_finalist_far_behind_is_not_improved(monkeypatch):
    climbed = []
    monkeypatch.setattr(module, "climb", lambda solution, *_: climbed.append(solution))
    best, near, far, same = (
        runner("rank", bound, points)
        for bound, points in ((100.0, 0), (70.0, 30), (40.0, 30), (99.0, 0))
    )
    pool = [best, near, far, same]
    for one in pool:
        one.flat = True
        improve(one, pool, Known(), [])
    # A tenth of a nat per data point, of at least 500; and not what has been improved already.
    assert climbed == [best, near]
    assert [one.climbed for one in pool] == [True, True, False, False]


def test_a_solution_is_confirmed_by_another_one_now_or_after_more_training():
    best, other = runner("rank", 10.0, 0), runner("track", 9.0, 4)
    best.flat = True
    assert confirmed([best, other], Known())
    away = runner("track", 9.0, 20)
    known = Known()
    assert not confirmed([best, away], known)
    assert len(known.trained) == 1 and away.flat
    # Once is enough, and what was dropped at once is not trained again.
    assert not confirmed([best, away], known)
    dropped = runner("track", 9.0, 20)
    dropped.fate = "dropped after rung 1"
    assert not confirmed([best, dropped], known)
    assert len(known.trained) == 1

    class Arriving(Known):
        def train(self, state, steps, rate, stop):
            return Result(State(None, best.state.responsibilities, None), 9.5, np.zeros(1), "", 0.1)

    late = runner("track", 9.0, 20)
    assert confirmed([best, late], Arriving())


@pytest.mark.parametrize(("behind", "points", "close"), [(49, 30, 2), (51, 30, 1), (49, 0, 1)])
def test_finalists_are_close_that_differ_and_are_not_far_behind(behind, points, close):
    best, other = runner("rank", 100.0, 0), runner("rank", 100.0 - behind, points)
    best.fate = other.fate = "finalist"
    assert len(close_to(best, [best, other])) == close
