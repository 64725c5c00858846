"""Proposals, and the one place where they are tried: probe, train, accept.

A proposal says what else the association might be, and what the model would then look like. Its
functions and its gate first settle at the hyperparameters as they are (a *probe*, which costs
little); what is neither hopeless nor back where it came from is trained; what has the higher score
is accepted. `climb` goes on with proposals until none is.
"""

import itertools
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, NamedTuple, TypeVar

import jax
import numpy as np

from dagp.core.sharding import shard_rows, to_host
from dagp.core.threads import concurrently
from dagp.core.typing import Bool, Float
from dagp.inference import parallel
from dagp.inference.missing import filled
from dagp.inference.parallel import width
from dagp.inference.problem import Problem, initial_gate
from dagp.inference.run_log import NO_LOG, RunLog
from dagp.inference.standardize import FORBIDDEN, Sample, padded, to_device_batch
from dagp.inference.train import (
    BLOCK,
    BOTH,
    GATE,
    LEARNING_RATE,
    Callback,
    LoopState,
    Progress,
    Result,
    State,
    Stop,
    begin,
    evaluate,
    never,
    no_callback,
    train,
)
from dagp.model.association import Batch, DataAssociation
from dagp.model.parameters import trainable
from dagp.model.sparse_gp import Projection
from dagp.search.settings import (
    ATTEMPTS,
    GAIN,
    GATE_RATE,
    HOPELESS,
    IDENTICAL,
    MOVE_STEPS,
    PATIENT_STEPS,
    PROBE_STEPS,
    RETURNED,
    ROWS_ALIKE,
    UNUSED,
)
from dagp.search.solution import Options, Solution, agreement, shares_of_data

Item = TypeVar("Item")
Found = TypeVar("Found")


class StopSearchError(Exception):
    """A callback has stopped the search."""


