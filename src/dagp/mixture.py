"""The predictive mixture: what every answer of a fitted model is a view of.

At each of N points the prediction is a mixture of K components, one per process. Given the
component, the outputs are independent; all outputs of a point share the component.

>>> mixture = Mixture([[0.5, 0.5]], [[-2.0, 2.0]], [[0.01, 0.01]])
>>> mixture.mean(), [len(regions) for regions in mixture.hdr(0.9)]
(array([0.]), [2])
"""

import dataclasses
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike
from scipy.optimize.elementwise import find_root
from scipy.special import logsumexp, ndtr, ndtri
from sklearn.utils import check_random_state

from dagp.typing import Float, RandomState

__all__ = ["Mixture"]

_HALF_WIDTH = np.sqrt(3.0)
"""Half the width of a uniform density, in standard deviations."""
_RESOLUTION = 1e-14
"""Narrowest standard deviation, relative to the numbers of its row, that still has a shape."""
_FAR = 40.0
"""Standard deviations beyond which a normal density is zero in floating point."""
_LOOKOUT = np.linspace(-5.0, 5.0, 41)
"""Where, in standard deviations around every normal component, turns of the density are sought."""
_CLOSE = 1e-12
"""Error in the mass of a region that is no longer worth an iteration."""
_ALL = slice(None)
_LOWEST, _TINY = -np.finfo(np.float64).max, np.finfo(np.float64).tiny
_ROWS = 4096
"""Rows treated at once by the methods that need many numbers per row."""

Array = np.ndarray
Weights = Float[Array, "N K"]
Components = Float[Array, "N K *P"]
PerOutput = Float[Array, "N *P"]
PerPoint = Float[Array, "*S N"]
Shares = Float[Array, "*S N K"]
Stack = Float[Array, "..."]
"""As `PerOutput`, with leading axes for several values of the argument."""
Points = Float[Array, " maxima"]
Region = list[tuple[float, float]]


