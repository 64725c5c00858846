"""The paper's qualitative table: declared capabilities, each verified by a small experiment.

A tick means that the class declares the capability and passed its experiment in this run.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

import numpy as np
from sklearn.metrics import adjusted_rand_score

from dagp.baselines.bnnlv import BNNLV
from dagp.baselines.capabilities import EVERYTHING, Capabilities
from dagp.baselines.gpr import GPR
from dagp.baselines.mdn import MDN
from dagp.baselines.mlp import MLP
from dagp.baselines.omgp import OMGP
from dagp.baselines.rgpr import RGPR
from dagp.estimator import DAGP
from dagp.experiments.pool import parallel_map
from dagp.model.gp import GP
from dagp.model.kernels import SquaredExponential
from dagp.model.parameters import fixed

MODELS: dict[str, Any] = {
    "DAGP": DAGP,
    "OMGP": OMGP,
    "RGPR": RGPR,
    "GPR": GPR,
    "BNN+LV": BNNLV,
    "MDN": MDN,
    "MLP": MLP,
}
"""Models of the paper's table."""
_SEED = 100
_COUNT_ARGUMENT: dict[Any, str] = {DAGP: "n_processes", OMGP: "n_processes", MDN: "n_components"}
"""Constructor argument with the number of processes, for classes that have one."""


def declared(model: Any) -> Capabilities:
    """Capabilities of a class: those a baseline declares, all for `DAGP`."""
    return getattr(model, "capabilities", EVERYTHING)


def _curves(X: np.ndarray) -> np.ndarray:
    """Two functions of an input between −1 and 1, shape (N, 2)."""
    return np.column_stack([np.sin(3 * X + 3), 2.5 + np.cos(4.5 * X + 4.5)])


def _branches(n: int = 80) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Data from two overlapping functions: inputs, outputs and labels."""
    rng = np.random.default_rng(_SEED)
    X, process = rng.uniform(-1, 1, (n, 1)), rng.integers(2, size=n)
    return X, _curves(X)[np.arange(n), process] + 0.05 * rng.standard_normal(n), process


def _regimes(n: int = 200) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Data from two functions, one left and one right of zero."""
    rng = np.random.default_rng(_SEED)
    X = rng.uniform(-1, 1, (n, 1))
    process = (X[:, 0] > 0).astype(int)
    f = np.where(process, 2 + np.sin(8 * X[:, 0]), -2 - X[:, 0])
    return X, f + 0.05 * rng.standard_normal(n), process


def _curve(n: int = 200) -> tuple[np.ndarray, np.ndarray]:
    """Data from one function."""
    rng = np.random.default_rng(_SEED)
    X = rng.uniform(-1, 1, (n, 1))
    return X, np.sin(4 * X[:, 0]) + 0.1 * rng.standard_normal(n)


def _build(model: Any, processes: int) -> Any:
    """An unfitted model with this number of processes."""
    settings: dict[str, Any] = {name: processes} if (name := _COUNT_ARGUMENT.get(model)) else {}
    if model is OMGP:
        settings["n_init"] = 12  # It finds two branches from a minority of random starts only.
    return model(**settings, random_state=_SEED)


def bayesian(model: Any) -> bool:
    """The standard deviation of the function at least doubles away from the data."""
    X, y = _curve()
    fitted = _build(model, 1).fit(X, y)
    here, there = np.sqrt(fitted.predict_mixture([[0.0], [5.0]], noise=False).variance())
    return bool(there > 2 * here)


def scalable(model: Any) -> bool:
    """Fits many rows in minibatches, with a small error."""
    X, y = _curve(20_000)
    fitted = _build(model, 1).set_params(batch_size=500).fit(X, y)
    error = np.asarray(fitted.predict(X[:1000])) - np.sin(4 * X[:1000, 0])
    return bool(np.sqrt(np.mean(error**2)) < 0.1)


