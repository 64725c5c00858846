"""The rows on which a large table is searched."""

import numpy as np
import pytest

from dagp.inference.standardize import Sample
from dagp.inference.subsample import subsample


def sample_of(X, y, labels=None):
    labels = np.full(len(X), -1) if labels is None else labels
    return Sample(X, np.reshape(y, (len(X), -1)), np.ones(len(X)), labels)


def normal(n=1000, D=1, seed=0):
    rng = np.random.default_rng(seed)
    return rng.standard_normal((n, D)), rng.standard_normal(n)


def counted(sample, where, count=200, draws=10):
    """How many of the rows `where` are chosen, and how many evenly drawn rows would be."""
    found = [where[subsample(sample, count, np.random.default_rng(s))].sum() for s in range(draws)]
    return np.mean(found), count * where.mean()


@pytest.mark.parametrize("n", [1, 99, 100])
def test_no_more_rows_than_asked_are_all_taken(n):
    found = subsample(sample_of(*normal(n)), 100, np.random.default_rng(0))
    np.testing.assert_array_equal(found, np.arange(n))


@pytest.mark.parametrize("count", [1, 2, 3, 100, 999])
def test_as_many_distinct_rows_as_asked_come_in_order(count):
    found = subsample(sample_of(*normal()), count, np.random.default_rng(0))
    assert len(found) == count
    assert np.all(np.diff(found) > 0)
    assert 0 <= found[0] <= found[-1] < 1000


def test_the_generator_decides():
    sample = sample_of(*normal())
    one, again, other = (subsample(sample, 100, np.random.default_rng(s)) for s in (0, 0, 1))
    np.testing.assert_array_equal(one, again)
    assert not np.array_equal(one, other)


@pytest.mark.parametrize("labelled", [1, 40, 99, 100])
def test_all_labelled_rows_are_taken_first(labelled):
    labels = np.full(1000, -1)
    labels[np.random.default_rng(1).permutation(1000)[:labelled]] = np.arange(labelled) % 3
    found = subsample(sample_of(*normal(), labels), 100, np.random.default_rng(0))
    assert len(set(found.tolist())) == 100
    assert np.isin(np.flatnonzero(labels >= 0), found).all()


@pytest.mark.parametrize("labelled", [101, 500, 1000])
def test_of_too_many_labelled_rows_some_are_taken_and_no_others(labelled):
    labels = np.where(np.arange(1000) < labelled, 1, -1)
    sample = sample_of(*normal(), labels)
    found = subsample(sample, 100, np.random.default_rng(0))
    assert len(set(found.tolist())) == 100
    assert found.max() < labelled
    assert not np.array_equal(found, subsample(sample, 100, np.random.default_rng(1)))


def test_with_labels_the_other_rows_are_still_drawn_from_everywhere():
    X, y = normal()
    labels = np.where(np.arange(1000) < 50, 0, -1)
    found = subsample(sample_of(X, y, labels), 250, np.random.default_rng(0))
    others = X[found[found >= 50], 0]
    assert len(others) == 200
    assert abs(others.mean()) < 0.3
    assert others.std() > 0.9


@pytest.mark.parametrize("column", ["input", "second input", "output", "second output"])
def test_rare_rows_are_chosen_more_often_but_do_not_take_over(column):
    rng = np.random.default_rng(0)
    table = 0.1 * rng.standard_normal((2000, 4))
    rare = np.arange(2000) % 50 == 0
    at = ["input", "second input", "output", "second output"].index(column)
    table[rare, at] = rng.uniform(2, 12, rare.sum())
    chosen, even = counted(sample_of(table[:, :2], table[:, 2:]), rare)
    # Half of the rows evenly, half up to three times as likely.
    assert 1.5 * even < chosen < 2.5 * even


def test_half_of_the_rows_are_drawn_evenly():
    # Nine rows in ten lie together, and the others far from all: these could fill the subsample.
    rng = np.random.default_rng(0)
    X = 0.01 * rng.standard_normal((2000, 1))
    sparse = np.arange(2000) % 10 == 0
    X[sparse, 0] = 100 * np.arange(1, 201)
    chosen, even = counted(sample_of(X, np.zeros(2000)), sparse, count=200)
    assert even == 20
    # Half of 20, and as many of the other 100 as three times as likely rows get: about 22.
    assert 26 < chosen < 37


@pytest.mark.parametrize("varied", [0, 1, 1000])
def test_equal_rows_are_drawn_evenly(varied):
    # Most rows are the same one: their distance is zero and no unit.
    X, y = np.zeros((3000, 2)), np.zeros(3000)
    X[:varied] = np.random.default_rng(0).standard_normal((varied, 2))
    chosen, even = counted(sample_of(X, y), np.arange(3000) < 1500, count=300)
    assert chosen == pytest.approx(even, rel=0.1)


def test_constant_columns_do_not_matter():
    X, y = normal()
    one = subsample(sample_of(X, y), 100, np.random.default_rng(0))
    flat = np.hstack([X, np.full((1000, 1), 5.0)])
    other = subsample(
        sample_of(flat, np.column_stack([y, np.zeros(1000)])), 100, np.random.default_rng(0)
    )
    np.testing.assert_array_equal(one, other)


def test_tables_above_the_number_of_reference_rows_are_covered():
    X, y = normal(6000, 2)
    far = np.abs(X).max(axis=1) > 2.5
    chosen, even = counted(sample_of(X, y), far, count=500, draws=5)
    assert chosen > 1.3 * even
