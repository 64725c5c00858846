"""Tables and figure of `calibration.py`: coverage, PIT, reliability and log density."""

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import numpy as np
from prior_draws import STRUCTURES, TEST_POINTS

LEVELS = ("50%", "80%", "95%")
FITS = ("fitted", "start", "parameters", "labels")
SAID = {
    "test": "`responsibilities(X, y)`, new points",
    "gate": "`predict_assignment(X)`, new points",
    "training": "`responsibilities_`, training points",
    "asked": "`responsibilities(X, y)`, training points",
}
FAILED = 3.0
"""A search has failed if starting at the true labels gives an ELBO this much higher (20 to 1)."""
LESS_ACCURATE = 0.02
"""An association is wrong if it is right about a share of the training points smaller by this than
that of the model that is given the hyperparameters."""
COMPARED = {
    **{f"own_{level}": f"{level} bands, at own points" for level in LEVELS},
    "function_95%": "95% bands, everywhere",
    "interval_95%": "95% intervals of observations",
    "log_density": "log density",
    "test_claimed": "responsibilities of new points: claimed",
    "test_right": "… right",
    "test_loss": "… log loss",
    "gate_loss": "log loss of `predict_assignment`",
    "seconds": "seconds of a fit",
}
Row = dict[str, Any]
Array = np.ndarray


def report(rows: list[Row], bins: list[Row], out: Path) -> None:
    """Write ``calibration.md`` and ``calibration.png``."""
    if not rows:
        raise SystemExit(f"{out / 'draws.csv'} holds no draws; fit some first, without --report.")
    draws = len({row["seed"] for row in rows})
    text = [f"# Calibration, {draws} draws\n"]
    for title, table in (
        ("Observations inside their intervals", observations(rows)),
        ("Functions inside their intervals", functions(rows)),
        ("Right and wrong associations", associations(rows)),
        ("Probabilities of the processes", probabilities(rows, bins)),
        ("Log density of new points, compared with the oracle", densities(rows)),
    ):
        text.append(f"## {title}\n\n{table}")
    (out / "calibration.md").write_text("\n".join(text))
    figure(rows, bins, out / "calibration.png")


def of(rows: Iterable[Row], **wanted: str) -> list[Row]:
    """Rows with these column values."""
    return [row for row in rows if all(row[key] == value for key, value in wanted.items())]


def column(rows: Iterable[Row], name: str) -> Array:
    """Numbers of a column, without empty cells."""
    return np.array([float(row[name]) for row in rows if row.get(name) not in (None, "")])


def mean_and_error(values: Array, digits: int = 3) -> str:
    """Mean over draws ± its standard error, from the spread over draws."""
    if len(values) == 0:
        return ""
    mean = f"{values.mean():.{digits}f}"
    if len(values) == 1:
        return mean
    return f"{mean} ± {values.std(ddof=1) / np.sqrt(len(values)):.{digits}f}"


def with_binomial(values: Array) -> str:
    """As `mean_and_error`, with the binomial error of independent points in brackets."""
    share = values.mean()
    naive = np.sqrt(share * (1 - share) / (len(values) * TEST_POINTS))
    return f"{mean_and_error(values)} ({naive:.3f})"


def table(head: Iterable[str], lines: Iterable[Iterable[str]]) -> str:
    """A table in Markdown."""
    head = list(head)
    rows = [head, ["---"] * len(head), *map(list, lines)]
    return "\n".join("| " + " | ".join(cells) + " |" for cells in rows) + "\n"


def groups(rows: list[Row], fit: str) -> list[tuple[str, list[Row]]]:
    """Draws of each structure, all draws, and those with several processes.

    Fits other than the default are reported on the latter only: with one process they are alike.
    """
    mine = of(rows, fit=fit)
    searched = {row["seed"] for row in of(rows, fit="start")}
    several = [row for row in mine if row["seed"] in searched]
    if fit != "fitted":
        return [("several processes", several)]
    lost = failures(rows)
    found = [row for row in several if row["seed"] not in lost]
    parts = [(str(s), of(mine, structure=str(s))) for s in STRUCTURES]
    parts += [("all", mine), ("several processes", several), ("… search not failed", found)]
    return [(name, part) for name, part in parts if part]


def failures(rows: list[Row]) -> set[str]:
    """Seeds whose search ended at an ELBO clearly below that of a start at the true labels."""
    bounds = {(row["seed"], row["fit"]): float(row["bound"]) for row in rows}
    return {
        seed
        for (seed, fit), bound in bounds.items()
        if fit == "fitted" and bounds.get((seed, "start"), -np.inf) > bound + FAILED
    }


