"""Our posterior of the assignments beside one that is exact in the limit, on small data.

    python benchmarks/gold_standard.py --seeds 20 --first 100 --jobs 1 -o results/calibration

Up to 60 points of two or three functions, drawn from the model (`prior_draws.py`), with known
hyperparameters. The sampler integrates the functions out. It updates single assignments (collapsed
Gibbs), all those of two processes in a window of inputs (sequentially allocated split-merge, Dahl
2005), and the functions of the gate (elliptical slice sampling, Murray et al. 2010). Two chains
begin at the truth and at our solution; half of their disagreement is the error of the comparison.

tv             mean difference between the probabilities that two points share a process
tv_chains      the same between the two chains
log_std        mean log ratio of our band's standard deviation to the sampler's, at own points
own_95%        share of a function's own new points in our band, `sampled_95%` in the sampler's

Hyperparameters are known, so ``posterior="averaged"`` averages over associations alone.
Rows already in ``<out>/gold_standard.csv`` are not computed again; a table of all of them is
written to ``<out>/gold_standard.md``. Seeds below 100 are for tuning.
"""

import argparse
import os
import time
import warnings
from collections.abc import Iterable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from calibration import read, write
from joblib import Parallel, delayed
from prior_draws import Draw, Smooth, Structure, draw
from scipy.linalg import cho_factor, cho_solve, lapack
from scipy.special import log_softmax

from dagp import DAGP

Array = np.ndarray
FIRST_SEED = 100
SIZE = 60
SWEEPS, WARM_UP = 1500, 300
THIN = 5
_JITTER = 1e-8


def covariance(smooth: Smooth, A: Array, B: Array) -> Array:
    """Squared exponential kernel with known hyperparameters."""
    squares = np.sum(((A[:, None] - B[None]) / smooth.lengthscale) ** 2, axis=-1)
    return smooth.variance * np.exp(-0.5 * squares)


class Given:
    """A GP with some of the points: W is the inverse of the Cholesky factor of their covariance,
    and grows by a row with every point."""

    def __init__(self, prior: Array, noise: float, y: Array, rows: Array) -> None:
        self.prior, self.noise, self.y = prior, noise, y
        self.rows, m = rows.tolist(), len(rows)
        self.W, self.white = np.zeros((len(y), len(y))), np.zeros(len(y))
        if m:
            lower = np.linalg.cholesky(prior[np.ix_(rows, rows)] + noise * np.eye(m))
            self.W[:m, :m] = lapack.dtrtri(lower, lower=1)[0]
            self.white[:m] = self.W[:m, :m] @ y[rows]

    def _project(self, n: int) -> tuple[Array, float]:
        m = len(self.rows)
        v = self.W[:m, :m] @ self.prior[self.rows, n]
        return v, max(self.prior[n, n] + self.noise - v @ v, 1e-300)

    def append(self, n: int) -> None:
        m = len(self.rows)
        v, variance = self._project(n)
        root = np.sqrt(variance)
        self.W[m, :m], self.W[m, m] = -(v @ self.W[:m, :m]) / root, 1 / root
        self.white[m] = (self.y[n] - v @ self.white[:m]) / root
        self.rows.append(n)

    def log_predictive(self, n: int) -> float:
        """Log density of another output."""
        v, variance = self._project(n)
        return _log_normal(self.y[n] - v @ self.white[: len(self.rows)], variance)

    def log_left_out(self, n: int) -> float:
        """Log density of one of its own outputs, given the others."""
        m = len(self.rows)
        column = self.W[:m, self.rows.index(n)]
        precision = column @ column
        return _log_normal(column @ self.white[:m] / precision, 1 / precision)


def _log_normal(residual: float, variance: float) -> float:
    return float(-0.5 * (residual**2 / variance + np.log(2 * np.pi * variance)))


