"""From the single layers of the search to the deep processes and noise GPs of the priors."""

import dataclasses
from collections.abc import Iterator
from typing import Any, NamedTuple

import jax
import numpy as np

from dagp.core.sharding import shard_rows, to_host
from dagp.core.typing import Float
from dagp.inference.train import BLOCK, begin
from dagp.model.association import DataAssociation
from dagp.model.process import Deepening, ProcessPrior
from dagp.search.factory import Problem, deepened, initial_gate
from dagp.search.improve import FEW, improve, level_off
from dagp.search.moves import annex, extend, merge, split, swap
from dagp.search.race import RACE_STEPS, Contender
from dagp.search.trainer import Trainer

DEEPENINGS = (
    Deepening(stretch=5.0, variance=0.02, std=0.03),
    Deepening(stretch=10.0, variance=0.1, std=1.0),
)
"""Initialisations of deep GPs. Both stretch the length scales of the last layer, so that the inner
layers model the rapid variation: from almost certain inner values, or from those of the prior."""
DEEPENING_RATE = 0.1
"""Learning rate to begin with, lower than that of single layers."""
DEEPENING_STEPS, LONGER = 4 * BLOCK, 8
"""Steps of each before the best continues, and how many times as many with fewer than `FEW` data
points: trials are cheap there, and some initialisations overtake others late."""
MOVES = (merge, annex, split, swap, extend)
"""Moves that need no predictive density, for noise that differs between points."""
TRIED = 3
"""Arrangements that are improved by moves before one is chosen."""


def deepen(problem: Problem, contender: Contender, trainer: Trainer, max_iter: int) -> None:
    """Turn single layers into the deep processes and noise GPs of the priors; train these from
    several initialisations."""
    # On the host, where unstacking the processes compiles nothing.
    plain = jax.tree.map(to_host, contender.state.model)
    models = [deepened(problem, contender.start, plain, way) for way in DEEPENINGS]
    if jax.tree.structure(models[0]) == jax.tree.structure(plain):
        return
    # Noise GPs alone have one initialisation.
    if all(_equal(model, models[0]) for model in models[1:]):
        best = _with_noise_gps(problem, contender, plain, trainer)
    else:
        best = _with_layers(problem, contender, models, trainer)
    contender.keep_plain()
    contender.adopt(best.result())
    contender.moves += best.moves
    contender.rungs.append(best.bound)
    contender.advance(trainer, max_iter, trainer.callback)


def _with_layers(
    problem: Problem, contender: Contender, models: list[DataAssociation], trainer: Trainer
) -> Contender:
    """The best of several initialisations of the layers."""
    given = contender.state.responsibilities
    few = len(problem.sample.X) < FEW
    ways = []
    for model in models:
        state, _ = begin(model, trainer.batch, given, 0)
        ways.append(Contender(contender.start, state, rate=DEEPENING_RATE))
        ways[-1].advance(trainer, DEEPENING_STEPS * (LONGER if few else 1))
    return max(ways, key=lambda way: way.bound)


class Arrangement(NamedTuple):
    """Which process of the search takes which place, and responsibilities in this order."""

    order: list[int]
    given: Float[np.ndarray, "N K"]


def _with_noise_gps(
    problem: Problem, contender: Contender, plain: DataAssociation, trainer: Trainer
) -> Contender:
    """The best arrangement of the processes with noise GPs.

    With constant noise, one function of varying noise is divided among several processes, and which
    of them has taken the place of the one whose noise may vary is chance.
    """
    gate = initial_gate(problem, contender.start)
    ways = []
    for order, given in _arrangements(problem, to_host(contender.state.responsibilities)):
        as_found = order == sorted(order)
        arranged = DataAssociation.assemble(
            [plain.process(k) for k in order], plain.gate if as_found else gate
        )
        model = deepened(problem, contender.start, arranged, Deepening())
        state, _ = begin(model, trainer.batch, shard_rows(given), 0)
        ways.append(Contender(contender.start, state))
        ways[-1].advance(trainer, RACE_STEPS)
    if len(ways) == 1:
        return ways[0]
    ways = sorted(ways, key=lambda way: -way.bound)[:TRIED]
    for way in ways:
        level_off(problem, way, trainer, -np.inf)
        improve(problem, way, trainer, MOVES)
        if len(problem.sample.X) < FEW:
            # Noise GPs learn slowly: one function of varying noise overtakes two functions late.
            way.advance(trainer, DEEPENING_STEPS * LONGER)
    return max(ways, key=lambda way: way.bound)


def _arrangements(problem: Problem, found: Float[np.ndarray, "N K"]) -> Iterator[Arrangement]:
    """As found; with another process in the place of one with a noise GP; and with all data of a
    second process in that place. Labels fix the order."""
    labelled = bool(np.any(problem.sample.labels >= 0))
    priors, shares = problem.priors, found.sum(axis=0)
    functions = [k for k, clutter in enumerate(problem.clutter) if not clutter]
    varying = [k for k in functions if getattr(priors[k], "noise_gp", None) is not None]
    yield Arrangement(list(range(problem.n_processes)), found)
    for place in varying if not labelled else []:
        # Exchanged with one of the same prior, a process is the same under another number.
        alike = {k for k in functions if k != place and _alike(priors[k], priors[place])}
        for k in functions:
            if k in alike or not _interchangeable(priors[place], priors[k]):
                continue
            order = list(range(problem.n_processes))
            order[place], order[k] = k, place
            arranged = found[:, order]
            if k not in varying:
                yield Arrangement(order, arranged)
            # Of two of the same prior, the larger takes over.
            smaller = {other for other in alike if (shares[other], other) < (shares[place], place)}
            for other in functions:
                if other != place and (other not in alike or k != place or other in smaller):
                    given = arranged.copy()
                    given[:, place] += given[:, other]
                    given[:, other] = 0.0
                    yield Arrangement(order, given)


def _alike(one: Any, other: Any, but: frozenset[str] = frozenset()) -> bool:
    """Whether two settings are the same object or word, or priors alike but for some fields."""
    if one is other or (isinstance(one, str) and one == other):
        return True
    if type(one) is not type(other) or not dataclasses.is_dataclass(one):
        return False
    names = {field.name for field in dataclasses.fields(one)} - but
    return all(_alike(getattr(one, name), getattr(other, name)) for name in names)


def _interchangeable(one: ProcessPrior, other: ProcessPrior) -> bool:
    """Whether two priors differ only in their noise GPs."""
    return _alike(one, other, but=frozenset({"noise_gp"}))


def _equal(one: DataAssociation, other: DataAssociation) -> bool:
    return all(map(np.array_equal, jax.tree.leaves(one), jax.tree.leaves(other)))
