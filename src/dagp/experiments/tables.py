"""Results as Markdown: mean ± standard error beside what was published."""

import itertools
from collections.abc import Iterable

import numpy as np

from dagp.experiments.experiment import Experiment, Row

__all__ = ["markdown"]

_WIDEST = 5
"""Columns of a table that fit on a page."""


def markdown(experiment: Experiment, rows: list[Row]) -> str:
    """One table per score."""
    if not rows:
        return f"# {experiment.title}\n\nNo results yet.\n"
    seeds = sorted({int(row["seed"]) for row in rows})
    quick = " (quick run: small data, short training)" if rows[0]["quick"] else ""
    parts = [
        f"# {experiment.title}{quick}",
        f"{len(seeds)} seeds from {seeds[0]}. {experiment.notes}",
    ]
    for metric, title in experiment.metrics.items():
        scored = [row for row in rows if metric in row]
        if scored:
            parts.append(f"## {title}")
            parts += [_table(experiment, metric, scored, some) for some in _columns(experiment)]
            parts.append("Mean ± standard error | median (published).")
    failed = [row for row in rows if row.get("error")]
    if failed:
        parts.append(f"{len(failed)} fits failed; the CSV file says why.")
    return "\n\n".join(filter(None, parts)) + "\n"


def _columns(experiment: Experiment) -> list[list[str]]:
    """Variants that share a table: all, or where they are many, those of one kind."""
    if len(experiment.variants) <= _WIDEST:
        return [list(experiment.variants)]
    kinds = itertools.groupby(experiment.variants, key=lambda variant: variant.split()[0])
    return [list(variants) for _, variants in kinds]


def _table(experiment: Experiment, metric: str, rows: list[Row], columns: list[str]) -> str:
    """Models down, variants across; published figures in brackets, medians behind a bar."""
    variants = [v for v in columns if any(row["variant"] == v for row in rows)]
    rows = [row for row in rows if row["variant"] in variants]
    if not rows:
        return ""
    models = [m for m in experiment.competitors if any(row["model"] == m for row in rows)]
    lines = [_line(["", *variants]), _line(["---"] * (len(variants) + 1))]
    for model in models:
        cells = [
            _cell(
                [r[metric] for r in rows if r["model"] == model and r["variant"] == variant],
                experiment.published.get((metric, variant, model)),
            )
            for variant in variants
        ]
        lines.append(_line([model, *cells]))
    return "\n".join(lines)


def _line(cells: Iterable[str]) -> str:
    return "| " + " | ".join(cells) + " |"


def _cell(values: list[float], published: float | None) -> str:
    if not values:
        return "" if published is None else f"({published:g})"
    numbers = np.array(values, np.float64)
    mean = f"{numbers.mean():.3g}"
    if len(numbers) > 1:
        error = numbers.std(ddof=1) / np.sqrt(len(numbers))
        mean += f" ± {error:.1g} \\| {np.median(numbers):.3g}"
    return mean if published is None else f"{mean} ({published:g})"
