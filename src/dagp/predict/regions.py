"""Modes and highest-density regions of one-dimensional mixture densities, many rows at a time."""

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from scipy.optimize.elementwise import find_root
from scipy.special import ndtr, ndtri

HALF_WIDTH = np.sqrt(3.0)
"""Half the width of a uniform density, in standard deviations."""
_FAR = 40.0
"""Standard deviations beyond which a normal density is zero in floating point."""
_RADII = np.concatenate([np.geomspace(1e-3, 0.25, 5), np.arange(0.5, 4.1, 0.25), [5, 6, 8, 12, 38]])
_LOOKOUT = np.concatenate([-_RADII, _RADII])
"""Grid, in standard deviations around every normal component, that brackets stationary points.

Without the mean, where the slope may vanish. Close to it on both sides, because a narrow component
beside the mean of a wide one makes two stationary points close together.
"""
_CLOSE = 1e-12
"""Tolerance of the mass of a region, and relative tolerance of a density."""
_ALL = slice(None)
_LOWEST, _TINY = -np.finfo(np.float64).max, np.finfo(np.float64).tiny

Array = np.ndarray
Region = list[tuple[float, float]]


class Pieces(NamedTuple):
    """Intervals (N, B) of monotone, continuous density; `flat` is its uniform part."""

    left: Array
    right: Array
    rising: Array
    flat: Array
    bottom: Array
    top: Array

    def steps(self, least: Array, peak: Array) -> Array:
        """Sorted log densities of the ends of all pieces, relative to the peak, from `least` up."""
        values = np.maximum(np.concatenate([self.bottom, self.top], axis=1), least[:, None])
        logs = np.log(values / peak[:, None])
        # A constant piece has both ends at one value: one step below it, one above.
        return np.sort(np.concatenate([logs - _CLOSE, logs + _CLOSE], axis=1), axis=1)

    @property
    def foot(self) -> Array:
        return np.where(self.rising, self.left, self.right)

    @property
    def summit(self) -> Array:
        return np.where(self.rising, self.right, self.left)


