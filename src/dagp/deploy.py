"""Predictions of an exported model, with NumPy alone.

`DAGP.export` writes this file, as ``predictor.py``, beside the arrays that it reads: a model then
runs where neither JAX nor dagp is installed.
"""

from pathlib import Path
from typing import Any, Literal, NamedTuple, overload

import numpy as np

__all__ = ["Components", "Predictor"]

FORMAT = 1
_CHUNK = 1024
"""Rows that are computed together, to bound the memory."""
_FAR = 1e15
"""Standardised inputs are clipped here, so that squared distances do not overflow."""
_NODES, _MASSES = np.polynomial.hermite_e.hermegauss(5)
"""Quadrature over an uncertain noise variance."""
_HALF_WIDTH = np.sqrt(3.0)
"""Half the width of a uniform density, in standard deviations."""
_EDGE = 1e-6
"""Tolerance at the ends of uniform densities, in standard deviations."""


class Components(NamedTuple):
    """The predictive mixture at N points: C components, each of one of K processes.

    Attributes
    ----------
    weights : ndarray of shape (N, C)
    means, variances : ndarray of shape (N, C, P)
    uniform : ndarray of bool of shape (C,)
        Components that are uniform over mean ± sqrt(3 · variance); the others are normal.
    owner : ndarray of int of shape (C,)
        Process of each component.
    """

    weights: np.ndarray
    means: np.ndarray
    variances: np.ndarray
    uniform: np.ndarray
    owner: np.ndarray