def predictive_posterior(model: Any) -> bool:
    """The 95 % interval covers about 95 % of new points."""
    X, y = _curve(1000)
    lower, upper = _build(model, 1).fit(X[:400], y[:400]).predict_mixture(X[400:]).interval(0.95)
    inside = float(np.mean((y[400:] >= lower) & (y[400:] <= upper)))
    return 0.85 <= inside <= 1.0


def data_association(model: Any) -> bool:
    """Recovers the labels of training points from two regimes or two branches."""
    found = []
    for X, y, process in (_regimes(), _branches()):
        fitted = _build(model, 2).fit(X, y)
        found.append(adjusted_rand_score(process, fitted.responsibilities_.argmax(axis=1)))
    return max(found) > 0.9


def predictive_associations(model: Any) -> bool:
    """Predicts the regime at new inputs."""
    X, y, _ = _regimes()
    left, right = _build(model, 2).fit(X, y).predict_assignment([[-0.5], [0.5]])
    return bool(left.argmax() != right.argmax() and min(left.max(), right.max()) > 0.8)


def multimodal(model: Any) -> bool:
    """The density has mass at both of two branches and little between them."""
    X, y, _ = _branches(400)
    mixture = _build(model, 2).fit(X, y).predict_mixture([[0.0]])
    below, above = mixture.cdf(0.7)[0], 1 - mixture.cdf(1.7)[0]
    return bool(min(below, above) > 0.25 and below + above > 0.85)


def separate_models(model: Any) -> bool:
    """Two components of the mixture are the two branches."""
    X, y, _ = _branches()
    grid = np.linspace(-0.9, 0.9, 20)[:, None]
    means = _build(model, 2).fit(X, y).predict_mixture(grid).means
    return all(
        bool(np.any(np.max(np.abs(means - branch[:, None]), axis=0) < 0.2))
        for branch in _curves(grid).T
    )


def interpretable_priors(model: Any) -> bool:
    """A fixed length scale in the units of the inputs determines how fast the function varies."""
    X, y = _curve()

    def bend(lengthscale: float) -> float:
        kernel = SquaredExponential(lengthscale=fixed(lengthscale))
        arguments: Any = {DAGP: (1, GP(kernel)), OMGP: (1, [kernel])}.get(model, (kernel,))
        fitted = model(*arguments, random_state=_SEED).fit(X, y)
        return float(np.ptp(np.asarray(fitted.predict(X))))

    return bend(0.3) > 1.5 and bend(30.0) < 1.0


PROBES: dict[str, Callable[[Any], bool]] = {
    "bayesian": bayesian,
    "scalable": scalable,
    "predictive_posterior": predictive_posterior,
    "data_association": data_association,
    "predictive_associations": predictive_associations,
    "multimodal": multimodal,
    "separate_models": separate_models,
    "interpretable_priors": interpretable_priors,
}


def demonstrate(model: Any) -> dict[str, bool]:
    """Whether the experiment of each declared capability succeeds."""
    return {name: PROBES[name](model) for name in declared(model).names()}


def demonstrations(
    models: Iterable[Any], jobs: int = 1, dask: str | None = None
) -> Iterator[dict[str, bool]]:
    """`demonstrate` of every model in its order, so many at a time."""
    return parallel_map(demonstrate, models, jobs, dask=dask, in_order=True)


def markdown(shown: Mapping[str, Mapping[str, bool]]) -> str:
    """The table in Markdown: ✓ declared and shown, ✗ declared and not shown, – not declared."""
    names, marks = Capabilities._fields, {None: "–", True: "✓", False: "✗"}
    titles = [name.replace("_", " ") for name in names]
    lines = ["| | " + " | ".join(titles) + " |", "|---" * (len(titles) + 1) + "|"]
    for model, results in shown.items():
        lines.append(f"| {model} | " + " | ".join(marks[results.get(n)] for n in names) + " |")
    legend = "✓ declared and shown in this run, ✗ declared and not shown, – not declared."
    return "# Capabilities\n\n" + "\n".join(lines) + f"\n\n{legend}\n"
