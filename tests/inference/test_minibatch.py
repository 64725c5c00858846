"""Training in batches: unbiased, exact at the end, bounded, and able to go on."""

import itertools
import warnings

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from reference import batch, build, evaluate, smooth, stepped, two_lines

from dagp import DAGP, SearchWarning
from dagp.inference.concrete import with_mean_factor_q, with_natural_q
from dagp.inference.minibatch import (
    full_pass,
    in_chunks,
    init_opt_state,
    noise_levels,
    shuffled,
    step_sizes,
    streaming_update,
)
from dagp.inference.standardize import Sample
from dagp.model.association import Batch, NaturalRates
from dagp.model.variational import NaturalGaussian

X, Y, _ = two_lines(0)
INDUCING = np.linspace(-1, 1, 5)[:, None]
SAMPLE = Sample(X, Y.reshape(len(X), -1), np.ones(len(X)), np.full(len(X), -1))
HALVES = (slice(0, 15), slice(15, 30))


def part(data, rows, scale=1.0):
    some = Batch(*(column[rows] for column in data))
    return some._replace(weight=scale * some.weight)


@pytest.fixture(scope="module")
def model(float64):
    start = build([smooth(), smooth(0.4)], INDUCING)
    shares = np.random.default_rng(0).dirichlet([1, 1], len(X))
    return stepped(start, batch(X, Y, 2), jnp.asarray(shares))


def test_scaled_batches_are_unbiased(model, float64):
    data = batch(X, Y, 2)
    whole = float(evaluate(model, data)[0].value)
    halves = [float(evaluate(model, part(data, rows, 2.0))[0].value) for rows in HALVES]
    np.testing.assert_allclose(np.mean(halves), whole, rtol=1e-10)


def test_a_pass_in_pieces_is_one_full_step(model, float64, monkeypatch):
    monkeypatch.setattr("dagp.inference.minibatch._CHUNK", 8)
    monkeypatch.setattr("dagp.inference.minibatch._TOGETHER", 3)
    data = batch(X, Y, 2)
    # Four pieces of eight rows, which come in two equal parts.
    pieces = list(in_chunks(SAMPLE, 2))
    assert [p.X.shape for p in pieces] == [(2, 8, 1)] * 2
    assert sum(p.weight.sum() for p in pieces) == len(X)
    bound, log_joint, _ = evaluate(model, data)
    shares = jax.nn.softmax(log_joint, axis=1)
    rates = NaturalRates(1.0, 0.3)
    swept, value, found = full_pass(model, SAMPLE, rates)
    expected = stepped(model, data, shares, rates)
    np.testing.assert_allclose(value, bound.value, rtol=1e-10)
    np.testing.assert_allclose(found, shares, atol=1e-12)
    for one, other in zip(jax.tree.leaves(swept), jax.tree.leaves(expected), strict=True):
        np.testing.assert_allclose(one, other, atol=1e-8)


def test_natural_parameters_survive_the_way_to_moments_and_back(model, float64):
    there = with_natural_q(with_mean_factor_q(model))
    for one, other in zip(jax.tree.leaves(there), jax.tree.leaves(model), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-8, atol=1e-8)


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
def test_a_stream_goes_on_from_the_papers_scheme():
    settings = {"inducing": 5, "n_init": 1, "max_iter": 25, "random_state": 0}
    model = DAGP(inference="concrete", **settings).fit(X, Y)

    def uncertainty():
        return sum(p.predict(X, return_std=True)[1].mean() for p in model.processes_)

    # Of the functions: the noise may be found to be larger.
    before = uncertainty()
    model.partial_fit(X, Y)
    assert uncertainty() < before


def test_a_pass_counts_for_a_constant_gate(float64):
    model = build([smooth(), smooth(0.4)], INDUCING, gate="constant")
    data = batch(X, Y, 2)
    shares = jax.nn.softmax(evaluate(model, data)[1], axis=1)
    swept, _, _ = full_pass(model, SAMPLE, NaturalRates(1.0, 1.0))
    expected = stepped(model, data, shares, NaturalRates(1.0, 1.0))
    np.testing.assert_allclose(swept.gate.log_weights, expected.gate.log_weights, rtol=1e-8)


def test_every_row_comes_once_an_epoch():
    batches = shuffled(10, 4, np.random.default_rng(0))
    rows = np.concatenate(list(itertools.islice(batches, 5)))
    assert sorted(rows[:10]) == sorted(rows[10:]) == list(range(10))


def test_steps_shorten_but_never_stop():
    first, later = step_sizes(0, 100, 50.0), step_sizes(1000, 100, 50.0)
    assert np.all(np.diff(first.natural) < 0) and np.all(first.learning > 0)
    # Robbins and Monro: the sum of the steps grows without end, that of their squares does not.
    assert later.natural[0] == pytest.approx(first.natural[0] * (1 + 1000 / 50) ** -0.75)


def test_a_stream_adds_up_to_all_data(float64):
    """With one process nothing is uncertain about the assignment: the result is exact."""
    model = build([smooth()], INDUCING)
    data = batch(X, Y, 1)
    opt_state, still = init_opt_state(model, noise_levels(model)), jnp.asarray(0.0)
    fed = model
    for seen, rows in enumerate(HALVES):
        state, _ = streaming_update(
            fed, opt_state, part(data, rows), jnp.asarray(15.0 * seen), still
        )
        fed, opt_state = state.model, state.opt_state
    expected = stepped(model, data, jnp.ones((len(X), 1)))
    q, exact = fed.groups[0].latent.q, expected.groups[0].latent.q
    assert isinstance(q, NaturalGaussian)
    np.testing.assert_allclose(q.precision, exact.precision, rtol=1e-8)
    np.testing.assert_allclose(q.shift, exact.shift, rtol=1e-8)


