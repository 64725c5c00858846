"""Explanation of a single observation: responsibilities and predictions of all processes."""

import warnings
from collections.abc import Mapping
from numbers import Real
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from dagp.core.text import quoted
from dagp.core.typing import Float
from dagp.tables.validation import check_inputs

if TYPE_CHECKING:
    from dagp.estimator import DAGP

SURE = 0.9
"""Responsibility below which an explanation is worded with "perhaps"."""


class Opinion(NamedTuple):
    """Responsibility and prediction of one process for an observation.

    Attributes
    ----------
    process, kind : int, str
        Index of the process and its kind, such as ``"GP"`` or ``"Noise"``.
    responsibility, weight : float
        Probability of the process given the output, and by the gate before it is known.
    mean, std : array of shape (P,)
        Its predictive mean and standard deviation, noise included.
    """

    process: int
    kind: str
    responsibility: float
    weight: float
    mean: Float[np.ndarray, " P"]
    std: Float[np.ndarray, " P"]


class Explanation(NamedTuple):
    """Which process produced an observation, and what every process predicted; can be printed.

    Attributes
    ----------
    x, y : arrays of shape (D,) and (P,)
        Input, as it was given, and output.
    opinions : tuple of Opinion
        One per process, in descending order of responsibility.
    log_density : float
        Log predictive density of the observation.
    """

    x: np.ndarray
    y: Float[np.ndarray, " P"]
    opinions: tuple[Opinion, ...]
    log_density: float

    @property
    def process(self) -> int:
        """Index of the most probable process."""
        return self.opinions[0].process

    def __str__(self) -> str:
        best = self.opinions[0]
        perhaps = "" if best.responsibility >= SURE else "perhaps "
        lines = [
            f"y = {_numbers(self.y)} at x = {_cells(self.x)}: {perhaps}process {best.process} "
            f"({best.kind}), probability {best.responsibility:.3g}."
        ]
        for opinion in self.opinions:
            distance = np.abs((self.y - opinion.mean) / opinion.std)
            lines.append(
                f"  process {opinion.process}: expected {_numbers(opinion.mean)} ± "
                f"{_numbers(opinion.std)}, {_numbers(distance)} standard deviations away; "
                f"probability {opinion.weight:.0%} before y was observed, "
                f"{opinion.responsibility:.3g} after"
            )
        return "\n".join(lines)


def explain(model: "DAGP", x: Any, y: Any) -> Explanation:
    """See `DAGP.explain`."""
    row, encoded = _row(model, x)
    outputs = np.asarray(y, np.float64).reshape(1, -1)
    observed = outputs[:, 0] if model.flat_ else outputs
    mixture = model.posterior_.mixture(encoded, flat=model.flat_)
    responsibilities = mixture.responsibilities(observed)[0]
    weights = model.posterior_.gate(encoded)[0]
    opinions: list[Opinion] = []
    for k in np.argsort(-responsibilities, kind="stable").tolist():
        alone = mixture.marginal(k)
        mean, std = np.atleast_1d(alone.mean()[0]), np.atleast_1d(np.sqrt(alone.variance()[0]))
        known = float(responsibilities[k]), float(weights[k])
        opinions.append(Opinion(k, model.processes_[k].kind, *known, mean, std))
    return Explanation(row, outputs[0], tuple(opinions), float(mixture.log_prob(observed)[0]))


def _row(model: "DAGP", x: Any) -> tuple[np.ndarray, Float[np.ndarray, "1 D"]]:
    """A row as given (a list, a mapping, a frame of one row), and the same encoded."""
    if hasattr(x, "columns"):
        encoded = check_inputs(model, x, reset=False)
        if len(encoded) != 1:
            raise ValueError(f"x must be one row, got {len(encoded)}.")
        return model.columns_.decode(encoded)[0], encoded
    if isinstance(x, Mapping) or hasattr(x, "to_dict"):
        names = list(getattr(model, "feature_names_in_", range(model.n_features_in_)))
        if absent := [name for name in names if name not in x]:
            needed = ", ".join(map(quoted, names))
            raise ValueError(f"x has no entry {quoted(absent[0])}; it needs {needed}.")
        x = [x[name] for name in names]
    kind = np.float64 if model.columns_.plain else object
    row = np.asarray(x, kind).reshape(1, -1)
    with warnings.catch_warnings():
        # The order of a list is that of the fit.
        warnings.filterwarnings("ignore", "X does not have valid feature names")
        return row[0], check_inputs(model, row, reset=False)


def outliers(model: "DAGP", probability: float) -> np.ndarray:
    """See `DAGP.outliers`."""
    clutter = [k for k, process in enumerate(model.processes_) if process.kernel_ is None]
    chance = model.responsibilities_[:, clutter].sum(axis=1)
    # NaN, for dropped rows, compares false.
    rows = np.flatnonzero(chance >= probability)
    return model.index_[rows[np.argsort(-chance[rows], kind="stable")]]


def _cells(values: np.ndarray) -> str:
    numeric = [isinstance(value, Real) and not isinstance(value, bool) for value in values]
    pairs = zip(values, numeric, strict=True)
    return ", ".join(f"{value:.4g}" if number else str(value) for value, number in pairs)


def _numbers(values: Float[np.ndarray, " P"]) -> str:
    return ", ".join(f"{value:.4g}" for value in values)
