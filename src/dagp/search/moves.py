"""Split–merge moves: new responsibilities, proposed from those of a trained model.

A run can end with one function shared by two processes, two functions in one process, or two
processes that swap functions at a crossing. Gradients do not leave such optima. Every move proposes
other responsibilities; the ELBO decides.
"""

import itertools
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import NamedTuple

import numpy as np
from scipy.special import softmax

from dagp.core.typing import Bool, Float
from dagp.inference.standardize import FORBIDDEN, Sample
from dagp.model.sparse_gp import Projection
from dagp.search.modal import WIDTH, closeness, extended_regression, random_basis
from dagp.search.parts import parts
from dagp.search.usage import UNUSED, shares_of_data


class Proposal(NamedTuple):
    """Proposed responsibilities, and the processes they change."""

    name: str
    processes: frozenset[int]
    responsibilities: Float[np.ndarray, "N K"]
    keeps_gate: bool = False
    """Whether the gate can follow it: the regions of the processes do not change."""


_AGREE = 2.0
"""Two functions agree where they are closer than this many noise standard deviations."""
_NEAR = 4.0
"""They meet where they come closer than this many."""
_MEETINGS = 12
"""Closest meetings tried per pair: functions that run side by side meet very often."""


_GAPS, _WIDE = 3, 10.0
"""Most gaps of a single input, and their least width in medians of the distances of neighbours."""
_REACHED = 2
"""Points that each function is tried on."""
_TEMPERATURES = (1.0, 10.0, 30.0)
_EXTEND_POINTS, _EXTEND_TRIES = 1000, 8
"""Most points, and number of regressions, to extend a function."""
_EXTEND_WIDTHS = (WIDTH, WIDTH / 5)
_EXTEND_LENGTHS = (0.3, 3.0)
"""Widths of the modes it may follow, and range of the length scales of the regressions."""


class View(NamedTuple):
    """A trained model evaluated on the standardised sample, for the moves."""

    sample: Sample
    responsibilities: Float[np.ndarray, "N K"]
    means: Float[np.ndarray, "K N P"]
    variances: Float[np.ndarray, "K N P"]
    noise_std: Float[np.ndarray, "K P"]
    log_joint: Float[np.ndarray, "N K"]
    smooth: list[int]
    """Indices of the processes that are functions of the input."""
    normal: list[int]
    """Those of them whose noise is not heavy-tailed."""
    projections: tuple[Projection | None, ...] = ()
    """Of the functions of each group of processes."""
    kinds: tuple[str, ...] = ()
    """Of the processes (see `Problem`); none if all are alike."""

    @property
    def sizes(self) -> Float[np.ndarray, " K"]:
        return shares_of_data(self.responsibilities, self.sample.weight)

    @property
    def used(self) -> list[int]:
        """Functions with a share of the data, largest first."""
        sizes = self.sizes
        return sorted((k for k in self.smooth if sizes[k] >= UNUSED), key=lambda k: -sizes[k])

    @property
    def clutter(self) -> Bool[np.ndarray, " K"]:
        return ~np.isin(np.arange(len(self.means)), self.smooth)

    @property
    def unused(self) -> list[int]:
        return [k for k in self.smooth if k not in self.used]

    def log_predictive(self) -> Float[np.ndarray, "N K"]:
        """As `log_joint`, by the predictive instead of the expected log density of the functions.

        Where a function has no data its variance is large: the predictive density is broad, but
        the expected log density excludes every point. A point of such a place cannot return.
        Heavy-tailed noise excludes no point.
        """
        found = self.log_joint.copy()
        for k in self.normal:
            square, noise = (self.sample.y - self.means[k]) ** 2, self.noise_std[k] ** 2
            total = self.variances[k] + noise
            expected = (square + self.variances[k]) / noise + np.log(noise)
            predictive = square / total + np.log(total)
            found[:, k] += 0.5 * np.sum(expected - predictive, axis=1)
        return found

    def agree(self, i: int, j: int) -> Bool[np.ndarray, " N"]:
        """Where functions i and j agree within the noise."""
        width = _AGREE * np.minimum(self.noise_std[i], self.noise_std[j])
        return np.all(np.abs(self.means[i] - self.means[j]) < width, axis=1)

    def meetings(self, i: int, j: int) -> Float[np.ndarray, " C"]:
        """Values of a single input where functions i and j cross or nearly touch."""
        x, first = np.unique(self.sample.X[:, 0], return_index=True)
        gap = np.linalg.norm(self.means[i] - self.means[j], axis=1)[first]
        near = gap < _NEAR * np.linalg.norm(self.noise_std[[i, j]])
        nearest = (gap < np.roll(gap, 1)) & (gap <= np.roll(gap, -1))
        meet = np.flatnonzero((near & nearest)[1:-1]) + 1
        return x[np.sort(meet[np.argsort(gap[meet], kind="stable")[:_MEETINGS]])]

    def sides(self, i: int, j: int) -> Iterator[Bool[np.ndarray, " N"]]:
        """For a single input, the points beyond each meeting of functions i and j."""
        for meeting in self.meetings(i, j):
            yield self.sample.X[:, 0] > meeting

    def parts(self, i: int, j: int) -> Iterator[Bool[np.ndarray, " N"]]:
        """For several inputs, parts that the meetings of functions i and j enclose."""
        noise = np.maximum(np.minimum(self.noise_std[i], self.noise_std[j]), 1e-6)
        gap = np.linalg.norm((self.means[i] - self.means[j]) / noise, axis=1)
        return parts(self.sample.X, gap, UNUSED)

    def hand_over(self, giver: int, taker: int, where: np.ndarray) -> Float[np.ndarray, "N K"]:
        """Responsibilities with those of `giver` at `where` moved to `taker`."""
        responsibilities = self.responsibilities.copy()
        responsibilities[where, taker] += responsibilities[where, giver]
        responsibilities[where, giver] = 0.0
        return responsibilities


