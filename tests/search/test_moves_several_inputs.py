"""Moves for functions of several inputs, and those among clutter."""

import numpy as np
import pytest
from scipy.stats import norm

from dagp.inference.standardize import Sample, label_log_mask
from dagp.search import moves


def view(X, y, member, means, *, noise=0.05, variances=0.0, weight=None, labels=None, clutter=()):
    """A model with these functions; `member` are processes of rows, or responsibilities."""
    y = np.reshape(y, (len(X), -1))
    N, P = y.shape
    labels = np.full(N, -1) if labels is None else labels
    weight = np.ones(N) if weight is None else weight
    means = np.reshape(np.asarray(means, float), (-1, N, P))
    K = len(means)
    variances = np.broadcast_to(variances, means.shape).astype(float)
    density = np.sum(norm.logpdf(y, means, noise) - variances / noise**2 / 2, axis=2).T
    density[:, list(clutter)] = -P * np.log(4.0)
    log_joint = density - np.log(K) + label_log_mask(labels, K)
    return moves.View(
        Sample(X, y, weight, labels),
        np.eye(K)[member] if np.ndim(member) == 1 else member,
        means,
        variances,
        np.full((K, P), noise),
        log_joint,
        [k for k in range(K) if k not in clutter],
        [k for k in range(K) if k not in clutter],
    )


def crossing_planes(n=400, seed=0):
    """Two planes that cross where the first input is zero, held as the upper and the lower one."""
    rng = np.random.default_rng(seed)
    X, process = rng.uniform(-1.5, 1.5, (n, 2)), rng.integers(2, size=n)
    y = np.where(process == 0, X[:, 0], -X[:, 0]) + 0.02 * rng.standard_normal(n)
    return X, y, process, (y < 0).astype(int), [np.abs(X[:, 0]), -np.abs(X[:, 0])]


def likeness(proposal, process):
    same = np.mean(proposal.responsibilities.argmax(axis=1) == process)
    return max(same, 1 - same)


def test_swap_untangles_planes_that_cross():
    X, y, process, held, means = crossing_planes()
    found = list(moves.swap(view(X, y, held, means)))
    assert max(likeness(proposal, process) for proposal in found) > 0.95
    assert np.mean(held == process) < 0.6
    for proposal in found:
        assert proposal.processes == {0, 1}
        np.testing.assert_array_equal(proposal.responsibilities.sum(axis=1), 1.0)


def test_swap_finds_a_part_in_the_middle():
    rng = np.random.default_rng(1)
    X, process = rng.uniform(-1.5, 1.5, (500, 2)), rng.integers(2, size=500)
    height = np.hypot(*X.T) - 0.9
    y = np.where(process == 0, height, -height)
    means = [np.abs(height), -np.abs(height)]
    found = list(moves.swap(view(X, y, (y < 0).astype(int), means)))
    assert max(likeness(proposal, process) for proposal in found) > 0.95


def test_swap_exchanges_responsibilities_row_by_row_and_leaves_other_processes_alone():
    X, y, _, _, means = crossing_planes()
    soft = np.random.default_rng(0).dirichlet([1, 1, 1], len(X))
    seen = view(X, y, soft, [*means, np.full(len(X), 9.0)])
    found = [proposal for proposal in moves.swap(seen) if proposal.processes == {0, 1}]
    assert found
    for proposal in found:
        changed = np.any(proposal.responsibilities != soft, axis=1)
        np.testing.assert_array_equal(
            proposal.responsibilities[changed], soft[changed][:, [1, 0, 2]]
        )
        assert 0 < changed.sum() < len(X)


def test_swap_tries_every_pair_that_is_used():
    X, y, _, held, means = crossing_planes()
    held[:100] = 2
    found = moves.swap(view(X, y, held, [*means, np.zeros(len(X)), np.ones(len(X))]))
    assert {proposal.processes for proposal in found} == {
        frozenset(pair) for pair in ((0, 1), (0, 2), (1, 2))
    }


def test_swap_exchanges_nothing_where_one_of_the_two_has_no_weight():
    rng = np.random.default_rng(0)
    X, process = rng.uniform(-1.5, 1.5, (400, 2)), rng.integers(2, size=400)
    height = X[:, 0] - 0.6
    y, means = np.where(process == 0, height, -height), [np.abs(height), -np.abs(height)]
    held = (y < 0).astype(int)
    # Process 1 has weight on the larger side only, so there is nothing to exchange on the other.
    light = np.where((held == 1) & (height > 0), 1e-9, 1.0)
    even, uneven = (
        max(likeness(proposal, process) for proposal in moves.swap(seen))
        for seen in (view(X, y, held, means), view(X, y, held, means, weight=light))
    )
    assert even > 0.95
    assert uneven < 0.9