def extrapolated(trace: Float[np.ndarray, " T"], least: float = 3.0) -> float:
    """Where the ELBO of a run levels off, if its gain falls as in the last `BLOCK` steps.

    The rest is at least `least` and at most nine times the gain of the last half block: other
    directions are slower than the first ones, and the gain per step may still increase.

    >>> extrapolated(1 - 0.9 ** np.arange(BLOCK)) > 0.95
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


class Trainer(NamedTuple):
    """The data on their devices, the tolerance, the user's callback and the run log."""

    batch: Batch
    tol: float
    callback: Callback = no_callback
    log: RunLog = NO_LOG

    @staticmethod
    def of(problem: Problem, options: Options) -> "Trainer":
        batch = to_device_batch(problem.sample, problem.n_processes)
        return Trainer(batch, options.tol, options.callback, options.log)

    def on(self, problem: Problem) -> "Trainer":
        """The same for a problem with another number of processes."""
        if self.batch.label_log_mask.shape[1] == problem.n_processes:
            return self
        return self._replace(batch=to_device_batch(problem.sample, problem.n_processes))

    def barring(self, barred: Bool[np.ndarray, "N K"]) -> "Trainer":
        """The same where some rows cannot be of some processes."""
        mask = to_host(self.batch.label_log_mask).copy()
        mask[: len(barred)][barred] = FORBIDDEN
        return self._replace(batch=self.batch._replace(label_log_mask=shard_rows(mask)))

    def begin(
        self, model: DataAssociation, given: Float[np.ndarray, "N K"], steps: int = 0
    ) -> tuple[State, float]:
        """The state after a full step on given responsibilities and `steps` more, and its ELBO."""
        on_devices = shard_rows(padded(given, len(self.batch.X)))
        state, bound = begin(model, self.batch, on_devices, steps)
        return state, float(bound.value)

    def train(
        self, state: State, steps: int, rate: float = LEARNING_RATE, stop: Stop = never
    ) -> Result:
        """Train a state for at most so many steps, or until a rule says that it is enough."""
        settings: dict[str, Any] = {"tol": self.tol, "log": self.log, "stop": stop, "parts": BOTH}
        return train(state, self.batch, max_iter=steps, rate=rate, **settings)

    def converge(self, solution: Solution, steps: int) -> None:
        """Train a solution to convergence; StopSearchError if the user's callback returns true.

        A function that is almost without noise may be determined so sharply that Adam's steps gain
        nothing, or lose, and end a run in which the gate has hardly moved. So where a run has ended
        before its budget, the gate goes on alone if a block of steps gains something.
        """
        batch = self.on(solution.problem).batch
        settings: dict[str, Any] = {"tol": self.tol, "log": self.log, "callback": self.callback}
        solution.finish_rung(
            train(solution.state, batch, max_iter=steps, rate=solution.rate, parts=BOTH, **settings)
        )
        left = steps - len(solution.traces[-1])
        ended = solution.status in ("converged", "diverged") and np.isfinite(solution.bound)
        has_gate = any(jax.tree.leaves(trainable(solution.state.model).gate))
        if ended and has_gate and left >= 2 * BLOCK:
            least = solution.bound + self.tol * float(solution.problem.sample.weight.sum())
            done = len(solution.traces[-1])

            def onwards(progress: Progress) -> Any:
                return self.callback(progress._replace(step=done + progress.step))

            settings |= {"parts": GATE, "rate": GATE_RATE, "callback": onwards}
            settings["stop"] = lambda run: run.bound <= least
            alone = train(solution.state, batch, max_iter=left, **settings)
            if alone.bound > least:
                solution.adopt(alone._replace(rate=solution.rate))
        if solution.status == "stopped":
            raise StopSearchError

    def each(
        self, run: Callable[["Trainer", Item], Found], items: Iterable[Item], width: int
    ) -> Iterator[Found]:
        """``run(trainer, item)`` for all items, up to `width` at once.

        Results, their order and the run log are those of one run after the other, however early
        the iteration ends. Runs must not call the user's callback.
        """
        if self.log.is_replaying:
            width = 1

        def branched(item: Item) -> tuple[Found, RunLog]:
            log = self.log if width == 1 else self.log.branch()
            return run(self._replace(log=log), item), log

        for found, log in concurrently(branched, items, width):
            if log is not self.log:
                self.log.adopt(log)
            yield found

    def together(self, pool: Iterable[Solution], steps: int) -> Iterator[tuple[Solution, Result]]:
        """Solutions with the results of so many steps of each: in threads, or on an accelerator in
        one program. They may come one by one: the first are trained while others are made."""
        if parallel.is_faster():
            pool = list(pool)
            states, rates = zip(*((s.state, s.rate) for s in pool), strict=True)
            settings: dict[str, Any] = {"max_iter": steps, "tol": self.tol, "log": self.log}
            results = parallel.train_in_parallel(states, self.batch, rates=rates, **settings)
            yield from zip(pool, results, strict=True)
            return

        def run(trainer: Trainer, solution: Solution) -> tuple[Solution, Result]:
            return solution, trainer.train(solution.state, steps, solution.rate)

        following = iter(pool)
        for first in following:
            begun = itertools.chain([first], following)
            yield from self.each(run, begun, width(first.state))

    def notify(self, progress: Progress) -> None:
        """Call the user's callback; StopSearchError if it returns true."""
        if self.callback(progress):
            raise StopSearchError


