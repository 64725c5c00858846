"""Mixture of regressions: a cheap stand-in for the model, in which the association is searched
before anything is trained.

Each function is a ridge regression on the features of a sparse GP of random length scales. Annealed
EM from random functions finds a local optimum in a few hundredths of a second, so many can be
tried; the best are improved by exchanging two functions beyond a plane where they are close.
Solutions are compared by their likelihood, less half the effective degrees of freedom times log N.
"""

from typing import NamedTuple

import numpy as np
from scipy.linalg import solve_triangular
from scipy.spatial.distance import cdist

from dagp.core.typing import Float
from dagp.inference.inducing import choose_inducing
from dagp.inference.missing import filled
from dagp.inference.problem import Problem
from dagp.inference.standardize import FORBIDDEN, Sample

TRIES = 20
"""Optima found from random functions."""
IMPROVED = 2
"""Of these, the best that are improved."""
EXCHANGES = 20
"""Exchanges tried on each of them."""
FEATURES = 48
MOST_ROWS = 1000
LENGTH_MEDIAN, LENGTH_WIDTH, ARD_WIDTH = 1.2, 0.5, 0.3
"""Length scales are log-normal, in units of √D and of the standardised inputs: median, log-std of
their common factor, and log-std of each."""
NOISE_FLOORS = np.concatenate([np.geomspace(0.8, 0.03, 28), np.zeros(8)])
"""Lower limits of the noise, one per iteration: first all functions share most of the data."""
SHORT_FLOORS = np.concatenate([np.geomspace(0.3, 0.03, 8), np.zeros(4)])
"""The same after an exchange."""
CLUTTER_FLOOR = 0.1
"""From this noise on there is clutter: earlier it would take what no function has reached yet."""
COUNTED_TRIES, COUNTED_ROWS = 12, 600
"""Mixtures of every number of functions, and most rows, to find how many functions there may be."""
DECISIVE = 20.0
"""Lead of a mixture's score over that of one with another function that decides against it."""
_LEAST_NOISE = 0.01
_ROUNDING = 1e-12
"""Least ridge, relative to the mean diagonal of the matrix it is added to."""
_JITTER = 1e-4
_CLOSE = 1 / 5
"""Share of the rows that count as close to a meeting of two functions."""


class Rows(NamedTuple):
    """Standardised rows of a mixture of K functions; clutter, if any, is its last component."""

    X: Float[np.ndarray, "N D"]
    y: Float[np.ndarray, "N P"]
    weight: Float[np.ndarray, " N"]
    log_mask: Float[np.ndarray, "N C"]
    """Zero where a component may have produced a row."""
    log_clutter: float
    """Log density of the clutter."""

    @staticmethod
    def of(sample: Sample, log_mask: Float[np.ndarray, "N C"]) -> "Rows":
        """Rows of a sample, with clutter that is uniform over the outputs."""
        span = np.ptp(sample.y, axis=0)
        log_clutter = -float(np.sum(np.log(np.maximum(span, 1.0))))
        return Rows(sample.X, sample.y, sample.weight, log_mask, log_clutter)

    def take(self, some: np.ndarray) -> "Rows":
        return self._replace(
            X=self.X[some],
            y=self.y[some],
            weight=self.weight[some],
            log_mask=self.log_mask[some],
        )


class Basis(NamedTuple):
    """Constant, linear terms and the features of a sparse GP (without inducing inputs: none)."""

    inducing: Float[np.ndarray, "M D"]
    lengthscale: Float[np.ndarray, " D"]
    factor: Float[np.ndarray, "M M"]
    """Cholesky factor of the covariance of the inducing inputs."""

    @staticmethod
    def draw(inducing: Float[np.ndarray, "M D"], rng: np.random.Generator) -> "Basis":
        """The basis of random length scales."""
        M, D = inducing.shape
        common = LENGTH_MEDIAN * np.sqrt(D) * np.exp(LENGTH_WIDTH * rng.standard_normal())
        lengthscale = common * np.exp(ARD_WIDTH * rng.standard_normal(D))
        covariance = _covariance(inducing, inducing, lengthscale) + _JITTER * np.eye(M)
        return Basis(inducing, lengthscale, np.linalg.cholesky(covariance))

    def features(self, X: Float[np.ndarray, "N D"]) -> Float[np.ndarray, "N J"]:
        shared = _covariance(self.inducing, X, self.lengthscale)
        smooth = solve_triangular(self.factor, shared, lower=True, check_finite=False)
        return np.hstack([np.ones((len(X), 1)), X, smooth.T])


