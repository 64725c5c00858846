"""Assigns the rows of random windows of the inputs again, one after the other.

Where functions are entangled over a stretch, every row is held in its place by its neighbours, and
no exchange of two whole functions leads out. Here the rows of a window are taken out of all
functions and given back in sequence: each goes to the process that predicts it best from the rows
outside and those given back before. By the chain rule the logarithms of these predictions add up to
the log joint density of the window, for the new assignment as for the old one, with the
hyperparameters held fixed; the better one is kept.
"""

from collections.abc import Iterator
from contextlib import suppress
from typing import NamedTuple

import numpy as np
from scipy.linalg import cho_factor, cho_solve
from scipy.spatial import KDTree
from scipy.special import softmax

from dagp.core.sharding import to_host
from dagp.core.typing import Float, Int
from dagp.inference.standardize import FORBIDDEN, label_log_mask
from dagp.model.process import LOG_2PI
from dagp.model.sparse_gp import Projection
from dagp.search.moves import higher
from dagp.search.trial import Proposal, View

ROWS = 300
"""Most rows that take part; the others go where the functions then predict them."""
SMALLEST, LARGEST = 4, ROWS // 2
"""Numbers of rows of a window."""
WINDOWS, LAPS = 60, 5
"""Windows of a lap, and most laps; another one follows only where the last one has gained."""
TEMPERATURES = (0.0, 0.5, 1.0)
"""Of the draws of a process for a row; at 0 it is the best one."""
WORTH = 1.0
"""Gain in the log joint density from which an assignment is worth a proposal."""
LEAST_GAIN = 1e-6
"""Gain of a window from which it is kept, above rounding."""
UNKNOWN, PRECISE = 1e12, 1e-12
"""Variance of an output that is missing, and least variance."""


class Regressions(NamedTuple):
    """Functions as Bayesian linear regressions on their whitened bases, and their alternatives."""

    basis: Float[np.ndarray, "F M N"]
    noise: Float[np.ndarray, "F P N"]
    """Variance of a row around the function, with what the basis does not explain."""
    residual: Float[np.ndarray, "F P N"]
    """Outputs less the prior mean."""
    log_weights: Float[np.ndarray, "N F+1"]
    """By the gate; last, the log joint density of the row and a process without a function."""

    def take(self, rows: Int[np.ndarray, " R"]) -> "Regressions":
        """Some of the rows."""
        basis, noise, residual = (part[..., rows] for part in self[:3])
        return Regressions(basis, noise, residual, self.log_weights[rows])