class Landscape(NamedTuple):
    """One-output mixture densities: arrays (N, K), with floored standard deviations."""

    weights: Array
    means: Array
    stds: Array
    uniform: Array

    def standardised(self, y: Array, row: Any, which: Array) -> tuple[Array, ...]:
        """Weights, standard deviations and z-scores of some components at (R, G) values."""
        weights, means, stds = (a[row][:, None, which] for a in self[:3])
        return weights, stds, (y[..., None] - means) / stds

    def slope(self, y: Array, row: Any = _ALL) -> Array:
        """Scaled slope of the normal components at `y`; its sign is right despite underflow."""
        weights, stds, z = self.standardised(y, row, ~self.uniform)
        logits = log(weights / stds) - 0.5 * z**2
        shares = np.exp(logits - logits.max(axis=-1, keepdims=True, initial=_LOWEST)) / stds
        return -np.sum(shares * z, axis=-1) / np.maximum(shares.sum(axis=-1), _TINY)

    def hills(self, y: Array, row: Any = _ALL) -> Array:
        weights, stds, z = self.standardised(y, row, ~self.uniform)
        return np.sum(weights / stds * np.exp(-0.5 * z**2), axis=-1) / np.sqrt(2 * np.pi)

    def plains(self, y: Array) -> Array:
        weights, stds, z = self.standardised(y, _ALL, self.uniform)
        return np.sum(weights / stds * (np.abs(z) <= HALF_WIDTH), axis=-1) / (2 * HALF_WIDTH)

    def edges(self) -> Array:
        """Sorted ends (N, 2 U) of the uniform components; of weight zero, at another's end."""
        weights, means, stds = (a[:, self.uniform] for a in self[:3])
        ends = np.stack([means - HALF_WIDTH * stds, means + HALF_WIDTH * stds], axis=-1)
        used = weights[..., None] > 0
        last = np.max(ends, axis=(1, 2), keepdims=True, where=used, initial=_LOWEST)
        # A row without uniform components has its ends at the lower end of its range.
        last = np.where(last > _LOWEST, last, self.reach()[0][:, None])
        ends = np.where(used, ends, last)
        return np.sort(ends.reshape(len(ends), -1), axis=1)

    def turns(self) -> tuple[Array, Array]:
        """Stationary points (N, T) of the normal components (NaN: none), and which are maxima."""
        means, stds = self.means[:, ~self.uniform, None], self.stds[:, ~self.uniform, None]
        posts = np.sort((means + stds * _LOOKOUT).reshape(len(means), -1), axis=1)
        uphill = self.slope(posts) >= 0
        turning = uphill[:, :-1] != uphill[:, 1:]
        row, post = np.nonzero(turning)
        found = root(
            lambda y, row: self.slope(y[:, None], row)[:, 0],
            posts[row, post],
            posts[row, post + 1],
            row,
            fatol=1e-15,
        )
        slot = np.cumsum(turning, axis=1)[row, post] - 1
        points = np.full((len(means), int(turning.sum(axis=1).max(initial=0))), np.nan)
        points[row, slot] = found
        maxima = np.zeros(points.shape, bool)
        maxima[row, slot] = uphill[row, post]
        return points, maxima

    def maxima(self) -> list[Array]:
        points, maxima = self.turns()
        edges = self.edges()
        if edges.shape[1]:
            middles = 0.5 * edges[:, :-1] + 0.5 * edges[:, 1:]
            best = np.argmax(self.plains(middles), axis=1)
            middle = middles[np.arange(len(best)), best]
            bare = ~maxima.any(axis=1)
            points = np.column_stack([points, middle])
            maxima = np.column_stack([maxima, bare])
        points = np.where(maxima, points, self.means[:, :1])
        heights = np.where(maxima, self.hills(points) + self.plains(points), -1.0)
        order = np.argsort(-heights, axis=1)
        points = np.take_along_axis(points, order, axis=1)
        return [row[:n].copy() for row, n in zip(points, maxima.sum(axis=1), strict=True)]

    def reach(self) -> tuple[Array, Array]:
        """Ends (N, 1) of an interval that holds all mass of each row."""
        used = self.weights > 0
        low = np.where(used, self.means - _FAR * self.stds, np.inf).min(axis=1, keepdims=True)
        high = np.where(used, self.means + _FAR * self.stds, -np.inf).max(axis=1, keepdims=True)
        return low, high

    def pieces(self) -> Pieces:
        """Each row cut where its density turns or jumps, and at the mean if all is uniform."""
        mean = np.sum(self.weights * self.means, axis=1, keepdims=True)
        low, high = self.reach()
        hilly = np.any((self.weights > 0) & ~self.uniform, axis=1, keepdims=True)
        centre = np.where(hilly, low, mean)
        cuts = np.concatenate([self.turns()[0], self.edges(), centre, low, high], axis=1)
        cuts = np.sort(np.clip(np.where(np.isnan(cuts), high, cuts), low, high), axis=1)
        left, right = cuts[:, :-1], cuts[:, 1:]
        middle = 0.5 * left + 0.5 * right
        slope = self.slope(middle)
        flat = self.plains(middle)
        at_left, at_right = self.hills(left) + flat, self.hills(right) + flat
        # Constant pieces: by the sign of the slope in logarithms, or else towards the mean.
        level = (slope > 0) | ((slope == 0) & (middle < mean))
        rising = np.where(at_left == at_right, level, at_left < at_right)
        ends = np.minimum(at_left, at_right), np.maximum(at_left, at_right)
        return Pieces(left, right, rising, flat, *ends)

    def crossings(self, pieces: Pieces, bound: Array, row: Array) -> Array:
        """Where each piece crosses the density `bound`; its foot if above, its summit if below."""
        bottom, top, bound = pieces.bottom[row], pieces.top[row], bound[:, None]
        answer = np.where(bottom >= bound, pieces.foot[row], pieces.summit[row])
        i, piece = np.nonzero((bottom < bound) & (bound < top))
        row, target = row[i], bound[i, 0]
        flat, sign = pieces.flat[row, piece], np.where(pieces.rising[row, piece], 1.0, -1.0)
        components = [a[row][:, ~self.uniform] for a in self[:3]]

        def gap(y: Array, which: Array) -> tuple[Array, Array]:
            weights, means, stds = (a[which] for a in components)
            z = (y[:, None] - means) / stds
            parts = weights / stds * np.exp(-0.5 * z**2) / np.sqrt(2 * np.pi)
            density = np.maximum(parts.sum(axis=1) + flat[which], _TINY)
            derivative = -np.sum(parts / stds * z, axis=1) / density
            # Relative to a large target the density may underflow.
            ratio = np.maximum(density / target[which], _TINY)
            return sign[which] * np.log(ratio), sign[which] * derivative

        ends = pieces.left[row, piece], pieces.right[row, piece]
        answer[i, piece] = _rising_root(gap, *ends, fatol=1e-13)
        return answer

    def highest(self, level: float) -> list[Region]:
        """Highest-density regions.

        Root search for the density above which the mass is `level`; where the mass jumps, on a
        constant piece, the region is interpolated along the piece.
        """
        pieces = self.pieces()
        peak = pieces.top.max(axis=1)
        at_summit = self.below(pieces.summit, _ALL)

        def region(log_bound: Array, row: Array) -> tuple[Array, Array]:
            reach = self.crossings(pieces, peak[row] * np.exp(log_bound), row)
            return reach, np.abs(at_summit[row] - self.below(reach, row)).sum(axis=1)

        def surplus(log_bound: Array, row: Array) -> Array:
            return region(log_bound, row)[1] - level

        row = np.arange(len(peak))
        bracket = _bisected(surplus, pieces.steps(self.least(level), peak), row)
        tolerances = {"xatol": 4 * _CLOSE, "fatol": _CLOSE}
        found = find_root(surplus, bracket, args=(row,), tolerances=tolerances)
        (outer, more), (inner, less) = (region(log_bound, row) for log_bound in found.bracket)
        share = (more - level) / np.where(more > less, more - less, 1.0)
        share = np.where(more - level <= _CLOSE, 0.0, np.where(level - less <= _CLOSE, 1.0, share))
        reach = outer + share[:, None] * (inner - outer)
        low = np.where(pieces.rising, reach, pieces.left)
        high = np.where(pieces.rising, pieces.right, reach)
        return _joined(low, high)

    def least(self, level: float) -> Array:
        """A density threshold above which the mass is certainly more than `level`."""
        # At most half of the rest lies beyond these ends, and the other half below this density.
        rest = 1.0 - level
        reach = max(HALF_WIDTH, -float(ndtri(rest / 4))) * self.stds
        low = np.where(self.weights > 0, self.means - reach, np.inf).min(axis=1)
        high = np.where(self.weights > 0, self.means + reach, -np.inf).max(axis=1)
        return 0.49 * rest / (high - low)

    def below(self, y: Array, row: Any) -> Array:
        """Probability below (R, G) values."""
        weights, _, z = self.standardised(y, row, np.ones(len(self.uniform), bool))
        return np.sum(weights * cumulative(z, self.uniform), axis=-1)