def _covariance(one: np.ndarray, other: np.ndarray, lengthscale: np.ndarray) -> np.ndarray:
    """Squared exponential covariance of unit variance."""
    return np.exp(-0.5 * cdist(one / lengthscale, other / lengthscale, "sqeuclidean"))


class Mixture(NamedTuple):
    """A local optimum of annealed EM."""

    basis: Basis
    coefficients: Float[np.ndarray, "K J P"]
    noise_variance: Float[np.ndarray, "K P"]
    log_share: Float[np.ndarray, " C"]
    score: float = -np.inf

    def log_joint(self, rows: Rows, means: Float[np.ndarray, "K N P"]) -> Float[np.ndarray, "N C"]:
        """Log density of every row and component, given the functions at the rows."""
        K = len(self.noise_variance)
        squares = (rows.y - means) ** 2 / self.noise_variance[:, None]
        norm = np.sum(np.log(2 * np.pi * self.noise_variance), axis=1)
        columns = [-0.5 * (squares.sum(axis=2) + norm[:, None]).T]
        if len(self.log_share) > K:
            columns.append(np.full((len(rows.y), 1), rows.log_clutter))
        return np.hstack(columns) + self.log_share + rows.log_mask

    def responsibilities(self, rows: Rows) -> Float[np.ndarray, "N C"]:
        means = self.basis.features(rows.X) @ self.coefficients
        return _normalised(self.log_joint(rows, means))[1]


