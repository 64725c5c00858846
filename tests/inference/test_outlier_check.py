"""Rows of clutter that are rather errors around the function."""

import numpy as np
import pytest

from dagp.inference.exact import Exact, Given
from dagp.inference.outlier_check import left_out_error, unlike_clutter
from dagp.inference.standardize import Sample
from dagp.model.sparse_gp import Marginals

N = 60
RANGE = 8.0
RNG = np.random.default_rng(0)
ROWS = np.arange(12)


def solution(residual, share=0.9, functions=1):
    """A solution in which the first rows are clutter, off by `residual` from a flat function."""
    residual = np.asarray(residual, float).reshape(len(residual), -1)
    y = np.zeros((N, residual.shape[1]))
    y[: len(residual)] = residual
    found = np.zeros((N, functions + 1))
    found[:, 0] = 1.0
    found[: len(residual), 0], found[: len(residual), -1] = 1 - share, share
    flat = Marginals(np.zeros_like(y), np.full_like(y, 1e-4))
    density = np.full((N, functions + 1), -np.sum(~np.isnan(y[0])) * np.log(RANGE))
    sample = Sample(np.zeros((N, 2)), y, np.ones(N), np.full(N, -1))
    model, clutter = None, (False,) * functions + (True,)
    return (
        sample,
        clutter,
        Exact(
            model, found, 0.0, Given((flat,) * functions, density, (np.ones_like(y),) * functions)
        ),
    )


def test_errors_around_the_function_are_not_clutter():
    near = unlike_clutter(*solution(0.15 * RNG.standard_normal(12)))
    assert np.array_equal(np.flatnonzero(near), ROWS)


def test_wrong_readings_are_clutter():
    off = RNG.uniform(3, 4, 12) * RNG.choice([-1, 1], 12)
    assert not unlike_clutter(*solution(off)).any()
    anywhere = RNG.uniform(-4, 4, 12)
    assert not unlike_clutter(*solution(anywhere)).any()


def test_both_are_told_apart():
    residual = np.r_[0.1 * RNG.standard_normal(8), RNG.uniform(2, 4, 12)]
    near = unlike_clutter(*solution(residual))
    assert np.array_equal(np.flatnonzero(near), np.arange(8))


@pytest.mark.parametrize("scale", [1e-3, 1e3])
def test_the_unit_does_not_matter(scale):
    residual = np.r_[0.1 * RNG.standard_normal(8), RNG.uniform(2, 4, 12)]
    sample, clutter, own = solution(residual)
    mean, variance = own.given.functions[0]
    flat = Marginals(scale * mean, scale**2 * variance)
    given = Given((flat,), own.given.density - np.log(scale), own.given.precisions)
    sample = sample._replace(y=scale * sample.y)
    near = unlike_clutter(sample, clutter, own._replace(given=given))
    assert np.array_equal(np.flatnonzero(near), np.arange(8))


def test_several_outputs_and_missing_ones():
    residual = 0.1 * RNG.standard_normal((10, 2))
    sample, clutter, own = solution(residual)
    sample.y[3, 1] = np.nan
    assert np.array_equal(np.flatnonzero(unlike_clutter(sample, clutter, own)), np.arange(10))


def test_one_function_and_one_clutter_process_only():
    near = 0.1 * RNG.standard_normal(10)
    assert not unlike_clutter(*solution(near, functions=2)).any()
    assert not unlike_clutter(*solution(near, share=0.4)).any()
    sample, clutter, own = solution(near)
    assert not unlike_clutter(sample, clutter, own._replace(given=None)).any()


def test_left_out_errors_are_those_of_fits_without_the_row():
    """A constant with a normal prior: three readings, the mean of the two others is the guess."""
    y, precision, prior = np.array([[0.0], [1.0], [5.0]]), 4.0, 0.5
    total = prior + 3 * precision
    mean = np.full((3, 1), precision * y.sum() / total)
    q = Marginals(mean, np.full((3, 1), 1 / total))
    sample = Sample(np.zeros((3, 2)), y, np.array([1.0, 1.0, 1.0]), np.full(3, -1))
    given = Given((q,), np.zeros((3, 2)), (np.full((3, 1), precision),))
    own = Exact(None, np.ones((3, 2)), 0.0, given)
    others = precision * (y.sum() - y[:, 0]) / (prior + 2 * precision)
    for rows in ([True, True, True], [False, True, True]):
        expected = np.mean(np.abs(y[:, 0] - others)[rows])
        assert np.isclose(left_out_error(sample, own, np.array(rows)), expected)


def test_rows_that_the_user_says_are_clutter_are():
    sample, clutter, own = solution(0.1 * RNG.standard_normal(10))
    sample.labels[:4] = 1
    near = unlike_clutter(sample, clutter, own)
    assert np.array_equal(np.flatnonzero(near), np.arange(4, 10))
