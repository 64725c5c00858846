"""Local search: moves of a trained contender, tried and trained as long as they raise the ELBO."""

import itertools
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
from scipy.spatial import KDTree

from dagp.core.sharding import shard_rows, to_host
from dagp.core.threads import concurrently
from dagp.core.typing import Float
from dagp.inference.parallel import width
from dagp.inference.standardize import padded
from dagp.inference.train import (
    BLOCK,
    LEARNING_RATE,
    Progress,
    Result,
    State,
    begin,
    evaluate,
    settled,
)
from dagp.model.association import Batch
from dagp.model.gates import ConstantGate
from dagp.search.factory import Problem, initial_gate
from dagp.search.missing import filled
from dagp.search.moves import MOVES, SIMPLER, Move, Proposal, View
from dagp.search.race import RACE_STEPS, Contender, limit
from dagp.search.trainer import Trainer
from dagp.search.windows import assign_windows_again

PROBE_STEPS = 6
"""Coordinate-ascent steps on a proposal before its ELBO is compared."""
HOPELESS = 0.2
"""A proposal this far below, per data point, after these steps is rejected."""
FEW = 500
"""Least number of data points assumed in these margins: with fewer, trials are cheap."""
RETURNED, HOME = 0.3, 0.02
"""A proposal has reverted when less than this part of the points it moved, and less than this share
of the data, are still reassigned: it would only find the current solution again."""
ALIKE = 1.5
"""Solutions whose assignments differ by fewer points are the same: training finds one from the
other."""
ATTEMPTS = 4
"""Proposals with a training run per round."""
MOVE_STEPS = 2 * BLOCK
"""Steps for a proposal to exceed the current solution, with a check halfway."""
GATE_PARTS = 4
"""Most parts, of as many steps, for a gate trained from the beginning to exceed the current one."""
NEIGHBOURS, SURPRISE = (8, 32), 2.5
"""Test of a gate: numbers of neighbours whose residuals are averaged, and standard deviations from
which their excess is no chance."""
_TIE = 1e-6
"""Largest shift, in standardised units, that orders points of the same level of a category."""
GAIN = 2e-3
"""Least gain of a move, per data point: more than a few steps of training would gain."""
PARTS = 4
"""Most parts, of `RACE_STEPS` each, in which a finalist is trained before moves; half as many for a
start that may confirm it."""
PARSIMONY = 0.2
"""Loss of the ELBO accepted for each point at which the gate has one process instead of two.

Where two functions coincide, one process or two explain the data equally well, and the ELBO differs
by less than its gap to the evidence. The simpler solution is preferred."""


def view(problem: Problem, state: State, batch: Batch) -> View:
    """A trained model evaluated for the moves."""
    N = len(problem.sample.X)
    evaluation, model = evaluate(state.model, batch), state.model
    smooth = [k for k, clutter in enumerate(problem.clutter) if not clutter]
    pairs = zip(model.groups, model.members, strict=True)
    heavy = {k for group, members in pairs if group.heavy_tailed for k in members}
    return View(
        filled(problem.sample),
        to_host(state.responsibilities)[:N],
        to_host(evaluation.means)[:, :N],
        to_host(evaluation.variances)[:, :N],
        np.sqrt(np.asarray(evaluation.noise_variances)),
        to_host(evaluation.log_joint)[:N],
        smooth,
        [k for k in smooth if k not in heavy],
        evaluation.projections,
        problem.kinds,
    )


def per_point(problem: Problem) -> float:
    """Factor from an ELBO margin per data point to a total one."""
    return max(float(problem.sample.weight.sum()), FEW)


def moved(responsibilities: np.ndarray, home: State, batch: Batch) -> float:
    """Weight of the points that were reassigned since `home`."""
    N = len(responsibilities)
    before, weight = to_host(home.responsibilities)[:N], to_host(batch.weight)[:N]
    # A moved point changes two responsibilities, and so counts twice.
    return 0.5 * float(weight @ np.abs(responsibilities - before).sum(axis=1))


def level_off(
    problem: Problem, contender: Contender, trainer: Trainer, least: float, parts: int = PARTS
) -> None:
    """Train until the ELBO rises little, or would level off below `least`."""
    contender.levelled = True
    for _ in range(parts):
        trace = contender.advance(trainer, RACE_STEPS).trace
        behind = limit(trace, 9.0) < least
        if behind or limit(trace) - contender.bound < GAIN * per_point(problem):
            return


class Trial(NamedTuple):
    """A proposal after coordinate ascent."""

    proposal: Proposal
    state: State
    bound: float

    def result(self, rate: float) -> Result:
        """The trial as the result of a training run without steps."""
        return Result(self.state, self.bound, np.zeros(0), "budget", rate)

    def returned(self, state: State, home: State, batch: Batch) -> bool:
        """Whether the association of `state` has reverted to that of `home`."""
        weight = to_host(batch.weight)
        proposed = moved(self.proposal.responsibilities, home, batch)
        least = min(RETURNED * proposed, HOME * float(np.sum(weight)))
        alike = ALIKE * float(np.mean(weight[weight > 0]))
        return moved(to_host(state.responsibilities), home, batch) < max(least, alike)


