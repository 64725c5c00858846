"""Held-out log density on measured data: DAGP, one GP, and a Gaussian mixture of (x, y).

    python benchmarks/real.py --data FOLDER -o results/real

The folder holds ``freeway_lane2.csv`` (flow, speed; R package hdrcde) and ``tonedata.csv``
(stretchratio, tuned; R package fpc). The score is the mean log density of held-out outputs in the
units of the data, over five folds per seed. Writes one row per fit to ``<out>/real.csv``, tables to
``<out>/real.md`` and, for the first model of each data set, a figure of the fit to all data.
Seeds begin at 100; smaller ones are reserved for tuning.
"""

import argparse
import csv
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import matplotlib.pyplot as plt
import numpy as np
from scipy.special import logsumexp
from scipy.stats import multivariate_normal, norm
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.gaussian_process.kernels import RBF, ConstantKernel, WhiteKernel
from sklearn.mixture import GaussianMixture
from sklearn.model_selection import KFold

from dagp import DAGP, GP, Noise, plot

FIRST_SEED = 100
FOLDS = 5
Row = dict[str, Any]
Density = Callable[[np.ndarray, np.ndarray], np.ndarray]
Fit = Callable[[np.ndarray, np.ndarray, int], Density]


class Source(NamedTuple):
    """A file with one input and one output, and the models to fit."""

    file: str
    columns: tuple[str, str]
    models: dict[str, DAGP]

    def read(self, folder: Path) -> tuple[np.ndarray, np.ndarray]:
        table = np.genfromtxt(folder / self.file, delimiter=",", names=True)
        return table[self.columns[0]][:, None], table[self.columns[1]]


SOURCES = {
    "freeway": Source(
        "freeway_lane2.csv",
        ("flow", "speed"),
        {"DAGP(2)": DAGP(2), "DAGP(3)": DAGP(3)},
    ),
    "tonedata": Source(
        "tonedata.csv",
        ("stretchratio", "tuned"),
        {
            "DAGP([GP, GP, Noise])": DAGP(processes=[GP(), GP(), Noise()]),
            "DAGP(2)": DAGP(2),
        },
    ),
}


def separated(model: DAGP) -> Fit:
    """Fit of a DAGP model, returning its log density."""

    def fit(X: np.ndarray, y: np.ndarray, seed: int) -> Density:
        return DAGP(**{**model.get_params(), "random_state": seed}).fit(X, y).score_samples

    return fit


def single_gp(X: np.ndarray, y: np.ndarray, seed: int) -> Density:
    """One exact GP on standardised data; hyperparameters are the best of three runs."""
    centre, unit = X.mean(axis=0), X.std(axis=0)
    kernel = ConstantKernel() * RBF(1.0, (1e-2, 1e2)) + WhiteKernel(0.1, (1e-6, 1e1))
    model = GaussianProcessRegressor(
        kernel, normalize_y=True, n_restarts_optimizer=2, random_state=seed
    ).fit((X - centre) / unit, y)

    def density(X: np.ndarray, y: np.ndarray) -> np.ndarray:
        mean, std = model.predict((X - centre) / unit, return_std=True)
        return norm.logpdf(y, mean, std)

    return density


def joint_mixture(X: np.ndarray, y: np.ndarray, seed: int) -> Density:
    """Gaussian mixture of (x, y) on standardised data, its size selected by BIC, given x."""
    pairs = np.column_stack([X, y])
    centre, unit = pairs.mean(axis=0), pairs.std(axis=0)
    pairs = (pairs - centre) / unit
    models = [GaussianMixture(k, n_init=5, random_state=seed).fit(pairs) for k in range(1, 9)]
    best = min(models, key=lambda model: model.bic(pairs))
    inputs = [
        multivariate_normal(mean[:-1], covariance[:-1, :-1])
        for mean, covariance in zip(best.means_, best.covariances_, strict=True)
    ]

    def density(X: np.ndarray, y: np.ndarray) -> np.ndarray:
        pairs = (np.column_stack([X, y]) - centre) / unit
        alone = [normal.logpdf(pairs[:, :-1]).reshape(len(pairs)) for normal in inputs]
        marginal = logsumexp(np.stack(alone, axis=1), b=best.weights_, axis=1)
        return best.score_samples(pairs) - marginal - np.log(unit[-1])

    return density


