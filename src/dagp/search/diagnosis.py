"""Diagnostics of a fit: convergence, support among the starts, and other solutions."""

import warnings
from collections.abc import Iterator

import jax
import jax.numpy as jnp
import numpy as np
from sklearn.exceptions import ConvergenceWarning

from dagp.core.errors import FitError, SearchWarning
from dagp.core.sharding import to_host
from dagp.core.typing import Float, PerPoint, Scalar
from dagp.inference.train import Evaluation, Result, evaluate
from dagp.model.association import Batch, DataAssociation
from dagp.model.gates import Gate
from dagp.search.race import Contender
from dagp.search.search import GAIN
from dagp.search.usage import agreement

SAME = 0.95
"""Share of equally assigned data from which two solutions count as the same."""
SIMILAR = 0.9
"""The same where one was dropped before it was fully trained."""
_LARGE_JITTER = 1e-4


def other_solutions(
    ranking: list[Contender], weight: Float[np.ndarray, " N"]
) -> tuple[int, list[Contender]]:
    """Number of starts that support the kept solution, and the best start of every other."""
    found = [to_host(c.state.responsibilities)[: len(weight)] for c in ranking]
    support, others = 1, []
    for index in sorted(range(1, len(ranking)), key=lambda i: -ranking[i].bound):
        if agreement(found[0], found[index], weight) >= SIMILAR:
            support += 1
        elif len(ranking[index].rungs) > 1 and all(
            agreement(found[index], found[known], weight) < SAME for known in others
        ):
            others.append(index)
    return support, [ranking[index] for index in others]


@jax.jit
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
        warnings.warn(
            f"Training ended before the ELBO converged ({result.status} after "
            f"{len(result.trace)} steps); increase max_iter or tol.",
            ConvergenceWarning,
            stacklevel=4,
        )


def review(
    result: Result, ranking: list[Contender], batch: Batch, weight: np.ndarray
) -> list[Contender]:
    """Issue the warnings of a search; return the best start of every other solution."""
    check_finite(result.bound, ranking)
    for name, jitter in _jitters(result.state.model, batch).items():
        if jitter > _LARGE_JITTER:
            warnings.warn(
                f"The covariance of {name} needed a jitter of {jitter:.0e} of its variance; "
                "its inducing points are nearly redundant. Use fewer (inducing=...).",
                UserWarning,
                stacklevel=5,
            )
    support, others = other_solutions(ranking, weight)
    if others and result.status != "stopped":
        for message in _search_warnings(ranking, others[0], support, batch):
            warnings.warn(message, SearchWarning, stacklevel=5)
    return others


def _search_warnings(
    ranking: list[Contender], rival: Contender, support: int, batch: Batch
) -> Iterator[str]:
    """Warnings about a close second solution, or about a solution found by one start only."""
    # A runner-up is not fully trained, hence the margin by which the search accepts moves.
    margin = GAIN * float(np.sum(to_host(batch.weight)))
    lead = ranking[0].bound - rival.bound
    if lead < 5 * margin:
        margin += quadrature_error(ranking[0].state.model, batch)
        margin += quadrature_error(rival.state.model, batch)
    if lead < margin:
        yield (
            f"Two different solutions explain the data almost equally well (ELBO "
            f"{ranking[0].bound:.2f} and {rival.bound:.2f}). Look at alternatives_[0]; labels for "
            "a few points, priors, or more data would decide."
        )
    elif support == 1:
        yield (
            f"Only one of {len(ranking)} starts led to this solution; the next best is "
            f"{lead:.2f} below. Increase n_init to confirm it, and see alternatives_."
        )


def _jitters(model: DataAssociation, batch: Batch) -> dict[str, float]:
    return jax.tree.map(float, evaluate(model, batch).jitters)
