"""The predictive mixture: what every answer of a fitted model is a view of.

At each of N points the prediction is a mixture of K components, one per process. Given the
component, the outputs are independent; all outputs of a point share the component.

>>> mixture = Mixture([[0.5, 0.5]], [[-2.0, 2.0]], [[0.01, 0.01]])
>>> mixture.mean(), [len(regions) for regions in mixture.hdr(0.9)]
(array([0.]), [2])
"""

import dataclasses
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import numpy as np
from scipy.special import logsumexp, ndtri

from dagp.labelled import mixture_dataset
from dagp.landscape import HALF_WIDTH, Landscape, Region, cumulative, log, root
from dagp.seeds import random_source
from dagp.typing import Float, RandomState

if TYPE_CHECKING:
    import xarray

__all__ = ["Mixture"]

_RESOLUTION = 1e-14
"""Narrowest standard deviation, relative to the numbers of its row, that still has a shape."""
_TINY = np.finfo(np.float64).tiny
_EDGE = 1e-6
"""How far beyond its end, in standard deviations, a flat density still counts: the end is known
from a mean and a variance, in single precision perhaps, and what lies on it must stay possible."""
_ROWS = 4096
"""Rows treated at once by the methods that need many numbers per row."""

Values = Any
"""Whatever NumPy reads as numbers: its own and JAX's arrays, lists, tuples, a number."""
Array = np.ndarray
Weights = Float[Array, "N K"]
Components = Float[Array, "N K *P"]
PerOutput = Float[Array, "N *P"]
PerPoint = Float[Array, "*S N"]
Shares = Float[Array, "*S N K"]
Stack = Float[Array, "..."]
"""As `PerOutput`, with leading axes for several values of the argument."""
Points = Float[Array, " maxima"]


