"""The search for the right association: multi-start, successive halving, split–merge moves.

The ELBO has many local optima, so several starts of different kinds compete: all take a few steps,
the better ones take more. The best is improved by split–merge moves and trained to convergence. All
decisions are by the ELBO.
"""

import itertools
from collections.abc import Callable
from typing import NamedTuple

import jax
import numpy as np

from dagp.core.sharding import shard_rows, to_host
from dagp.core.typing import Float
from dagp.inference.standardize import padded, to_device_batch
from dagp.inference.train import BLOCK, Progress, Result, State, begin, evaluate, resume, settled
from dagp.model.association import Batch, DataAssociation
from dagp.model.process import Deepening
from dagp.search.confidence import CONFIRMED, support
from dagp.search.factory import Problem, Start, build, deepened
from dagp.search.moves import MOVES, SIMPLER, Move, Proposal, View
from dagp.search.race import RACE_STEPS, Contender, race, ranked
from dagp.search.starts import starts
from dagp.search.trainer import StopSearchError, Trainer
from dagp.search.usage import in_use

BEHIND = 0.1
"""A finalist this far behind, per data point, is not improved by moves."""
REACHED = 0.99
"""Share of equally assigned data from which a finalist has reached the best solution so far."""
ROUNDS = 3
"""Most rounds of starts."""
PROBE_STEPS = 10
"""Coordinate-ascent steps on a proposal before its ELBO is compared."""
HOPELESS = 0.2
"""A proposal this far below, per data point, after these steps is rejected."""
FEW = 500
"""Least number of data points assumed in these margins: with fewer, trials are cheap."""
RETURNED, HOME = 0.3, 0.02
"""A proposal has reverted when less than this part of the points it moved, and less than this share
of the data, are still reassigned: it would only find the current solution again."""
ATTEMPTS = 4
"""Proposals with a training run per round."""
MOVE_STEPS = 2 * BLOCK
"""Steps for a proposal to exceed the current solution, with a check halfway."""
GAIN = 2e-3
"""Least gain of a move, per data point: more than a few steps of training would gain."""
PARSIMONY = 0.2
"""Loss of the ELBO accepted, per reassigned point, for one process in place of two.

Where two functions coincide, one process or two explain the data equally well, and the ELBO differs
by less than its gap to the evidence. The simpler solution is preferred."""

DEEPENINGS = (Deepening(), Deepening(stretch=5.0), Deepening(stretch=10.0, variance=0.3, std=0.05))
"""Initialisations of deep GPs: keep the last layer, or stretch its length scales so that the inner
layers model the rapid variation."""
DEEPENING_STEPS = 4 * BLOCK
"""Steps of each before those far behind are dropped; the others take three times as many more."""


