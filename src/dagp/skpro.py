"""Adapters to skpro: a probabilistic regressor and the mixture distribution it predicts.

skpro's `NormalMixture` has normal components only, and `Uniform` clutter is not normal: the
distribution here wraps `Mixture` with any components.
"""

from collections.abc import Callable
from numbers import Integral
from typing import Any, ClassVar, Self

import numpy as np
from scipy.special import ndtr
from sklearn.base import clone

from dagp.core.typing import Float
from dagp.estimator import DAGP
from dagp.predict.density import Density
from dagp.predict.mixture import Mixture
from dagp.predict.regions import HALF_WIDTH

try:
    import pandas as pd
    from skpro.distributions.base import BaseDistribution
    from skpro.regression.base import BaseProbaRegressor
except ModuleNotFoundError as missing:  # pragma: no cover
    raise ModuleNotFoundError(
        "dagp.skpro needs skpro: pip install 'dagp[skpro]'.", name=missing.name
    ) from missing

__all__ = ["MixtureDistribution", "MixtureRegressor"]

_NARROW = 1e-150
"""Standard deviation used for a point mass, to avoid division by zero."""


class MixtureDistribution(BaseDistribution):
    """A `Mixture` as a skpro distribution.

    Densities are marginals of each output, as in all of skpro; a sample has one process per row.

    Parameters
    ----------
    mixture : Mixture
        Of N points and P outputs.
    index, columns : pandas.Index, default=None
        Labels of the points and of the outputs; counted from 0 if None.

    Examples
    --------
    >>> from dagp import Mixture
    >>> from dagp.skpro import MixtureDistribution
    >>> mixture = Mixture([[0.5, 0.5]] * 2, [[-1.0, 1.0]] * 2, [[1.0, 1.0]] * 2, [False, True])
    >>> MixtureDistribution(mixture).mean()
         0
    0  0.0
    1  0.0
    """

    _tags: ClassVar[dict[str, Any]] = {
        "capabilities:approx": ["pdfnorm"],
        "capabilities:exact": ["mean", "var", "pdf", "log_pdf", "cdf", "ppf", "energy"],
        "distr:measuretype": "continuous",
        "distr:paramtype": "composite",
    }

    def __init__(
        self, mixture: Mixture, index: pd.Index | None = None, columns: pd.Index | None = None
    ) -> None:
        self.mixture = mixture
        scalar = index is None and columns is None and mixture.means.shape[::2] == (1,)
        if not scalar:
            outputs = mixture.means.shape[2] if mixture.means.ndim == 3 else 1
            index = pd.RangeIndex(len(mixture)) if index is None else index
            columns = pd.RangeIndex(outputs) if columns is None else columns
        super().__init__(index=index, columns=columns)

    # --------------------------------------------------------------- marginals, entry by entry

    def _each(self, view: Callable[[Mixture, Any], Any], at: Any = None) -> Any:
        """Evaluate a view of the marginal of every output, each at its own column of values."""
        values = None if at is None else np.reshape(at, (len(self.mixture), -1))
        columns = [
            view(output, None if values is None else values[:, p])
            for p, output in enumerate(_outputs(self.mixture))
        ]
        return np.stack(columns, axis=1) if self.ndim else columns[0][0]

    def _mean(self) -> Any:
        return self._each(lambda output, _: output.mean())

    def _var(self) -> Any:
        return self._each(lambda output, _: output.variance())

    def _log_pdf(self, x: Any) -> Any:
        return self._each(Mixture.log_prob, x)

    def _pdf(self, x: Any) -> Any:
        return np.exp(self._log_pdf(x))

    def _cdf(self, x: Any) -> Any:
        return self._each(Mixture.cdf, x)

    def _ppf(self, p: Any) -> Any:
        return self._each(_quantiles, p)

    def _energy_self(self) -> Any:
        return self._summed(self._each(lambda output, _: _gaps(output, output)))

    def _energy_x(self, x: Any) -> Any:
        def gap(output: Mixture, y: np.ndarray) -> np.ndarray:
            points = Mixture(np.ones((len(y), 1)), y[:, None], np.zeros((len(y), 1)))
            return _gaps(output, points)

        return self._summed(self._each(gap, x))

    def _summed(self, entries: Any) -> Any:
        """The energy of a row is the sum over its outputs."""
        return entries.sum(axis=1, keepdims=True) if self.ndim else entries

    # ------------------------------------------------------------------------- draws and subsets

    def _sample(self, n_samples: int | None = None) -> Any:
        count = 1 if n_samples is None else n_samples
        draws = self.mixture.sample(count)
        if self.ndim == 0:
            return draws[0, 0] if n_samples is None else pd.DataFrame(draws)
        index: Any = self.index
        if n_samples is not None:
            index = pd.MultiIndex.from_product([range(count), index])
        return pd.DataFrame(draws.reshape(len(index), -1), index=index, columns=self.columns)

    def _iloc(self, rowidx: Any = None, colidx: Any = None) -> Any:
        if isinstance(rowidx, Integral) and isinstance(colidx, Integral):
            return self._iat(rowidx, colidx)
        rows, columns = (
            np.atleast_1d(np.arange(size)[... if wanted is None else wanted])
            for wanted, size in zip((rowidx, colidx), self.shape, strict=True)
        )
        part = self.mixture[rows]
        if part.means.ndim == 3:
            part = _some_outputs(part, columns)
        labels: Any = (self.index, self.columns)
        return type(self)(part, labels[0][rows], labels[1][columns])

    def _iat(self, rowidx: Any = None, colidx: Any = None) -> Any:
        return type(self)(_outputs(self.mixture)[colidx][rowidx])

    @classmethod
    def get_test_params(cls, parameter_set: str = "default") -> Any:
        """Parameters for skpro's conformance tests."""
        weights = np.array([[0.3, 0.7], [0.5, 0.5], [1.0, 0.0]])
        means = np.arange(12.0).reshape(3, 2, 2)
        several = Mixture(weights, means, np.full((3, 2, 2), 2.0), [False, True])
        labels = {"index": pd.Index([1, 2, 5]), "columns": pd.Index(["a", "b"])}
        one = Mixture(weights[:1], means[:1, :, 0], np.ones((1, 2)))
        return [{"mixture": several}, {"mixture": several, **labels}, {"mixture": one}]


