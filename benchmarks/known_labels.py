"""What uncertain hyperparameters cost alone: exact GPs of each function's points, labels known.

    python benchmarks/known_labels.py --seeds 24 --first 1

Draws with several processes, as in `calibration.py`. The table has the coverage of a function's own
new points by its bands:

known       true hyperparameters
best        the best ones, with the library's prior of the noise
laplace     averaged as `dagp.predict.averaging` does, from two settings in every direction
sampled     averaged by importance sampling, which is exact in the limit
"""

import argparse
from typing import NamedTuple

import numpy as np
from prior_draws import STRUCTURES, Draw, draw
from scipy.linalg import cho_solve, solve_triangular
from scipy.optimize import minimize

from dagp.inference.laplace import VAGUE
from dagp.model.gp import NOISE_MEDIAN, NOISE_WIDTH
from dagp.predict.averaging import MOST_RATIO, REACH

Array = np.ndarray
Z = {"50 %": 0.674, "80 %": 1.282, "95 %": 1.96}
SAMPLES, DEGREES = 250, 5
_FAILED = 1e10
_RANGE = 10.0
"""Largest change of a logarithm."""


class Band(NamedTuple):
    """Mean and variance of a function at new points."""

    mean: Array
    variance: Array


class Evidence:
    """Log posterior of log length scales, variance and noise of a GP, and its bands."""

    def __init__(self, X: Array, y: Array, X_new: Array, units: tuple[Array, float]) -> None:
        self.y = y
        self.squares = (X[:, None] - X[None]) ** 2
        self.new_squares = (X_new[:, None] - X[None]) ** 2
        scale, spread = units
        self.centre = np.append(np.log(scale), [2 * np.log(spread), np.log(NOISE_MEDIAN * spread)])
        self.noise_only = np.append(np.zeros(len(scale) + 1), NOISE_WIDTH**-2.0)
        self.vague = np.append(np.full(len(scale) + 1, VAGUE**-2.0), NOISE_WIDTH**-2.0)

    def _covariance(self, t: Array, squares: Array) -> Array:
        return np.exp(t[-2] - 0.5 * np.sum(squares / np.exp(2 * t[:-2]), axis=-1))

    def _factor(self, t: Array) -> tuple[Array, Array]:
        K = self._covariance(t, self.squares)
        noise = np.exp(2 * t[-1]) + 1e-9 * np.exp(t[-2])
        return K, np.linalg.cholesky(K + noise * np.eye(len(K)))

    def negative(self, t: Array, precision: Array) -> tuple[float, Array]:
        """The negative log posterior and its gradient; `precision` is that of the priors."""
        try:
            K, lower = self._factor(t)
        except np.linalg.LinAlgError:
            return _FAILED, np.zeros_like(t)
        away = t - self.centre
        solved = cho_solve((lower, True), self.y)
        value = 0.5 * self.y @ solved + np.sum(np.log(np.diag(lower)))
        W = cho_solve((lower, True), np.eye(len(K))) - np.outer(solved, solved)
        lengths = np.einsum("ij,ijd->d", W * K, self.squares) / (2 * np.exp(2 * t[:-2]))
        slope = np.append(lengths, [0.5 * np.sum(W * K), np.trace(W) * np.exp(2 * t[-1])])
        return value + 0.5 * precision @ away**2, slope + precision * away

    def best(self, starts: list[Array], precision: Array) -> Array:
        bounds = [(v - _RANGE, v + _RANGE) for v in starts[0]]
        options = {"jac": True, "method": "L-BFGS-B", "bounds": bounds}
        found = [minimize(self.negative, t, (precision,), **options) for t in starts]
        return min(found, key=lambda result: result.fun).x

    def band(self, t: Array) -> Band:
        _, lower = self._factor(t)
        gain = solve_triangular(lower, self._covariance(t, self.new_squares).T, lower=True)
        mean = gain.T @ solve_triangular(lower, self.y, lower=True)
        return Band(
            mean, np.maximum(np.exp(t[-2]) - np.sum(gain**2, axis=0), 1e-12 * np.exp(t[-2]))
        )

    def directions(self, t: Array) -> Array:
        """Columns: independent directions, one standard deviation long."""
        h = 0.02
        slopes = [
            self.negative(t + e, self.vague)[1] - self.negative(t - e, self.vague)[1]
            for e in h * np.eye(len(t))
        ]
        curvature = np.array(slopes) / (2 * h)
        values, vectors = np.linalg.eigh((curvature + curvature.T) / 2)
        return vectors / np.sqrt(np.maximum(values, VAGUE**-2))


