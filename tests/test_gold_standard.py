"""The sampler of the benchmark against all assignments, counted."""

import itertools
import sys
from pathlib import Path

import numpy as np
from scipy.special import log_softmax, logsumexp, softmax

sys.path.append(str(Path(__file__).parents[1] / "benchmarks"))

import gold_standard
from prior_draws import Structure, draw


def counted(data, rng):
    """Probability that two points share a process: every assignment, and the gate by sampling."""
    chain = gold_standard.Chain(data, data.train.label, rng)
    N, K = len(data.train.y), chain.K
    gates = rng.standard_normal((20_000, K, N)) @ chain.root.T
    log_weights = log_softmax(gates, axis=1)
    every = np.array(list(itertools.product(range(K), repeat=N)))
    logs = np.array([
        logsumexp(log_weights[:, members, np.arange(N)].sum(axis=1))
        + sum(chain.log_evidence(k, np.flatnonzero(members == k)) for k in range(K))
        for members in every
    ])  # fmt: skip
    together = every[:, :, None] == every[:, None]
    return np.tensordot(softmax(logs), together, axes=1)


def test_sampler_has_the_exact_probabilities(monkeypatch):
    monkeypatch.setattr(gold_standard, "SWEEPS", 1200)
    monkeypatch.setattr(gold_standard, "WARM_UP", 100)
    monkeypatch.setattr(gold_standard, "THIN", 1)
    data = draw(5, Structure(2, False, 1), 6)
    expected = counted(data, np.random.default_rng(0))
    assert np.ptp(expected[np.triu_indices(6, 1)]) > 0.1
    found = gold_standard.sample(data, np.zeros(6, int), 0).together
    np.testing.assert_allclose(found, expected, atol=0.06)