# ------------------------------------------------------------------ as a user sees it


def two_regimes(n, seed=0):
    rng = np.random.default_rng(seed)
    x, regime = rng.uniform(-3, 3, n), rng.integers(0, 2, n)
    y = np.where(regime == 0, np.sin(2 * x), 4 + 0.5 * x) + 0.1 * rng.standard_normal(n)
    return x[:, None], y, regime


QUICK = {"n_init": 2, "tol": 1e-3, "inducing": 12, "random_state": 0}
ROWS, SIZE, SEARCHED = 960, 240, 200
"""Rows of the data, of a batch and of the search: the same in all tests, which share programs."""


def quiet(model, *data):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", SearchWarning)
        return model.fit(*data)


@pytest.mark.parametrize(
    ("rows", "size", "searched"),
    [(ROWS, SIZE, SEARCHED), pytest.param(5000, 500, 2000, marks=pytest.mark.slow)],
)
def test_batches_reach_the_bound_of_all_data(rows, size, searched, monkeypatch):
    monkeypatch.setattr("dagp.fitting.SEARCH_ROWS", searched)
    X, y, regime = two_regimes(rows)
    whole = quiet(DAGP(2, **QUICK), X, y)
    parts = quiet(DAGP(2, batch_size=size, **QUICK), X, y)
    # A batch estimates the bound from `size` points: this is how far apart two estimates are.
    each = parts.score_samples(X, y)
    error = np.std(each) * len(X) / np.sqrt(size)
    assert abs(parts.lower_bound_ - whole.lower_bound_) < error
    assert abs(parts.lower_bound_ - whole.lower_bound_) < 5e-3 * len(X)
    assert parts.responsibilities_.shape == (rows, 2)
    right = np.mean(parts.assignment_ == regime)
    assert max(right, 1 - right) > 0.99
    for other in parts.alternatives_:
        assert other.responsibilities_.shape == (rows, 2)


def test_batches_go_on_from_a_warm_start(monkeypatch):
    monkeypatch.setattr("dagp.fitting.SEARCH_ROWS", SEARCHED)
    X, y, _ = two_regimes(ROWS)
    model = DAGP(2, batch_size=SIZE, warm_start=True, **QUICK)
    quiet(model, X, y)
    before = model.lower_bound_
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model.fit(X, y)
    assert model.lower_bound_ > before - 0.02 * len(X)
    assert model.restarts_[0]["kind"] == "warm"


@pytest.mark.parametrize(
    ("gate", "rows", "size"),
    [
        (None, ROWS, 190),
        pytest.param(None, 1500, 260, marks=pytest.mark.slow),
        pytest.param("constant", 1500, 260, marks=pytest.mark.slow),
    ],
)
def test_a_stream_is_learned(gate, rows, size):
    X, y, _ = two_regimes(rows)
    X_test, y_test, _ = two_regimes(1000, seed=1)
    model = DAGP(2, gate=gate, **QUICK)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", SearchWarning)
        model.partial_fit(X[:200], y[:200])
    scores = [model.log_score(X_test, y_test)]
    for start in range(200, rows, size):
        model.partial_fit(X[start : start + size], y[start : start + size])
        scores.append(model.log_score(X_test, y_test))
    assert scores[-1] > scores[0]
    assert min(np.diff(scores)) > -0.02
    assert model.responsibilities_.shape == (size, 2)
    whole = quiet(DAGP(2, gate=gate, **QUICK), X, y)
    assert scores[-1] > whole.log_score(X_test, y_test) - 0.03


def test_a_stream_must_keep_its_shape():
    X, y, _ = two_regimes(SEARCHED)
    model = DAGP(2, **{**QUICK, "n_init": 1}).partial_fit(X, y)
    with pytest.raises(ValueError, match="features"):
        model.partial_fit(np.hstack([X, X]), y)
    with pytest.raises(ValueError, match="columns"):
        model.partial_fit(X, np.stack([y, y], axis=1))


def test_batches_after_pruning(monkeypatch):
    monkeypatch.setattr("dagp.fitting.SEARCH_ROWS", SEARCHED)
    X, y, _ = two_regimes(ROWS)
    model = quiet(DAGP("auto", batch_size=SIZE, **QUICK), X, y)
    assert model.responsibilities_.shape == (ROWS, len(model.processes_))
    np.testing.assert_allclose(model.responsibilities_.sum(axis=1), 1)


def test_a_stopped_fit_knows_all_rows(monkeypatch):
    monkeypatch.setattr("dagp.fitting.SEARCH_ROWS", SEARCHED)
    X, y, _ = two_regimes(ROWS)
    model = DAGP(2, batch_size=SIZE, callbacks=[lambda _: True], **QUICK).fit(X, y)
    assert model.responsibilities_.shape == (ROWS, 2)
    assert not model.converged_
    assert np.isfinite(model.lower_bound_)


def test_batch_sizes_are_checked():
    X, y, _ = two_regimes(50)
    with pytest.raises(ValueError, match="batch_size"):
        DAGP(batch_size=0).fit(X, y)
