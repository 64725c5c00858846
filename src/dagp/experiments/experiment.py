"""What an experiment is: data sets, competitors, scores, and what was published."""

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import numpy as np

__all__ = ["Compete", "Experiment", "Row", "fits", "rmse"]

Row = dict[str, Any]
"""Scores of one fit."""
Compete = Callable[[Any, int, bool], Any]
"""A fitted model from data, a seed, and whether to be quick."""


class Experiment(NamedTuple):
    """One table of the paper.

    A fit is named by variant, model and seed, and depends on nothing else.
    """

    name: str
    title: str
    variants: tuple[str, ...]
    quick_variants: tuple[str, ...]
    """Those a quick run looks at."""
    data: Callable[[str, int, bool], Any]
    competitors: Mapping[str, Compete]
    score: Callable[[Any, Any], Row]
    """Scores of a fitted model on its data."""
    metrics: Mapping[str, str]
    """Scores worth a table, with their titles."""
    published: Mapping[tuple[str, str, str], float]
    """Figures of the paper by metric, variant and model."""
    notes: str


def fits(
    estimator: Any, *arguments: Any, hurried: Mapping[str, Any] | None = None, **settings: Any
) -> Compete:
    """A competitor that sees inputs and outputs alone; `hurried` are its settings when quick."""

    def compete(data: Any, seed: int, quick: bool) -> Any:
        changed = settings | dict(hurried or {}) if quick else settings
        return estimator(*arguments, **changed, random_state=seed).fit(data.X, data.y)

    return compete


def rmse(a: Any, b: Any) -> float:
    """Root mean squared difference."""
    return float(np.sqrt(np.mean((np.asarray(a) - np.asarray(b)) ** 2)))
