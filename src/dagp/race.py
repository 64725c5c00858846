"""The race between starts: all run a little, the better ones run on."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np

from dagp import lockstep
from dagp.model import Batch
from dagp.starts import Start
from dagp.train import BLOCK, LEARNING_RATE, Progress, Report, Result, State, Status, train

__all__ = ["RACE_STEPS", "Contender", "Tell", "race", "ranked"]

FIRST_STEPS = BLOCK
"""Steps of the first rung."""
RACE_STEPS = 2 * BLOCK
"""Steps of the later ones."""
KEEP = 1 / 2
"""Share of the starts that goes on to the next rung."""
FINALISTS = 2
"""Starts that may be improved by moves before one is chosen."""

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
        self.arrive(result)
        return result

    def arrive(self, result: Result) -> None:
        """Go on from the end of a rung."""
        self.adopt(result)
        self.rungs.append(result.bound)

    def result(self) -> Result:
        """Where it stands."""
        trace = np.concatenate([np.zeros(0), *self.traces])
        return Result(self.state, self.bound, trace, self.status, self.rate)

    def adopt(self, result: Result) -> None:
        """Go on from a result."""
        self.state, self.bound, self.rate = result.state, result.bound, result.rate
        self.status = result.status
        self.traces.append(result.trace)


def race(
    contenders: list[Contender], batch: Batch, tol: float, tell: Tell, together: bool | None = None
) -> list[Contender]:
    """Successive halving on the bound, down to the finalists. Returns these, best first.

    They run `together` where that pays, otherwise one after the other.
    """
    run = _side_by_side if (lockstep.pays() if together is None else together) else _in_turn
    running = list(contenders)
    rung = 0
    while len(running) > FINALISTS or (rung == 0 and len(running) > 1):
        rung += 1
        run(running, batch, FIRST_STEPS if rung == 1 else RACE_STEPS, tol, _Rung(rung, tell))
        running.sort(key=lambda c: -c.bound)
        if rung == 1:
            running = _each_kind_first(running)
        keep = max(FINALISTS, int(np.ceil(len(running) * KEEP)))
        for contender in running[keep:]:
            contender.fate = f"dropped after rung {rung}"
        running = running[:keep]
    for contender in running:
        contender.fate = "finalist"
    return running


class _Rung(NamedTuple):
    """Tells how a rung of the race is going."""

    number: int
    tell: Tell

    def reached(self, index: int, contender: Contender) -> None:
        self.tell(Progress(f"race {self.number}", index, contender.steps, contender.bound))


def _in_turn(running: list[Contender], batch: Batch, steps: int, tol: float, rung: _Rung) -> None:
    for index, contender in enumerate(running):
        contender.advance(batch, steps, tol)
        rung.reached(index, contender)


def _side_by_side(
    running: list[Contender], batch: Batch, steps: int, tol: float, rung: _Rung
) -> None:
    states, rates = zip(*((c.state, c.rate) for c in running), strict=True)
    results = lockstep.train_together(states, batch, max_iter=steps, tol=tol, rates=rates)
    for index, (contender, result) in enumerate(zip(running, results, strict=True)):
        contender.arrive(result)
        rung.reached(index, contender)


def _each_kind_first(contenders: list[Contender]) -> list[Contender]:
    """The best of each kind before all others.

    The kind decides the basin, and the first steps say little about how deep it is.
    """
    kinds: set[str] = set()
    first, others = [], []
    for contender in contenders:
        (others if contender.start.kind in kinds else first).append(contender)
        kinds.add(contender.start.kind)
    return first + others


def ranked(contenders: list[Contender]) -> list[Contender]:
    """The kept one first, then who came furthest, then by the bound."""
    return sorted(contenders, key=lambda c: (c.fate != "kept", -len(c.rungs), -c.bound))