def test_swap_needs_two_functions_in_use():
    X, y, _, _, means = crossing_planes(60)
    assert list(moves.swap(view(X, y, np.zeros(60, int), means))) == []
    # Clutter is no function.
    half = np.arange(60) % 2
    assert list(moves.swap(view(X, y, half, means, clutter=(1,)))) == []


@pytest.mark.parametrize("n", [2, 6, 20])
def test_swap_of_a_few_or_equal_points_is_no_problem(n):
    half = np.arange(n) % 2
    for X in (np.zeros((n, 2)), np.random.default_rng(0).standard_normal((n, 2))):
        found = list(moves.swap(view(X, np.zeros(n), half, np.zeros((2, n)))))
        assert bool(found) == (n == 20 and np.ptp(X) > 0)
        for proposal in found:
            np.testing.assert_array_equal(proposal.responsibilities.sum(axis=1), 1.0)
            assert 0 < np.sum(proposal.responsibilities.argmax(axis=1) != half) < n


def test_swap_measures_the_gap_by_all_outputs():
    X, y, process, held, means = crossing_planes()
    # An output that both functions share, before the one in which they cross.
    y, means = np.stack([X[:, 1], y], axis=1), [np.stack([X[:, 1], m], axis=1) for m in means]
    found = moves.swap(view(X, y, held, means))
    assert max(likeness(proposal, process) for proposal in found) > 0.95


def test_predictive_densities_are_broad_where_a_function_is_unknown():
    rng = np.random.default_rng(0)
    X, y, means = rng.standard_normal((30, 2)), rng.standard_normal((30, 2)), np.zeros((3, 30, 2))
    means[1] = rng.standard_normal((30, 2))
    variances = rng.uniform(0.0, 2.0, (3, 30, 2))
    seen = view(X, y, np.zeros(30, int), means, noise=0.3, variances=variances, clutter=(2,))
    before = seen.log_joint.copy()
    found = seen.log_predictive()
    for k in range(2):
        density = norm.logpdf(y, means[k], np.sqrt(variances[k] + 0.3**2)).sum(axis=1)
        np.testing.assert_allclose(found[:, k], density - np.log(3))
    np.testing.assert_array_equal(found[:, 2], before[:, 2])
    np.testing.assert_array_equal(seen.log_joint, before)


def test_where_a_function_is_known_its_densities_do_not_change():
    X, y, _, held, means = crossing_planes(50)
    seen = view(X, y, held, means)
    np.testing.assert_allclose(seen.log_predictive(), seen.log_joint)


def test_temper_is_less_decided_at_higher_temperatures():
    X, y, _, held, means = crossing_planes(100)
    found = list(moves.temper(view(X, y, held, means, variances=0.01)))
    assert [proposal.name for proposal in found] == [f"temper at {t}" for t in (1, 10, 30)]
    sure = [proposal.responsibilities.max(axis=1).mean() for proposal in found]
    assert sure[0] > sure[1] > sure[2] > 0.5
    for proposal in found:
        np.testing.assert_allclose(proposal.responsibilities.sum(axis=1), 1.0)
        assert proposal.processes == {0, 1}
        assert proposal.keeps_gate


def test_temper_assigns_by_predictive_densities():
    X, y, _, held, means = crossing_planes(100)
    seen = view(X, y, held, means, variances=0.3)
    joint = np.exp(seen.log_predictive())
    first = next(moves.temper(seen)).responsibilities
    np.testing.assert_allclose(first, joint / joint.sum(axis=1, keepdims=True), rtol=1e-6)


def test_temper_returns_points_to_a_function_that_has_lost_its_way():
    # Where the first input is positive the function knows nothing, and clutter holds the points.
    X = np.random.default_rng(0).uniform(-1.5, 1.5, (200, 2))
    y, lost = np.sin(X[:, 0]), X[:, 0] > 0
    means = [np.where(lost, 0.0, y), np.zeros(200)]
    variances = np.stack([np.where(lost, 1.0, 1e-4), np.zeros(200)])[:, :, None]
    seen = view(X, y, lost.astype(int), means, variances=variances, clutter=(1,))
    assert np.all(seen.log_joint[lost].argmax(axis=1) == 1)
    first = next(moves.temper(seen)).responsibilities
    assert first[lost, 0].min() > 0.4


def test_temper_obeys_labels():
    X, y, process, held, means = crossing_planes(100)
    # Some, against all evidence; then all.
    for labels in (np.where(np.arange(100) < 30, 1 - held, -1), process):
        known = labels >= 0
        for proposal in moves.temper(view(X, y, held, means, labels=labels)):
            np.testing.assert_array_equal(
                proposal.responsibilities[known], np.eye(2)[labels[known]]
            )


