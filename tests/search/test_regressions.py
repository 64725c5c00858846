"""Mixtures of regressions: what they find, and what weights, labels and clutter do to them."""

import itertools

import numpy as np
import pytest
from scipy.stats import norm
from searched import problem_of

from dagp import GP, Noise
from dagp.inference.inducing import choose_inducing
from dagp.inference.standardize import label_log_mask
from dagp.search import regressions
from dagp.search.regressions import (
    Basis,
    Mixture,
    Rows,
    annealed_em,
    exchanged,
    mixtures,
    with_fewer,
)
from dagp.search.solution import agreement

FLOORS = regressions.NOISE_FLOORS


def rows_of(X, y, components, labels=None, weight=None):
    """Rows without weights or labels unless given; clutter is uniform over the range of y."""
    y = np.reshape(y, (len(X), -1))
    labels = np.full(len(X), -1) if labels is None else labels
    weight = np.ones(len(X)) if weight is None else weight
    density = -float(np.sum(np.log(np.maximum(np.ptp(y, axis=0), 1.0))))
    return Rows(X, y, weight, label_log_mask(labels, components), density)


def crossing_surfaces(n=200, seed=0):
    """Two surfaces that cross along a line, and which of them each row is on."""
    rng = np.random.default_rng(seed)
    X, process = rng.uniform(-1.7, 1.7, (n, 2)), rng.integers(2, size=n)
    tilt = np.where(process == 0, 1.0, -1.0)
    y = tilt * np.sin(1.5 * X[:, 0]) + 0.3 * X[:, 1] + 0.05 * rng.standard_normal(n)
    return X, y, process


def two_lines(n=120, noise=0.05, seed=0):
    """Two straight lines that cross, over two inputs."""
    rng = np.random.default_rng(seed)
    X, process = rng.uniform(-1.7, 1.7, (n, 2)), rng.integers(2, size=n)
    y = np.where(process == 0, X[:, 0], -X[:, 0]) + noise * rng.standard_normal(n)
    return X, y, process


def linear_basis(D=2):
    return Basis.draw(np.zeros((0, D)), np.random.default_rng(0))


def started(K, J, P=1, seed=0):
    return np.random.default_rng(seed).standard_normal((K, J, P))


@pytest.mark.parametrize("seed", [0, 1])
def test_surfaces_are_followed_through_their_crossing(seed):
    X, y, process = crossing_surfaces(seed=seed)
    rows, rng = rows_of(X, y, 2), np.random.default_rng(seed)
    best = mixtures(rows, 2, choose_inducing(X, 12, rng), rng)[0]
    assert agreement(np.eye(2)[process], best.responsibilities(rows), rows.weight) > 0.95
    np.testing.assert_allclose(np.sqrt(best.noise_variance), 0.05, rtol=0.3)


def test_the_best_comes_first_and_the_seed_decides():
    X, y, _ = two_lines(40)
    rows = rows_of(X, y, 2)
    one, again, other = (
        [m.score for m in mixtures(rows, 2, X[:5], np.random.default_rng(seed))]
        for seed in (0, 0, 1)
    )
    assert len(one) == regressions.TRIES
    assert one == sorted(one, reverse=True)
    assert one == again
    assert one != other


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_exchanges_lead_away_from_the_envelopes(seed):
    rng = np.random.default_rng(seed)
    X, process = rng.uniform(-1.7, 1.7, (150, 1)), rng.integers(2, size=150)
    y = np.where(process == 0, X[:, 0], -X[:, 0]) + 0.05 * rng.standard_normal(150)
    rows = rows_of(X, y, 2)
    # What is above and what is below, instead of the two lines that cross.
    above = np.eye(2)[(y > 0).astype(int)]
    basis = Basis.draw(np.linspace(-1.7, 1.7, 10)[:, None], rng)
    envelopes = annealed_em(
        rows, basis, regressions.SHORT_FLOORS, coefficients=np.zeros((2, 12, 1)), given=above
    )
    assert agreement(above, envelopes.responsibilities(rows), rows.weight) > 0.95
    best = max((exchanged(envelopes, rows, rng) for _ in range(4)), key=lambda m: m.score)
    assert best.score > envelopes.score + 5
    assert agreement(np.eye(2)[process], best.responsibilities(rows), rows.weight) > 0.95


