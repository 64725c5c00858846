"""The predictive mixture density at each of N points.

Given the component, the outputs are independent; all outputs of a point share the component.
"""

import dataclasses
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import numpy as np
from scipy.special import logsumexp, ndtri

from dagp.core.random import as_random_state
from dagp.core.typing import Float, RandomState
from dagp.predict.labelled import mixture_dataset
from dagp.predict.regions import HALF_WIDTH, Landscape, Region, cumulative, log, root

if TYPE_CHECKING:
    import xarray

_RESOLUTION = 1e-14
"""Least standard deviation relative to the means of its row, to stay above rounding."""
_TINY = np.finfo(np.float64).tiny
_EDGE = 1e-6
"""Tolerance, in standard deviations, at the ends of uniform densities, which may be rounded."""
_ROWS = 4096
"""Rows per batch in `hdr` and `modes`, which need many numbers per row."""

Values = Any
"""Anything NumPy converts to numbers."""
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
    """A mixture density at each of N points.

    Parameters
    ----------
    weights : array-like of shape (N, K)
        Probabilities of the components; normalised to sum to exactly one.
    means, variances : array-like of shape (N, K) or (N, K, P)
        Of the components, for one or P outputs. A variance of zero is replaced by the least that
        floating point resolves.
    uniform : sequence of K bools, default=()
        Components that are uniform over mean ± sqrt(3 · variance); the others are normal.
    owner : sequence of K ints, default=()
        Process of each component for `responsibilities` and `marginal`; by default its own.

    Examples
    --------
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
        weights, means, variances = (np.asarray(a, np.float64) for a in (weights, means, variances))
        size = int(np.prod(weights.shape[1:]))
        flags = tuple(bool(flag) for flag in np.ravel(uniform)) or (False,) * size
        owners = tuple(int(process) for process in np.ravel(owner)) or tuple(range(size))
        _check(weights, means, variances, flags, owners)
        weights = weights / weights.sum(axis=1, keepdims=True)
        values = (weights, means, variances, flags, owners)
        for field, value in zip(dataclasses.fields(self), values, strict=True):
            object.__setattr__(self, field.name, value)  # the class is frozen

    def __len__(self) -> int:
        return len(self.weights)

    def __getitem__(self, rows: Any) -> "Mixture":
        rows = [rows] if np.ndim(rows) == 0 and not isinstance(rows, slice) else rows
        parts = (self.weights[rows], self.means[rows], self.variances[rows])
        return Mixture(*parts, self.uniform, self.owner)

    def __repr__(self) -> str:
        outputs = self.means.shape[2] if self.means.ndim == 3 else 1
        sizes = {"point": len(self), "component": len(self.uniform)}
        words = [f"{size} {name}{'' if size == 1 else 's'}" for name, size in sizes.items()]
        words += [f"{outputs} outputs"] if outputs > 1 else []
        words += [f"{sum(self.uniform)} uniform"] if any(self.uniform) else []
        return f"Mixture({', '.join(words)})"

    def log_prob(self, y: Values) -> PerPoint:
        """Log density (..., N) at `y`, jointly over the outputs, or those that are not NaN.

        Parameters
        ----------
        y : float or array-like of shape (N,), (N, P) or (..., N, P)

        Examples
        --------
        >>> Mixture([[1.0]], [[0.0]], [[1.0]]).log_prob([0.0]).round(4)
        array([-0.9189])
        """
        return np.asarray(logsumexp(self._log_joint(y), axis=-1))

    def responsibilities(self, y: Values) -> Shares:
        """Probability (..., N, K) that each process produced `y`; weights if no density is > 0.

        Parameters
        ----------
        y : float or array-like of shape (N,), (N, P) or (..., N, P)

        Examples
        --------
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
        """Indicator matrix, components by processes."""
        return np.eye(max(self.owner) + 1)[list(self.owner)]

    def cdf(self, y: Values) -> Stack:
        """Cumulative distribution (..., N) or (..., N, P) at `y`, of each output; NaN at NaN.

        Parameters
        ----------
        y : float or array-like of shape (N,), (N, P) or (..., N, P)

        Examples
        --------
        >>> Mixture([[0.5, 0.5]], [[-1.0, 1.0]], [[1.0, 1.0]]).cdf(0.0)
        array([0.5])
        """
        weights, _, z = self._standardised(y)
        # Rounding of the weights must not make a probability exceed one.
        return np.minimum(np.sum(weights * cumulative(z, self.uniform), axis=-1), 1.0)

    def quantile(self, q: Values) -> Stack:
        """Quantiles (..., N) or (..., N, P) of each output.

        Parameters
        ----------
        q : float or 1-D array-like
            Probabilities; 0 and 1 give the ends of the support, infinite for normal components.

        Examples
        --------
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
        """Lower and upper ends of the central interval, (N,) or (N, P) each.

        Parameters
        ----------
        level : float, default=0.95
            Probability of the interval.

        Examples
        --------
        >>> lower, upper = Mixture([[1.0]], [[0.0]], [[1.0]]).interval(0.95)
        >>> lower.round(2), upper.round(2)
        (array([-1.96]), array([1.96]))
        """
        level = _check_level(level)
        return self._quantile(0.5 - level / 2), self._quantile(0.5 + level / 2)

    def hdr(self, level: float = 0.95) -> list[Region]:
        """Highest-density regions: one list of disjoint ``(low, high)`` intervals per point.

        For one output. Flat parts are filled from where the density rises, or else from the mean.

        Parameters
        ----------
        level : float, default=0.95
            Probability of the region.

        Examples
        --------
        >>> mixture = Mixture([[0.5, 0.5]], [[-2.0, 2.0]], [[0.01, 0.01]])
        >>> [(round(low, 2), round(high, 2)) for low, high in mixture.hdr(0.9)[0]]
        [(-2.16, -1.84), (1.84, 2.16)]
        """
        level = _check_level(level)
        return [region for part in self._landscapes("hdr") for region in part.highest(level)]

    def mean(self) -> PerOutput:
        """Mean (N,) or (N, P) of each output.

        >>> Mixture([[0.25, 0.75]], [[0.0, 4.0]], [[1.0, 1.0]]).mean()
        array([3.])
        """
        return np.einsum("nk,nk...->n...", self.weights, self.means)

    def variance(self) -> PerOutput:
        """Variance (N,) or (N, P) of each output: within components plus between their means.

        >>> Mixture([[0.5, 0.5]], [[-2.0, 2.0]], [[1.0, 1.0]]).variance()
        array([5.])
        """
        spread = (self.means - self.mean()[:, None]) ** 2
        return np.einsum("nk,nk...->n...", self.weights, self.variances + spread)

    def modes(self) -> list[Points]:
        """Local maxima of the density of each point, highest first; for one output.

        Maxima are those of the normal components; without any, the middle of the highest flat part.

        >>> Mixture([[0.3, 0.7]], [[-5.0, 5.0]], [[1.0, 1.0]]).modes()[0].round(3)
        array([ 5., -5.])
        """
        return [points for part in self._landscapes("modes") for points in part.maxima()]

    def sample(self, n: int = 1, random_state: RandomState = None) -> Stack:
        """Independent draws (n, N) or (n, N, P) at every point.

        Parameters
        ----------
        n : int, default=1
        random_state : int, RandomState or None, default=None

        Examples
        --------
        >>> Mixture([[0.5, 0.5]], [[-1.0, 1.0]], [[0.0, 0.0]]).sample(3, random_state=0).shape
        (3, 1)
        """
        rng = as_random_state(random_state)
        ceilings = np.cumsum(self.weights, axis=1)
        # Normalised, so that rounding never selects a final component of weight zero.
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
        """The mixture of process `k` (int) alone.

        >>> Mixture([[0.5, 0.5]], [[-1.0, 1.0]], [[1.0, 1.0]]).marginal(1).mean()
        array([1.])
        """
        which = range(max(self.owner) + 1)[k]
        mine = [c for c, process in enumerate(self.owner) if process == which]
        weights = self.weights[:, mine]
        total = weights.sum(axis=1, keepdims=True)
        weights = np.where(total > 0, weights, 1 / len(mine)) / np.where(total > 0, total, 1.0)
        flags = tuple(self.uniform[c] for c in mine)
        parts = (weights, self.means[:, mine], self.variances[:, mine])
        return Mixture(*parts, flags, [0] * len(mine))

    def to_xarray(self) -> "xarray.Dataset":
        """As a dataset with dimensions point, component and, if there are several, output.

        >>> Mixture([[0.5, 0.5]], [[-1.0, 1.0]], [[1.0, 1.0]]).to_xarray()["means"].dims
        ('point', 'component')
        """
        return mixture_dataset(self)

    def _components(self) -> tuple[Array, Array, Array]:
        """Weights, means and floored standard deviations, with components on the last axis."""
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
        weights, means, stds = self._components()
        with np.errstate(over="ignore"):  # infinite z-scores are valid
            return weights, stds, (np.broadcast_to(y, y.shape or shape)[..., None] - means) / stds

    def _log_joint(self, y: Values) -> Shares:
        _, stds, z = self._standardised(y)
        missing = np.isnan(z)
        if np.any(missing.all(axis=-2) if stds.ndim > 2 else missing):
            raise ValueError("y must hold a number for every row, not only NaN.")
        with np.errstate(over="ignore"):  # a square that overflows is a density of zero
            normal = -0.5 * z**2 - 0.5 * np.log(2 * np.pi)
        rounding = 8 * np.finfo(np.float64).eps * np.abs(np.moveaxis(self.means, 1, -1)) / stds
        within = np.abs(z) <= HALF_WIDTH + _EDGE + rounding
        flat = np.where(within, -np.log(2 * HALF_WIDTH), -np.inf)
        density = np.where(self.uniform, flat, normal) - np.log(stds)
        # Missing outputs are integrated out: given the component, the outputs are independent.
        density = np.where(missing, 0.0, density)
        return log(self.weights) + (density if stds.ndim == 2 else density.sum(axis=-2))

    def _quantile(self, q: float) -> PerOutput:
        weights, means, stds = self._components()
        ends = means + stds * np.where(self.uniform, HALF_WIDTH * (2 * q - 1), ndtri(q))
        # The quantile of a mixture lies between those of its components.
        lower = np.where(weights > 0, ends, np.inf).min(axis=-1)
        upper = np.where(weights > 0, ends, -np.inf).max(axis=-1)
        if q in (0.0, 1.0):
            return lower if q == 0.0 else upper
        # In the nearer tail, because probabilities close to one have no digits left.
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
        """Densities of one output in batches of rows, to bound the memory."""
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


def _check(weights: Array, means: Array, variances: Array, uniform: Values, owner: Values) -> None:
    if weights.ndim != 2 or weights.shape[1] == 0:
        raise ValueError(f"weights must be of shape (N, K), got {weights.shape}.")
    if means.ndim not in (2, 3) or means.shape[:2] != weights.shape:
        expected = f"(N, K) or (N, K, P) with (N, K) = {weights.shape}"
        raise ValueError(f"means must be of shape {expected}, got {means.shape}.")
    if variances.shape != means.shape:
        raise ValueError(f"variances must be of shape {means.shape}, got {variances.shape}.")
    K = weights.shape[1]
    if len(uniform) != K:
        raise ValueError(f"uniform must hold one flag per component, {K}, got {len(uniform)}.")
    if len(owner) != K or set(owner) != set(range(max(owner, default=-1) + 1)):
        expected = f"one process per component ({K}), without gaps from 0"
        raise ValueError(f"owner must hold {expected}, got {owner}.")
    if not (np.all(weights >= 0) and np.all(np.abs(weights.sum(axis=1) - 1) < 1e-4)):
        raise ValueError("weights must not be negative and must sum to one in every row.")
    if not np.all(np.isfinite(means)):
        raise ValueError("means must be finite.")
    if not np.all(np.isfinite(variances) & (variances >= 0)):
        raise ValueError("variances must be finite and not negative.")
