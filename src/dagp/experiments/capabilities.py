"""The paper's qualitative table: what each class declares, shown by doing it.

Each capability has a small task. A tick means that the class declares it and did it just now.
"""

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from sklearn.metrics import adjusted_rand_score

from dagp.baselines import BNNLV, GPR, MDN, MLP, OMGP, RGPR
from dagp.capabilities import Capabilities
from dagp.estimator import DAGP
from dagp.kernels import Kernel, SquaredExponential
from dagp.parameters import fixed
from dagp.processes import GP

__all__ = ["MODELS", "PROBES", "demonstrate", "markdown"]

MODELS: dict[str, Any] = {
    "DAGP": DAGP,
    "OMGP": OMGP,
    "RGPR": RGPR,
    "GPR": GPR,
    "BNN+LV": BNNLV,
    "MDN": MDN,
    "MLP": MLP,
}
"""The columns of the paper's table."""
_SEED = 100
_COUNTED: dict[Any, str] = {DAGP: "n_processes", OMGP: "n_processes", MDN: "n_components"}
"""How a class is told to look for two processes; others find out or have no such number."""
_PATIENT: dict[Any, dict[str, int]] = {OMGP: {"n_init": 12}}
"""Random responsibilities find two branches in one start of a few."""
_MANY = 20_000


def _curves(X: np.ndarray) -> np.ndarray:
    """Two functions of an input between −1 and 1, (N, 2)."""
    return np.column_stack([np.sin(3 * X + 3), 2.5 + np.cos(4.5 * X + 4.5)])


def _branches(n: int = 80) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Two outcomes for every input."""
    rng = np.random.default_rng(_SEED)
    X, process = rng.uniform(-1, 1, (n, 1)), rng.integers(2, size=n)
    return X, _curves(X)[np.arange(n), process] + 0.05 * rng.standard_normal(n), process


def _regimes(n: int = 200) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Two functions, one left and one right."""
    rng = np.random.default_rng(_SEED)
    X = rng.uniform(-1, 1, (n, 1))
    process = (X[:, 0] > 0).astype(int)
    f = np.where(process, 2 + np.sin(8 * X[:, 0]), -2 - X[:, 0])
    return X, f + 0.05 * rng.standard_normal(n), process


def _curve(n: int = 200) -> tuple[np.ndarray, np.ndarray]:
    """One function."""
    rng = np.random.default_rng(_SEED)
    X = rng.uniform(-1, 1, (n, 1))
    return X, np.sin(4 * X[:, 0]) + 0.1 * rng.standard_normal(n)


def _asked(model: Any, processes: int) -> Any:
    counted = {_COUNTED[model]: processes} if model in _COUNTED else {}
    return model(**counted, **_PATIENT.get(model, {}), random_state=_SEED)


def bayesian(model: Any) -> bool:
    """Far from the data, the function is at least twice as uncertain."""
    X, y = _curve()
    fitted = _asked(model, 1).fit(X, y)
    here, there = np.sqrt(fitted.predict_mixture([[0.0], [5.0]], noise=False).variance())
    return bool(there > 2 * here)


def scalable(model: Any) -> bool:
    """Learns many rows, a few at a time."""
    X, y = _curve(_MANY)
    fitted = _asked(model, 1).set_params(batch_size=500).fit(X, y)
    error = np.asarray(fitted.predict(X[:1000])) - np.sin(4 * X[:1000, 0])
    return bool(np.sqrt(np.mean(error**2)) < 0.1)


def predictive_posterior(model: Any) -> bool:
    """About 95 % of new points are inside the 95 % interval."""
    X, y = _curve(1000)
    lower, upper = _asked(model, 1).fit(X[:400], y[:400]).predict_mixture(X[400:]).interval(0.95)
    inside = float(np.mean((y[400:] >= lower) & (y[400:] <= upper)))
    return 0.85 <= inside <= 1.0


def data_association(model: Any) -> bool:
    """Says which of two regimes, or which of two branches, the training points are from."""
    found = []
    for X, y, process in (_regimes(), _branches()):
        fitted = _asked(model, 2).fit(X, y)
        found.append(adjusted_rand_score(process, fitted.responsibilities_.argmax(axis=1)))
    return max(found) > 0.9


def predictive_associations(model: Any) -> bool:
    """Says which regime rules at a new input."""
    X, y, _ = _regimes()
    left, right = _asked(model, 2).fit(X, y).predict_assignment([[-0.5], [0.5]])
    return bool(left.argmax() != right.argmax() and min(left.max(), right.max()) > 0.8)


def multimodal(model: Any) -> bool:
    """Predicts both of two branches, and little between them."""
    X, y, _ = _branches(400)
    mixture = _asked(model, 2).fit(X, y).predict_mixture([[0.0]])
    below, above = mixture.cdf(0.7)[0], 1 - mixture.cdf(1.7)[0]
    return bool(min(below, above) > 0.25 and below + above > 0.85)


def separate_models(model: Any) -> bool:
    """Components are the branches themselves."""
    X, y, _ = _branches()
    grid = np.linspace(-0.9, 0.9, 20)[:, None]
    means = _asked(model, 2).fit(X, y).predict_mixture(grid).means
    return all(
        bool(np.any(np.max(np.abs(means - branch[:, None]), axis=0) < 0.2))
        for branch in _curves(grid).T
    )


def interpretable_priors(model: Any) -> bool:
    """A length scale stated in the units of the inputs decides how fast the function bends."""
    X, y = _curve()

    def bend(lengthscale: float) -> float:
        kernel = SquaredExponential(lengthscale=fixed(lengthscale))
        return float(np.ptp(np.asarray(_with_kernel(model, kernel).fit(X, y).predict(X))))

    return bend(0.3) > 1.5 and bend(30.0) < 1.0


def _with_kernel(model: Any, kernel: Kernel) -> Any:
    if model is DAGP:
        return DAGP(1, GP(kernel), random_state=_SEED)
    if model is OMGP:
        return OMGP(1, kernels=[kernel], random_state=_SEED)
    return model(kernel=kernel, random_state=_SEED)


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
    """Whether each declared capability could be shown."""
    return {name: PROBES[name](model) for name in model.capabilities.names()}


def markdown(shown: Mapping[str, Mapping[str, bool]]) -> str:
    """The table: ✓ declared and shown, ✗ declared and not shown, – not declared."""
    titles = [name.replace("_", " ") for name in Capabilities._fields]
    lines = ["| | " + " | ".join(titles) + " |", "|---" * (len(titles) + 1) + "|"]
    for model, results in shown.items():
        marks = [
            "–" if name not in results else "✓" if results[name] else "✗"
            for name in Capabilities._fields
        ]
        lines.append(f"| {model} | " + " | ".join(marks) + " |")
    legend = "✓ declared and shown in this run, ✗ declared and not shown, – not declared."
    return "# Capabilities\n\n" + "\n".join(lines) + f"\n\n{legend}\n"
