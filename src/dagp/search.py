"""The search for the right association.

The evidence bound has many local optima. So many cheap starts of different kinds race: all run a
little, the better ones run on. The best is then improved by moves that no gradient would make, and
trained to convergence. The bound alone decides.
"""

import itertools
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

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
HOPELESS = 0.05
"""A moved contender that is this far below (per data point) after one block gets no second one."""
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
    return sorted(contenders, key=lambda c: (-len(c.rungs), -c.bound))


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


def attempt(contender: Contender, proposal: Proposal, batch: Batch, tol: float) -> Result:
    """A short run from the proposal; shorter still if it starts out hopeless."""
    shares = jnp.asarray(padded(proposal.shares, len(batch.X)))
    state = begin(contender.state.model, batch, shares)
    result = train(state, batch, max_iter=BLOCK, tol=tol, rate=contender.rate)
    if result.bound > contender.bound - HOPELESS * float(jnp.sum(batch.weight)):
        result = train(result.state, batch, max_iter=BLOCK, tol=tol, rate=contender.rate)
    contender.moves.append((proposal.name, result.bound - contender.bound))
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
        for proposal in _proposals(problem, contender, batch, MOVES):
            if proposal.name in rejected:
                continue
            trial = attempt(contender, proposal, batch, tol)
            tell(Progress(proposal.name, 0, contender.steps, trial.bound))
            accepted = trial.bound > contender.bound + margin
            if accepted:
                contender.adopt(trial)
                rejected = {n: p for n, p in rejected.items() if not p & proposal.processes}
                break
            rejected[proposal.name] = proposal.processes


def tidy(problem: Problem, contender: Contender, batch: Batch, tol: float, tell: Tell) -> None:
    """Let fewer processes do the same work, each way once, where that costs next to nothing."""
    price = PARSIMONY * float(problem.sample.weight.sum())
    tried: set[str] = set()
    while True:
        proposals = _proposals(problem, contender, batch, SIMPLER)
        proposal = next((p for p in proposals if p.name not in tried), None)
        if proposal is None:
            return
        tried.add(proposal.name)
        trial = attempt(contender, proposal, batch, tol)
        tell(Progress(proposal.name, 0, contender.steps, trial.bound))
        if trial.bound > contender.bound - price:
            contender.adopt(trial)


def _proposals(
    problem: Problem, contender: Contender, batch: Batch, moves: tuple[Move, ...]
) -> Iterator[Proposal]:
    seen = view(problem, contender, batch)
    return itertools.chain.from_iterable(move(seen) for move in moves)


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

    Where there is a `previous` model, that one is trained on instead.
    """
    batch = jax.tree.map(jnp.asarray, to_batch(problem.sample, problem.n_processes))
    if previous is not None:
        state = resume(previous, batch)
        warm = Start("warm", np.asarray(state.responsibilities), np.nan, np.nan)
        ranking = [Contender(warm, state)]
    else:
        contenders = []
        for start in starts(problem, n_init, rng):
            shares = jnp.asarray(padded(start.responsibilities, len(batch.X)))
            contenders.append(Contender(start, begin(build(problem, start), batch, shares)))
        ranking = race(contenders, batch, tol, tell)
        ranking[0].advance(batch, 2 * RACE_STEPS, tol)
        improve(problem, ranking[0], batch, tol, tell)
        tidy(problem, ranking[0], batch, tol, tell)
    best = ranking[0]
    result = best.advance(
        batch, max_iter, tol, lambda step, bound: bool(tell(Progress("train", 0, step, bound)))
    )
    best.fate = "kept"
    return settled(result, batch), ranking
