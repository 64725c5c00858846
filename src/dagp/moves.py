"""Moves: other responsibilities, proposed from those of a trained model.

A run can end with one function shared by two processes, two functions in one process, or two
processes that trade places where their functions meet. Gradients do not lead out of that, a
proposal does. Every move yields a name and new responsibilities; the bound decides.
"""

import itertools
from collections.abc import Callable, Iterator
from typing import NamedTuple

import numpy as np

from dagp.data import Sample
from dagp.typing import Bool, Float

__all__ = [
    "MOVES",
    "SIMPLER",
    "Move",
    "Proposal",
    "View",
    "annex",
    "merge",
    "split",
    "swap",
]


class Proposal(NamedTuple):
    """Responsibilities to try, and which processes they concern."""

    name: str
    processes: frozenset[int]
    shares: Float[np.ndarray, "N K"]


_AGREE = 2.0
"""Two functions agree where they are closer than this many noise standard deviations."""
_NEAR = 4.0
"""They meet where they come closer than this many."""
_MEETINGS = 12
"""The closest that are looked at: functions that run side by side meet at every turn."""
_SMALL = 0.01
"""Shares of the data below this are not worth a move."""


class View(NamedTuple):
    """A trained model as the moves see it: what it says about the (standardised) sample."""

    sample: Sample
    shares: Float[np.ndarray, "N K"]
    means: Float[np.ndarray, "K N P"]
    noise_std: Float[np.ndarray, "K P"]
    smooth: list[int]
    """Indices of the processes that are functions of the input."""

    @property
    def sizes(self) -> Float[np.ndarray, " K"]:
        """Share of the data each process holds."""
        return self.sample.weight @ self.shares / self.sample.weight.sum()

    @property
    def used(self) -> list[int]:
        """Functions in use, largest first."""
        sizes = self.sizes
        used = [k for k in self.smooth if sizes[k] >= _SMALL]
        return sorted(used, key=lambda k: -sizes[k])

    @property
    def unused(self) -> list[int]:
        """Functions not in use."""
        return [k for k in self.smooth if k not in self.used]

    def agree(self, i: int, j: int) -> Bool[np.ndarray, " N"]:
        """Where functions i and j cannot be told apart."""
        width = _AGREE * np.minimum(self.noise_std[i], self.noise_std[j])
        return np.all(np.abs(self.means[i] - self.means[j]) < width, axis=1)

    def meetings(self, i: int, j: int) -> Float[np.ndarray, " C"]:
        """Places along a single input where functions i and j cross or nearly touch."""
        x, first = np.unique(self.sample.X[:, 0], return_index=True)
        gap = np.linalg.norm(self.means[i] - self.means[j], axis=1)[first]
        near = gap < _NEAR * np.linalg.norm(self.noise_std[[i, j]])
        nearest = (gap < np.roll(gap, 1)) & (gap <= np.roll(gap, -1))
        meet = np.flatnonzero((near & nearest)[1:-1]) + 1
        return x[np.sort(meet[np.argsort(gap[meet], kind="stable")[:_MEETINGS]])]

    def hand_over(self, giver: int, taker: int, where: np.ndarray) -> Float[np.ndarray, "N K"]:
        """The shares after `giver` has given what it holds at `where` to `taker`."""
        shares = self.shares.copy()
        shares[where, taker] += shares[where, giver]
        shares[where, giver] = 0.0
        return shares


def merge(view: View) -> Iterator[Proposal]:
    """One process takes all points of another: both may follow the same function."""
    everywhere = np.ones(len(view.shares), bool)
    for i, j in itertools.combinations(view.used, 2):
        shares = view.hand_over(j, i, everywhere)
        yield Proposal(f"merge {j} into {i}", frozenset((i, j)), shares)


def annex(view: View) -> Iterator[Proposal]:
    """One process takes another's points where both functions agree: one is enough there."""
    for i, j in itertools.permutations(view.used, 2):
        shared = view.agree(i, j)
        held = view.sample.weight[shared] @ view.shares[shared] / view.sample.weight.sum()
        if min(held[i], held[j]) >= _SMALL:
            shares = view.hand_over(j, i, shared)
            yield Proposal(f"annex {j} to {i}", frozenset((i, j)), shares)


def split(view: View) -> Iterator[Proposal]:
    """An unused process takes what lies above the function of a used one."""
    if not view.unused:
        return
    free = view.unused[0]
    for i in view.used:
        residual = view.sample.y - view.means[i]
        above = residual @ _main_direction(residual, view.shares[:, i]) > 0
        shares = view.hand_over(i, free, above)
        yield Proposal(f"split {i} to {free}", frozenset((i, free)), shares)


def swap(view: View) -> Iterator[Proposal]:
    """Two processes trade places beyond a point where their functions meet (one input only)."""
    if view.sample.X.shape[1] > 1:
        return
    x = view.sample.X[:, 0]
    for i, j in itertools.combinations(view.used, 2):
        for number, cut in enumerate(view.meetings(i, j)):
            beyond = x > cut
            moved = view.sample.weight[beyond] @ view.shares[beyond] / view.sample.weight.sum()
            if min(moved[i], moved[j]) < _SMALL:
                continue
            shares = view.shares.copy()
            shares[np.ix_(beyond, [i, j])] = view.shares[np.ix_(beyond, [j, i])]
            yield Proposal(f"swap {i} and {j} beyond {number}", frozenset((i, j)), shares)


Move = Callable[[View], Iterator[Proposal]]
MOVES: tuple[Move, ...] = (merge, annex, split, swap)
"""Moves that are there to raise the bound."""
SIMPLER: tuple[Move, ...] = (annex,)
"""Moves after which fewer processes do the same work."""


def _main_direction(residual: np.ndarray, weight: np.ndarray) -> np.ndarray:
    """Direction of the outputs in which the weighted residuals spread most."""
    return np.linalg.eigh((residual * weight[:, None]).T @ residual)[1][:, -1]
