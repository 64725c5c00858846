"""Base class of estimators that predict a density."""

import abc
from typing import Any

import numpy as np

from dagp.core.typing import Float, Table
from dagp.predict.mixture import Mixture
from dagp.tables.validation import check_outputs, check_weights


class Density(abc.ABC):
    """Scores of the predictive mixture of an estimator."""

    @abc.abstractmethod
    def predict_mixture(self, X: Table, noise: bool = True) -> Mixture:
        """The predictive mixture; without `noise`, of the latent functions."""

    def score_samples(self, X: Table, y: Table) -> Float[np.ndarray, " N"]:
        """Log density (N,) of each pair of inputs (N, D) and outputs (N,) or (N, P)."""
        mixture = self.predict_mixture(X)
        return mixture.log_prob(check_outputs(y, len(mixture)))

    def log_score(self, X: Table, y: Table, sample_weight: Any = None) -> float:
        """Mean log density, a proper score of predictive distributions; rows may be weighted."""
        densities = self.score_samples(X, y)
        return float(np.average(densities, weights=check_weights(sample_weight, len(densities))))