def test_the_best_are_improved(monkeypatch):
    X, y, _ = two_lines(40)
    rows, tried = rows_of(X, y, 2), []

    def nothing_better(found, *_):
        tried.append(found.score)
        return found

    monkeypatch.setattr(regressions, "exchanged", nothing_better)
    scores = [m.score for m in mixtures(rows, 2, X[:5], np.random.default_rng(0))]
    assert tried == [score for score in scores[:2] for _ in range(regressions.EXCHANGES)]


def test_clutter_is_told_from_functions():
    X, y, process = two_lines(150)
    rng = np.random.default_rng(1)
    lost = rng.uniform(size=150) < 0.2
    y[lost] = rng.uniform(-4, 4, lost.sum())
    # Clutter on a line cannot be told.
    lost &= np.abs(np.abs(y) - np.abs(X[:, 0])) > 0.3
    rows = rows_of(X, y, 3)
    found = mixtures(rows, 2, np.zeros((0, 2)), rng, affine=True)[0].responsibilities(rows)
    clean = np.abs(np.abs(y) - np.abs(X[:, 0])) < 0.1
    assert found[lost, 2].mean() > 0.9
    assert found[clean, 2].mean() < 0.1
    kept = clean & (np.abs(X[:, 0]) > 0.2)
    assert agreement(np.eye(3)[process][kept], found[kept], np.ones(kept.sum())) > 0.95


def test_clutter_takes_nothing_before_the_functions_are_near():
    X, y, _ = two_lines()
    early = FLOORS[FLOORS > regressions.CLUTTER_FLOOR]
    found = annealed_em(rows_of(X, y, 3), linear_basis(), early, coefficients=started(2, 3))
    # Only the one row that every component is given.
    assert np.exp(found.log_share[2]) == pytest.approx(1 / (120 + 3))


def test_functions_of_several_outputs_have_a_noise_for_each():
    rng = np.random.default_rng(0)
    X, process = rng.uniform(-1.7, 1.7, (150, 2)), rng.integers(2, size=150)
    # The first output is the same for both.
    mean = np.stack([X[:, 1], np.where(process == 0, X[:, 0], -X[:, 0])], axis=1)
    y = mean + np.array([0.2, 0.05]) * rng.standard_normal((150, 2))
    rows = rows_of(X, y, 2)
    best = mixtures(rows, 2, X[:4], rng)[0]
    assert agreement(np.eye(2)[process], best.responsibilities(rows), rows.weight) > 0.95
    assert best.noise_variance.shape == (2, 2)
    np.testing.assert_allclose(np.sqrt(best.noise_variance), [[0.2, 0.05]] * 2, rtol=0.25)


def test_an_output_that_occurs_twice_scores_twice():
    X, y, _ = two_lines(40)
    basis = Basis.draw(X[:6], np.random.default_rng(0))
    one, both = (
        annealed_em(rows_of(X, values, 1), basis, FLOORS, coefficients=np.zeros((1, 9, P))).score
        for values, P in ((y, 1), (np.column_stack([y, y]), 2))
    )
    assert both == pytest.approx(2 * one)


@pytest.mark.parametrize("own_noise", [False, True])
def test_a_weight_counts_as_so_many_rows(own_noise):
    X, y, _ = two_lines(40)
    times = np.random.default_rng(0).integers(1, 4, 40)
    basis = Basis.draw(X[:6], np.random.default_rng(0))
    one, other = (
        annealed_em(rows, basis, FLOORS, coefficients=started(2, 9), own_noise=own_noise)
        for rows in (
            rows_of(X, y, 3, weight=times.astype(float)),
            rows_of(np.repeat(X, times, axis=0), np.repeat(y, times), 3),
        )
    )
    np.testing.assert_allclose(one.coefficients, other.coefficients, atol=1e-6)
    np.testing.assert_allclose(one.noise_variance, other.noise_variance, rtol=1e-6)
    np.testing.assert_allclose(one.log_share, other.log_share, rtol=1e-6)
    assert one.score == pytest.approx(other.score)


