"""Recovery rate and accuracy of the association with default settings.

    python benchmarks/recovery.py multimodal noise cartpole harder --seeds 10 -o results/recovery
    python benchmarks/recovery.py sheets --seeds 20
    python benchmarks/recovery.py turbine --seeds 3
    python benchmarks/recovery.py missing --seeds 20

Writes one row per fit to ``<out>/<experiment>.csv`` and a table of medians and rates to
``<out>/<experiment>.md``. Seeds begin at 100; smaller ones are reserved for tuning.
"""

import argparse
import csv
import functools
import itertools
import time
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import sheets
from sklearn.metrics import adjusted_rand_score
from sklearn.utils import Bunch

from dagp import DAGP, GP, Noise, Uniform, datasets, fixed
from dagp.experiments.cartpole import scores
from dagp.experiments.experiment import rmse
from dagp.experiments.noise import Oracle, score

FIRST_SEED = 100
Row = dict[str, Any]


def timed_fit(model: DAGP, X: np.ndarray, y: np.ndarray) -> tuple[DAGP, float]:
    begin = time.perf_counter()
    model.fit(X, y)
    return model, time.perf_counter() - begin


def multimodal(seed: int) -> Iterator[Row]:
    """Structure recovery; `oracle_ari` is that of assignment by the true functions."""
    for noise in (0.005, 0.05):
        data = datasets.multimodal(noise=noise, random_state=seed)
        x = data.X[:, 0]
        exact = datasets.multimodal(noise=0.0, offset=_level(noise), random_state=seed)
        truth = exact.y.reshape(3, -1)
        truth = np.tile(truth, 3)
        middle = (x > 0) & (x < 5)
        oracle = np.argmin(np.abs(data.y - truth), axis=0)
        model, seconds = timed_fit(DAGP(4, random_state=seed), data.X, data.y)
        left, centre = -np.sort(-model.predict_assignment([[-4.0], [2.0]]))
        share = np.bincount(model.assignment_, minlength=4) / len(x)
        row = {
            "noise": noise,
            "seed": seed,
            "processes": int(np.sum(share > 0.01)),
            "reported": int(model.active_.sum()),
            "ari": adjusted_rand_score(data.process[middle], model.assignment_[middle]),
            "oracle_ari": adjusted_rand_score(data.process[middle], oracle[middle]),
            "gate": bool(
                np.all(np.abs(left[:2] - [2 / 3, 1 / 3]) < 0.07)
                and np.all(np.abs(centre[:3] - 1 / 3) < 0.07)
            ),
            "bound": model.lower_bound_,
            "seconds": seconds,
        }
        structure = row["processes"] == 3 and row["gate"]
        row["recovered"] = structure and row["ari"] >= 0.95
        row["recovered_vs_oracle"] = structure and row["ari"] >= min(0.95, row["oracle_ari"] - 0.05)
        yield row


def _level(noise: float) -> float:
    return -1.0 if noise < 0.05 else -2.25


def noise(seed: int) -> Iterator[Row]:
    """Signal against outliers; `oracle_*` is an exact GP trained on the true inliers."""
    for level in (0.15, 0.0):
        for outliers in (0.0, 0.2, 0.4, 0.6, 0.8):
            data = datasets.noise_separation(outliers, noise=level, random_state=seed)
            model, seconds = timed_fit(
                DAGP(processes=[GP(), Noise()], random_state=seed), data.X, data.y
            )
            signal = model.processes_[0].predict(data.X_test)
            mixture = model.predict_mixture(data.X_test, noise=False)
            wrong = model.assignment_ != data.process
            row = {
                "noise": level,
                "outliers": outliers,
                "seed": seed,
                "rmse": rmse(signal, data.y_test),
                "mll": float(np.mean(mixture.log_prob(data.y_test))),
                "accuracy": float(1 - wrong.mean()),
                "lost": int(np.sum(wrong & (data.process == 0))),
                "absorbed": int(np.sum(wrong & (data.process == 1))),
                "noise_std": float(model.processes_[0].noise_std_[0]),
                "seconds": seconds,
            }
            if level > 0:
                row.update(noise_oracle(data, outliers))
                row["rmse_ratio"] = row["rmse"] / row["oracle_rmse"]
            yield row


def noise_oracle(data: Any, outliers: float) -> Row:
    known = score(Oracle(data), Bunch(**data, outliers=outliers))
    return {f"oracle_{name}": value for name, value in known.items()}


