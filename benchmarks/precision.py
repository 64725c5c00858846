"""Accuracy of single precision: the same fits in float32 and float64.

    python benchmarks/precision.py --seeds 5 --jobs 2 -o results/precision.json

Data of the paper's three experiments, seeds from 100. Accuracy is the share of training points
assigned to the true process (up to a permutation), the log density is that of fresh data, and the
differences are float32 minus float64 on the same data and seed.
"""

import argparse
import json
import statistics
import time
import warnings
from pathlib import Path
from typing import Any

import numpy as np
from joblib import Parallel, delayed
from recovery import FIRST_SEED
from scipy.optimize import linear_sum_assignment

from dagp import DAGP, GP, Noise, datasets

TASKS: dict[str, Any] = {
    "multimodal": (lambda seed: datasets.multimodal(random_state=seed), {"n_processes": 4}),
    "noise": (
        lambda seed: datasets.noise_separation(0.4, random_state=seed),
        {"processes": [GP(), Noise()]},
    ),
    "cart-pole": (lambda seed: datasets.cartpole(random_state=seed), {"n_processes": 2}),
}
DTYPES = ("float64", "float32")


def accuracy(found: np.ndarray, true: np.ndarray) -> float:
    """Share of points assigned to the true process, under the best permutation."""
    table = np.zeros((found.max() + 1, true.max() + 1))
    np.add.at(table, (found, true), 1)
    return float(table[linear_sum_assignment(-table)].sum() / len(true))


def fitted(task: str, seed: int, dtype: str) -> dict[str, Any]:
    """One fit and its scores."""
    make, settings = TASKS[task]
    data, fresh = make(seed), make(seed + 10_000)
    began = time.perf_counter()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model = DAGP(**settings, dtype=dtype, random_state=seed).fit(data.X, data.y)
        density = float(model.score_samples(fresh.X, fresh.y).mean())
    return {
        "task": task,
        "seed": seed,
        "dtype": dtype,
        "accuracy": accuracy(model.assignment_, np.asarray(data.process)),
        "log_density": density,
        "seconds": round(time.perf_counter() - began, 1),
    }


def compared(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Means of both, and mean and largest difference of pairs."""
    table = []
    for task in dict.fromkeys(row["task"] for row in rows):
        line: dict[str, Any] = {"task": task}
        for score in ("accuracy", "log_density"):
            wide, narrow = (
                [r[score] for r in rows if r["task"] == task and r["dtype"] == dtype]
                for dtype in DTYPES
            )
            gaps = [b - a for a, b in zip(wide, narrow, strict=True)]
            line |= {
                score: {
                    "float64": round(statistics.mean(wide), 4),
                    "float32": round(statistics.mean(narrow), 4),
                    "difference": round(statistics.mean(gaps), 4),
                    "largest": round(max(gaps, key=abs), 4),
                }
            }
        table.append(line | {"seeds": len(wide)})
    return table


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("-o", "--out", type=Path, required=True)
    asked = parser.parse_args()
    seeds = range(FIRST_SEED, FIRST_SEED + asked.seeds)
    cases = [(t, s, d) for t in TASKS for s in seeds for d in DTYPES]
    rows = Parallel(asked.jobs)(delayed(fitted)(*case) for case in cases)
    result = {"compared": compared(rows), "rows": rows}
    asked.out.write_text(json.dumps(result, indent=2) + "\n")
    print(json.dumps(result["compared"], indent=2))


if __name__ == "__main__":
    main()
