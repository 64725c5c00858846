"""Rows of windows that are assigned again in sequence."""

import sys
from pathlib import Path

import numpy as np
import pytest
from scipy.stats import multivariate_normal

from dagp import DAGP
from dagp.inference.standardize import FORBIDDEN
from dagp.search import algorithm
from dagp.search.windows import Assignment, Regressions, reassigned, windows

sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks"))

import gold_standard
from prior_draws import Structure, draw


def tangled(n=120, features=20, seed=0, clutter=False):
    """Two functions drawn from their priors, as regressions, and the origin of each row."""
    rng = np.random.default_rng(seed)
    X = np.sort(rng.uniform(0, 1, (n, 1)), axis=0)
    frequency, phase = rng.normal(0, 8, (2, features, 1)), rng.uniform(0, 6.3, (2, features, 1))
    basis = np.sqrt(2 / features) * np.cos(frequency * X.T + phase)
    values = np.einsum("fm,fmn->fn", rng.normal(size=(2, features)), basis)
    member = rng.integers(2, size=n)
    y = values[member, np.arange(n)] + 0.05 * rng.normal(size=n)
    other = np.full(n, -np.log(8.0) if clutter else FORBIDDEN)
    if clutter:
        lost = rng.uniform(size=n) < 0.15
        y[lost], member[lost] = rng.uniform(-4, 4, lost.sum()), 2
    weights = np.column_stack([np.full((n, 2), np.log(0.5)), other])
    noise = np.full((2, 1, n), 0.05**2)
    return X, Regressions(basis, noise, np.broadcast_to(y, (2, 1, n)), weights), member


def log_joint(functions, member):
    """The same in closed form: Gaussian densities of the rows of each function."""
    total = functions.log_weights[np.arange(len(member)), member].sum()
    for k in range(len(functions.basis)):
        own = member == k
        B, noise = functions.basis[k][:, own], functions.noise[k, 0, own]
        if own.any():
            normal = multivariate_normal(np.zeros(own.sum()), B.T @ B + np.diag(noise))
            total += normal.logpdf(functions.residual[k, 0, own])
    return total


@pytest.mark.parametrize("clutter", [False, True])
def test_gains_are_those_of_the_log_joint_density(clutter):
    X, functions, _ = tangled(n=40, clutter=clutter)
    rng = np.random.default_rng(1)
    member = rng.integers(2, size=40)
    state, gained = Assignment(functions, member), 0
    for rows in windows(X, 30, rng):
        before = log_joint(functions, state.member)
        gain = state.reassign(rows, 0.5, rng)
        assert gain >= 0
        assert log_joint(functions, state.member) - before == pytest.approx(gain, abs=1e-6)
        gained += gain > 0
    assert gained > 3


@pytest.mark.parametrize("clutter", [False, True])
def test_entangled_functions_are_told_apart(clutter):
    X, functions, truth = tangled(clutter=clutter)
    # Exchanged in the middle, where they are far apart too.
    middle = (X[:, 0] > 0.3) & (X[:, 0] < 0.6) & (truth < 2)
    held = np.where(middle, 1 - truth, truth)
    found = reassigned(functions, X, held, np.random.default_rng(0))
    assert found is not None
    wrong = np.mean(held != truth)
    assert np.mean(found.argmax(axis=1) != truth) < 0.3 * wrong
    assert log_joint(functions, found.argmax(axis=1)) > log_joint(functions, truth) - 1


def test_nothing_is_proposed_where_nothing_is_gained():
    X, functions, truth = tangled()
    once = reassigned(functions, X, truth, np.random.default_rng(0))
    best = truth if once is None else once.argmax(axis=1)
    assert reassigned(functions, X, best, np.random.default_rng(1)) is None


def test_labels_are_kept():
    X, functions, truth = tangled()
    held = np.where((X[:, 0] > 0.3) & (X[:, 0] < 0.6), 1 - truth, truth)
    labelled = np.flatnonzero(held != truth)[:5]
    functions.log_weights[labelled, truth[labelled]] += FORBIDDEN
    found = reassigned(functions, X, held, np.random.default_rng(0))
    assert found is not None
    np.testing.assert_array_equal(found.argmax(axis=1)[labelled], held[labelled])


@pytest.mark.parametrize("columns", [1, 3])
def test_windows_are_next_to_each_other(columns):
    rng = np.random.default_rng(0)
    X = rng.uniform(size=(60, columns))
    sizes = []
    for rows in windows(X, 50, rng):
        assert len(set(rows.tolist())) == len(rows)
        sizes.append(len(rows))
        if columns == 1:
            x = np.sort(X[:, 0])
            first = np.searchsorted(x, X[rows, 0].min())
            np.testing.assert_array_equal(np.sort(X[rows, 0]), x[first : first + len(rows)])
        else:
            # From the middle outwards, or back.
            ways = (rows, rows[::-1])
            distances = [np.linalg.norm(X[way] - X[way[0]], axis=1) for way in ways]
            assert any(np.all(np.diff(distance) >= 0) for distance in distances)
    assert min(sizes) < 8
    assert max(sizes) > 30


def test_a_search_finds_what_no_other_move_does(monkeypatch):
    """60 points of two functions with known hyperparameters, entangled over most of their range."""
    data = draw(4, Structure(2, False, 1), gold_standard.SIZE)

    def fitted():
        model = data.truth.known().set_params(random_state=4)
        return model.fit(data.train.X, data.train.y)

    found = fitted()
    assert np.mean(found.assignment_ == data.train.label) == 1.0
    names = [name for start in found.restarts_ for name, _ in start["moves"]]
    assert "assign windows again" in names
    monkeypatch.setattr(algorithm, "MOVES", algorithm.MOVES[:1])
    without = fitted()
    assert found.lower_bound_ > without.lower_bound_ + 10
    assert isinstance(without, DAGP)
