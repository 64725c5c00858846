"""Gaussian process experts with rank-one updates, and their gating kernel.

Plain NumPy: the number of points of an expert changes with every Gibbs step, and JAX would compile
one program per size, which takes longer than the arithmetic.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from scipy.linalg import get_lapack_funcs, solve_triangular
from scipy.spatial.distance import cdist
from scipy.special import softmax

from dagp.core.typing import Float, Inputs, Int, PerPoint

NUGGET = 1e-6
"""Noise relative to the signal variance: inverses stay accurate under many rank-one updates."""
LOG_LIMIT = 20.0
"""Proposals with log parameters beyond ± this are rejected: exponentials stay finite."""
TINY = np.finfo(np.float64).tiny
"""Lower limit of occupation counts before taking logarithms: they may underflow."""
LEAPFROG_STEPS = 5
"""Of one HMC proposal."""
TARGET_ACCEPTANCE = 0.8
"""Acceptance rate the HMC step length is tuned to during burn-in."""

LogParams = Float[np.ndarray, " D+2"]
"""Logarithms of noise variance, signal variance and one length scale per input."""
Array = np.ndarray
Rows = Float[np.ndarray, " N"]
Members = Sequence[int] | Int[np.ndarray, " n"]

_FACTORISE, _INVERT = get_lapack_funcs(("potrf", "potri"), dtype=np.float64)


class LogNormalPrior(NamedTuple):
    """Independent log-normal priors of an expert's parameters."""

    centre: LogParams
    std: LogParams

    @staticmethod
    def vague(columns: int) -> "LogNormalPrior":
        """Vague priors for standardised data with this many input columns."""
        centre, std = np.zeros(columns + 2), np.ones(columns + 2)
        centre[0], std[0] = np.log(0.01), 2.0
        return LogNormalPrior(centre, std)

    def draw(self, rng: np.random.Generator, size: int) -> Float[np.ndarray, "S D+2"]:
        """Log parameters drawn from the prior, one row per expert."""
        return self.centre + self.std * rng.standard_normal((size, len(self.centre)))

    def log_density(self, logs: LogParams) -> float:
        """Log density of the log parameters."""
        return float(np.sum(log_normal(logs, self.centre, self.std**2)))


def log_normal(value: Array | float, mean: Array | float, variance: Array | float) -> Array:
    """Log density of a normal distribution."""
    return np.asarray(-0.5 * ((value - mean) ** 2 / variance + np.log(2 * np.pi * variance)))


def noise_variance(logs: LogParams) -> float:
    """Observation noise variance of an expert, nugget included."""
    return float(np.exp(logs[0]) + NUGGET * np.exp(logs[1]))


def covariance(
    logs: LogParams, A: Inputs, B: Float[np.ndarray, "N2 D"]
) -> Float[np.ndarray, "N N2"]:
    """Squared exponential covariance of an expert's function."""
    widths = np.exp(logs[2:])
    return np.exp(logs[1] - 0.5 * cdist(np.asarray(A) / widths, B / widths, "sqeuclidean"))


