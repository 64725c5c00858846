"""What every rival shares: the checks, the units and the answers of `DAGP`."""

import abc
from collections.abc import Mapping
from numbers import Integral, Real
from typing import Any, ClassVar, NamedTuple, Self

import numpy as np
from sklearn.base import BaseEstimator, RegressorMixin
from sklearn.utils.validation import check_is_fitted, column_or_1d

from dagp.capabilities import Capabilities
from dagp.data import Sample, Units
from dagp.density import Density
from dagp.mixture import Mixture
from dagp.runtime import numerics
from dagp.seeds import random_source
from dagp.typing import Float, Inputs, PerPoint, PerProcess, Table
from dagp.validation import check_inputs, check_outputs

__all__ = ["Baseline", "Density", "DensityBaseline", "Predicted"]


class Predicted(NamedTuple):
    """Components of the prediction at each point, in standardised units."""

    weights: PerProcess
    means: PerProcess
    variances: PerProcess
    """Of the function itself."""
    noise_variances: PerProcess
    """Of an observation around it."""


class Baseline(RegressorMixin, BaseEstimator):
    """A rival with one output.

    A leaf stores its settings, `_settings` says which numbers they must be, and `_learn` and
    `_means` work on standardised arrays in float64.
    """

    capabilities: ClassVar[Capabilities]
    random_state: Any
    units_: Units

    @abc.abstractmethod
    def _settings(self) -> Mapping[str, tuple[Any, type, float]]:
        """Value, kind (int or float) and smallest value of each number among the settings."""

    @abc.abstractmethod
    def _learn(self, X: Inputs, y: PerPoint, rng: np.random.Generator) -> None:
        """Learn from a standardised sample."""

    @abc.abstractmethod
    def _means(self, X: Inputs) -> PerPoint:
        """The one answer at each standardised input."""

    def fit(self, X: Table, y: Table) -> Self:
        """Learn from inputs (N, D) and outputs (N,)."""
        for name, (value, kind, least) in self._settings().items():
            _check_number(name, value, kind, least)
        X = check_inputs(self, X, reset=True)
        y = column_or_1d(check_outputs(y, len(X)), warn=True)
        sample = Sample(X, y[:, None], np.ones(len(X)), np.full(len(X), -1))
        self.units_ = Units.of(sample)
        standard = self.units_.apply(sample)
        rng = np.random.default_rng(random_source(self.random_state).randint(2**31 - 1))
        with numerics("float64"):
            self._learn(standard.X, standard.y[:, 0], rng)
        return self

    def predict(self, X: Table) -> Float[np.ndarray, " N"]:
        """The expected output at each row of `X`."""
        means = self._ask(self._means, X)
        return means * self.units_.y_unit[0] + self.units_.y_centre[0]

    def _ask(self, view: Any, X: Table) -> Any:
        """What `view` says about the rows of `X`, as NumPy arrays."""
        check_is_fitted(self)
        X = self.units_.standard_x(check_inputs(self, X, reset=False))
        with numerics("float64"):
            answer = view(X)
        if isinstance(answer, tuple):
            return Predicted(*(np.asarray(part, np.float64) for part in answer))
        return np.asarray(answer, np.float64)


class DensityBaseline(Density, Baseline):
    """A rival that predicts a density: a mixture, as that of `DAGP`."""

    @abc.abstractmethod
    def _components(self, X: Inputs) -> Predicted:
        """The predictive mixture at standardised inputs."""

    def _means(self, X: Inputs) -> PerPoint:
        found = self._components(X)
        return np.sum(np.asarray(found.weights) * np.asarray(found.means), axis=1)

    def predict_mixture(self, X: Table, noise: bool = True) -> Mixture:
        found = self._ask(self._components, X)
        unit, centre = self.units_.y_unit[0], self.units_.y_centre[0]
        variances = found.variances + found.noise_variances if noise else found.variances
        return Mixture(found.weights, found.means * unit + centre, variances * unit**2)


def _check_number(name: str, value: Any, kind: type, least: float) -> None:
    right = isinstance(value, Integral if kind is int else Real) and not isinstance(value, bool)
    if not right or not float(value) >= least:
        word = "a whole number" if kind is int else "a number"
        raise ValueError(f"{name} must be {word} of at least {least:g}, got {value!r}.")