BASELINES: dict[str, Fit] = {"single GP": single_gp, "joint mixture": joint_mixture}


def cross_validated(source: Source, X: np.ndarray, y: np.ndarray, seed: int) -> Iterator[Row]:
    """One row per fold and model."""
    fits: dict[str, Fit] = {name: separated(model) for name, model in source.models.items()}
    fits |= BASELINES
    folds = KFold(FOLDS, shuffle=True, random_state=seed)
    for fold, (train, test) in enumerate(folds.split(X)):
        for name, fit in fits.items():
            begin = time.perf_counter()
            density = fit(X[train], y[train], seed)
            seconds = time.perf_counter() - begin
            score = float(np.mean(density(X[test], y[test])))
            yield {"model": name, "seed": seed, "fold": fold, "score": score, "seconds": seconds}


def draw(source: Source, X: np.ndarray, y: np.ndarray, seed: int, path: Path) -> str:
    """Fit all data with the first model, save its figure, and return its summary."""
    name, model = next(iter(source.models.items()))
    begin = time.perf_counter()
    model.set_params(random_state=seed).fit(X, y)
    seconds = time.perf_counter() - begin
    axes = plot.overview(model, X, y)
    for ax, label in zip(axes, (source.columns[1], source.columns[1], "gate weight"), strict=True):
        ax.set_ylabel(label)
    axes[-1].set_xlabel(source.columns[0])
    axes[0].figure.savefig(path, dpi=80)
    plt.close(axes[0].figure)
    return f"{name}, all data, {seconds:.1f} s:\n\n```\n{model.summary()}\n```\n"


def table(rows: list[Row]) -> str:
    """Means and standard errors over the folds; differences are paired by fold."""
    names = list(dict.fromkeys(row["model"] for row in rows))
    scores = {n: np.array([row["score"] for row in rows if row["model"] == n]) for n in names}
    lines = ["| model | log density | " + " | ".join(f"lead over {b}" for b in BASELINES)]
    lines[0] += " | folds ahead of both | seconds |"
    lines.append("|" + "---|" * (len(BASELINES) + 4))
    for name, values in scores.items():
        leads = [values - scores[baseline] for baseline in BASELINES]
        ahead = f"{np.sum(np.min(leads, axis=0) > 0)} of {len(values)}"
        ahead = "" if name in BASELINES else ahead
        seconds = np.median([row["seconds"] for row in rows if row["model"] == name])
        cells = [name, _mean_and_error(values), *map(_mean_and_error, leads), ahead]
        lines.append("| " + " | ".join(cells) + f" | {seconds:.1f} |")
    return "\n".join(lines) + "\n"


def _mean_and_error(values: np.ndarray) -> str:
    error = values.std(ddof=1) / np.sqrt(len(values))
    return f"{values.mean():.3f} ± {error:.3f}" if error > 0 else ""


def main() -> None:
    parser = argparse.ArgumentParser(description="Held-out log density on measured data.")
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--seeds", type=int, default=2)
    parser.add_argument("--first", type=int, default=FIRST_SEED)
    parser.add_argument("-o", "--out", type=Path, default=Path("results/real"))
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    everything: list[Row] = []
    report = []
    for name, source in SOURCES.items():
        X, y = source.read(options.data)
        rows: list[Row] = []
        for seed in range(options.first, options.first + options.seeds):
            for row in cross_validated(source, X, y, seed):
                rows.append(row)
                print(name, *row.values(), flush=True)
        everything += [{"data": name, **row} for row in rows]
        summary = draw(source, X, y, options.first, options.out / f"{name}.png")
        report.append(f"## {name}, {len(y)} rows\n\n{table(rows)}\n{summary}")
        print(report[-1], flush=True)
    with (options.out / "real.csv").open("w", newline="") as file:
        writer = csv.DictWriter(file, list(everything[0]))
        writer.writeheader()
        writer.writerows(everything)
    (options.out / "real.md").write_text("\n".join(report))


if __name__ == "__main__":
    main()
