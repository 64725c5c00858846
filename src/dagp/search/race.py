"""The race between starts: successive halving on the ELBO."""

import itertools
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from dagp.core.sharding import to_host
from dagp.core.typing import Float
from dagp.inference import parallel
from dagp.inference.train import (
    BLOCK,
    LEARNING_RATE,
    Callback,
    Progress,
    Result,
    State,
    Status,
    no_callback,
)
from dagp.search.factory import Start
from dagp.search.trainer import Trainer
from dagp.search.usage import agreement

FIRST_STEPS = BLOCK
"""Steps of the first rung."""
RACE_STEPS = 2 * BLOCK
"""Steps of the later ones."""
KEEP = 1 / 2
"""Share of the starts that is kept for the next rung."""
DROPPED = "dropped after rung {}"
FIRST_DROPPED = DROPPED.format(1)
REACHED = 0.99
"""Share of equally assigned data from which a contender has reached the solution of another."""
FINALISTS = 2
"""Starts that are improved by moves before one is chosen."""


def limit(trace: Float[np.ndarray, " T"], least: float = 3.0) -> float:
    """Where the ELBO of a run levels off, if its gain falls as in the last `BLOCK` steps.

    The rest is at least `least` and at most nine times the gain of the last half block: other
    directions are slower than the first ones, and the gain per step may still increase.

    >>> limit(1 - 0.9 ** np.arange(BLOCK)) > 0.95
    True
    """
    if len(trace) == 0:
        return -np.inf
    block = trace[-BLOCK:]
    first, middle, last = block[[0, len(block) // 2, -1]]
    earlier, later = middle - first, last - middle
    if later <= 0:
        return float(np.max(block))
    ratio = later / earlier if earlier > 0 else 1.0
    return float(last + later * np.clip(ratio / max(1 - ratio, 0.1), least, 9.0))


@dataclass
class Contender:
    """One start and its training so far."""

    start: Start
    state: State
    bound: float = -np.inf
    rate: float = LEARNING_RATE
    rungs: list[float] = field(default_factory=list)
    traces: list[np.ndarray] = field(default_factory=list)
    moves: list[tuple[str, float]] = field(default_factory=list)
    """Moves tried, and their gain in the ELBO."""
    status: Status = "budget"
    """Why the last training run ended."""
    fate: str = "running"
    levelled: bool = False
    """Whether it has been trained until its ELBO levelled off, or would have done so too low."""
    improved: bool = False
    """Whether moves have been tried on it."""
    plain: tuple[State, float] | None = None
    """State and ELBO before it was simplified or deepened, or inducing inputs were added."""

    def keep_plain(self) -> None:
        """Remember the current state as one that compares with other starts."""
        if self.plain is None:
            self.plain = self.state, self.bound

    def undeepened(self) -> "Contender":
        """As other starts are: neither simplified nor deepened, without more inducing inputs."""
        return (
            self if self.plain is None else replace(self, state=self.plain[0], bound=self.plain[1])
        )

    def copy(self) -> "Contender":
        """A contender that can be trained without changing this one."""
        histories = {"rungs": self.rungs, "traces": self.traces, "moves": self.moves}
        return replace(self, **{name: list(history) for name, history in histories.items()})

    def become(self, other: "Contender") -> None:
        """Take over the training of a copy."""
        vars(self).update(vars(other))

    @property
    def steps(self) -> int:
        return sum(map(len, self.traces))

    def record(self) -> dict[str, Any]:
        """The entry of this start in `DAGP.restarts_`."""
        return {
            "kind": self.start.kind,
            "bound": self.bound,
            "rungs": tuple(self.rungs),
            "steps": self.steps,
            "kept": self.fate == "kept",
            "fate": self.fate,
            "moves": tuple(self.moves),
        }

    def advance(self, trainer: Trainer, max_iter: int, callback: Callback = no_callback) -> Result:
        result = trainer.train(self.state, max_iter, self.rate, callback)
        self.finish_rung(result)
        return result

    def finish_rung(self, result: Result) -> None:
        self.adopt(result)
        self.rungs.append(result.bound)

    def result(self) -> Result:
        """Its current state as the result of one run."""
        trace = np.concatenate([np.zeros(0), *self.traces])
        return Result(self.state, self.bound, trace, self.status, self.rate)

    def adopt(self, result: Result) -> None:
        self.state, self.bound, self.rate = result.state, result.bound, result.rate
        self.status = result.status
        self.traces.append(result.trace)


def race(
    contenders: Iterable[Contender], trainer: Trainer, in_parallel: bool | None = None
) -> list[Contender]:
    """Successive halving on the ELBO; returns the finalists, best first.

    Contenders may come one by one: the first ones are trained while others are made.
    """
    in_parallel = parallel.is_faster() if in_parallel is None else in_parallel
    run = _in_parallel if in_parallel else _in_sequence

    def halved(running: Iterable[Contender], rung: int) -> list[Contender]:
        steps = FIRST_STEPS if rung == 1 else RACE_STEPS
        trained = sorted(run(running, trainer, steps, rung), key=lambda c: -c.bound)
        if rung == 1:
            trained = _each_kind_first(trained)
        keep = max(FINALISTS, int(np.ceil(len(trained) * KEEP)))
        kept = _without_repeats(trained, trainer)[:keep]
        for contender in trained:
            if not any(contender is other for other in kept):
                contender.fate = DROPPED.format(rung)
        return kept

    begun = iter(contenders)
    running = list(itertools.islice(begun, 2))
    # A single start has nothing to compete with.
    if len(running) > 1:
        running = halved(itertools.chain(running, begun), 1)
    for rung in itertools.count(2):
        if len(running) <= FINALISTS:
            break
        running = halved(running, rung)
    for contender in running:
        contender.fate = "finalist"
    return running


def _in_sequence(
    running: Iterable[Contender], trainer: Trainer, steps: int, rung: int
) -> list[Contender]:
    def run(trainer: Trainer, contender: Contender) -> tuple[Contender, Contender]:
        trained = contender.copy()
        trained.advance(trainer, steps)
        return contender, trained

    begun, done = iter(running), []
    first = next(begun)
    results = trainer.each(run, itertools.chain([first], begun), parallel.width(first.state))
    for index, (contender, trained) in enumerate(results):
        contender.become(trained)
        done.append(contender)
        trainer.notify(Progress(f"race {rung}", index, contender.steps, contender.bound))
    return done


def _in_parallel(
    running: Iterable[Contender], trainer: Trainer, steps: int, rung: int
) -> list[Contender]:
    running = list(running)
    states, rates = zip(*((c.state, c.rate) for c in running), strict=True)
    results = parallel.train_in_parallel(
        states, trainer.batch, max_iter=steps, tol=trainer.tol, rates=rates, log=trainer.log
    )
    for index, (contender, result) in enumerate(zip(running, results, strict=True)):
        contender.finish_rung(result)
        trainer.notify(Progress(f"race {rung}", index, contender.steps, contender.bound))
    return running


def _without_repeats(contenders: list[Contender], trainer: Trainer) -> list[Contender]:
    """The contenders without those that have reached the solution of an earlier one."""
    weight = to_host(trainer.batch.weight)
    found: list[tuple[Contender, np.ndarray]] = []
    for contender in contenders:
        own = to_host(contender.state.responsibilities)
        if all(agreement(own, other, weight) < REACHED for _, other in found):
            found.append((contender, own))
    return [contender for contender, _ in found]


def _each_kind_first(contenders: list[Contender]) -> list[Contender]:
    """The best of each kind first: across kinds the ELBO of the first steps predicts little."""
    kinds: set[str] = set()
    first, others = [], []
    for contender in contenders:
        (others if contender.start.kind in kinds else first).append(contender)
        kinds.add(contender.start.kind)
    return first + others


def ranked(contenders: list[Contender]) -> list[Contender]:
    """The kept one first, then by the number of rungs, then by the ELBO."""
    return sorted(contenders, key=lambda c: (c.fate != "kept", -len(c.rungs), -c.bound))