Rejected = dict[str, frozenset[int]]
"""Names of rejected proposals, and the processes they change."""


def promising(
    problem: Problem,
    contender: Contender,
    trainer: Trainer,
    moves: tuple[Move, ...],
    rejected: Rejected,
) -> list[Trial]:
    """Proposals that neither fall far behind nor revert after coordinate ascent, best first, or the
    first one that is better already; others are added to `rejected`."""
    batch = trainer.batch
    seen = view(problem, contender.state, batch)
    model = contender.state.model
    # A gate trained to be constant could not follow a proposal that divides the inputs, so the
    # initial gate is used.
    untrained = model.with_gate(initial_gate(problem, contender.start))
    margin = GAIN * float(problem.sample.weight.sum())
    least = contender.bound - HOPELESS * per_point(problem)
    trials = []

    def probe(proposal: Proposal) -> Trial:
        given = shard_rows(padded(proposal.responsibilities, len(batch.X)))
        first = model if proposal.keeps_gate else untrained
        state, bound = begin(first, batch, given, PROBE_STEPS)
        return Trial(proposal, state, float(bound.value))

    proposals = itertools.chain.from_iterable(move(seen) for move in moves)
    fresh = [p for p in proposals if p.name not in rejected]
    for trial in concurrently(probe, fresh, width(contender.state)):
        if trial.bound > contender.bound + margin:
            return [trial]
        # An ELBO that is NaN compares false and drops out here.
        if trial.bound > least and not trial.returned(trial.state, contender.state, batch):
            trials.append(trial)
        else:
            rejected[trial.proposal.name] = trial.proposal.processes
    return _distinct(sorted(trials, key=lambda t: -t.bound), batch, rejected)


def _distinct(trials: list[Trial], batch: Batch, rejected: Rejected) -> list[Trial]:
    """The trials without those that repeat an earlier one, which are added to `rejected`."""
    found: list[Trial] = []
    for trial in trials:
        if any(trial.returned(trial.state, other.state, batch) for other in found):
            rejected[trial.proposal.name] = trial.proposal.processes
        else:
            found.append(trial)
    return found