def test_labels_name_the_functions():
    X, y, process = two_lines()
    labels = np.where(np.arange(120) < 12, process, -1)
    rows = rows_of(X, y, 2, labels)
    members = [
        found.responsibilities(rows) for found in mixtures(rows, 2, X[:4], np.random.default_rng(0))
    ]
    for one in members:
        np.testing.assert_array_equal(one[:12], np.eye(2)[process[:12]])
    assert np.mean(members[0].argmax(axis=1) == process) > 0.95


def test_rows_labelled_as_clutter_stay_clutter():
    X, y, _ = two_lines()
    labels = np.where(np.arange(120) < 30, 2, -1)
    rows = rows_of(X, y, 3, labels)
    best = mixtures(rows, 2, np.zeros((0, 2)), np.random.default_rng(0), affine=True)[0]
    np.testing.assert_array_equal(best.responsibilities(rows)[:30], np.eye(3)[[2] * 30])


def test_with_all_rows_labelled_each_function_is_a_regression():
    X, y, process = two_lines(noise=0.1)
    rows = rows_of(X, y, 2, process)
    found = annealed_em(rows, linear_basis(), FLOORS, coefficients=started(2, 3))
    A = np.column_stack([np.ones(120), X])
    for k in range(2):
        held = process == k
        plain = np.linalg.lstsq(A[held], y[held])[0]
        np.testing.assert_allclose(found.coefficients[k, :, 0], plain, atol=0.005)
    np.testing.assert_array_equal(found.responsibilities(rows), np.eye(2)[process])


def test_affine_functions_have_their_own_noise_and_smooth_ones_share_it():
    X, y, process = two_lines(noise=0.02)
    y += 4 * process + 0.3 * process * np.random.default_rng(1).standard_normal(120)
    rows, rng = rows_of(X, y, 2), np.random.default_rng(0)
    best = mixtures(rows, 2, X, rng, affine=True)[0]
    assert best.coefficients.shape == (2, 3, 1)
    np.testing.assert_allclose(np.sort(np.sqrt(best.noise_variance[:, 0])), [0.02, 0.3], rtol=0.25)
    for found in mixtures(rows, 2, X[:4], rng)[:3]:
        assert found.noise_variance[0] == found.noise_variance[1]


def test_two_lines_score_better_as_two_and_one_line_as_one():
    X, y, process = two_lines()
    tilted = np.where(process == 0, y, -y)
    best = {
        (name, K): mixtures(
            rows_of(X, values, K), K, np.zeros((0, 2)), np.random.default_rng(0), affine=True
        )[0].score
        for name, values in (("two", y), ("one", tilted))
        for K in (1, 2)
    }
    assert best["two", 2] > best["two", 1] + 50
    assert best["one", 1] > best["one", 2]


def test_a_line_scores_better_without_features_that_it_does_not_need():
    X, y, process = two_lines()
    rows = rows_of(X, np.where(process == 0, y, -y), 1)
    smooth = Basis.draw(X[:20], np.random.default_rng(0))
    scores = [
        annealed_em(rows, basis, FLOORS, coefficients=np.zeros((1, J, 1))).score
        for basis, J in ((linear_basis(), 3), (smooth, 23))
    ]
    assert scores[0] > scores[1]