def view(problem: Problem, contender: Contender, batch: Batch) -> View:
    """A contender evaluated for the moves."""
    N = len(problem.sample.X)
    evaluation = evaluate(contender.state.model, batch)
    return View(
        problem.sample,
        to_host(contender.state.responsibilities)[:N],
        to_host(evaluation.means)[:, :N],
        to_host(evaluation.variances)[:, :N],
        np.sqrt(np.asarray(evaluation.noise_variances)),
        to_host(evaluation.log_joint)[:N],
        [k for k, clutter in enumerate(problem.clutter) if not clutter],
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


class Trial(NamedTuple):
    """A proposal after coordinate ascent."""

    proposal: Proposal
    state: State
    bound: float

    def returned(self, state: State, home: State, batch: Batch) -> bool:
        """Whether the association of `state` has reverted to that of `home`."""
        total = float(np.sum(to_host(batch.weight)))
        least = min(RETURNED * moved(self.proposal.responsibilities, home, batch), HOME * total)
        return moved(to_host(state.responsibilities), home, batch) < least


Rejected = dict[str, frozenset[int]]
"""Names of rejected proposals, and the processes they change."""


def promising(
    problem: Problem,
    contender: Contender,
    trainer: Trainer,
    moves: tuple[Move, ...],
    rejected: Rejected,
) -> list[Trial]:
    """Proposals that neither fall far behind nor revert after coordinate ascent, best first; others
    are added to `rejected`."""
    batch = trainer.batch
    seen = view(problem, contender, batch)
    model = contender.state.model
    # A gate trained to be constant could not follow a proposal that divides the inputs, so the
    # initial gate is used.
    untrained = model.with_gate(build(problem, contender.start).gate)
    margin = GAIN * float(problem.sample.weight.sum())
    least = contender.bound - HOPELESS * per_point(problem)
    trials = []
    proposals = itertools.chain.from_iterable(move(seen) for move in moves)
    for proposal in [p for p in proposals if p.name not in rejected]:
        given = shard_rows(padded(proposal.responsibilities, len(batch.X)))
        first = model if proposal.keeps_gate else untrained
        state, bound = begin(first, batch, given, PROBE_STEPS)
        trial = Trial(proposal, state, float(bound.value))
        better = trial.bound > contender.bound + margin
        # An ELBO that is NaN compares false and drops out here.
        if better or (trial.bound > least and not trial.returned(state, contender.state, batch)):
            trials.append(trial)
        else:
            rejected[proposal.name] = proposal.processes
    return sorted(trials, key=lambda t: -t.bound)


def attempt(
    contender: Contender,
    trial: Trial,
    trainer: Trainer,
    target: float,
    stop_at_target: bool = False,
) -> Result:
    """A short training run from a trial, ended early if it has reverted or is too slow to reach the
    ELBO `target`; with `stop_at_target` slow runs continue, and it ends at the target."""
    result = trainer.train(trial.state, MOVE_STEPS // 2)
    if result.bound > target:
        go_on = not stop_at_target
    else:
        # Extrapolated to twice the remaining steps, because the gain per step may still increase.
        expected = trial.bound + 4 * (result.bound - trial.bound)
        back = trial.returned(result.state, contender.state, trainer.batch)
        go_on = (stop_at_target or expected >= target) and not back
    if go_on:
        more = trainer.train(result.state, MOVE_STEPS // 2, result.rate)
        trace = np.concatenate([result.trace, more.trace])
        result = max(result, more, key=lambda r: r.bound)._replace(trace=trace)
    contender.moves.append((trial.proposal.name, result.bound - contender.bound))
    trainer.notify(Progress(trial.proposal.name, 0, contender.steps, result.bound))
    return result


def improve(problem: Problem, contender: Contender, trainer: Trainer) -> None:
    """Try moves until none raises the ELBO; rejected ones again if a process of theirs changed."""
    margin = GAIN * float(problem.sample.weight.sum())
    rejected: Rejected = {}
    accepted = True
    while accepted:
        accepted = False
        for trial in promising(problem, contender, trainer, MOVES, rejected)[:ATTEMPTS]:
            target = contender.bound + margin
            result = attempt(contender, trial, trainer, target)
            accepted = result.bound > target
            if accepted:
                contender.adopt(result)
                touched = trial.proposal.processes
                rejected = {name: ks for name, ks in rejected.items() if not ks & touched}
                break
            rejected[trial.proposal.name] = trial.proposal.processes


def simplify(problem: Problem, contender: Contender, trainer: Trainer) -> None:
    """Use one process instead of two where the loss of the ELBO is small, trying each way once.

    After training, which would revert it. For a single input only: with several inputs functions
    agree in scattered places, and reassigning these simplifies nothing.
    """
    if problem.sample.X.shape[1] > 1:
        return
    tried: Rejected = {}
    trials = promising(problem, contender, trainer, SIMPLER, tried)
    while trials:
        trial = trials.pop(0)
        tried[trial.proposal.name] = trial.proposal.processes
        reassigned = moved(trial.proposal.responsibilities, contender.state, trainer.batch)
        target = contender.bound - PARSIMONY * reassigned
        # Stopping at the target, because a longer run might revert.
        result = attempt(contender, trial, trainer, target, stop_at_target=True)
        if result.bound > target:
            contender.adopt(result)
            trials = promising(problem, contender, trainer, SIMPLER, tried)


def deepen(problem: Problem, contender: Contender, trainer: Trainer, max_iter: int) -> None:
    """Turn single layers into the deep processes and noise GPs of the priors; train these from
    several initialisations."""
    # On the host, where unstacking the processes compiles nothing.
    plain = jax.tree.map(to_host, contender.state.model)
    models = [deepened(problem, contender.start, plain, way) for way in DEEPENINGS]
    if jax.tree.structure(models[0]) == jax.tree.structure(plain):
        return
    # Noise GPs alone have one initialisation.
    models = models[:1] + [model for model in models[1:] if not _equal(model, models[0])]
    given = contender.state.responsibilities
    ways = [Contender(contender.start, begin(m, trainer.batch, given, 0)[0]) for m in models]
    for way in ways:
        way.advance(trainer, DEEPENING_STEPS)
    least = max(way.bound for way in ways) - HOPELESS * per_point(problem)
    ways = [way for way in ways if way.bound >= least]
    for way in ways if len(ways) > 1 else []:
        way.advance(trainer, 3 * DEEPENING_STEPS)
    best = max(ways, key=lambda way: way.bound)
    contender.adopt(best.result())
    contender.rungs.append(best.bound)
    contender.advance(trainer, max_iter, trainer.callback)


def confirmed(
    best: Contender,
    contenders: list[Contender],
    finalists: list[Contender],
    trainer: Trainer,
    weight: Float[np.ndarray, " N"],
) -> bool:
    """Whether another start has reached the best solution, now or after some more training."""
    if support(best, contenders, weight) >= CONFIRMED:
        return True
    for other in finalists:
        if other is not best and not other.moves:
            other.advance(trainer, RACE_STEPS)
            if support(best, [other], weight) >= CONFIRMED:
                return True
    return False


def _equal(one: DataAssociation, other: DataAssociation) -> bool:
    return all(map(np.array_equal, jax.tree.leaves(one), jax.tree.leaves(other)))


def explore(
    problem: Problem,
    trainer: Trainer,
    n_init: int,
    rounds: int,
    rng: np.random.Generator,
    contenders: list[Contender],
) -> None:
    """Add contenders in rounds of `n_init` starts, until the best solution has been found twice."""
    weight = problem.sample.weight
    for _ in range(rounds):
        fresh = []
        for start in starts(problem, n_init, rng):
            given = shard_rows(padded(start.responsibilities, len(trainer.batch.X)))
            state, _ = begin(build(problem, start), trainer.batch, given, 0)
            fresh.append(Contender(start, state))
        contenders += fresh
        finalists = race(fresh, trainer)
        for contender in finalists:
            best = max(contenders, key=lambda c: c.bound)
            behind = contender.bound < best.bound - BEHIND * per_point(problem)
            if not behind and support(contender, [best], weight) < REACHED:
                contender.advance(trainer, RACE_STEPS)
                improve(problem, contender, trainer)
        best = max(contenders, key=lambda c: c.bound)
        if n_init == 1 or confirmed(best, contenders, finalists, trainer, weight):
            return


def close_rivals(problem: Problem, best: Contender, contenders: list[Contender]) -> list[Contender]:
    """Finalists that are not far behind the best and differ from it."""
    least = best.bound - BEHIND * per_point(problem)
    return [
        c
        for c in contenders
        if c.fate == "finalist"
        and c.bound >= least
        and support(best, [c], problem.sample.weight) < REACHED
    ]


def search(
    problem: Problem,
    trainer: Trainer,
    *,
    n_init: int,
    max_iter: int,
    rng: np.random.Generator,
    spare: bool = False,
    previous: DataAssociation | None = None,
    on_all_rows: Callable[[DataAssociation], float] | None = None,
) -> tuple[Result, list[Contender]]:
    """Race `n_init` starts, improve the best ones by moves, and train the best to convergence.

    A `previous` model is trained further instead. With `spare`, some processes are expected to
    remain unused. If the problem has only some of the rows, the
    ELBO `on_all_rows` decides between the finalists. When the callback of the trainer returns true,
    the search ends with the best solution so far.
    """
    contenders = [] if previous is None else [warm(previous, trainer.batch)]
    try:
        if previous is None:
            # With a single input the first round has found what can be found; superfluous
            # processes divide the data in ways that no two starts share.
            rounds = ROUNDS if problem.sample.X.shape[1] > 1 and not spare else 1
            explore(problem, trainer, n_init, rounds, rng, contenders)
        best = max(contenders, key=lambda c: c.bound)
        rivals = close_rivals(problem, best, contenders)
        if on_all_rows is not None and rivals:
            best = max([best, *rivals], key=lambda c: on_all_rows(c.state.model))
        result = best.advance(trainer, max_iter, trainer.callback)
        if previous is None and result.status != "stopped":
            simplify(problem, best, trainer)
            best.status = result.status
            deepen(problem, best, trainer, max_iter)
        result = best.result()
    except StopSearchError:
        best = max(contenders, key=lambda c: c.bound)
        result = best.result()._replace(status="stopped")
    best.fate = "kept"
    return settled(result, trainer.batch), ranked(contenders)


def prune(
    problem: Problem, result: Result, trainer: Trainer, max_iter: int
) -> tuple[Result, Batch]:
    """The solution without unused processes, trained further, and its batch."""
    weight = problem.sample.weight
    found = to_host(result.state.responsibilities)
    used = np.flatnonzero(in_use(found[: len(weight)], weight))
    if len(used) in (0, problem.n_processes):
        return result, trainer.batch
    model = result.state.model
    smaller = problem._replace(priors=tuple(problem.priors[k] for k in used))
    batch = to_device_batch(smaller.sample, len(used))
    gate = build(smaller, Start("pruned", found[:, used], 0.6, 0.1)).gate
    kept = DataAssociation.assemble([model.process(int(k)) for k in used], gate)
    left = found[:, used] + 1e-12
    left = shard_rows(left / left.sum(axis=1, keepdims=True))
    state, _ = begin(kept, batch, left, PROBE_STEPS)
    trained = trainer._replace(batch=batch).train(state, max_iter, result.rate)
    trace = np.concatenate([result.trace, trained.trace])
    return settled(trained, batch)._replace(trace=trace), batch


def warm(previous: DataAssociation, batch: Batch) -> Contender:
    """The contender that continues from a trained model."""
    state = resume(previous, batch)
    return Contender(Start("warm", to_host(state.responsibilities), np.nan, np.nan), state)
