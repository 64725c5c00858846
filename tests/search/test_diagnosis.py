"""Doubts about a fit, other solutions, and the number of processes."""

import warnings

import numpy as np
import pytest

from dagp import DAGP, SearchWarning, datasets
from dagp.inference.train import State
from dagp.model.association import Batch
from dagp.search.diagnosis import agreement, other_solutions, review
from dagp.search.factory import Start
from dagp.search.race import Contender

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


def test_agreement_ignores_names_and_counts_weights():
    swapped = halves()[:, ::-1]
    assert agreement(halves(), swapped, np.ones(20)) == 1.0
    weight = np.ones(20)
    weight[0] = 6.0
    assert agreement(halves(), halves(flip=1), weight) == pytest.approx(19 / 25)


def test_other_solutions_are_told_from_the_same_one_found_again():
    ranking = [
        contender(halves(), 10.0, fate="kept"),
        contender(halves(flip=1), 9.0),
        contender(halves(flip=5), 7.0),
        contender(halves(flip=5), 8.0),
        contender(halves(flip=8), 9.5, rungs=1),
    ]
    support, others = other_solutions(ranking, np.ones(20))
    assert support == 2
    # Equal solutions are named once, with their best bound; one that was hardly trained, not.
    assert [other.bound for other in others] == [8.0]


def one_and_another(rival_bound, monkeypatch):
    """The review of a fit whose one rival has this bound, the fit having 100."""
    monkeypatch.setattr("dagp.search.diagnosis.quadrature_error", lambda *_: 0.5)
    monkeypatch.setattr("dagp.search.diagnosis._jitters", lambda *_: {})
    ranking = [contender(halves(), 100.0, fate="kept"), contender(halves(flip=5), rival_bound)]
    result = ranking[0].result()._replace(status="converged")
    (other,) = review(result, ranking, BATCH, np.ones(20))
    assert other is ranking[1]


def test_a_tie_is_reported(monkeypatch):
    with pytest.warns(SearchWarning, match="almost equally well.*100.00 and 99.95"):
        one_and_another(99.95, monkeypatch)


def test_a_solution_found_once_is_reported(monkeypatch):
    with pytest.warns(SearchWarning, match="Only one of 2 starts.*20.00 below"):
        one_and_another(80.0, monkeypatch)


def test_a_solution_found_again_is_not_doubted(monkeypatch):
    monkeypatch.setattr("dagp.search.diagnosis._jitters", lambda *_: {})
    ranking = [contender(halves(), 100.0, fate="kept"), contender(halves(), 90.0)]
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        result = ranking[0].result()._replace(status="converged")
        assert review(result, ranking, BATCH, np.ones(20)) == []
    assert caught == []


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
