"""Fitted processes, one at a time, in the user's units."""

import dataclasses
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, overload

import jax
import jax.numpy as jnp
import numpy as np

from dagp.core.linalg import cholesky
from dagp.core.precision import numerics
from dagp.core.programs import program
from dagp.core.random import as_random_state
from dagp.core.typing import Array, Float, Inputs, RandomState, Table
from dagp.model.kernel import Kernel
from dagp.model.noise_shapes import GaussianShape, NoiseShape, StudentShape
from dagp.model.parameters import Parameter, map_parameters
from dagp.model.process import Process
from dagp.model.sparse_gp import SparseGP
from dagp.predict.posterior import Posterior
from dagp.tables.validation import check_inputs

if TYPE_CHECKING:
    from dagp.estimator import DAGP


@dataclass(frozen=True)
class FittedProcess:
    """One process of a fitted model.

    Attributes
    ----------
    index : int
        Its column of ``responsibilities_``.
    kind : str
        ``"GP"``, ``"DeepGP"``, ``"Noise"``, ``"Uniform"`` or the name of another prior.
    noise_std_ : ndarray of shape (P,)
        Standard deviation of an observation around the function, per output; of Student-t noise
        without the factor sqrt(ν / (ν − 2)) of its ν degrees of freedom.
    noise_ : str
        Shape of the noise: ``"gaussian"``, ``"student"`` or ``"laplace"``.
    degrees_ : float or None
        Degrees of freedom ν of Student-t noise; None for others.
    kernel_ : Kernel or None
        Fitted kernel in the user's units, of the last layer; None for clutter.
    share_ : float
        Share of the data of the process (`weight_` before version 0.2).

    Examples
    --------
    >>> from dagp import DAGP, datasets
    >>> data = datasets.noise_separation(outliers=0.0, n=60, random_state=0)
    >>> model = DAGP(n_processes=1, n_init=1, tol=1e-2).fit(data.X, data.y)
    >>> model.processes_[0].predict([[0.0], [1.0]]).shape
    (2,)
    """

    index: int
    kind: str
    noise_std_: Float[np.ndarray, " P"]
    kernel_: Kernel | None
    share_: float
    posterior: Posterior = field(repr=False)
    estimator: "DAGP" = field(repr=False)
    noise_: str = GaussianShape.name
    degrees_: float | None = None

    @property
    def weight_(self) -> float:
        """`share_` under its name before version 0.2."""
        return self.share_

    @overload
    def predict(self, X: Table, return_std: Literal[False] = False) -> np.ndarray: ...
    @overload
    def predict(self, X: Table, return_std: Literal[True]) -> tuple[np.ndarray, np.ndarray]: ...
    @overload
    def predict(self, X: Table, return_std: bool) -> Any: ...
    def predict(self, X: Table, return_std: bool = False) -> Any:
        """Mean (N,) or (N, P) of the latent function.

        Parameters
        ----------
        X : array-like of shape (N, D)
        return_std : bool, default=False
            Whether to return the standard deviation (without noise) too.
        """
        X = check_inputs(self.estimator, X, reset=False)
        alone = self.posterior.function(X, self.index, flat=self.estimator.flat_)
        mean = alone.mean()
        return (mean, np.sqrt(alone.variance())) if return_std else mean

    def noise_std(self, X: Table) -> np.ndarray:
        """Standard deviation, (N,) or (N, P), of an observation around the function; of Student-t
        noise as in `noise_std_`.

        Parameters
        ----------
        X : array-like of shape (N, D)
        """
        X = check_inputs(self.estimator, X, reset=False)
        std = self.posterior.noise_std(X, self.index)
        return std[:, 0] if self.estimator.flat_ else std

    def covariance(self, X: Table) -> np.ndarray:
        """Joint covariance, (N, N) or (N, N, P), of the latent function at the rows of `X`.

        Parameters
        ----------
        X : array-like of shape (N, D)
        """
        X = check_inputs(self.estimator, X, reset=False)
        units = self.posterior.units
        weights, means, found = [], [], []
        for weight, posterior, order in self.posterior.associations():
            function = posterior.model.process(order[self.index]).function
            if not isinstance(function, SparseGP):
                raise ValueError(f"Process {self.index} has no covariance: it is a {self.kind}.")
            with numerics(posterior.dtype):
                mean, covariance, _ = _mean_and_factors(function, units.standard_x(X))
            weights.append(weight)
            means.append(np.asarray(mean, np.float64).T)
            found.append(np.asarray(covariance, np.float64))
        standard = np.average(found, axis=0, weights=weights)
        away = np.array(means) - np.average(means, axis=0, weights=weights)
        standard += np.einsum("s,spn,spm->pnm", weights, away, away)
        found = np.moveaxis(standard, 0, -1) * units.y_unit**2
        return found[..., 0] if self.estimator.flat_ else found

    def sample_y(
        self, X: Table, n_samples: int = 1, random_state: RandomState = None
    ) -> np.ndarray:
        """Joint draws, (n_samples, N) or (n_samples, N, P), of the latent function.

        Parameters
        ----------
        X : array-like of shape (N, D)
        n_samples : int, default=1
        random_state : int, Generator, RandomState or None, default=None
        """
        X = check_inputs(self.estimator, X, reset=False)
        rng, units = as_random_state(random_state), self.posterior.units
        if self.posterior.model.process(self.index).function is None:
            draws = self.posterior.function(X, self.index, flat=False).sample(n_samples, rng)
        else:
            draws = self._drawn(X, n_samples, rng) * units.y_unit + units.y_centre
        return draws[..., 0] if self.estimator.flat_ else draws

    def _drawn(
        self, X: np.ndarray, n_samples: int, rng: np.random.RandomState
    ) -> Float[np.ndarray, "S N P"]:
        """Joint draws in standardised units, each of one association."""
        chosen = self.posterior.draw_associations(n_samples, rng)
        draws = np.empty((n_samples, len(X), self.posterior.units.y_unit.size))
        for s, (_, posterior, order) in enumerate(self.posterior.associations()):
            function: Any = posterior.model.process(order[self.index]).function
            rows = posterior.units.standard_x(X)
            with numerics(posterior.dtype):
                own = chosen == s
                draws[own] = _joint_draws(function.layers, rows, int(own.sum()), rng)
        return draws