def test_responsibilities_are_what_bayes_says():
    X, y = np.array([[0.0], [1.0], [2.0]]), np.array([[0.1], [1.0], [-1.0]])
    share, std = np.array([0.5, 0.3, 0.2]), np.array([0.2, 0.5])
    lines = np.array([[[0.0], [1.0]], [[0.0], [-0.5]]])
    found = Mixture(linear_basis(1), lines, std[:, None] ** 2, np.log(share))
    rows = rows_of(X, y, 3)._replace(log_clutter=np.log(0.25))
    joint = np.stack(
        [
            share[0] * norm.pdf(y[:, 0], X[:, 0], 0.2),
            share[1] * norm.pdf(y[:, 0], -0.5 * X[:, 0], 0.5),
            np.full(3, share[2] * 0.25),
        ],
        axis=1,
    )
    expected = joint / joint.sum(axis=1, keepdims=True)
    np.testing.assert_allclose(found.responsibilities(rows), expected)


def test_features_are_a_constant_the_inputs_and_those_of_a_sparse_gp():
    X = np.random.default_rng(0).standard_normal((20, 3))
    np.testing.assert_array_equal(linear_basis(3).features(X), np.column_stack([np.ones(20), X]))
    basis = Basis.draw(X[:7], np.random.default_rng(0))
    A = basis.features(X)
    np.testing.assert_array_equal(A[:, :4], np.column_stack([np.ones(20), X]))
    # At the inducing inputs the covariance of a sparse GP is exact.
    squares = np.sum(((X[:7, None] - X) / basis.lengthscale) ** 2, axis=2)
    np.testing.assert_allclose(A[:7, 4:] @ A[:, 4:].T, np.exp(-0.5 * squares), atol=2e-3)


def test_length_scales_grow_with_the_number_of_inputs():
    rng = np.random.default_rng(0)
    for D in (1, 4):
        drawn = [Basis.draw(np.zeros((0, D)), rng).lengthscale for _ in range(400)]
        assert np.median(drawn) == pytest.approx(1.2 * np.sqrt(D), rel=0.15)


@pytest.mark.parametrize("clutter", [0, 1])
@pytest.mark.parametrize(
    ("n", "K"), [(1, 1), (1, 2), (3, 5), (40, 6)], ids=lambda value: str(value)
)
def test_more_functions_than_the_data_hold_are_no_problem(n, K, clutter):
    X, y, _ = two_lines(n)
    rows, rng = rows_of(X, y, K + clutter), np.random.default_rng(0)
    found = mixtures(rows, K, X[:4], rng, affine=n > 10)
    for one in found:
        members = one.responsibilities(rows)
        assert members.shape == (n, K + clutter)
        np.testing.assert_allclose(members.sum(axis=1), 1.0)
        assert np.isfinite(one.score)
        assert np.isfinite(one.coefficients).all()


def test_a_function_too_many_costs_nothing_of_the_others():
    X, y, process = two_lines()
    rows = rows_of(X, y, 3)
    best = mixtures(rows, 3, np.zeros((0, 2)), np.random.default_rng(0), affine=True)[0]
    # Each of the three holds rows of one line only.
    away = np.abs(X[:, 0]) > 0.3
    member = best.responsibilities(rows).argmax(axis=1)
    shares = [np.mean(process[away & (member == k)]) for k in set(member[away].tolist())]
    assert all(min(share, 1 - share) < 0.1 for share in shares)


@pytest.mark.parametrize("equal", ["input", "inputs", "output", "rows"])
def test_constant_columns_and_equal_rows_are_no_problem(equal):
    X, y, process = two_lines(60)
    if equal == "input":
        X[:, 1] = 0.0
    if equal in ("inputs", "rows"):
        X[:] = 0.0
        y = np.where(process == 0, 1.0, -1.0)
    if equal in ("output", "rows"):
        y = np.zeros(60)
    rows, rng = rows_of(X, y, 2), np.random.default_rng(0)
    best = mixtures(rows, 2, choose_inducing(X, 5, rng), rng)[0]
    members = best.responsibilities(rows)
    np.testing.assert_allclose(members.sum(axis=1), 1.0)
    assert np.isfinite(best.score)
    if equal in ("input", "inputs"):
        assert agreement(np.eye(2)[process], members, rows.weight) > 0.95
    else:
        # Nothing is left to explain; the noise has a lower limit.
        np.testing.assert_allclose(np.sqrt(best.noise_variance), 0.01, rtol=0.1)


