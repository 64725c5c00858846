"""One observation, explained."""

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from dagp.typing import Float, Int

if TYPE_CHECKING:
    from dagp.estimator import DAGP

__all__ = ["Explanation", "Opinion", "explain", "outliers"]

SURE = 0.9
"""A process this probable needs no "perhaps"."""


class Opinion(NamedTuple):
    """What one process says about an observation."""

    process: int
    kind: str
    responsibility: float
    """Probability that it produced the observation."""
    weight: float
    """Probability of the process at this input, before the output is known."""
    mean: Float[np.ndarray, " P"]
    """What it would have predicted."""
    std: Float[np.ndarray, " P"]


class Explanation(NamedTuple):
    """Which process, how sure, and what the others would have predicted; `print` it."""

    x: Float[np.ndarray, " D"]
    y: Float[np.ndarray, " P"]
    opinions: tuple[Opinion, ...]
    """Most probable process first."""
    log_density: float

    @property
    def process(self) -> int:
        """The most probable process."""
        return self.opinions[0].process

    def __str__(self) -> str:
        best = self.opinions[0]
        perhaps = "" if best.responsibility >= SURE else "perhaps "
        lines = [
            f"y = {_numbers(self.y)} at x = {_numbers(self.x)}: {perhaps}process {best.process} "
            f"({best.kind}), probability {best.responsibility:.3g}.",
        ]
        for opinion in self.opinions:
            distance = (self.y - opinion.mean) / opinion.std
            lines.append(
                f"  process {opinion.process}: expected {_numbers(opinion.mean)} "
                f"± {_numbers(opinion.std)}, {_numbers(np.abs(distance))} deviations away; "
                f"{opinion.weight:.0%} of the observations here are its own; "
                f"probability {opinion.responsibility:.3g}"
            )
        return "\n".join(lines)


def explain(model: "DAGP", x: Any, y: Any) -> Explanation:
    """See `DAGP.explain`."""
    x = np.asarray(x, np.float64).reshape(1, -1)
    outputs = np.asarray(y, np.float64).reshape(1, -1)
    asked = outputs[:, 0] if model.flat_ else outputs
    mixture = model.predict_mixture(x)
    shares = mixture.responsibilities(asked)[0]
    weights = model.predict_assignment(x)[0]
    opinions: list[Opinion] = []
    for k, process in enumerate(model.processes_):
        alone = mixture.marginal(k)
        mean, std = np.atleast_1d(alone.mean()[0]), np.atleast_1d(np.sqrt(alone.variance()[0]))
        share, weight = float(shares[k]), float(weights[k])
        opinions.append(Opinion(k, process.kind, share, weight, mean, std))
    ranked = tuple(sorted(opinions, key=lambda opinion: -opinion.responsibility))
    return Explanation(x[0], outputs[0], ranked, float(mixture.log_prob(asked)[0]))


def outliers(model: "DAGP", probability: float) -> Int[np.ndarray, " O"]:
    """See `DAGP.outliers`."""
    clutter = [k for k, process in enumerate(model.processes_) if process.kernel_ is None]
    chance = model.responsibilities_[:, clutter].sum(axis=1)
    rows = np.flatnonzero(chance >= probability)
    return rows[np.argsort(-chance[rows], kind="stable")]


def _numbers(values: Float[np.ndarray, " P"]) -> str:
    return ", ".join(f"{value:.4g}" for value in values)
