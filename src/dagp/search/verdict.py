"""Confidence in a solution: the probability that the search has found the best association.

Starts are independent attempts at the same question. A solution that several of them reach is
probably the best one; one that a single start has reached may have better ones beside it that none
has reached. A second solution of almost the same ELBO leaves open which of the two is right.
"""

import itertools
from collections.abc import Iterator

import jax
import jax.numpy as jnp
import numpy as np
from scipy.special import expit
from sklearn.exceptions import ConvergenceWarning

from dagp.core.errors import FitError, warn
from dagp.core.programs import program
from dagp.core.typing import Bool, Float, Int, PerPoint, Scalar
from dagp.inference.laplace import why_not
from dagp.inference.parallel import width
from dagp.inference.train import Evaluation, LoopState, Result, evaluate
from dagp.model.association import Batch, DataAssociation
from dagp.model.gates import Gate
from dagp.search.moves import distance, exchange, parts
from dagp.search.settings import (
    AGREE,
    BORDERS,
    CLOSE,
    GAIN,
    IDENTICAL,
    LARGE_JITTER,
    MOST_FEATURES,
    MOST_RIVALS,
    MOST_ROWS,
    OFFSET,
    PATIENT_STEPS,
    PROMISING,
    RIVALS,
    SAME,
    SLOPE,
    UNUSED,
)
from dagp.search.solution import Joint, Solution, Verdict, agreement, matching
from dagp.search.trial import Trainer, View, extrapolated, levelled, probe
from dagp.search.windows import Assignment, members, regressions


def support(kept: Solution, others: list[Solution]) -> float:
    """Largest share of the data that another start assigns as the kept one does; 0 without one."""
    return max((kept.alike(other) for other in others if other is not kept), default=0.0)


def confidence(share: float, lead: float, margin: float) -> float:
    """Probability of the best association, from the share of the data that the next start assigns
    alike, and the lead over the best other solution in units of what its ELBO may be wrong by.

    >>> confidence(0.7, 50.0, 1.0) < 0.5 < 0.9 < confidence(0.99, 50.0, 1.0)
    True
    """
    found = expit(OFFSET - SLOPE * np.log(max(100 * (1 - share), 0.1)))
    return float(found * expit(lead / margin))


def decisive_rows(
    kept: Float[np.ndarray, "N K"], rival: Float[np.ndarray, "N K"], weight: Float[np.ndarray, " N"]
) -> Int[np.ndarray, " R"]:
    """A few rows that two solutions assign differently and without doubt: one for each of the
    largest groups that have moved from one process to another."""
    K = kept.shape[1]
    rival = rival[:, matching(kept, rival, weight)]
    group = K * kept.argmax(axis=1) + rival.argmax(axis=1)
    size = np.bincount(group, weight, minlength=K * K)
    size[:: K + 1] = 0.0
    sure = kept.max(axis=1) * rival.max(axis=1)
    largest = [g for g in np.argsort(-size, kind="stable")[:MOST_ROWS] if size[g] > 0]
    return np.array([np.argmax(np.where(group == g, sure, -1.0)) for g in largest], int)


def other_solutions(kept: Solution, pool: list[Solution]) -> list[Solution]:
    """The best start of every solution but the kept one, of those that passed the first rung."""
    found = [kept]
    for one in sorted(pool, key=lambda s: -s.bound):
        if len(one.rungs) > 1 and all(one.alike(known) < SAME for known in found):
            found.append(one)
    return found[1:]


def judge(kept: Solution, pool: list[Solution], batch: Batch) -> tuple[Verdict, list[Solution]]:
    """How far the search can be trusted, and the best start of every other solution."""
    others = other_solutions(kept, pool)
    if len(pool) == 1:
        return Verdict(np.nan), others
    share = support(kept, pool)
    if not others:
        return Verdict(confidence(share, np.inf, 1.0)), others
    rival, weight = others[0], kept.problem.sample.weight
    lead = kept.bound - rival.bound
    # A runner-up is not fully trained, hence the margin by which the search accepts moves.
    margin = GAIN * float(weight.sum())
    if lead < 5 * margin:
        margin += sum(quadrature_error(s.state.model, batch) for s in (kept, rival))
    rows = decisive_rows(kept.responsibilities, rival.responsibilities, weight)
    return Verdict(confidence(share, lead, margin), tuple(map(int, rows))), others


def joints(view: View) -> list[Joint]:
    """For each pair of functions, where exchanging them beyond costs the least evidence, if little.

    Where two functions lie apart on both sides of a gap, a jump or a stretch without rows, what is
    beyond can be exchanged at almost no cost. The evidence is that of the functions, with the
    hyperparameters held fixed; the gate is taken to follow. A part in which both agree, or in which
    either has hardly any rows, is nothing to be exchanged.
    """
    plain = view.home.problem.plain and len(view.home.problem.inducing) <= MOST_FEATURES
    if not plain or len(view.used) < 2:
        return []
    functions, member, sample = regressions(view), members(view), view.sample
    state, total, found = Assignment(functions, member), sample.weight.sum(), []
    for i, j in itertools.combinations(sorted(view.used), 2):
        a, b = view.smooth.index(i), view.smooth.index(j)
        own = np.isin(member, (a, b))
        apart = own & (distance(view, i, j) > AGREE)
        before = state.log_evidence(a, member) + state.log_evidence(b, member)
        losses: list[Joint] = []
        for at, where in _places(view, i, j):
            moved, stay = (sample.weight @ (apart & part) for part in (where, ~where))
            held = [sample.weight[where & (member == k)].sum() for k in (a, b)]
            labelled = own & (sample.labels >= 0)
            fixed = np.any(labelled & where) and np.any(labelled & ~where)
            if fixed or min(moved, stay) < (1 - SAME) * total or min(held) < UNUSED * total:
                continue
            other = np.where(where & own, a + b - member, member)
            after = state.log_evidence(a, other) + state.log_evidence(b, other)
            losses.append(Joint((i, j), at, float(min(moved, stay) / total), before - after))
        close = min(losses, key=lambda joint: joint.log_odds, default=None)
        if close is not None and close.log_odds < CLOSE:
            found.append(close)
    return found