class Chain:
    """State of the sampler: assignments, and functions of the gate at the points."""

    def __init__(self, data: Draw, assignment: Array, rng: np.random.Generator) -> None:
        X, self.y, self.rng = data.train.X, data.train.y, rng
        self.order = np.argsort(X[:, 0])
        self.K = data.structure.functions
        self.noise = data.truth.noise_stds**2
        self.covariances = [covariance(f, X, X) for f in data.truth.functions]
        gate = covariance(data.truth.gate, X, X)
        self.root = np.linalg.cholesky(gate + _JITTER * gate[0, 0] * np.eye(len(X)))
        self.assignment = np.array(assignment)
        self.gate = np.zeros((self.K, len(X)))
        for _ in range(50):
            self.move_gate()

    def log_weights(self) -> Array:
        return log_softmax(self.gate, axis=0)

    def given(self, k: int, assignment: Array) -> Given:
        """Process k with its points."""
        rows = np.flatnonzero(assignment == k)
        return Given(self.covariances[k], self.noise[k], self.y, rows)

    def log_evidence(self, k: int, given: Array) -> float:
        """Log density of the outputs of process k."""
        if not len(given):
            return 0.0
        K = self.covariances[k][np.ix_(given, given)] + self.noise[k] * np.eye(len(given))
        lower, below = cho_factor(K, lower=True)
        quadratic = self.y[given] @ cho_solve((lower, below), self.y[given])
        log_det = 2 * np.sum(np.log(np.diag(lower)))
        return -0.5 * (quadratic + log_det + len(given) * np.log(2 * np.pi))

    def move_points(self) -> None:
        """A sweep of collapsed Gibbs."""
        log_weights, members = self.log_weights(), self.assignment
        processes = [self.given(k, members) for k in range(self.K)]
        for n in self.rng.permutation(len(members)):
            own = members[n]
            logs = np.array([
                process.log_left_out(n) if k == own else process.log_predictive(n)
                for k, process in enumerate(processes)
            ])  # fmt: skip
            members[n] = np.argmax(logs + log_weights[:, n] + self.rng.gumbel(size=self.K))
            if members[n] != own:
                processes[own] = self.given(own, members)
                processes[members[n]].append(n)

    def move_window(self) -> None:
        """Allocate the points of two processes in a window one after the other; Metropolis."""
        pair = self.rng.choice(self.K, 2, replace=False)
        start, end = np.sort(self.rng.integers(0, len(self.order) + 1, 2))
        where = self.order[start:end][:: self.rng.choice([-1, 1])]
        where = where[np.isin(self.assignment[where], pair)]
        if not len(where):
            return
        proposed, forward = self.allocated(where, pair, None)
        _, backward = self.allocated(where, pair, self.assignment[where])
        ratio = self.log_joint(proposed, pair) - self.log_joint(self.assignment, pair)
        if np.log(self.rng.uniform()) < ratio + backward - forward:
            self.assignment = proposed

    def log_joint(self, assignment: Array, pair: Array) -> float:
        weights = self.log_weights()[assignment, np.arange(len(assignment))].sum()
        return weights + sum(self.log_evidence(k, np.flatnonzero(assignment == k)) for k in pair)

    def allocated(self, where: Array, pair: Array, path: Array | None) -> tuple[Array, float]:
        """Assignments drawn in sequence, or forced along a path, and their log probability."""
        assignment, total = self.assignment.copy(), 0.0
        assignment[where] = -1
        log_weights = self.log_weights()
        processes = [self.given(k, assignment) for k in pair]
        for i, n in enumerate(where):
            logs = np.array([process.log_predictive(n) for process in processes])
            logs = log_softmax(logs + log_weights[pair, n])
            drawn = int(np.argmax(logs + self.rng.gumbel(size=2)))
            chosen = drawn if path is None else int(np.flatnonzero(pair == path[i])[0])
            assignment[n], total = pair[chosen], total + logs[chosen]
            processes[chosen].append(n)
        return assignment, float(total)

    def move_gate(self) -> None:
        """Elliptical slice sampling of the gate, given the assignments."""

        def log_likelihood(gate: Array) -> float:
            return float(log_softmax(gate, axis=0)[self.assignment, np.arange(gate.shape[1])].sum())

        other = self.rng.standard_normal(self.gate.shape) @ self.root.T
        least = log_likelihood(self.gate) + np.log(self.rng.uniform())
        angle = self.rng.uniform(0, 2 * np.pi)
        low, high = angle - 2 * np.pi, angle
        while True:
            proposed = self.gate * np.cos(angle) + other * np.sin(angle)
            if log_likelihood(proposed) > least:
                self.gate = proposed
                return
            low, high = (angle, high) if angle < 0 else (low, angle)
            angle = self.rng.uniform(low, high)

    def sweep(self) -> None:
        self.move_points()
        for _ in range(2):
            self.move_window()
        for _ in range(5):
            self.move_gate()


class Sampled(NamedTuple):
    """Co-assignment probabilities, and mean and variance of the functions at new points."""

    together: Array
    mean: Array
    variance: Array


def sample(data: Draw, assignment: Array, seed: int) -> Sampled:
    """Averages over one chain."""
    chain = Chain(data, assignment, np.random.default_rng([seed, 1618]))
    parts = []
    for sweep in range(SWEEPS):
        chain.sweep()
        if sweep >= WARM_UP and sweep % THIN == 0:
            together = chain.assignment[:, None] == chain.assignment
            parts.append((together, *functions(data, chain)))
    together, means, variances = (np.array(part, float) for part in zip(*parts, strict=True))
    mean = means.mean(axis=0)
    return Sampled(together.mean(axis=0), mean, variances.mean(axis=0) + means.var(axis=0))


def functions(data: Draw, chain: Chain) -> tuple[Array, Array]:
    """Mean and variance of every function at the new points, given the assignments."""
    means, variances = [], []
    for k, smooth in enumerate(data.truth.functions):
        own = np.flatnonzero(chain.assignment == k)
        cross = covariance(smooth, data.test.X, data.train.X[own])
        K = chain.covariances[k][np.ix_(own, own)] + chain.noise[k] * np.eye(len(own))
        gain = np.linalg.solve(K, cross.T).T
        means.append(gain @ data.train.y[own])
        variances.append(smooth.variance - np.sum(gain * cross, axis=1))
    return np.array(means), np.maximum(variances, 1e-12)