class MixtureRegressor(BaseProbaRegressor):
    """`DAGP`, or another estimator with ``predict_mixture``, as a skpro probabilistic regressor.

    Parameters
    ----------
    estimator : estimator, default=None
        Cloned and fitted; ``DAGP()`` if None.

    Attributes
    ----------
    estimator_ : estimator
        The fitted clone, with its processes and assignments.

    Examples
    --------
    >>> import pandas as pd
    >>> from dagp.baselines import MDN
    >>> from dagp.skpro import MixtureRegressor
    >>> X = pd.DataFrame({"x": [0.0, 0.5, 1.0]})
    >>> model = MixtureRegressor(MDN(steps=10)).fit(X, X.rename(columns={"x": "y"}))
    >>> list(model.predict(X.head(2)).columns), model.predict_proba(X.head(2)).ppf(0.5).shape
    (['y'], (2, 1))
    """

    _tags: ClassVar[dict[str, Any]] = {
        "capability:multioutput": True,
        "capability:missing": False,
        "X_inner_mtype": "pd_DataFrame_Table",
        "y_inner_mtype": "pd_DataFrame_Table",
    }

    def __init__(self, estimator: Density | None = None) -> None:
        self.estimator = estimator
        super().__init__()

    def _fit(self, X: pd.DataFrame, y: pd.DataFrame, C: Any = None) -> Self:
        estimator: Any = DAGP() if self.estimator is None else clone(self.estimator)
        outputs = y.to_numpy()
        target = outputs[:, 0] if outputs.shape[1] == 1 else outputs
        # scikit-learn requires column names to be strings, skpro does not.
        self.estimator_: Any = estimator.fit(X.rename(columns=str), target)
        self._outputs = y.columns
        return self

    def _predict_proba(self, X: pd.DataFrame) -> Any:
        mixture = self.estimator_.predict_mixture(X.rename(columns=str))
        return MixtureDistribution(mixture, index=X.index, columns=self._outputs)

    def _predict(self, X: pd.DataFrame) -> Any:
        return self._predict_proba(X).mean()

    @classmethod
    def get_test_params(cls, parameter_set: str = "default") -> Any:
        """Parameters for skpro's conformance tests."""
        quick: dict[str, Any] = {"n_init": 1, "tol": 1e-1, "random_state": 0}
        return [{"estimator": DAGP(1, **quick)}, {"estimator": DAGP(2, **quick)}]


