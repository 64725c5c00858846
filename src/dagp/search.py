"""The search for the right association.

The evidence bound has many local optima. So many cheap starts of different kinds race: all run a
little, the better ones run on. The best is then improved by moves that no gradient would make, and
trained to convergence. The bound alone decides.
"""

import itertools
from typing import NamedTuple

import equinox as eqx
import jax
import numpy as np

from dagp.data import on_devices, padded
from dagp.model import Batch, DataAssociation
from dagp.moves import MOVES, SIMPLER, Move, Proposal, View
from dagp.placement import fetched, place
from dagp.processes import Growth
from dagp.race import RACE_STEPS, Contender, Tell, race, ranked
from dagp.starts import Problem, Start, build, grown, starts
from dagp.train import (
    BLOCK,
    Progress,
    Report,
    Result,
    State,
    begin,
    outlook,
    resume,
    settled,
    train,
)

__all__ = ["UNUSED", "improve", "prune", "search"]

BEHIND = 0.1
"""A finalist that is this far behind, per data point, has lost already."""
PROBE_STEPS = 10
"""Settling steps before a proposal is judged for the first time."""
HOPELESS = 0.2
"""A proposal that is this far below, per data point, after settling is not tried."""
FEW = 500
"""With fewer data points than this, trying is cheap, and hope lasts as with this many."""
RETURNED, HOME = 0.3, 0.02
"""A proposal has gone back when no more than this part of what it moved is still elsewhere, nor
more than this share of the data: it would only find again what is there already."""
ATTEMPTS = 4
"""Proposals that get a training run before a round is given up."""
MOVE_STEPS = 2 * BLOCK
"""Steps a moved contender has to overtake the one it came from; halfway it is looked at."""
GAIN = 2e-3
"""What a move has to gain, per data point: more than a few steps of training would."""
UNUSED = 0.01
"""A process that accounts for less than this share of the data is not in use."""
PARSIMONY = 0.2
"""How much of the bound we give, per point that changes hands, for one process in place of two.

Where two functions coincide, one process or two explain the data equally well, and the bound
differs by little more than it is off the evidence. Users want the one."""

GROWTHS = (Growth(), Growth(stretch=5.0), Growth(stretch=10.0, variance=0.3, std=0.05))
"""Ways to take a function to pieces: leave the last layer as it is, or make it slow and let the
layers before it do the fast part."""
GROWTH_STEPS = 4 * BLOCK
"""Steps each of these has before the hopeless ones are dropped; the others have three times as
many more."""


def view(problem: Problem, contender: Contender, batch: Batch) -> View:
    """What the moves see of a contender."""
    N = len(problem.sample.X)
    model = contender.state.model
    seen = outlook(model, batch)
    return View(
        problem.sample,
        fetched(contender.state.responsibilities)[:N],
        fetched(seen.means)[:, :N],
        np.sqrt(np.asarray(seen.noise_variances)),
        [k for k, clutter in enumerate(problem.clutter) if not clutter],
    )


def per_point(problem: Problem) -> float:
    """Number of data points as far as a gap in the bound is concerned."""
    return max(float(problem.sample.weight.sum()), FEW)


def moved(shares: np.ndarray, home: State, batch: Batch) -> float:
    """Weight of the points that changed hands since `home`."""
    N = len(shares)
    before, weight = fetched(home.responsibilities)[:N], fetched(batch.weight)[:N]
    # What one process gives another takes: each point that moves counts twice.
    return 0.5 * float(weight @ np.abs(shares - before).sum(axis=1))


class Trial(NamedTuple):
    """A proposal after the responsibilities have settled around it."""

    proposal: Proposal
    state: State
    bound: float

    def returned(self, state: State, home: State, batch: Batch) -> bool:
        """Whether the association of `state` is `home` again, as before the proposal."""
        total = float(np.sum(fetched(batch.weight)))
        least = min(RETURNED * moved(self.proposal.shares, home, batch), HOME * total)
        return moved(fetched(state.responsibilities), home, batch) < least


Rejected = dict[str, frozenset[int]]
"""Proposals that came to nothing, and the processes they concerned."""


