"""Moves: exchanges and mergers of two processes."""

import numpy as np
import pytest
from searched import view_of

from dagp.search.moves import annex, exchange, extend, gaps, meetings, merge, swap


def crossing(n=60):
    """Two lines that cross in the middle, a point on each at every x."""
    x = np.tile(np.linspace(-1.5, 1.5, n), 2)
    process = np.repeat([0, 1], n)
    y = np.where(process == 0, x, -x) + 0.02 * np.random.default_rng(0).standard_normal(2 * n)
    return x[:, None], y, process


def test_functions_meet_where_they_cross_and_where_they_nearly_touch():
    x = np.linspace(-2, 2, 81)
    means = [np.abs(x - 1) + 0.05, np.zeros_like(x), x + 1]
    seen = view_of(x[:, None], np.zeros_like(x), np.full((81, 3), 1 / 3), means, noise=0.02)
    np.testing.assert_allclose(meetings(seen, 0, 1), [1.0])
    np.testing.assert_allclose(meetings(seen, 1, 2), [-1.0])


def test_functions_that_coincide_do_not_meet_everywhere():
    x = np.linspace(-2, 2, 81)
    rough = 1e-9 * np.random.default_rng(0).random(81)
    flat = np.zeros_like(x)
    seen = view_of(x[:, None], flat, np.full((81, 3), 1 / 3), [flat, flat, rough], noise=0.02)
    assert len(meetings(seen, 0, 1)) <= 1
    assert 0 < len(meetings(seen, 0, 2)) <= 12


def test_merge_hands_everything_over():
    X, y, process = crossing()
    shares = np.eye(3)[process]
    (proposal,) = merge(view_of(X, y, shares, np.zeros((3, len(X)))))
    np.testing.assert_array_equal(proposal.responsibilities.sum(axis=1), 1.0)
    assert sorted(proposal.responsibilities.sum(axis=0)) == [0, 0, len(X)]


def test_annex_takes_only_where_functions_agree():
    X, y, _ = crossing()
    shares = np.full((len(X), 2), 0.5)
    means = np.stack([np.zeros(len(X)), np.where(X[:, 0] < 0, 0.0, 5.0)])
    left = X[:, 0] < 0
    for proposal in annex(view_of(X, y, shares, means)):
        np.testing.assert_array_equal(proposal.responsibilities[~left], 0.5)
        assert set(proposal.responsibilities[left].ravel().tolist()) == {0.0, 1.0}


def test_swap_trades_places_beyond_a_crossing():
    X, y, process = crossing()
    order = np.argsort(X[:, 0], kind="stable")
    X, y, process = X[order], y[order], process[order]
    means = np.stack([X[:, 0], -X[:, 0]])
    (proposal,) = swap(view_of(X, y, process, means))
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
    labels, means = np.where(np.arange(len(y)) == 0, label, -1), np.stack([place, -place])
    (proposal,) = swap(view_of(X, y, process, means, labels=labels, kinds=kinds, noise=0.1))
    changed = proposal.responsibilities.argmax(axis=1) != process
    apart = np.abs(place) > 0.05
    np.testing.assert_array_equal(changed[apart], (place[apart] > 0) == beyond)


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
    found = list(swap(view_of(X, y, held, means)))
    assert max(likeness(proposal, process) for proposal in found) > 0.95
    assert np.mean(held == process) < 0.6
    for proposal in found:
        assert proposal.touches == {0, 1}
        np.testing.assert_array_equal(proposal.responsibilities.sum(axis=1), 1.0)


def test_swap_finds_a_part_in_the_middle():
    rng = np.random.default_rng(1)
    X, process = rng.uniform(-1.5, 1.5, (500, 2)), rng.integers(2, size=500)
    height = np.hypot(*X.T) - 0.9
    y = np.where(process == 0, height, -height)
    means = [np.abs(height), -np.abs(height)]
    found = list(swap(view_of(X, y, (y < 0).astype(int), means)))
    assert max(likeness(proposal, process) for proposal in found) > 0.95


def test_swap_exchanges_responsibilities_row_by_row_and_leaves_other_processes_alone():
    X, y, _, _, means = crossing_planes()
    soft = np.random.default_rng(0).dirichlet([1, 1, 1], len(X))
    seen = view_of(X, y, soft, [*means, np.full(len(X), 9.0)])
    found = [proposal for proposal in swap(seen) if proposal.touches == {0, 1}]
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
    found = swap(view_of(X, y, held, [*means, np.zeros(len(X)), np.ones(len(X))]))
    assert {proposal.touches for proposal in found} == {
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
        max(likeness(proposal, process) for proposal in swap(seen))
        for seen in (view_of(X, y, held, means), view_of(X, y, held, means, weight=light))
    )
    assert even > 0.95
    assert uneven < 0.9


def test_swap_needs_two_functions_in_use():
    X, y, _, _, means = crossing_planes(60)
    assert list(swap(view_of(X, y, np.zeros(60, int), means))) == []
    # Clutter is no function.
    half = np.arange(60) % 2
    assert list(swap(view_of(X, y, half, means, clutter=(1,)))) == []


@pytest.mark.parametrize("n", [2, 6, 20])
def test_swap_of_a_few_or_equal_points_is_no_problem(n):
    half = np.arange(n) % 2
    for X in (np.zeros((n, 2)), np.random.default_rng(0).standard_normal((n, 2))):
        found = list(swap(view_of(X, np.zeros(n), half, np.zeros((2, n)))))
        assert bool(found) == (n == 20 and np.ptp(X) > 0)
        for proposal in found:
            np.testing.assert_array_equal(proposal.responsibilities.sum(axis=1), 1.0)
            assert 0 < np.sum(proposal.responsibilities.argmax(axis=1) != half) < n