class View(NamedTuple):
    """A solution evaluated on the standardised sample, as generators of proposals see it."""

    home: Solution
    trainer: Trainer
    sample: Sample
    """With missing outputs filled in."""
    responsibilities: Float[np.ndarray, "N K"]
    means: Float[np.ndarray, "K N P"]
    variances: Float[np.ndarray, "K N P"]
    noise_std: Float[np.ndarray, "K P"]
    log_joint: Float[np.ndarray, "N K"]
    smooth: list[int]
    """Indices of the processes that are functions of the input."""
    normal: list[int]
    """Those of them whose noise is not heavy-tailed."""
    residuals: Float[np.ndarray, "K N"]
    """Prior variance of each function that its inducing inputs do not explain."""
    projections: tuple[Projection | None, ...] = ()
    """Of the functions of each group of processes."""

    @staticmethod
    def of(home: Solution, trainer: Trainer) -> "View":
        problem, model, trainer = home.problem, home.state.model, trainer.on(home.problem)
        N = len(problem.sample.X)
        seen = evaluate(model, trainer.batch)
        smooth = [k for k, clutter in enumerate(problem.clutter) if not clutter]
        pairs = zip(model.groups, model.members, strict=True)
        heavy = {k for group, members in pairs if group.heavy_tailed for k in members}
        return View(
            home,
            trainer,
            filled(problem.sample),
            home.responsibilities,
            to_host(seen.means)[:, :N],
            to_host(seen.variances)[:, :N],
            np.sqrt(np.asarray(seen.noise_variances)),
            to_host(seen.log_joint)[:N],
            smooth,
            [k for k in smooth if k not in heavy],
            to_host(seen.residuals)[:, :N],
            seen.projections,
        )

    @property
    def sizes(self) -> Float[np.ndarray, " K"]:
        return shares_of_data(self.responsibilities, self.sample.weight)

    @property
    def used(self) -> list[int]:
        """Functions with a share of the data, largest first."""
        sizes = self.sizes
        return sorted((k for k in self.smooth if sizes[k] >= UNUSED), key=lambda k: -sizes[k])

    @property
    def clutter(self) -> Bool[np.ndarray, " K"]:
        return ~np.isin(np.arange(len(self.means)), self.smooth)

    def hand_over(self, giver: int, taker: int, where: np.ndarray) -> Float[np.ndarray, "N K"]:
        """Responsibilities with those of `giver` at `where` moved to `taker`."""
        responsibilities = self.responsibilities.copy()
        responsibilities[where, taker] += responsibilities[where, giver]
        responsibilities[where, giver] = 0.0
        return responsibilities


Edit = Callable[[Solution], tuple[Problem, DataAssociation]]


def with_fresh_gate(home: Solution) -> tuple[Problem, DataAssociation]:
    """The model with the gate of the beginning: a gate trained to be constant could not follow a
    proposal that divides the inputs."""
    return home.problem, home.state.model.with_gate(initial_gate(home.problem, home.start))


def elbo(state: State, bound: float) -> float:
    """The score of most proposals."""
    return bound


class Accept(NamedTuple):
    """How a proposal is judged: its score must exceed that of the solution by `gain`."""

    gain: float
    score: Callable[[State, float], float] = elbo
    """Of a state and its ELBO."""
    patient: bool = False
    """Whether it is trained until its ELBO levels off before it is judged, however it begins."""


class Proposal(NamedTuple):
    """What else the association, or the model, might be."""

    name: str
    touches: frozenset[int]
    """Processes that it changes: rejected, it is tried again only when one of them has changed."""
    responsibilities: Float[np.ndarray, "N K"]
    accept: Accept
    edit: Edit = with_fresh_gate


Move = Callable[[View], Iterator[Proposal]]
"""A generator of proposals."""


class Trial(NamedTuple):
    """A proposal after a probe, or after training."""

    proposal: Proposal
    home: Solution
    trainer: Trainer
    problem: Problem
    result: Result

    @property
    def target(self) -> float:
        """Score from which it is accepted."""
        accept = self.proposal.accept
        return accept.score(self.home.state, self.home.bound) + accept.gain

    @property
    def accepted(self) -> bool:
        # A score that is NaN compares false.
        return self.proposal.accept.score(self.result.state, self.result.bound) > self.target

    @property
    def hopeful(self) -> bool:
        """Whether training could lead to acceptance, as far as a probe can tell."""
        accept, bound = self.proposal.accept, self.result.bound
        if accept.patient:
            # Training seldom raises the ELBO above that of a solution which is trained already.
            reachable = accept.score(self.result.state, max(bound, self.home.bound))
            return np.isfinite(bound) and reachable >= self.target
        ahead = bound > self.home.bound - HOPELESS * self.home.points
        return ahead and not self.reverted(self.result.state, self.home.responsibilities)

    def reverted(self, state: State, before: Float[np.ndarray, "N K"]) -> bool:
        """Whether the association of a state is that of other responsibilities again: training it
        would only find the same solution."""
        weight, kinds = self.problem.sample.weight, self.problem.kinds
        now = to_host(state.responsibilities)[: len(weight)]
        moved, left = (
            1 - agreement(found, before, weight, kinds)
            for found in (self.proposal.responsibilities, now)
        )
        few = ROWS_ALIKE / np.sum(weight > 0)
        return left < max(min(RETURNED * moved, 2 * (1 - IDENTICAL)), few)

    def repeats(self, other: "Trial") -> bool:
        """Whether it has become the same as another one."""
        found = to_host(other.result.state.responsibilities)[: len(self.problem.sample.X)]
        return self.reverted(self.result.state, found)

    def trained(self, trainer: Trainer) -> "Trial":
        """After training, which ends early where it would not lead to acceptance."""
        accept, home, target = self.proposal.accept, self.home, self.target
        trainer = self.trainer._replace(log=trainer.log)

        def stop(run: LoopState) -> bool:
            if accept.patient:
                return levelled(self.home, run) or not (
                    accept.score(run.state, extrapolated(run.trace, 9.0)) >= target
                )
            if run.bound > target:
                return False
            behind = not extrapolated(run.trace) >= target
            return behind or self.reverted(run.state, home.responsibilities)

        # What changes the model continues from hyperparameters that are trained.
        steps, rate = MOVE_STEPS, LEARNING_RATE
        if accept.patient:
            steps, rate = PATIENT_STEPS, LEARNING_RATE / 3
        return self._replace(result=trainer.train(self.result.state, steps, rate, stop))

    def alone(self) -> Solution:
        """As a solution of its own."""
        start = self.home.start._replace(kind=self.proposal.name)
        return Solution(self.problem, start, self.result.state, self.result.bound)


