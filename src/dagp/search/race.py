"""The race between starts: successive halving on the ELBO, and the training of the finalists."""

import itertools
from collections.abc import Iterable, Sequence

import numpy as np

from dagp.inference.train import LoopState, Progress
from dagp.search.settings import (
    BEHIND,
    FINALISTS,
    FIRST_STEPS,
    IDENTICAL,
    KEEP,
    PATIENT_STEPS,
    RACE_STEPS,
    SAME,
)
from dagp.search.solution import Solution
from dagp.search.trial import Move, Trainer, climb, extrapolated, levelled
from dagp.search.verdict import support

DROPPED = "dropped after rung {}"


def race(entrants: Iterable[Solution], trainer: Trainer) -> list[Solution]:
    """Successive halving on the ELBO; the finalists, best first."""
    running: Iterable[Solution] = entrants
    for rung in itertools.count(1):
        steps, trained = FIRST_STEPS if rung == 1 else RACE_STEPS, list[Solution]()
        for solution, result in trainer.together(running, steps):
            solution.finish_rung(result)
            trained.append(solution)
            step = Progress(f"race {rung}", len(trained) - 1, solution.steps, solution.bound)
            trainer.notify(step)
        trained.sort(key=lambda s: -s.bound)
        kept = _without_repeats(_each_kind_first(trained) if rung == 1 else trained)
        running = kept[: max(FINALISTS, int(np.ceil(KEEP * len(trained))))]
        for solution in trained:
            solution.fate = "finalist" if solution in running else DROPPED.format(rung)
        if len(running) <= FINALISTS:
            break
    return list(running)


def _without_repeats(trained: list[Solution]) -> list[Solution]:
    """Those that have not reached the solution of an earlier one."""
    kept: list[Solution] = []
    for solution in trained:
        if all(solution.alike(other) < IDENTICAL for other in kept):
            kept.append(solution)
    return kept


def _each_kind_first(trained: list[Solution]) -> list[Solution]:
    """The best of each kind first: across kinds the ELBO of the first steps predicts little."""
    first = {s.start.kind: s for s in reversed(trained)}
    return sorted(trained, key=lambda s: first[s.start.kind] is not s)


def improve(
    solution: Solution, pool: list[Solution], trainer: Trainer, moves: Sequence[Sequence[Move]]
) -> None:
    """Train a finalist until its ELBO levels off, and try moves unless another one is better."""
    best = max(pool, key=lambda s: s.bound)
    least = best.bound - BEHIND * solution.points
    train_until_flat(solution, trainer, least)
    other = solution is best or solution.alike(best) < IDENTICAL
    if solution.bound >= least and other:
        solution.climbed = True
        climb(solution, moves, trainer)


def train_until_flat(
    solution: Solution, trainer: Trainer, least: float, steps: int = PATIENT_STEPS
) -> None:
    """Train until the ELBO rises little, or would level off below `least`."""
    if solution.flat:
        return

    def stop(run: LoopState) -> bool:
        return levelled(solution, run) or extrapolated(run.trace, 9.0) < least

    solution.finish_rung(trainer.train(solution.state, steps, solution.rate, stop))
    solution.flat = True


def confirmed(pool: list[Solution], trainer: Trainer) -> bool:
    """Whether another start has reached the best solution, now or after some more training."""
    best = max(pool, key=lambda s: s.bound)
    least = best.bound - BEHIND * best.points
    others = [s for s in pool if not s.flat and s.fate != DROPPED.format(1)]
    for other in [best, *sorted(others, key=lambda s: -s.bound)]:
        if other is not best:
            train_until_flat(other, trainer, least, PATIENT_STEPS // 2)
        if support(best, pool if other is best else [other]) >= SAME:
            return True
    return False


def close_to(best: Solution, pool: list[Solution]) -> list[Solution]:
    """The best solution, and finalists that are not far behind it and differ from it."""
    least = best.bound - BEHIND * best.points
    others = [s for s in pool if s is not best and s.fate == "finalist" and s.bound >= least]
    return [best, *(s for s in others if s.alike(best) < IDENTICAL)]