def observations(rows: list[Row]) -> str:
    """Coverage of intervals and highest-density regions: means over draws."""
    head = ["fit", "structure", "draws"]
    head += [f"{kind} {level}" for kind in ("interval", "HDR") for level in LEVELS]
    head += ["PIT distance"]

    def line(fit: str, name: str, part: list[Row]) -> list[str]:
        cells = [
            with_binomial(column(part, f"{kind}_{level}"))
            for kind in ("interval", "hdr")
            for level in LEVELS
        ]
        distance = mean_and_error(column(part, "pit_distance"))
        return [fit, name, str(len(part)), *cells, distance]

    return table(head, [line(fit, *group) for fit in FITS for group in groups(rows, fit)])


def functions(rows: list[Row]) -> str:
    """Coverage of the latent functions: everywhere, and at new points of their own process."""
    head = ["fit", "structure", "draws"]
    head += [f"{where} {level}" for where in ("everywhere", "at own points") for level in LEVELS]

    def line(fit: str, name: str, part: list[Row]) -> list[str]:
        cells = [
            mean_and_error(column(part, f"{where}_{level}"))
            for where in ("function", "own")
            for level in LEVELS
        ]
        return [fit, name, str(len(part)), *cells]

    return table(head, [line(fit, *group) for fit in FITS for group in groups(rows, fit)])


def wrong(rows: list[Row], fit: str = "fitted") -> dict[str, bool]:
    """Whether a fit of a draw with several processes has a wrong association, by seed."""
    right = {(row["seed"], row["fit"]): row["training_right"] for row in rows}
    known = {seed: float(share) for (seed, name), share in right.items() if name == "parameters"}
    return {
        seed: known[seed] - float(share) > LESS_ACCURATE + 1e-9
        for (seed, name), share in right.items()
        if name == fit and seed in known
    }


def associations(rows: list[Row]) -> str:
    """Bands and probabilities where the association is right, and where it is not."""
    head = ["fit", "association", "draws", *(f"at own points {level}" for level in LEVELS)]
    head += ["claimed", "right", "log loss"]
    names = [*(f"own_{level}" for level in LEVELS), "test_claimed", "test_right", "test_loss"]
    lines = []
    for fit in ("fitted", "start"):
        found = wrong(rows, fit)
        for words, is_wrong in (("right", False), ("wrong", True)):
            part = [row for row in of(rows, fit=fit) if found.get(row["seed"]) is is_wrong]
            cells = [mean_and_error(column(part, name)) for name in names]
            lines.append([fit, words, str(len(part)), *cells])
    return table(head, lines)


def compared(rows: list[Row], others: list[Row], out: Path) -> None:
    """Write ``compared.md``: default fits of the same draws in two runs, and their differences.

    Associations are those of the others.
    """
    first = {row["seed"]: row for row in of(rows, fit="fitted")}
    second = {row["seed"]: row for row in of(others, fit="fitted")}
    seeds = sorted(set(first) & set(second), key=int)
    found = wrong(others)
    several = [seed for seed in seeds if first[seed].get("test_right")]
    parts = {
        "Several processes": several,
        "Several processes, right association": [s for s in several if found.get(s) is False],
        "Several processes, wrong association": [s for s in several if found.get(s) is True],
        "One process": [seed for seed in seeds if seed not in several],
    }
    text = [f"# The same {len(seeds)} draws in two runs\n"]
    for title, part in parts.items():
        if part:
            lines = _differences([second[s] for s in part], [first[s] for s in part])
            head = [f"{len(part)} draws", "before", "after", "difference"]
            text.append(f"## {title}\n\n{table(head, lines)}")
    (out / "compared.md").write_text("\n".join(text))
    print("\n".join(text))


def _differences(before: list[Row], after: list[Row]) -> Iterable[list[str]]:
    for name, words in COMPARED.items():
        pairs = [pair for pair in zip(before, after, strict=True) if all(r.get(name) for r in pair)]
        if pairs:
            values = np.array([[float(row[name]) for row in pair] for pair in pairs])
            means = [f"{value:.3f}" for value in values.mean(axis=0)]
            yield [words, *means, mean_and_error(values[:, 1] - values[:, 0], 4)]