def _places(view: View, i: int, j: int) -> Iterator[tuple[float, Bool[np.ndarray, " N"]]]:
    """Where functions i and j may have been exchanged: beyond a value of a single input, which is
    given, or in a part of several."""
    X = view.sample.X
    if X.shape[1] > 1:
        for part in parts(X, distance(view, i, j), UNUSED):
            yield np.nan, part
        return
    x = np.unique(X[:, 0])
    if len(x) < 2:
        return
    middles = (x[1:] + x[:-1]) / 2
    widest = np.argsort(-np.diff(x), kind="stable")[:BORDERS]
    even = np.linspace(0, len(middles) - 1, min(BORDERS, len(middles))).astype(int)
    for at in middles[np.unique([*widest, *even])]:
        yield float(at), X[:, 0] > at


def rivals(kept: Solution, others: list[Solution], trainer: Trainer, steps: int) -> list[Solution]:
    """The kept solution and others with almost its ELBO, best first: `others` that the search has
    found, and two processes exchanged where they may have changed places.

    Where two functions come close, or the inputs have a gap, it may hardly matter to the ELBO which
    of them goes on as which.
    """
    if why_not(kept.state.model) is not None:
        return [kept]
    proposals = exchange(View.of(kept, trainer))
    trials = [trial for p in proposals if (trial := probe(kept, p, trainer)).hopeful]
    trials.sort(key=lambda trial: -trial.result.bound)
    begun = [trial.alone() for trial in trials[:RIVALS]]
    begun += [other.copy() for other in others if other.comparable(kept)]
    least = kept.bound - PROMISING

    def run(trainer: Trainer, one: Solution) -> Solution:
        def stop(run: LoopState) -> bool:
            return levelled(one, run) or extrapolated(run.trace, 9.0) < least

        one.adopt(trainer.train(one.state, PATIENT_STEPS, one.rate, stop))
        if one.bound >= least:
            one.adopt(trainer.train(one.state, steps, one.rate))
            one.settle(trainer.batch)
        return one

    found = [kept]
    for one in trainer.each(run, begun, width(kept.state)):
        problem, own = one.problem, one.responsibilities
        alike = (
            agreement(own, other.responsibilities, problem.sample.weight, problem.kinds)
            for other in found
        )
        if one.bound >= least and max(alike) < IDENTICAL:
            found.append(one)
    found.sort(key=lambda s: -s.bound)
    return [s for s in found if s.bound > found[0].bound - CLOSE][: 1 + MOST_RIVALS]


@program
def _correction(gate: Gate, evaluation: Evaluation, weight: PerPoint) -> Scalar:
    """Change of the ELBO by finer quadrature of the gate."""
    finer = gate.refined_log_weights(evaluation.gate)
    refined = evaluation.log_joint + finer - evaluation.gate.log_weights
    change = jax.nn.logsumexp(refined, axis=1) - jax.nn.logsumexp(evaluation.log_joint, axis=1)
    return jnp.sum(weight * change)


def quadrature_error(model: DataAssociation, batch: Batch) -> float:
    """Error of the ELBO due to the quadrature of the gate."""
    if not model.gate.has_quadrature:
        return 0.0
    return abs(float(_correction(model.gate, evaluate(model, batch), batch.weight)))


def check_finite(bound: float, pool: list[Solution]) -> None:
    """Raise FitError if no start has a finite ELBO."""
    if not np.isfinite(bound):
        causes = "; ".join(f"{s.start.kind}: {s.status}" for s in pool)
        raise FitError(
            f"No start reached a finite evidence bound ({causes}). Try a larger noise_std, "
            'dtype="float64", or other kernels.'
        )


def check_converged(result: Result) -> None:
    """Warn if training ended before convergence."""
    if result.status in ("budget", "diverged"):
        warn(
            f"Training ended before the ELBO converged ({result.status} after "
            f"{len(result.trace)} steps); increase max_iter or tol.",
            ConvergenceWarning,
        )


def check_jitter(model: DataAssociation, batch: Batch) -> None:
    """Warn if a covariance is nearly singular."""
    for name, jitter in jax.tree.map(float, evaluate(model, batch).jitters).items():
        if jitter > LARGE_JITTER:
            warn(
                f"The covariance of {name} needed a jitter of {jitter:.0e} of its variance; "
                "its inducing points are nearly redundant. Use fewer (inducing=...).",
            )