@dataclasses.dataclass(frozen=True, eq=False, repr=False)
class Mixture:
    """One mixture density per point.

    `weights` is (N, K) and is brought to sum to exactly one; `means` and `variances` are (N, K)
    for one output and (N, K, P) for several. A component flagged `uniform` is flat over its mean
    ± sqrt(3 · variance), the others are normal. A variance of zero is read as the narrowest
    density that floating point resolves beside the other numbers of its row.

    Methods that take `y` want (N,) or (N, P), a scalar, or a stack of these along leading axes.

    >>> Mixture([[0.3, 0.7]], [[0.0, 1.0]], [[1.0, 4.0]], uniform=[False, True])
    Mixture(1 point, 2 components, 1 uniform)
    """

    weights: Weights
    means: Components
    variances: Components
    uniform: Sequence[bool] = ()

    def __post_init__(self) -> None:
        """Convert to float64, check, and make the weights sum to one."""
        arrays = (np.asarray(a, np.float64) for a in (self.weights, self.means, self.variances))
        weights, means, variances = arrays
        flags = tuple(map(bool, self.uniform)) or (False,) * int(np.prod(weights.shape[1:]))
        _check(weights, means, variances, flags)
        weights = weights / weights.sum(axis=1, keepdims=True)
        fields = {"weights": weights, "means": means, "variances": variances, "uniform": flags}
        for name, value in fields.items():
            object.__setattr__(self, name, value)  # the way past a frozen class's own lock

    def __len__(self) -> int:
        """Number of points."""
        return len(self.weights)

    def __getitem__(self, rows: Any) -> "Mixture":
        """The mixture at some of the points: an index, a slice, a mask or an array of indices."""
        rows = [rows] if np.ndim(rows) == 0 and not isinstance(rows, slice) else rows
        return Mixture(self.weights[rows], self.means[rows], self.variances[rows], self.uniform)

    def __repr__(self) -> str:
        """Sizes, not numbers."""
        outputs = self.means.shape[2] if self.means.ndim == 3 else 1
        sizes = {"point": len(self), "component": len(self.uniform)}
        words = [f"{size} {name}{'' if size == 1 else 's'}" for name, size in sizes.items()]
        words += [f"{outputs} outputs"] if outputs > 1 else []
        words += [f"{sum(self.uniform)} uniform"] if any(self.uniform) else []
        return f"Mixture({', '.join(words)})"

    def log_prob(self, y: ArrayLike) -> PerPoint:
        """Log density of each point's output, jointly over the outputs.

        >>> Mixture([[1.0]], [[0.0]], [[1.0]]).log_prob([0.0]).round(4)
        array([-0.9189])
        """
        return np.asarray(logsumexp(self._log_joint(y), axis=-1))

    def responsibilities(self, y: ArrayLike) -> Shares:
        """Probability that each component produced `y`; the weights where no component can have.

        >>> Mixture([[0.5, 0.5]], [[-1.0, 1.0]], [[1.0, 1.0]]).responsibilities([1e6])
        array([[0., 1.]])
        """
        joint = self._log_joint(y)
        top = joint.max(axis=-1, keepdims=True)
        possible = np.isfinite(top)
        shares = np.exp(joint - np.where(possible, top, 0.0))
        shares = np.where(possible, shares, self.weights)
        return shares / shares.sum(axis=-1, keepdims=True)

    def cdf(self, y: ArrayLike) -> Stack:
        """Probability of an output at or below `y`, for each output on its own.

        >>> Mixture([[0.5, 0.5]], [[-1.0, 1.0]], [[1.0, 1.0]]).cdf(0.0)
        array([0.5])
        """
        weights, _, z = self._standardised(y)
        # Weights that sum to one up to rounding must not make a probability above one.
        return np.minimum(np.sum(weights * _cumulative(z, self.uniform), axis=-1), 1.0)

    def quantile(self, q: ArrayLike) -> Stack:
        """The value below which an output falls with probability `q`, a number or a 1-D array.

        Zero and one give the ends of the support: infinite as soon as a component is normal.

        >>> Mixture([[1.0]], [[3.0]], [[4.0]]).quantile([0.5, 0.975]).round(2)
        array([[3.  ],
               [6.92]])
        """
        levels = np.asarray(q, np.float64)
        if levels.ndim > 1 or not np.all((levels >= 0) & (levels <= 1)):
            raise ValueError(f"q must be a number or a 1-D array between 0 and 1, got {q}.")
        if levels.ndim == 0:
            return self._quantile(float(levels))
        answers = [self._quantile(float(level)) for level in levels]
        return np.array(answers).reshape(len(levels), *self.means[:, 0].shape)

    def interval(self, level: float = 0.95) -> tuple[PerOutput, PerOutput]:
        """Ends of the central interval: equal probability is left out on both sides.

        >>> lower, upper = Mixture([[1.0]], [[0.0]], [[1.0]]).interval(0.95)
        >>> lower.round(2), upper.round(2)
        (array([-1.96]), array([1.96]))
        """
        level = _check_level(level)
        return self._quantile(0.5 - level / 2), self._quantile(0.5 + level / 2)

    def hdr(self, level: float = 0.95) -> list[Region]:
        """Highest-density region: the smallest set that holds the output with probability `level`.

        One list of disjoint ``(low, high)`` intervals per point, from left to right; one output
        only. Where the bound on the density meets a flat stretch, any part of it would do: the
        part nearest to where the density rises, or else to the mean, is taken.

        >>> mixture = Mixture([[0.5, 0.5]], [[-2.0, 2.0]], [[0.01, 0.01]])
        >>> [(round(low, 2), round(high, 2)) for low, high in mixture.hdr(0.9)[0]]
        [(-2.16, -1.84), (1.84, 2.16)]
        """
        level = _check_level(level)
        return [region for part in self._landscapes("hdr") for region in part.highest(level)]

    def mean(self) -> PerOutput:
        """Mean of each output.

        >>> Mixture([[0.25, 0.75]], [[0.0, 4.0]], [[1.0, 1.0]]).mean()
        array([3.])
        """
        return np.einsum("nk,nk...->n...", self.weights, self.means)

    def variance(self) -> PerOutput:
        """Variance of each output: within the components plus between their means.

        >>> Mixture([[0.5, 0.5]], [[-2.0, 2.0]], [[1.0, 1.0]]).variance()
        array([5.])
        """
        spread = (self.means - self.mean()[:, None]) ** 2
        return np.einsum("nk,nk...->n...", self.weights, self.variances + spread)

    def modes(self) -> list[Points]:
        """Local maxima of the density, highest first, for each point; one output only.

        A uniform component has no maximum of its own: it only raises the density at the maxima
        of the normal ones. A point without normal components has one mode, the middle of its
        highest flat stretch.

        >>> Mixture([[0.3, 0.7]], [[-5.0, 5.0]], [[1.0, 1.0]]).modes()[0].round(3)
        array([ 5., -5.])
        """
        return [points for part in self._landscapes("modes") for points in part.maxima()]

    def sample(self, n: int = 1, random_state: RandomState = None) -> Stack:
        """`n` independent draws at every point.

        >>> Mixture([[0.5, 0.5]], [[-1.0, 1.0]], [[0.0, 0.0]]).sample(3, random_state=0).shape
        (3, 1)
        """
        is_generator = isinstance(random_state, np.random.Generator)
        rng: Any = random_state if is_generator else check_random_state(random_state)
        ceilings = np.cumsum(self.weights, axis=1)
        # Divided by the last, so that rounding never reaches a final component of weight zero.
        ceilings = ceilings[:, :-1] / ceilings[:, -1:]
        component = np.sum(rng.uniform(size=(n, len(self), 1)) >= ceilings, axis=-1)
        row = np.arange(len(self))
        means, stds = self.means[row, component], np.sqrt(self.variances[row, component])
        noise = rng.standard_normal(means.shape)
        if any(self.uniform):
            flat = np.asarray(self.uniform)[component]
            flat = flat if noise.ndim == 2 else flat[..., None]
            noise = np.where(flat, rng.uniform(-_HALF_WIDTH, _HALF_WIDTH, noise.shape), noise)
        return means + stds * noise

    def marginal(self, k: int) -> "Mixture":
        """Component `k` alone.

        >>> Mixture([[0.5, 0.5]], [[-1.0, 1.0]], [[1.0, 1.0]]).marginal(1).mean()
        array([1.])
        """
        flags = (self.uniform[k],)
        return Mixture(np.ones((len(self), 1)), self.means[:, [k]], self.variances[:, [k]], flags)

    def _components(self) -> tuple[Array, Array, Array]:
        """Weights, means and standard deviations with the components on the last axis."""
        means, stds = np.moveaxis(self.means, 1, -1), np.sqrt(np.moveaxis(self.variances, 1, -1))
        size = np.max(np.abs(means) + stds, axis=-1, keepdims=True)
        floor = np.maximum(_RESOLUTION * size, np.sqrt(_TINY))
        weights = self.weights if means.ndim == 2 else self.weights[:, None, :]
        return weights, means, np.maximum(stds, floor)

    def _standardised(self, y: ArrayLike) -> tuple[Array, Array, Array]:
        """Weights, standard deviations and z-scores at `y`, with the components last."""
        y, shape = np.asarray(y, np.float64), self.means[:, 0].shape
        if y.ndim and y.shape[-len(shape) :] != shape:
            raise ValueError(f"y must be a number or an array of shape {shape}, got {y.shape}.")
        if np.any(np.isnan(y)):
            raise ValueError("y must not contain NaN.")
        weights, means, stds = self._components()
        with np.errstate(over="ignore"):  # infinitely many standard deviations will do
            return weights, stds, (np.broadcast_to(y, y.shape or shape)[..., None] - means) / stds

    def _log_joint(self, y: ArrayLike) -> Shares:
        """Log weight plus log density under each component."""
        _, stds, z = self._standardised(y)
        with np.errstate(over="ignore"):  # a square that overflows is a density of zero
            normal = -0.5 * z**2 - 0.5 * np.log(2 * np.pi)
        flat = np.where(np.abs(z) <= _HALF_WIDTH, -np.log(2 * _HALF_WIDTH), -np.inf)
        density = np.where(self.uniform, flat, normal) - np.log(stds)
        return _log(self.weights) + (density if stds.ndim == 2 else density.sum(axis=-2))

    def _quantile(self, q: float) -> PerOutput:
        weights, means, stds = self._components()
        ends = means + stds * np.where(self.uniform, _HALF_WIDTH * (2 * q - 1), ndtri(q))
        # The quantile of a mixture lies among those of its components.
        lower = np.where(weights > 0, ends, np.inf).min(axis=-1)
        upper = np.where(weights > 0, ends, -np.inf).max(axis=-1)
        if q in (0.0, 1.0):
            return lower if q == 0.0 else upper
        # Counted from the nearer end, because the upper tail has no digits left next to one.
        side, tail = (1.0, q) if q <= 0.5 else (-1.0, 1.0 - q)
        weights, means, stds = (
            np.broadcast_to(a, means.shape).reshape(-1, means.shape[-1])
            for a in (weights, side * means, stds)
        )

        def excess(y: Array, row: Array) -> Array:
            z = (side * y[:, None] - means[row]) / stds[row]
            return np.sum(weights[row] * _cumulative(z, self.uniform), axis=-1) - tail

        row, fatol = np.arange(lower.size), 2 * float(np.spacing(tail))
        return _root(excess, lower.ravel(), upper.ravel(), row, fatol=fatol).reshape(lower.shape)

    def _landscapes(self, method: str) -> Iterator["_Landscape"]:
        """The densities of one output, some rows at a time to bound the memory."""
        if self.means.ndim == 3 and self.means.shape[2] != 1:
            raise ValueError(f"{method} is for one output, got {self.means.shape[2]}.")
        weights, means, stds = (a.reshape(self.weights.shape) for a in self._components())
        for start in range(0, len(self), _ROWS):
            rows = slice(start, start + _ROWS)
            yield _Landscape(weights[rows], means[rows], stds[rows], np.asarray(self.uniform))