def searched_rows(rows, monkeypatch):
    """The rows on which `mixtures` searches, at most 50."""
    seen = []

    def record(rows, basis, floors, *, coefficients, **_):
        seen.append(rows)
        K, _, P = coefficients.shape
        return Mixture(basis, coefficients, np.ones((K, P)), np.zeros(K))

    monkeypatch.setattr(regressions, "MOST_ROWS", 50)
    monkeypatch.setattr(regressions, "annealed_em", record)
    mixtures(rows, 2, np.zeros((0, 2)), np.random.default_rng(0))
    assert all(np.array_equal(one.X, other.X) for one, other in itertools.pairwise(seen))
    return seen[0]


@pytest.mark.parametrize("labelled", [0, 20, 80])
def test_of_many_rows_some_are_searched_the_labelled_ones_among_them(labelled, monkeypatch):
    X = np.arange(400.0).reshape(200, 2)
    labels = np.full(200, -1)
    labels[np.random.default_rng(0).permutation(200)[:labelled]] = 1
    rows = rows_of(X, X[:, 0], 2, labels, weight=1 + X[:, 0])
    some = searched_rows(rows, monkeypatch)
    chosen = some.X[:, 0].astype(int) // 2
    assert len(set(chosen.tolist())) == 50
    # What belongs together stays together.
    np.testing.assert_array_equal(some.y[:, 0], some.X[:, 0])
    np.testing.assert_array_equal(some.weight, 1 + some.X[:, 0])
    np.testing.assert_array_equal(some.log_mask, rows.log_mask[chosen])
    assert np.sum(labels[chosen] == 1) == min(labelled, 50)


def test_few_rows_are_searched_all(monkeypatch):
    X = np.arange(100.0).reshape(50, 2)
    assert searched_rows(rows_of(X, X[:, 0], 2), monkeypatch).X is X


def waves(count, n=240, D=1, seed=0):
    """Functions that lie above each other, standardised."""
    rng = np.random.default_rng(seed)
    X, process = rng.uniform(-1.7, 1.7, (n, D)), np.arange(n) % count
    y = 1.5 * process + 0.4 * np.sin(2 * X.sum(axis=1)) + 0.03 * rng.standard_normal(n)
    return X, (y - y.mean()) / y.std(), process


@pytest.mark.parametrize(("count", "D"), [(1, 1), (2, 1), (3, 1), (2, 2)])
def test_mixtures_of_regressions_count_functions(count, D):
    X, y, _ = waves(count, D=D)
    found = with_fewer(problem_of(X, y, [GP()] * 6), np.random.default_rng(0))
    # Some more where the functions are rough for regressions, and never fewer.
    assert count <= found.n_processes <= count + 2


def test_clutter_is_kept_and_helps_to_count():
    X, y, _ = waves(2)
    stray = np.arange(len(y)) % 7 == 0
    y[stray] = np.random.default_rng(1).uniform(-3, 3, stray.sum())
    priors = [GP()] * 5 + [Noise()]
    found = with_fewer(problem_of(X, y, priors), np.random.default_rng(0))
    assert found.clutter in ((False, False, True), (False, False, False, True))


def test_the_count_depends_on_the_data_alone():
    X, y, _ = waves(3)
    first, second = (
        with_fewer(problem_of(X, y, [GP()] * 6), np.random.default_rng(3)) for _ in range(2)
    )
    assert first.n_processes == second.n_processes
    few = problem_of(X[:3], y[:3], [GP()] * 6)
    assert 1 <= with_fewer(few, np.random.default_rng(0)).n_processes <= 6


@pytest.mark.parametrize("priors", [[Noise()], [GP()], [GP(), Noise()]])
def test_without_a_choice_there_is_nothing_to_count(priors):
    X, y, _ = waves(2, n=40)
    problem = problem_of(X, y, priors)
    assert with_fewer(problem, np.random.default_rng(0)) is problem
