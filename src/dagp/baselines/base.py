"""Base classes of the baselines: input checks, standardisation and predictive mixtures."""

import abc
from dataclasses import field, fields
from numbers import Integral, Real
from typing import Any, ClassVar, NamedTuple, Self, cast

import numpy as np
from sklearn.base import BaseEstimator, RegressorMixin
from sklearn.utils.validation import check_is_fitted, column_or_1d

from dagp.baselines.capabilities import Capabilities
from dagp.core.precision import numerics
from dagp.core.random import as_random_state
from dagp.core.text import quoted
from dagp.core.typing import Float, Inputs, PerPoint, PerProcess, Table
from dagp.inference.standardize import Sample, Units
from dagp.predict.density import Density
from dagp.predict.mixture import Mixture
from dagp.tables.validation import check_inputs, check_outputs


class Predicted(NamedTuple):
    """Components of the prediction at each point, in standardised units."""

    weights: PerProcess
    means: PerProcess
    variances: PerProcess
    """Of the function f(x)."""
    noise_variances: PerProcess
    """Of the observation noise."""


def setting(default: float, least: float) -> Any:
    """A numeric setting of a baseline; a least value of type int means a whole number."""
    return field(default=default, metadata={"least": least})


class Baseline(RegressorMixin, BaseEstimator):
    """Base class of a baseline with one output.

    A subclass is a dataclass of its settings; `_learn` and `_means` get standardised float64 data.
    """

    capabilities: ClassVar[Capabilities]
    random_state: Any
    units_: Units

    @abc.abstractmethod
    def _learn(self, X: Inputs, y: PerPoint, rng: np.random.Generator) -> None:
        """Fit a standardised sample."""

    @abc.abstractmethod
    def _means(self, X: Inputs) -> PerPoint:
        """Predictive mean at each standardised input."""

    def fit(self, X: Table, y: Table) -> Self:
        """Fit the model.

        Parameters
        ----------
        X, y : table of shape (N, D), array of shape (N,)
            Inputs and outputs.
        """
        for declared in fields(cast(Any, self)):
            if (least := declared.metadata.get("least")) is not None:
                check_number(declared.name, getattr(self, declared.name), least)
        X = check_inputs(self, X, reset=True)
        y = column_or_1d(check_outputs(y, len(X)), warn=True)
        sample = Sample(X, y[:, None], np.ones(len(X)), np.full(len(X), -1))
        self.units_ = Units.of(sample)
        standard = self.units_.apply(sample)
        rng = np.random.default_rng(as_random_state(self.random_state).randint(2**31 - 1))
        with numerics("float64"):
            self._learn(standard.X, standard.y[:, 0], rng)
        return self

    def predict(self, X: Table) -> Float[np.ndarray, " N"]:
        """Predictive mean, an array of shape (N,).

        Parameters
        ----------
        X : table of shape (N, D)
            Inputs.
        """
        return self._in_units(self._evaluate(self._means, X))

    def _in_units(self, outputs: Any) -> Any:
        """Standardised outputs in the units of the data."""
        return outputs * self.units_.y_unit[0] + self.units_.y_centre[0]

    def _evaluate(self, function: Any, X: Table) -> Any:
        """Evaluate `function` on the standardised rows of `X`; the results as NumPy arrays."""
        check_is_fitted(self)
        X = self.units_.standard_x(check_inputs(self, X, reset=False))
        with numerics("float64"):
            found = function(X)
        if isinstance(found, tuple):
            return Predicted(*(np.asarray(part, np.float64) for part in found))
        return np.asarray(found, np.float64)


class DensityBaseline(Density, Baseline):
    """Base class of a baseline that predicts a density: a Gaussian mixture, as `DAGP` does."""

    @abc.abstractmethod
    def _components(self, X: Inputs) -> Predicted:
        """Components of the predictive mixture at standardised inputs."""

    def _means(self, X: Inputs) -> PerPoint:
        found = self._components(X)
        return np.sum(np.asarray(found.weights) * np.asarray(found.means), axis=1)

    def predict_mixture(self, X: Table, noise: bool = True) -> Mixture:
        found = self._evaluate(self._components, X)
        variances = found.variances + found.noise_variances if noise else found.variances
        scale = self.units_.y_unit[0] ** 2
        return Mixture(found.weights, self._in_units(found.means), variances * scale)


def check_number(name: str, value: Any, minimum: float) -> None:
    """Raise an error unless `value` is a number, whole if the minimum is, and not below it."""
    kind, word = (Integral, "a whole number") if isinstance(minimum, int) else (Real, "a number")
    if not isinstance(value, kind) or isinstance(value, bool) or not float(value) >= minimum:
        raise ValueError(f"{name} must be {word} of at least {minimum:g}, got {quoted(value)}.")