def _outputs(mixture: Mixture) -> list[Mixture]:
    """The marginal mixture of every output."""
    if mixture.means.ndim == 2:
        return [mixture]
    return [_some_outputs(mixture, p) for p in range(mixture.means.shape[2])]


def _some_outputs(mixture: Mixture, which: Any) -> Mixture:
    """The marginal mixture of one output, or of several."""
    means, variances = mixture.means[..., which], mixture.variances[..., which]
    return Mixture(mixture.weights, means, variances, mixture.uniform, mixture.owner)


def _quantiles(output: Mixture, levels: np.ndarray) -> np.ndarray:
    """The quantile of every row at its own level."""
    found = np.empty(len(levels))
    for level in np.unique(levels):
        rows = levels == level
        found[rows] = output[rows].quantile(float(level))
    return found


def _gaps(first: Mixture, second: Mixture) -> Float[np.ndarray, " N"]:
    """E|Y − Y'| for independent draws from the two mixtures."""
    total = np.zeros(len(first))
    for k, flat in enumerate(first.uniform):
        for j, level in enumerate(second.uniform):
            shift = first.means[:, k] - second.means[:, j]
            gap = _gap(shift, first.variances[:, k], second.variances[:, j], flat, level)
            total += first.weights[:, k] * second.weights[:, j] * gap
    return total


def _gap(
    shift: np.ndarray, first: np.ndarray, second: np.ndarray, flat: bool, level: bool
) -> np.ndarray:
    """E|D| for the difference D of two components, uniform or normal, with these variances.

    D is a normal plus up to two uniform variables: E|D| is that of the normal, averaged.
    """
    widths = [HALF_WIDTH * np.sqrt(v) for v, u in ((first, flat), (second, level)) if u]
    normal = np.where(flat, 0.0, first) + np.where(level, 0.0, second)
    std = np.sqrt(np.maximum(normal, _NARROW**2))
    if not widths:
        return _distance(shift, std)
    if len(widths) == 1:
        (h,) = widths
        return (_integral(shift + h, std) - _integral(shift - h, std)) / (2 * h)
    h, w = widths
    ends = (shift + h + w, shift - h - w), (shift + h - w, shift - h + w)
    outer, inner = (sum(np.abs(end) ** 3 for end in pair) / 6 for pair in ends)
    return (outer - inner) / (4 * h * w)


def _distance(t: np.ndarray, std: np.ndarray) -> np.ndarray:
    """E|N| of a normal N with mean t."""
    z = t / std
    return 2 * std * _bell(z) + t * (2 * ndtr(z) - 1)


def _integral(t: np.ndarray, std: np.ndarray) -> np.ndarray:
    """Antiderivative of `_distance` in t."""
    z = t / std
    return (t**2 + std**2) * (ndtr(z) - 0.5) + t * std * _bell(z)


def _bell(z: np.ndarray) -> np.ndarray:
    with np.errstate(over="ignore"):  # where the square overflows the density is zero
        return np.exp(-0.5 * z**2) / np.sqrt(2 * np.pi)
