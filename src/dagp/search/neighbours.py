"""Other associations near a solution: two processes exchanged where they may have changed places.

The search keeps the best solution. Where two functions come close, or the inputs have a gap, it may
hardly matter to the ELBO which of them goes on as which: such solutions are found here, trained as
far as a comparison needs, and weighted in `dagp.predict.associations`.
"""

import jax
import numpy as np

from dagp.core.sharding import to_host
from dagp.inference.laplace import why_not
from dagp.inference.parallel import width
from dagp.inference.train import LEARNING_RATE, Result, settled
from dagp.model.association import DataAssociation
from dagp.search.factory import Problem, Start
from dagp.search.improve import PARTS, level_off, promising
from dagp.search.moves import RIVALS
from dagp.search.race import REACHED, Contender
from dagp.search.trainer import Trainer
from dagp.search.usage import agreement

CLOSE = 5.0
"""A solution whose ELBO is further below the best one has a weight of less than 1 %."""
PROMISING = 20.0
"""The same before it has been trained to convergence."""
TRIALS = 8
"""Most solutions that are trained."""
MOST = 3
"""Most solutions that are kept beside the best one: each is averaged over hyperparameters too."""


def neighbours(
    problem: Problem, kept: Result, others: list[Contender], trainer: Trainer, max_iter: int
) -> list[tuple[Contender, Result]]:
    """The kept solution and others with almost its ELBO, best first.

    `others` are solutions that the search has found itself.
    """
    home = _contender(problem, kept)
    if why_not(kept.state.model) is not None:
        return [(home, kept)]
    trials = promising(problem, home, trainer, RIVALS, {})[:TRIALS]
    begun = [
        _contender(problem, trial.result(LEARNING_RATE), trial.proposal.name) for trial in trials
    ]
    begun += [other.copy() for other in others if _comparable(other.state.model, kept.state.model)]
    least = kept.bound - PROMISING

    def run(trainer: Trainer, contender: Contender) -> Contender:
        level_off(problem, contender, trainer, least, PARTS)
        if contender.bound >= least:
            contender.advance(trainer, max_iter)
        return contender

    found = [(home, kept)]
    for trained in trainer.each(run, begun, width(kept.state)):
        if trained.bound < least:
            continue
        result = settled(trained.result(), trainer.batch)
        if np.isfinite(result.bound) and all(_differ(problem, result, one) for _, one in found):
            found.append((trained, result))
    found.sort(key=lambda one: -one[1].bound)
    close = [one for one in found if one[1].bound > found[0][1].bound - CLOSE]
    return close[: 1 + MOST]


def _contender(problem: Problem, result: Result, kind: str = "kept") -> Contender:
    given = to_host(result.state.responsibilities)[: len(problem.sample.X)]
    return Contender(Start.of(kind, given), result.state, result.bound, result.rate)


def _differ(problem: Problem, one: Result, other: Result) -> bool:
    weight = problem.sample.weight
    first, second = (to_host(r.state.responsibilities)[: len(weight)] for r in (one, other))
    return agreement(first, second, weight, problem.kinds) < REACHED


def _comparable(one: DataAssociation, other: DataAssociation) -> bool:
    """Whether two models are of the same make, with as many inducing inputs."""
    shapes = [[np.shape(leaf) for leaf in jax.tree.leaves(model)] for model in (one, other)]
    return jax.tree.structure(one) == jax.tree.structure(other) and shapes[0] == shapes[1]