class Assignment:
    """Rows assigned to functions, or last to none."""

    def __init__(self, functions: Regressions, member: Int[np.ndarray, " N"]) -> None:
        self.functions, self.member = functions, member.copy()
        self.size = len(functions.basis) + 1

    def reassign(
        self, rows: Int[np.ndarray, " W"], temperature: float, rng: np.random.Generator
    ) -> float:
        """Assign the rows in sequence; keeps what is better, and returns the gain."""
        before = self.member[rows]
        mean, covariance = self._predictive(rows)
        random = None if temperature == 0 else temperature * rng.gumbel(size=(len(rows), self.size))
        new, found = self._sequence(rows, mean, covariance, random)
        if np.array_equal(found, before):
            return 0.0
        # A path that is forced has no rivals.
        forced = np.full((len(rows), self.size), -np.inf)
        forced[np.arange(len(rows)), before] = 0.0
        gain = new - self._sequence(rows, mean, covariance, forced)[0]
        if not gain > LEAST_GAIN:
            return 0.0
        self.member[rows] = found
        return gain

    def posterior(
        self, k: int, p: int, member: Int[np.ndarray, " N"]
    ) -> tuple[Float[np.ndarray, "M M"], Float[np.ndarray, " M"]]:
        """Precision and shift of output p of function k, given its rows."""
        f, own = self.functions, member == k
        B = f.basis[k][:, own]
        scaled = B / f.noise[k, p, own]
        return np.eye(len(B)) + scaled @ B.T, scaled @ f.residual[k, p, own]

    def log_evidence(self, k: int, member: Int[np.ndarray, " N"]) -> float:
        """Log marginal likelihood of the rows of function k."""
        f, own = self.functions, member == k
        total = 0.0
        for p in range(f.noise.shape[1]):
            precision, shift = self.posterior(k, p, member)
            factor = cho_factor(precision, lower=True, check_finite=False)
            spread = np.log(2 * np.pi * f.noise[k, p, own]) + (
                f.residual[k, p, own] ** 2 / f.noise[k, p, own]
            )
            total += 0.5 * float(shift @ cho_solve(factor, shift, check_finite=False))
            total -= float(np.sum(np.log(np.diagonal(factor[0])))) + 0.5 * float(np.sum(spread))
        return total

    def _predictive(
        self, rows: Int[np.ndarray, " W"]
    ) -> tuple[Float[np.ndarray, "F P W"], Float[np.ndarray, "F P W W"]]:
        """Mean and covariance of every function at the rows, given the others."""
        F, P, _ = self.functions.noise.shape
        outside = self.member.copy()
        outside[rows] = -1
        B = self.functions.basis[..., rows]
        mean, covariance = np.empty((F, P, len(rows))), np.empty((F, P, len(rows), len(rows)))
        for k, p in np.ndindex(F, P):
            precision, shift = self.posterior(k, p, outside)
            solved = _solve(precision, B[k])
            mean[k, p], covariance[k, p] = shift @ solved, B[k].T @ solved
        return mean, covariance

    def _sequence(
        self,
        rows: Int[np.ndarray, " W"],
        mean: Float[np.ndarray, "F P W"],
        covariance: Float[np.ndarray, "F P W W"],
        preference: Float[np.ndarray, "W F+1"] | None,
    ) -> tuple[float, Int[np.ndarray, " W"]]:
        """Log joint density of the rows if each goes to the best process, given those before it;
        preferences count for the choice alone."""
        f, mean, covariance = self.functions, mean.copy(), covariance.copy()
        y, noise, weights = f.residual[..., rows], f.noise[..., rows], f.log_weights[rows].copy()
        weights[:, :-1] -= 0.5 * mean.shape[1] * LOG_2PI
        found, total = np.empty(len(rows), int), 0.0
        for i, logs in enumerate(weights):
            variance = covariance[:, :, i, i] + noise[:, :, i]
            away = y[:, :, i] - mean[:, :, i]
            logs[:-1] -= 0.5 * (away**2 / variance + np.log(variance)).sum(axis=1)
            k = int((logs if preference is None else logs + preference[i]).argmax())
            found[i], total = k, total + logs[k]
            if k + 1 < len(logs):
                after = covariance[k, :, i, i + 1 :]
                gain = after / variance[k][:, None]
                mean[k, :, i + 1 :] += gain * away[k][:, None]
                covariance[k, :, i + 1 :, i + 1 :] -= gain[:, :, None] * after[:, None]
        return float(total), found

    def log_joint(self, functions: Regressions) -> Float[np.ndarray, "N F+1"]:
        """Log predictive density of rows under each function, with the weights."""
        density = np.zeros((functions.residual.shape[-1], self.size))
        for k, p in np.ndindex(functions.noise.shape[:2]):
            precision, shift = self.posterior(k, p, self.member)
            solved = _solve(precision, functions.basis[k])
            variance = np.sum(functions.basis[k] * solved, axis=0) + functions.noise[k, p]
            away = functions.residual[k, p] - shift @ solved
            density[:, k] -= 0.5 * (away**2 / variance + np.log(2 * np.pi * variance))
        return density + functions.log_weights


def _solve(precision: Float[np.ndarray, "M M"], B: Float[np.ndarray, "M W"]) -> np.ndarray:
    return cho_solve(cho_factor(precision, check_finite=False), B, check_finite=False)


