"""Doubts about a fit, other solutions, and the number of processes."""

import warnings
from types import SimpleNamespace

import numpy as np
import pytest

from dagp import DAGP, SearchWarning, datasets, fitting
from dagp.inference.train import State
from dagp.model.association import Batch
from dagp.search.confidence import Verdict
from dagp.search.diagnosis import judge, other_solutions
from dagp.search.factory import Start
from dagp.search.race import Contender
from dagp.search.usage import in_use

BATCH = Batch(np.zeros((20, 1)), np.zeros((20, 1)), np.ones(20), np.zeros((20, 2)))


def contender(shares, bound, rungs=2, fate="finalist"):
    start = Start("rank", shares, 1.0, 0.1)
    found = Contender(start, State(None, shares, None), bound, rungs=[bound] * rungs)
    found.fate = fate
    return found


def halves(flip=0):
    """Two equal groups of ten points, the first `flip` of them in the wrong one."""
    member = np.repeat([0, 1], 10)
    member[:flip] = 1
    return np.eye(2)[member]


def test_other_solutions_are_told_from_the_same_one_found_again():
    ranking = [
        contender(halves(), 10.0, fate="kept"),
        contender(halves(flip=1), 9.0),
        contender(halves(flip=5), 7.0),
        contender(halves(flip=5), 8.0),
        contender(halves(flip=8), 9.5, rungs=1),
    ]
    others = other_solutions(ranking, np.ones(20))
    # Equal solutions are named once, with their best bound; one that was hardly trained, not.
    assert [other.bound for other in others] == [8.0]


def judged(monkeypatch, *others):
    """The verdict on a fit of ELBO 100, given its other starts, and those of other solutions."""
    monkeypatch.setattr("dagp.search.diagnosis.quadrature_error", lambda *_: 0.5)
    return judge([contender(halves(), 100.0, fate="kept"), *others], BATCH, np.ones(20))


def test_a_solution_found_again_is_not_doubted(monkeypatch):
    verdict, others = judged(monkeypatch, contender(halves(), 90.0))
    assert others == []
    assert verdict.confidence > 0.95
    assert not verdict.doubted


def test_a_solution_found_once_is_doubted(monkeypatch):
    verdict, (other,) = judged(monkeypatch, contender(halves(flip=5), 80.0))
    assert other.bound == 80.0
    assert verdict.doubted
    # A label of any of the rows that moved would decide.
    assert set(verdict.rows) <= set(range(5))
    assert verdict.rows


def test_a_tie_is_doubted_although_both_were_found_again(monkeypatch):
    both = [contender(halves(), 99.0), contender(halves(flip=5), 99.95)]
    verdict, _ = judged(monkeypatch, *both)
    clear, _ = judged(monkeypatch, both[0], both[1], contender(halves(flip=5), 50.0))
    assert verdict.doubted
    assert verdict.confidence < 0.6
    assert clear.confidence == verdict.confidence


def test_one_start_cannot_be_judged(monkeypatch):
    verdict, others = judged(monkeypatch)
    assert np.isnan(verdict.confidence)
    assert not verdict.doubted
    assert others == []


@pytest.mark.parametrize(
    ("bound", "words"),
    [(7.5, "ELBO is 2.50 lower."), (12.0, "ELBO is 2.00 higher, but less simple.")],
)
def test_a_doubt_tells_which_solution_has_the_higher_elbo(bound, words):
    """Where a solution was simplified, the other one may have the higher ELBO."""
    found = SimpleNamespace(
        verdict=Verdict(0.5, (0,)),
        ranking=[contender(halves(), 10.0)],
        rivals=[(contender(halves(flip=5), bound), None)],
    )
    model = SimpleNamespace(confidence_=0.5, alternatives_=[None])
    given, data = SimpleNamespace(name=str), SimpleNamespace(inverse=np.arange(20))
    told = fitting._doubt(model, found, data, given)
    assert "those of rows 0 would decide between it and alternatives_[0]" in told
    assert told.endswith(words)


def test_a_process_that_one_point_needs_is_in_use():
    sure = np.array([[1.0, 0.0]] * 189 + [[0.0, 1.0]])
    np.testing.assert_array_equal(in_use(sure, np.ones(190)), [True, True])
    # One that could as well be left out is not.
    unsure = np.array([[1.0, 0.0]] * 189 + [[0.4, 0.6]])
    np.testing.assert_array_equal(in_use(unsure, np.ones(190)), [True, False])


@pytest.fixture(scope="module")
def found():
    """Two curves that cross once, their number not told."""
    data = datasets.crossings(2, 1, n=60, random_state=0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", SearchWarning)
        model = DAGP("auto", inducing=12, n_init=5, tol=1e-3, random_state=0).fit(data.X, data.y)
    return data, model


def test_the_number_of_processes_is_found(found):
    data, model = found
    np.testing.assert_array_equal(model.active_, [True, True])
    assert len(model.processes_) == model.responsibilities_.shape[1] == 2
    right = np.mean(model.assignment_[data.separable] == data.process[data.separable])
    assert max(right, 1 - right) > 0.97


def test_the_table_of_starts_is_in_the_verbose_summary(found):
    _, model = found
    text = model.summary(verbose=True)
    assert text.startswith(model.summary())
    for row in model.restarts_:
        assert f"{row['bound']:.2f}" in text
        assert row["fate"] in text


def test_alternatives_are_models_of_their_own(found):
    data, model = found
    for other in model.alternatives_:
        assert other.lower_bound_ < model.restarts_[0]["bound"]
        assert other.predict(data.X_test).shape == (len(data.X_test),)
        assert other.alternatives_ == []


def test_labels_need_a_number_of_processes():
    X = np.linspace(0, 1, 30)[:, None]
    with pytest.raises(ValueError, match="auto"):
        DAGP("auto").fit(X, X[:, 0], labels=np.zeros(30, int))