def by_laplace(evidence: Evidence, t: Array, directions: Array) -> Band:
    """As the library, with bands in place of inducing values."""
    here, lowest = evidence.band(t), evidence.negative(t, evidence.vague)[0]
    more = np.zeros_like(here.mean)
    for step in REACH * np.concatenate([directions.T, -directions.T]):
        value = evidence.negative(t + step, evidence.vague)[0]
        if value == _FAILED:
            continue
        there = evidence.band(t + step)
        ratio = np.exp(min(0.5 * REACH**2 + lowest - value, np.log(MOST_RATIO)))
        moved = (there.mean - here.mean) ** 2 + there.variance - here.variance
        more += 0.5 / REACH**2 * ratio * moved
    return Band(here.mean, here.variance + np.maximum(more, 0.0))


def by_sampling(evidence: Evidence, t: Array, directions: Array, seed: int) -> Band:
    """Importance sampling from a Student-t distribution around the optimum."""
    rng = np.random.default_rng([seed, 1618])
    steps = rng.standard_normal((SAMPLES, len(t)))
    steps *= np.sqrt(DEGREES / rng.chisquare(DEGREES, (SAMPLES, 1)))
    settings = t + steps @ directions.T
    logs = 0.5 * (DEGREES + len(t)) * np.log1p(np.sum(steps**2, axis=1) / DEGREES)
    logs -= [evidence.negative(one, evidence.vague)[0] for one in settings]
    weights = np.exp(logs - logs.max())
    kept = weights > 1e-3
    bands = [evidence.band(one) for one in settings[kept]]
    weights = weights[kept] / weights[kept].sum()
    means, variances = (np.array(part) for part in zip(*bands, strict=True))
    mean = weights @ means
    return Band(mean, weights @ (variances + (means - mean) ** 2))


def errors(data: Draw, k: int, seed: int) -> dict[str, Array]:
    """Standardised errors of function k at its own new points."""
    train, test, truth = data.train, data.test, data.truth
    own, new = train.label == k, test.label == k
    spreads = [(np.quantile(a, 0.95, 0) - np.quantile(a, 0.05, 0)) / 3.29 for a in train[:2]]
    evidence = Evidence(train.X[own], train.y[own], test.X[new], (spreads[0], float(spreads[1])))
    smooth, noise = truth.functions[k], max(truth.noise_stds[k], 1e-4 * float(spreads[1]))
    known = np.append(np.log(smooth.lengthscale), np.log([smooth.variance, noise]))
    starts = [known, evidence.centre]
    best, centre = (evidence.best(starts, p) for p in (evidence.noise_only, evidence.vague))
    directions = evidence.directions(centre)
    bands = {
        "known": evidence.band(known),
        "best": evidence.band(best),
        "laplace": by_laplace(evidence, centre, directions),
        "sampled": by_sampling(evidence, centre, directions, seed),
    }
    value = test.functions[k][new]
    return {name: np.abs(value - b.mean) / np.sqrt(b.variance) for name, b in bands.items()}


def main() -> None:
    parser = argparse.ArgumentParser(description=str(__doc__).splitlines()[0])
    parser.add_argument("--seeds", type=int, default=24)
    parser.add_argument("--first", type=int, default=1)
    options = parser.parse_args()
    rows: list[dict[str, Array]] = []
    for seed in range(options.first, options.first + options.seeds):
        if STRUCTURES[seed % len(STRUCTURES)].processes == 1:
            continue
        data = draw(seed)
        labels = [np.bincount(part.label, minlength=9) for part in (data.train, data.test)]
        parts = [
            errors(data, k, seed)
            for k in range(data.structure.functions)
            if min(counts[k] for counts in labels) > 0
        ]
        rows.append({name: np.concatenate([part[name] for part in parts]) for name in parts[0]})
        print(
            seed, *(f"{name}={np.mean(z < 1.96):.3f}" for name, z in rows[-1].items()), flush=True
        )
    print(f"\n| {len(rows)} draws | " + " | ".join(Z) + " |\n|---|" + "---|" * len(Z))
    for name in rows[0]:
        hits = np.array([[np.mean(row[name] < z) for z in Z.values()] for row in rows])
        spread = hits.std(axis=0, ddof=1) / np.sqrt(len(rows))
        cells = (f"{m:.3f} ± {e:.3f}" for m, e in zip(hits.mean(axis=0), spread, strict=True))
        print(f"| {name} | {' | '.join(cells)} |")


if __name__ == "__main__":
    main()