def probabilities(rows: list[Row], bins: list[Row]) -> str:
    """Predicted probabilities of the processes against the true labels."""
    head = ["what", "fit", "claimed", "right", "log loss", "calibration error"]
    lines = []
    for name, words in SAID.items():
        for fit in FITS:
            part = of(rows, fit=fit)
            cells = [
                mean_and_error(column(part, f"{name}_{key}"))
                for key in ("claimed", "right", "loss")
            ]
            pooled = reliability(of(bins, fit=fit, what=name))
            # Training labels are inputs of this fit, not predictions.
            if pooled is None or (fit == "labels" and name in ("training", "asked")):
                continue
            n, predicted, actual = pooled
            error = np.abs(predicted - actual).sum() / n.sum()
            lines.append([words, fit, *cells, f"{error:.4f}"])
    return table(head, lines)


def densities(rows: list[Row]) -> str:
    """Mean log density, and its difference from the oracle."""
    best = {row["seed"]: float(row["log_density"]) for row in of(rows, fit="labels")}
    head = ["fit", "structure", "draws", "searches failed", "log density", "− oracle", "median"]
    lost = failures(rows)

    def line(fit: str, name: str, part: list[Row]) -> list[str]:
        behind = np.array([float(r["log_density"]) - best[r["seed"]] for r in part])
        failed = str(sum(r["seed"] in lost for r in part)) if fit == "fitted" else ""
        cells = [mean_and_error(column(part, "log_density")), mean_and_error(behind)]
        return [fit, name, str(len(part)), failed, *cells, f"{np.median(behind):.3f}"]

    return table(head, [line(fit, *group) for fit in FITS[:-1] for group in groups(rows, fit)])


def reliability(bins: list[Row]) -> tuple[Array, Array, Array] | None:
    """Counts and sums of predictions and events in each bin, over all draws."""
    if not bins:
        return None
    place = column(bins, "bin").astype(int)
    n, predicted, actual = (
        np.bincount(place, column(bins, key)) for key in ("n", "predicted", "actual")
    )
    return n, predicted, actual


def figure(rows: list[Row], bins: list[Row], path: Path) -> None:
    """Coverage by level, histogram of the PIT, reliability of the probabilities."""
    import matplotlib.pyplot as plt  # not needed for fitting

    canvas, axes = plt.subplots(1, 3, figsize=(12, 4), layout="constrained")
    draw: tuple[Callable[..., None], ...] = (_coverage, _pit, _reliability)
    for axis, panel in zip(axes, draw, strict=True):
        panel(axis, rows, bins)
        axis.spines[["top", "right"]].set_visible(False)
    canvas.savefig(path, dpi=120)
    plt.close(canvas)


def _coverage(axis: Any, rows: list[Row], bins: list[Row]) -> None:
    mine, nominal = of(rows, fit="fitted"), [float(level[:-1]) / 100 for level in LEVELS]
    kinds = {
        "interval": "central interval",
        "hdr": "highest density",
        "own": "function, at its own points",
        "function": "function, everywhere",
    }
    axis.axhline(0, color="0.7", linewidth=1)
    for shift, (kind, words) in enumerate(kinds.items()):
        values = [column(mine, f"{kind}_{level}") for level in LEVELS]
        off = [v.mean() - level for v, level in zip(values, nominal, strict=True)]
        errors = [2 * v.std(ddof=1) / np.sqrt(len(v)) if len(v) > 1 else 0 for v in values]
        at = np.array(nominal) + 0.012 * (shift - 1.5)
        axis.errorbar(at, off, errors, fmt="o", markersize=4, capsize=2, label=words)
    axis.set_xticks(nominal, LEVELS)
    axis.set(xlabel="nominal coverage", ylabel="coverage − nominal", title="Coverage, ±2 errors")
    axis.legend(frameon=False, fontsize="small")


def _pit(axis: Any, rows: list[Row], bins: list[Row]) -> None:
    pooled = reliability(of(bins, fit="fitted", what="pit"))
    assert pooled is not None
    share = len(pooled[0]) * pooled[0] / pooled[0].sum()
    edges = np.linspace(0, 1, len(share) + 1)
    axis.stairs(share, edges, fill=True, color="0.75")
    axis.axhline(1, color="0.3", linewidth=1)
    axis.set(xlabel="probability integral transform", ylabel="density", title="PIT, new points")
    axis.set_xlim(0, 1)


def _reliability(axis: Any, rows: list[Row], bins: list[Row]) -> None:
    axis.plot([0, 1], [0, 1], color="0.7", linewidth=1)
    for name, words in SAID.items():
        pooled = reliability(of(bins, fit="fitted", what=name))
        if pooled is not None:
            n, predicted, actual = (part[pooled[0] > 0] for part in pooled)
            axis.plot(predicted / n, actual / n, "o-", markersize=3, label=words.replace("`", ""))
    axis.set(xlabel="predicted probability", ylabel="share that is true", title="Processes")
    axis.legend(frameon=False, fontsize="x-small")
