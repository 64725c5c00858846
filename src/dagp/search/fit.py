"""Fit of a problem by collapsed or concrete inference, in full batch, minibatches or a stream."""

import logging
from collections.abc import Sequence
from typing import Any, NamedTuple

import jax
import numpy as np

from dagp.core.errors import FitError, warn
from dagp.core.log import logger
from dagp.core.sharding import any_worker, shard_rows
from dagp.core.tags import storable
from dagp.inference.concrete import Concrete, initial_concrete_state, train_concrete, with_natural_q
from dagp.inference.minibatch import (
    DECAY,
    FIRST_LEARNING_RATE,
    init_opt_state,
    noise_levels,
    shuffled,
    streaming_update,
    sweeps,
    train_minibatch,
)
from dagp.inference.run_log import NO_LOG, RunLog
from dagp.inference.standardize import Sample, padded, to_batch, to_device_batch
from dagp.inference.train import (
    BLOCK,
    STOCHASTIC_BLOCK,
    Callback,
    Progress,
    Result,
    State,
    begin,
    settled,
)
from dagp.model.association import Batch, DataAssociation
from dagp.model.process import Deepening, ProcessPrior
from dagp.search.confidence import Verdict
from dagp.search.diagnosis import check_converged, check_finite, check_jitter, judge
from dagp.search.factory import Problem, Resumed, build, deepened, resumed
from dagp.search.neighbours import neighbours
from dagp.search.number import Smaller, prune, with_fewer
from dagp.search.race import FIRST_DROPPED, Contender, ranked
from dagp.search.refine import Amount
from dagp.search.search import fewer_inducing, search, warm, with_more_inducing
from dagp.search.starts import starts
from dagp.search.subsample import SEARCH_ROWS, subsample
from dagp.search.trainer import Trainer

MANY_ROWS, BATCH_ROWS = 20_000, 1000
"""Above this number of rows, minibatches of this size are the default."""
SUBSAMPLE_STEPS = 4 * BLOCK
"""Most steps of the solution of a subsample before it is trained on all rows."""
STREAM_CHUNK = 1024
"""Rows per streaming update if no batch size is given."""
STREAM_PATIENCE = 10
"""Updates after which the learning rate of the noise levels starts to fall."""
CONCRETE_TRIAL = 8 * STOCHASTIC_BLOCK
"""Steps of every start of the paper's scheme before the best one is chosen."""


class Options(NamedTuple):
    """Settings of the search."""

    n_init: int
    max_iter: int
    tol: float
    batch_size: int | None
    auto: bool
    """Whether unused processes are removed."""
    rng: np.random.Generator
    callback: Callback
    log: RunLog = NO_LOG
    amount: Amount = None
    """Inducing inputs of the final fit, if not those of the problem."""
    averaged: bool = False
    """Whether other associations of almost the same ELBO are wanted."""

    def trainer(self, batch: Batch) -> Trainer:
        return Trainer(batch, self.tol, self.callback, self.log)


def joint_callback(callbacks: Sequence[Callback], verbose: int) -> Callback:
    """One callback for all callbacks and for the log; true if any returns true.

    A line of the log has level INFO if `verbose`, otherwise DEBUG.
    """
    level = logging.INFO if verbose else logging.DEBUG

    def callback(progress: Progress) -> bool:
        logger.log(level, "%s: start %d, step %d, ELBO %.2f", *progress)
        # A list, so that every callback is called.
        return any_worker(any([bool(each(progress)) for each in callbacks]))  # noqa: C419

    return callback


class Fit(NamedTuple):
    """A solution, the starts and other solutions."""

    result: Result
    ranking: list[Contender]
    rivals: list[tuple[Contender, Result]]
    """Other solutions, best first."""
    complete: bool
    """Whether the rivals cover all rows, or only the subsample."""
    batch: Batch | None
    """All rows, if they were trained on as one batch."""
    verdict: Verdict = Verdict(np.nan)
    close: tuple[tuple[Contender, Result], ...] = ()
    """Other associations of almost the same ELBO, best first."""
    priors: tuple[ProcessPrior, ...] = ()
    """Of the processes that are left."""


