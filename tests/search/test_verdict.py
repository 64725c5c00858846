"""How far solutions agree, how sure the search is, and which labels would decide."""

import itertools
import warnings
from types import SimpleNamespace

import numpy as np
import pytest
from searched import solution_of

from dagp import DAGP, SearchWarning, datasets, fitting
from dagp.search.settings import DOUBTED
from dagp.search.solution import Verdict, agreement, in_use, matching
from dagp.search.verdict import confidence, decisive_rows, judge, other_solutions, support


def hard(*members, K=None):
    return np.eye(K or max(members) + 1)[list(members)]


def halves(flip=0):
    """Two groups of ten rows, the first `flip` rows in the wrong one."""
    member = np.repeat([0, 1], 10)
    member[:flip] = 1
    return np.eye(2)[member]


@pytest.mark.parametrize("order", list(itertools.permutations(range(3))))
def test_processes_are_matched_whatever_they_are_called(order):
    first = hard(0, 0, 0, 1, 1, 2)
    # Column k of the second is column order[k] of the first.
    second = first[:, order]
    found = matching(first, second, np.ones(6))
    np.testing.assert_array_equal(second[:, found], first)
    assert agreement(first, second, np.ones(6)) == 1.0


def test_processes_are_matched_all_together():
    # One by one, process 0 would take its best match, 0, and leave a bad one to process 1.
    first = hard(*[0] * 5, *[1] * 4)
    second = hard(*[0] * 3, *[1] * 2, *[0] * 4)
    np.testing.assert_array_equal(matching(first, second, np.ones(9)), [1, 0])
    assert agreement(first, second, np.ones(9)) == pytest.approx(6 / 9)


def test_weights_decide_what_matches():
    first, second = hard(0, 0, 1), hard(0, 1, 1)
    assert agreement(first, second, np.array([1.0, 2.0, 5.0])) == pytest.approx(6 / 8)
    weight = np.array([1.0, 20.0, 5.0])
    np.testing.assert_array_equal(matching(first, second, weight), [1, 0])
    assert agreement(first, second, weight) == pytest.approx(20 / 26)


def test_processes_of_different_kinds_do_not_match():
    first, second = hard(0, 0, 0, 1, 2, 2), hard(2, 2, 2, 0, 1, 1)
    kinds = ["GP", "GP", "Noise"]
    np.testing.assert_array_equal(matching(first, second, np.ones(6)), [2, 0, 1])
    assert agreement(first, second, np.ones(6)) == 1.0
    # The clutter of both is the last one, although no row agrees.
    np.testing.assert_array_equal(matching(first, second, np.ones(6), kinds)[2], 2)
    assert agreement(first, second, np.ones(6), kinds) == pytest.approx(1 / 6)


def test_only_the_most_probable_process_counts():
    first = np.array([[0.6, 0.4], [0.3, 0.7]])
    assert agreement(first, hard(0, 1), np.ones(2)) == 1.0
    np.testing.assert_array_equal(matching(first, hard(1, 0), np.ones(2)), [1, 0])


def test_unused_processes_are_matched_with_what_is_left():
    found = matching(hard(0, 0, 1, K=4), hard(3, 3, 3, K=4), np.ones(3))
    assert found[0] == 3
    assert sorted(found.tolist()) == [0, 1, 2, 3]


def test_a_single_process_agrees_with_itself():
    assert agreement(np.ones((5, 1)), np.ones((5, 1)), np.ones(5)) == 1.0


def test_agreement_does_not_depend_on_which_comes_first():
    rng = np.random.default_rng(0)
    first, second, weight = rng.random((40, 3)), rng.random((40, 3)), rng.random(40)
    found = agreement(first, second, weight)
    assert found == pytest.approx(agreement(second, first, weight))
    # No worse than the best of three equal shares.
    assert 1 / 3 <= found < 1


def test_support_is_the_agreement_with_the_most_similar_start():
    kept = solution_of(halves())
    others = [solution_of(halves(flip)) for flip in (8, 1, 4)]
    assert support(kept, [kept, *others]) == pytest.approx(0.95)
    assert support(kept, [kept, others[0]]) == pytest.approx(0.6)
    assert support(kept, [kept, solution_of(halves()[:, ::-1])]) == 1.0


def test_a_start_does_not_support_itself():
    kept = solution_of(halves())
    assert support(kept, [kept]) == 0.0
    assert support(kept, []) == 0.0


def test_support_counts_weights_and_no_padding():
    weight = np.ones(20)
    assert support(solution_of(halves()), [solution_of(halves(flip=1))]) == pytest.approx(0.95)
    weight[0] = 6.0
    kept, other = solution_of(halves(), weight=weight), solution_of(halves(flip=1), weight=weight)
    assert support(kept, [other]) == pytest.approx(19 / 25)


def test_confidence_grows_with_the_share_and_the_lead():
    shares = [confidence(share, 10.0, 1.0) for share in (0.0, 0.5, 0.9, 0.95, 0.99, 0.999)]
    assert shares == sorted(set(shares))
    leads = [confidence(0.99, lead, 1.0) for lead in (-2.0, 0.0, 1.0, 3.0)]
    assert leads == sorted(set(leads))
    assert 0 < min(*shares, *leads) < max(*shares, *leads) < 1


def test_two_solutions_of_the_same_elbo_are_equally_probable():
    assert confidence(0.97, 0.0, 1.0) == pytest.approx(confidence(0.97, np.inf, 1.0) / 2)


