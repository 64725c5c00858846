"""Processes: interfaces of a source of observations and of its prior.

A *prior* (`ProcessPrior`) is a description in the user's units. Its `build` makes the trainable
`Process` for standardised data. The ELBO, training, prediction, files and reports use a process
through these methods alone, so a new process needs no change elsewhere.
"""

import abc
from typing import Any, ClassVar, NamedTuple

import equinox as eqx
import jax.numpy as jnp
import numpy as np

from dagp.core.typing import Array, Float, Inputs, Outputs, PerPoint, Rate, Scalar
from dagp.model.kernel import Kernel, check_columns, over_groups
from dagp.model.sparse_gp import LatentFunction, Marginals, Projection
from dagp.model.variational import GaussianQ

LOG_2PI = float(np.log(2 * np.pi))


def observed(y: Outputs) -> tuple[Outputs, Outputs]:
    """Outputs with zeros in place of missing cells, which are NaN, and 1 where a cell is there.

    >>> [part.tolist() for part in observed(jnp.array([[2.0, jnp.nan]]))]
    [[[2.0, 0.0]], [[1.0, 0.0]]]
    """
    missing = jnp.isnan(y)
    return jnp.where(missing, 0.0, y), jnp.where(missing, 0.0, jnp.ones_like(y))


class Deepening(NamedTuple):
    """Initialisation of a deep GP from a trained single-layer one."""

    stretch: float = 1.0
    """Factor for the length scales of the last layer; inner layers then vary more."""
    variance: float = 0.05
    std: float = 0.1
    """Initial prior variance (standardised) and std of q (whitened) of inner layers."""


class BuildContext(NamedTuple):
    """Data-dependent settings with which priors build processes (standardised unless stated)."""

    x_centre: np.ndarray
    x_unit: np.ndarray
    y_centre: np.ndarray
    y_unit: np.ndarray
    """Centre and unit of the user's columns: user = standardised * unit + centre."""
    y_low: np.ndarray
    y_high: np.ndarray
    """Observed range of the outputs."""
    inducing: np.ndarray
    """Inducing inputs (M, D) to start from."""
    lengthscale: float
    noise_std: float
    """Initial length scale and noise level where the user gave none."""
    uniform: bool = False
    """Whether clutter of unknown shape starts as uniform rather than normal."""
    deepening: Deepening = Deepening()
    groups: tuple[int, ...] | None = None
    """The input that each column belongs to, where some take several columns, such as the levels
    of a category; None: a column each."""

    @property
    def n_inputs(self) -> int:
        """Number of inputs, which have a length scale each."""
        return self.inducing.shape[1] if self.groups is None else max(self.groups) + 1

    def kernel(self, kernel: Any) -> Kernel:
        """A kernel of the inputs, in the user's units, as one of the standardised columns; anything
        else is refused in words."""
        check_columns(kernel, self.n_inputs)
        if self.groups is None:
            return kernel.in_units(self.x_unit, self.log_variance_unit, self.lengthscale)
        # The columns of an input have one unit.
        units = self.x_unit[[self.groups.index(i) for i in range(self.n_inputs)]]
        kernel = kernel.in_units(units, self.log_variance_unit, self.lengthscale)
        return over_groups(kernel, self.groups)

    @property
    def log_variance_unit(self) -> float:
        """Log unit of a kernel's variance; zero where several outputs share a kernel."""
        return 2 * float(np.log(self.y_unit[0])) if len(self.y_unit) == 1 else 0.0


class Components(NamedTuple):
    """The predictive density of a process as a mixture of C densities per point."""

    masses: Float[Array, " C"]
    mean: Float[Array, "C N P"]
    variance: Float[Array, "C N P"]
    """Of the function."""
    noise: Float[Array, "C N P"]
    """Variance of an observation around the function."""


