"""The infinite mixture of Gaussian process experts."""

import itertools
from math import factorial

import numpy as np
import pytest
from scipy.integrate import quad
from scipy.special import gammaln
from scipy.stats import multivariate_normal, norm

from dagp.baselines.experts import (
    NUGGET,
    Expert,
    LogNormalPrior,
    covariance,
    evaluate,
    gate_kernel,
    hmc_step,
    noise_variance,
    pseudo_likelihood,
)
from dagp.baselines.rgpr_sampler import (
    LOG_WIDTH,
    Chain,
    ChainSample,
    move_alpha,
    move_experts,
    move_points,
    move_widths,
    run_chain,
)
from dagp.core.precision import numerics
from dagp.kernels import SquaredExponential

LOGS = np.log([0.1, 1.5, 0.7, 1.2])
"""Noise variance, signal variance and two length scales."""


def some_data(n=9, columns=2, seed=0):
    rng = np.random.default_rng(seed)
    return rng.normal(size=(n, columns)), rng.normal(size=n)


def kernel_matrix(logs, A, B):
    z = (A[:, None] - B) / np.exp(logs[2:])
    return np.exp(logs[1]) * np.exp(-0.5 * (z**2).sum(axis=-1))


def noisy_matrix(logs, X):
    noise = np.exp(logs[0]) + NUGGET * np.exp(logs[1])
    return kernel_matrix(logs, X, X) + noise * np.eye(len(X))


def direct_prediction(logs, X, y, x):
    """Mean and variance of an output at `x`, by solving."""
    k = kernel_matrix(logs, x[None], X)[0]
    solved = np.linalg.solve(noisy_matrix(logs, X), np.column_stack([y, k]))
    variance = np.exp(logs[1]) + noise_variance(logs) - k @ solved[:, 1]
    return k @ solved[:, 0], variance


def test_covariance_is_that_of_the_kernel():
    X, _ = some_data()
    with numerics("float64"):
        expected = SquaredExponential(np.exp(LOGS[2:]), np.exp(LOGS[1]))(X, X[:4])
    np.testing.assert_allclose(covariance(LOGS, X, X[:4]), expected, rtol=1e-10)
    np.testing.assert_allclose(kernel_matrix(LOGS, X, X[:4]), expected, rtol=1e-10)


def test_evidence_and_its_gradient():
    X, y = some_data()
    found = evaluate(LOGS, X, y)
    density = multivariate_normal(np.zeros(len(y)), noisy_matrix(LOGS, X))
    assert np.isclose(found.log_evidence, density.logpdf(y))
    for p, slope in enumerate(found.gradient):
        h = 1e-5 * np.eye(len(LOGS))[p]
        rise = evaluate(LOGS + h, X, y).log_evidence - evaluate(LOGS - h, X, y).log_evidence
        assert np.isclose(slope, rise / 2e-5, rtol=1e-5)


def test_leave_one_out_is_what_the_others_predict():
    X, y = some_data()
    members = [7, 1, 4, 0, 8]
    expert = Expert(X, y, LOGS, members)
    for i in members:
        rest = [m for m in members if m != i]
        direct = direct_prediction(LOGS, X[rest], y[rest], X[i])
        np.testing.assert_allclose(expert.leave_out(i), direct, rtol=1e-9)
    for i in (2, 3):
        direct = direct_prediction(LOGS, X[members], y[members], X[i])
        np.testing.assert_allclose(expert.predict(i), direct, rtol=1e-9)


def test_joining_and_leaving_is_as_good_as_starting_afresh():
    X, y = some_data(n=40)
    expert = Expert(X, y, LOGS, [3, 5])
    rng = np.random.default_rng(1)
    for i in rng.integers(0, 40, size=300):
        expert.remove(i) if i in expert.members else expert.add(i)
    assert 5 < len(expert) < 35
    fresh = Expert(X, y, LOGS, expert.members)
    inverse = np.linalg.inv(noisy_matrix(LOGS, X[expert.members]))
    np.testing.assert_allclose(expert.inverse, inverse, atol=1e-8)
    np.testing.assert_allclose(expert.weights, fresh.weights, atol=1e-8)
    np.testing.assert_allclose(expert.log_densities(), fresh.log_densities(), atol=1e-8)
    outside = np.setdiff1d(np.arange(40), expert.members)
    for i in outside:
        direct = direct_prediction(LOGS, X[expert.members], y[expert.members], X[i])
        np.testing.assert_allclose(expert.predict(i), direct, rtol=1e-7)
    for forecast, rows in ((expert.predict, outside), (expert.leave_out, expert.members)):
        means, variances = np.array([forecast(i) for i in rows]).T
        densities = norm(means, np.sqrt(variances)).logpdf(y[rows])
        np.testing.assert_allclose(expert.log_densities()[rows], densities)


def test_the_last_member_may_leave():
    X, y = some_data()
    expert = Expert(X, y, LOGS, [2])
    expert.remove(2)
    assert len(expert) == 0
    np.testing.assert_allclose(expert.predict(0), (0.0, 1.5 + noise_variance(LOGS)), atol=1e-12)


