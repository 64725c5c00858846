"""Exact inference in place of a sparse solution, where the rows are few.

What few inducing inputs leave unexplained of a function acts as noise. Without them another
association may be the better one: above all, rows that too smooth a function left to clutter may
belong to the function.
"""

import dataclasses
from collections.abc import Iterator
from typing import Any

import equinox as eqx
import jax
import numpy as np
from scipy.special import ndtri

from dagp.core.sharding import device_count, shard_rows, to_host
from dagp.core.typing import Float
from dagp.inference.exact import Exact, applies, fit_exact
from dagp.inference.missing import filled
from dagp.inference.outlier_check import left_out_error, unlike_clutter
from dagp.inference.problem import Problem, build, with_inducing
from dagp.inference.standardize import Sample, padded
from dagp.inference.train import Progress, Result, begin
from dagp.model.association import Batch, DataAssociation
from dagp.model.gates import Gate
from dagp.model.kernel import Kernel, Sum
from dagp.model.parameters import Parameter
from dagp.model.process import Process
from dagp.search.solution import Solution
from dagp.search.trial import Trainer

EXACT_ROWS = 1000
"""Rows up to which exact inference is affordable; its cost grows with their third power."""
TRIAL_ROUNDS = 2
"""Rounds of every candidate of the exact fit before the best one is chosen."""
RETURNS = 3
"""Most times that rows are returned from clutter to the function."""
APART = 4.0
"""Ratio of the initial length scales of the two parts of a sum of kernels, and of their standard
deviations: parts that begin alike stay alike for long."""
NOISE = 0.2
"""Initial noise standard deviation of candidates that do not continue the search."""
LITTLE_NOISE = 0.02
"""Initial noise standard deviation of the last candidate. What much noise would explain, too, has
small derivatives: a function that begins with much may never find the details of the data."""
DOUBT = 0.02
"""Initial responsibility of clutter for rows that are not taken for clutter, and of the function
for those that are."""
FAR = 4.0
"""Robust standard deviations from which the residual of a row is taken for clutter."""


def is_exact(problem: Problem, model: DataAssociation) -> bool:
    """Whether exact inference applies to the problem, on one device, and is affordable."""
    few = len(problem.sample.X) <= EXACT_ROWS and device_count() == 1
    return few and problem.plain and applies(model)


def use_all(solution: Solution, trainer: Trainer) -> None:
    """Replace a solution by the best one of exact inference, with all inputs as inducing inputs."""
    problem, trainer = solution.problem, trainer.on(solution.problem)
    batch = trainer.batch
    trials = [
        fit_exact(begun, batch, trainer.tol, TRIAL_ROUNDS) for begun in _candidates(solution, batch)
    ]
    best = max(trials, key=lambda trial: trial.bound)
    ends = _detailed(solution, trainer, best), _to_the_end(solution, trainer, best)
    best = max(ends, key=lambda end: end.bound)
    best = _with_clutter_that_is_clutter(solution, trainer, best)
    if not np.isfinite(best.bound):
        return
    everywhere = problem._replace(inducing=np.unique(problem.sample.X, axis=0))
    whole = with_inducing(everywhere, solution.start, best.model)
    processes = [whole.process(k) for k in range(problem.n_processes)]
    model = DataAssociation.assemble(processes, best.model.gate)
    # One step, on the responsibilities found: further ones would use those of the sparse model, in
    # which the jitter of the inducing covariance counts as noise, and almost none may be left.
    state, bound = begin(model, batch, best.responsibilities, 0)
    if np.isfinite(float(bound.value)):
        state = state._replace(model=state.model.with_gate(best.model.gate))
        solution.problem, solution.exact = everywhere, True
        solution.adopt(Result(state, best.bound, np.zeros(0), "converged", solution.rate))


def _with_clutter_that_is_clutter(solution: Solution, trainer: Trainer, best: Exact) -> Exact:
    """A result, with rows returned to the function that are not distributed as clutter is and help
    to predict the others (see `outlier_check`)."""
    problem = solution.problem
    returned = np.zeros(len(problem.sample.X), bool)
    for _ in range(RETURNS):
        more = unlike_clutter(problem.sample, problem.clutter, best) & ~returned
        if not more.any():
            break
        outside = (returned | more)[:, None] & np.array(problem.clutter)
        barred = trainer.barring(outside)
        given = to_host(best.responsibilities).copy()
        judged = (given @ np.array(problem.clutter))[: len(more)] < 0.5
        given[: len(more)][more] = ~np.array(problem.clutter)
        begun = best._replace(responsibilities=shard_rows(given))
        trial = _detailed(solution, barred, begun)
        if trial.given is None:  # there is no such solution
            break
        before, after = (left_out_error(problem.sample, s, judged | more) for s in (best, trial))
        if not after < before:
            break
        best, returned = trial, returned | more
    if not returned.any():
        return best
    # A function that was trained with these rows usually explains them; then they stay.
    free = fit_exact(best._replace(bound=-np.inf), trainer.batch, trainer.tol)
    return (
        best if np.any(unlike_clutter(problem.sample, problem.clutter, free) & returned) else free
    )