def informed(seed: int) -> Iterator[Row]:
    """Noisy separation with everything known except the labels.

    Noise level and density of the clutter are fixed at the truth, and its share is constant. Where
    this model is as far from the oracle, which has the labels, as the default one, the default
    cannot be improved.
    """
    for outliers in (0.4, 0.6, 0.8):
        data = datasets.noise_separation(outliers, random_state=seed)
        oracle = noise_oracle(data, outliers)["oracle_rmse"]
        knowing = DAGP(
            processes=[GP(noise_std=fixed(0.15)), Uniform(-1.0, 3.0)],
            gate="constant",
            random_state=seed,
        )
        row: Row = {"outliers": outliers, "seed": seed, "oracle_rmse": oracle}
        default = DAGP(processes=[GP(), Noise()], random_state=seed)
        for name, model in (("informed", knowing), ("default", default)):
            model.fit(data.X, data.y)
            error = rmse(np.asarray(model.processes_[0].predict(data.X_test)), data.y_test)
            row[f"{name}_ratio"] = error / oracle
        yield row


def cartpole(seed: int) -> Iterator[Row]:
    """Two cart-poles without labels; scores are mean log likelihoods in the units of the data."""
    data = datasets.cartpole(random_state=seed)
    model, seconds = timed_fit(DAGP(2, random_state=seed), data.X, data.y)
    row = {"seed": seed} | scores(model, data) | {"seconds": seconds}
    for name, process in (("default", 0), ("short", 1)):
        at = data.process_test == process
        # The oracle has the labels: one process, trained on this system only.
        mine = data.process == process
        knowing = DAGP(1, random_state=seed).fit(data.X[mine], data.y[mine])
        row[f"oracle_{name}"] = knowing.log_score(data.X_test[at], data.y_test[at])
    yield row


HARDER: dict[str, tuple[Callable[..., Any], dict[str, Any]]] = {
    **{
        f"{K} curves, {times} crossings": (
            functools.partial(datasets.crossings, K, times),
            {"n_processes": K},
        )
        for K, times in itertools.product((2, 3, 4, 5), (1, 3, 5))
    },
    "switch": (datasets.switch, {"n_processes": 2}),
    "heteroscedastic": (datasets.heteroscedastic, {"n_processes": 2}),
    "sheets": (datasets.sheets, {"n_processes": 2}),
    "rare": (datasets.rare, {"n_processes": 2}),
    "trajectories": (datasets.trajectories, {"processes": [GP(), GP(), GP(), Noise()]}),
}


def harder(seed: int) -> Iterator[Row]:
    """Harder tasks than the paper's; the Rand index is taken over separable points."""
    for task, (draw, settings) in HARDER.items():
        data = draw(random_state=seed)
        model, seconds = timed_fit(DAGP(**settings, random_state=seed), data.X, data.y)
        at = data.separable
        ari = adjusted_rand_score(data.process[at], model.assignment_[at])
        yield {
            "task": task,
            "seed": seed,
            "ari": ari,
            "bound": model.lower_bound_,
            "seconds": seconds,
            "recovered": bool(ari >= 0.95),
        }


def several(seed: int) -> Iterator[Row]:
    """Smooth functions of several inputs; `gap` is the bound minus that of the start at the truth.

    The Rand index is taken over the rows that can be told apart. Five inputs: first ten seeds only.
    """
    for cell, draw in sheets.CELLS.items():
        if cell.startswith("5") and seed % 100 >= 10:
            continue
        data = draw(seed)
        begin = time.perf_counter()
        model = data.model(random_state=seed)
        warned = sheets.warned_fit(model, data.X, data.y)
        seconds = time.perf_counter() - begin
        gap = model.lower_bound_ - sheets.from_truth(data, seed).lower_bound_
        ari = data.score(model)
        yield {
            "task": cell,
            "seed": seed,
            "ari": ari,
            "gap": gap,
            "confidence": model.confidence_,
            "seconds": seconds,
            "apart": bool(ari >= sheets.TOLD_APART),
            "as_high": bool(gap >= -3.0),
            "warned": warned,
        }


TURBINES: dict[str, Callable[[], list[Any]]] = {
    "two functions": lambda: [GP(), GP(), Noise()],
    "three, one heteroscedastic": lambda: [GP(noise_gp=GP()), GP(), GP(), Noise()],
}


def turbine(seed: int) -> Iterator[Row]:
    """A year of a turbine: share of the separable rows that are in the main process of theirs."""
    data = datasets.turbine(random_state=seed)
    for name, processes in TURBINES.items():
        model = DAGP(processes=processes(), random_state=seed)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)
            model, seconds = timed_fit(model, data.X, data.y)
        row: Row = {"model": name, "seed": seed}
        main = []
        for state, process in (("healthy", 0), ("downtime", 1)):
            at = data.separable & (data.process == process)
            held = np.bincount(model.assignment_[at], minlength=len(model.processes_))
            main.append(held.argmax())
            row[state] = held.max() / held.sum()
        own = main[0] != main[1] and model.processes_[main[1]].kind != "Noise"
        row["recovered"] = bool(own and row["healthy"] >= 0.95 and row["downtime"] >= 0.97)
        yield row | {"bound": model.lower_bound_, "seconds": seconds}