def attempt(
    contender: Contender,
    trial: Trial,
    trainer: Trainer,
    target: float,
) -> Result:
    """A short training run from a trial, ended early if it has reverted or if its ELBO levels off
    below the `target`."""
    result = trainer.train(trial.state, MOVE_STEPS // 2)
    go_on = result.bound > target
    if not go_on and limit(result.trace) >= target:
        go_on = not trial.returned(result.state, contender.state, trainer.batch)
    if go_on:
        more = trainer.train(result.state, MOVE_STEPS // 2, result.rate)
        trace = np.concatenate([result.trace, more.trace])
        result = max(result, more, key=lambda r: r.bound)._replace(trace=trace)
    return result


def record_move(contender: Contender, name: str, bound: float, trainer: Trainer) -> None:
    """Note that a move was tried and which ELBO it reached."""
    contender.moves.append((name, bound - contender.bound))
    trainer.notify(Progress(name, 0, contender.steps, bound))


def improve(
    problem: Problem, contender: Contender, trainer: Trainer, moves: tuple[Move, ...] = MOVES
) -> None:
    """Try moves until none raises the ELBO; rejected ones again if a process of theirs changed.
    Where none does, windows are assigned again."""
    contender.improved = True

    def windows(seen: View) -> Iterator[Proposal]:
        return assign_windows_again(problem, contender.state, seen)

    rejected: Rejected = {}
    while True:
        touched = _improved_by(problem, contender, trainer, moves, rejected)
        if touched is None:
            touched = _improved_by(problem, contender, trainer, (windows,), {})
        if touched is None:
            return
        rejected = {name: ks for name, ks in rejected.items() if not ks & touched}


def _improved_by(
    problem: Problem,
    contender: Contender,
    trainer: Trainer,
    moves: tuple[Move, ...],
    rejected: Rejected,
) -> frozenset[int] | None:
    """Adopt the first proposal that raises the ELBO; the processes it changes, None without one."""
    target = contender.bound + GAIN * float(problem.sample.weight.sum())
    trials = promising(problem, contender, trainer, moves, rejected)[:ATTEMPTS]

    def run(trainer: Trainer, trial: Trial) -> Result:
        if trial.bound > target:
            # Better with the same hyperparameters already: training could only tell later.
            return trial.result(contender.rate)
        return attempt(contender, trial, trainer, target)

    results = trainer.each(run, trials, width(contender.state))
    for trial, result in zip(trials, results, strict=True):
        record_move(contender, trial.proposal.name, result.bound, trainer)
        if result.bound > target:
            contender.adopt(result)
            return trial.proposal.processes
        rejected[trial.proposal.name] = trial.proposal.processes
    return None


def renew_gate(problem: Problem, contender: Contender, trainer: Trainer) -> bool:
    """Train a gate from the beginning; whether it raises the ELBO and was adopted.

    While points are still assigned wrongly, the gate may lose inputs that it needs later: where its
    function is constant, nothing makes a length scale shorter again.
    """
    if isinstance(contender.state.model.gate, ConstantGate) or not _gate_misses(problem, contender):
        return False
    model = contender.state.model.with_gate(initial_gate(problem, contender.start))
    state, bound = begin(model, trainer.batch, contender.state.responsibilities, PROBE_STEPS)
    renewed = Contender(contender.start, state, float(bound.value))
    for _ in range(GATE_PARTS):
        before = renewed.bound
        renewed.advance(trainer, MOVE_STEPS)
        if renewed.bound + 2 * (renewed.bound - before) < contender.bound:
            break
    record_move(contender, "renew the gate", renewed.bound, trainer)
    better = renewed.bound > contender.bound
    if better:
        contender.adopt(renewed.result())
    return better


def _gate_misses(problem: Problem, contender: Contender) -> bool:
    """Whether responsibilities depend on the inputs in a way that the gate does not know.

    Residuals of the gate, averaged over neighbouring points, are larger than independent ones would
    be. Neighbours are close in all inputs, or in one of them.
    """
    X, weight = problem.sample.X, problem.sample.weight
    assert contender.state.gate is not None
    found = to_host(contender.state.responsibilities)[: len(X)]
    residual = weight[:, None] * (found - to_host(contender.state.gate.weights)[: len(X)])
    columns = list(_each_input(problem))
    return any(
        _excess(inputs, residual, near) > SURPRISE
        for inputs in (columns if len(columns) == 1 else [X, *columns])
        for near in NEIGHBOURS
        if 2 * near <= len(X)
    )


def _each_input(problem: Problem) -> Iterator[Float[np.ndarray, "N C"]]:
    """The columns of every input."""
    X, rng = problem.sample.X, np.random.default_rng(0)
    members = np.array(problem.groups or range(X.shape[1]))
    for i in range(problem.n_inputs):
        columns = X[:, members == i]
        # Points of one level are equally near: at random, lest all have the same neighbours.
        shift = 0.0 if columns.shape[1] == 1 else _TIE * rng.random(columns.shape)
        yield columns + shift


def _excess(
    inputs: Float[np.ndarray, "N D"], residual: Float[np.ndarray, "N K"], near: int
) -> float:
    """Excess of the averages of neighbouring residuals, in standard deviations."""
    neighbours = KDTree(inputs).query(inputs, k=near)[1]
    averages = np.sum(residual[neighbours].mean(axis=1) ** 2)
    ratio = near * averages / max(float(np.sum(residual**2)), 1e-12)
    # There are as many independent averages as groups of neighbours.
    return float((ratio - 1) / np.sqrt(2 * near / len(inputs)))


def simplify(problem: Problem, contender: Contender, trainer: Trainer) -> None:
    """Use one process instead of two where the loss of the ELBO is small, trying each way once.

    After training, which would revert it. For a single input only: with several inputs functions
    agree in scattered places, and reassigning these simplifies nothing.
    """
    if problem.sample.X.shape[1] > 1 or problem.clutter.count(False) < 2:
        return
    tried: Rejected = {}
    while _simplified_by(problem, contender, trainer, tried):
        pass


def _simplified_by(
    problem: Problem, contender: Contender, trainer: Trainer, tried: Rejected
) -> bool:
    """Adopt the first proposal that is simpler; whether there is one."""
    # Right after a step of the hyperparameters functions fit badly, and none would agree.
    fitting = settled(contender.result(), trainer.batch)
    contender.state, contender.bound = fitting.state, fitting.bound
    for trial in promising(problem, contender, trainer, SIMPLER, tried):
        tried[trial.proposal.name] = trial.proposal.processes
        result, simpler = _trained_as_simpler(contender, trial, trainer)
        record_move(contender, trial.proposal.name, result.bound, trainer)
        if simpler:
            contender.keep_plain()
            contender.adopt(result)
            return True
    return False


def _trained_as_simpler(
    contender: Contender, trial: Trial, trainer: Trainer
) -> tuple[Result, bool]:
    """A trial, trained as long as its score rises, and whether that exceeds the contender's. The
    score is the ELBO less `PARSIMONY` for every point at which the gate has both processes."""
    weight = to_host(trainer.batch.weight)
    pair = sorted(trial.proposal.processes)
    margin = GAIN * float(weight.sum())

    def cost(state: State) -> float:
        assert state.gate is not None
        return PARSIMONY * float(weight @ to_host(state.gate.weights)[:, pair].min(axis=1))

    def score(result: Result) -> float:
        return result.bound - cost(result.state)

    least = score(contender.result())
    best = result = trial.result(LEARNING_RATE)
    # Even without any loss of the ELBO it would be no better.
    if cost(contender.state) - cost(trial.state) < margin:
        return best, False
    traces: list[np.ndarray] = []
    rising = True
    # The first steps may lower the ELBO.
    while len(traces) < 2 or rising:
        result = trainer.train(result.state, MOVE_STEPS // 2, result.rate)
        traces.append(result.trace)
        gain, best = score(result) - score(best), max(best, result, key=score)
        # A score that is NaN compares false and ends the training.
        rising = gain >= margin and score(best) > least
    return best._replace(trace=np.concatenate(traces)), score(best) > least