class Process(eqx.Module):
    """A process in standardised units.

    Marginals of deep processes have a row for every sample and point, first sample first. Clutter
    implements the abstract methods only; a function of the input overrides `function` too, and
    the methods on its part of projections and marginals if these hold more than that part.
    """

    @property
    @abc.abstractmethod
    def kind(self) -> str:
        """Name of its prior, for summaries, plots and reports."""

    @property
    def is_uniform(self) -> bool:
        """Whether observations are uniform rather than normal."""
        return False

    @property
    def heavy_tailed(self) -> bool:
        """Whether the size of an observation's error is uncertain, and follows the function."""
        return False

    @property
    def function(self) -> LatentFunction | None:
        """The latent function of the input; None for clutter."""
        return None

    @property
    def can_widen(self) -> bool:
        """Whether linear response can widen q(f)."""
        return self.function is not None and self.function.can_widen

    @abc.abstractmethod
    def project(self, X: Inputs) -> Any:
        """Quantities that depend on the inputs and the hyperparameters, but not on q."""

    @abc.abstractmethod
    def marginals(self, projection: Any) -> Any:
        """Mean and variance of the latent function at the projected points."""

    @abc.abstractmethod
    def noise_variance(self) -> Float[Array, " P"]:
        """Variance of an observation around the latent function."""

    @abc.abstractmethod
    def expected_log_density(self, marginals: Any, y: Outputs) -> PerPoint:
        """E_q[log p(y_n | f(x_n))], summed over outputs; missing ones, NaN, are left out."""

    @abc.abstractmethod
    def natural_step(
        self, projection: Any, marginals: Any, y: Outputs, responsibility: PerPoint, rate: Rate
    ) -> "Process":
        """A natural-gradient step of q, each point weighted by its `responsibility`."""

    @abc.abstractmethod
    def kl(self) -> Scalar:
        """KL divergence of q from the prior."""

    @abc.abstractmethod
    def components(self, marginals: Any) -> Components:
        """The predictive density of observations at the points of the marginals."""

    def tail_variance(self) -> Scalar:
        """Variance of an observation around the function, as a multiple of `noise_variance`, as far
        as its components have it."""
        return jnp.ones(())

    def uncertain_precision(self, marginals: Any, y: Outputs) -> Outputs:
        """Where heavy-tailed: precision of each output that the function would not have if the
        sizes of the errors followed it."""
        return jnp.zeros_like(y)

    def function_projection(self, projection: Any) -> Projection:
        """The part of a projection that concerns the latent function."""
        return projection

    def function_marginals(self, marginals: Any) -> Marginals:
        """The part of marginals that concerns the latent function."""
        return marginals

    def with_function_marginals(self, marginals: Any, moved: Marginals) -> Any:
        """Marginals in which those of the latent function are replaced."""
        return moved

    def with_function_q(self, q: GaussianQ) -> "Process":
        """The process with another q of its (single-layer) latent function."""
        return eqx.tree_at(lambda process: process.function.q, self, q)

    def check(self, dtype: str) -> None:
        """Raise ValueError if a process read from a file is invalid."""
        if self.function is not None:
            self.function.check(dtype)


def per_sample(values: Float[Array, "N *P"], samples: int) -> Float[Array, "SN *P"]:
    """The same rows once for every sample."""
    return values if samples == 1 else jnp.tile(values, (samples, *[1] * (values.ndim - 1)))


def over_samples(values: Float[Array, "SN *P"], samples: int) -> Float[Array, "N *P"]:
    """Mean over the samples of every point."""
    return values if samples == 1 else split_samples(values, samples).mean(axis=0)


def split_samples(values: Float[Array, "SN *P"], samples: int) -> Float[Array, "S N *P"]:
    """An axis for the samples and one for the points."""
    return values.reshape(samples, -1, *values.shape[1:])


class ProcessPrior(abc.ABC):
    """Prior of a process, as given by the user."""

    clutter: ClassVar[bool] = False
    """Whether the process carries no information about the input."""

    @abc.abstractmethod
    def build(self, context: BuildContext) -> Process:
        """The trainable process for standardised data, in the single-layer form of the search."""

    def deepened(self, trained: Any, context: BuildContext) -> Process:
        """The process with its layers and noise GP, from the one that the search trained."""
        return trained

    def resumed(self, trained: Any, context: BuildContext) -> Process:
        """A trained process, to be trained further on other data."""
        return trained