class Expert:
    """A GP on a subset of the points (its members), with predictions for all of them.

    Adding or removing a point is a rank-one update of the inverse covariance of the n members,
    O(n²), and of the predictions at all N points, O(Nn): lookups are far more frequent than moves.
    """

    def __init__(self, X: Inputs, y: PerPoint, logs: LogParams, members: Members = ()):
        self.X, self.y = np.asarray(X), np.asarray(y)
        self.members: Int[np.ndarray, " n"] = np.asarray(members, np.int64)
        """Row of each member, in the order of the inverse covariance."""
        self.step: float = 0.3
        self.set_parameters(evaluate(logs, self.X[self.members], self.y[self.members]))

    def __len__(self) -> int:
        """Number of members."""
        return len(self.members)

    @property
    def inverse(self) -> Float[np.ndarray, "n n"]:
        """Inverse of the covariance of the members' outputs."""
        return self._inverse[: len(self), : len(self)]

    @property
    def cross(self) -> Float[np.ndarray, "N n"]:
        """Covariance between the function at all points and at the members."""
        return self._cross[:, : len(self)]

    def set_parameters(self, found: "Evaluation") -> None:
        """Recompute everything from an evaluation: rank-one updates accumulate rounding errors."""
        self.logs, self._inverse = found.logs, found.inverse
        self.noise, self.signal = noise_variance(found.logs), float(np.exp(found.logs[1]))
        self._cross = covariance(found.logs, self.X, self.X[self.members])
        self.weights = found.weights
        self._means, self._explained = found.predict(self._cross)

    def predict(self, i: int) -> tuple[float, float]:
        """Predictive mean and variance of output `i`, not a member, given the members."""
        # Rounding must not make the predictive variance smaller than the noise.
        unexplained = max(self.signal - float(self._explained[i]), 0.0)
        return float(self._means[i]), unexplained + self.noise

    def leave_out(self, i: int) -> tuple[float, float]:
        """Leave-one-out mean and variance of the output of member `i`."""
        p = self._position(i)
        variance = max(float(1 / self._inverse[p, p]), self.noise)
        return float(self.y[i] - self.weights[p] * variance), variance

    def add(self, i: int) -> None:
        """Add row `i` to the members."""
        n = len(self)
        self._reserve(n + 1)
        k = covariance(self.logs, self.X, self.X[i : i + 1])[:, 0]
        solved = self.inverse @ k[self.members]
        mean, rest = self.predict(i)
        update = k - self.cross @ solved
        self._means += update * ((self.y[i] - mean) / rest)
        self._explained += update**2 / rest
        self._cross[:, n] = k
        self._inverse[:n, :n] += solved[:, None] * (solved / rest)
        self._inverse[n, :n] = self._inverse[:n, n] = -solved / rest
        self._inverse[n, n] = 1 / rest
        self._set_members(np.append(self.members, i))

    def remove(self, i: int) -> None:
        """Remove member `i`."""
        last, p = len(self) - 1, self._position(i)
        # Swapped with the last member, so that only one row and column of the inverse move.
        for side in (self._inverse, self._inverse.T):
            side[[p, last], : last + 1] = side[[last, p], : last + 1]
        self._cross[:, [p, last]] = self._cross[:, [last, p]]
        order = self.members.copy()
        order[p] = order[last]
        solved = self._inverse[last, : last + 1].copy()
        update = self.cross @ solved
        self._means -= update * (self.weights[p] / solved[last])
        self._explained -= update**2 / solved[last]
        self._inverse[:last, :last] -= solved[:last, None] * (solved[:last] / solved[last])
        self._set_members(order[:last])

    def log_densities(self) -> Rows:
        """Log predictive density of every output given the members, leaving itself out."""
        variances = np.maximum(self.signal - self._explained, 0.0) + self.noise
        densities = log_normal(self.y, self._means, variances)
        own = 1 / np.diagonal(self.inverse)
        densities[self.members] = log_normal(self.weights * own, 0.0, own)
        return densities

    def _position(self, i: int) -> int:
        """Position of row `i` among the members."""
        return int(np.flatnonzero(self.members == i)[0])

    def _set_members(self, members: Int[np.ndarray, " n"]) -> None:
        """Set the members after an update of the inverse."""
        self.members = members
        self.weights = self.inverse @ self.y[members]

    def _reserve(self, n: int) -> None:
        """Make room for `n` members and some more, so that arrays are seldom copied."""
        if n > len(self._inverse):
            inverse, cross = self.inverse, self.cross
            size = n + n // 2 + 4
            self._inverse, self._cross = np.empty((size, size)), np.empty((len(self.X), size))
            self._inverse[: len(self), : len(self)] = inverse
            self._cross[:, : len(self)] = cross


class Evaluation(NamedTuple):
    """Log evidence of an expert, its gradient, and the factorised covariance."""

    logs: LogParams
    log_evidence: float
    gradient: LogParams
    """Of the log evidence with respect to the log parameters."""
    factor: Float[np.ndarray, "n n"]
    """Lower Cholesky factor of the covariance."""
    inverse: Float[np.ndarray, "n n"]
    weights: Float[np.ndarray, " n"]
    """Inverse covariance times the outputs."""

    def predict(self, cross: Float[np.ndarray, "N n"]) -> tuple[Rows, Rows]:
        """Posterior means, and the reduction of the prior variance, given cross-covariances."""
        if len(self.weights) == 0:
            return np.zeros(len(cross)), np.zeros(len(cross))
        # By the factor, not the inverse, because the variance is a small difference.
        half = solve_triangular(self.factor, cross.T, lower=True, check_finite=False)
        return cross @ self.weights, np.sum(half**2, axis=0)