def windows(
    X: Float[np.ndarray, "N D"], count: int, rng: np.random.Generator
) -> Iterator[Int[np.ndarray, " W"]]:
    """Rows next to each other, in the order in which they are assigned: from one end of a single
    input, otherwise from the rim inwards or from the middle outwards."""
    least, most = np.log(min(SMALLEST, len(X))), np.log(min(LARGEST, len(X)))
    order, tree = np.argsort(X[:, 0], kind="stable"), KDTree(X)
    for _ in range(count):
        size = int(np.exp(rng.uniform(least, most)) + 1e-9)
        if X.shape[1] == 1:
            first = rng.integers(0, len(X) - size + 1)
            near = order[first : first + size]
        else:
            near = np.atleast_1d(tree.query(X[rng.integers(len(X))], size)[1])
        yield near[:: rng.choice([-1, 1])]


def reassigned(
    functions: Regressions,
    X: Float[np.ndarray, "N D"],
    member: Int[np.ndarray, " N"],
    rng: np.random.Generator,
) -> Float[np.ndarray, "N F+1"] | None:
    """Log joint densities after windows have been assigned again; None if nothing was gained."""
    some = np.sort(rng.permutation(len(X))[:ROWS])
    state, total = Assignment(functions.take(some), member[some]), 0.0
    for _ in range(LAPS):
        gain = 0.0
        for rows in windows(X[some], WINDOWS, rng):
            gain += state.reassign(rows, float(rng.choice(TEMPERATURES)), rng)
        total += gain
        if gain < WORTH:
            break
    if total < WORTH:
        return None
    return state.log_joint(functions)


def assign_windows_again(view: View) -> Iterator[Proposal]:
    """A proposal for a trained model whose functions have normal noise and a single layer."""
    N, K = view.responsibilities.shape
    if len(view.used) + view.clutter.any() < 2 or len(view.normal) < len(view.smooth):
        return
    functions, found = regressions(view), None
    # Of outputs near the ends of floating point, squares may overflow.
    with np.errstate(all="ignore"), suppress(np.linalg.LinAlgError):
        rng = np.random.default_rng(0)
        found = reassigned(functions, view.sample.X, members(view), rng)
    if found is None or not np.all(np.isfinite(found)):
        return
    shares, proposed = softmax(found, axis=1), np.zeros((N, K))
    proposed[:, view.smooth] = shares[:, :-1]
    if view.clutter.any():
        among = softmax(view.log_joint[:, view.clutter], axis=1)
        proposed[:, view.clutter] = shares[:, -1:] * among
    yield Proposal("assign windows again", frozenset(range(K)), proposed, higher(view))


def members(view: View) -> Int[np.ndarray, " N"]:
    """The function of each row, as a position in `View.smooth`, or last none."""
    outside = view.responsibilities[:, view.clutter].sum(axis=1)
    return np.column_stack([view.responsibilities[:, view.smooth], outside]).argmax(axis=1)


def regressions(view: View) -> Regressions:
    """The functions of a solution, with normal noise and a single layer, as regressions."""
    sample, state, N = view.home.problem.sample, view.home.state, len(view.sample.X)
    found: dict[int, Projection] = {}
    for group, members in zip(view.projections, state.model.members, strict=True):
        if group is not None:
            parts = [to_host(part).astype(np.float64) for part in group]
            found |= {k: Projection(*(part[i] for part in parts)) for i, k in enumerate(members)}
    basis = np.array([found[k].basis[:, :N] for k in view.smooth])
    mean = np.array([found[k].mean[:N].T for k in view.smooth])
    residual = np.array([found[k].residual[None, :N] for k in view.smooth])
    noise = view.noise_std[view.smooth, :, None] ** 2 + residual
    noise = np.clip(noise / np.maximum(sample.weight, PRECISE), PRECISE, UNKNOWN)
    noise = np.where(np.isnan(sample.y.T), UNKNOWN, noise)
    assert state.gate is not None
    weights = to_host(state.gate.log_weights)[:N] + label_log_mask(sample.labels, len(view.means))
    other = np.full(N, FORBIDDEN)
    if view.clutter.any():
        other = view.log_joint[:, view.clutter].max(axis=1)
    away = view.sample.y.T - mean
    return Regressions(basis, noise, away, np.column_stack([weights[:, view.smooth], other]))
