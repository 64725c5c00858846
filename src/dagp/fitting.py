"""From a problem to a solution: which inference, on how much of the data at a time."""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from dagp.concrete import Concrete, as_natural, begin_concrete, train_concrete
from dagp.data import Sample, on_devices, padded, to_batch
from dagp.diagnosis import check_converged, check_finite, review
from dagp.errors import FitError
from dagp.model import Batch, DataAssociation
from dagp.placement import agreed, place
from dagp.processes import Growth
from dagp.race import Contender, Tell, ranked
from dagp.search import prune, search
from dagp.starts import Problem, build, grown, resumed, starts
from dagp.stochastic import (
    DECAY,
    FIRST_LEARNING_RATE,
    absorb,
    fresh_moments,
    levels,
    shuffled,
    train_in_batches,
)
from dagp.train import BLOCK, Progress, Result, State, begin, resume, settled

__all__ = ["Fit", "Options", "Stream", "fit_collapsed", "fit_concrete", "go_on", "teller"]

LOOKED_AT = 2000
"""With batches, rows among which the association is looked for before all of them are used."""
CHUNK = 1024
"""Rows of a stream that are taken in together where no batch size is stated."""
STREAM_PATIENCE = 10
"""Batches after which the steps of the hyperparameters begin to shorten."""
CONCRETE_TRIAL = 8 * BLOCK
"""Steps each start of the paper's scheme has to show what it is worth."""


class Options(NamedTuple):
    """How hard to try."""

    n_init: int
    max_iter: int
    tol: float
    batch_size: int | None
    auto: bool
    """Whether processes that nothing uses are taken out."""
    rng: np.random.Generator
    tell: Tell


def teller(callbacks: Sequence[Callable[[Progress], Any]], verbose: int) -> Tell:
    """Passes progress on to everybody, and back whether anybody wants to stop."""

    def tell(progress: Progress) -> bool:
        if verbose:
            print(
                f"{progress.phase}: start {progress.start}, step {progress.step}, "
                f"bound {progress.bound:.2f}"
            )
        wishes = [bool(callback(progress)) for callback in callbacks]
        return agreed(any(wishes))

    return tell


class Fit(NamedTuple):
    """A solution and how it was found."""

    result: Result
    ranking: list[Contender]
    rivals: list[tuple[Contender, Result]]
    """Other solutions, best first."""
    complete: bool
    """Whether the rivals know all rows, or only those that were looked at."""


def fit_collapsed(
    problem: Problem, options: Options, previous: DataAssociation | None = None
) -> Fit:
    """Search, and train on all data at once or in batches."""
    if previous is not None:
        previous = as_natural(resumed(problem, previous))
    size = options.batch_size
    looked_at = problem if size is None else _part(problem, max(LOOKED_AT, size), options.rng)
    if size is not None and previous is not None:
        contender = _resumed(looked_at, previous)
        found = Fit(contender.result(), [contender], [], complete=False)
    else:
        found = _search(looked_at, options, previous)
    if size is not None:
        result = _in_batches(problem, found.result, size, options)
        check_finite(result.bound, found.ranking)
        found = found._replace(result=result, complete=False)
    check_converged(found.result)
    return found


def _in_batches(problem: Problem, found: Result, size: int, options: Options) -> Result:
    """Train on all rows what was found among some of them; a fit that was stopped only looks."""
    model, stopped = found.state.model, found.status == "stopped"
    # Pruning may have left fewer processes than the problem began with.
    result = train_in_batches(
        model,
        problem.sample,
        size=min(size, len(problem.sample.X)),
        max_iter=0 if stopped else options.max_iter,
        tol=options.tol,
        rng=options.rng,
        report=lambda step, bound: bool(options.tell(Progress("batches", 0, step, bound))),
    )
    trace = np.concatenate([found.trace, result.trace])
    return result._replace(trace=trace, status="stopped" if stopped else result.status)


def _search(problem: Problem, options: Options, previous: DataAssociation | None) -> Fit:
    result, ranking = search(
        problem,
        n_init=options.n_init,
        max_iter=options.max_iter,
        tol=options.tol,
        rng=options.rng,
        tell=options.tell,
        previous=previous,
    )
    batch = _on_device(problem)
    others = review(result, ranking, batch, problem.sample.weight)
    if options.auto and result.status != "stopped":
        result = prune(problem, result, options.max_iter, options.tol)
    return Fit(result, ranking, [(c, settled(c.result(), batch)) for c in others], complete=True)


def _part(problem: Problem, count: int, rng: np.random.Generator) -> Problem:
    """The problem with some of its rows, or all where they are few."""
    rows = len(problem.sample.X)
    if rows <= count:
        return problem
    some = np.sort(rng.choice(rows, count, replace=False))
    return problem._replace(sample=type(problem.sample)(*(c[some] for c in problem.sample)))