def surface_in_clutter(n=500, seed=0):
    """A surface, of which clutter holds the points beyond some input, and true clutter."""
    rng = np.random.default_rng(seed)
    X = rng.uniform(-1.5, 1.5, (n, 2))
    y, stray = 0.6 * X[:, 0] + 0.3 * X[:, 1], rng.uniform(size=n) < 0.15
    y[stray] = rng.uniform(-2, 2, stray.sum())
    off = np.abs(y - 0.6 * X[:, 0] - 0.3 * X[:, 1]) > 0.6
    return X, y + 0.02 * rng.standard_normal(n), stray, off, X[:, 0] > 0.5


def extended(seen, move=moves.extend, width=moves.WIDTH):
    """Proposals of `extend` or `redirect` along modes of this width."""
    return [proposal for proposal in move(seen) if proposal.name.endswith(f" {width:g}")]


def test_extend_leads_a_function_through_points_that_clutter_holds():
    X, y, stray, off, lost = surface_in_clutter()
    held = (stray | lost).astype(int)
    (proposal,) = extended(view(X, y, held, np.zeros((2, 500)), clutter=(1,)))
    assert proposal.name == "extend 0 within 0.15"
    assert proposal.processes == {0, 1}
    assert proposal.responsibilities[lost & ~stray, 0].mean() > 0.8
    assert proposal.responsibilities[off, 1].mean() > 0.8
    # What it had, it keeps.
    np.testing.assert_array_equal(proposal.responsibilities[held == 0, 0], 1.0)
    np.testing.assert_array_equal(proposal.responsibilities.sum(axis=1), 1.0)


def test_extend_gives_an_unused_function_what_lies_on_a_surface():
    X, y, stray, off, _ = surface_in_clutter()
    seen = view(X, y, np.full(500, 2), np.zeros((3, 500)), clutter=(2,))
    assert seen.used == []
    # One of the unused functions is enough.
    (proposal,) = extended(seen)
    assert proposal.processes == {0, 2}
    assert proposal.responsibilities[~stray, 0].mean() > 0.8
    assert proposal.responsibilities[off, 2].mean() > 0.8
    np.testing.assert_array_equal(proposal.responsibilities[:, 1], 0.0)


def test_extend_takes_from_every_kind_of_clutter_and_from_no_function():
    X, y, stray, _, lost = surface_in_clutter()
    soft = np.zeros((500, 4))
    soft[:, 0] = ~(stray | lost)
    soft[stray | lost] = [0.0, 0.2, 0.5, 0.3]
    found = extended(view(X, y, soft, np.zeros((4, 500)), clutter=(2, 3)))
    assert [proposal.name for proposal in found] == ["extend 0 within 0.15", "extend 1 within 0.15"]
    for proposal, taker, other in zip(found, (0, 1), (1, 0), strict=True):
        near = proposal.responsibilities[:, taker] > soft[:, taker]
        assert near.mean() > 0.1
        np.testing.assert_array_equal(proposal.responsibilities[near][:, 2:], 0.0)
        np.testing.assert_array_equal(proposal.responsibilities[~near], soft[~near])
        np.testing.assert_array_equal(proposal.responsibilities[:, other], soft[:, other])
        np.testing.assert_allclose(proposal.responsibilities.sum(axis=1), 1.0)


def test_extend_keeps_to_what_a_function_holds():
    # Clutter holds more of the lower plane, but the function half of the upper one.
    X = np.random.default_rng(0).uniform(-1.5, 1.5, (400, 2))
    upper, mine = np.arange(400) % 5 < 3, np.arange(400) % 5 == 0
    y = np.where(upper, 1.0, -1.0) + 0.2 * X[:, 0]
    weight = np.where(upper, 1.0, 1.5)
    held = np.where(mine, 0, 1)
    seen = view(X, y, held, np.zeros((2, 400)), clutter=(1,), weight=weight)
    (proposal,) = extended(seen)
    assert proposal.responsibilities[upper, 0].mean() > 0.9
    assert proposal.responsibilities[~upper, 0].mean() < 0.2


def test_extend_follows_several_outputs():
    X, y, stray, off, lost = surface_in_clutter()
    y = np.stack([y, np.where(off, 2.0, -0.5 * X[:, 1])], axis=1)
    held = (stray | lost).astype(int)
    (proposal,) = extended(view(X, y, held, np.zeros((2, 500, 2)), clutter=(1,)))
    assert proposal.responsibilities[lost & ~stray, 0].mean() > 0.7
    assert proposal.responsibilities[off, 1].mean() > 0.9


def test_extend_needs_clutter_that_weighs_something():
    X, y, stray, _, lost = surface_in_clutter(200)
    held = (stray | lost).astype(int)
    assert list(moves.extend(view(X, y, held, np.zeros((2, 200))))) == []
    light = np.where(held == 1, 1e-4, 1.0)
    assert (
        list(moves.extend(view(X, y, held, np.zeros((2, 200)), clutter=(1,), weight=light))) == []
    )
    none = np.zeros(200, int)
    assert list(moves.extend(view(X, y, none, np.zeros((2, 200)), clutter=(1,)))) == []