def difference(first: Array, second: Array) -> float:
    """Mean absolute difference of probabilities of pairs of points."""
    pairs = np.triu_indices(len(first), 1)
    return float(np.mean(np.abs(first - second)[pairs]))


def together(model: DAGP, data: Draw, most: int | None = None) -> Array:
    """Probabilities that two points share a process, over `most` associations or all of them."""
    found, total = np.zeros((SIZE, SIZE)), 0.0
    for weight, posterior, _ in model.posterior_.associations()[:most]:
        shares = posterior.mixture(data.train.X).responsibilities(data.train.y)
        found, total = found + weight * shares @ shares.T, total + weight
    return found / total


def compare(seed: int) -> dict[str, Any]:
    """One draw."""
    warnings.simplefilter("ignore")  # Warnings about single fits: every fit is scored.
    structure = Structure(2 + seed % 2, False, 1)
    data = draw(seed, structure, SIZE)
    start = time.perf_counter()
    model = data.truth.known().set_params(random_state=seed, posterior="averaged")
    model.fit(data.train.X, data.train.y)
    seconds = time.perf_counter() - start
    chains = [sample(data, labels, seed) for labels in (data.train.label, model.assignment_)]
    gold = Sampled(*(np.mean(part, axis=0) for part in zip(*chains, strict=True)))
    bands = [process.predict(data.test.X, return_std=True) for process in model.processes_]
    mean, std = (np.array(part) for part in zip(*bands, strict=True))
    own = data.test.label == np.arange(structure.functions)[:, None]
    gold_std = np.sqrt(gold.variance)

    def inside(mean: Array, std: Array) -> float:
        return float(np.mean(np.abs(data.test.functions - mean)[own] <= 1.96 * std[own]))

    return {
        "seed": seed,
        "structure": str(structure),
        "tv": difference(together(model, data), gold.together),
        "tv_best": difference(together(model, data, 1), gold.together),
        "tv_chains": difference(chains[0].together, chains[1].together),
        "log_std": float(np.mean(np.log(std / gold_std)[own])),
        "own_95%": inside(mean, std),
        "sampled_95%": inside(gold.mean, gold_std),
        "seconds": seconds,
        "sampler_seconds": time.perf_counter() - start - seconds,
    }


def compute(seeds: Iterable[int], jobs: int, out: Path) -> list[dict[str, Any]]:
    """Compare the missing draws, and write the rows after each."""
    out.mkdir(parents=True, exist_ok=True)
    rows = read(out / "gold_standard.csv")
    known = {int(row["seed"]) for row in rows}
    if jobs > 1:
        # Read by the workers at start: one computing thread each.
        os.environ["NPROC"] = "1"
    # loky starts fresh interpreters: a process forked after JAX has started hangs.
    pool: Any = Parallel(n_jobs=jobs, backend="loky", return_as="generator_unordered")
    for row in pool(delayed(compare)(seed) for seed in seeds if seed not in known):
        write(rows := [*rows, row], out / "gold_standard.csv")
        print(*(f"{k}={v:.3f}" if isinstance(v, float) else v for k, v in row.items()), flush=True)
    return rows


WORDS = {
    "tv": "co-assignment probabilities, ours against the sampler: mean difference",
    "tv_best": "… of the best association alone",
    "tv_chains": "… one chain against the other",
    "log_std": "log ratio of our band's standard deviation to the sampler's, own points",
    "own_95%": "truth in our 95 % band, own points",
    "sampled_95%": "… in the sampler's",
}


def report(rows: list[dict[str, Any]]) -> str:
    """A table of means, with standard errors over draws."""
    groups = {"all": rows} | {
        name: [row for row in rows if row["structure"] == name]
        for name in sorted({row["structure"] for row in rows})
    }
    lines = [
        "# Assignments beside an exact sampler",
        "",
        f"{SIZE} points, known hyperparameters; means over draws with standard errors, made by",
        "`python benchmarks/gold_standard.py --seeds 20 --first 100 -o results/calibration`.",
        "",
        "| | " + " | ".join(f"{name} ({len(some)} draws)" for name, some in groups.items()) + " |",
        "|---|" + "---|" * len(groups),
    ]
    for key, words in WORDS.items():
        cells = (_mean([float(row[key]) for row in some]) for some in groups.values())
        lines.append(f"| {words} | {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def _mean(values: list[float]) -> str:
    error = np.std(values, ddof=1) / np.sqrt(len(values)) if len(values) > 1 else np.nan
    return f"{np.mean(values):.3f} ± {error:.3f}"


def main() -> None:
    parser = argparse.ArgumentParser(description=str(__doc__).splitlines()[0])
    parser.add_argument("--seeds", type=int, default=20)
    parser.add_argument("--first", type=int, default=FIRST_SEED)
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("-o", "--out", type=Path, default=Path("results/calibration"))
    options = parser.parse_args()
    seeds = range(options.first, options.first + options.seeds)
    text = report(compute(seeds, options.jobs, options.out))
    (options.out / "gold_standard.md").write_text(text)
    print(text)


if __name__ == "__main__":
    main()
