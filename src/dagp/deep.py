"""Deep processes, as a user states them."""

import dataclasses
from dataclasses import dataclass
from numbers import Integral
from typing import Any

import equinox as eqx
import numpy as np

from dagp.kernels import Kernel, Product, SquaredExponential, Sum
from dagp.means import Identity, Mean, Projection
from dagp.parameters import Prior, parameter
from dagp.processes import (
    GP,
    GPProcess,
    Growth,
    Process,
    ProcessPrior,
    Setting,
    check_columns,
    uneven,
)
from dagp.sparse import Moments, SparseGP
from dagp.stack import DeepStack, normal_points

__all__ = ["DeepGP"]


@dataclass(frozen=True)
class DeepGP(ProcessPrior):
    """A composition of smooth functions, observed with Gaussian noise.

    Parameters
    ----------
    layers
        Number of GPs in the row; one is a plain `GP`.
    width
        Values passed from layer to layer; as many as there are inputs if left out. Inner layers
        then have the identity as their mean, otherwise a linear projection.
    kernel, mean, noise_std, noise_prior, noise_gp
        Of the last layer, as in `GP`.
    inner_kernel
        Covariance function of the other layers, in standardised units. It begins with a small
        variance: the inner layers hardly bend anything until the data ask for it.
    samples
        Least number of samples passed through the layers.

    >>> DeepGP(layers=3).layers
    3
    """

    layers: int = 2
    width: int | None = None
    kernel: Kernel | None = None
    inner_kernel: Kernel | None = None
    mean: Mean | None = None
    noise_std: Any = None
    noise_prior: Prior | None = None
    noise_gp: GP | None = None
    samples: int = 8

    def build(self, setting: Setting) -> GPProcess:
        self._check(setting)
        return self._plain.build(setting)

    def grown(self, plain: Process, setting: Setting) -> Process:
        assert isinstance(plain, GPProcess)
        assert isinstance(plain.latent, SparseGP)
        if self.layers > 1:
            stack = self.deepened(plain.latent, setting)
            plain = eqx.tree_at(lambda process: process.latent, plain, stack)
        return uneven(plain, self.noise_gp, setting)

    def latent(self, setting: Setting, outputs: int) -> SparseGP:
        """The plain function a deep one begins as."""
        self._check(setting)
        return self._plain.latent(setting, outputs)

    def deepened(self, plain: SparseGP, setting: Setting) -> DeepStack:
        """A stack whose last layer is the plain function, or resembles it in other inputs."""
        Z, columns = np.asarray(plain.inducing.value), setting.inducing.shape[1]
        width = self.width or columns
        inner, last = [], plain
        for layer in range(self.layers - 1):
            first = layer == 0 and width != columns
            axes = _principal_axes(Z, width) if first else np.zeros((0, 0))
            mean = Projection(axes) if first else Identity()
            inner.append(self._inner_layer(Z, width, mean, setting.growth))
            Z = Z @ axes if first else Z
        if width != columns and inner:
            units = np.ones(width)
            narrow = setting._replace(x_centre=0 * units, x_unit=units, inducing=Z)
            last = self._plain.latent(narrow, plain.outputs)
        kernel = _stretched(last.kernel, setting.growth.stretch)
        last = eqx.tree_at(lambda gp: gp.kernel, last, kernel)
        points = normal_points(width * len(inner), self.samples) if inner else np.zeros((1, 0))
        return DeepStack(tuple(inner), last, points)

    def _inner_layer(self, Z: np.ndarray, width: int, mean: Mean, growth: Growth) -> SparseGP:
        columns = Z.shape[1]
        kernel = self.inner_kernel
        if kernel is None:
            kernel = SquaredExponential(variance=parameter(growth.variance))
        check_columns(kernel, columns)
        return SparseGP(
            kernel.in_units(np.ones(columns), 0.0, float(np.sqrt(columns))),
            mean,
            parameter(Z, support="real", name="inducing"),
            Moments.small(width, len(Z), growth.std),
        )

    @property
    def _plain(self) -> GP:
        return GP(self.kernel, self.mean, self.noise_std, self.noise_prior)

    def _check(self, setting: Setting) -> None:
        for name in ("layers", "width", "samples"):
            value = getattr(self, name)
            if value is not None and (not isinstance(value, Integral) or value < 1):
                raise ValueError(f"DeepGP({name}=...) is a number of at least 1, got {value!r}.")
        if self.width not in (None, setting.inducing.shape[1]) and self.mean is not None:
            raise ValueError(
                "DeepGP(mean=...) is a function of the inputs: leave width out, or the mean."
            )


def _stretched(kernel: Kernel, factor: float) -> Kernel:
    """The kernel with longer length scales, where nobody stated them."""
    if isinstance(kernel, Sum | Product):
        parts = (_stretched(kernel.first, factor), _stretched(kernel.second, factor))
        return dataclasses.replace(kernel, first=parts[0], second=parts[1])
    lengthscale = getattr(kernel, "lengthscale", None)
    if lengthscale is None or not lengthscale.automatic:
        return kernel
    longer = dataclasses.replace(lengthscale, raw=np.asarray(lengthscale.raw) + np.log(factor))
    return dataclasses.replace(kernel, lengthscale=longer)


def _principal_axes(Z: np.ndarray, width: int) -> np.ndarray:
    """Directions in which the inputs vary most; more values than inputs are zero at first."""
    axes = np.linalg.svd(Z - Z.mean(axis=0), full_matrices=False)[2].T[:, :width]
    return np.pad(axes, ((0, 0), (0, width - axes.shape[1])))
