"""Regimes that are another one, stopped at a known bound.

A state at its bound says that it would have gone as far or further, not where. Where a state can be
predicted precisely, the rows in which it is stopped look like a regime of their own, and few of
them would have to teach what the other states do there. If the number of regimes is to be found,
such a regime is taken back: its states at a bound count as unknown, and the model is fitted again.
"""

import numpy as np

from dagp.core.typing import Bool, Float
from dagp.estimator import DAGP

_ROUNDS = 2
"""Fits after the first: rows of a wall may be with one regime first and with another then."""
_PRECISE = 0.05
"""Standard deviation, in spreads of a state, of a precise prediction. A state with more noise is
also stopped by chance, and what happens at its bound is news."""
_ALMOST_ALL = 0.9
_ROUNDING = 1e-9

Targets = Float[np.ndarray, "N S"]


def fit_past_stops(
    estimator: DAGP, X: Float[np.ndarray, "N D"], target: Targets, low: Targets, high: Targets
) -> Targets:
    """Fit the estimator; the targets it was fitted to, unknown ones NaN.

    The bounds of a row are those of its targets.
    """
    given = {"missing": estimator.missing, "checkpoint": estimator.checkpoint}
    estimator.fit(X, target)
    for i in range(_ROUNDS if estimator.n_processes == "auto" and target.shape[1] > 1 else 0):
        stopped = stopped_targets(estimator, X, target, low, high)
        if not stopped.any():
            break
        target = np.where(stopped, np.nan, target)
        if given["checkpoint"] is not None:
            # Of other data: after a stop, the first fit would not resume from it.
            estimator.set_params(checkpoint=f"{given['checkpoint']}.{i + 2}")
        estimator.set_params(missing="drop").fit(X, target)
    estimator.set_params(**given)
    return target


def stopped_targets(
    model: DAGP, X: Float[np.ndarray, "N D"], target: Targets, low: Targets, high: Targets
) -> Bool[np.ndarray, "N S"]:
    """Targets at a bound, in regimes that are another one stopped there.

    These are regimes most of whose rows are at a bound in some targets, but not in all, and another
    regime, which predicts these targets precisely, would have led almost all rows to the bound. If
    the other targets differ, a fit without the stopped ones finds the regime again.
    """
    at_bound = np.isclose(target, low, _ROUNDING) | np.isclose(target, high, _ROUNDING)
    owner, found = model.assignment_, np.zeros_like(at_bound)
    used = [k for k in range(len(model.processes_)) if np.any(owner == k)]
    ends = {k: np.mean(at_bound[owner == k], axis=0) > 0.5 for k in used}
    mixture, spread = model.predict_mixture(X), np.nanstd(target, axis=0)
    for k in used:
        if not ends[k].any() or ends[k].all():
            continue
        rows = (owner == k) & at_bound[:, ends[k]].all(axis=1)
        for j in (j for j in used if not np.any(ends[j] & ends[k])):
            other = mixture[rows].marginal(j)
            error = np.abs(np.clip(other.mean(), low[rows], high[rows]) - target[rows])
            std = np.sqrt(other.variance())
            led_there = (error <= 3 * std) & (std < _PRECISE * spread)
            if np.mean(led_there[:, ends[k]].all(axis=1)) > _ALMOST_ALL:
                found |= rows[:, None] & ends[k]
    return found
