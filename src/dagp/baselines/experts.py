"""Gaussian process experts that points join and leave, and the gate between them.

Everything here is plain NumPy: an expert changes its size with every point that moves, and the
project's JAX kernels compile a program per size, which takes longer than all the arithmetic.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from scipy.linalg import get_lapack_funcs, solve_triangular
from scipy.spatial.distance import cdist
from scipy.special import softmax

from dagp.typing import Float, Inputs, Int, PerPoint

__all__ = [
    "Evaluation",
    "Expert",
    "Vague",
    "closeness",
    "covariance",
    "evaluate",
    "hamiltonian",
    "log_normal",
    "noise_variance",
    "pseudo_likelihood",
]

NUGGET = 1e-6
"""Noise that every signal variance brings along: inverses stay accurate under many updates."""
FURTHEST = 20.0
"""Logarithms beyond ± this are never accepted: exponentials stay finite."""
TINY = np.finfo(np.float64).tiny
"""Stands for counts that underflow, where their logarithms are needed."""
LEAPS = 5
"""Leapfrog steps of one proposal."""
TARGET = 0.8
"""Share of proposals to accept while the step length is being tuned."""

Logs = Float[np.ndarray, " D+2"]
"""Logarithms of noise variance, signal variance and one length scale per input."""
Array = np.ndarray
Rows = Float[np.ndarray, " N"]

_FACTORISE, _INVERT = get_lapack_funcs(("potrf", "potri"), dtype=np.float64)


class Vague(NamedTuple):
    """Independent log-normal priors of an expert's parameters.

    >>> prior = Vague.of(2)
    >>> prior.draw(np.random.default_rng(0), 3).shape
    (3, 4)
    """

    centre: Logs
    std: Logs

    @staticmethod
    def of(columns: int) -> "Vague":
        """For standardised data with this many input columns."""
        lengthscales = [0.0] * columns
        return Vague(
            np.array([np.log(0.01), 0.0, *lengthscales]),
            np.array([2.0, 1.0, *(1.0 for _ in lengthscales)]),
        )

    def draw(self, rng: np.random.Generator, size: int) -> Float[np.ndarray, "S D+2"]:
        """Parameters of experts nobody belongs to yet."""
        return self.centre + self.std * rng.standard_normal((size, len(self.centre)))

    def log_density(self, logs: Logs) -> float:
        """Log density of the logarithms."""
        return float(np.sum(log_normal(logs, self.centre, self.std**2)))


def log_normal(value: Array | float, mean: Array | float, variance: Array | float) -> Array:
    """Log density of a normal variable.

    >>> float(log_normal(0.0, 0.0, 1.0).round(4))
    -0.9189
    """
    return np.asarray(-0.5 * ((value - mean) ** 2 / variance + np.log(2 * np.pi * variance)))


def noise_variance(logs: Logs) -> float:
    """Variance of an observation around the function of an expert.

    >>> round(noise_variance(np.log([0.5, 2.0, 1.0])), 4)
    0.5
    """
    return float(np.exp(logs[0]) + NUGGET * np.exp(logs[1]))


def covariance(logs: Logs, A: Inputs, B: Float[np.ndarray, "N2 D"]) -> Float[np.ndarray, "N N2"]:
    """Squared exponential covariance of an expert's function.

    >>> covariance(np.log([0.1, 2.0, 1.0]), np.zeros((1, 1)), np.zeros((1, 1)))
    array([[2.]])
    """
    widths = np.exp(logs[2:])
    return np.exp(logs[1] - 0.5 * cdist(np.asarray(A) / widths, B / widths, "sqeuclidean"))


class Expert:
    """Some of the points under one Gaussian process, which predicts all of them.

    A point joins or leaves by rank-one updates of the inverse covariance of the n members, at
    O(n²), and of the predictions for all N points, at O(Nn). So asking for a prediction costs
    nothing, and points are asked about far more often than they move.

    >>> expert = Expert(np.array([[0.0], [9.0]]), np.array([1.0, -1.0]), np.log([0.1, 1.0, 1.0]))
    >>> expert.add(0), expert.members.tolist()
    (None, [0])
    >>> mean, variance = expert.leave_out(0)
    >>> round(mean, 2), round(variance, 2)
    (0.0, 1.1)
    """

    def __init__(
        self,
        X: Inputs,
        y: PerPoint,
        logs: Logs,
        members: Sequence[int] | Int[np.ndarray, " n"] = (),
    ):
        self.X, self.y = np.asarray(X), np.asarray(y)
        self.members: Int[np.ndarray, " n"] = np.asarray(members, np.int64)
        """Row of each member, in the order of the inverse."""
        self.step: float = 0.3
        self.adopt(evaluate(logs, self.X[self.members], self.y[self.members]))

    def __len__(self) -> int:
        """Number of members."""
        return len(self.members)

    @property
    def inverse(self) -> Float[np.ndarray, "n n"]:
        """Inverse of the covariance of the members' outputs."""
        return self._inverse[: len(self), : len(self)]

    @property
    def cross(self) -> Float[np.ndarray, "N n"]:
        """Covariance of the function at all points and at the members."""
        return self._cross[:, : len(self)]

    def adopt(self, found: "Evaluation") -> None:
        """Take on the parameters of an evaluation for the same members.

        All is computed afresh here: updates pile up rounding errors.
        """
        self.logs, self._inverse = found.logs, found.inverse
        self.noise, self.signal = noise_variance(found.logs), float(np.exp(found.logs[1]))
        self._cross = covariance(found.logs, self.X, self.X[self.members])
        self.weights = found.weights
        self._means, self._explained = found.predict(self._cross)

    def predict(self, i: int) -> tuple[float, float]:
        """Mean and variance of output `i`, which is not a member, given the members."""
        # No prediction is surer than the noise, whatever rounding says.
        unexplained = max(self.signal - float(self._explained[i]), 0.0)
        return float(self._means[i]), unexplained + self.noise

    def leave_out(self, i: int) -> tuple[float, float]:
        """Mean and variance of member `i`'s output given the other members."""
        p = self._place(i)
        variance = max(float(1 / self._inverse[p, p]), self.noise)
        return float(self.y[i] - self.weights[p] * variance), variance

    def add(self, i: int) -> None:
        """Let row `i` join."""
        n = len(self)
        self._reserve(n + 1)
        k = covariance(self.logs, self.X, self.X[i : i + 1])[:, 0]
        solved = self.inverse @ k[self.members]
        mean, rest = self.predict(i)
        link = k - self.cross @ solved
        self._means += link * ((self.y[i] - mean) / rest)
        self._explained += link**2 / rest
        self._cross[:, n] = k
        self._inverse[:n, :n] += solved[:, None] * (solved / rest)
        self._inverse[n, :n] = self._inverse[:n, n] = -solved / rest
        self._inverse[n, n] = 1 / rest
        self._join(np.append(self.members, i))

    def remove(self, i: int) -> None:
        """Let member `i` go."""
        last, p = len(self) - 1, self._place(i)
        # The last member takes over the place that falls empty: nothing else has to move.
        for side in (self._inverse, self._inverse.T):
            side[[p, last], : last + 1] = side[[last, p], : last + 1]
        self._cross[:, [p, last]] = self._cross[:, [last, p]]
        order = self.members.copy()
        order[p] = order[last]
        solved = self._inverse[last, : last + 1].copy()
        link = self.cross @ solved
        self._means -= link * (self.weights[p] / solved[last])
        self._explained -= link**2 / solved[last]
        self._inverse[:last, :last] -= solved[:last, None] * (solved[:last] / solved[last])
        self._join(order[:last])

    def log_densities(self) -> Rows:
        """Log density of every output of the data given the members other than itself."""
        variances = np.maximum(self.signal - self._explained, 0.0) + self.noise
        densities = log_normal(self.y, self._means, variances)
        own = 1 / np.diagonal(self.inverse)
        densities[self.members] = log_normal(self.weights * own, 0.0, own)
        return densities

    def _place(self, i: int) -> int:
        return int(np.flatnonzero(self.members == i)[0])

    def _join(self, members: Int[np.ndarray, " n"]) -> None:
        self.members = members
        self.weights = self.inverse @ self.y[members]

    def _reserve(self, n: int) -> None:
        if n > len(self._inverse):
            inverse, cross = self.inverse, self.cross
            room = n + n // 2 + 4
            self._inverse, self._cross = np.empty((room, room)), np.empty((len(self.X), room))
            self._inverse[: len(self), : len(self)] = inverse
            self._cross[:, : len(self)] = cross


