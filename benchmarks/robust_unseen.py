"""Robust regression on data that had no part in any choice of `RobustGPR`.

    python benchmarks/robust_unseen.py --seeds 100-109 -o results/robust_unseen.jsonl
    python benchmarks/robust_unseen.py --report -o results/robust_unseen.jsonl

Kernel, clutter and candidates of `RobustGPR` were chosen on the four UCI data sets. Here are one
measured data set (diabetes, of scikit-learn: 442 rows, 10 inputs, 90 % for training) and five
engineering functions with known truth (200 rows, 200 test rows, noise of 5 % of the spread). Ten
percent of the training outputs are wrong ("uniform", "asymmetric"), or none. Test outputs are
clean. Models are those of `dagp reproduce robust`. Rows are written as they finish, seed by seed;
fits in the file are not repeated, and none begins after --stop-after seconds.
"""

import argparse
import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.datasets import load_diabetes
from sklearn.utils import Bunch

from dagp.datasets.corrupted import corrupt
from dagp.experiments.robust import ROBUST, score

Box = tuple[tuple[float, float], ...]
KINDS = ("none", "uniform", "asymmetric")
ROWS, NOISE = 200, 0.05


def borehole(x: np.ndarray) -> np.ndarray:
    """Flow of water through a borehole (Morris et al. 1993)."""
    rw, r, tu, hu, tl, hl, length, kw = x
    ratio = np.log(r / rw)
    return 2 * np.pi * tu * (hu - hl) / (ratio * (1 + tu / tl) + 2 * length * tu / (rw**2 * kw))


def piston(x: np.ndarray) -> np.ndarray:
    """Cycle time of a piston (Kenett & Zacks 1998)."""
    mass, area, volume, spring, pressure, ambient, gas = x
    force = pressure * area + 19.62 * mass - spring * volume / area
    work = spring * pressure * volume * ambient / gas
    level = area / (2 * spring) * (np.sqrt(force**2 + 4 * work) - force)
    stiff = spring + area**2 * pressure * volume * ambient / (gas * level**2)
    return 2 * np.pi * np.sqrt(mass / stiff)


def otl_circuit(x: np.ndarray) -> np.ndarray:
    """Midpoint voltage of a push-pull circuit (Ben-Ari & Steinberg 2007)."""
    b1, b2, f, c1, c2, beta = x
    base, gain = 12 * b2 / (b1 + b2), beta * (c2 + 9)
    return ((base + 0.74) * gain + 11.35 * f) / (gain + f) + 0.74 * f * gain / ((gain + f) * c1)


def friedman2(x: np.ndarray) -> np.ndarray:
    """Impedance of a circuit (Friedman 1991)."""
    a, b, c, d = x
    return np.hypot(a, b * c - 1 / (b * d))


def friedman3(x: np.ndarray) -> np.ndarray:
    """Phase of a circuit (Friedman 1991)."""
    a, b, c, d = x
    return np.arctan((b * c - 1 / (b * d)) / a)


_CIRCUIT: Box = ((0, 100), (40 * np.pi, 560 * np.pi), (0, 1), (1, 11))
FUNCTIONS: dict[str, tuple[Callable[[np.ndarray], np.ndarray], Box]] = {
    "borehole": (
        borehole,
        (
            (0.05, 0.15),
            (100, 50000),
            (63070, 115600),
            (990, 1110),
            (63.1, 116),
            (700, 820),
            (1120, 1680),
            (9855, 12045),
        ),
    ),
    "otl": (otl_circuit, ((50, 150), (25, 70), (0.5, 3), (1.2, 2.5), (0.25, 1.2), (50, 300))),
    "piston": (
        piston,
        (
            (30, 60),
            (0.005, 0.02),
            (0.002, 0.01),
            (1000, 5000),
            (90000, 110000),
            (290, 296),
            (340, 360),
        ),
    ),
    "friedman2": (friedman2, _CIRCUIT),
    "friedman3": (friedman3, _CIRCUIT),
}
SETS = (*FUNCTIONS, "diabetes")


def data(name: str, kind: str, seed: int) -> Any:
    """Training data with wrong readings, and test data without; outputs in standard units."""
    rng = np.random.RandomState(seed)
    if name == "diabetes":
        X, y = load_diabetes(return_X_y=True)
        order, count = rng.permutation(len(y)), round(0.9 * len(y))
        X, y = X[order], (y[order] - y.mean()) / y.std()
    else:
        function, box = FUNCTIONS[name]
        low, high = np.array(box, float).T
        X, count = rng.uniform(size=(2 * ROWS, len(box))), ROWS
        y = function((low + (high - low) * X).T)
        y = (y - y.mean()) / y.std()
        y[:count] += NOISE * rng.standard_normal(count)
    inputs, outputs, wrong = corrupt(X[:count], y[:count], kind, random_state=rng)  # pyright: ignore[reportArgumentType]
    return Bunch(X=inputs, y=outputs, process=wrong.astype(int), X_test=X[count:], y_test=y[count:])


def known(out: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in out.open()] if out.exists() else []


def run(out: Path, given: argparse.Namespace) -> None:
    began = time.perf_counter()
    done = {(row["variant"], row["model"], row["seed"]) for row in known(out)}
    first, _, last = given.seeds.partition("-")
    out.parent.mkdir(parents=True, exist_ok=True)
    for seed in range(int(first), int(last or first) + 1):
        for name in given.sets.split(","):
            for kind in given.kinds.split(","):
                for model in given.models.split(","):
                    late = time.perf_counter() - began > given.stop_after
                    if late or (f"{name} {kind}", model, seed) in done:
                        continue
                    own, start = data(name, kind, seed), time.process_time()
                    fitted = ROBUST.competitors[model](own, seed, False)
                    row = {"variant": f"{name} {kind}", "model": model, "seed": seed}
                    row |= {"seconds": time.process_time() - start, **score(fitted, own)}
                    with out.open("a") as file:
                        file.write(json.dumps(row, default=float) + "\n")


def report(out: Path) -> None:
    rows = known(out)
    print("| data | model | fits | MAE | NLPD | found | lost | CPU s |")
    print("|---|---|---|---|---|---|---|---|")
    for variant, model in sorted({(row["variant"], row["model"]) for row in rows}):
        cell = [row for row in rows if (row["variant"], row["model"]) == (variant, model)]

        def mean(name: str, cell: list[dict[str, Any]] = cell) -> str:
            values = [row[name] for row in cell if name in row]
            error = np.std(values, ddof=1) / np.sqrt(len(values)) if len(values) > 1 else np.nan
            return f"{np.mean(values):.4g} ± {error:.2g}" if values else ""

        seconds = np.median([row["seconds"] for row in cell])
        shown = " | ".join(mean(name) for name in ("mae", "nlpd", "found", "lost"))
        print(f"| {variant} | {model} | {len(cell)} | {shown} | {seconds:.1f} |")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--sets", default=",".join(SETS))
    parser.add_argument("--kinds", default=",".join(KINDS))
    parser.add_argument("--models", default="RobustGPR,GP,Student-t GP")
    parser.add_argument("--seeds", default="100-109", help="first and last seed")
    parser.add_argument("--stop-after", type=float, default=1e9, help="seconds")
    parser.add_argument("--out", "-o", type=Path, default=Path("results/robust_unseen.jsonl"))
    parser.add_argument("--report", action="store_true", help="only print the table")
    given = parser.parse_args()
    if not given.report:
        run(given.out, given)
    report(given.out)


if __name__ == "__main__":
    main()
