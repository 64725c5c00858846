"""Calibration of predictive uncertainty: data drawn from the model's prior, default settings.

    python benchmarks/calibration.py --seeds 200 --first 100 --jobs 1 -o results/calibration
    python benchmarks/calibration.py --report -o results/calibration

The first command fits. Rows already in ``<out>/draws.csv`` are not computed again: an interrupted
run resumes, and ranges of seeds may be run one after the other. The second one writes tables and
figure from the rows there are; it needs matplotlib, fitting does not. Seeds begin at 100; smaller
ones are reserved for tuning.

Each draw is fitted four times, to separate the sources of error:

fitted        default settings in one call, as a user would
start         default settings, initialised at the true labels: without errors of the search
parameters    true hyperparameters, initialised at the true labels: without point estimates
labels        true hyperparameters and labels of the training points: the oracle

``--fits fitted`` makes one of them only, and ``--posterior best`` takes the hyperparameters of each
fit as known; ``--compare`` writes what averaging over them changes, to ``compared.md``:

    python benchmarks/calibration.py --posterior averaged --fits fitted -o results/averaged
    python benchmarks/calibration.py --compare results/calibration -o results/averaged

``--several-inputs`` draws functions of two and three inputs only.
"""

import argparse
import csv
import os
import time
import warnings
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
from calibration_report import compared, report
from joblib import Parallel, delayed
from prior_draws import SEVERAL_INPUTS, STRUCTURES, Draw, Part, Structure, draw
from scipy.optimize import linear_sum_assignment
from scipy.stats import kstest, norm

from dagp import DAGP, Mixture

FIRST_SEED = 100
LEVELS = (0.5, 0.8, 0.95)
PIT_BINS = 20
RELIABILITY_BINS = 10
POOLED = -1
"""In place of a seed where bins are summed over draws."""
SUMS = ("n", "predicted", "actual")
Row = dict[str, Any]
Array = np.ndarray


def fits(data: Draw, seed: int, posterior: str) -> Iterator[tuple[str, Callable[[], DAGP]]]:
    """Names of the fits, and functions that run them."""
    X, y, label = data.train[:3]
    common = {"random_state": seed, "posterior": posterior}

    def begun_at_the_truth(model: DAGP) -> DAGP:
        model.set_params(warm_start=True, n_init=1, **common)
        return model.fit(X, y, labels=label).fit(X, y)

    yield "fitted", lambda: data.default().set_params(**common).fit(X, y)
    if data.structure.processes > 1:
        yield "start", lambda: begun_at_the_truth(data.default(known_shape=True))
        yield "parameters", lambda: begun_at_the_truth(data.truth.known())
    labelled = data.truth.known().set_params(n_init=1, **common)
    yield "labels", lambda: labelled.fit(X, y, labels=label)


def matched(model: DAGP, data: Draw) -> Array:
    """The fitted process of each true one, matched by shared points; clutter by its position."""
    K = data.structure.functions
    truth = np.eye(data.structure.processes)[data.train.label]
    common = truth.T @ model.responsibilities_
    _, columns = linear_sum_assignment(-common[:K, :K])
    return np.append(columns, K) if data.structure.clutter else columns


def coverage(mixture: Mixture, y: Array) -> Row:
    """Coverage of the outputs by central intervals and highest-density regions."""
    row: Row = {}
    for level in LEVELS:
        low, high = mixture.interval(level)
        row[f"interval_{level:.0%}"] = float(np.mean((low <= y) & (y <= high)))
        regions = mixture.hdr(level)
        inside = [any(a <= v <= b for a, b in some) for some, v in zip(regions, y, strict=True)]
        row[f"hdr_{level:.0%}"] = float(np.mean(inside))
    return row