class Evaluation(NamedTuple):
    """What one factorisation of an expert's covariance tells."""

    logs: Logs
    log_evidence: float
    gradient: Logs
    """Of the log evidence along the logarithms."""
    factor: Float[np.ndarray, "n n"]
    """Lower Cholesky factor of the covariance."""
    inverse: Float[np.ndarray, "n n"]
    weights: Float[np.ndarray, " n"]
    """The inverse times the outputs."""

    def predict(self, cross: Float[np.ndarray, "N n"]) -> tuple[Rows, Rows]:
        """Means of the function where it covaries with the members as `cross` says.

        And by how much they reduce its variance: by the factor, as small differences count.
        """
        if len(self.weights) == 0:
            return np.zeros(len(cross)), np.zeros(len(cross))
        half = solve_triangular(self.factor, cross.T, lower=True, check_finite=False)
        return cross @ self.weights, np.sum(half**2, axis=0)


def evaluate(logs: Logs, X: Float[np.ndarray, "n D"], y: Float[np.ndarray, " n"]) -> Evaluation:
    """Log evidence of an expert's points, and its gradient.

    >>> found = evaluate(np.log([1.0, 1.0, 1.0]), np.zeros((1, 1)), np.zeros(1))
    >>> bool(np.isclose(found.log_evidence, log_normal(0.0, 0.0, 2.0)))
    True
    """
    n, noise = len(X), np.exp(logs[0])
    if n == 0:
        nothing = np.empty((0, 0))
        return Evaluation(logs, 0.0, np.zeros_like(logs), nothing, nothing, np.empty(0))
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
    # weights S, are 2 Σ z² S1 − 2 z'Sz: no array over points, points and columns.
    slope = weights[:, None] * weights - inverse
    pairs = slope * signal
    z = X / np.exp(logs[2:])
    along_lengthscales = pairs.sum(axis=1) @ z**2 - np.sum(z * (pairs @ z), axis=0)
    along_variances = 0.5 * np.array([noise * np.trace(slope), pairs.sum()])
    gradient = np.concatenate([along_variances, along_lengthscales])
    return Evaluation(logs, float(log_evidence), gradient, factor, inverse, weights)


