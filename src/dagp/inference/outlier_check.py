"""Whether rows of clutter look like clutter.

Clutter claims that a row is unrelated to the function: its output may be anywhere, by the density
of clutter. That claim can be tested. Where the noise of good readings is not normal, or where the
function is rougher in some places than its prior says, the ELBO gives the worst rows to clutter,
because normal noise forbids them; but their outputs lie around the function, much closer to it than
those of clutter would. Such rows may be evidence about the function, and dropping them loses it;
or they may be errors of readings, smaller than clutter claims. The ELBO cannot tell, since all it
knows is wrong here: normal noise and this clutter. Cross-validation can (`left_out_error`).
"""

from collections.abc import Sequence

import numpy as np

from dagp.core.sharding import to_host
from dagp.core.typing import Bool, Float
from dagp.inference.exact import Exact
from dagp.inference.standardize import Sample

_WIDTHS = 40
"""Widths of the errors that are tried, from that of the noise to that of clutter."""
_ITERATIONS = 50
"""Of EM, for the share of the rows that are errors around the function."""

_LEAST_SHARE = 1e-8
"""Least share of the precision at a row that the other rows have, by rounding."""


def unlike_clutter(
    sample: Sample, clutters: Sequence[bool], solution: Exact
) -> Bool[np.ndarray, " N"]:
    """Rows of clutter that are rather errors around the function, of a width of their own.

    Outputs of clutter rows are a mixture of clutter and of errors with a common variance, whose
    width and share maximise the likelihood. Where that is better than clutter alone by more than
    its two parameters cost (BIC), rows that are more likely errors are returned. There is one
    function, and one clutter process; else no row is. Nor is one that the user says is clutter.
    """
    clutter, size = np.array(clutters), len(sample.X)
    found = to_host(solution.responsibilities)[:size]
    rows = (found @ clutter > 0.5) & (sample.labels < 0)
    known = solution.given
    if clutter.sum() != 1 or len(clutter) != 2 or known is None or not rows.any():
        return np.zeros(size, bool)
    sample = sample.take(rows)
    log_density = to_host(known.density)[:size][rows] @ clutter
    mean, variance = (to_host(part)[:size][rows] for part in known.functions[0])
    likely = _errors(sample.y - mean, variance, log_density, sample.weight)
    returned = np.zeros(size, bool)
    returned[np.flatnonzero(rows)[likely]] = True
    return returned


def left_out_error(sample: Sample, solution: Exact, rows: Bool[np.ndarray, " N"]) -> float:
    """Mean absolute error of the function at these rows, each predicted from all the others."""
    assert solution.given is not None
    mean, variance = (to_host(part)[: len(rows)][rows] for part in solution.given.functions[0])
    precision = to_host(solution.given.precisions[0])[: len(rows)][rows]
    y = sample.y[rows]
    there = ~np.isnan(y)
    # The posterior is the product of the prediction by the others and of what the row says.
    others = np.maximum(1 - precision * variance, _LEAST_SHARE)
    error = np.abs(np.where(there, y - mean, 0.0)) / others
    weight = sample.weight[rows, None] * there
    return float(np.sum(weight * error) / np.sum(weight))


def _errors(
    residual: Float[np.ndarray, "N P"],
    variance: Float[np.ndarray, "N P"],
    clutter: Float[np.ndarray, " N"],
    weight: Float[np.ndarray, " N"],
) -> Bool[np.ndarray, " N"]:
    """Which rows are more likely errors around zero than clutter of this log density."""
    there = ~np.isnan(residual)
    square = np.where(there, residual, 0.0) ** 2
    widest = np.exp(-np.mean(clutter) / there.sum(axis=1).mean())
    narrowest = min(np.sqrt(variance[there].min()), widest) + 1e-6 * widest
    best, likely = weight @ clutter + np.log(weight.sum()), np.zeros(len(clutter), bool)
    for width in np.geomspace(narrowest, widest, _WIDTHS):
        spread = variance + width**2
        density = -0.5 * np.sum(there * (square / spread + np.log(2 * np.pi * spread)), axis=1)
        value, probability = _mixture(density, clutter, weight)
        if value > best:
            best, likely = value, np.asarray(probability > 0.5)
    return likely


def _mixture(
    first: Float[np.ndarray, " N"], second: Float[np.ndarray, " N"], weight: Float[np.ndarray, " N"]
) -> tuple[float, Float[np.ndarray, " N"]]:
    """Log likelihood of a mixture of two log densities, and the probability of the first."""

    def joint(share: float) -> Float[np.ndarray, " N"]:
        return np.logaddexp(np.log(share) + first, np.log1p(-share) + second)

    share = 0.5
    for _ in range(_ITERATIONS):
        probability = np.exp(np.log(share) + first - joint(share))
        share = float(np.clip(weight @ probability / weight.sum(), 1e-9, 1 - 1e-9))
    total = joint(share)
    return float(weight @ total), np.exp(np.log(share) + first - total)