def evaluate(
    logs: LogParams, X: Float[np.ndarray, "n D"], y: Float[np.ndarray, " n"]
) -> Evaluation:
    """Log evidence of an expert's points, and its gradient."""
    n, noise = len(X), np.exp(logs[0])
    if n == 0:
        empty = np.empty((0, 0))
        return Evaluation(logs, 0.0, np.zeros_like(logs), empty, empty, np.empty(0))
    signal = covariance(logs, X, X)
    signal[np.diag_indices(n)] += NUGGET * np.exp(logs[1])
    total = signal.copy()
    total[np.diag_indices(n)] += noise
    factor, status = _FACTORISE(total, lower=1)
    if status != 0:
        raise np.linalg.LinAlgError("The covariance of an expert is not positive definite.")
    lower, _ = _INVERT(factor, lower=1)  # with zeros above the diagonal, as in the factor
    inverse = np.ascontiguousarray(lower + lower.T)
    inverse[np.diag_indices(n)] /= 2
    weights = inverse @ y
    log_det = 2 * np.sum(np.log(np.diagonal(factor)))
    log_evidence = -0.5 * (y @ weights + log_det + n * np.log(2 * np.pi))
    # Half the trace of (ww' − K⁻¹) dK. Squared differences, summed over pairs with symmetric
    # weights S, are 2 Σ z² S1 − 2 z'Sz, which avoids an array of shape (n, n, D).
    slope = weights[:, None] * weights - inverse
    pairs = slope * signal
    z = X / np.exp(logs[2:])
    along_lengthscales = pairs.sum(axis=1) @ z**2 - np.sum(z * (pairs @ z), axis=0)
    along_variances = 0.5 * np.array([noise * np.trace(slope), pairs.sum()])
    gradient = np.concatenate([along_variances, along_lengthscales])
    return Evaluation(logs, float(log_evidence), gradient, factor, inverse, weights)


def hmc_step(expert: Expert, prior: LogNormalPrior, rng: np.random.Generator, tune: bool) -> None:
    """One Hamiltonian Monte Carlo step on an expert's log parameters (Neal 1996).

    `tune` adapts the step length: for the burn-in only, as it changes the stationary distribution.
    """
    X, y = expert.X[expert.members], expert.y[expert.members]

    def log_posterior(found: Evaluation) -> float:
        return found.log_evidence + prior.log_density(found.logs)

    def gradient(found: Evaluation) -> LogParams:
        return found.gradient - (found.logs - prior.centre) / prior.std**2

    current = proposal = evaluate(expert.logs, X, y)
    # The width of the posterior falls as one over the root of the number of members.
    step = rng.uniform(0.8, 1.2) * expert.step / np.sqrt(1 + len(expert) / 10)
    momentum = rng.standard_normal(len(current.logs))
    start, log_ratio = log_posterior(current) - 0.5 * momentum @ momentum, -np.inf
    for _ in range(LEAPFROG_STEPS):
        momentum = momentum + 0.5 * step * gradient(proposal)
        logs = proposal.logs + step * momentum
        if not np.all(np.abs(logs) < LOG_LIMIT):
            break
        proposal = evaluate(logs, X, y)
        momentum = momentum + 0.5 * step * gradient(proposal)
    else:
        log_ratio = log_posterior(proposal) - 0.5 * momentum @ momentum - start
    accepted = np.log(rng.uniform()) < log_ratio
    expert.set_parameters(proposal if accepted else current)
    if tune:
        expert.step *= float(np.exp(0.3 * (np.exp(min(log_ratio, 0.0)) - TARGET_ACCEPTANCE)))


def gate_kernel(
    widths: Float[np.ndarray, " D"], A: Inputs, B: Inputs | None = None
) -> Float[np.ndarray, "N N2"]:
    """Squared exponential kernel with rows normalised to one; without `B`, zero on the diagonal."""
    A = np.asarray(A) / widths
    logs = -0.5 * cdist(A, A if B is None else np.asarray(B) / widths, "sqeuclidean")
    if B is None:
        if len(A) == 1:
            return np.zeros((1, 1))
        np.fill_diagonal(logs, -np.inf)
    # Normalised in the log domain: far from all rows, the kernel underflows.
    return softmax(logs, axis=1)


def pseudo_likelihood(
    kernel: Float[np.ndarray, "N N"], assignment: Int[np.ndarray, " N"], alpha: float
) -> float:
    """Log pseudo-likelihood: sum of the log probabilities of each assignment given all others."""
    others = len(kernel) - 1
    same_expert = assignment[:, None] == assignment
    singleton = same_expert.sum(axis=1) == 1
    counts = np.where(singleton, alpha, others * np.sum(kernel * same_expert, axis=1))
    return float(np.sum(np.log(np.maximum(counts, TINY) / (others + alpha))))
