"""How sure it is which process produced each row, and why: distances, rivals, other divisions."""

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from dagp.core.typing import Float, Int
from dagp.report.case import Case
from dagp.report.text import number, number_of, percent

UNSURE = 0.9
"""A row whose most probable process is less probable than this counts as ambiguous."""
_EQUAL = 1.0
"""Functions whose predictions differ by less, in standard deviations, cannot be told apart."""
_FAR = 3.0
"""Standard deviations from which a reading does not fit a function."""


class Doubts(NamedTuple):
    """What speaks for and against the process of each row."""

    distance: Float[np.ndarray, "N K"]
    """From the prediction of each process, noise included, in its standard deviations; of several
    outputs the largest."""
    apart: Float[np.ndarray, "N K"]
    """The same between the predictions of each process and the process of the row."""
    rival: Int[np.ndarray, " N"]
    """The next most probable process."""
    divisions: tuple[tuple[float, Int[np.ndarray, " N"]], ...]
    """Probability of each division of the rows, and the process of every row, where several are
    averaged over."""


def doubts(case: Case) -> Doubts:
    """What speaks for and against the process of each row."""
    N, K = case.responsibilities.shape
    order = np.argsort(-case.responsibilities, axis=1, kind="stable")
    alone = [case.mixture.marginal(k) for k in range(K)]
    means = np.stack([one.mean() for one in alone], axis=1)
    stds = np.sqrt(np.stack([one.variance() for one in alone], axis=1))
    # A function without noise at a row of its own may leave nothing to divide by.
    stds = np.maximum(stds, np.finfo(float).eps * np.abs(means) + np.finfo(float).tiny ** 0.5)
    own, rows = case.owner, np.arange(N)
    beside = np.minimum(stds, stds[rows, own][:, None])
    return Doubts(
        _largest(np.abs(case.y[:, None] - means) / stds),
        _largest(np.abs(means[rows, own][:, None] - means) / beside),
        order[:, min(1, K - 1)],
        tuple(_divisions(case)),
    )


def _divisions(case: Case) -> Iterator[tuple[float, Int[np.ndarray, " N"]]]:
    averaged = case.model.posterior_.associations()
    for weight, posterior, order in averaged if len(averaged) > 1 else ():
        shares = posterior.mixture(case.X, flat=False).responsibilities(case.y)
        yield weight, shares[:, order].argmax(axis=1)


def _largest(values: Float[np.ndarray, "N K P"]) -> Float[np.ndarray, "N K"]:
    """Over the outputs that are known."""
    return np.max(np.where(np.isnan(values), 0.0, values), axis=2)


def reason(case: Case, known: Doubts, row: int) -> str:
    """Why a row belongs to its process as surely as it does, in a few words.

    A difference between divisions of the rows comes first: it is no matter of the row alone.
    """
    own, rival = int(case.owner[row]), int(known.rival[row])
    against = sum(weight for weight, owner in known.divisions if owner[row] != own)
    if against:
        return f"other divisions of the rows, {percent(against)} probable, give it to another one"
    if own in case.clutter:
        return _as_clutter(case, known, row)
    words = f"{_away(known, row, own)} from process {own}"
    if rival == own or case.responsibilities[row, rival] == 0:
        return words
    if rival in case.clutter:
        far = known.distance[row, own] >= _FAR
        return f"{words}, {'which is far' if far else 'but outliers may lie there, too'}"
    if known.apart[row, rival] < _EQUAL:
        return f"{words}, and process {rival} predicts almost the same here"
    return f"{words}, {number(known.distance[row, rival])} from process {rival}"


def _as_clutter(case: Case, known: Doubts, row: int) -> str:
    functions = [k for k in case.active if k not in case.clutter]
    if not functions:
        return "no process has a function"
    nearest = min(functions, key=lambda k: known.distance[row, k])
    words = f"{_away(known, row, nearest)} from process {nearest}"
    if known.distance[row, nearest] < _FAR:
        # So near a function, it is the gate that prefers clutter.
        words += ", which is unlikely here"
    return words if len(functions) == 1 else f"{words}, the nearest"


def _away(known: Doubts, row: int, k: int) -> str:
    count = number(known.distance[row, k])
    return f"{count} standard deviation{'' if count == '1' else 's'}"


def least_clear(case: Case) -> Int[np.ndarray, " rows"]:
    """Ambiguous rows, the least clear first."""
    rows = np.flatnonzero(case.largest < UNSURE)
    return rows[np.argsort(case.largest[rows], kind="stable")]


def certainty(case: Case, known: Doubts, k: int) -> str:
    """How sure it is which rows are those of a process, and what is in doubt; empty if none is."""
    own = np.flatnonzero(case.owner == k)
    if not own.size or len(case.active) < 2:
        return ""
    mean = percent(case.largest[own].mean())
    unsure = own[case.largest[own] < UNSURE]
    if not unsure.size:
        return f"Its rows have a probability of {mean} on average, and none is ambiguous."
    noun = f"{number_of(unsure.size, 'row')} {'is' if unsure.size == 1 else 'are'}"
    return (
        f"Its rows have a probability of {mean} on average; {noun} ambiguous, most often with "
        f"process {_competitor(case, known, k, unsure)}."
    )


def _competitor(case: Case, known: Doubts, k: int, unsure: Int[np.ndarray, " rows"]) -> str:
    """The process that most of the remaining probability belongs to, and why."""
    lost = case.responsibilities[unsure].sum(axis=0)
    lost[k] = -np.inf
    other = int(lost.argmax())
    if any(np.any(owner[unsure] != k) for _, owner in known.divisions):
        return f"{other}: other divisions of the rows give it some of them"
    if other in case.clutter:
        return f"{other}, as they lie far from the function or where outliers are frequent"
    if k in case.clutter:
        return f"{other}, as they lie close to its function"
    if np.mean(known.apart[unsure, other] < _EQUAL) > 0.5:
        return f"{other}, which predicts almost the same there"
    return f"{other}, as they lie between both"
