"""What every estimator that predicts a density can be asked."""

import abc
from typing import Any

import numpy as np

from dagp.mixture import Mixture
from dagp.typing import Float, Table
from dagp.validation import check_outputs, check_weights

__all__ = ["Density"]


class Density(abc.ABC):
    """Views of a predictive mixture."""

    @abc.abstractmethod
    def predict_mixture(self, X: Table, noise: bool = True) -> Mixture:
        """The predictive mixture; without `noise` that of the functions themselves."""

    def score_samples(self, X: Table, y: Table) -> Float[np.ndarray, " N"]:
        """Log density of each pair."""
        mixture = self.predict_mixture(X)
        return mixture.log_prob(check_outputs(y, len(mixture)))

    def log_score(self, X: Table, y: Table, sample_weight: Any = None) -> float:
        """Mean log density: the natural score of a model that predicts distributions."""
        densities = self.score_samples(X, y)
        return float(np.average(densities, weights=check_weights(sample_weight, len(densities))))