def function_coverage(model: DAGP, order: Array, part: Part) -> Row:
    """Coverage of the true functions by the intervals of their processes."""
    z = []
    for truth, k in zip(part.functions, order, strict=False):
        mean, std = model.processes_[k].predict(part.X, return_std=True)
        z.append((truth - mean) / std)
    inside = {level: np.abs(z) <= norm.ppf(0.5 + level / 2) for level in LEVELS}
    # Away from its own points a function is determined by the prior only.
    own = part.label == np.arange(len(z))[:, None]
    row: Row = {f"function_{level:.0%}": float(hit.mean()) for level, hit in inside.items()}
    if own.any():
        row |= {f"own_{level:.0%}": float(hit[own].mean()) for level, hit in inside.items()}
    return row


def label_scores(shares: Array, label: Array) -> Row:
    """Mean confidence in the most probable process, its accuracy, and the log loss."""
    best = shares.argmax(axis=1)
    own = shares[np.arange(len(label)), label]
    return {
        "claimed": float(shares.max(axis=1).mean()),
        "right": float(np.mean(best == label)),
        "loss": float(-np.mean(np.log(np.maximum(own, 1e-12)))),
    }


def bins(name: str, values: Array, happened: Array, count: int) -> Iterator[Row]:
    """Reliability bins: sums of predicted probabilities and of events."""
    place = np.minimum((values * count).astype(int), count - 1).ravel()
    sums = [np.bincount(place, w, count) for w in (None, values.ravel(), happened.ravel())]
    for index, (n, predicted, actual) in enumerate(zip(*sums, strict=True)):
        if n:
            yield {"what": name, "bin": index, "n": n, "predicted": predicted, "actual": actual}


def error(rows: Iterable[Row]) -> float:
    """Expected calibration error."""
    table = np.array([(row["n"], row["predicted"], row["actual"]) for row in rows])
    return float(np.abs(table[:, 1] - table[:, 2]).sum() / table[:, 0].sum())


def score(model: DAGP, data: Draw) -> tuple[Row, list[Row]]:
    """One row of scores, and the bins of its histograms."""
    test, K = data.test, data.structure.processes
    order = matched(model, data)
    mixture = model.predict_mixture(test.X)
    pit = mixture.cdf(test.y)
    row: Row = {
        "bound": model.lower_bound_,
        "log_density": float(np.mean(mixture.log_prob(test.y))),
        "pit_distance": float(kstest(pit, "uniform").statistic),
        **coverage(mixture, test.y),
        **function_coverage(model, order, test),
    }
    histograms = list(bins("pit", pit, np.zeros_like(pit), PIT_BINS))
    if K == 1:
        return row, histograms
    said = {
        "test": (mixture.responsibilities(test.y), test.label),
        "gate": (model.predict_assignment(test.X), test.label),
        "training": (model.responsibilities_, data.train.label),
        "asked": (model.responsibilities(data.train.X, data.train.y), data.train.label),
    }
    for name, (shares, label) in said.items():
        shares = shares[:, order]
        some = list(bins(name, shares, np.eye(K)[label], RELIABILITY_BINS))
        scores = label_scores(shares, label) | {"error": error(some)}
        row |= {f"{name}_{key}": value for key, value in scores.items()}
        histograms += some
    return row, histograms


def run(
    seed: int,
    names: tuple[str, ...] = (),
    posterior: str = "best",
    structures: tuple[Structure, ...] = STRUCTURES,
) -> tuple[list[Row], list[Row]]:
    """All fits of one draw."""
    warnings.simplefilter("ignore")  # Warnings about single fits: every fit is scored.
    data = draw(seed, structures=structures)
    head = {"seed": seed, "structure": str(data.structure), "n": len(data.train.y)}
    rows, histograms = [], []
    for name, fit in fits(data, seed, posterior):
        if names and name not in names:
            continue
        begin = time.perf_counter()
        model = fit()
        seconds = time.perf_counter() - begin
        row, some = score(model, data)
        rows.append(head | {"fit": name} | row | {"seconds": seconds})
        histograms += [{"seed": seed, "fit": name, **bin} for bin in some]
    return rows, histograms