def hamiltonian(expert: Expert, prior: Vague, rng: np.random.Generator, tune: bool) -> None:
    """One Hamiltonian Monte Carlo move of an expert's parameters (Neal 1996).

    With `tune` the step length is drawn towards an acceptance of four in five, which keeps the
    chain from being exactly stationary: for the burn-in only.

    >>> expert = Expert(np.zeros((1, 1)), np.ones(1), np.log([0.1, 1.0, 1.0]), [0])
    >>> hamiltonian(expert, Vague.of(1), np.random.default_rng(0), tune=False)
    >>> bool(expert.logs[0] == np.log(0.1))
    False
    """
    X, y = expert.X[expert.members], expert.y[expert.members]

    def height(found: Evaluation) -> float:
        return found.log_evidence + prior.log_density(found.logs)

    def slope(found: Evaluation) -> Logs:
        return found.gradient - (found.logs - prior.centre) / prior.std**2

    here = there = evaluate(expert.logs, X, y)
    # The more members, the narrower the posterior: its width falls as one over their root.
    step = rng.uniform(0.8, 1.2) * expert.step / np.sqrt(1 + len(expert) / 10)
    momentum = rng.standard_normal(len(here.logs))
    start, gain = height(here) - 0.5 * momentum @ momentum, -np.inf
    for _ in range(LEAPS):
        momentum = momentum + 0.5 * step * slope(there)
        logs = there.logs + step * momentum
        if not np.all(np.abs(logs) < FURTHEST):
            break
        there = evaluate(logs, X, y)
        momentum = momentum + 0.5 * step * slope(there)
    else:
        gain = height(there) - 0.5 * momentum @ momentum - start
    accepted = np.log(rng.uniform()) < gain
    expert.adopt(there if accepted else here)
    if tune:
        expert.step *= float(np.exp(0.3 * (np.exp(min(gain, 0.0)) - TARGET)))


def closeness(
    widths: Float[np.ndarray, " D"], A: Inputs, B: Inputs | None = None
) -> Float[np.ndarray, "N N2"]:
    """How much each row of `B` counts at each row of `A`: rows of a normal kernel, summing to one.

    Without `B` the rows of `A` among themselves, where none counts for itself.

    >>> closeness(np.ones(1), np.array([[0.0], [1.0], [2.0]])).round(2)
    array([[0.  , 0.82, 0.18],
           [0.5 , 0.  , 0.5 ],
           [0.18, 0.82, 0.  ]])
    """
    A = np.asarray(A) / widths
    logs = -0.5 * cdist(A, A if B is None else np.asarray(B) / widths, "sqeuclidean")
    if B is None:
        if len(A) == 1:
            return np.zeros((1, 1))
        np.fill_diagonal(logs, -np.inf)
    # By logarithms: far from everything the nearest still counts.
    return softmax(logs, axis=1)


def pseudo_likelihood(
    near: Float[np.ndarray, "N N"], assignment: Int[np.ndarray, " N"], alpha: float
) -> float:
    """Sum of the log probabilities of each point's expert given those of all others.

    >>> near = closeness(np.ones(1), np.array([[0.0], [0.0], [0.0]]))
    >>> probability = np.exp(pseudo_likelihood(near, np.array([0, 0, 1]), 1.0))
    >>> round(float(probability), 4)  # (1 / 3) (1 / 3) (1 / 3)
    0.037
    """
    others = len(near) - 1
    together = assignment[:, None] == assignment
    alone = together.sum(axis=1) == 1
    counts = np.where(alone, alpha, others * np.sum(near * together, axis=1))
    return float(np.sum(np.log(np.maximum(counts, TINY) / (others + alpha))))
