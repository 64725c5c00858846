"""Noise separation experiment: one smooth function among uniform outliers."""

from typing import Any

import numpy as np
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.gaussian_process.kernels import RBF, ConstantKernel, WhiteKernel
from sklearn.utils import Bunch

from dagp import datasets
from dagp.baselines.choicenet import ChoiceNet
from dagp.baselines.gpr import GPR
from dagp.baselines.lgpr import LGPR
from dagp.baselines.mdn import MDN
from dagp.baselines.mlp import MLP
from dagp.baselines.omgp import OMGP
from dagp.baselines.rgpr import RGPR
from dagp.estimator import DAGP
from dagp.experiments.capabilities import declared
from dagp.experiments.experiment import Experiment, Row, fits, rmse
from dagp.model.clutter import Noise
from dagp.model.gp import GP
from dagp.model.kernels import SquaredExponential, White
from dagp.predict.mixture import Mixture

OUTLIERS = (0, 20, 40, 60, 80)
_KINDS = {"clean": 0.0, "noisy": 0.15}


class Oracle:
    """Exact GP fitted to the true inliers, with their true share."""

    def __init__(self, data: Any):
        inlier = data.process == 0
        self.share = float(np.mean(inlier))
        # The lower limit keeps the GP stable on data without noise.
        noise = WhiteKernel(0.02, (1e-10, 1.0))
        kernel = ConstantKernel(1.0, (1e-3, 1e3)) * RBF(1.0, (1e-1, 1e1)) + noise
        self.gp: Any = GaussianProcessRegressor(kernel).fit(data.X[inlier], data.y[inlier])

    def predict(self, X: np.ndarray) -> np.ndarray:
        """Posterior mean of the function."""
        return np.asarray(self.gp.predict(X))

    def predict_mixture(self, X: np.ndarray, noise: bool = True) -> Mixture:
        """Posterior of the function, as a mixture of one component."""
        mean, std = self.gp.predict(X, return_std=True)
        level = self.gp.kernel_.k2.noise_level
        variance = np.maximum(std**2 - (0 if noise else level), 1e-12)
        return Mixture(np.ones((len(X), 1)), mean[:, None], variance[:, None])


def data(variant: str, seed: int, quick: bool) -> Any:
    """Training and test data; `outliers` is the share of outliers."""
    kind, percent = variant.split()
    size = {"n": 300} if quick else {}
    share = float(percent) / 100
    found = datasets.noise_separation(share, noise=_KINDS[kind], random_state=seed, **size)
    return Bunch(**found, outliers=share)


def signal(model: Any, X: np.ndarray) -> np.ndarray:
    """A model's estimate of the function.

    The mean of the signal process where there is one, of the component with the largest weight at
    each input for MDN and RGPR, and the prediction otherwise.
    """
    if isinstance(model, DAGP):
        return np.asarray(model.processes_[0].predict(X))
    if isinstance(model, OMGP):
        return model.predict_mixture(X).means[:, 0]
    return model.predict_heaviest(X) if isinstance(model, MDN | RGPR) else model.predict(X)


def score(model: Any, data: Any) -> Row:
    """Errors against the noise-free function, and association errors of DAGP and OMGP."""
    row: Row = {"rmse": rmse(signal(model, data.X_test), data.y_test)}
    if isinstance(model, Oracle):
        density = model.predict_mixture(data.X_test, noise=False).log_prob(data.y_test)
        row["mll"] = float(np.mean(density) + np.log(1 - data.outliers))
    elif declared(type(model)).bayesian:
        # Other models have no density of the function itself.
        mixture = model.predict_mixture(data.X_test, noise=False)
        row["mll"] = float(np.mean(mixture.log_prob(data.y_test)))
        if isinstance(model, DAGP | OMGP):
            row["signal_mll"] = float(np.mean(mixture.marginal(0).log_prob(data.y_test)))
    if isinstance(model, DAGP | OMGP):
        wrong = model.assignment_ != data.process
        row["accuracy"] = float(1 - wrong.mean())
        row["lost"] = int(np.sum(wrong & (data.process == 0)))
        row["absorbed"] = int(np.sum(wrong & (data.process == 1)))
    return row


_PUBLISHED = {
    "rmse": {
        "DAGP": (0.008, 0.008, 0.005, 0.031, 0.128),
        "OMGP": (0.005, 0.005, 0.007, 0.006, 0.896),
        "ChoiceNet": (0.034, 0.022, 0.018, 0.023, 0.084),
        "MDN": (0.028, 0.087, 0.565, 0.645, 0.778),
        "MLP": (0.039, 0.413, 0.452, 0.636, 0.829),
        "GPR": (0.008, 0.280, 0.447, 0.602, 0.779),
        "LGPR": (0.022, 0.206, 0.439, 0.579, 0.777),
        "RGPR": (0.017, 0.013, 1.322, 0.738, 1.523),
    },
    "mll": {
        "DAGP": (2.86, 2.71, 2.12, 0.874, 0.126),
        "OMGP": (2.09, 1.83, 1.60, 1.23, -1.35),
    },
}

NOISE = Experiment(
    name="noise",
    title="Noise separation",
    variants=tuple(f"{kind} {percent}" for kind in _KINDS for percent in OUTLIERS),
    quick_variants=("clean 0", "clean 40", "clean 80"),
    data=data,
    competitors={
        "Oracle": lambda data, seed, quick: Oracle(data),
        "DAGP": fits(DAGP, processes=[GP(), Noise()]),
        "OMGP": fits(OMGP, kernels=[SquaredExponential(), White()]),
        "ChoiceNet": fits(ChoiceNet),
        "MDN": fits(MDN),
        "MLP": fits(MLP),
        "GPR": fits(GPR),
        "LGPR": fits(LGPR),
        "RGPR": fits(RGPR, quick_settings={"n_sweeps": 20, "burn_in": 10}),
    },
    score=score,
    metrics={"rmse": "RMSE of the function", "mll": "Mean log density of the function"},
    published={
        (metric, f"clean {percent}", model): value
        for metric, models in _PUBLISHED.items()
        for model, values in models.items()
        for percent, value in zip(OUTLIERS, values, strict=True)
    },
    notes=(
        "Published figures are single runs on data without noise, with a definition of the "
        "density that cannot be fully reconstructed. Errors are those of the signal process of "
        "DAGP and OMGP (whose second process is white noise), of the heaviest component of MDN "
        "and RGPR at each input, and of the prediction of the others."
    ),
)
