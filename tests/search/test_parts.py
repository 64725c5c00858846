"""Parts of the inputs that meetings of two functions enclose."""

import numpy as np
import pytest
from scipy.sparse.linalg import ArpackNoConvergence

from dagp.search import moves as module
from dagp.search.moves import parts

POINTS = np.random.default_rng(0).uniform(-1, 1, (400, 2))


def likeness(found, expected):
    """Share of the points on the same side as expected, for the best of the parts."""
    same = [np.mean(part == expected) for part in found]
    return max((max(share, 1 - share) for share in same), default=0.0)


def test_a_line_separates_its_two_sides():
    found = list(parts(POINTS, np.abs(POINTS[:, 0] - 0.2), 0.01))
    assert likeness(found, POINTS[:, 0] > 0.2) > 0.97


def test_a_ring_separates_what_is_inside():
    radius = np.hypot(*POINTS.T)
    found = list(parts(POINTS, np.abs(radius - 0.6), 0.01))
    assert likeness(found, radius < 0.6) > 0.95


def test_two_lines_separate_quarters():
    points = np.random.default_rng(1).uniform(-1, 1, (1500, 2))
    found = list(parts(points, np.abs(points[:, 0] * points[:, 1]), 0.01))
    quarters = [np.all(points * [a, b] > 0, axis=1) for a in (-1, 1) for b in (-1, 1)]
    # Three of them, in any order, make every exchange possible.
    assert sum(likeness(found, quarter) > 0.95 for quarter in quarters) >= 3


def test_a_line_with_an_opening_is_cut_there():
    # Both sides hang together through the opening: no island.
    x, y = POINTS.T
    gap = np.where(np.abs(y - 0.1) < 0.2, 1.0, np.abs(x))
    assert likeness(module._islands(POINTS, gap), x > 0) < 0.9
    assert likeness(parts(POINTS, gap, 0.01), x > 0) > 0.9


def test_planes_separate_three_inputs():
    points = np.random.default_rng(0).uniform(-1, 1, (500, 3))
    level = points @ [0.8, 0.6, 0.0]
    assert likeness(parts(points, np.abs(level), 0.01), level > 0) > 0.93


def test_parts_differ_from_each_other_and_from_their_complements():
    for gap in (np.abs(POINTS[:, 0]), np.abs(POINTS[:, 0] * POINTS[:, 1]), np.ones(400)):
        found = list(parts(POINTS, gap, 0.01))
        assert len(found) > 1
        for index, part in enumerate(found):
            assert part.shape == (400,)
            assert part.dtype == bool
            assert likeness(found[:index], part) < 0.9


@pytest.mark.parametrize("least", [0.01, 0.2, 0.35])
def test_neither_side_of_a_part_is_smaller_than_asked(least):
    gap = np.abs(np.hypot(*POINTS.T) - 0.6)
    found = list(parts(POINTS, gap, least))
    assert all(least <= part.mean() <= 1 - least for part in found)
    # The disc has 28 % of the square.
    assert (likeness(found, np.hypot(*POINTS.T) < 0.6) > 0.95) == (least < 0.28)


def test_no_part_has_half_of_an_odd_number_of_points():
    assert list(parts(POINTS[:99], np.abs(POINTS[:99, 0]), 0.5)) == []


def test_the_unit_of_the_gap_does_not_matter():
    gap = np.abs(POINTS[:, 0] * POINTS[:, 1])
    one, other = (list(parts(POINTS, unit * gap, 0.01)) for unit in (1.0, 1024.0))
    assert likeness(one, one[0]) == 1.0
    assert all(likeness(other, part) > 0.95 for part in one)


def test_the_order_of_the_points_does_not_matter():
    gap, order = np.abs(POINTS[:, 0]), np.random.default_rng(1).permutation(400)
    found = list(parts(POINTS[order], gap[order], 0.01))
    assert likeness(found, (POINTS[:, 0] > 0)[order]) > 0.97


def test_the_same_points_have_the_same_parts():
    one, again = (list(parts(POINTS, np.abs(POINTS[:, 0]), 0.01)) for _ in range(2))
    np.testing.assert_array_equal(one, again)


def test_of_many_points_the_others_join_the_nearest(monkeypatch):
    monkeypatch.setattr(module, "MOST_POINTS", 300)
    points = np.random.default_rng(2).uniform(-1, 1, (1200, 2))
    found = list(parts(points, np.abs(points[:, 0]), 0.01))
    assert all(part.shape == (1200,) for part in found)
    assert likeness(found, points[:, 0] > 0) > 0.95


@pytest.mark.parametrize("n", range(1, 9))
def test_points_no_more_than_neighbours_have_no_parts(n):
    assert list(parts(POINTS[:n], np.abs(POINTS[:n, 0]), 0.01)) == []


@pytest.mark.parametrize("n", [9, 10, 13, 20])
def test_a_few_points_are_divided(n):
    points = POINTS[:n] + np.where(np.arange(n) % 2, 10.0, 0.0)[:, None]
    found = list(parts(points, np.ones(n), 0.01))
    assert found
    assert all(0 < part.sum() < n for part in found)


def test_one_place_has_no_parts():
    assert list(parts(0 * POINTS, np.ones(400), 0.01)) == []


@pytest.mark.parametrize("gap", [0.0, 1.0])
@pytest.mark.parametrize("scale", [[1, 1], [1, 0]], ids=["plane", "line"])
def test_equal_gaps_and_constant_columns_are_no_problem(gap, scale):
    found = list(parts(POINTS * scale, np.full(400, gap), 0.01))
    assert found
    for part in found:
        assert part.shape == (400,)
        assert 0.01 <= part.mean() <= 0.99


def test_separate_clusters_are_separate_parts():
    # Without a meeting: what lies apart may have been exchanged as well.
    points = np.concatenate([0.1 * POINTS[:150], 0.1 * POINTS[150:] + 5])
    found = list(parts(points, np.abs(np.random.default_rng(0).standard_normal(400)), 0.01))
    assert likeness(found, np.arange(400) < 150) == 1.0


@pytest.mark.parametrize("times", [2, 3, 20])
def test_inputs_that_occur_often_are_separated_by_a_line(times):
    # As where all functions have been observed at every input.
    points = np.repeat(POINTS[:200], times, axis=0)
    found = list(parts(points, np.abs(points[:, 0]), 0.01))
    assert likeness(found, points[:, 0] > 0) > 0.95


def test_parts_that_are_almost_apart_are_found():
    """Most gaps are zero: several eigenvalues are almost one, and ARPACK may not converge."""
    rng = np.random.default_rng(0)
    x = rng.uniform(-1, 1, 200)
    gap = np.where(rng.uniform(size=200) < 0.7, 0.0, 1e10 * rng.uniform(size=200))
    found = list(parts(np.column_stack([x, x]), gap, 0.05))
    assert found and all(0.05 <= part.mean() <= 0.95 for part in found)


def test_the_inverse_finds_the_same_parts(monkeypatch):
    gap, given, asked = np.abs(POINTS[:, 0] - 0.2), module.eigsh, []
    expected = list(parts(POINTS, gap, 0.01))

    def eigsh(*args, **settings):
        asked.append(settings.get("sigma"))
        if settings.get("sigma") is None:
            raise ArpackNoConvergence("No convergence", np.zeros(0), np.zeros((0, 0)))
        return given(*args, **settings)

    monkeypatch.setattr(module, "eigsh", eigsh)
    found = list(parts(POINTS, gap, 0.01))
    assert asked == [None, module.BEYOND]
    assert len(found) == len(expected)
    assert all(likeness(found, part) > 0.99 for part in expected)
