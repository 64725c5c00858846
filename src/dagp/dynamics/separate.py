"""Functions of single states, with kernels of their own, trained once the association is known.

Outputs of one process of `DAGP` share a kernel. A state that can be predicted precisely then
decides which inputs matter, also for a state that is mostly noise. So, given the responsibilities
of the joint fit, the function of each regime is trained anew for every state.
"""

import dataclasses
import warnings
from typing import Any

import numpy as np
from sklearn.base import clone

from dagp.core.typing import Float
from dagp.estimator import DAGP
from dagp.inference.inducing import first_count, is_amount
from dagp.model.deep import DeepGP
from dagp.model.gp import GP
from dagp.model.means import Projection
from dagp.model.process import ProcessPrior
from dagp.predict.posterior import Posterior

Own = tuple[Posterior, ...] | None
"""The functions of a regime, one per state; None where they stay those of the joint fit."""
_NEGLIGIBLE = 1e-3
"""Responsibility below which a row does not count for a regime."""
_LEAST = 10.0
"""Rows that a regime needs for functions of its own."""


def enough_inducing(
    inducing: Any, priors: list[ProcessPrior], X: Float[np.ndarray, "N D"], states: int
) -> Any:
    """Inducing inputs of the joint fit, of which the association alone is used if all functions are
    trained anew: a number that grows as precise states need it would be of no use."""
    replaced = all(prior.clutter or _separable(prior) is not None for prior in priors)
    if states == 1 or not replaced or not is_amount(inducing) or inducing == "all":
        return inducing
    return min(first_count(X.shape[1]), len(np.unique(X, axis=0)))


def own_functions(
    model: DAGP,
    priors: list[ProcessPrior],
    X: Float[np.ndarray, "N D"],
    target: Float[np.ndarray, "N S"],
    stay: bool,
) -> list[Own]:
    """Functions of every regime of a fitted model, for every state; targets may be NaN.

    With `stay`, the prior mean of a state is the state itself.
    """
    if target.shape[1] == 1:
        return [None for _ in model.processes_]
    found: list[Own] = []
    functions = [prior for prior in priors if not prior.clutter]
    count = sum(process.kernel_ is not None for process in model.processes_)
    if count != len(functions) and any(prior is not functions[0] for prior in functions):
        # Processes were removed, and it is not known which prior is whose.
        functions = []
    for k, process in enumerate(model.processes_):
        # Clutter comes where the user put it: the functions are counted without it.
        at = sum(other.kernel_ is not None for other in model.processes_[:k])
        known = process.kernel_ is not None and at < len(functions)
        prior = _separable(functions[at]) if known else None
        weight = np.where(model.used_mask_, model.responsibilities_[:, k], 0.0)
        rows = weight > _NEGLIGIBLE
        sure = weight > 0.5
        enough = weight.sum() >= _LEAST and np.any(sure)
        if prior is None or not enough or _some_constant(target[sure]):
            found.append(None)
            continue
        seen = rows[:, None] & ~np.isnan(target)
        parts = (
            _single(model, prior, X[some], target[some, p], weight[some], p if stay else None)
            for p, some in enumerate(seen.T)
        )
        found.append(tuple(parts))
    return found


def _some_constant(target: Float[np.ndarray, "N S"]) -> bool:
    """Whether a target has one value, or none that is known."""
    known = [column[~np.isnan(column)] for column in target.T]
    return any(len(np.unique(column)) < 2 for column in known)


def _separable(prior: ProcessPrior) -> GP | DeepGP | None:
    """A prior, if it can be that of a single state."""
    if not isinstance(prior, GP | DeepGP) or prior.mean is not None:
        return None
    given: Any = getattr(prior.noise_std, "raw", prior.noise_std)
    several = given is not None and np.size(given) > 1
    return None if several or prior.noise_prior is not None else prior


def _single(
    model: DAGP,
    prior: GP | DeepGP,
    X: np.ndarray,
    y: np.ndarray,
    weight: np.ndarray,
    stay: int | None,
) -> Posterior:
    """The function of one state in one regime."""
    if stay is not None:
        axes = np.zeros((X.shape[1], 1))
        axes[stay] = 1.0
        prior = dataclasses.replace(prior, mean=Projection(axes))
    alone: Any = clone(model)
    alone.set_params(
        n_processes=1, processes=[prior], gate=None, checkpoint=None, resume=False, callbacks=()
    )
    with warnings.catch_warnings(action="ignore"):
        # What there is to say about the data, the joint fit has said.
        return alone.fit(X, y, sample_weight=weight).posterior_
