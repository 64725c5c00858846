"""How far two solutions agree, how sure the search is, and which labels would decide."""

import itertools

import numpy as np
import pytest

from dagp.inference.train import State
from dagp.search.confidence import DOUBTED, Verdict, confidence, decisive_rows, support
from dagp.search.factory import Start
from dagp.search.race import Contender
from dagp.search.usage import agreement, matching


def hard(*members, K=None):
    return np.eye(K or max(members) + 1)[list(members)]


def contender(shares):
    return Contender(Start("rank", shares, 1.0, 0.1), State(None, shares, None))


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
    kept = contender(halves())
    others = [contender(halves(flip)) for flip in (8, 1, 4)]
    assert support(kept, [kept, *others], np.ones(20)) == pytest.approx(0.95)
    assert support(kept, [kept, others[0]], np.ones(20)) == pytest.approx(0.6)
    assert support(kept, [kept, contender(halves()[:, ::-1])], np.ones(20)) == 1.0


def test_a_start_does_not_support_itself():
    kept = contender(halves())
    assert support(kept, [kept], np.ones(20)) == 0.0
    assert support(kept, [], np.ones(20)) == 0.0


def test_support_counts_weights_and_no_padding():
    kept, other = contender(halves()), contender(halves(flip=1))
    weight = np.ones(20)
    weight[0] = 6.0
    assert support(kept, [other], weight) == pytest.approx(19 / 25)
    # Only row 0 is assigned differently; rows beyond the weights are padding.
    assert support(kept, [other], np.ones(4)) == pytest.approx(0.75)


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