def _joint_draws(
    layers: tuple[SparseGP, ...], X: np.ndarray, n_samples: int, rng: np.random.RandomState
) -> Float[np.ndarray, "S N P"]:
    """Joint draws of a function, in standardised units."""
    *inner, last = layers
    if inner:
        # Every draw has its own inner functions, and so its own inputs of later layers.
        draws = []
        for _ in range(n_samples):
            rows = X
            for layer in layers:
                (rows,) = _joint_draws((layer,), rows, 1, rng)
            draws.append(rows)
        return np.stack(draws)
    mean, covariances, factors = (np.array(part, np.float64) for part in _mean_and_factors(last, X))
    for p in np.flatnonzero(~np.isfinite(factors).all(axis=(1, 2))):
        factors[p] = _nearest_root(covariances[p])
    white = rng.standard_normal((n_samples, *factors.shape[:2]))
    return mean + np.einsum("pnm,spm->snp", factors, white)


def _nearest_root(covariance: Float[np.ndarray, "N N"]) -> Float[np.ndarray, "N N"]:
    values, vectors = np.linalg.eigh((covariance + covariance.T) / 2)
    return vectors * np.sqrt(np.maximum(values, 0.0))


@program
def _mean_and_factors(
    latent: SparseGP, X: Inputs
) -> tuple[Float[Array, "N P"], Float[Array, "P N N"], Float[Array, "P N N"]]:
    """Mean of a function, its joint covariance for every output, and a factor of that."""
    mean, covariance = latent.marginals(latent.project(X)).mean, latent.covariance(X)
    return mean, covariance, jax.vmap(cholesky)(covariance)


@program
def _noise_variance(process: Process) -> Float[Array, " P"]:
    # Compiled as one program instead of one per operation.
    if process.function is None:
        # Clutter has no latent function: all of its variance is noise.
        return process.marginals(process.project(jnp.zeros((1, 1)))).variance[0]
    return process.noise_variance()


def fitted_process(estimator: "DAGP", posterior: Posterior, k: int, share: float) -> FittedProcess:
    """Process k of a trained model, in the user's units."""
    with numerics(posterior.dtype):
        process = posterior.model.process(k)
        variance = np.asarray(_noise_variance(process), np.float64)
        shape = getattr(process, "shape", None)
        degrees = float(shape.freedom) if isinstance(shape, StudentShape) else None
    kernel = None if process.function is None else process.function.layers[-1].kernel
    return FittedProcess(
        k,
        process.kind,
        np.sqrt(variance) * posterior.units.y_unit,
        None if kernel is None else _in_user_units(kernel),
        share,
        posterior,
        estimator,
        shape.name if isinstance(shape, NoiseShape) else GaussianShape.name,
        degrees,
    )


def _in_user_units(kernel: Kernel) -> Kernel:
    """A fitted kernel for inputs and outputs in the user's units."""

    def plain(p: Parameter) -> Parameter:
        unit = np.zeros(()) if p.support == "positive" else np.ones(())
        return dataclasses.replace(p, raw=np.asarray(p.raw, np.float64), unit=unit)

    return map_parameters(plain, kernel)
