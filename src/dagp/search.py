"""The search for the right association.

The evidence bound has many local optima. So many cheap starts of different kinds race: all run a
little, the better ones run on. The best is then improved by moves that no gradient would make, and
trained to convergence. The bound alone decides.
"""

import itertools
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from dagp.data import padded, to_batch
from dagp.model import Batch, DataAssociation
from dagp.moves import MOVES, SIMPLER, Move, Proposal, View
from dagp.starts import Problem, Start, build, starts
from dagp.train import (
    BLOCK,
    LEARNING_RATE,
    Progress,
    Report,
    Result,
    State,
    Status,
    begin,
    functions,
    resume,
    settled,
    train,
)

__all__ = ["Contender", "improve", "race", "search"]

RACE_STEPS = 2 * BLOCK
"""Steps of one rung."""
KEEP = 1 / 3
"""Share of the starts that goes on to the next rung."""
PROBE_STEPS = 10
"""Settling steps before a proposal is judged for the first time."""
HOPELESS = 0.2
"""A proposal that is this far below, per data point, after settling is not tried."""
ATTEMPTS = 4
"""Proposals that get a training run before a round is given up."""
MOVE_STEPS = 2 * BLOCK
"""Steps a moved contender has to overtake the one it came from."""
GAIN = 2e-3
"""What a move has to gain, per data point: more than a few steps of training would."""
PARSIMONY = 0.01
"""How much of the bound, per data point, we give for fewer processes doing the same work.

Where two functions coincide, one process or two explain the data equally well, and the bound
differs by less than it is off the evidence. Users want the one."""

Tell = Callable[[Progress], Any]


@dataclass
class Contender:
    """One start on its way through the race."""

    start: Start
    state: State
    bound: float = -np.inf
    rate: float = LEARNING_RATE
    rungs: list[float] = field(default_factory=list)
    traces: list[np.ndarray] = field(default_factory=list)
    moves: list[tuple[str, float]] = field(default_factory=list)
    """Moves tried and what each gained."""
    status: Status = "budget"
    """Why the last stretch of training ended."""
    fate: str = "running"

    @property
    def steps(self) -> int:
        """Steps taken so far."""
        return sum(map(len, self.traces))

    def record(self) -> dict[str, Any]:
        """What the user is told about this start."""
        return {
            "kind": self.start.kind,
            "bound": self.bound,
            "rungs": tuple(self.rungs),
            "steps": self.steps,
            "kept": self.fate == "kept",
            "fate": self.fate,
            "moves": tuple(self.moves),
        }

    def advance(
        self, batch: Batch, max_iter: int, tol: float, report: Report = lambda *_: False
    ) -> Result:
        """Train on from here."""
        result = train(self.state, batch, max_iter=max_iter, tol=tol, rate=self.rate, report=report)
        self.adopt(result)
        self.rungs.append(result.bound)
        return result

    def adopt(self, result: Result) -> None:
        """Go on from a result."""
        self.state, self.bound, self.rate = result.state, result.bound, result.rate
        self.status = result.status
        self.traces.append(result.trace)


def race(contenders: list[Contender], batch: Batch, tol: float, tell: Tell) -> list[Contender]:
    """Successive halving on the bound. Returns all, best first; the fate says who dropped when."""
    running = list(contenders)
    rung = 0
    while len(running) > 1:
        rung += 1
        for index, contender in enumerate(running):
            contender.advance(batch, RACE_STEPS, tol)
            tell(Progress(f"race {rung}", index, contender.steps, contender.bound))
        running.sort(key=lambda c: -c.bound)
        keep = int(np.ceil(len(running) * KEEP)) if len(running) > 2 else 1
        for contender in running[keep:]:
            contender.fate = f"dropped after rung {rung}"
        running = running[:keep]
    return ranked(contenders)


def ranked(contenders: list[Contender]) -> list[Contender]:
    """The kept one first, then who came furthest, then by the bound."""
    return sorted(contenders, key=lambda c: (c.fate != "kept", -len(c.rungs), -c.bound))


def view(problem: Problem, contender: Contender, batch: Batch) -> View:
    """What the moves see of a contender."""
    N = len(problem.sample.X)
    means, noise_variance = functions(contender.state.model, batch)
    return View(
        problem.sample,
        np.asarray(contender.state.responsibilities)[:N],
        np.asarray(means)[:, :N],
        np.sqrt(np.asarray(noise_variance)),
        [k for k, clutter in enumerate(problem.clutter) if not clutter],
    )


class Trial(NamedTuple):
    """A proposal after the responsibilities have settled around it."""

    proposal: Proposal
    state: State
    bound: float


