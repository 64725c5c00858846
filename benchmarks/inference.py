"""Ablation of inference: number of layers, concrete relaxation, and minibatches.

    python benchmarks/inference.py deep depth concrete batches --seeds 10 -o results/inference

deep      cart-poles with one, two and three layers
depth     functions with jumps, with one, two and three layers
concrete  collapsed against concrete inference (the paper's scheme) on the paper's experiments
batches   100 000 points of two regimes, 100 inducing points, in minibatches

Every row is one fit; means and standard errors are printed at the end. Seeds begin at 100.
"""

import argparse
import csv
import resource
import time
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
from recovery import FIRST_SEED
from sklearn.metrics import adjusted_rand_score

from dagp import DAGP, GP, Concrete, DeepGP, Noise, datasets
from dagp.experiments.cartpole import scores

Row = dict[str, Any]
CONCRETE_STEPS = 3000


def timed(model: DAGP, data: Any) -> tuple[DAGP, float]:
    """Fitted model and seconds of the fit."""
    begin = time.perf_counter()
    model.fit(data.X, data.y)
    return model, time.perf_counter() - begin


def deep(seed: int) -> Iterator[Row]:
    """Cart-poles with one, two and three layers."""
    data = datasets.cartpole(random_state=seed)
    for layers in (1, 2, 3):
        model, seconds = timed(DAGP(2, DeepGP(layers), random_state=seed), data)
        row = {"layers": layers, "seed": seed, "bound": model.lower_bound_}
        yield row | scores(model, data) | {"seconds": seconds}


def depth(seed: int) -> Iterator[Row]:
    """Functions with jumps, with one, two and three layers."""
    data = datasets.steps(random_state=seed)
    for layers in (1, 2, 3):
        model, seconds = timed(DAGP(1, DeepGP(layers), random_state=seed), data)
        error = np.asarray(model.predict(data.X_test)) - data.f_test
        yield {
            "layers": layers,
            "seed": seed,
            "bound": model.lower_bound_,
            "log_score": model.log_score(data.X_test, data.y_test),
            "rmse": float(np.sqrt(np.mean(error**2))),
            "seconds": seconds,
        }


def concrete(seed: int) -> Iterator[Row]:
    """Collapsed and concrete inference, and the paper's ELBO without the entropy term."""
    noise = datasets.noise_separation(0.6, random_state=seed)
    multimodal = datasets.multimodal(random_state=seed)
    cartpole = datasets.cartpole(random_state=seed)
    middle = (multimodal.X[:, 0] > 0) & (multimodal.X[:, 0] < 5)

    def noise_scores(model: DAGP) -> Row:
        error = np.asarray(model.processes_[0].predict(noise.X_test)) - noise.y_test
        return {"rmse": float(np.sqrt(np.mean(error**2)))}

    def multimodal_scores(model: DAGP) -> Row:
        found = model.assignment_[middle]
        return {
            "ari": adjusted_rand_score(multimodal.process[middle], found),
            "log_score": model.log_score(multimodal.X, multimodal.y),
        }

    tasks: list[tuple[str, Any, dict[str, Any], Callable[[DAGP], Row]]] = [
        ("noise 60 %", noise, {"processes": [GP(), Noise()]}, noise_scores),
        ("multimodal", multimodal, {"n_processes": 4}, multimodal_scores),
        ("cart-pole", cartpole, {"n_processes": 2}, lambda m: scores(m, cartpole)),
    ]
    schemes: list[tuple[str, dict[str, Any]]] = [
        ("collapsed", {}),
        ("concrete", {"inference": Concrete(), "max_iter": CONCRETE_STEPS}),
        (
            "concrete, no entropy",
            {"inference": Concrete(entropy=False), "max_iter": CONCRETE_STEPS},
        ),
    ]
    for task, data, settings, score in tasks:
        for scheme, inference in schemes:
            model, seconds = timed(DAGP(**settings, **inference, random_state=seed), data)
            row = {"task": task, "scheme": scheme, "seed": seed, "bound": model.lower_bound_}
            yield row | score(model) | {"seconds": seconds}


def batches(seed: int, n: int = 100_000) -> Iterator[Row]:
    """Minibatch training on many points of two regimes."""
    rng = np.random.default_rng(seed)
    X, regime = rng.uniform(-3, 3, (n, 1)), rng.integers(0, 2, n)
    f = np.where(regime == 0, np.sin(2 * X[:, 0]), 4 + 0.5 * X[:, 0])
    y = f + 0.1 * rng.standard_normal(n)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    model = DAGP(2, batch_size=1000, inducing=100, random_state=seed)
    begin = time.perf_counter()
    model.fit(X, y)
    right = float(np.mean(model.assignment_ == regime))
    yield {
        "n": n,
        "seed": seed,
        "bound_per_point": model.lower_bound_ / n,
        "accuracy": max(right, 1 - right),
        "converged": model.converged_,
        "steps": model.n_iter_,
        "seconds": time.perf_counter() - begin,
        "memory_MiB": (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 1024,
    }


EXPERIMENTS: dict[str, tuple[Callable[[int], Iterator[Row]], tuple[str, ...]]] = {
    "deep": (deep, ("layers",)),
    "depth": (depth, ("layers",)),
    "concrete": (concrete, ("task", "scheme")),
    "batches": (batches, ("n",)),
}


def write(rows: list[Row], path: Path) -> None:
    """Write all rows, with the union of their columns."""
    columns = list(dict.fromkeys(column for row in rows for column in row))
    with path.open("w", newline="") as file:
        table = csv.DictWriter(file, columns)
        table.writeheader()
        table.writerows(rows)


def summarise(rows: list[Row], by: tuple[str, ...]) -> list[str]:
    """Mean ± standard error of every column, by group."""
    lines = []
    for group in dict.fromkeys(tuple(row[key] for key in by) for row in rows):
        members = [row for row in rows if tuple(row[key] for key in by) == group]
        cells = []
        for column in members[0]:
            values = np.array([row[column] for row in members])
            if column not in (*by, "seed") and values.dtype.kind == "f":
                error = values.std(ddof=1) / np.sqrt(len(values)) if len(values) > 1 else np.nan
                cells.append(f"{column} {values.mean():.4g} ± {error:.2g}")
        lines.append(f"{', '.join(map(str, group))} ({len(members)} seeds): {'; '.join(cells)}")
    return lines


def main() -> None:
    parser = argparse.ArgumentParser(description=str(__doc__).splitlines()[0])
    parser.add_argument("experiments", nargs="+", choices=EXPERIMENTS)
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--first", type=int, default=FIRST_SEED)
    parser.add_argument("-o", "--out", type=Path, default=Path("results/inference"))
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    warnings.simplefilter("ignore")
    for name in options.experiments:
        run, by = EXPERIMENTS[name]
        rows: list[Row] = []
        for seed in range(options.first, options.first + options.seeds):
            for row in run(seed):
                rows.append(row)
                write(rows, options.out / f"{name}.csv")
                print(
                    name,
                    " ".join(
                        f"{k}={v:.4g}" if isinstance(v, float) else f"{k}={v}"
                        for k, v in row.items()
                    ),
                    flush=True,
                )
        print("\n".join(summarise(rows, by)), flush=True)


if __name__ == "__main__":
    main()
