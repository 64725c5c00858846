"""What can be said against a fit: did it converge, and is it the only answer?"""

import warnings
from collections.abc import Iterator

import jax
import jax.numpy as jnp
import numpy as np
from scipy.optimize import linear_sum_assignment
from sklearn.exceptions import ConvergenceWarning

from dagp.errors import FitError, SearchWarning
from dagp.gate import GPGate
from dagp.model import Batch, DataAssociation
from dagp.placement import fetched
from dagp.race import Contender
from dagp.search import GAIN
from dagp.train import Outlook, Result, outlook
from dagp.typing import Float, PerPoint, Scalar

__all__ = [
    "agreement",
    "check_converged",
    "check_finite",
    "other_solutions",
    "quadrature_error",
    "review",
]

SAME = 0.95
"""Two starts found the same solution when they agree on this share of the data."""
SIMILAR = 0.9
"""The same for one that was dropped before it was fully trained."""
_LARGE_JITTER = 1e-4


def agreement(
    first: Float[np.ndarray, "N K"],
    second: Float[np.ndarray, "N K"],
    weight: Float[np.ndarray, " N"],
) -> float:
    """Share of the data that two solutions assign alike, whatever they call their processes.

    >>> one, other = np.array([[1.0, 0.0], [0.0, 1.0]]), np.array([[0.1, 0.9], [0.8, 0.2]])
    >>> agreement(one, other, np.ones(2))
    1.0
    """
    K = first.shape[1]
    pairs = K * first.argmax(axis=1) + second.argmax(axis=1)
    together = np.bincount(pairs, weight, minlength=K * K).reshape(K, K)
    rows, columns = linear_sum_assignment(-together)
    return float(together[rows, columns].sum() / weight.sum())


def other_solutions(
    ranking: list[Contender], weight: Float[np.ndarray, " N"]
) -> tuple[int, list[Contender]]:
    """How many starts led to the kept solution, and the best start of every other solution.

    Starts that the first look dropped have no solution to speak of and only count as support.
    """
    shares = [fetched(c.state.responsibilities)[: len(weight)] for c in ranking]
    support, others = 1, []
    for index in sorted(range(1, len(ranking)), key=lambda i: -ranking[i].bound):
        if agreement(shares[0], shares[index], weight) >= SIMILAR:
            support += 1
        elif len(ranking[index].rungs) > 1 and all(
            agreement(shares[index], shares[known], weight) < SAME for known in others
        ):
            others.append(index)
    return support, [ranking[index] for index in others]


@jax.jit
def _correction(gate: GPGate, seen: Outlook, weight: PerPoint) -> Scalar:
    """What the bound gains when the gate is averaged over many points instead of a few."""
    finer = gate.refined().expectations(seen.gate.latent).log_weights
    refined = seen.log_joint + finer - seen.gate.log_weights
    change = jax.nn.logsumexp(refined, axis=1) - jax.nn.logsumexp(seen.log_joint, axis=1)
    return jnp.sum(weight * change)


def quadrature_error(model: DataAssociation, batch: Batch) -> float:
    """How far the bound is off because the gate is averaged over few points."""
    if not isinstance(model.gate, GPGate):
        return 0.0
    return abs(float(_correction(model.gate, outlook(model, batch), batch.weight)))


def check_finite(bound: float, ranking: list[Contender]) -> None:
    """Raise where there is no result."""
    if not np.isfinite(bound):
        causes = "; ".join(f"{c.start.kind}: {c.status}" for c in ranking)
        raise FitError(
            f"No start reached a finite evidence bound ({causes}). Try a larger noise_std, "
            'dtype="float64", or other kernels.'
        )


def check_converged(result: Result) -> None:
    """Warn where training ended too early."""
    if result.status in ("budget", "diverged"):
        warnings.warn(
            f"Training ended before the bound settled ({result.status} after "
            f"{len(result.trace)} steps); increase max_iter or tol.",
            ConvergenceWarning,
            stacklevel=4,
        )


def review(
    result: Result, ranking: list[Contender], batch: Batch, weight: np.ndarray
) -> list[Contender]:
    """Warn of everything a user should know about a search, raise where there is no result.

    Returns the best start of every other solution.
    """
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
        for doubt in _doubts(ranking, others[0], support, batch):
            warnings.warn(doubt, SearchWarning, stacklevel=5)
    return others


def _doubts(
    ranking: list[Contender], rival: Contender, support: int, batch: Batch
) -> Iterator[str]:
    """Reasons to prefer the best other solution, or to look for more."""
    # A runner-up is not trained to the end: what the search itself calls a tie is one here.
    margin = GAIN * float(np.sum(fetched(batch.weight)))
    lead = ranking[0].bound - rival.bound
    if lead < 5 * margin:
        margin += quadrature_error(ranking[0].state.model, batch)
        margin += quadrature_error(rival.state.model, batch)
    if lead < margin:
        yield (
            f"Two different solutions explain the data almost equally well (bounds "
            f"{ranking[0].bound:.2f} and {rival.bound:.2f}). Look at alternatives_[0]; labels for "
            "a few points, priors, or more data would decide."
        )
    elif support == 1:
        yield (
            f"Only one of {len(ranking)} starts led to this solution; the next best is "
            f"{lead:.2f} below. Raise n_init to be surer, and see alternatives_."
        )


def _jitters(model: DataAssociation, batch: Batch) -> dict[str, float]:
    return jax.tree.map(float, outlook(model, batch).jitters)