def merge(view: View) -> Iterator[Proposal]:
    """Assign all points of one process to another: both may fit the same function."""
    everywhere = np.ones(len(view.responsibilities), bool)
    for i, j in itertools.combinations(view.used, 2):
        responsibilities = view.hand_over(j, i, everywhere)
        yield Proposal(f"merge {j} into {i}", frozenset((i, j)), responsibilities)


def annex(view: View) -> Iterator[Proposal]:
    """Assign the points of one process to another where both functions agree."""
    for i, j in itertools.permutations(view.used, 2):
        shared = view.agree(i, j)
        held = view.sample.weight[shared] @ view.responsibilities[shared] / view.sample.weight.sum()
        if min(held[i], held[j]) >= UNUSED:
            responsibilities = view.hand_over(j, i, shared)
            yield Proposal(f"annex {j} to {i}", frozenset((i, j)), responsibilities)


def split(view: View) -> Iterator[Proposal]:
    """Assign the points above the function of a used process to an unused one."""
    if not view.unused:
        return
    free = view.unused[0]
    for i in view.used:
        residual = view.sample.y - view.means[i]
        above = residual @ _main_direction(residual, view.responsibilities[:, i]) > 0
        responsibilities = view.hand_over(i, free, above)
        yield Proposal(f"split {i} to {free}", frozenset((i, free)), responsibilities)


def swap(view: View) -> Iterator[Proposal]:
    """Exchange two processes beyond an input where their functions meet, or, with several inputs,
    in a part of them that such places enclose."""
    several = view.sample.X.shape[1] > 1
    for i, j in itertools.combinations(view.used, 2):
        places = view.parts(i, j) if several else view.sides(i, j)
        yield from _exchanged(view, i, j, places, "swap {} and {} beyond {}")