def test_only_the_lead_in_units_of_its_margin_counts():
    assert confidence(0.97, 2.0, 1.0) == pytest.approx(confidence(0.97, 20.0, 10.0))
    assert confidence(0.97, 2.0, 1.0) > confidence(0.97, 2.0, 10.0)


@pytest.mark.parametrize("share", [0.0, 0.5, 1.0, 1.0 + 1e-12])
def test_confidence_is_a_probability_for_every_share(share):
    assert 0 < confidence(share, np.inf, 1.0) < 1
    assert confidence(share, -np.inf, 1.0) == 0.0


def test_low_confidence_is_doubted():
    assert Verdict(DOUBTED - 0.01).doubted
    assert not Verdict(DOUBTED).doubted
    # Without another start there is no reason for doubt.
    assert not Verdict(np.nan).doubted
    assert Verdict(0.9).rows == ()


def test_rows_that_decide_are_the_surest_of_each_group_that_moved():
    kept, rival = hard(0, 0, 0, 0, 1, 1, 1, 2, 2), hard(0, 0, 1, 1, 1, 1, 2, 2, 2)
    rival[2:4] = [[0.4, 0.6, 0.0], [0.1, 0.9, 0.0]]
    found = decisive_rows(kept, rival, np.ones(9))
    # Row 3 rather than 2 of those from 0 to 1, and the only one from 1 to 2; the largest first.
    assert found.tolist() == [3, 6]


def test_both_solutions_must_be_sure_of_a_decisive_row():
    kept, rival = hard(*[0] * 6, *[1] * 6), hard(*[0] * 4, *[1] * 8)
    kept[4] = [0.6, 0.4]
    rival[5] = [0.3, 0.7]
    assert decisive_rows(kept, rival, np.ones(12)).tolist() == [5]
    rival[5] = [0.45, 0.55]
    assert decisive_rows(kept, rival, np.ones(12)).tolist() == [4]


def test_decisive_rows_do_not_depend_on_names():
    kept, rival = hard(*[0] * 5, *[1] * 5), hard(*[0] * 4, *[1] * 6)
    found = decisive_rows(kept, rival, np.ones(10))
    assert found.tolist() == [4]
    np.testing.assert_array_equal(decisive_rows(kept, rival[:, ::-1], np.ones(10)), found)


def test_the_heaviest_group_comes_first_and_groups_without_weight_do_not_come():
    kept, rival = hard(*[0] * 5, *[1] * 5, K=2), hard(*[0] * 3, 1, 1, *[1] * 4, 0)
    assert decisive_rows(kept, rival, np.ones(10)).tolist() == [3, 9]
    weight = np.ones(10)
    weight[9] = 3.0
    assert decisive_rows(kept, rival, weight).tolist() == [9, 3]
    weight[9] = 0.0
    assert decisive_rows(kept, rival, weight).tolist() == [3]


def test_at_most_three_rows_are_asked_for():
    member = np.repeat(np.arange(5), 10)
    other = member.copy()
    # Six groups move, of one to two rows.
    for row, to in ((0, 1), (1, 2), (10, 0), (20, 3), (21, 3), (30, 4)):
        other[row] = to
    found = decisive_rows(np.eye(5)[member], np.eye(5)[other], np.ones(50))
    assert found.tolist() == [20, 0, 1]


@pytest.mark.parametrize("K", [1, 3])
def test_equal_solutions_leave_nothing_to_decide(K):
    kept = np.eye(K)[np.arange(6) % K]
    found = decisive_rows(kept, kept, np.ones(6))
    assert found.shape == (0,)
    assert found.dtype.kind == "i"


def test_other_solutions_are_told_from_the_same_one_found_again():
    pool = [
        solution_of(halves(), 10.0),
        solution_of(halves(flip=1), 9.0),
        solution_of(halves(flip=5), 7.0),
        solution_of(halves(flip=5), 8.0),
        solution_of(halves(flip=8), 9.5, rungs=1),
    ]
    others = other_solutions(pool[0], pool)
    # Equal solutions are named once, with their best bound; one that was hardly trained, not.
    assert [other.bound for other in others] == [8.0]


def judged(monkeypatch, *others):
    """The verdict on a fit of ELBO 100, given its other starts, and those of other solutions."""
    monkeypatch.setattr("dagp.search.verdict.quadrature_error", lambda *_: 0.5)
    kept = solution_of(halves(), 100.0)
    kept.state = kept.state._replace(model=SimpleNamespace())
    for other in others:
        other.state = other.state._replace(model=SimpleNamespace())
    return judge(kept, [kept, *others], None)


def test_a_solution_found_again_is_not_doubted(monkeypatch):
    verdict, others = judged(monkeypatch, solution_of(halves(), 90.0))
    assert others == []
    assert verdict.confidence > 0.95
    assert not verdict.doubted


def test_a_solution_found_once_is_doubted(monkeypatch):
    verdict, (other,) = judged(monkeypatch, solution_of(halves(flip=5), 80.0))
    assert other.bound == 80.0
    assert verdict.doubted
    # A label of any of the rows that moved would decide.
    assert set(verdict.rows) <= set(range(5))
    assert verdict.rows


def test_a_tie_is_doubted_although_both_were_found_again(monkeypatch):
    both = [solution_of(halves(), 99.0), solution_of(halves(flip=5), 99.95)]
    verdict, _ = judged(monkeypatch, *both)
    clear, _ = judged(monkeypatch, both[0], both[1], solution_of(halves(flip=5), 50.0))
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
        best=solution_of(halves(), 10.0),
        pool=[None],
        others=[solution_of(halves(flip=5), bound)],
    )
    model = SimpleNamespace(confidence_=0.5, alternatives_=[None], joints_=[])
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