def pooled(histograms: Iterable[Row]) -> list[Row]:
    """Bins summed over draws, which is all the report needs."""
    sums: dict[tuple[str, str, int], Array] = {}
    for row in histograms:
        key = (row["fit"], row["what"], int(row["bin"]))
        sums[key] = sums.get(key, 0) + np.array([float(row[k]) for k in SUMS])
    return [
        dict(zip(("seed", "fit", "what", "bin", *SUMS), (POOLED, *key, *values), strict=True))
        for key, values in sorted(sums.items())
    ]


def read(path: Path) -> list[Row]:
    """Rows of a CSV file; none if there is no file."""
    if not path.exists():
        return []
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


def write(rows: list[Row], path: Path) -> None:
    """Write all rows atomically, to eight digits: an interrupted run leaves a complete file."""
    rows = sorted(rows, key=lambda row: int(row["seed"]))
    draft = path.with_suffix(".tmp")
    with draft.open("w", newline="") as file:
        table = csv.DictWriter(file, list(dict.fromkeys(key for row in rows for key in row)))
        table.writeheader()
        table.writerows({key: _short(value) for key, value in row.items()} for row in rows)
    draft.replace(path)


def _short(value: Any) -> Any:
    return f"{value:.8g}" if isinstance(value, float) else value


def compute(
    seeds: Iterable[int],
    jobs: int,
    out: Path,
    names: tuple[str, ...] = (),
    posterior: str = "best",
    structures: tuple[Structure, ...] = STRUCTURES,
) -> None:
    """Fit the missing draws, and write the results after each."""
    out.mkdir(parents=True, exist_ok=True)
    rows, histograms = read(out / "draws.csv"), read(out / "bins.csv")
    known = {int(row["seed"]) for row in rows}
    # Bins are written first, so an interrupted run may have left some without their rows.
    histograms = pooled(row for row in histograms if int(row["seed"]) in known | {POOLED})
    missing = [seed for seed in seeds if seed not in known]
    if jobs > 1:
        # Read by the workers at start: one computing thread each.
        os.environ["NPROC"] = "1"
    # loky starts fresh interpreters: a process forked after JAX has started hangs.
    pool: Any = Parallel(n_jobs=jobs, backend="loky", return_as="generator_unordered")
    for more, some in pool(delayed(run)(seed, names, posterior, structures) for seed in missing):
        # The bins of a draw keep their seed until its rows are written; see above.
        write(histograms + some, out / "bins.csv")
        write(rows := rows + more, out / "draws.csv")
        write(histograms := pooled(histograms + some), out / "bins.csv")
        best = more[0]
        print(
            *(best[key] for key in ("seed", "structure")),
            f"interval_95%={best['interval_95%']:.3f} log_density={best['log_density']:.3f}",
            f"seconds={sum(row['seconds'] for row in more):.1f}",
            flush=True,
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=str(__doc__).splitlines()[0])
    parser.add_argument("--seeds", type=int, default=200)
    parser.add_argument("--first", type=int, default=FIRST_SEED)
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--report", action="store_true", help="only tables and figure, no fits")
    parser.add_argument("-o", "--out", type=Path, default=Path("results/calibration"))
    parser.add_argument("--posterior", choices=("averaged", "best"), default="best")
    parser.add_argument("--fits", nargs="*", default=[], help="some of the four; default all")
    parser.add_argument("--several-inputs", action="store_true", help="two and three inputs only")
    parser.add_argument("--compare", type=Path, help="folder of other results; no fits")
    options = parser.parse_args()
    seeds = range(options.first, options.first + options.seeds)
    if options.compare is not None:
        compared(read(options.out / "draws.csv"), read(options.compare / "draws.csv"), options.out)
    elif options.report:
        report(read(options.out / "draws.csv"), read(options.out / "bins.csv"), options.out)
    else:
        structures = SEVERAL_INPUTS if options.several_inputs else STRUCTURES
        names = tuple(options.fits)
        compute(seeds, options.jobs, options.out, names, options.posterior, structures)


if __name__ == "__main__":
    main()