def promising(
    problem: Problem, contender: Contender, batch: Batch, moves: tuple[Move, ...]
) -> list[Trial]:
    """Proposals that are not hopeless once the responsibilities have settled, best first.

    Settling needs no gradients and leaves the hyperparameters alone, so it is cheap enough to
    look at every proposal.
    """
    seen = view(problem, contender, batch)
    # A gate that has learned to be the same everywhere could not follow a proposal that divides
    # the inputs: it begins afresh.
    fresh = build(problem, contender.start).gate
    model = eqx.tree_at(lambda m: m.gate, contender.state.model, fresh)
    least = contender.bound - HOPELESS * float(problem.sample.weight.sum())
    trials = []
    for proposal in itertools.chain.from_iterable(move(seen) for move in moves):
        shares = jnp.asarray(padded(proposal.shares, len(batch.X)))
        state, bound = begin(model, batch, shares, PROBE_STEPS)
        trials.append(Trial(proposal, state, float(bound.value)))
    # A bound that is not a number compares false and drops out here.
    return sorted((t for t in trials if t.bound > least), key=lambda t: -t.bound)


def attempt(contender: Contender, trial: Trial, batch: Batch, tol: float, tell: Tell) -> Result:
    """A short training run from a trial."""
    result = train(trial.state, batch, max_iter=MOVE_STEPS, tol=tol, rate=contender.rate)
    contender.moves.append((trial.proposal.name, result.bound - contender.bound))
    tell(Progress(trial.proposal.name, 0, contender.steps, result.bound))
    return result


def improve(problem: Problem, contender: Contender, batch: Batch, tol: float, tell: Tell) -> None:
    """Try moves until none of them raises the bound.

    A rejected move is tried again only after one of its processes has changed.
    """
    margin = GAIN * float(problem.sample.weight.sum())
    rejected: dict[str, frozenset[int]] = {}
    accepted = True
    while accepted:
        accepted = False
        trials = promising(problem, contender, batch, MOVES)
        for trial in [t for t in trials if t.proposal.name not in rejected][:ATTEMPTS]:
            result = attempt(contender, trial, batch, tol, tell)
            accepted = result.bound > contender.bound + margin
            if accepted:
                contender.adopt(result)
                touched = trial.proposal.processes
                rejected = {name: who for name, who in rejected.items() if not who & touched}
                break
            rejected[trial.proposal.name] = trial.proposal.processes


def tidy(problem: Problem, contender: Contender, batch: Batch, tol: float, tell: Tell) -> None:
    """Let fewer processes do the same work, each way once, where that costs next to nothing."""
    price = PARSIMONY * float(problem.sample.weight.sum())
    tried: set[str] = set()
    while True:
        trials = promising(problem, contender, batch, SIMPLER)
        trial = next((t for t in trials if t.proposal.name not in tried), None)
        if trial is None:
            return
        tried.add(trial.proposal.name)
        result = attempt(contender, trial, batch, tol, tell)
        if result.bound > contender.bound - price:
            contender.adopt(result)


def search(
    problem: Problem,
    *,
    n_init: int,
    max_iter: int,
    tol: float,
    rng: np.random.Generator,
    tell: Tell = lambda _: False,
    previous: DataAssociation | None = None,
) -> tuple[Result, list[Contender]]:
    """Race `n_init` starts, improve the best one by moves, and train it to convergence.

    Where there is a `previous` model, that one is trained on instead. When `tell` answers true
    the search ends with the best it has.
    """
    batch = jax.tree.map(jnp.asarray, to_batch(problem.sample, problem.n_processes))
    contenders = _contenders(problem, batch, n_init, rng, previous)

    def listen(progress: Progress) -> bool:
        if tell(progress):
            raise _StopSearchError
        return False

    try:
        best = race(contenders, batch, tol, listen)[0]
        if previous is None:
            best.advance(batch, 2 * RACE_STEPS, tol)
            improve(problem, best, batch, tol, listen)
            tidy(problem, best, batch, tol, listen)
        result = best.advance(
            batch, max_iter, tol, lambda step, bound: bool(tell(Progress("train", 0, step, bound)))
        )
    except _StopSearchError:
        best = max(contenders, key=lambda c: c.bound)
        trace = np.concatenate(best.traces)
        result = Result(best.state, best.bound, trace, "stopped", best.rate)
    best.fate = "kept"
    return settled(result, batch), ranked(contenders)


class _StopSearchError(Exception):
    """Somebody who listens wants the search to end."""


def _contenders(
    problem: Problem,
    batch: Batch,
    n_init: int,
    rng: np.random.Generator,
    previous: DataAssociation | None,
) -> list[Contender]:
    if previous is not None:
        state = resume(previous, batch)
        warm = Start("warm", np.asarray(state.responsibilities), np.nan, np.nan)
        return [Contender(warm, state)]
    contenders = []
    for start in starts(problem, n_init, rng):
        shares = jnp.asarray(padded(start.responsibilities, len(batch.X)))
        contenders.append(Contender(start, begin(build(problem, start), batch, shares)[0]))
    return contenders