@dataclasses.dataclass(frozen=True, eq=False, repr=False)
class Mixture:
    """One mixture density per point.

    `weights` is (N, K) and is brought to sum to exactly one; `means` and `variances` are (N, K)
    for one output and (N, K, P) for several. A component flagged `uniform` is flat over its mean
    ± sqrt(3 · variance), the others are normal. A variance of zero is read as the narrowest
    density that floating point resolves beside the other numbers of its row.

    A process may take several components to describe: `owner` names the process of each, by
    default each its own. `responsibilities` and `marginal` speak of processes.

    Methods that take `y` want (N,) or (N, P), a scalar, or a stack of these along leading axes.

    >>> Mixture([[0.3, 0.7]], [[0.0, 1.0]], [[1.0, 4.0]], uniform=[False, True])
    Mixture(1 point, 2 components, 1 uniform)
    """

    weights: Weights
    means: Components
    variances: Components
    uniform: tuple[bool, ...]
    owner: tuple[int, ...]

    def __init__(
        self,
        weights: Values,
        means: Values,
        variances: Values,
        uniform: Values = (),
        owner: Values = (),
    ) -> None:
        """Convert to float64, check, and make the weights sum to one."""
        weights, means, variances = (np.asarray(a, np.float64) for a in (weights, means, variances))
        size = int(np.prod(weights.shape[1:]))
        flags = tuple(bool(flag) for flag in np.ravel(uniform)) or (False,) * size
        owners = tuple(int(process) for process in np.ravel(owner)) or tuple(range(size))
        _check(weights, means, variances, flags, owners)
        weights = weights / weights.sum(axis=1, keepdims=True)
        fields = {
            "weights": weights,
            "means": means,
            "variances": variances,
            "uniform": flags,
            "owner": owners,
        }
        for name, value in fields.items():
            object.__setattr__(self, name, value)  # the way past a frozen class's own lock

    def __len__(self) -> int:
        """Number of points."""
        return len(self.weights)

    def __getitem__(self, rows: Any) -> "Mixture":
        """The mixture at some of the points: an index, a slice, a mask or an array of indices."""
        rows = [rows] if np.ndim(rows) == 0 and not isinstance(rows, slice) else rows
        parts = (self.weights[rows], self.means[rows], self.variances[rows])
        return Mixture(*parts, self.uniform, self.owner)

    def __repr__(self) -> str:
        """Sizes, not numbers."""
        outputs = self.means.shape[2] if self.means.ndim == 3 else 1
        sizes = {"point": len(self), "component": len(self.uniform)}
        words = [f"{size} {name}{'' if size == 1 else 's'}" for name, size in sizes.items()]
        words += [f"{outputs} outputs"] if outputs > 1 else []
        words += [f"{sum(self.uniform)} uniform"] if any(self.uniform) else []
        return f"Mixture({', '.join(words)})"

    def log_prob(self, y: Values) -> PerPoint:
        """Log density of each point's output, jointly over the outputs.

        >>> Mixture([[1.0]], [[0.0]], [[1.0]]).log_prob([0.0]).round(4)
        array([-0.9189])
        """
        return np.asarray(logsumexp(self._log_joint(y), axis=-1))

    def responsibilities(self, y: Values) -> Shares:
        """Probability that each process produced `y`; the weights where no component can have.

        >>> Mixture([[0.5, 0.5]], [[-1.0, 1.0]], [[1.0, 1.0]]).responsibilities([1e6])
        array([[0., 1.]])
        """
        joint = self._log_joint(y)
        top = joint.max(axis=-1, keepdims=True)
        possible = np.isfinite(top)
        shares = np.exp(joint - np.where(possible, top, 0.0))
        shares = np.where(possible, shares, self.weights) @ self._ownership
        return shares / shares.sum(axis=-1, keepdims=True)

    @property
    def _ownership(self) -> Array:
        """One where a component (row) belongs to a process (column)."""
        return np.eye(max(self.owner) + 1)[list(self.owner)]

    def cdf(self, y: Values) -> Stack:
        """Probability of an output at or below `y`, for each output on its own.

        >>> Mixture([[0.5, 0.5]], [[-1.0, 1.0]], [[1.0, 1.0]]).cdf(0.0)
        array([0.5])
        """
        weights, _, z = self._standardised(y)
        # Weights that sum to one up to rounding must not make a probability above one.
        return np.minimum(np.sum(weights * cumulative(z, self.uniform), axis=-1), 1.0)

    def quantile(self, q: Values) -> Stack:
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
        rng = random_source(random_state)
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
            noise = np.where(flat, rng.uniform(-HALF_WIDTH, HALF_WIDTH, noise.shape), noise)
        return means + stds * noise

    def marginal(self, k: int) -> "Mixture":
        """Process `k` alone.

        >>> Mixture([[0.5, 0.5]], [[-1.0, 1.0]], [[1.0, 1.0]]).marginal(1).mean()
        array([1.])
        """
        which = range(max(self.owner) + 1)[k]
        mine = [c for c, process in enumerate(self.owner) if process == which]
        weights = self.weights[:, mine]
        total = weights.sum(axis=1, keepdims=True)
        weights = np.where(total > 0, weights, 1 / len(mine)) / np.where(total > 0, total, 1.0)
        flags = tuple(self.uniform[c] for c in mine)
        return Mixture(
            weights, self.means[:, mine], self.variances[:, mine], flags, [0] * len(mine)
        )

    def to_xarray(self) -> "xarray.Dataset":
        """The numbers with named dimensions: point, component and, with several, output.

        >>> Mixture([[0.5, 0.5]], [[-1.0, 1.0]], [[1.0, 1.0]]).to_xarray()["means"].dims
        ('point', 'component')
        """
        return mixture_dataset(self)

    def _components(self) -> tuple[Array, Array, Array]:
        """Weights, means and standard deviations with the components on the last axis."""
        means, stds = np.moveaxis(self.means, 1, -1), np.sqrt(np.moveaxis(self.variances, 1, -1))
        size = np.max(np.abs(means) + stds, axis=-1, keepdims=True)
        floor = np.maximum(_RESOLUTION * size, np.sqrt(_TINY))
        weights = self.weights if means.ndim == 2 else self.weights[:, None, :]
        return weights, means, np.maximum(stds, floor)

    def _standardised(self, y: Values) -> tuple[Array, Array, Array]:
        """Weights, standard deviations and z-scores at `y`, with the components last."""
        y, shape = np.asarray(y, np.float64), self.means[:, 0].shape
        if y.ndim and y.shape[-len(shape) :] != shape:
            raise ValueError(f"y must be a number or an array of shape {shape}, got {y.shape}.")
        if np.any(np.isnan(y)):
            raise ValueError("y must not contain NaN.")
        weights, means, stds = self._components()
        with np.errstate(over="ignore"):  # infinitely many standard deviations will do
            return weights, stds, (np.broadcast_to(y, y.shape or shape)[..., None] - means) / stds

    def _log_joint(self, y: Values) -> Shares:
        """Log weight plus log density under each component."""
        _, stds, z = self._standardised(y)
        with np.errstate(over="ignore"):  # a square that overflows is a density of zero
            normal = -0.5 * z**2 - 0.5 * np.log(2 * np.pi)
        rounding = 8 * np.finfo(np.float64).eps * np.abs(np.moveaxis(self.means, 1, -1)) / stds
        within = np.abs(z) <= HALF_WIDTH + _EDGE + rounding
        flat = np.where(within, -np.log(2 * HALF_WIDTH), -np.inf)
        density = np.where(self.uniform, flat, normal) - np.log(stds)
        return log(self.weights) + (density if stds.ndim == 2 else density.sum(axis=-2))

    def _quantile(self, q: float) -> PerOutput:
        weights, means, stds = self._components()
        ends = means + stds * np.where(self.uniform, HALF_WIDTH * (2 * q - 1), ndtri(q))
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
            return np.sum(weights[row] * cumulative(z, self.uniform), axis=-1) - tail

        row, fatol = np.arange(lower.size), 2 * float(np.spacing(tail))
        return root(excess, lower.ravel(), upper.ravel(), row, fatol=fatol).reshape(lower.shape)

    def _landscapes(self, method: str) -> Iterator[Landscape]:
        """The densities of one output, some rows at a time to bound the memory."""
        if self.means.ndim == 3 and self.means.shape[2] != 1:
            raise ValueError(f"{method} is for one output, got {self.means.shape[2]}.")
        weights, means, stds = (a.reshape(self.weights.shape) for a in self._components())
        for start in range(0, len(self), _ROWS):
            rows = slice(start, start + _ROWS)
            yield Landscape(weights[rows], means[rows], stds[rows], np.asarray(self.uniform))


def _check_level(level: float) -> float:
    if not 0 < level < 1:
        raise ValueError(f"level must be between 0 and 1, got {level}.")
    return float(level)


def _check(
    weights: Array,
    means: Array,
    variances: Array,
    uniform: tuple[bool, ...],
    owner: tuple[int, ...],
) -> None:
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
    if len(owner) != weights.shape[1] or set(owner) != set(range(max(owner, default=-1) + 1)):
        raise ValueError(
            f"owner must name a process (0, 1, …) for each of {weights.shape[1]} components and "
            f"leave none out, got {owner}."
        )
    if not (np.all(weights >= 0) and np.all(np.abs(weights.sum(axis=1) - 1) < 1e-4)):
        raise ValueError("weights must not be negative and must sum to one in every row.")
    if not np.all(np.isfinite(means)):
        raise ValueError("means must be finite.")
    if not np.all(np.isfinite(variances) & (variances >= 0)):
        raise ValueError("variances must be finite and not negative.")
