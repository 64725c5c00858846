"""How many processes: an upper limit before the search, and the removal of superfluous ones after.

Mixtures of regressions cost little, and their score tells how many functions the data have use for.
They may count too many, where one function is too rough for them, but hardly ever too few. The
search begins with that number, or one more; then processes are removed one by one, as long as the
ELBO allows.
"""

from collections.abc import Iterator
from functools import partial

import jax
import numpy as np
from scipy.special import softmax

from dagp.core.sharding import shard_rows, to_host
from dagp.core.threads import concurrently
from dagp.core.typing import Bool, Float
from dagp.inference.parallel import width
from dagp.inference.standardize import FORBIDDEN, padded, to_device_batch
from dagp.inference.train import BLOCK, Result, begin, settled
from dagp.model.association import Batch, DataAssociation
from dagp.search.factory import Problem, Start, build
from dagp.search.improve import HOPELESS, PROBE_STEPS, per_point, view
from dagp.search.inducing import choose_inducing
from dagp.search.missing import filled
from dagp.search.moves import View
from dagp.search.regressions import FEATURES, Rows, mixtures
from dagp.search.trainer import Trainer
from dagp.search.usage import in_use

TRIES = 12
"""Mixtures of every number of functions."""
MOST_ROWS = 600
DECISIVE = 20.0
"""Lead of a mixture's score over that of one with another function that decides against it."""
WORTH = 3.0
"""What a process must add to the ELBO to be kept: odds of 20 to 1."""
REMOVAL_STEPS = 4 * BLOCK
"""Steps for a model without a process to come as high as the model with it."""


Smaller = tuple[Result, Problem, Trainer]
"""A solution with its processes and its batch."""


def with_fewer(problem: Problem, rng: np.random.Generator) -> Problem:
    """The problem with as many functions as mixtures of regressions have use for, and one more
    unless their score decides against it."""
    functions = [prior for prior in problem.priors if not prior.clutter]
    clutter = [prior for prior in problem.priors if prior.clutter]
    if len(functions) < 2:
        return problem
    scores = np.array(_scores(problem, len(functions), rng))
    # Two functions are tried at least: how they differ may escape the regressions.
    best = max(int(np.argmax(scores)), 1)
    count = 1 + int(np.flatnonzero(scores[: best + 2] > scores[best] - DECISIVE)[-1])
    return problem._replace(priors=(*functions[:count], *clutter))


def _scores(problem: Problem, most: int, rng: np.random.Generator) -> list[float]:
    """The highest score of mixtures of every number of functions."""
    sample = problem.sample
    some = np.sort(rng.permutation(len(sample.X))[:MOST_ROWS])
    part = filled(sample.take(some))
    inducing = choose_inducing(part.X, FEATURES, rng)
    scores = []
    for K in range(1, most + 1):
        may = np.zeros((len(some), K + any(problem.clutter)))
        rows = Rows.of(part, may)
        scores.append(mixtures(rows, K, inducing, rng, tries=TRIES, improved=0)[0].score)
    return scores


def prune(problem: Problem, result: Result, trainer: Trainer, max_iter: int) -> Smaller:
    """The solution without superfluous processes, trained to convergence."""
    weight = problem.sample.weight
    found = to_host(result.state.responsibilities)[: len(weight)]
    used, given = in_use(found, weight), result
    if 0 < used.sum() < problem.n_processes:
        result, problem, trainer = _restricted(problem, result, trainer, used, found)
    while problem.n_processes > 1:
        smaller = _without_one(problem, result, trainer)
        if smaller is None:
            break
        result, problem, trainer = smaller
    # The gate of fewer processes is new, and a few steps may seem to have converged without it.
    if result is not given or result.status == "budget":
        trained = trainer.train(result.state, max_iter, result.rate)
        trace = np.concatenate([result.trace, trained.trace])
        result = settled(trained, trainer.batch)._replace(trace=trace)
    return result, problem, trainer


def _without_one(problem: Problem, result: Result, trainer: Trainer) -> Smaller | None:
    """The solution with one process less, if the ELBO allows."""
    seen = view(problem, result.state, trainer.batch)
    log_predictive = seen.log_predictive()
    least = result.bound - HOPELESS * per_point(problem)
    for k in map(int, np.argsort(seen.sizes)):
        # In the larger model first, which costs little and needs no other program.
        barred = _barred(trainer.batch, k)
        proposals = list(_handed_over(seen, k, log_predictive))
        probe = partial(_probe, result, barred)
        bounds = list(concurrently(probe, proposals, width(result.state)))
        bound, given = max(zip(bounds, proposals, strict=True), key=lambda one: one[0])
        if bound > least:
            rest = np.arange(problem.n_processes) != k
            smaller = _restricted(problem, result, trainer, rest, given)
            if smaller[0].bound > result.bound - WORTH:
                return smaller
    return None


def _handed_over(
    seen: View, k: int, log_predictive: Float[np.ndarray, "N K"]
) -> Iterator[Float[np.ndarray, "N K"]]:
    """Responsibilities without process k: its points go where they are predicted, or to one other
    function, which may be unsure where it had none."""
    rest = np.arange(len(seen.means)) != k
    given = np.zeros_like(seen.responsibilities)
    given[:, rest] = softmax(log_predictive[:, rest], axis=1)
    yield given
    for j in seen.smooth:
        if j != k:
            yield seen.hand_over(k, j, np.ones(len(given), bool))


def _barred(batch: Batch, k: int) -> Batch:
    """The batch without any row for process k."""
    mask = to_host(batch.label_log_mask).copy()
    mask[:, k] = FORBIDDEN
    return batch._replace(label_log_mask=shard_rows(mask))


def _probe(result: Result, batch: Batch, given: Float[np.ndarray, "N K"]) -> float:
    """The ELBO after coordinate ascent from these responsibilities; −∞ if it is not finite."""
    given = shard_rows(padded(given, len(batch.X)))
    value = float(begin(result.state.model, batch, given, PROBE_STEPS)[1].value)
    return value if np.isfinite(value) else -np.inf


def _restricted(
    problem: Problem,
    result: Result,
    trainer: Trainer,
    kept: Bool[np.ndarray, " K"],
    given: Float[np.ndarray, "N K"],
) -> Smaller:
    """The solution with some of the processes, after some steps from given responsibilities."""
    # On the host: on a device, taking the processes apart compiles a program for every shape.
    model, ks = jax.tree.map(to_host, result.state.model), np.flatnonzero(kept)
    smaller = problem._replace(priors=tuple(problem.priors[k] for k in ks))
    batch = to_device_batch(smaller.sample, len(ks))
    left = given[:, ks] + 1e-12
    left /= left.sum(axis=1, keepdims=True)
    gate = build(smaller, Start.of("pruned", left)).gate
    rest = DataAssociation.assemble([model.process(int(k)) for k in ks], gate)
    state, _ = begin(rest, batch, shard_rows(padded(left, len(batch.X))), PROBE_STEPS)
    trainer = trainer._replace(batch=batch)
    trained = trainer.train(state, REMOVAL_STEPS, result.rate)
    trace = np.concatenate([result.trace, trained.trace])
    return settled(trained, batch)._replace(trace=trace), smaller, trainer