class Predictor:
    """An exported model; its methods are those of `DAGP` with the same names.

    Parameters
    ----------
    path : str or Path, default=None
        The file ``model.npz``, or its folder; None is the folder of this file.

    Examples
    --------
    >>> import tempfile
    >>> from dagp import DAGP, datasets
    >>> data = datasets.noise_separation(0.0, n=50, random_state=0)
    >>> model = DAGP(1, n_init=1, tol=1e-1).fit(data.X, data.y)
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     exported = Predictor(model.export(f"{folder}/model"))
    >>> bool(np.allclose(exported.predict(data.X), model.predict(data.X), rtol=0, atol=1e-8))
    True
    """

    def __init__(self, path: "str | Path | None" = None):
        path = Path(__file__).parent if path is None else Path(path)
        path = path / "model.npz" if path.is_dir() else path
        with np.load(path, allow_pickle=False) as arrays:
            self._model = _tree({name: arrays[name] for name in arrays.files})
        if self._model.get("format") != FORMAT:
            found = self._model.get("format")
            raise ValueError(f"{path} has format {found}, this predictor reads {FORMAT}.")
        self.feature_names = [str(name) for name in self._model["features"]]

    @overload
    def predict(self, X: Any, return_std: Literal[False] = False) -> np.ndarray: ...
    @overload
    def predict(self, X: Any, return_std: Literal[True]) -> tuple[np.ndarray, np.ndarray]: ...
    def predict(self, X: Any, return_std: bool = False) -> Any:
        """Mean of the predictive mixture and, if requested, its standard deviation.

        Parameters
        ----------
        X : array-like of shape (N, D)
        return_std : bool, default=False
        """
        found = self.components(X)
        return self._moments(found.weights, found.means, found.variances, return_std)

    def predict_process(self, X: Any, process: int, return_std: bool = False) -> Any:
        """Mean of the function of one process, without noise, and its standard deviation.

        Parameters
        ----------
        X : array-like of shape (N, D)
        process : int
        return_std : bool, default=False
        """
        found = self.components(X, noise=False)
        mine = found.owner == process
        if not mine.any():
            raise ValueError(f"process must be from 0 to {found.owner.max()}, got {process}.")
        weights = found.weights[:, mine]
        total = weights.sum(axis=1, keepdims=True)
        # Where the gate excludes the process, its components count alike.
        weights = np.where(total > 0, weights, 1.0) / np.where(total > 0, total, mine.sum())
        return self._moments(weights, found.means[:, mine], found.variances[:, mine], return_std)

    def predict_assignment(self, X: Any) -> np.ndarray:
        """Probability (N, K) of each process at each row of `X`.

        Parameters
        ----------
        X : array-like of shape (N, D)
        """
        rows = self._standard(X)
        parts = [_gate(self._model["gate"], part) for part in _chunks(rows)]
        return np.concatenate(parts)

    def components(self, X: Any, noise: bool = True) -> Components:
        """The predictive mixture at each row of `X`.

        Parameters
        ----------
        X : array-like of shape (N, D)
        noise : bool, default=True
            Whether to include observation noise.
        """
        rows, units = self._standard(X), self._model["units"]
        found = [_mixture(self._model, part, noise) for part in _chunks(rows)]
        weights, means, variances = (np.concatenate([f[i] for f in found]) for i in range(3))
        means = means * units["y_unit"] + units["y_centre"]
        return Components(weights, means, variances * units["y_unit"] ** 2, *found[0][3:])

    def responsibilities(self, X: Any, y: Any) -> np.ndarray:
        """Probability (N, K) that each process produced each pair.

        Parameters
        ----------
        X : array-like of shape (N, D)
        y : array-like of shape (N,) or (N, P)
        """
        found, joint = self._log_joint(X, y)
        top = joint.max(axis=1, keepdims=True)
        possible = np.isfinite(top)
        shares = np.exp(joint - np.where(possible, top, 0.0))
        shares = (
            np.where(possible, shares, found.weights) @ np.eye(found.owner.max() + 1)[found.owner]
        )
        return shares / shares.sum(axis=1, keepdims=True)

    def score_samples(self, X: Any, y: Any) -> np.ndarray:
        """Log density (N,) of each pair.

        Parameters
        ----------
        X : array-like of shape (N, D)
        y : array-like of shape (N,) or (N, P)
        """
        return np.logaddexp.reduce(self._log_joint(X, y)[1], axis=1)

    def _standard(self, X: Any) -> np.ndarray:
        names = [str(name) for name in getattr(X, "columns", [])]
        if names and self.feature_names and names != self.feature_names:
            raise ValueError(f"X must have the columns {self.feature_names}, got {names}.")
        X, units = np.asarray(X, np.float64), self._model["units"]
        columns = len(units["x_unit"])
        if X.ndim != 2 or X.shape[1] != columns or not len(X):
            raise ValueError(f"X must have the shape (rows, {columns}), got {X.shape}.")
        if not np.all(np.isfinite(X)):
            row = np.flatnonzero(~np.isfinite(X).all(axis=1))[0]
            raise ValueError(f"X contains NaN or infinity, first in row {row}.")
        with np.errstate(over="ignore"):
            return np.clip((X - units["x_centre"]) / units["x_unit"], -_FAR, _FAR)

    def _moments(
        self, weights: np.ndarray, means: np.ndarray, variances: np.ndarray, return_std: bool
    ) -> Any:
        mean = np.einsum("nc,ncp->np", weights, means)
        spread = variances + (means - mean[:, None]) ** 2
        std = np.sqrt(np.einsum("nc,ncp->np", weights, spread))
        if self._model["flat"]:
            mean, std = mean[:, 0], std[:, 0]
        return (mean, std) if return_std else mean

    def _log_joint(self, X: Any, y: Any) -> "tuple[Components, np.ndarray]":
        """The mixture, and the log of weight times density of each component at `y`."""
        found = self.components(X)
        y = np.asarray(y, np.float64).reshape(len(found.weights), -1)
        if y.shape[1] != found.means.shape[2] or np.any(np.isnan(y)):
            raise ValueError(f"y must be numbers of shape (rows, {found.means.shape[2]}).")
        means, stds = found.means, np.sqrt(found.variances)
        # Standard deviations stay above rounding.
        size = np.max(np.abs(means) + stds, axis=1, keepdims=True)
        stds = np.maximum(stds, np.maximum(1e-14 * size, np.sqrt(np.finfo(float).tiny)))
        with np.errstate(over="ignore", divide="ignore"):
            z = (y[:, None] - means) / stds
            normal = -0.5 * z**2 - 0.5 * np.log(2 * np.pi)
            logs = np.log(found.weights)
        rounding = 8 * np.finfo(float).eps * np.abs(means) / stds
        within = np.abs(z) <= _HALF_WIDTH + _EDGE + rounding
        flat = np.where(within, -np.log(2 * _HALF_WIDTH), -np.inf)
        density = np.where(found.uniform[:, None], flat, normal) - np.log(stds)
        return found, logs + density.sum(axis=2)


