"""Observation noise with heavy tails: Student-t and Laplace against normal noise and clutter.

    python benchmarks/heavy_tails.py --seeds 100-119 --jobs 12 -o results/heavy_tails.jsonl
    python benchmarks/heavy_tails.py --report -o results/heavy_tails.jsonl

One process per fit, one line of JSON per fit; lines already in the file are not computed again.
Seeds begin at 100; smaller ones are reserved for tuning.

friedman   Friedman's function of ten uniform inputs, five of them irrelevant, 200 rows with
           Student-t noise of 2 degrees of freedom, times 1 or 10 (the function has a standard
           deviation of 4.9). RMSE at 1000 new inputs against the function, and log density of new
           observations there.
curves     Two curves that cross, 200 rows, Student-t noise of 2 degrees of freedom times 0.1.
           Adjusted Rand index of the association, beside that of an oracle that knows the curves
           and the noise; RMSE of the functions; log density of new observations.
"""

import argparse
import json
import subprocess
import sys
import time
import warnings
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from scipy.stats import t as student
from sklearn.metrics import adjusted_rand_score

Row = dict[str, Any]
DEGREES = 2
SCALES = (1.0, 10.0)
METHODS = {
    "friedman": ("gaussian", "clutter", "student", "laplace", "student+clutter"),
    "curves": ("gaussian", "clutter", "student", "laplace"),
}


class Fit(NamedTuple):
    """One line of the results."""

    task: str
    scale: float
    method: str
    seed: int


def friedman(X: np.ndarray) -> np.ndarray:
    return (
        10 * np.sin(np.pi * X[:, 0] * X[:, 1])
        + 20 * (X[:, 2] - 0.5) ** 2
        + 10 * X[:, 3]
        + 5 * X[:, 4]
    )


def curves(x: np.ndarray) -> np.ndarray:
    """Both curves, (2, N); they cross twice."""
    return np.stack([np.sin(2.5 * x), 0.8 - x**2])


def models(method: str, count: int, seed: int) -> Any:
    """An estimator with `count` functions."""
    from dagp import DAGP, GP, Noise

    shape: Any = method.split("+")[0]
    prior = GP(noise=shape) if shape in ("student", "laplace") else GP()
    clutter = [Noise()] if "clutter" in method else []
    return DAGP(processes=[prior] * count + clutter, random_state=seed)


def fit_friedman(one: Fit) -> Row:
    rng = np.random.default_rng(one.seed)
    X, noise = rng.uniform(size=(200, 10)), one.scale * rng.standard_t(DEGREES, 200)
    X_new = rng.uniform(size=(1000, 10))
    truth = friedman(X_new)
    y, y_new = friedman(X) + noise, truth + one.scale * rng.standard_t(DEGREES, 1000)
    model = models(one.method, 1, one.seed).fit(X, y)
    first = model.processes_[0]
    return {
        "rmse": float(np.sqrt(np.mean((first.predict(X_new) - truth) ** 2))),
        "log_density": model.log_score(X_new, y_new),
        "std": float(first.noise_std_[0]),
        "degrees": first.degrees_,
    }


def fit_curves(one: Fit) -> Row:
    rng = np.random.default_rng(one.seed)
    x, label = rng.uniform(-1.5, 1.5, 200), rng.integers(2, size=200)
    y = curves(x)[label, np.arange(200)] + one.scale * rng.standard_t(DEGREES, 200)
    x_new, new = rng.uniform(-1.5, 1.5, 1000), rng.integers(2, size=1000)
    y_new = curves(x_new)[new, np.arange(1000)] + one.scale * rng.standard_t(DEGREES, 1000)
    model = models(one.method, 2, one.seed).fit(x[:, None], y)
    found = np.stack([model.processes_[k].predict(x_new[:, None]) for k in range(2)])
    errors = [np.mean((found[list(order)] - curves(x_new)) ** 2) for order in ((0, 1), (1, 0))]
    density = student.logpdf(y - curves(x), DEGREES, 0, one.scale)
    # By the functions alone: where clutter took a point, its nearer function counts.
    member = model.responsibilities_[:, :2].argmax(axis=1)
    return {
        "ari": adjusted_rand_score(label, member),
        "oracle_ari": adjusted_rand_score(label, density.argmax(axis=0)),
        "rmse": float(np.sqrt(min(errors))),
        "log_density": model.log_score(x_new[:, None], y_new),
    }


