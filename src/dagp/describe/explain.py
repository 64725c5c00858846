"""Explanation of a single observation: responsibilities and predictions of all processes."""

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from dagp.core.typing import Float

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
        Input and output.
    opinions : tuple of Opinion
        One per process, in descending order of responsibility.
    log_density : float
        Log predictive density of the observation.
    """

    x: Float[np.ndarray, " D"]
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
            f"y = {_numbers(self.y)} at x = {_numbers(self.x)}: {perhaps}process {best.process} "
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
    x = np.asarray(x, np.float64).reshape(1, -1)
    outputs = np.asarray(y, np.float64).reshape(1, -1)
    observed = outputs[:, 0] if model.flat_ else outputs
    mixture = model.predict_mixture(x)
    responsibilities = mixture.responsibilities(observed)[0]
    weights = model.predict_assignment(x)[0]
    opinions: list[Opinion] = []
    for k in np.argsort(-responsibilities, kind="stable").tolist():
        alone = mixture.marginal(k)
        mean, std = np.atleast_1d(alone.mean()[0]), np.atleast_1d(np.sqrt(alone.variance()[0]))
        known = float(responsibilities[k]), float(weights[k])
        opinions.append(Opinion(k, model.processes_[k].kind, *known, mean, std))
    return Explanation(x[0], outputs[0], tuple(opinions), float(mixture.log_prob(observed)[0]))


def outliers(model: "DAGP", probability: float) -> np.ndarray:
    """See `DAGP.outliers`."""
    clutter = [k for k, process in enumerate(model.processes_) if process.kernel_ is None]
    chance = model.responsibilities_[:, clutter].sum(axis=1)
    # NaN, for dropped rows, compares false.
    rows = np.flatnonzero(chance >= probability)
    return model.index_[rows[np.argsort(-chance[rows], kind="stable")]]


def _numbers(values: Float[np.ndarray, " P"]) -> str:
    return ", ".join(f"{value:.4g}" for value in values)