def missing(seed: int) -> Iterator[Row]:
    """Several outputs with 30 % of the cells missing at random, beside the complete data; the Rand
    index is taken over the rows that have a cell left. `oracle_ari` is that of assignment by the
    true functions, given these cells: what is lost to it could not be known."""
    for inputs, outputs, processes in ((1, 2, 2), (1, 3, 3), (2, 3, 2)):
        rng = np.random.default_rng([seed, inputs, outputs])
        X, process = rng.uniform(-1, 1, (400, inputs)), rng.integers(0, processes, 400)
        draws = [sheets.smooth(X, 0.8 * inputs**0.5, rng) for _ in range(processes * outputs)]
        functions = np.reshape(draws, (processes, outputs, 400)).transpose(0, 2, 1)
        y = functions[process, np.arange(400)]
        y += 0.1 * rng.standard_normal(y.shape)
        holed = np.where(rng.random(y.shape) < 0.3, np.nan, y)
        there = ~np.isnan(holed).all(axis=1)
        row: Row = {"task": f"{inputs} inputs, {outputs} outputs, {processes} processes"}
        row["seed"] = seed
        for name, given in (("complete", y), ("holed", holed)):
            model = DAGP(processes, missing="drop", random_state=seed)
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", UserWarning)
                model, row[f"{name}_seconds"] = timed_fit(model, X, given)
            row[f"{name}_ari"] = adjusted_rand_score(process[there], model.assignment_[there])
        nearest = np.nansum((holed - functions) ** 2, axis=2).argmin(axis=0)
        row["oracle_ari"] = adjusted_rand_score(process[there], nearest[there])
        yield row


EXPERIMENTS: dict[str, tuple[Callable[[int], Iterator[Row]], tuple[str, ...]]] = {
    "multimodal": (multimodal, ("noise",)),
    "noise": (noise, ("noise", "outliers")),
    "informed": (informed, ("outliers",)),
    "cartpole": (cartpole, ()),
    "harder": (harder, ("task",)),
    "sheets": (several, ("task",)),
    "turbine": (turbine, ("model",)),
    "missing": (missing, ("task",)),
}


def table(rows: list[Row], groups: tuple[str, ...]) -> str:
    """Medians, or rates of booleans, one line per group."""
    columns = [c for c in max(rows, key=len) if c not in (*groups, "seed")]
    lines = ["| " + " | ".join([*groups, "fits", *columns]) + " |"]
    lines.append("|" + "---|" * (len(groups) + 1 + len(columns)))
    for key in dict.fromkeys(tuple(row[g] for g in groups) for row in rows):
        some = [row for row in rows if tuple(row[g] for g in groups) == key]
        cells = [str(k) for k in key] + [str(len(some))]
        lines.append("| " + " | ".join(cells + [_cell(some, c) for c in columns]) + " |")
    return "\n".join(lines) + "\n"


def _cell(rows: list[Row], column: str) -> str:
    values = [row[column] for row in rows if column in row]
    if not values:
        return ""
    if isinstance(values[0], bool):
        return f"{sum(values)}/{len(values)}"
    return f"{np.median(values):.4g}"


def write(rows: list[Row], groups: tuple[str, ...], out: Path, name: str) -> None:
    """Write all rows so far, so that an interrupted run loses nothing."""
    with (out / f"{name}.csv").open("w", newline="") as file:
        writer = csv.DictWriter(file, list(max(rows, key=len)))
        writer.writeheader()
        writer.writerows(rows)
    (out / f"{name}.md").write_text(table(rows, groups))


def main() -> None:
    parser = argparse.ArgumentParser(description=str(__doc__).splitlines()[0])
    parser.add_argument("experiments", nargs="+", choices=EXPERIMENTS)
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--first", type=int, default=FIRST_SEED)
    parser.add_argument("-o", "--out", type=Path, default=Path("results/recovery"))
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    for name in options.experiments:
        run, groups = EXPERIMENTS[name]
        rows: list[Row] = []
        for seed in range(options.first, options.first + options.seeds):
            for row in run(seed):
                rows.append(row)
                write(rows, groups, options.out, name)
                cells = (
                    f"{k}={v:.4g}" if isinstance(v, float) else f"{k}={v}" for k, v in row.items()
                )
                print(name, *cells, flush=True)
        print(table(rows, groups))


if __name__ == "__main__":
    main()