TASKS: dict[str, Callable[[Fit], Row]] = {"friedman": fit_friedman, "curves": fit_curves}


def wanted(tasks: list[str], seeds: range) -> list[Fit]:
    return [
        Fit(task, scale, method, seed)
        for task in tasks
        for seed in seeds
        for scale in (SCALES if task == "friedman" else (0.1,))
        for method in METHODS[task]
    ]


def written(out: Path) -> list[Row]:
    return [json.loads(line) for line in out.read_text().splitlines()] if out.exists() else []


def run(out: Path, fits: list[Fit], jobs: int) -> None:
    """One process for every fit that is not in the file yet."""
    done = {tuple(row[name] for name in Fit._fields) for row in written(out)}
    out.parent.mkdir(parents=True, exist_ok=True)

    def one(fit: Fit) -> None:
        words = [sys.executable, __file__, "--one", json.dumps(fit)]
        answer = subprocess.run(words, capture_output=True, text=True, check=False)
        if answer.returncode:
            print(f"{fit} failed: {answer.stderr.strip().splitlines()[-1:]}", flush=True)
            return
        with out.open("a") as file:
            file.write(answer.stdout.strip().splitlines()[-1] + "\n")

    with ThreadPoolExecutor(jobs) as pool:
        list(pool.map(one, [fit for fit in fits if fit not in done]))


def report(out: Path) -> None:
    """Means, standard errors and medians over the seeds."""
    rows = written(out)
    print("| task | noise times | method | seeds | RMSE | median | log density | ARI (oracle) |")
    print("|---|---|---|---|---|---|---|---|")
    for task, scale, method in dict.fromkeys((r["task"], r["scale"], r["method"]) for r in rows):
        some = [r for r in rows if (r["task"], r["scale"], r["method"]) == (task, scale, method)]
        rmse, density = (np.array([r[key] for r in some]) for key in ("rmse", "log_density"))
        error = rmse.std(ddof=1) / np.sqrt(len(rmse)) if len(rmse) > 1 else np.nan
        ari = [np.mean([r.get(key, np.nan) for r in some]) for key in ("ari", "oracle_ari")]
        last = "" if np.isnan(ari[0]) else f"{ari[0]:.3f} ({ari[1]:.3f})"
        print(
            f"| {task} | {scale:g} | {method} | {len(some)} | {rmse.mean():.3f} ± {error:.3f} | "
            f"{np.median(rmse):.3f} | {density.mean():.3f} | {last} |"
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("tasks", nargs="*", help="friedman, curves; both if omitted")
    parser.add_argument("--seeds", default="100-119", help="first and last seed")
    parser.add_argument("--jobs", type=int, default=1, help="fits at a time")
    parser.add_argument("--out", "-o", type=Path, default=Path("results/heavy_tails.jsonl"))
    parser.add_argument("--report", action="store_true", help="only print the table")
    parser.add_argument("--one", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.one:
        one, began = Fit(*json.loads(given.one)), time.perf_counter()
        warnings.simplefilter("ignore")
        row = TASKS[one.task](one)
        print(json.dumps({**one._asdict(), **row, "seconds": time.perf_counter() - began}))
        return
    if not given.report:
        first, _, last = given.seeds.partition("-")
        seeds = range(int(first), int(last or first) + 1)
        run(given.out, wanted(given.tasks or list(TASKS), seeds), given.jobs)
    report(given.out)


if __name__ == "__main__":
    main()
