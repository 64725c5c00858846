"""Multimodal experiment: three functions, two of which coincide in places."""

from typing import Any

from sklearn.utils import Bunch

from dagp import datasets
from dagp.baselines.bnnlv import BNNLV
from dagp.baselines.gpr import GPR
from dagp.baselines.mdn import MDN
from dagp.baselines.omgp import OMGP
from dagp.estimator import DAGP
from dagp.experiments.experiment import Experiment, Row, fits
from dagp.experiments.judge import PROBES, multimodal

_NOISE = {"text": 0.005, "figure": 0.05}
"""Noise as in the text of the paper, and as in its figure."""
_PROCESSES = 4


def data(variant: str, seed: int, quick: bool) -> Any:
    """Training data, and as many fresh points for scoring."""
    size = {"n": 150} if quick else {}
    found = datasets.multimodal(noise=_NOISE[variant], random_state=seed, **size)
    fresh = datasets.multimodal(noise=_NOISE[variant], random_state=seed + 10_000, **size)
    return Bunch(**found, X_fresh=fresh.X, y_fresh=fresh.y)


def score(model: Any, data: Any) -> Row:
    """Log density of fresh data and, for mixtures of processes, recovery of the structure."""
    row: Row = {"log_score": model.log_score(data.X_fresh, data.y_fresh)}
    if not isinstance(model, DAGP | OMGP):
        return row
    gate = model.predict_assignment([[x] for x in PROBES]) if isinstance(model, DAGP) else None
    found = multimodal(data.X[:, 0], data.process, model.assignment_, gate)
    row |= {name: found[name] for name in ("processes", "ari", "gate") if name in found}
    if gate is not None:
        row["structure"] = float(row["processes"] == 3 and row["gate"])
    return row


MULTIMODAL = Experiment(
    name="multimodal",
    title="Multimodal data",
    variants=tuple(_NOISE),
    quick_variants=("figure",),
    data=data,
    competitors={
        "DAGP": fits(DAGP, _PROCESSES),
        "OMGP": fits(OMGP, _PROCESSES),
        "BNN+LV": fits(BNNLV, quick_settings={"steps": 500}),
        "MDN": fits(MDN),
        "GPR": fits(GPR),
    },
    score=score,
    metrics={
        "log_score": "Mean log density of fresh data",
        "ari": "Adjusted Rand index where the functions differ",
        "structure": "Share of runs with three processes and the right gate",
    },
    published={},
    notes=(
        "The paper shows this experiment as a figure; in the first author's five reruns two leave "
        "the fourth process empty, which is right, and three do not. `text` is the data as "
        "described (noise .005), `figure` as plotted (noise .05), where assignment by the true "
        "functions has an adjusted Rand index of about .92."
    ),
)