class _Pieces(NamedTuple):
    """Stretches of the line on which a density is monotone and does not jump, all (N, B).

    `rising` from `left` to `right`, or falling; from `bottom` to `top` in value. `flat` is what
    the uniform components add.
    """

    left: Array
    right: Array
    rising: Array
    flat: Array
    bottom: Array
    top: Array

    @property
    def foot(self) -> Array:
        """The lower end of each piece."""
        return np.where(self.rising, self.left, self.right)

    @property
    def summit(self) -> Array:
        """The upper end of each piece."""
        return np.where(self.rising, self.right, self.left)


class _Landscape(NamedTuple):
    """The hills and plains of one-output densities: arrays (N, K), standard deviations floored."""

    weights: Array
    means: Array
    stds: Array
    uniform: Array

    def standardised(self, y: Array, row: Any, which: Array) -> tuple[Array, ...]:
        """Weights, standard deviations and z-scores of some components at (R, G) values."""
        weights, means, stds = (a[row][:, None, which] for a in self[:3])
        return weights, stds, (y[..., None] - means) / stds

    def slope(self, y: Array, row: Any = _ALL) -> Array:
        """Which way is uphill, in standard deviations of the components that matter at `y`.

        In logarithms, so that the sign is right even where every density underflows.
        """
        weights, stds, z = self.standardised(y, row, ~self.uniform)
        logits = _log(weights / stds) - 0.5 * z**2
        shares = np.exp(logits - logits.max(axis=-1, keepdims=True, initial=_LOWEST)) / stds
        return -np.sum(shares * z, axis=-1) / np.maximum(shares.sum(axis=-1), _TINY)

    def hills(self, y: Array, row: Any = _ALL) -> Array:
        """Density of the normal components."""
        weights, stds, z = self.standardised(y, row, ~self.uniform)
        return np.sum(weights / stds * np.exp(-0.5 * z**2), axis=-1) / np.sqrt(2 * np.pi)

    def plains(self, y: Array) -> Array:
        """Density of the uniform components."""
        weights, stds, z = self.standardised(y, _ALL, self.uniform)
        return np.sum(weights / stds * (np.abs(z) <= _HALF_WIDTH), axis=-1) / (2 * _HALF_WIDTH)

    def edges(self) -> Array:
        """Sorted ends (N, 2 U) of the uniform components; without weight, at another's end."""
        weights, means, stds = (a[:, self.uniform] for a in self[:3])
        ends = np.stack([means - _HALF_WIDTH * stds, means + _HALF_WIDTH * stds], axis=-1)
        used = weights[..., None] > 0
        last = np.max(ends, axis=(1, 2), keepdims=True, where=used, initial=_LOWEST)
        ends = np.where(used, ends, last)
        return np.sort(ends.reshape(len(ends), -1), axis=1)

    def turns(self) -> tuple[Array, Array]:
        """Where the normal components' density turns: (N, T), NaN where a row has fewer.

        Beside the points, whether each is a maximum.
        """
        means, stds = self.means[:, ~self.uniform, None], self.stds[:, ~self.uniform, None]
        posts = np.sort((means + stds * _LOOKOUT).reshape(len(means), -1), axis=1)
        uphill = self.slope(posts) >= 0
        turning = uphill[:, :-1] != uphill[:, 1:]
        row, post = np.nonzero(turning)
        found = _root(
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
        """Local maxima of each row, highest first."""
        points, maxima = self.turns()
        edges = self.edges()
        if edges.shape[1]:
            middles = 0.5 * (edges[:, :-1] + edges[:, 1:])
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

    def pieces(self) -> _Pieces:
        """Each row cut where its density turns or jumps, and at its mean."""
        mean = np.sum(self.weights * self.means, axis=1, keepdims=True)
        used = self.weights > 0
        low = np.where(used, self.means - _FAR * self.stds, np.inf).min(axis=1, keepdims=True)
        high = np.where(used, self.means + _FAR * self.stds, -np.inf).max(axis=1, keepdims=True)
        cuts = np.concatenate([self.turns()[0], self.edges(), mean, low, high], axis=1)
        cuts = np.sort(np.clip(np.where(np.isnan(cuts), high, cuts), low, high), axis=1)
        left, right = cuts[:, :-1], cuts[:, 1:]
        middle = 0.5 * left + 0.5 * right
        slope = self.slope(middle)
        flat = self.plains(middle)
        at_left, at_right = self.hills(left) + flat, self.hills(right) + flat
        # Level pieces: a slope lost in rounding still counts, and the mean is the last resort.
        level = (slope > 0) | ((slope == 0) & (middle < mean))
        rising = np.where(at_left == at_right, level, at_left < at_right)
        ends = np.minimum(at_left, at_right), np.maximum(at_left, at_right)
        return _Pieces(left, right, rising, flat, *ends)

    def crossings(self, pieces: _Pieces, bound: Array, row: Array) -> Array:
        """Where each piece reaches a density: everything from there to its summit is above.

        The foot of a piece that is above altogether, the summit of one that is below.
        """
        bottom, top, bound = pieces.bottom[row], pieces.top[row], bound[:, None]
        answer = np.where(bottom >= bound, pieces.foot[row], pieces.summit[row])
        i, piece = np.nonzero((bottom < bound) & (bound < top))
        target = bound[i, 0]

        def gap(y: Array, row: Array, piece: Array, target: Array):
            density = self.hills(y[:, None], row)[:, 0] + pieces.flat[row, piece]
            return np.log(np.maximum(density / target, _TINY))

        row = row[i]
        ends = pieces.left[row, piece], pieces.right[row, piece]
        answer[i, piece] = _root(gap, *ends, row, piece, target, fatol=1e-13)
        return answer

    def highest(self, level: float) -> list[Region]:
        """Highest-density regions.

        The mass above a bound on the density falls as the bound rises; the bound sought is where
        it crosses `level`. On a plain it jumps, and the rest is interpolated along the plain.
        """
        pieces = self.pieces()
        peak = pieces.top.max(axis=1)
        at_summit = self.below(pieces.summit, _ALL)

        def region(log_bound: Array, row: Array) -> tuple[Array, Array]:
            reach = self.crossings(pieces, peak[row] * np.exp(log_bound), row)
            return reach, np.abs(at_summit[row] - self.below(reach, row)).sum(axis=1)

        row = np.arange(len(peak))
        bracket = np.full(len(peak), -690.0), np.full(len(peak), 1e-9)
        found = find_root(
            lambda log_bound, row: region(log_bound, row)[1] - level,
            bracket,
            args=(row,),
            tolerances={"xatol": 1e-12, "fatol": _CLOSE},
        )
        (outer, more), (inner, less) = (region(log_bound, row) for log_bound in found.bracket)
        share = (more - level) / np.where(more > less, more - less, 1.0)
        share = np.where(more - level <= _CLOSE, 0.0, np.where(level - less <= _CLOSE, 1.0, share))
        reach = outer + share[:, None] * (inner - outer)
        low = np.where(pieces.rising, reach, pieces.left)
        high = np.where(pieces.rising, pieces.right, reach)
        return _joined(low, high)

    def below(self, y: Array, row: Any) -> Array:
        """Probability below (R, G) values."""
        weights, _, z = self.standardised(y, row, np.ones(len(self.uniform), bool))
        return np.sum(weights * _cumulative(z, self.uniform), axis=-1)


def _joined(low: Array, high: Array) -> list[Region]:
    """Lists of intervals from sorted (N, B) ones that may touch or be empty."""
    held = high > low
    reached = np.maximum.accumulate(np.where(held, high, -np.inf), axis=1)
    ahead = np.minimum.accumulate(np.where(held, low, np.inf)[:, ::-1], axis=1)[:, ::-1]
    nothing = np.full((len(low), 1), np.inf)
    starts = held & (low > np.hstack([-nothing, reached[:, :-1]]))
    ends = held & (high < np.hstack([ahead[:, 1:], nothing]))
    intervals = list(zip(low[starts].tolist(), high[ends].tolist(), strict=True))
    stops = np.cumsum(starts.sum(axis=1)).tolist()
    return [intervals[i:j] for i, j in zip([0, *stops], stops, strict=False)]


def _root(f: Callable, lower: Array, upper: Array, *args: Array, fatol: float) -> Array:
    """The root of ``f(y, *args)`` between two bounds, for every element at once."""
    found = find_root(f, (lower, upper), args=args, tolerances={"fatol": fatol})
    at_lower, at_upper = found.f_bracket
    # Rounding can hide the change of sign when the root is one of the bounds.
    nearer = np.where(np.abs(at_lower) <= np.abs(at_upper), lower, upper)
    return np.where(np.isnan(found.x), nearer, found.x)


def _cumulative(z: Array, uniform: ArrayLike) -> Array:
    if not np.any(uniform):
        return ndtr(z)
    return np.where(uniform, np.clip(0.5 + z / (2 * _HALF_WIDTH), 0.0, 1.0), ndtr(z))


def _log(x: Array) -> Array:
    return np.log(x, where=x > 0, out=np.full(x.shape, -np.inf))


def _check_level(level: float) -> float:
    if not 0 < level < 1:
        raise ValueError(f"level must be between 0 and 1, got {level}.")
    return float(level)


def _check(weights: Array, means: Array, variances: Array, uniform: tuple[bool, ...]) -> None:
    if weights.ndim != 2 or weights.shape[1] == 0:
        raise ValueError(f"weights must be of shape (N, K), got {weights.shape}.")
    if means.ndim not in (2, 3) or means.shape[:2] != weights.shape:
        raise ValueError(
            f"means must be of shape (N, K) or (N, K, P) with (N, K) = {weights.shape}, "
            f"got {means.shape}."
        )
    if variances.shape != means.shape:
        raise ValueError(f"variances must be of shape {means.shape}, got {variances.shape}.")
    if len(uniform) != weights.shape[1]:
        raise ValueError(
            f"uniform must hold one flag per component, {weights.shape[1]}, got {len(uniform)}."
        )
    if not (np.all(weights >= 0) and np.all(np.abs(weights.sum(axis=1) - 1) < 1e-4)):
        raise ValueError("weights must not be negative and must sum to one in every row.")
    if not np.all(np.isfinite(means)):
        raise ValueError("means must be finite.")
    if not np.all(np.isfinite(variances) & (variances >= 0)):
        raise ValueError("variances must be finite and not negative.")