def _joined(low: Array, high: Array) -> list[Region]:
    """Disjoint intervals per row, from sorted (N, B) ones that may touch or be empty."""
    held = high > low
    reached = np.maximum.accumulate(np.where(held, high, -np.inf), axis=1)
    ahead = np.minimum.accumulate(np.where(held, low, np.inf)[:, ::-1], axis=1)[:, ::-1]
    nothing = np.full((len(low), 1), np.inf)
    starts = held & (low > np.hstack([-nothing, reached[:, :-1]]))
    ends = held & (high < np.hstack([ahead[:, 1:], nothing]))
    intervals = list(zip(low[starts].tolist(), high[ends].tolist(), strict=True))
    stops = np.cumsum(starts.sum(axis=1)).tolist()
    return [intervals[i:j] for i, j in zip([0, *stops], stops, strict=False)]


def _bisected(f: Callable, steps: Array, row: Array) -> tuple[Array, Array]:
    """The two neighbours among sorted `steps` (N, C) between which a falling function is zero."""
    first, last = np.zeros_like(row), np.full_like(row, steps.shape[1] - 1)
    for _ in range(steps.shape[1].bit_length()):
        middle = (first + last) // 2
        positive = f(steps[row, middle], row) >= 0
        first, last = np.where(positive, middle, first), np.where(positive, last, middle)
    return steps[row, first], steps[row, np.maximum(last, first + 1)]


def root(f: Callable, lower: Array, upper: Array, *args: Array, fatol: float) -> Array:
    """The root of ``f(y, *args)`` between two bounds, for every element at once."""
    found = find_root(f, (lower, upper), args=args, tolerances={"fatol": fatol})
    at_lower, at_upper = found.f_bracket
    # Rounding can hide the change of sign when the root is one of the bounds.
    nearer = np.where(np.abs(at_lower) <= np.abs(at_upper), lower, upper)
    return np.where(np.isnan(found.x), nearer, found.x)


def _rising_root(f: Callable, lower: Array, upper: Array, fatol: float) -> Array:
    """Roots of rising functions by Newton's method, with bisection as a fallback.

    ``f(y, which)`` gives values and derivatives of the elements not yet converged.
    """
    lower, upper, which = lower.copy(), upper.copy(), np.arange(len(lower))
    answer, stride = 0.5 * (lower + upper), upper - lower
    for _ in range(200):
        y = answer[which]
        value, derivative = f(y, which)
        low = lower[which] = np.where(value < 0, y, lower[which])
        high = upper[which] = np.where(value < 0, upper[which], y)
        # A step at zero slope leaves the bracket, and is not taken.
        with np.errstate(over="ignore"):
            newton = y - value / np.maximum(derivative, _TINY)
        short = np.abs(newton - y) <= 0.7 * stride[which]
        following = np.where(short & (newton > low) & (newton < high), newton, 0.5 * (low + high))
        stride[which] = np.abs(following - y)
        done = (np.abs(value) <= fatol) | (stride[which] <= 4 * np.spacing(np.abs(y)))
        answer[which] = np.where(done, y, following)
        which = which[~done]
        if not which.size:
            break
    return answer


def cumulative(z: Array, uniform: Any) -> Array:
    """Standard cumulative distribution of each component: uniform where flagged, else normal."""
    if not np.any(uniform):
        return ndtr(z)
    return np.where(uniform, np.clip(0.5 + z / (2 * HALF_WIDTH), 0.0, 1.0), ndtr(z))


def log(x: Array) -> Array:
    """Logarithm, with minus infinity at zero and no warning."""
    return np.log(x, where=x > 0, out=np.full(x.shape, -np.inf))
