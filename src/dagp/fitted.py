"""Fitted processes, one at a time, in the user's units."""

import dataclasses
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import jax
import numpy as np

from dagp.kernels import Kernel
from dagp.linalg import cholesky
from dagp.parameters import Parameter, is_parameter
from dagp.posterior import Posterior
from dagp.processes import Function, Process
from dagp.runtime import numerics
from dagp.seeds import random_source
from dagp.sparse import SparseGP
from dagp.stack import DeepStack, last_layer
from dagp.typing import Array, Float, Inputs, RandomState, Table
from dagp.validation import check_inputs

if TYPE_CHECKING:
    from dagp.estimator import DAGP

__all__ = ["FittedProcess"]


@dataclass(frozen=True)
class FittedProcess:
    """One process of a fitted model.

    Attributes
    ----------
    index
        Its place in the model; the column of ``responsibilities_`` it owns.
    kind
        ``"GP"``, ``"DeepGP"``, ``"Noise"`` or ``"Uniform"``.
    noise_std_
        Standard deviation of an observation around the function, per output.
    kernel_
        Fitted kernel in the user's units, of the last layer where there are several (None for
        clutter).
    weight_
        Share of the data the process accounts for.

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
    weight_: float
    posterior: Posterior = field(repr=False)
    estimator: "DAGP" = field(repr=False)

    def predict(
        self, X: Table, return_std: bool = False
    ) -> np.ndarray | tuple[np.ndarray, np.ndarray]:
        """Mean of the latent function, and its standard deviation (without noise)."""
        X = check_inputs(self.estimator, X, reset=False)
        alone = self.posterior.mixture(X, noise=False, flat=self.estimator.flat_).marginal(
            self.index
        )
        mean = alone.mean()
        return (mean, np.sqrt(alone.variance())) if return_std else mean

    def noise_std(self, X: Table) -> np.ndarray:
        """Standard deviation of an observation around the function at each row of `X`."""
        X = check_inputs(self.estimator, X, reset=False)
        std = self.posterior.noise_std(X, self.index)
        return std[:, 0] if self.estimator.flat_ else std

    def sample_y(
        self, X: Table, n_samples: int = 1, random_state: RandomState = None
    ) -> np.ndarray:
        """Joint draws of the latent function at the rows of `X`: (n_samples, N) or (…, N, P)."""
        X = check_inputs(self.estimator, X, reset=False)
        rng = random_source(random_state)
        process = self.posterior.model.process(self.index)
        if not isinstance(process, Function):
            mixture = self.posterior.mixture(X, noise=False, flat=False).marginal(self.index)
            draws = mixture.sample(n_samples, rng)
        else:
            units, latent = self.posterior.units, process.latent
            with numerics(self.posterior.dtype):
                standard = _joint_draws(latent, units.standard_x(X), n_samples, rng)
            draws = standard * units.y_unit + units.y_centre
        return draws[..., 0] if self.estimator.flat_ else draws


def _joint_draws(
    latent: SparseGP | DeepStack, X: np.ndarray, n_samples: int, rng: np.random.RandomState
) -> Float[np.ndarray, "S N P"]:
    """Draws of a whole function, in standardised units."""
    if isinstance(latent, DeepStack):
        # Every draw has its own inner functions, and so its own inputs further down.
        draws = []
        for _ in range(n_samples):
            rows = X
            for layer in (*latent.inner, latent.last):
                (rows,) = _joint_draws(layer, rows, 1, rng)
            draws.append(rows)
        return np.stack(draws)
    mean, covariances, factors = (
        np.array(part, np.float64) for part in _mean_and_factors(latent, X)
    )
    for p in np.flatnonzero(~np.isfinite(factors).all(axis=(1, 2))):
        factors[p] = _nearest_root(covariances[p])
    white = rng.standard_normal((n_samples, *factors.shape[:2]))
    return mean + np.einsum("pnm,spm->snp", factors, white)


def _nearest_root(covariance: Float[np.ndarray, "N N"]) -> Float[np.ndarray, "N N"]:
    """A root of the nearest covariance to what rounding has left of one."""
    values, vectors = np.linalg.eigh((covariance + covariance.T) / 2)
    return vectors * np.sqrt(np.maximum(values, 0.0))


@jax.jit
def _mean_and_factors(
    latent: SparseGP, X: Inputs
) -> tuple[Float[Array, "N P"], Float[Array, "P N N"], Float[Array, "P N N"]]:
    """Mean of a function, its joint covariance for every output, and a factor of that."""
    mean, covariance = latent.marginals(latent.project(X)).mean, latent.covariance(X)
    return mean, covariance, jax.vmap(cholesky)(covariance)


@jax.jit
def _noise_variance(process: Process) -> Float[Array, " P"]:
    # One program in place of one for every operation.
    return process.noise_variance()


def fitted_process(estimator: "DAGP", posterior: Posterior, k: int, weight: float) -> FittedProcess:
    """Process k of a trained model, read off in the user's units."""
    with numerics(posterior.dtype):
        process = posterior.model.process(k)
        variance = np.asarray(_noise_variance(process), np.float64)
        if not isinstance(process, Function):
            # Clutter has no function beneath its noise: all of its spread is noise.
            variance = np.asarray(process.marginals(process.project(np.zeros((1, 1)))).variance[0])
    return FittedProcess(
        k,
        _kind(process),
        np.sqrt(variance) * posterior.units.y_unit,
        natural(last_layer(process.latent).kernel) if isinstance(process, Function) else None,
        weight,
        posterior,
        estimator,
    )


def _kind(process: Process) -> str:
    if isinstance(process, Function):
        return "DeepGP" if isinstance(process.latent, DeepStack) else "GP"
    return type(process).__name__.removesuffix("Process")


def natural(kernel: Kernel) -> Kernel:
    """A fitted kernel for inputs and outputs in the user's units."""

    def plain(p: Parameter) -> Parameter:
        unit = np.zeros(()) if p.support == "positive" else np.ones(())
        return dataclasses.replace(p, raw=np.asarray(p.raw, np.float64), unit=unit)

    return jax.tree.map(lambda p: plain(p) if is_parameter(p) else p, kernel, is_leaf=is_parameter)
