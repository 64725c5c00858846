"""Declared constraints on the parameters of the estimator."""

from collections.abc import Callable, Sequence
from numbers import Integral, Real
from os import PathLike
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from dagp.core.precision import DTYPES
from dagp.core.text import quoted
from dagp.inference.concrete import Concrete
from dagp.model.gp import GP
from dagp.model.parameters import parameters_of
from dagp.model.process import ProcessPrior
from dagp.tables.columns import ROLES, are_roles

MOST_PROCESSES = 1000
"""Far more than data can tell apart, and few enough to be refused before memory is."""
AUTO_PROCESSES = 6
"""Number of processes that ``n_processes="auto"`` starts with."""


MOST_STARTS = 10_000
"""Each start is a model in memory before the race begins."""
_MOST = 2**31 - 1
"""Largest count: steps and rows are counted in 32 bits."""


class Constraint(NamedTuple):
    """Condition on a parameter, with its wording for errors."""

    holds: Callable[[Any], bool]
    expected: str
    """Completes the sentence "<parameter> must ..."."""


def _whole(value: Any) -> bool:
    return isinstance(value, Integral) and not isinstance(value, bool) and 1 <= int(value) <= _MOST


def _not_negative(value: Any) -> bool:
    # Compared as it is: not every whole number can be converted to floating point.
    number: Any = value
    return isinstance(value, Real) and bool(number >= 0)


def _functions(value: Any) -> bool:
    return isinstance(value, Sequence) and all(map(callable, value))


_COUNT = f"be a whole number from 1 to {_MOST}"
CONSTRAINTS = {
    "n_processes": Constraint(
        lambda v: v == "auto" or (_whole(v) and int(v) <= MOST_PROCESSES),
        f'be a whole number from 1 to {MOST_PROCESSES}, or "auto"',
    ),
    "n_init": Constraint(
        lambda v: _whole(v) and int(v) <= MOST_STARTS, f"be a whole number from 1 to {MOST_STARTS}"
    ),
    "max_iter": Constraint(_whole, _COUNT),
    "batch_size": Constraint(lambda v: v is None or _whole(v), f"{_COUNT} or None"),
    "tol": Constraint(_not_negative, "be a non-negative number"),
    "inference": Constraint(
        lambda v: isinstance(v, Concrete) or v in ("collapsed", "concrete"),
        'be "collapsed", "concrete" or a Concrete',
    ),
    "posterior": Constraint(lambda v: v in ("best", "averaged"), "be 'best' or 'averaged'"),
    "dtype": Constraint(lambda v: v in DTYPES, f"be one of {DTYPES}"),
    "missing": Constraint(lambda v: v in ("raise", "drop"), "be 'raise' or 'drop'"),
    "columns": Constraint(
        are_roles,
        f"map names or positions of columns to roles ({', '.join(ROLES)}; those of times can be "
        'combined, such as "days+daily")',
    ),
    "callbacks": Constraint(_functions, "be a list of functions"),
    "checkpoint": Constraint(lambda v: v is None or isinstance(v, str | PathLike), "name a file"),
    "checkpoint_every": Constraint(_not_negative, "be a non-negative number of seconds"),
}
"""Constraints by parameter of `DAGP`; `process_priors` checks the priors."""


def check_settings(estimator: Any) -> list[ProcessPrior]:
    """Check the parameters of an estimator and return the priors of its processes."""
    for name, constraint in CONSTRAINTS.items():
        value = getattr(estimator, name)
        # A list of processes determines their number.
        if name == "n_processes" and isinstance(estimator.processes, Sequence):
            continue
        if not constraint.holds(value):
            raise ValueError(f"{name} must {constraint.expected}, got {quoted(value)}.")
    if isinstance(estimator.inference, Concrete):
        estimator.inference.check()
    if estimator.checkpoint is not None:
        path = Path(estimator.checkpoint)
        if path.is_dir() or not path.parent.is_dir():
            wrong = "it is a folder" if path.is_dir() else f"there is no folder {path.parent}"
            raise ValueError(f"checkpoint cannot be written to {path}: {wrong}.")
    return process_priors(estimator.processes, estimator.n_processes)


def process_priors(processes: Any, n_processes: int | str) -> list[ProcessPrior]:
    """One prior per process, from the arguments of `DAGP`."""
    given = GP() if processes is None else processes
    count = AUTO_PROCESSES if isinstance(n_processes, str) else n_processes
    priors: list[ProcessPrior] = list(given) if isinstance(given, Sequence) else [given] * count
    if not priors:
        raise ValueError("processes must name at least one, such as [GP()], got an empty list.")
    for k, prior in enumerate(priors):
        if not isinstance(prior, ProcessPrior):
            expected = "must be a GP, DeepGP, Noise, Uniform or another ProcessPrior"
            raise ValueError(f"processes[{k}] {expected}, got {quoted(prior)}.")
    _check_ties(priors)
    return priors


def _check_ties(priors: list[ProcessPrior]) -> None:
    """Raise unless tied parameters, which have one value, have the same initial value."""
    initial: dict[str, Any] = {}
    for prior in priors:
        for node in parameters_of(list(vars(prior).values())):
            if node.tie is None:
                continue
            first = initial.setdefault(node.tie, node.raw)
            if np.shape(first) != np.shape(node.raw) or np.any(first != node.raw):
                raise ValueError(
                    f"Parameters tied by {quoted(node.tie)} must have one initial value."
                )