def fit_collapsed(
    problem: Problem, options: Options, previous: DataAssociation | None = None
) -> Fit:
    """Search, and train on all rows at once or in minibatches."""
    continued = None if previous is None else resumed(problem, previous)
    if continued is not None and continued.anew:
        warn(
            f"warm_start: {', '.join(continued.anew)} had other priors before and start afresh; "
            "the rest continues from the previous fit.",
        )
    size = options.batch_size
    if size is None:
        part, rows = problem, np.arange(len(problem.sample.X))
    else:
        rows = subsample(problem.sample, max(SEARCH_ROWS, size), options.rng)
        part = problem._replace(sample=problem.sample.take(rows))
    trainer = options.trainer(to_device_batch(part.sample, part.n_processes))
    if size is not None and continued is not None:
        contender = warm(continued, trainer.batch)
        contender.fate, contender.status = "kept", "converged"
        found = Fit(contender.result(), [contender], [], False, None)
    else:
        if size is None:
            found = _search(part, options, trainer, continued, None)
        else:
            # More inducing inputs would be as many in every minibatch.
            fewer = options._replace(max_iter=min(options.max_iter, SUBSAMPLE_STEPS), amount=None)
            found = _search(part, fewer, trainer, continued, problem.sample)
        decisive = tuple(int(rows[row]) for row in found.verdict.rows)
        found = found._replace(verdict=found.verdict._replace(rows=decisive))
    if size is not None:
        result = _in_minibatches(problem, found.result, size, options)
        check_finite(result.bound, found.ranking)
        found = found._replace(result=result, complete=False, batch=None)
    check_converged(found.result)
    return found


def _in_minibatches(problem: Problem, found: Result, size: int, options: Options) -> Result:
    """Train the solution of the subsample on all rows; a stopped fit is only evaluated."""
    model, stopped = found.state.model, found.status == "stopped"
    # Pruning may have left fewer processes than the problem started with.
    result = train_minibatch(
        model,
        problem.sample,
        size=min(size, len(problem.sample.X)),
        max_iter=0 if stopped else options.max_iter,
        tol=options.tol,
        rng=options.rng,
        callback=options.callback,
        log=options.log,
    )
    trace = np.concatenate([found.trace, result.trace])
    return result._replace(trace=trace, status="stopped" if stopped else result.status)


def _search(
    problem: Problem,
    options: Options,
    trainer: Trainer,
    previous: Resumed | None,
    all_rows: Sample | None,
) -> Fit:
    """Search; `all_rows` decide between the finalists if the problem has only some of them."""
    coarse, amount = problem, options.amount
    if options.auto and previous is None:
        problem = with_fewer(problem, options.rng)
        trainer = options.trainer(to_device_batch(problem.sample, problem.n_processes))
        # Noise GPs are trained in many steps, which superfluous processes make expensive.
        coarse = fewer_inducing(problem, options.rng) if problem.noise_gps_alone else problem
        amount = options.amount if coarse is problem else None
    result, ranking = search(
        coarse,
        trainer,
        n_init=options.n_init,
        max_iter=options.max_iter,
        rng=options.rng,
        spare=options.auto,
        previous=previous,
        on_all_rows=None if all_rows is None else lambda model: sweeps(model, all_rows)[1],
        amount=amount,
    )
    batch = trainer.batch
    check_finite(result.bound, ranking)
    check_jitter(result.state.model, batch)
    verdict, others = judge(ranking, batch, problem.sample.weight)
    rivals = [(c, settled(c.result(), batch)) for c in others]
    if options.auto and result.status != "stopped":
        result, problem, trainer = _pruned(problem, coarse, result, trainer, options)
    close: list[tuple[Contender, Result]] = []
    if options.averaged and all_rows is None and result.status != "stopped":
        (_, result), *close = neighbours(problem, result, others, trainer, options.max_iter)
    return Fit(result, ranking, rivals, True, trainer.batch, verdict, tuple(close), problem.priors)


def _pruned(
    problem: Problem, coarse: Problem, result: Result, trainer: Trainer, options: Options
) -> Smaller:
    """The solution without superfluous processes, with the inducing inputs of the problem."""
    result, left, trainer = prune(coarse, result, trainer, options.max_iter)
    if coarse is not problem:
        left = left._replace(inducing=problem.inducing)
        more = options.rng, options.max_iter, options.amount
        result = with_more_inducing(left, result, trainer, *more)
        # One process more may have followed what fewer inducing inputs could not.
        if result.status != "stopped":
            result, left, trainer = prune(left, result, trainer, options.max_iter)
    return result, left, trainer