def test_gate_by_hand():
    # Kernel of width 2: one apart exp(−1/8), three apart exp(−9/8), two apart exp(−1/2).
    X, y = np.array([[0.0], [1.0], [3.0]]), np.zeros(3)
    chain = Chain(X, y, LogNormalPrior.vague(1), alpha=0.7)
    chain.assignment = np.array([0, 0, 1])
    chain.experts.append(Expert(X, y, chain.prior.centre))
    chain.widths, chain.kernel = np.array([2.0]), gate_kernel(np.array([2.0]), X)
    one, two, three = np.exp(-1 / 8), np.exp(-4 / 8), np.exp(-9 / 8)
    np.testing.assert_allclose(
        chain.occupation(0), [2 * one / (one + three), 2 * three / (one + three)]
    )
    np.testing.assert_allclose(chain.occupation(1), [2 * one / (one + two), 2 * two / (one + two)])
    np.testing.assert_allclose(chain.occupation(2), [2, 0], atol=1e-12)
    logs = [
        np.log(2 * one / (one + three) / 2.7),
        np.log(2 * one / (one + two) / 2.7),
        np.log(0.7 / 2.7),  # alone: a new expert, as far as the others know
    ]
    assert np.isclose(pseudo_likelihood(chain.kernel, chain.assignment, 0.7), sum(logs))


def test_closeness_where_kernels_underflow():
    kernel = gate_kernel(np.array([1e-3]), np.array([[0.0], [1.0], [3.0]]))
    np.testing.assert_allclose(kernel, [[0, 1, 0], [1, 0, 0], [0, 1, 0]], atol=1e-12)


def partitions(n):
    """Assignments of n points up to the names of experts: each named when first met."""
    found = itertools.product(*(range(i + 1) for i in range(n)))
    return [c for c in found if all(c[i] <= max(c[:i], default=-1) + 1 for i in range(n))]


def named(assignment):
    names = {}
    return tuple(names.setdefault(int(a), len(names)) for a in assignment)


def log_evidence(c, logs, X, y):
    total = 0.0
    for j in set(c):
        rows = np.flatnonzero(np.equal(c, j))
        K = noisy_matrix(logs, X[rows])
        quadratic = y[rows] @ np.linalg.solve(K, y[rows])
        total -= 0.5 * (quadratic + np.linalg.slogdet(2 * np.pi * K)[1])
    return total


def conditional_kernel(i, states, logs, X, y, width, alpha):
    """Transition matrix of drawing point i's expert, from the definition."""
    n, place = len(X), {c: s for s, c in enumerate(states)}
    k = np.exp(-0.5 * ((X[i] - X) / width) ** 2)[:, 0]
    T = np.zeros((len(states), len(states)))
    for s, c in enumerate(states):
        others = [m for m in range(n) if m != i]
        options, heights = [], []
        for j in {c[m] for m in others} | {n}:
            mine = [m for m in others if c[m] == j]
            count = (n - 1) * sum(k[m] for m in mine) / sum(k[m] for m in others)
            moved = named([j if m == i else c[m] for m in range(n)])
            options.append(place[moved])
            heights.append(np.log(count if mine else alpha) + log_evidence(moved, logs, X, y))
        weights = np.exp(np.array(heights) - max(heights))
        T[s, options] = weights / weights.sum()
    return T


def stationary(states, logs, X, y, width, alpha):
    """Where sweeps in random order end up, whatever the gate."""
    kernels = [conditional_kernel(i, states, logs, X, y, width, alpha) for i in range(len(X))]
    orders = list(itertools.permutations(kernels))
    sweep = sum(np.linalg.multi_dot(order) for order in orders) / len(orders)
    return np.linalg.matrix_power(sweep, 2000)[0]


@pytest.mark.parametrize(("width", "n_auxiliary"), [(1e4, 1), (0.8, 3)])
def test_assignments_follow_their_exact_distribution(width, n_auxiliary):
    X = np.array([[0.0], [0.4], [1.0], [1.5]])
    y = np.array([0.3, -0.6, 0.9, 0.8])
    logs, alpha, states = np.log([0.2, 1.0, 1.0]), 1.3, partitions(4)
    assert len(states) == 15
    truth = stationary(states, logs, X, y, width, alpha)
    if width > 100:
        # The gate is then a Dirichlet process, whose posterior has a closed form.
        sizes = [[c.count(j) for j in set(c)] for c in states]
        prior = [len(s) * np.log(alpha) + sum(np.log(factorial(m - 1)) for m in s) for s in sizes]
        joint = [p + log_evidence(c, logs, X, y) for p, c in zip(prior, states, strict=True)]
        closed = np.exp(np.array(joint) - max(joint))
        np.testing.assert_allclose(truth, closed / closed.sum(), atol=1e-6)
    chain = Chain(X, y, LogNormalPrior(logs, np.zeros(3)), alpha=alpha, n_auxiliary=n_auxiliary)
    chain.set_widths(np.array([width]))
    rng, sweeps = np.random.default_rng(0), 4000
    counts = dict.fromkeys(states, 0)
    for _ in range(sweeps):
        move_points(chain, rng)
        counts[named(chain.assignment)] += 1
    found = np.array([counts[c] for c in states]) / sweeps
    # Sweeps are correlated: some three standard errors of half as many independent ones.
    np.testing.assert_array_less(np.abs(found - truth), 3.5 * np.sqrt(2 * truth / sweeps) + 1e-3)