def test_swap_measures_the_gap_by_all_outputs():
    X, y, process, held, means = crossing_planes()
    # An output that both functions share, before the one in which they cross.
    y, means = np.stack([X[:, 1], y], axis=1), [np.stack([X[:, 1], m], axis=1) for m in means]
    found = swap(view_of(X, y, held, means))
    assert max(likeness(proposal, process) for proposal in found) > 0.95


def test_processes_may_have_changed_places_in_a_gap():
    x = np.sort(np.r_[np.linspace(-1, -0.3, 60), np.linspace(0.3, 1, 60)])
    (middle,) = gaps(x)
    assert middle == pytest.approx(0.0)
    assert gaps(np.linspace(-1, 1, 50)) == []
    means = np.stack([np.ones(120), -np.ones(120)])
    member = np.arange(120) % 2
    seen = view_of(x[:, None], means[member, np.arange(120)], member, means)
    # The functions are far apart everywhere: they do not meet, but nobody saw them in the gap.
    assert list(swap(seen)) == []
    (proposal,) = exchange(seen)
    changed = proposal.responsibilities.argmax(axis=1) != member
    assert set(np.sign(x[changed]).tolist()) in ({-1.0}, {1.0})
    assert changed.sum() == 60


def surface_in_clutter(n=500, seed=0):
    """A surface, of which clutter holds the points beyond some input, and true clutter."""
    rng = np.random.default_rng(seed)
    X = rng.uniform(-1.5, 1.5, (n, 2))
    y, stray = 0.6 * X[:, 0] + 0.3 * X[:, 1], rng.uniform(size=n) < 0.15
    y[stray] = rng.uniform(-2, 2, stray.sum())
    off = np.abs(y - 0.6 * X[:, 0] - 0.3 * X[:, 1]) > 0.6
    return X, y + 0.02 * rng.standard_normal(n), stray, off, X[:, 0] > 0.5


def test_extend_leads_a_function_along_what_clutter_holds():
    X, y, stray, off, lost = surface_in_clutter()
    held = (stray | lost).astype(int)
    (proposal,) = extend(view_of(X, y, held, np.zeros((2, 500)), clutter=(1,)))
    assert proposal.name == "extend 0"
    assert proposal.touches == {0, 1}
    assert proposal.responsibilities[lost & ~stray, 0].mean() > 0.8
    assert proposal.responsibilities[off, 1].mean() > 0.8
    # What it had, it keeps.
    np.testing.assert_array_equal(proposal.responsibilities[held == 0, 0], 1.0)
    np.testing.assert_array_equal(proposal.responsibilities.sum(axis=1), 1.0)


def test_extend_gives_an_unused_function_what_lies_on_a_surface():
    X, y, stray, off, _ = surface_in_clutter()
    seen = view_of(X, y, np.full(500, 2), np.zeros((3, 500)), clutter=(2,))
    assert seen.used == []
    # One of the unused functions is enough.
    (proposal,) = extend(seen)
    assert proposal.touches == {0, 2}
    assert proposal.responsibilities[~stray, 0].mean() > 0.8
    assert proposal.responsibilities[off, 2].mean() > 0.8
    np.testing.assert_array_equal(proposal.responsibilities[:, 1], 0.0)


def test_extend_takes_from_every_kind_of_clutter_and_from_no_function():
    X, y, stray, _, lost = surface_in_clutter()
    soft = np.zeros((500, 4))
    soft[:, 0] = ~(stray | lost)
    soft[stray | lost] = [0.0, 0.2, 0.5, 0.3]
    found = list(extend(view_of(X, y, soft, np.zeros((4, 500)), clutter=(2, 3))))
    assert [proposal.name for proposal in found] == ["extend 0", "extend 1"]
    for proposal, taker, other in zip(found, (0, 1), (1, 0), strict=True):
        near = proposal.responsibilities[:, taker] > soft[:, taker]
        assert near.mean() > 0.1
        np.testing.assert_array_equal(proposal.responsibilities[near][:, 2:], 0.0)
        np.testing.assert_array_equal(proposal.responsibilities[~near], soft[~near])
        np.testing.assert_array_equal(proposal.responsibilities[:, other], soft[:, other])
        np.testing.assert_allclose(proposal.responsibilities.sum(axis=1), 1.0)


def test_extend_needs_clutter_that_weighs_something():
    X, y, stray, _, lost = surface_in_clutter(200)
    held = (stray | lost).astype(int)
    assert list(extend(view_of(X, y, held, np.zeros((2, 200))))) == []
    light = np.where(held == 1, 1e-4, 1.0)
    seen = view_of(X, y, held, np.zeros((2, 200)), clutter=(1,), weight=light)
    assert list(extend(seen)) == []
    none = np.zeros(200, int)
    assert list(extend(view_of(X, y, none, np.zeros((2, 200)), clutter=(1,)))) == []


def test_extend_proposes_nothing_where_clutter_lies_on_no_curve():
    # Every stray point at a place of its own, far from others.
    rng = np.random.default_rng(0)
    X = rng.uniform(-1.5, 1.5, (300, 2))
    stray = np.arange(300) % 60 == 0
    y = np.where(stray, 5.0 * (1 + np.arange(300)), 0.0)
    found = extend(view_of(X, y, stray.astype(int), np.zeros((2, 300)), clutter=(1,)))
    assert list(found) == []
