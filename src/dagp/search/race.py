"""The race between starts, the improvement of its finalists, and when a solution is confirmed."""

from collections.abc import Iterable, Sequence

from dagp.inference.train import LoopState, Progress
from dagp.search.settings import (
    BEHIND,
    FINALISTS,
    FIRST_STEPS,
    IDENTICAL,
    PATIENT_STEPS,
    SAME,
)
from dagp.search.solution import Solution
from dagp.search.trial import Move, Trainer, climb, extrapolated, levelled
from dagp.search.verdict import support

DROPPED = "dropped after rung 1"


def race(entrants: Iterable[Solution], trainer: Trainer) -> list[Solution]:
    """A few steps of every start; the best that differ, if possible of different kinds, trained
    until their ELBO levels off."""
    trained: list[Solution] = []
    for solution, result in trainer.together(entrants, FIRST_STEPS):
        solution.finish_rung(result)
        trained.append(solution)
        step = Progress("race", len(trained) - 1, solution.steps, solution.bound)
        trainer.notify(step)
    trained.sort(key=lambda s: -s.bound)
    # The best of each kind first: across kinds the ELBO of the first steps predicts little.
    best = {s.start.kind: s for s in reversed(trained)}
    trained.sort(key=lambda s: best[s.start.kind] is not s)
    finalists: list[Solution] = []
    for solution in trained:
        repeats = any(solution.alike(other) >= IDENTICAL for other in finalists)
        chosen = not repeats and len(finalists) < FINALISTS
        solution.fate = "finalist" if chosen else DROPPED
        finalists += [solution] if chosen else []
    for solution in finalists:
        train_until_flat(solution, finalists[0].bound - BEHIND * solution.points, trainer)
    return sorted(finalists, key=lambda s: -s.bound)


def train_until_flat(solution: Solution, least: float, trainer: Trainer) -> None:
    """Train until the ELBO rises little, or would level off below `least`."""

    def stop(run: LoopState) -> bool:
        return levelled(solution, run) or extrapolated(run.trace, 9.0) < least

    solution.finish_rung(trainer.train(solution.state, PATIENT_STEPS, solution.rate, stop))


def improve(
    solution: Solution, pool: list[Solution], moves: Sequence[Sequence[Move]], trainer: Trainer
) -> None:
    """Try moves on a finalist, unless another solution is better or the same."""
    if solution in close_to(max(pool, key=lambda s: s.bound), pool):
        solution.climbed = True
        climb(solution, moves, trainer)


def confirmed(pool: list[Solution]) -> bool:
    """Whether another start has reached the best solution."""
    return support(max(pool, key=lambda s: s.bound), pool) >= SAME


def close_to(best: Solution, pool: list[Solution]) -> list[Solution]:
    """The best solution, and finalists that are not far behind it and differ from it."""
    least = best.bound - BEHIND * best.points
    others = [s for s in pool if s is not best and s.fate == "finalist" and s.bound >= least]
    return [best, *(s for s in others if s.alike(best) < IDENTICAL)]
