"""Inducing inputs: their number and initial positions."""

from numbers import Integral
from typing import Any

import numpy as np
from scipy.spatial import KDTree

from dagp.core.errors import warn
from dagp.core.text import quoted
from dagp.core.typing import Float, Int
from dagp.inference.standardize import Sample, Units


def choose_inducing(
    X: Float[np.ndarray, "N D"], count: int, rng: np.random.Generator
) -> Float[np.ndarray, "M D"]:
    """At most `count` inputs that cover the data, by k-means on its distinct inputs."""
    distinct = np.unique(X, axis=0)
    if len(distinct) <= count:
        return distinct
    return k_means(distinct, count, rng)[0]


def is_amount(inducing: Any) -> bool:
    """Whether the setting `inducing` says how many there are in the final fit."""
    return inducing is None or (isinstance(inducing, str) and inducing in ("auto", "all"))


def first_count(columns: int) -> int:
    """With how many inducing inputs a fit begins that may use more of them in the end."""
    return 32 if columns == 1 else 100


def inducing_inputs(
    inducing: Any, sample: Sample, units: Units, rng: np.random.Generator
) -> Float[np.ndarray, "M D"]:
    """Standardised inducing inputs from the setting `inducing`: a number, positions, or how many
    the final fit has, which begins with a default number."""
    if is_amount(inducing):
        inducing = None
    if inducing is not None and not isinstance(inducing, Integral):
        expected = f'inducing must be "auto", "all", a number or of shape (M, {sample.X.shape[1]})'
        try:
            given = np.asarray(inducing, np.float64)
        except (TypeError, ValueError) as error:
            raise ValueError(f"{expected}, got {quoted(inducing)}.") from error
        if given.ndim != 2 or given.shape[1] != sample.X.shape[1]:
            raise ValueError(f"{expected}, got {inducing if given.ndim == 0 else given.shape}.")
        return units.standard_x(given)
    count = first_count(sample.X.shape[1]) if inducing is None else int(inducing)
    if count < 1:
        raise ValueError(f"inducing must be at least 1, got {count}.")
    chosen = choose_inducing(sample.X, count, rng)
    if inducing is not None and len(chosen) < count:
        warn(
            f"inducing={count} is more than X has distinct rows; {len(chosen)} are used.",
        )
    return chosen


def k_means(
    points: Float[np.ndarray, "N D"], count: int, rng: np.random.Generator, limit: int = 5000
) -> tuple[Float[np.ndarray, "M D"], Int[np.ndarray, " N"]]:
    """Centres and the nearest centre of each point (Lloyd's algorithm after k-means++ seeding)."""
    some = points
    if len(points) > limit:
        some = points[np.sort(rng.choice(len(points), limit, replace=False))]
    centres = some[[rng.integers(len(some))]]
    nearest = np.full(len(some), np.inf)
    while len(centres) < count:
        nearest = np.minimum(nearest, np.sum((some - centres[-1]) ** 2, axis=1))
        pick = np.searchsorted(np.cumsum(nearest), rng.uniform(0, nearest.sum()))
        centres = np.vstack([centres, some[min(pick, len(some) - 1)]])
    for _ in range(20):
        member = KDTree(centres).query(some)[1]
        sizes = np.bincount(member, minlength=count)
        sums = np.stack([np.bincount(member, column, minlength=count) for column in some.T], axis=1)
        centres = np.where(sizes[:, None] > 0, sums / np.maximum(sizes, 1)[:, None], centres)
    return centres, np.asarray(KDTree(centres).query(points)[1])
