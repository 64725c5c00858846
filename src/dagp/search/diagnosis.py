"""Diagnostics of a fit: convergence, support among the starts, and other solutions."""

import jax
import jax.numpy as jnp
import numpy as np
from sklearn.exceptions import ConvergenceWarning

from dagp.core.errors import FitError, warn
from dagp.core.programs import program
from dagp.core.sharding import to_host
from dagp.core.typing import Float, PerPoint, Scalar
from dagp.inference.train import Evaluation, Result, evaluate
from dagp.model.association import Batch, DataAssociation
from dagp.model.gates import Gate
from dagp.search.confidence import Verdict, confidence, decisive_rows, support
from dagp.search.improve import GAIN
from dagp.search.race import Contender
from dagp.search.usage import agreement

SAME = 0.95
"""Share of equally assigned data from which two solutions count as the same."""
SIMILAR = 0.9
"""The same where one was dropped before it was fully trained."""
_LARGE_JITTER = 1e-4


def other_solutions(ranking: list[Contender], weight: Float[np.ndarray, " N"]) -> list[Contender]:
    """The best start of every solution but the kept one."""
    found = [to_host(c.state.responsibilities)[: len(weight)] for c in ranking]
    others = []
    for index in sorted(range(1, len(ranking)), key=lambda i: -ranking[i].bound):
        if len(ranking[index].rungs) > 1 and all(
            agreement(found[index], found[known], weight) < limit
            for known, limit in [(0, SIMILAR), *((other, SAME) for other in others)]
        ):
            others.append(index)
    return [ranking[index] for index in others]


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


def check_finite(bound: float, ranking: list[Contender]) -> None:
    """Raise FitError if no start has a finite ELBO."""
    if not np.isfinite(bound):
        causes = "; ".join(f"{c.start.kind}: {c.status}" for c in ranking)
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
    for name, jitter in _jitters(model, batch).items():
        if jitter > _LARGE_JITTER:
            warn(
                f"The covariance of {name} needed a jitter of {jitter:.0e} of its variance; "
                "its inducing points are nearly redundant. Use fewer (inducing=...).",
            )


def judge(
    ranking: list[Contender], batch: Batch, weight: Float[np.ndarray, " N"]
) -> tuple[Verdict, list[Contender]]:
    """How far the search can be trusted, and the best start of every other solution."""
    ranking = [contender.undeepened() for contender in ranking]
    others = other_solutions(ranking, weight)
    if len(ranking) == 1:
        return Verdict(np.nan), others
    share = support(ranking[0], ranking, weight)
    if not others:
        return Verdict(confidence(share, np.inf, 1.0)), others
    rival = others[0]
    lead = ranking[0].bound - rival.bound
    # A runner-up is not fully trained, hence the margin by which the search accepts moves.
    margin = GAIN * float(weight.sum())
    if lead < 5 * margin:
        margin += quadrature_error(ranking[0].state.model, batch)
        margin += quadrature_error(rival.state.model, batch)
    kept, other = (to_host(c.state.responsibilities)[: len(weight)] for c in (ranking[0], rival))
    rows = decisive_rows(kept, other, weight)
    return Verdict(confidence(share, lead, margin), tuple(map(int, rows))), others


def _jitters(model: DataAssociation, batch: Batch) -> dict[str, float]:
    return jax.tree.map(float, evaluate(model, batch).jitters)