def promising(
    problem: Problem,
    contender: Contender,
    batch: Batch,
    moves: tuple[Move, ...],
    rejected: Rejected,
) -> list[Trial]:
    """Proposals that are neither hopeless nor gone back once they have settled, best first.

    Settling needs no gradients and leaves the hyperparameters alone, so it is cheap enough to
    look at every proposal that is not `rejected` already. The ones that come to nothing are now.
    """
    seen = view(problem, contender, batch)
    # A gate that has learned to be the same everywhere could not follow a proposal that divides
    # the inputs: it begins afresh.
    fresh = build(problem, contender.start).gate
    model = eqx.tree_at(lambda m: m.gate, contender.state.model, fresh)
    least = contender.bound - HOPELESS * per_point(problem)
    trials = []
    proposals = itertools.chain.from_iterable(move(seen) for move in moves)
    for proposal in [p for p in proposals if p.name not in rejected]:
        shares = place(padded(proposal.shares, len(batch.X)))
        state, bound = begin(model, batch, shares, PROBE_STEPS)
        trial = Trial(proposal, state, float(bound.value))
        # A bound that is not a number compares false and drops out here.
        if trial.bound > least and not trial.returned(state, contender.state, batch):
            trials.append(trial)
        else:
            rejected[proposal.name] = proposal.processes
    return sorted(trials, key=lambda t: -t.bound)