def _tree(arrays: "dict[str, np.ndarray]") -> "dict[str, Any]":
    """Arrays with names like ``gate.masses`` as nested dictionaries."""
    tree: dict[str, Any] = {}
    for name, array in arrays.items():
        *path, last = name.split(".")
        node = tree
        for step in path:
            node = node.setdefault(step, {})
        node[last] = array.item() if array.ndim == 0 else array
    return tree


def _items(node: "dict[str, Any]") -> "list[Any]":
    """A dictionary with the keys 0, 1, … as a list."""
    return [node[str(i)] for i in range(len(node))]


def _chunks(rows: np.ndarray) -> "list[np.ndarray]":
    return [rows[at : at + _CHUNK] for at in range(0, len(rows), _CHUNK)]


def _mixture(model: "dict[str, Any]", X: np.ndarray, noise: bool) -> "tuple[Any, ...]":
    """Weights, means, variances, kinds and owners of the components, standardised."""
    gate, columns = _gate(model["gate"], X), []
    for k, process in enumerate(_items(model["processes"])):
        masses, means, variances, noises, uniform = _process(process, X)
        for c, mass in enumerate(masses):
            variance = variances[c] + noises[c] if noise else variances[c]
            columns.append((gate[:, k] * mass, means[c], variance, uniform[c], k))
    weights, means, variances, flags, owner = zip(*columns, strict=True)
    weight = np.stack(weights, axis=1)
    weight = weight / weight.sum(axis=1, keepdims=True)
    shape = (len(X), len(model["units"]["y_unit"]))
    means, variances = (
        np.stack([np.broadcast_to(part, shape) for part in parts], axis=1)
        for parts in (means, variances)
    )
    return weight, means, variances, np.array(flags), np.array(owner)


def _process(process: "dict[str, Any]", X: np.ndarray) -> "tuple[Any, ...]":
    """Masses, means, variances, noise variances and kinds of the components of a process."""
    if "function" not in process:
        nothing = np.zeros_like(process["means"])
        return (*(process[k] for k in ("masses", "means", "variances")), nothing, process["flags"])
    mean, variance = _marginals(process["function"], X)
    samples = len(mean)
    masses, noise = np.ones(1), np.broadcast_to(process["noise"], (1, *mean.shape[1:]))
    if "log_noise" in process:
        centre, spread = (part[0] for part in _marginals(process["log_noise"], X))
        most = 0.5 * np.log(np.finfo(float).max)
        factor = np.exp(np.minimum(centre + _NODES[:, None, None] * np.sqrt(spread), most))
        masses, noise = _MASSES / _MASSES.sum(), process["noise"] * factor
    if "shape_masses" in process:
        noise = noise[:, None] * process["shape_factors"][:, None, None]
        noise = noise.reshape(-1, *mean.shape[1:])
        masses = np.outer(masses, process["shape_masses"]).ravel()
    # Every sample of the function with every component of its noise.
    mean, variance = (np.repeat(part, len(masses), axis=0) for part in (mean, variance))
    noise, masses = np.tile(noise, (samples, 1, 1)), np.tile(masses, samples) / samples
    return masses, mean, variance, noise, np.zeros(len(masses), bool)


def _gate(gate: "dict[str, Any]", X: np.ndarray) -> np.ndarray:
    """Probability of each process."""
    if "function" not in gate:
        weights = np.tile(gate["weights"], (len(X), 1))
        return weights / weights.sum(axis=1, keepdims=True)
    mean, variance = _marginals(gate["function"], X)
    if variance.shape[-1] == 2:
        # The softmax of two depends on their difference alone.
        variance = variance.sum(axis=-1, keepdims=True)
    draws = mean + gate["points"][:, None, None, :] * np.sqrt(variance + 1e-12)
    odds = np.exp(draws - draws.max(axis=-1, keepdims=True))
    odds /= odds.sum(axis=-1, keepdims=True)
    weights = np.tensordot(gate["masses"], odds, axes=1).mean(axis=0)
    return weights / weights.sum(axis=1, keepdims=True)


