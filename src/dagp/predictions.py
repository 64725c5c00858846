"""Predictions of a fitted estimator: methods of `DAGP`, for tables of any kind."""

from typing import Any, Literal, overload

import numpy as np
from sklearn.utils.validation import check_is_fitted

from dagp.core.random import as_random_state
from dagp.core.typing import RandomState, Table
from dagp.predict.density import Density
from dagp.predict.mixture import Mixture
from dagp.predict.posterior import Posterior
from dagp.predict.process import FittedProcess
from dagp.tables.frames import Output, RowsToPredict
from dagp.tables.validation import check_inputs, check_outputs

AsArray = Literal["numpy"] | None
"""Values of `output` for arrays; None stands for frames only after `sklearn.set_config`."""


class Predictions(Density):
    """Methods that predict from the posterior of a fitted estimator."""

    missing: str
    flat_: bool
    target_names_: list[str] | None
    posterior_: Posterior
    processes_: list[FittedProcess]

    @overload
    def predict(
        self, X: Table, return_std: Literal[False] = False, *, output: AsArray = None
    ) -> np.ndarray: ...
    @overload
    def predict(
        self, X: Table, return_std: Literal[True], *, output: AsArray = None
    ) -> tuple[np.ndarray, np.ndarray]: ...
    @overload
    def predict(
        self, X: Table, return_std: bool = False, *, output: Output | None = None
    ) -> Any: ...
    def predict(self, X: Table, return_std: bool = False, *, output: Output | None = None) -> Any:
        """Mean of the predictive mixture.

        Parameters
        ----------
        X : array-like of shape (N, D)
            Rows with NaN get NaN if the model was fitted with ``missing="drop"``.
        return_std : bool, default=False
            Whether to return the standard deviation too.
        output : {"numpy", "pandas", "polars"} or None, default=None
            Form of the result; frames keep the index of `X` and the name of the target. None is
            that of ``sklearn.set_config(transform_output=...)``.

        Returns
        -------
        ndarray of shape (N,) or (N, P), or frame of P columns, or a tuple of two
        """
        check_is_fitted(self)
        rows, outputs = RowsToPredict.of(self, X), self.posterior_.units.y_unit.size
        numbered = [f"prediction_{p}" for p in range(outputs)]
        names = self.target_names_ or (["prediction"] if outputs == 1 else numbered)

        def moments(complete: np.ndarray) -> np.ndarray:
            mixture = self.posterior_.mixture(complete, flat=self.flat_)
            spread = [np.sqrt(mixture.variance())] if return_std else []
            return np.stack([mixture.mean(), *spread], axis=1)

        found = rows.each(moments, 1 + return_std, *(() if self.flat_ else (outputs,)))
        mean, *std = (rows.framed(part, names, output) for part in np.moveaxis(found, 1, 0))
        return (mean, *std) if return_std else mean

    def predict_mixture(self, X: Table, noise: bool = True) -> Mixture:
        """Predictive mixture at each row of `X`.

        Parameters
        ----------
        X : array-like of shape (N, D)
        noise : bool, default=True
            Whether to include observation noise.
        """
        check_is_fitted(self)
        X = check_inputs(self, X, reset=False)
        return self.posterior_.mixture(X, noise=noise, flat=self.flat_)

    @overload
    def predict_assignment(self, X: Table, *, output: AsArray = None) -> np.ndarray: ...
    @overload
    def predict_assignment(self, X: Table, *, output: Output) -> Any: ...
    def predict_assignment(self, X: Table, *, output: Output | None = None) -> Any:
        """Probability of each process at each row of `X`, without y: the gate.

        Parameters
        ----------
        X : array-like of shape (N, D)
        output : {"numpy", "pandas", "polars"} or None, default=None
            As for `predict`.

        Returns
        -------
        ndarray of shape (N, K), or frame with columns process_0, …
        """
        check_is_fitted(self)
        rows = RowsToPredict.of(self, X)
        found = rows.each(self.posterior_.gate, len(self.processes_))
        return rows.framed(found, self._process_names, output)

    @overload
    def responsibilities(self, X: Table, y: Table, *, output: AsArray = None) -> np.ndarray: ...
    @overload
    def responsibilities(self, X: Table, y: Table, *, output: Output) -> Any: ...
    def responsibilities(self, X: Table, y: Table, *, output: Output | None = None) -> Any:
        """Probability that each process produced each pair.

        Parameters
        ----------
        X : array-like of shape (N, D)
        y : array-like of shape (N,) or (N, P)
            With ``missing="drop"``, NaN leaves an output out, or the row if there is no other.
        output : {"numpy", "pandas", "polars"} or None, default=None
            As for `predict`.

        Returns
        -------
        ndarray of shape (N, K), or frame with columns process_0, …
        """
        check_is_fitted(self)
        rows = RowsToPredict.of(self, X)
        level = check_outputs(y, len(rows.X), finite=self.missing != "drop")
        there = np.logical_not(np.isnan(level.reshape(len(level), -1))).any(axis=1)
        rows = rows._replace(complete=rows.complete & there)

        def shares(complete: np.ndarray) -> np.ndarray:
            mixture = self.posterior_.mixture(complete, flat=self.flat_)
            return mixture.responsibilities(level[rows.complete])

        return rows.framed(rows.each(shares, len(self.processes_)), self._process_names, output)

    def sample_assignments(
        self, X: Table, y: Table, n_samples: int = 1, random_state: RandomState = None
    ) -> np.ndarray:
        """Draws of the process of each pair: of whole associations, where the model averages over
        several, so that pairs that change places together do so in every draw.

        Parameters
        ----------
        X : array-like of shape (N, D)
        y : array-like of shape (N,) or (N, P)
        n_samples : int, default=1
        random_state : int, Generator, RandomState or None, default=None

        Returns
        -------
        ndarray of int of shape (n_samples, N)

        Examples
        --------
        >>> from dagp import DAGP, datasets
        >>> data = datasets.crossings(2, n=60, random_state=0)
        >>> model = DAGP(2, n_init=1, tol=1e-1, random_state=0).fit(data.X, data.y)
        >>> model.sample_assignments(data.X, data.y, 3, random_state=0).shape
        (3, 60)
        """
        check_is_fitted(self)
        X = check_inputs(self, X, reset=False)
        level, rng = check_outputs(y, len(X)), as_random_state(random_state)
        chosen = self.posterior_.draw_associations(n_samples, rng)
        drawn = np.empty((n_samples, len(X)), int)
        for s, (_, posterior, order) in enumerate(self.posterior_.associations()):
            shares = posterior.mixture(X, flat=self.flat_).responsibilities(level)[:, order]
            ceilings = np.cumsum(shares, axis=1)[:, :-1]
            own = chosen == s
            drawn[own] = np.sum(rng.uniform(size=(own.sum(), len(X), 1)) >= ceilings, axis=-1)
        return drawn

    @property
    def _process_names(self) -> list[str]:
        return [f"process_{k}" for k in range(len(self.processes_))]

    def score(self, X: Table, y: Table, sample_weight: Any = None) -> float:
        """R² of the mean of the mixture; see also `log_score`.

        Parameters
        ----------
        X : array-like of shape (N, D)
        y : array-like of shape (N,) or (N, P)
        sample_weight : array-like of shape (N,), default=None
        """
        # Imported late, as scikit-learn itself does.
        from sklearn.metrics import r2_score

        return r2_score(y, self.predict(X, output="numpy"), sample_weight=sample_weight)

    def sample_y(
        self, X: Table, n_samples: int = 1, random_state: RandomState = None
    ) -> np.ndarray:
        """Independent draws of observations.

        Parameters
        ----------
        X : array-like of shape (N, D)
        n_samples : int, default=1
        random_state : int, Generator, RandomState or None, default=None

        Returns
        -------
        ndarray of shape (n_samples, N) or (n_samples, N, P)
        """
        return self.predict_mixture(X).sample(n_samples, random_state)