def exchange(view: View) -> Iterator[Proposal]:
    """The same wherever two processes may have changed places: also between two such inputs, and at
    gaps of a single input, in which their functions may have met."""
    if view.sample.X.shape[1] > 1:
        yield from swap(view)
        return
    x = view.sample.X[:, 0]
    for i, j in itertools.combinations(view.used, 2):
        ends = np.sort([*view.meetings(i, j), *_gaps(x)])
        beyond = [x > end for end in ends]
        between = [a & ~b for a, b in itertools.pairwise(beyond)]
        yield from _exchanged(view, i, j, beyond, "swap {} and {} beyond {}")
        yield from _exchanged(view, i, j, between, "swap {} and {} within {}")


def _exchanged(
    view: View, i: int, j: int, places: Iterable[Bool[np.ndarray, " N"]], name: str
) -> Iterator[Proposal]:
    """Two processes exchanged in each of some places, where both have points.

    Between processes of the same prior, and without labels, an exchange elsewhere is the same
    association with the names exchanged: where less than half of their points are, the others keep
    the length scales and the noise they were trained with.
    """
    both = view.sample.weight[:, None] * view.responsibilities[:, [i, j]]
    alike = not view.kinds or view.kinds[i] == view.kinds[j]
    alike &= not np.isin(view.sample.labels, (i, j)).any()
    for number, where in enumerate(places):
        held = both[where].sum(axis=0)
        if min(held) < UNUSED * view.sample.weight.sum():
            continue
        if alike and held.sum() > both.sum() / 2:
            where = ~where
        responsibilities = view.responsibilities.copy()
        responsibilities[where, i] = view.responsibilities[where, j]
        responsibilities[where, j] = view.responsibilities[where, i]
        yield Proposal(name.format(i, j, number), frozenset((i, j)), responsibilities)


def _gaps(x: Float[np.ndarray, " N"]) -> list[float]:
    """Middles of the widest gaps of a single input, widest first."""
    x = np.unique(x)
    widths = np.diff(x)
    widest = np.argsort(-widths, kind="stable")[:_GAPS]
    return [float(x[g] + widths[g] / 2) for g in widest if widths[g] > _WIDE * np.median(widths)]


def temper(view: View) -> Iterator[Proposal]:
    """Assign the points by predictive densities, and less decidedly: functions then reach for
    points that others, or clutter, have taken from them in a small part of the inputs."""
    log_predictive = view.log_predictive()
    for temperature in _TEMPERATURES:
        weights = softmax(log_predictive / temperature, axis=1)
        everything = frozenset(range(weights.shape[1]))
        yield Proposal(f"temper at {temperature:g}", everything, weights, keeps_gate=True)


def extend(view: View) -> Iterator[Proposal]:
    """Lead a function, or an unused one, through points that clutter holds.

    Clutter takes the points of a function where it has lost its way; they then lie on a curve.
    """
    for k, width, near in _led(view, (*view.used, *view.unused[:1]), keeps=True):
        changed = frozenset((k, *view.clutter.nonzero()[0].tolist()))
        yield Proposal(f"extend {k} within {width:g}", changed, _taken(view, k, near))


def redirect(view: View) -> Iterator[Proposal]:
    """The same, for a function that leaves its points to others where they are not on the way."""
    log_predictive = view.log_predictive()
    for k, width, near in _led(view, view.used, keeps=False):
        responsibilities = _taken(view, k, near)
        others = np.arange(len(view.means)) != k
        may = log_predictive[:, others].max(axis=1) > 0.5 * FORBIDDEN
        left = ~near & may & (view.responsibilities[:, k] > 0.5)
        responsibilities[left, k] = 0.0
        responsibilities[np.ix_(left, others)] = softmax(
            log_predictive[np.ix_(left, others)], axis=1
        )
        everything = frozenset(range(len(view.means)))
        yield Proposal(f"redirect {k} within {width:g}", everything, responsibilities)


def _taken(view: View, k: int, near: Bool[np.ndarray, " N"]) -> Float[np.ndarray, "N K"]:
    """Responsibilities with what clutter holds of some points given to function k."""
    responsibilities = view.responsibilities.copy()
    responsibilities[near, k] += responsibilities[near][:, view.clutter].sum(axis=1)
    responsibilities[near[:, None] & view.clutter] = 0.0
    return responsibilities