def test_only_the_moves_asked_for_are_made():
    X, y = some_data(columns=1)
    chain = Chain(X, y, LogNormalPrior.vague(1), alpha=1.0)
    kept = run_chain(
        chain, np.random.default_rng(0), n_sweeps=5, burn_in=1, n_samples=2, moves=(move_alpha,)
    )
    assert len(kept) == 2
    assert all((k.assignment == 0).all() and np.all(k.logs == chain.prior.centre) for k in kept)
    assert kept[0].alpha != kept[1].alpha


def test_a_chain_starts_with_one_expert_whose_parameters_move():
    X, y = np.arange(5.0)[:, None], np.arange(5.0)
    chain, rng = Chain(X, y, LogNormalPrior.vague(1), alpha=1.0), np.random.default_rng(0)
    assert (chain.assignment.tolist(), len(chain.experts)) == ([0] * 5, 1)
    assert LogNormalPrior.vague(2).draw(rng, 3).shape == (3, 4)
    np.testing.assert_allclose(ChainSample.of(chain, rng).gate(X), np.ones((5, 1)))
    move_experts(chain, rng)
    assert np.any(chain.experts[0].logs != chain.prior.centre)
    move_points(chain, rng)
    assert sum(len(expert) for expert in chain.experts) == 5


def test_pseudo_likelihood_of_three_points_in_one_place():
    kernel = gate_kernel(np.ones(1), np.zeros((3, 1)))
    logs = pseudo_likelihood(kernel, np.array([0, 0, 1]), 1.0)
    assert np.isclose(np.exp(logs), (1 / 3) ** 3)


def test_hamiltonian_moves_follow_the_posterior():
    # One output at y = 2: signal and noise variance matter, by their sum; the length scale not.
    expert = Expert(np.zeros((1, 1)), np.array([2.0]), np.zeros(3), [0])
    prior = LogNormalPrior(np.array([-1.0, 0.5, 0.3]), np.array([1.0, 0.7, 0.5]))
    a, b = np.meshgrid(np.linspace(-7, 5, 241), np.linspace(-5, 6, 221), indexing="ij")
    joint = norm(-1.0, 1.0).pdf(a) * norm(0.5, 0.7).pdf(b)
    joint *= norm(0, np.sqrt(np.exp(a) + (1 + NUGGET) * np.exp(b))).pdf(2.0)
    joint /= joint.sum()
    truth = np.array([(joint * a).sum(), (joint * b).sum(), 0.3])
    expert.step = 0.8  # long enough to be rejected now and then
    rng, draws = np.random.default_rng(0), []
    for _ in range(3000):
        hmc_step(expert, prior, rng, tune=False)
        draws.append(expert.logs)
    np.testing.assert_allclose(np.mean(draws, axis=0), truth, atol=0.1)
    assert np.isclose(np.std(draws, axis=0)[2], 0.5, atol=0.05)


def test_concentration_follows_its_density():
    chain = Chain(*some_data(n=30, columns=1), LogNormalPrior.vague(1), alpha=1.0)
    chain.experts = [Expert(chain.X, chain.y, chain.prior.centre) for _ in range(4)]

    def density(t):  # of the logarithm
        alpha = np.exp(t)
        prior = alpha**-1.5 * np.exp(-0.5 / alpha) * alpha
        return prior * alpha**4 * np.exp(gammaln(alpha) - gammaln(30 + alpha) + gammaln(30))

    total, mean = quad(density, -8, 8)[0], quad(lambda t: t * density(t), -8, 8)[0]
    rng, draws = np.random.default_rng(0), []
    for _ in range(3000):
        move_alpha(chain, rng)
        draws.append(np.log(chain.alpha))
    assert np.isclose(np.mean(draws), mean / total, atol=4 * np.std(draws) / np.sqrt(3000))


def test_widths_follow_the_pseudo_likelihood():
    X = np.array([[-1.0], [-0.8], [-0.5], [0.5], [0.7], [1.0]])
    chain = Chain(X, np.zeros(6), LogNormalPrior.vague(1), alpha=1.0)
    chain.assignment = np.array([0, 0, 0, 1, 1, 1])

    grid = np.linspace(-6, 5, 400)
    logs = [
        pseudo_likelihood(gate_kernel(np.exp([t]), X), chain.assignment, 1.0)
        + norm(*LOG_WIDTH).logpdf(t)
        for t in grid
    ]
    weights = np.exp(logs) / np.sum(np.exp(logs))
    rng, draws = np.random.default_rng(0), []
    for _ in range(8000):
        move_widths(chain, rng)
        draws.append(np.log(chain.widths[0]))
    assert np.isclose(np.mean(draws), weights @ grid, atol=0.1)
    np.testing.assert_allclose(chain.kernel, gate_kernel(chain.widths, X))
