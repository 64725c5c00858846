"""Definition of an experiment: data sets, models, scores and published results."""

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import numpy as np

Row = dict[str, Any]
"""Scores of one fit."""
FitModel = Callable[[Any, int, bool], Any]
"""Fits a model to data, given a seed and whether the run is quick."""


class Experiment(NamedTuple):
    """One table of the paper. A fit is determined by variant, model and seed."""

    name: str
    title: str
    variants: tuple[str, ...]
    quick_variants: tuple[str, ...]
    """Variants of a quick run."""
    data: Callable[[str, int, bool], Any]
    competitors: Mapping[str, FitModel]
    score: Callable[[Any, Any], Row]
    """Scores of a fitted model on its data."""
    metrics: Mapping[str, str]
    """Scores that get a table, with their titles."""
    published: Mapping[tuple[str, str, str], float]
    """Figures of the paper by metric, variant and model."""
    notes: str
    available: Callable[[str, str], bool] = lambda _variant, _model: True
    """Whether what a variant and a model need is there; other fits are left out."""


def fits(
    estimator: Any,
    *arguments: Any,
    quick_settings: Mapping[str, Any] | None = None,
    **settings: Any,
) -> FitModel:
    """A competitor trained on inputs and outputs only; `quick_settings` apply to quick runs."""

    def fit(data: Any, seed: int, quick: bool) -> Any:
        changed = settings | dict(quick_settings or {}) if quick else settings
        return estimator(*arguments, **changed, random_state=seed).fit(data.X, data.y)

    return fit


def rmse(a: Any, b: Any) -> float:
    """Root mean squared difference."""
    return float(np.sqrt(np.mean((np.asarray(a) - np.asarray(b)) ** 2)))