def _marginals(function: "dict[str, Any]", X: np.ndarray) -> "tuple[np.ndarray, np.ndarray]":
    """Mean and variance (S, N, P) of a function, with S samples of the layers before the last."""
    *inner, last = _items(function["layers"])
    points, rows, used = function["points"], X, 0
    for index, layer in enumerate(inner):
        mean, variance = _layer(layer, rows)
        width = mean.shape[1]
        shape = (len(points) if index else 1, len(X), width)
        std = np.sqrt(variance.reshape(shape) + 1e-12)
        rows = mean.reshape(shape) + std * points[:, None, used : used + width]
        rows, used = rows.reshape(-1, width), used + width
    mean, variance = _layer(last, rows)
    return mean.reshape(-1, len(X), mean.shape[1]), variance.reshape(-1, len(X), mean.shape[1])


def _layer(gp: "dict[str, Any]", X: np.ndarray) -> "tuple[np.ndarray, np.ndarray]":
    """Mean and variance (N, P) of a sparse GP."""
    basis = gp["whitener"] @ _covariance(gp["kernel"], gp["inducing"], X)
    residual = np.maximum(_diagonal(gp["kernel"], X) - np.sum(basis**2, axis=0), 0.0)
    spread = np.sum((gp["root"] @ basis) ** 2, axis=1)
    mean = X @ gp["slope"] + gp["intercept"] + (gp["mean"] @ basis).T
    return mean, residual[:, None] + spread.T


def _covariance(kernel: "dict[str, Any]", A: np.ndarray, B: np.ndarray) -> np.ndarray:
    """Covariances between the rows of `A` and those of `B`."""
    if "active" in kernel:
        A, B = A[:, kernel["active"]], B[:, kernel["active"]]
    kind = kernel["kind"]
    if kind in ("Sum", "Product"):
        first, second = (_covariance(kernel[part], A, B) for part in ("first", "second"))
        return first + second if kind == "Sum" else first * second
    variance = kernel["variance"]
    if kind == "Linear":
        return (A * variance) @ B.T
    apart = A[:, None] - B
    if kind == "Constant":
        return np.full(apart.shape[:2], variance)
    if kind == "White":
        return variance * np.all(apart == 0, axis=-1)
    if kind == "Periodic":
        z = np.sin(np.pi * apart / kernel["period"]) / kernel["lengthscale"]
        return variance * np.exp(-2 * np.sum(z**2, axis=-1))
    squared = np.sum((apart / kernel["lengthscale"]) ** 2, axis=-1)
    return variance * _correlation(kind, squared, kernel.get("alpha"))


def _correlation(kind: str, squared: np.ndarray, alpha: Any) -> np.ndarray:
    """Correlation at a squared distance in length scales."""
    if kind == "SquaredExponential":
        return np.exp(-0.5 * squared)
    if kind == "RationalQuadratic":
        return np.exp(-alpha * np.log1p(squared / (2 * alpha)))
    distance = np.sqrt({"Matern12": 1.0, "Matern32": 3.0, "Matern52": 5.0}[kind] * squared)
    factor = {"Matern12": 1.0, "Matern32": 1 + distance}.get(kind, 1 + distance + distance**2 / 3)
    return factor * np.exp(-distance)


def _diagonal(kernel: "dict[str, Any]", X: np.ndarray) -> np.ndarray:
    """Variance at each row of `X`."""
    if "active" in kernel:
        X = X[:, kernel["active"]]
    kind = kernel["kind"]
    if kind in ("Sum", "Product"):
        first, second = (_diagonal(kernel[part], X) for part in ("first", "second"))
        return first + second if kind == "Sum" else first * second
    if kind == "Linear":
        return np.sum(kernel["variance"] * X**2, axis=1)
    return np.full(len(X), kernel["variance"])
