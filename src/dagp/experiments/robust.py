"""Robust regression: one function, some wrong readings, against relevance pursuit (RRP).

The UCI data sets are not part of this package: `DATA` names the environment variable with the
folder of ``boston.csv``, ``concrete.csv``, ``energy.csv`` and ``yacht.csv``, whose last column is
the target. Without it, the simulated data sets remain.
"""

import functools
import importlib.util
import os
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from scipy.stats import norm
from sklearn.utils import Bunch

from dagp.datasets.corrupted import CORRUPTIONS, corrupt, friedman, neal
from dagp.estimator import DAGP
from dagp.experiments.experiment import Experiment, Row, fits, rmse
from dagp.model.gp import GP
from dagp.model.kernels import Matern32, Matern52
from dagp.robust import RobustGPR

DATA = "DAGP_UCI"
"""Environment variable with the folder of the UCI data sets."""
DEVICE = "DAGP_RRP_DEVICE"
"""Environment variable with the PyTorch device of relevance pursuit; the CPU if there is none."""
UCI = ("boston", "concrete", "energy", "yacht")
_TRAINING = 0.9
_SIMULATED = {
    "neal": neal,
    "friedman5": functools.partial(friedman, inputs=5),
    "friedman10": functools.partial(friedman, inputs=10),
}


class Posterior(NamedTuple):
    """What models from elsewhere say."""

    mean: np.ndarray
    std: np.ndarray
    """Of a good reading: of the function and of the noise that all readings have."""
    outliers_: np.ndarray
    """Whether each row of the training data is taken for wrong."""


def uci_folder() -> Path | None:
    """The folder of the UCI data sets, if there is one."""
    return Path(os.environ[DATA]) if os.environ.get(DATA) else None


def _uci(name: str, kind: str, seed: int) -> Any:
    """A random split of a UCI data set into training data, some of it wrong, and test data."""
    folder = uci_folder()
    if folder is None:
        raise ValueError(f"{name} needs the folder of the UCI data sets: --data, or {DATA}.")
    table = np.genfromtxt(folder / f"{name}.csv", delimiter=",", skip_header=1)
    table = (table - table.mean(axis=0)) / table.std(axis=0)
    X, y = table[:, :-1], table[:, -1]
    rng = np.random.RandomState(seed)
    order, count = rng.permutation(len(y)), round(_TRAINING * len(y))
    train, test = order[:count], order[count:]
    inputs, outputs, wrong = corrupt(X[train], y[train], kind, random_state=rng)  # pyright: ignore[reportArgumentType]
    return Bunch(X=inputs, y=outputs, process=wrong.astype(int), X_test=X[test], y_test=y[test])


def available(variant: str, model: str) -> bool:
    """Whether the data set and the package that a fit needs are there."""
    known = variant.split()[0] not in UCI or uci_folder() is not None
    return known and (model != "RRP" or importlib.util.find_spec("botorch") is not None)


def data(variant: str, seed: int, quick: bool) -> Any:
    """Training data with wrong readings, and test data without."""
    name, kind = variant.split()
    if name in UCI:
        return _uci(name, kind, seed)
    return _SIMULATED[name](corruption=kind, n=60 if quick else 100, random_state=seed)


def relevance_pursuit(data: Any, seed: int, quick: bool) -> Posterior:
    """`RobustRelevancePursuitSingleTaskGP` of BoTorch with its defaults."""
    import torch  # pyright: ignore[reportMissingImports]
    from botorch.fit import fit_gpytorch_mll  # pyright: ignore[reportMissingImports]
    from botorch.models.robust_relevance_pursuit_model import (  # pyright: ignore[reportMissingImports]
        RobustRelevancePursuitSingleTaskGP,
    )
    from botorch.models.transforms import Normalize, Standardize  # pyright: ignore[reportMissingImports]
    from gpytorch.mlls import ExactMarginalLogLikelihood  # pyright: ignore[reportMissingImports]

    torch.manual_seed(seed)
    device = torch.device(os.environ.get(DEVICE, "cpu"))

    def tensor(values: np.ndarray) -> Any:
        return torch.as_tensor(values, dtype=torch.float64, device=device)

    X, y = tensor(data.X), tensor(data.y[:, None])
    model = RobustRelevancePursuitSingleTaskGP(
        train_X=X,
        train_Y=y,
        input_transform=Normalize(X.shape[1]),
        outcome_transform=Standardize(1),
    ).to(X)
    fit_gpytorch_mll(ExactMarginalLogLikelihood(model.likelihood, model))
    model.eval()
    with torch.no_grad():
        found = model.posterior(tensor(data.X_test))
        errors = model.likelihood.noise_covar
        noise = errors.base_noise.noise.mean()
        unit = model.outcome_transform.stdvs.squeeze() ** 2
        variance = found.variance.squeeze(-1) + noise * unit
        wrong = np.isin(np.arange(len(data.X)), errors.support)
        return Posterior(found.mean.squeeze(-1).cpu().numpy(), variance.sqrt().cpu().numpy(), wrong)


def score(model: Any, data: Any) -> Row:
    """Errors against clean outputs, and which wrong readings were found."""
    if isinstance(model, Posterior):
        mean, log_density = model.mean, norm.logpdf(data.y_test, model.mean, model.std)
    else:
        mean = model.predict(data.X_test)
        log_density = model.predict_mixture(data.X_test).log_prob(data.y_test)
    row: Row = {
        "mae": float(np.mean(np.abs(mean - data.y_test))),
        "rmse": rmse(mean, data.y_test),
        "nlpd": float(-np.mean(log_density)),
    }
    if isinstance(model, RobustGPR | Posterior):
        wrong = data.process == 1
        row["lost"] = int(np.sum(model.outliers_ & ~wrong))
        if wrong.any():
            row["found"] = float(np.mean(model.outliers_[wrong]))
    return row


_PUBLISHED = {
    "none": (0.208, 0.193, 0.0303, 0.0142),
    "uniform": (0.283, 0.203, 0.0306, 0.0120),
    "asymmetric": (0.335, 0.203, 0.0307, 0.0270),
}
_KERNEL = Matern52() + Matern32()

ROBUST = Experiment(
    name="robust",
    title="Robust regression",
    variants=tuple(f"{name} {kind}" for name in (*UCI, *_SIMULATED) for kind in CORRUPTIONS),
    quick_variants=("neal uniform", "friedman5 uniform"),
    data=data,
    competitors={
        "RobustGPR": fits(RobustGPR),
        "GP": fits(DAGP, 1, [GP(_KERNEL)], inducing="all"),
        "Student-t GP": fits(DAGP, 1, [GP(_KERNEL, noise="student")]),
        "RRP": relevance_pursuit,
    },
    score=score,
    metrics={
        "mae": "Mean absolute error",
        "rmse": "RMSE",
        "nlpd": "Negative log density of a good reading",
        "found": "Share of the wrong readings that were found",
        "lost": "Good readings taken for wrong",
        "seconds": "Seconds",
    },
    published={
        ("mae", f"{name} {kind}", "RRP"): value
        for kind, values in _PUBLISHED.items()
        for name, value in zip(UCI, values, strict=True)
    },
    available=available,
    notes=(
        "UCI data sets, standardised, 90 % for training; 10 % of the training outputs are wrong: "
        "off by 3 to 9 standard deviations to either side (uniform) or downwards (asymmetric), or "
        "in a tight cluster (focused). Published: relevance pursuit (RRP; Ament et al., NeurIPS "
        "2024), means over 20 repetitions. RRP is run where BoTorch is installed."
    ),
)