def _resumed(problem: Problem, previous: DataAssociation) -> Contender:
    state = resume(previous, _on_device(problem))
    start = next(starts(problem, 1, np.random.default_rng(0)))
    return Contender(start._replace(kind="warm"), state, fate="kept", status="converged")


def _on_device(problem: Problem) -> Batch:
    return on_devices(problem.sample, problem.n_processes)


def fit_concrete(problem: Problem, options: Options, settings: Concrete) -> Fit:
    """The paper's scheme: every start runs a little, the best runs on."""
    data, rows = _on_device(problem), len(problem.sample.X)
    size = min(options.batch_size or settings.batch_size, rows)
    batches = shuffled(rows, size, options.rng)
    contenders: list[Contender] = []
    states: list[Any] = []
    for index, start in enumerate(starts(problem, options.n_init, options.rng)):
        shares = place(padded(start.responsibilities, len(data.X)))
        plain, bound = begin(build(problem, start), data, shares, 0)
        if not np.isfinite(float(bound.value)):
            failed = Contender(start, plain, status="diverged", fate="dropped after rung 1")
            contenders.append(failed)
            states.append(None)
            continue
        model = grown(problem, start, plain.model, Growth())
        state, result = train_concrete(
            begin_concrete(plain._replace(model=model, responsibilities=shares), index),
            data,
            batches,
            settings,
            scale=rows / size,
            first=0,
            steps=CONCRETE_TRIAL,
            of=options.max_iter,
            tol=-np.inf,
        )
        contender = Contender(start, result.state)
        contender.adopt(result)
        contender.rungs.append(result.bound)
        contender.fate = "dropped after rung 1"
        contenders.append(contender)
        states.append(state)
        if options.tell(Progress("race 1", index, contender.steps, contender.bound)):
            break
    best = int(np.argmax([c.bound for c in contenders]))
    check_finite(contenders[best].bound, contenders)
    _, result = train_concrete(
        states[best],
        data,
        batches,
        settings,
        scale=rows / size,
        first=CONCRETE_TRIAL,
        steps=max(options.max_iter - CONCRETE_TRIAL, BLOCK),
        of=options.max_iter,
        tol=options.tol,
        report=lambda step, bound: bool(options.tell(Progress("train", best, step, bound))),
    )
    kept = contenders[best]
    kept.adopt(result)
    kept.rungs.append(result.bound)
    kept.fate = "kept"
    check_finite(result.bound, contenders)
    check_converged(result)
    return Fit(result, ranked(contenders), [], complete=True)


class Stream(NamedTuple):
    """Where a model stands that is fed new data again and again. Holds NumPy arrays only."""

    model: DataAssociation
    moments: Any
    """Of the optimiser; None before its first step."""
    seen: float
    """Total weight of the data so far."""
    steps: int

    @staticmethod
    def after(model: DataAssociation, seen: float) -> "Stream":
        """At the end of a fit."""
        return Stream(model, None, seen, 0)


def _check_absorbed(state: State) -> None:
    """Raise where data that came later leave no model behind."""
    if not all(np.all(np.isfinite(leaf)) for leaf in jax.tree.leaves(state.model)):
        raise FitError(
            "These rows are beyond what the model can take in: its numbers would not stay finite. "
            "Look for wild values or weights among them, fit all rows at once, or use "
            'dtype="float64".'
        )


def go_on(stream: Stream, sample: Sample, batch_size: int | None) -> tuple[Stream, Result]:
    """Take in a standardised sample, some rows at a time."""
    size, K = batch_size or CHUNK, stream.model.n_processes
    model, moments, seen, steps = stream
    if moments is None:
        model = as_natural(model)
        moments = fresh_moments(model, levels(model))
    shares, bounds = [], []
    for begin_at in range(0, len(sample.X), size):
        part = Sample(*(column[begin_at : begin_at + size] for column in sample))
        rate = FIRST_LEARNING_RATE * (1 + steps / STREAM_PATIENCE) ** -DECAY
        state, bound = absorb(
            model, moments, to_batch(part, K), jnp.asarray(seen), jnp.asarray(rate)
        )
        _check_absorbed(state)
        model, moments = state.model, state.moments
        shares.append(np.asarray(state.responsibilities)[: len(part.X)])
        bounds.append(float(bound))
        seen, steps = seen + float(part.weight.sum()), steps + 1
    model, moments = jax.tree.map(np.asarray, (model, moments))
    state = State(model, np.concatenate(shares), moments)
    result = Result(state, bounds[-1], np.array(bounds), "converged", 0.0)
    return Stream(model, moments, seen, steps), result
