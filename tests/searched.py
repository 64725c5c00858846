"""Problems, solutions and views for the tests of the search."""

from types import SimpleNamespace

import numpy as np
from scipy.stats import norm

from dagp import GP, Noise
from dagp.inference.inducing import choose_inducing
from dagp.inference.problem import Problem, Start, build
from dagp.inference.standardize import Sample, Units, canonical, label_log_mask, to_batch
from dagp.inference.train import State
from dagp.search.solution import Options, Solution
from dagp.search.trial import Trainer, View


def sample_of(X, y, labels=None, weight=None):
    labels = np.full(len(X), -1) if labels is None else labels
    weight = np.ones(len(X)) if weight is None else weight
    return Sample(X, np.reshape(y, (len(X), -1)), weight, labels)


def problem_of(X, y, priors, labels=None, gate=None, inducing=12):
    """The problem of standardised data."""
    sample, _ = canonical(sample_of(X, y, labels))
    units = Units.of(sample)
    standard = units.apply(sample)
    places = choose_inducing(standard.X, inducing, np.random.default_rng(0))
    return Problem(standard, units, tuple(priors), gate, places)


def trainer_of(problem, tol=1e-3, callback=lambda _: False):
    return Trainer.of(problem, Options(1, 1, tol, None, False, np.random.default_rng(0), callback))


def begun(problem, given, steps=0, lengthscale=0.6, noise_std=0.1):
    """A solution that begins at these responsibilities, and its trainer."""
    trainer = trainer_of(problem)
    start = Start("given", np.asarray(given, float), lengthscale, noise_std)
    state, bound = trainer.begin(build(problem, start), start.responsibilities, steps)
    return Solution(problem, start, state, bound), trainer


def solution_of(shares, bound=0.0, kind="rank", weight=None, rungs=2, fate="finalist", kinds=None):
    """A solution without a model: its responsibilities and its ELBO."""
    N = len(shares)
    sample = sample_of(np.arange(float(N))[:, None], np.zeros(N), weight=weight)
    problem = SimpleNamespace(sample=sample, kinds=kinds or ("GP",) * np.shape(shares)[1])
    found = Solution(problem, Start(kind, shares), State(None, padded(shares), None), bound)
    found.rungs, found.fate = [bound] * rungs, fate
    return found


def padded(shares):
    """With rows of padding, as on a device."""
    length = len(to_batch(sample_of(np.zeros((len(shares), 1)), np.zeros(len(shares))), 2).X)
    K = np.shape(shares)[1]
    return np.concatenate([shares, np.full((length - len(shares), K), 1 / K)])


def view_of(
    X,
    y,
    member,
    means,
    *,
    noise=0.05,
    variances=0.0,
    weight=None,
    labels=None,
    clutter=(),
    kinds=None,
):
    """A model with these functions; `member` are processes of rows, or responsibilities."""
    sample = sample_of(X, y, labels, weight)
    N, P = sample.y.shape
    means = np.reshape(np.asarray(means, float), (-1, N, P))
    K = len(means)
    variances = np.broadcast_to(variances, means.shape).astype(float)
    density = np.sum(norm.logpdf(sample.y, means, noise) - variances / noise**2 / 2, axis=2).T
    density[:, list(clutter)] = -P * np.log(4.0)
    smooth = [k for k in range(K) if k not in clutter]
    member = np.asarray(member)
    given = np.eye(K)[member] if member.ndim == 1 else member
    priors = tuple(Noise() if k in clutter else GP() for k in range(K))
    problem = Problem(sample, None, priors, None, X[:1])
    if kinds is not None:
        problem = SimpleNamespace(kinds=kinds)
    return View(
        SimpleNamespace(problem=problem),
        None,
        sample,
        given,
        means,
        variances,
        np.full((K, P), noise),
        density - np.log(K) + label_log_mask(sample.labels, K),
        smooth,
        smooth,
        np.zeros((K, N)),
    )
