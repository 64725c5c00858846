"""The search for the right association: multi-start, successive halving, split–merge moves.

The ELBO has many local optima, so several starts of different kinds compete: all take a few steps,
the better ones take more. The best is improved by split–merge moves and trained to convergence. All
decisions are by the ELBO.
"""

from collections.abc import Callable

import numpy as np

from dagp.core.sharding import shard_rows, to_host
from dagp.core.typing import Float
from dagp.inference.standardize import padded
from dagp.inference.train import Result, begin, resume, settled
from dagp.model.association import Batch, DataAssociation
from dagp.search.confidence import CONFIRMED, support
from dagp.search.deepen import deepen
from dagp.search.factory import Problem, Start, build
from dagp.search.improve import improve, per_point, renew_gate, simplify
from dagp.search.race import RACE_STEPS, Contender, race, ranked
from dagp.search.starts import starts
from dagp.search.trainer import StopSearchError, Trainer
from dagp.search.usage import in_use

BEHIND = 0.1
"""A finalist this far behind, per data point, is not improved by moves."""
REACHED = 0.99
"""Share of equally assigned data from which a finalist has reached the best solution so far."""
ROUNDS = 3
"""Most rounds of starts."""


def confirmed(
    best: Contender,
    contenders: list[Contender],
    finalists: list[Contender],
    trainer: Trainer,
    weight: Float[np.ndarray, " N"],
) -> bool:
    """Whether another start has reached the best solution, now or after some more training."""
    if support(best, contenders, weight) >= CONFIRMED:
        return True
    for other in finalists:
        if other is not best and not other.moves:
            other.advance(trainer, RACE_STEPS)
            if support(best, [other], weight) >= CONFIRMED:
                return True
    return False


def explore(
    problem: Problem,
    trainer: Trainer,
    n_init: int,
    rounds: int,
    rng: np.random.Generator,
    contenders: list[Contender],
) -> None:
    """Add contenders in rounds of `n_init` starts, until the best solution has been found twice."""
    weight = problem.sample.weight
    for _ in range(rounds):
        fresh = []
        for start in starts(problem, n_init, rng):
            given = shard_rows(padded(start.responsibilities, len(trainer.batch.X)))
            state, _ = begin(build(problem, start), trainer.batch, given, 0)
            fresh.append(Contender(start, state))
        contenders += fresh
        finalists = race(fresh, trainer)
        for contender in finalists:
            best = max(contenders, key=lambda c: c.bound)
            behind = contender.bound < best.bound - BEHIND * per_point(problem)
            if not behind and support(contender, [best], weight) < REACHED:
                contender.advance(trainer, RACE_STEPS)
                improve(problem, contender, trainer)
        best = max(contenders, key=lambda c: c.bound)
        if n_init == 1 or confirmed(best, contenders, finalists, trainer, weight):
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
    previous: DataAssociation | None = None,
    on_all_rows: Callable[[DataAssociation], float] | None = None,
) -> tuple[Result, list[Contender]]:
    """Race `n_init` starts, improve the best ones by moves, and train the best to convergence.

    A `previous` model is trained further instead. With `spare`, some processes are expected to
    remain unused, and training ends early where they do. If the problem has only some of the rows,
    the ELBO `on_all_rows` decides between the finalists. When the callback of the trainer returns
    true, the search ends with the best solution so far.
    """
    contenders = [] if previous is None else [warm(previous, trainer.batch)]
    try:
        if previous is None:
            # Superfluous processes divide the data in ways that no two starts share.
            rounds = 1 if spare else ROUNDS
            explore(problem, trainer, n_init, rounds, rng, contenders)
        best = max(contenders, key=lambda c: c.bound)
        rivals = close_rivals(problem, best, contenders)
        if on_all_rows is not None and rivals:
            best = max([best, *rivals], key=lambda c: on_all_rows(c.state.model))
        # A model with a process to spare is trained to convergence without it.
        steps = RACE_STEPS if spare and not _all_in_use(problem, best) else max_iter
        result = best.advance(trainer, steps, trainer.callback)
        if previous is None and result.status != "stopped":
            if renew_gate(problem, best, trainer):
                result = best.advance(trainer, steps, trainer.callback)
            simplify(problem, best, trainer)
            best.status = result.status
            deepen(problem, best, trainer, max_iter)
        result = best.result()
    except StopSearchError:
        best = max(contenders, key=lambda c: c.bound)
        result = best.result()._replace(status="stopped")
    best.fate = "kept"
    return settled(result, trainer.batch), ranked(contenders)


def _all_in_use(problem: Problem, contender: Contender) -> bool:
    weight = problem.sample.weight
    return bool(np.all(in_use(to_host(contender.state.responsibilities)[: len(weight)], weight)))


def warm(previous: DataAssociation, batch: Batch) -> Contender:
    """The contender that continues from a trained model."""
    state = resume(previous, batch)
    return Contender(Start("warm", to_host(state.responsibilities), np.nan, np.nan), state)