def attempt(
    contender: Contender,
    trial: Trial,
    batch: Batch,
    target: float,
    tol: float,
    tell: Tell,
    content: bool = False,
) -> Result:
    """A short training run from a trial, given up when its pace will not take it to `target`, or
    when it has gone back without being there.

    One that is `content` ends as soon as it is there, and its pace is not held against it: there
    are few of them, and the first steps may lead down before they lead up.
    """
    result = train(trial.state, batch, max_iter=MOVE_STEPS // 2, tol=tol)
    if result.bound > target:
        promises = not content
    else:
        # At this pace for twice the steps it is given, because the pace may still pick up.
        expected = trial.bound + 4 * (result.bound - trial.bound)
        back = trial.returned(result.state, contender.state, batch)
        promises = (content or expected >= target) and not back
    if promises:
        more = train(result.state, batch, max_iter=MOVE_STEPS // 2, tol=tol, rate=result.rate)
        trace = np.concatenate([result.trace, more.trace])
        result = max(result, more, key=lambda r: r.bound)._replace(trace=trace)
    contender.moves.append((trial.proposal.name, result.bound - contender.bound))
    tell(Progress(trial.proposal.name, 0, contender.steps, result.bound))
    return result


def improve(problem: Problem, contender: Contender, batch: Batch, tol: float, tell: Tell) -> None:
    """Try moves until none of them raises the bound.

    A rejected move is tried again only after one of its processes has changed.
    """
    margin = GAIN * float(problem.sample.weight.sum())
    rejected: Rejected = {}
    accepted = True
    while accepted:
        accepted = False
        for trial in promising(problem, contender, batch, MOVES, rejected)[:ATTEMPTS]:
            target = contender.bound + margin
            result = attempt(contender, trial, batch, target, tol, tell)
            accepted = result.bound > target
            if accepted:
                contender.adopt(result)
                touched = trial.proposal.processes
                rejected = {name: who for name, who in rejected.items() if not who & touched}
                break
            rejected[trial.proposal.name] = trial.proposal.processes


def tidy(problem: Problem, contender: Contender, batch: Batch, tol: float, tell: Tell) -> None:
    """Let fewer processes do the same work, each way once, where that costs next to nothing.

    This comes after the training, which would go back to sharing where the bound is a little
    higher there. It is for a single input, where functions coincide along a stretch that everyone
    can see; among several inputs they agree in scattered places, and dividing these helps nobody.
    """
    if problem.sample.X.shape[1] > 1:
        return
    tried: Rejected = {}
    trials = promising(problem, contender, batch, SIMPLER, tried)
    while trials:
        trial = trials.pop(0)
        tried[trial.proposal.name] = trial.proposal.processes
        target = contender.bound - PARSIMONY * moved(trial.proposal.shares, contender.state, batch)
        # Content, because a longer run might drift back to where it came from.
        result = attempt(contender, trial, batch, target, tol, tell, content=True)
        if result.bound > target:
            contender.adopt(result)
            trials = promising(problem, contender, batch, SIMPLER, tried)


def grow(
    problem: Problem, contender: Contender, batch: Batch, max_iter: int, tol: float, report: Report
) -> None:
    """Turn the plain processes into the deep ones that were asked for, and train these.

    A deep process begins as the plain one it is made of, so the association is found where
    finding it is cheap. How the work is divided among the layers has optima of its own: several
    ways race.
    """
    # On the host, where taking processes apart compiles nothing.
    plain, shares = jax.tree.map(fetched, contender.state.model), contender.state.responsibilities
    grow_as = [grown(problem, contender.start, plain, growth) for growth in GROWTHS]
    if jax.tree.structure(grow_as[0]) == jax.tree.structure(plain):
        return
    ways = [Contender(contender.start, begin(m, batch, shares, 0)[0]) for m in grow_as]
    for way in ways:
        way.advance(batch, GROWTH_STEPS, tol)
    least = max(way.bound for way in ways) - HOPELESS * per_point(problem)
    ways = [way for way in ways if way.bound >= least]
    for way in ways if len(ways) > 1 else []:
        way.advance(batch, 3 * GROWTH_STEPS, tol)
    best = max(ways, key=lambda way: way.bound)
    contender.adopt(best.result())
    contender.rungs.append(best.bound)
    contender.advance(batch, max_iter, tol, report)


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
    batch = on_devices(problem.sample, problem.n_processes)
    contenders = _contenders(problem, batch, n_init, rng, previous)

    def listen(progress: Progress) -> bool:
        if tell(progress):
            raise _StopSearchError
        return False

    try:
        finalists = race(contenders, batch, tol, listen)
        if previous is None:
            least = finalists[0].bound - BEHIND * per_point(problem)
            for contender in [c for c in finalists if c.bound >= least]:
                contender.advance(batch, RACE_STEPS, tol)
                improve(problem, contender, batch, tol, listen)
        best = max(finalists, key=lambda c: c.bound)

        def report(step: int, bound: float) -> bool:
            return bool(tell(Progress("train", 0, step, bound)))

        result = best.advance(batch, max_iter, tol, report)
        if previous is None and result.status != "stopped":
            tidy(problem, best, batch, tol, listen)
            best.status = result.status
            grow(problem, best, batch, max_iter, tol, report)
        result = best.result()
    except _StopSearchError:
        best = max(contenders, key=lambda c: c.bound)
        result = best.result()._replace(status="stopped")
    best.fate = "kept"
    return settled(result, batch), ranked(contenders)


def prune(problem: Problem, result: Result, max_iter: int, tol: float) -> Result:
    """The solution without the processes that nothing uses, trained on."""
    shares = fetched(result.state.responsibilities)
    weight = problem.sample.weight / problem.sample.weight.sum()
    totals = weight @ shares[: len(weight)]
    used = np.flatnonzero(totals >= UNUSED)
    if len(used) in (0, problem.n_processes):
        return result
    model = result.state.model
    smaller = problem._replace(priors=tuple(problem.priors[k] for k in used))
    batch = on_devices(smaller.sample, len(used))
    fresh = build(smaller, Start("pruned", shares[:, used], 0.6, 0.1)).gate
    kept = DataAssociation.assemble([model.process(int(k)) for k in used], fresh)
    left = shares[:, used] + 1e-12
    left = place(left / left.sum(axis=1, keepdims=True))
    state, _ = begin(kept, batch, left, PROBE_STEPS)
    trained = train(state, batch, max_iter=max_iter, tol=tol, rate=result.rate)
    trace = np.concatenate([result.trace, trained.trace])
    return settled(trained, batch)._replace(trace=trace)


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
        warm = Start("warm", fetched(state.responsibilities), np.nan, np.nan)
        return [Contender(warm, state)]
    contenders = []
    for start in starts(problem, n_init, rng):
        shares = place(padded(start.responsibilities, len(batch.X)))
        contenders.append(Contender(start, begin(build(problem, start), batch, shares, 0)[0]))
    return contenders
