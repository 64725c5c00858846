"""The search for the right association: multi-start, successive halving, split–merge moves.

The ELBO has many local optima, so several starts of different kinds compete: all take a few steps,
the better ones take more. The best is improved by split–merge moves and trained to convergence. All
decisions are by the ELBO.
"""

from collections.abc import Callable, Iterator

import numpy as np

from dagp.core.sharding import shard_rows, to_host
from dagp.inference.parallel import width
from dagp.inference.standardize import padded
from dagp.inference.train import Result, begin, resume, settled
from dagp.model.association import Batch, DataAssociation
from dagp.search.confidence import CONFIRMED, support
from dagp.search.deepen import deepen
from dagp.search.factory import Problem, Resumed, Start, build
from dagp.search.improve import (
    GAIN,
    PARTS,
    PROBE_STEPS,
    improve,
    level_off,
    per_point,
    renew_gate,
    simplify,
)
from dagp.search.inducing import choose_inducing
from dagp.search.race import FIRST_DROPPED, RACE_STEPS, REACHED, Contender, race, ranked
from dagp.search.refine import Amount, finish, is_exact, refine, use_all, use_inducing
from dagp.search.starts import starts
from dagp.search.trainer import StopSearchError, Trainer
from dagp.search.usage import in_use

BEHIND = 0.1
"""A finalist this far behind, per data point, is not improved by moves."""
ROUNDS = 3
"""Most rounds of starts."""
UNDECIDED = 5 * GAIN
"""Two improved finalists that differ by less, per data point, are equally good: another round would
not decide between them."""
SEARCH_INDUCING = 48
"""Inducing inputs while associations are compared, which costs their number squared. The best one
is trained with all of them."""


