"""Training runs side by side."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from dagp import GP, Noise
from dagp.inference import parallel
from dagp.inference.inducing import choose_inducing
from dagp.inference.parallel import train_in_parallel
from dagp.inference.problem import Problem, build
from dagp.inference.run_log import NO_LOG, RunLog
from dagp.inference.standardize import Sample, Units, canonical, padded, to_batch
from dagp.inference.train import BLOCK, LEARNING_RATE, begin, train
from dagp.search.race import race
from dagp.search.solution import Solution
from dagp.search.starts import starts
from dagp.search.trial import Trainer

pytestmark = pytest.mark.usefixtures("float64")

RUNS = 3


@pytest.fixture(scope="module")
def problem(float64):
    rng = np.random.default_rng(0)
    X = np.linspace(-1, 1, 40)[:, None]
    y = np.where(rng.random(40) < 0.3, rng.uniform(-2, 2, 40), np.sin(3 * X[:, 0]))
    raw, _ = canonical(Sample(X, y[:, None], np.ones(40), np.full(40, -1)))
    units = Units.of(raw)
    sample = units.apply(raw)
    return Problem(sample, units, (GP(), Noise()), None, choose_inducing(sample.X, 6, rng))


@pytest.fixture(scope="module")
def contest(problem):
    """Starts of one problem, and the batch they are trained on."""
    batch = jax.tree.map(jnp.asarray, to_batch(problem.sample, 2))
    begun = starts(problem, RUNS, np.random.default_rng(1))
    return [(start, _begun(problem, start, batch)) for start in begun], batch


def _begun(problem, start, batch):
    shares = jnp.asarray(padded(start.responsibilities, len(batch.X)))
    return begin(build(problem, start), batch, shares, 0)[0]


@pytest.fixture(scope="module")
def alone(contest):
    """Each run by itself."""
    entered, batch = contest
    return [train(state, batch, max_iter=3 * BLOCK, tol=1e-3) for _, state in entered]


def together(contest, log=NO_LOG):
    entered, batch = contest
    states, rates = [state for _, state in entered], [LEARNING_RATE] * RUNS
    return train_in_parallel(states, batch, max_iter=3 * BLOCK, tol=1e-3, rates=rates, log=log)


def test_side_by_side_is_one_after_the_other(contest, alone):
    for one, other in zip(alone, together(contest), strict=True):
        assert (one.status, one.rate) == (other.status, other.rate)
        np.testing.assert_allclose(other.trace, one.trace, rtol=1e-6, atol=1e-6)
        pairs = zip(jax.tree.leaves(one.state), jax.tree.leaves(other.state), strict=True)
        for left, right in pairs:
            np.testing.assert_allclose(right, left, rtol=1e-3, atol=1e-3)


def test_a_run_that_fails_leaves_the_others_alone(contest, alone):
    entered, batch = contest
    broken = jax.tree.map(lambda leaf: jnp.full_like(leaf, jnp.nan), entered[1][1])
    results = together(([entered[0], (entered[1][0], broken), entered[2]], batch))
    assert results[1].status == "diverged"
    assert results[1].bound == -np.inf
    assert results[0].bound == pytest.approx(alone[0].bound, rel=1e-6)
    assert results[2].bound == pytest.approx(alone[2].bound, rel=1e-6)


def test_less_memory_means_fewer_at_once(contest, alone, monkeypatch):
    widths = []
    original = parallel.run_blocks

    def noted(states, *rest):
        widths.append(len(states.responsibilities))
        return original(states, *rest)

    monkeypatch.setattr(parallel, "run_blocks", noted)
    monkeypatch.setattr(parallel, "_width", lambda *_: 2)
    results = together(contest)
    assert set(widths) == {2}
    assert [r.bound for r in results] == pytest.approx([r.bound for r in alone], rel=1e-6)


def test_what_is_logged_is_not_computed_again(contest, monkeypatch):
    log = RunLog()
    first = together(contest, log)
    assert len(log.finished) == RUNS
    monkeypatch.setattr(parallel, "run_blocks", None)
    again = together(contest, RunLog(finished=log.finished))
    assert [r.bound for r in again] == [r.bound for r in first]


def test_the_race_has_the_same_finalists(contest, problem, monkeypatch):
    entered, batch = contest
    told: dict[bool, list] = {True: [], False: []}
    finalists = {}
    for side_by_side in (True, False):
        monkeypatch.setattr(parallel, "is_faster", lambda side_by_side=side_by_side: side_by_side)
        field = [Solution(problem, start, state) for start, state in entered]
        finalists[side_by_side] = race(field, Trainer(batch, 1e-3, told[side_by_side].append))
    kinds = [[s.start.kind for s in finalists[way]] for way in (True, False)]
    assert kinds[0] == kinds[1]
    assert [p[:3] for p in told[True]] == [p[:3] for p in told[False]]