def _led(
    view: View, functions: Sequence[int], *, keeps: bool
) -> Iterator[tuple[int, float, Bool[np.ndarray, " N"]]]:
    """Functions led through points that clutter holds: index, width of the mode, points on it."""
    lost = view.sample.weight * view.responsibilities[:, view.clutter].sum(axis=1)
    least = UNUSED * view.sample.weight.sum()
    if lost.sum() < least:
        return
    rng = np.random.default_rng(0)
    for k, width in itertools.product(functions, _EXTEND_WIDTHS):
        own = view.sample.weight * view.responsibilities[:, k] * (k in view.used)
        near = _on_mode(view, lost, own, width, keeps, rng)
        if lost[near].sum() >= least:
            yield k, width, near


def _on_mode(
    view: View,
    lost: Float[np.ndarray, " N"],
    own: Float[np.ndarray, " N"],
    width: float,
    keeps: bool,
    rng: np.random.Generator,
) -> Bool[np.ndarray, " N"]:
    """Points on a function through its own points, or some of them, and many of those lost."""
    X, y = view.sample.X, view.sample.y
    some = np.flatnonzero(lost + own > 0.1 * view.sample.weight)
    some = np.sort(rng.permutation(some)[:_EXTEND_POINTS])
    lost, own = lost[some], own[some]
    found = []
    for _ in range(_EXTEND_TRIES):
        lengthscale = _EXTEND_LENGTHS[0] * (_EXTEND_LENGTHS[1] / _EXTEND_LENGTHS[0]) ** rng.random()
        A = random_basis(X, lengthscale * X.shape[1] ** 0.5, rng)
        # It begins by passing through a point that was lost, and through its own or one of them.
        through = own.copy() if keeps else _one_of(own, rng)
        through += max(through.sum(), 1.0) * _one_of(lost, rng)
        weight, held = (lost, own) if keeps else (lost + own, 0.0 * own)
        _, coefficients = extended_regression(A[some], y[some], weight, held, through, width)
        on = closeness(y - A @ coefficients, 2 * width) > 0.5
        found.append((lost @ on[some], on))
    return max(found, key=lambda one: one[0])[1]


def _one_of(weight: Float[np.ndarray, " N"], rng: np.random.Generator) -> Float[np.ndarray, " N"]:
    """1 for a point drawn by weight, 0 for the others; 0 for all without weight."""
    chosen = np.zeros(len(weight))
    if weight.sum() > 0:
        chosen[rng.choice(len(weight), p=weight / weight.sum())] = 1.0
    return chosen


def reach(view: View) -> Iterator[Proposal]:
    """Hand a function one of the points that others hold and that it could explain best.

    A function of little noise excludes every point that it does not already pass through, however
    uncertain it is there. Once it passes through one of them, it finds those next to it.
    """
    log_predictive = view.log_predictive()
    held = view.responsibilities.argmax(axis=1)
    for j in view.used:
        gain = np.where(held == j, -np.inf, log_predictive[:, j] - view.log_joint.max(axis=1))
        best = np.argsort(-gain, kind="stable")[:_REACHED]
        for n in best[gain[best] > 0.5 * FORBIDDEN]:
            responsibilities = view.responsibilities.copy()
            responsibilities[n] = np.eye(len(view.means))[j]
            changed = frozenset((j, int(held[n])))
            yield Proposal(f"reach {n} by {j}", changed, responsibilities, keeps_gate=True)


Move = Callable[[View], Iterator[Proposal]]
MOVES: tuple[Move, ...] = (reach, temper, merge, annex, split, swap, extend, redirect)
"""Moves to raise the ELBO; first those that often do so without any training."""
SIMPLER: tuple[Move, ...] = (annex,)
"""Moves towards fewer processes at nearly the same ELBO."""
RIVALS: tuple[Move, ...] = (exchange,)
"""Moves to other associations that may be as good."""


def _main_direction(residual: np.ndarray, weight: np.ndarray) -> np.ndarray:
    return np.linalg.eigh((residual * weight[:, None]).T @ residual)[1][:, -1]