def _detailed(solution: Solution, trainer: Trainer, best: Exact) -> Exact:
    """Trained from little noise, with the association and the gate of a result."""
    model = _fresh(solution, LITTLE_NOISE, best.model.gate)
    return _to_the_end(solution, trainer, Exact(model, best.responsibilities))


def _to_the_end(solution: Solution, trainer: Trainer, begun: Exact) -> Exact:
    """Trained to convergence, which is reported."""

    def report(bound: float) -> None:
        trainer.notify(Progress("exact", 0, solution.steps, bound))

    return fit_exact(begun, trainer.batch, trainer.tol, report=report)


def _candidates(solution: Solution, batch: Batch) -> Iterator[Exact]:
    """Where exact inference begins: at the solution, at its association with hyperparameters of the
    beginning, and with little clutter."""
    problem, state = solution.problem, solution.state
    yield Exact(state.model, state.responsibilities)
    yield Exact(_fresh(solution, NOISE, state.model.gate), state.responsibilities)
    if any(problem.clutter) and not all(problem.clutter):
        model = _fresh(solution, NOISE)
        given = _little_clutter(problem, model, solution.responsibilities)
        yield Exact(model, shard_rows(padded(given, len(batch.X))))


def _fresh(solution: Solution, noise_std: float, gate: Gate | None = None) -> DataAssociation:
    """A model with hyperparameters of the beginning, and this gate or a new one."""
    problem = solution.problem
    wide = float(np.sqrt(problem.sample.X.shape[1]))
    fresh = build(problem, solution.start._replace(lengthscale=wide, noise_std=noise_std))
    processes = [_apart(fresh.process(k)) for k in range(problem.n_processes)]
    kept = fresh.gate if gate is None else jax.tree.map(to_host, gate)
    return DataAssociation.assemble(processes, kept)


def _apart(process: Any) -> Process:
    """The process with the parts of a sum of kernels at different length scales and variances."""
    kernel = getattr(getattr(process, "latent", None), "kernel", None)
    if not isinstance(kernel, Sum):
        return process
    smooth = _scaled(kernel.first, np.sqrt(APART), 1.0)
    rough = _scaled(kernel.second, 1 / np.sqrt(APART), 1 / APART**2)
    parts = dataclasses.replace(kernel, first=smooth, second=rough)
    return eqx.tree_at(lambda p: p.latent.kernel, process, parts)


def _scaled(kernel: Kernel, lengthscale: float, variance: float) -> Kernel:
    """The kernel with length scale and variance multiplied, where the user gave none."""
    for name, factor in (("lengthscale", lengthscale), ("variance", variance)):
        own = getattr(kernel, name, None)
        if isinstance(own, Parameter):
            kernel = dataclasses.replace(kernel, **{name: own.starting_at(factor * own.value)})
    return kernel


def _little_clutter(
    problem: Problem, model: DataAssociation, found: Float[np.ndarray, "N K"]
) -> Float[np.ndarray, "N K"]:
    """Responsibilities with few rows of clutter, or hardly any where there are several functions.

    A single function with the hyperparameters of `model` predicts each row from all others; rows
    far from their prediction, compared with the other rows, are clutter.
    """
    clutter = np.array(problem.clutter)
    far = np.zeros(len(found), bool)
    if np.sum(~clutter) == 1:
        process: Any = model.process(int(np.flatnonzero(~clutter)[0]))
        residual = _left_out(process, problem.sample)
        spread = np.nanmedian(np.abs(residual), axis=0) / ndtri(0.75)
        far = np.any(np.abs(residual) > FAR * spread, axis=1)
    functions = found * ~clutter + DOUBT / len(clutter)
    functions /= functions.sum(axis=1, keepdims=True)
    background = clutter / clutter.sum()
    share = np.where(far, 1 - DOUBT, DOUBT)[:, None]
    return (1 - share) * functions + share * background


def _left_out(process: Any, sample: Sample) -> Float[np.ndarray, "N P"]:
    """Residual of every row from its prediction by the others."""
    y = filled(sample).y
    residual = y - np.asarray(process.latent.mean(sample.X))
    covariance = np.asarray(process.latent.kernel(sample.X, sample.X))
    columns = []
    for noise, column in zip(np.asarray(process.noise_variance()), residual.T, strict=True):
        precision = np.linalg.inv(covariance + np.diag(noise / sample.weight))
        columns.append(precision @ column / np.diag(precision))
    return np.stack(columns, axis=1)