def confirmed(problem: Problem, contenders: list[Contender], trainer: Trainer) -> bool:
    """Whether another start has reached the best solution, now or after some more training."""
    weight = problem.sample.weight
    best = max(contenders, key=lambda c: c.bound)
    if support(best, contenders, weight) >= CONFIRMED:
        return True
    others = [c for c in contenders if c.fate != FIRST_DROPPED and not c.levelled]
    others.sort(key=lambda c: -c.bound)

    def run(trainer: Trainer, other: Contender) -> Contender:
        trained = other.copy()
        level_off(problem, trained, trainer, best.bound - BEHIND * per_point(problem), PARTS // 2)
        return trained

    results = trainer.each(run, others, width(best.state))
    for other, trained in zip(others, results, strict=True):
        other.become(trained)
        if support(best, [other], weight) >= CONFIRMED:
            return True
    return False


def undecided(points: float, contenders: list[Contender]) -> bool:
    """Whether two improved finalists are equally good, for this number of data points."""
    bounds = sorted((c.bound for c in contenders if c.improved), reverse=True)
    return len(bounds) > 1 and bounds[1] > bounds[0] - UNDECIDED * points


def explore(
    problem: Problem,
    trainer: Trainer,
    n_init: int,
    rounds: int,
    rng: np.random.Generator,
    contenders: list[Contender],
) -> None:
    """Add contenders in rounds of `n_init` starts, until the best solution has been found twice."""

    def begun() -> Iterator[Contender]:
        for start in starts(problem, n_init, rng):
            given = shard_rows(padded(start.responsibilities, len(trainer.batch.X)))
            state, _ = begin(build(problem, start), trainer.batch, given, 0)
            contenders.append(Contender(start, state))
            yield contenders[-1]

    for _ in range(rounds):
        for contender in race(begun(), trainer):
            best = max(contenders, key=lambda c: c.bound)
            least = best.bound - BEHIND * per_point(problem)
            if not contender.levelled:
                level_off(problem, contender, trainer, least, PARTS)
            differs = support(contender, [best], problem.sample.weight) < REACHED
            if contender.bound >= least and differs:
                improve(problem, contender, trainer)
            if n_init == 1 or confirmed(problem, contenders, trainer):
                return
        if undecided(per_point(problem), contenders):
            return


def close_rivals(problem: Problem, best: Contender, contenders: list[Contender]) -> list[Contender]:
    """Finalists that are not far behind the best and differ from it."""
    least = best.bound - BEHIND * per_point(problem)
    return [
        c
        for c in contenders
        if c.fate == "finalist"
        and c.bound >= least
        and support(best, [c], problem.sample.weight) < REACHED
    ]


def search(
    problem: Problem,
    trainer: Trainer,
    *,
    n_init: int,
    max_iter: int,
    rng: np.random.Generator,
    spare: bool = False,
    previous: Resumed | None = None,
    on_all_rows: Callable[[DataAssociation], float] | None = None,
    amount: Amount = None,
) -> tuple[Result, list[Contender]]:
    """Race `n_init` starts, improve the best ones by moves, and train the best to convergence.

    A `previous` model is trained further instead. With `spare`, some processes are expected to
    remain unused, and training ends early where they do. If the problem has only some of the rows,
    the ELBO `on_all_rows` decides between the finalists. When the callback of the trainer returns
    true, the search ends with the best solution so far. `amount` is that of the inducing inputs of
    the final fit, beyond those of the problem.
    """
    contenders = [] if previous is None else [warm(previous, trainer.batch)]
    fewer = fewer_inducing(problem, rng)
    try:
        if previous is None:
            # Superfluous processes divide the data in ways that no two starts share.
            rounds = 1 if spare else ROUNDS
            explore(fewer, trainer, n_init, rounds, rng, contenders)
        best = max(contenders, key=lambda c: c.bound)
        rivals = close_rivals(problem, best, contenders)
        if on_all_rows is not None and rivals:
            best = max([best, *rivals], key=lambda c: on_all_rows(c.state.model))
        if amount == "all" and previous is None and is_exact(problem, best.state.model):
            use_all(problem, best, trainer)
            best.fate = "kept"
            return best.result(), ranked(contenders)
        if previous is None and fewer is not problem:
            use_inducing(problem, best, trainer)
        # A model with a process to spare is trained to convergence without it.
        steps = RACE_STEPS if spare and not _all_in_use(problem, best) else max_iter
        if previous is None:
            complete(problem, best, trainer, rng, steps, amount)
            if best.status != "stopped":
                deepen(problem, best, trainer, max_iter)
        elif best.advance(trainer, steps, trainer.callback).status != "stopped" and problem.plain:
            refine(problem, best, trainer, rng, steps, amount)
        result = best.result()
    except StopSearchError:
        best = max(contenders, key=lambda c: c.bound)
        result = best.result()._replace(status="stopped")
    best.fate = "kept"
    return settled(result, trainer.batch), ranked(contenders)


def complete(
    problem: Problem,
    best: Contender,
    trainer: Trainer,
    rng: np.random.Generator,
    steps: int,
    amount: Amount,
) -> None:
    """Train a solution to convergence, with the gate and the inducing inputs that the data need."""
    status = best.advance(trainer, steps, trainer.callback).status
    if status == "stopped":
        return
    if renew_gate(problem, best, trainer):
        status = best.advance(trainer, steps, trainer.callback).status
    simplify(problem, best, trainer)
    best.status = status
    finish(problem, best, trainer, rng, steps, amount)


def with_more_inducing(
    problem: Problem,
    found: Result,
    trainer: Trainer,
    rng: np.random.Generator,
    steps: int,
    amount: Amount,
) -> Result:
    """A solution found with fewer inducing inputs than the problem has, trained with all of them
    unless that is worse."""
    given = to_host(found.state.responsibilities)[: len(problem.sample.X)]
    best = Contender(Start.of("coarse", given), found.state, found.bound, found.rate)
    use_inducing(problem, best, trainer)
    try:
        complete(problem, best, trainer, rng, steps, amount)
    except StopSearchError:
        best.status = "stopped"
    if best.bound < found.bound:
        return found._replace(status=best.status)
    trace = np.concatenate([found.trace, *best.traces])
    return settled(best.result(), trainer.batch)._replace(trace=trace)


def fewer_inducing(problem: Problem, rng: np.random.Generator) -> Problem:
    """The problem with at most `SEARCH_INDUCING` inducing inputs."""
    if len(problem.inducing) <= SEARCH_INDUCING:
        return problem
    return problem._replace(inducing=choose_inducing(problem.sample.X, SEARCH_INDUCING, rng))


def _all_in_use(problem: Problem, contender: Contender) -> bool:
    weight = problem.sample.weight
    return bool(np.all(in_use(to_host(contender.state.responsibilities)[: len(weight)], weight)))


def warm(previous: Resumed, batch: Batch) -> Contender:
    """The contender that continues from a trained model."""
    state = resume(previous.before or previous.model, batch)
    if previous.before is not None:
        # The q of the new inducing inputs follows from the association.
        state, _ = begin(previous.model, batch, state.responsibilities, PROBE_STEPS)
    return Contender(Start("warm", to_host(state.responsibilities), np.nan, np.nan), state)