def test_extend_proposes_nothing_where_clutter_is_far_from_every_function():
    # Every stray point at a place of its own, far from others and from the function.
    rng = np.random.default_rng(0)
    X = rng.uniform(-1.5, 1.5, (300, 2))
    stray = np.arange(300) % 60 == 0
    y = np.where(stray, 5.0 * (1 + np.arange(300)), 0.0)
    found = moves.extend(view(X, y, stray.astype(int), np.zeros((2, 300)), clutter=(1,)))
    assert list(found) == []


def test_extend_proposes_the_same_every_time():
    X, y, stray, _, lost = surface_in_clutter(200)
    seen = view(X, y, (stray | lost).astype(int), np.zeros((2, 200)), clutter=(1,))
    one, again = (next(moves.extend(seen)).responsibilities for _ in range(2))
    np.testing.assert_array_equal(one, again)


def plateau_and_level(n=400, seed=0):
    """A level and a plateau above its right half, of one function; clutter holds the right of the
    level. Another function holds nothing there, but predicts the plateau."""
    X = np.sort(np.random.default_rng(seed).uniform(-1.5, 1.5, (n, 1)), axis=0)
    right = X[:, 0] > 0
    plateau = right & (np.arange(n) % 2 == 0)
    y = np.where(plateau, 1.0, -1.0) + 0.003 * np.random.default_rng(1).standard_normal(n)
    held = np.where(right & ~plateau, 2, 0)
    means = [np.where(right, 1.0, -1.0), np.ones(n), np.zeros(n)]
    return view(X, y, held, means, variances=[[[0.0]], [[0.2]], [[0.0]]], clutter=(2,)), plateau


def test_redirect_lets_a_function_leave_points_for_others_that_clutter_holds():
    seen, plateau = plateau_and_level()
    found = list(moves.redirect(seen))
    best = max(found, key=lambda one: one.responsibilities[~plateau, 0].mean())
    assert best.responsibilities[~plateau, 0].mean() > 0.9
    # The plateau goes to the function that predicts it.
    assert best.responsibilities[plateau, 1].mean() > 0.7
    assert best.processes == {0, 1, 2}
    np.testing.assert_allclose(best.responsibilities.sum(axis=1), 1.0)
    # To keep the plateau is to keep away from the level.
    for proposal in moves.extend(seen):
        assert proposal.responsibilities[plateau, 0].min() == 1.0


def test_redirect_is_for_functions_that_hold_something():
    X, y, *_ = surface_in_clutter()
    seen = view(X, y, np.full(500, 2), np.zeros((3, 500)), clutter=(2,))
    assert list(moves.redirect(seen)) == []


def test_reach_hands_over_the_points_that_a_function_could_explain_best():
    X, y, process, _, _ = crossing_planes(100)
    means = np.stack([X[:, 0], -X[:, 0]])
    held, far = process.copy(), np.argsort(-np.abs(X[:, 0]))
    wrong = far[process[far] == 0][0]
    held[wrong] = 1
    # Unsure there, the first function excludes the point by its expected density.
    variances = np.zeros((2, 100, 1))
    variances[0, wrong] = 1.0
    seen = view(X, y, held, means, variances=variances)
    found = [one for one in moves.reach(seen) if one.name.endswith("by 0")]
    assert found[0].name == f"reach {wrong} by 0"
    assert found[0].processes == {0, 1}
    assert found[0].keeps_gate
    for proposal in moves.reach(seen):
        changed = np.flatnonzero(np.any(proposal.responsibilities != seen.responsibilities, axis=1))
        assert len(changed) == 1
        np.testing.assert_array_equal(proposal.responsibilities.sum(axis=1), 1.0)


def test_reach_obeys_labels():
    X, y, _, held, means = crossing_planes(60)
    seen = view(X, y, held, means, labels=held)
    assert list(moves.reach(seen)) == []
    some = np.where(np.arange(60) < 58, held, -1)
    for proposal in moves.reach(view(X, y, held, means, labels=some)):
        changed = np.any(proposal.responsibilities != seen.responsibilities, axis=1)
        assert np.flatnonzero(changed)[0] >= 58


def test_redirect_obeys_labels():
    seen, plateau = plateau_and_level()
    labels = np.where(plateau & (np.arange(400) % 3 == 0), 0, -1)
    means = seen.means[:, :, 0]
    held = seen.responsibilities.argmax(axis=1)
    again = view(
        seen.sample.X,
        seen.sample.y,
        held,
        means,
        variances=seen.variances,
        labels=labels,
        clutter=(2,),
    )
    for proposal in moves.redirect(again):
        np.testing.assert_array_equal(proposal.responsibilities[labels == 0, 0], 1.0)