def _normalised(log_joint: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Log evidence of every row, and responsibilities."""
    highest = log_joint.max(axis=1, keepdims=True)
    joint = np.exp(log_joint - highest)
    total = joint.sum(axis=1, keepdims=True)
    return (highest + np.log(total))[:, 0], joint / total


def annealed_em(
    rows: Rows,
    basis: Basis,
    floors: np.ndarray,
    *,
    coefficients: Float[np.ndarray, "K J P"],
    given: Float[np.ndarray, "N C"] | None = None,
    own_noise: bool = False,
) -> Mixture:
    """EM with falling noise, from functions or from `given` responsibilities.

    Functions share one noise level per output unless `own_noise`.
    """
    A, C = basis.features(rows.X), rows.log_mask.shape[1]
    (K, J, P), total = coefficients.shape, rows.weight.sum()
    late = np.arange(C) == K
    # Rows that are labelled as clutter are clutter from the beginning.
    functions_may = rows.log_mask[:, :K].max(axis=1) == 0
    noise, log_share = np.full((K, P), floors[0] ** 2), np.full(C, -np.log(C))
    means, evidence, gram, ridge = A @ coefficients, np.zeros(len(A)), np.zeros(()), np.eye(J)
    for floor in floors:
        noise = np.maximum(noise, max(floor, _LEAST_NOISE) ** 2)
        found = Mixture(basis, coefficients, noise, log_share)
        log_joint = found.log_joint(rows, means)
        if floor > CLUTTER_FLOOR:
            log_joint[np.ix_(functions_may, late)] += FORBIDDEN
        evidence, own = _normalised(log_joint)
        own, given = own if given is None else given, None
        held = own * rows.weight[:, None]
        size = held.sum(axis=0)
        B = A.T * held.T[:K, None]
        gram = B @ A
        # Beside huge weights or inputs the noise would be lost to rounding.
        least = _ROUNDING * np.trace(gram, axis1=1, axis2=2) / J
        ridge = np.maximum(noise.mean(axis=1), least)[:, None, None] * np.eye(J)
        coefficients = np.linalg.solve(gram + ridge, B @ rows.y)
        means = A @ coefficients
        squares = np.einsum("nk,knp->kp", held[:, :K], (rows.y - means) ** 2)
        if own_noise:
            noise = squares / np.maximum(size[:K, None], 1e-9)
        else:
            noise = np.tile(squares.sum(axis=0) / max(size[:K].sum(), 1e-9), (K, 1))
        log_share = np.log((size + 1) / (total + C))
    freedom = P * np.trace(np.linalg.solve(gram + ridge, gram), axis1=1, axis2=2).sum()
    score = float(rows.weight @ evidence - 0.5 * freedom * np.log(total))
    noise = np.maximum(noise, _LEAST_NOISE**2)
    return Mixture(basis, coefficients, noise, log_share, score)


def exchanged(found: Mixture, rows: Rows, rng: np.random.Generator) -> Mixture:
    """The optimum next to an exchange of two functions beyond a plane where they are close."""
    i, j = rng.permutation(len(found.coefficients))[:2]
    means = found.basis.features(rows.X) @ found.coefficients
    gap = np.linalg.norm(means[i] - means[j], axis=1)
    at = rng.choice(np.argsort(gap)[: max(1, int(_CLOSE * len(gap)))])
    beyond = (rows.X - rows.X[at]) @ rng.standard_normal(rows.X.shape[1]) > 0
    given = _normalised(found.log_joint(rows, means))[1]
    given[np.ix_(beyond, [i, j])] = given[np.ix_(beyond, [j, i])]
    return annealed_em(
        rows, found.basis, SHORT_FLOORS, coefficients=found.coefficients, given=given
    )


def mixtures(
    rows: Rows,
    K: int,
    inducing: Float[np.ndarray, "M D"],
    rng: np.random.Generator,
    *,
    affine: bool = False,
    tries: int = TRIES,
    improved: int = IMPROVED,
) -> list[Mixture]:
    """Local optima of K smooth or affine regressions, best first."""
    (N, D), P = rows.X.shape, rows.y.shape[1]
    if N > MOST_ROWS:
        rows = rows.take(_some(rows, rng))
    inducing = inducing[: 0 if affine else FEATURES]
    found = []
    for _ in range(tries):
        basis = Basis.draw(inducing, rng)
        start = rng.standard_normal((K, 1 + D + len(inducing), P))
        found.append(annealed_em(rows, basis, NOISE_FLOORS, coefficients=start, own_noise=affine))
    found.sort(key=lambda m: -m.score)
    if K > 1 and not affine:
        for index in range(improved):
            for _ in range(EXCHANGES):
                other = exchanged(found[index], rows, rng)
                found[index] = max(found[index], other, key=lambda m: m.score)
        found.sort(key=lambda m: -m.score)
    return found


def _some(rows: Rows, rng: np.random.Generator) -> np.ndarray:
    """Rows to search on, all that have labels among them if these are few."""
    labelled = np.any(rows.log_mask < 0, axis=1)
    order = np.lexsort((rng.random(len(labelled)), ~labelled))
    return np.sort(order[:MOST_ROWS])


def with_fewer(problem: Problem, rng: np.random.Generator) -> Problem:
    """The problem with as many functions as mixtures of regressions have use for, and one more
    unless their score decides against it.

    They may count too many, where one function is too rough for them, but hardly ever too few.
    """
    functions = [prior for prior in problem.priors if not prior.clutter]
    clutter = [prior for prior in problem.priors if prior.clutter]
    if len(functions) < 2:
        return problem
    some = np.sort(rng.permutation(len(problem.sample.X))[:COUNTED_ROWS])
    part = filled(problem.sample.take(some))
    inducing, scores = choose_inducing(part.X, FEATURES, rng), []
    for K in range(1, len(functions) + 1):
        rows = Rows.of(part, np.zeros((len(some), K + bool(clutter))))
        found = mixtures(rows, K, inducing, rng, tries=COUNTED_TRIES, improved=0)
        scores.append(found[0].score)
    # Two functions are tried at least: how they differ may escape the regressions.
    best = max(int(np.argmax(scores)), 1)
    near = np.array(scores[: best + 2]) > scores[best] - DECISIVE
    count = 1 + int(np.flatnonzero(near)[-1])
    return problem._replace(priors=(*functions[:count], *clutter))