def levelled(solution: Solution, run: LoopState) -> bool:
    """Whether the ELBO of a run would rise little further."""
    return extrapolated(run.trace) - run.bound < GAIN * solution.points


def probe(home: Solution, proposal: Proposal, trainer: Trainer) -> Trial:
    """A proposal after coordinate ascent with the hyperparameters as they are."""
    problem, model = proposal.edit(home)
    trainer = trainer.on(problem)
    state, bound = trainer.begin(model, proposal.responsibilities, PROBE_STEPS)
    result = Result(state, bound, np.zeros(0), "budget", LEARNING_RATE)
    return Trial(proposal, home, trainer, problem, result)


def trials(home: Solution, proposals: Iterable[Proposal], trainer: Trainer) -> Iterator[Trial]:
    """Proposals as they were tried: first those that a probe rejects, then the best of the others,
    trained; or the first one that is better without any training, and nothing after it."""

    def probed(proposal: Proposal) -> Trial:
        return probe(home, proposal, trainer)

    def run(trainer: Trainer, trial: Trial) -> Trial:
        return trial.trained(trainer)

    hopeful: list[Trial] = []
    for trial in concurrently(probed, proposals, width(home.state)):
        patient = trial.proposal.accept.patient
        if trial.accepted and not patient:
            yield trial
            return
        if trial.hopeful and (patient or not any(map(trial.repeats, hopeful))):
            hopeful.append(trial)
        else:
            yield trial
    hopeful.sort(key=lambda trial: -trial.result.bound)
    yield from trainer.each(run, hopeful[:ATTEMPTS], width(home.state))


def climb(home: Solution, tiers: Sequence[Sequence[Move]], trainer: Trainer) -> bool:
    """Try proposals until none is accepted, those of a tier only where no earlier one has any;
    whether any was."""
    rejected: dict[str, frozenset[int]] = {}
    changed = False
    while (touched := _taken(home, tiers, trainer, rejected)) is not None:
        changed = True
        for name in [name for name, processes in rejected.items() if processes & touched]:
            del rejected[name]
    return changed


def _taken(
    home: Solution,
    tiers: Sequence[Sequence[Move]],
    trainer: Trainer,
    rejected: dict[str, frozenset[int]],
) -> frozenset[int] | None:
    """Adopt the first proposal that is accepted; the processes it changes, None without one."""
    for moves in tiers:
        view = View.of(home, trainer)
        made = (proposal for move in moves for proposal in move(view))
        fresh = (proposal for proposal in made if proposal.name not in rejected)
        for trial in trials(home, fresh, view.trainer):
            accepted = trial.accepted
            if accepted or len(trial.result.trace):
                home.moves.append((trial.proposal.name, trial.result.bound - home.bound))
                step = Progress(trial.proposal.name, 0, home.steps, trial.result.bound)
                trainer.notify(step)
            if accepted:
                home.problem = trial.problem
                # Why the last run to convergence ended still counts.
                home.adopt(trial.result._replace(status=home.status))
                return trial.proposal.touches
            rejected[trial.proposal.name] = trial.proposal.touches
    return None