def fit_concrete(problem: Problem, options: Options, settings: Concrete) -> Fit:
    """The paper's scheme: a short run of every start, then a full run of the best."""
    data, rows = to_device_batch(problem.sample, problem.n_processes), len(problem.sample.X)
    size = min(options.batch_size or settings.batch_size, rows)
    batches = shuffled(rows, size, options.rng)
    run: dict[str, Any] = {"scale": rows / size, "of": options.max_iter, "log": options.log}
    contenders: list[Contender] = []
    states: list[Any] = []
    for index, start in enumerate(starts(problem, options.n_init, options.rng)):
        given = shard_rows(padded(start.responsibilities, len(data.X)))
        plain, bound = begin(build(problem, start), data, given, 0)
        if not np.isfinite(float(bound.value)):
            failed = Contender(start, plain, status="diverged", fate=FIRST_DROPPED)
            contenders.append(failed)
            states.append(None)
            continue
        model = deepened(problem, start, plain.model, Deepening())
        state, result = train_concrete(
            initial_concrete_state(plain._replace(model=model, responsibilities=given), index),
            data,
            batches,
            settings,
            first=0,
            steps=CONCRETE_TRIAL,
            tol=-np.inf,
            **run,
        )
        contender = Contender(start, result.state, fate=FIRST_DROPPED)
        contender.finish_rung(result)
        contenders.append(contender)
        states.append(state)
        if options.callback(Progress("race 1", index, contender.steps, contender.bound)):
            break
    best = int(np.argmax([c.bound for c in contenders]))
    kept = contenders[best]
    check_finite(kept.bound, contenders)
    _, result = train_concrete(
        states[best],
        data,
        batches,
        settings,
        first=CONCRETE_TRIAL,
        steps=max(options.max_iter - CONCRETE_TRIAL, STOCHASTIC_BLOCK),
        tol=options.tol,
        callback=options.callback,
        start=best,
        **run,
    )
    kept.finish_rung(result)
    kept.fate = "kept"
    check_finite(result.bound, contenders)
    check_converged(result)
    return Fit(result, ranked(contenders), [], True, data)


@storable("inference/Stream")
class Stream(NamedTuple):
    """State of streaming updates. Holds NumPy arrays only."""

    model: DataAssociation
    opt_state: Any
    """Of Adam; None before its first step."""
    seen: float
    """Total weight of the data so far."""
    steps: int

    @staticmethod
    def after(model: DataAssociation, seen: float) -> "Stream":
        return Stream(model, None, seen, 0)


def _check_absorbed(state: State) -> None:
    """Raise FitError if an update has left a model that is not finite."""
    if not all(np.all(np.isfinite(leaf)) for leaf in jax.tree.leaves(state.model)):
        dtype = state.responsibilities.dtype.name
        raise _beyond("its parameters would not be finite", dtype)


def _check_distributions(model: DataAssociation, dtype: str) -> None:
    """Raise FitError if rounding has left a q that is not a distribution."""
    try:
        model.gate.check(model.n_processes, dtype)
        for k in range(model.n_processes):
            model.process(k).check(dtype)
    except ValueError as error:
        raise _beyond(str(error), dtype) from error


def _beyond(why: str, dtype: str) -> FitError:
    advice = ["Check for extreme values or weights", "fit all rows at once"]
    if dtype != "float64":
        advice.append('use dtype="float64"')
    return FitError(
        f"These rows are beyond what the model can take in: {why}. {', or '.join(advice)}."
    )


def update_stream(stream: Stream, sample: Sample, batch_size: int | None) -> tuple[Stream, Result]:
    """Update with a standardised sample, in chunks."""
    size, K = batch_size or STREAM_CHUNK, stream.model.n_processes
    model, opt_state, seen, steps = stream
    if opt_state is None:
        model = with_natural_q(model)
        opt_state = init_opt_state(model, noise_levels(model))
    found, bounds = [], []
    for first in range(0, len(sample.X), size):
        part = sample.take(slice(first, first + size))
        rate = FIRST_LEARNING_RATE * (1 + steps / STREAM_PATIENCE) ** -DECAY
        state, bound = streaming_update(
            model, opt_state, to_batch(part, K), np.asarray(seen), np.asarray(rate)
        )
        _check_absorbed(state)
        model, opt_state = state.model, state.opt_state
        found.append(np.asarray(state.responsibilities)[: len(part.X)])
        bounds.append(float(bound))
        seen, steps = seen + float(part.weight.sum()), steps + 1
    model, opt_state = jax.tree.map(np.asarray, (model, opt_state))
    _check_distributions(model, found[0].dtype.name)
    state = State(model, np.concatenate(found), opt_state)
    result = Result(state, bounds[-1], np.array(bounds), "converged", 0.0)
    return Stream(model, opt_state, seen, steps), result
