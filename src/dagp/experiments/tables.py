"""Result tables in Markdown: mean ± standard error beside the published value."""

import itertools
from collections import Counter

import numpy as np

from dagp.experiments.experiment import Experiment, Row

_WIDEST = 5
"""Maximum number of columns that fit on a page."""


def markdown(experiment: Experiment, rows: list[Row]) -> str:
    """Report of an experiment, with one table per score."""
    if not rows:
        return f"# {experiment.title}\n\nNo results yet.\n"
    seeds = sorted({int(row["seed"]) for row in rows})
    quick = " (quick run: small data, short training)" if rows[0]["quick"] else ""
    count = f"{len(seeds)} seeds from {seeds[0]}."
    parts = [f"# {experiment.title}{quick}", f"{count} {experiment.notes}"]
    parts += [_counts(experiment, rows, len(seeds), some) for some in _columns(experiment)]
    for metric, title in experiment.metrics.items():
        if scored := [row for row in rows if metric in row]:
            parts.append(f"## {title}")
            parts += [_table(experiment, metric, scored, some) for some in _columns(experiment)]
            parts.append("Mean ± standard error | median (published).")
    if failed := [row for row in rows if row.get("error")]:
        parts.append(f"{len(failed)} fits failed; see the error column of the CSV file.")
    return "\n\n".join(filter(None, parts)) + "\n"


def _columns(experiment: Experiment) -> list[list[str]]:
    """Variants of each table: all of them or, if there are many, those of one kind."""
    if len(experiment.variants) <= _WIDEST:
        return [list(experiment.variants)]
    kinds = itertools.groupby(experiment.variants, key=lambda variant: variant.split()[0])
    return [list(variants) for _, variants in kinds]


def _counts(experiment: Experiment, rows: list[Row], seeds: int, columns: list[str]) -> str:
    """Numbers of fits, where some seeds have not been run."""
    fits = Counter((row["model"], row["variant"]) for row in rows if not row.get("error"))
    variants = [v for v in columns if any(v == variant for _, variant in fits)]
    if not variants or all(count == seeds for count in fits.values()):
        return ""
    models = [model for model in experiment.competitors if any(m == model for m, _ in fits)]
    lines = [["fits", *variants], ["---"] * (len(variants) + 1)]
    lines += [[m, *(str(fits[m, variant]) for variant in variants)] for m in models]
    return _lines(lines)


def _lines(cells: list[list[str]]) -> str:
    return "\n".join("| " + " | ".join(line) + " |" for line in cells)


def _table(experiment: Experiment, metric: str, rows: list[Row], columns: list[str]) -> str:
    """Models in rows, variants in columns; published values in brackets, medians after a bar."""
    variants = [v for v in columns if any(row["variant"] == v for row in rows)]
    rows = [row for row in rows if row["variant"] in variants]
    if not rows:
        return ""
    known = {row["model"] for row in rows}
    known |= {m for quantity, v, m in experiment.published if quantity == metric and v in variants}
    models = [model for model in experiment.competitors if model in known]

    def cell(model: str, variant: str) -> str:
        own = [row[metric] for row in rows if (row["model"], row["variant"]) == (model, variant)]
        return _cell(own, experiment.published.get((metric, variant, model)))

    lines = [["", *variants], ["---"] * (len(variants) + 1)]
    lines += [[model, *(cell(model, variant) for variant in variants)] for model in models]
    return _lines(lines)


def _cell(values: list[float], published: float | None) -> str:
    if not values:
        return "" if published is None else f"({published:g})"
    numbers = np.array(values, np.float64)
    mean = f"{numbers.mean():.3g}"
    if len(numbers) > 1:
        error = numbers.std(ddof=1) / np.sqrt(len(numbers))
        mean += f" ± {error:.1g} \\| {np.median(numbers):.3g}"
    return mean if published is None else f"{mean} ({published:g})"
