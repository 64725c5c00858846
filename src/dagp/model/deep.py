"""Deep GP processes: the prior `DeepGP`.

The search trains a single layer; `deepened` turns it into a stack of layers.
"""

import dataclasses
from dataclasses import dataclass
from numbers import Integral

import equinox as eqx
import numpy as np

from dagp.core.tags import storable
from dagp.core.text import quoted
from dagp.model.deep_stack import DeepStack, normal_points
from dagp.model.gates import GatePrior, GPGate, unitless
from dagp.model.gp import GP, GPProcess, with_noise_gp
from dagp.model.kernel import Kernel, Product, Sum
from dagp.model.kernels import SquaredExponential
from dagp.model.means import Identity, Mean, Projection
from dagp.model.noise_shapes import NoiseName
from dagp.model.parameters import ParameterLike, Prior, parameter
from dagp.model.process import BuildContext, Process, ProcessPrior
from dagp.model.sparse_gp import SparseGP
from dagp.model.variational import DiagonalGaussian

_MOST = {"layers": 32, "width": 1000, "samples": 1000}
"""Far more than are useful, few enough to be compiled."""


@storable("prior/DeepGP")
@dataclass(frozen=True)
class DeepGP(ProcessPrior, GatePrior):
    """Deep GP: a composition of GPs, observed with noise.

    Parameters
    ----------
    layers : int, default=2
        Number of GPs composed; one is a plain `GP`.
    width : int, default=None
        Values passed between layers; None is the number of inputs, and inner layers then have the
        identity as mean function, otherwise a linear projection.
    kernel, mean, noise_std, noise_prior, noise_gp : default=None
        Of the last layer, as in `GP`.
    inner_kernel : Kernel, default=None
        Kernel of the inner layers, in standardised units; None is squared exponential with a
        small initial variance, so that inner layers start close to their mean function.
    samples : int, default=6
        Least number of Monte Carlo samples passed through the layers; there is at least one more
        than values passed between all layers.
    noise, degrees : default="gaussian" and None
        Shape of the noise and its degrees of freedom, as in `GP`.

    Examples
    --------
    >>> DeepGP(layers=3).layers
    3
    """

    layers: int = 2
    width: int | None = None
    kernel: Kernel | None = None
    inner_kernel: Kernel | None = None
    mean: Mean | None = None
    noise_std: ParameterLike = None
    noise_prior: Prior | None = None
    noise_gp: GP | None = None
    samples: int = 6
    noise: NoiseName = "gaussian"
    degrees: ParameterLike = None

    def __post_init__(self) -> None:
        self._plain  # noqa: B018  # checks the noise

    def build(self, context: BuildContext) -> GPProcess:
        self._check(context)
        return self._plain.build(context)

    def deepened(self, trained: GPProcess, context: BuildContext) -> Process:
        if self.layers > 1:
            stack = self.stacked(trained.latent.layers[-1], context)
            trained = eqx.tree_at(lambda process: process.latent, trained, stack)
        return with_noise_gp(trained, self.noise_gp, context)

    def build_gate(self, context: BuildContext, n_processes: int) -> GPGate:
        self._check(context)
        return self._plain.build_gate(context, n_processes)

    def deepened_gate(self, trained: GPGate, context: BuildContext) -> GPGate:
        if self.layers == 1:
            return trained
        stack = self.stacked(trained.latent.layers[-1], unitless(context))
        return GPGate(stack, trained.quadrature)

    def stacked(self, plain: SparseGP, context: BuildContext) -> DeepStack:
        """A stack whose last layer is the single-layer GP, or resembles it in other inputs."""
        Z, columns = np.asarray(plain.inducing.value), context.inducing.shape[1]
        width = self.width or columns
        inner, last = [], plain
        for layer in range(self.layers - 1):
            first = layer == 0 and width != columns
            axes = _principal_axes(Z, width) if first else np.zeros((0, 0))
            mean = Projection(axes) if first else Identity()
            inner.append(self._inner_layer(Z, width, mean, context))
            if first:
                Z, context = Z @ axes, context._replace(groups=None)
        if width != columns and inner:
            units = np.ones(width)
            narrow = context._replace(x_centre=0 * units, x_unit=units, inducing=Z, groups=None)
            last = self._plain.latent(narrow, plain.q.n_outputs)
        kernel = _stretched(last.kernel, context.deepening.stretch)
        last = eqx.tree_at(lambda gp: gp.kernel, last, kernel)
        points = normal_points(width * len(inner), self.samples) if inner else np.zeros((1, 0))
        return DeepStack(tuple(inner), last, points)

    def _inner_layer(
        self, Z: np.ndarray, width: int, mean: Mean, context: BuildContext
    ) -> SparseGP:
        deepening, kernel = context.deepening, self.inner_kernel
        if kernel is None:
            kernel = SquaredExponential(variance=parameter(deepening.variance))
        standard = unitless(context)._replace(x_unit=np.ones(Z.shape[1]), inducing=Z)
        standard = standard._replace(lengthscale=float(np.sqrt(standard.n_inputs)))
        return SparseGP(
            standard.kernel(kernel),
            mean,
            parameter(Z, support="real", name="inducing"),
            DiagonalGaussian.isotropic(width, len(Z), deepening.std),
        )

    @property
    def _plain(self) -> GP:
        return GP(
            self.kernel,
            self.mean,
            self.noise_std,
            self.noise_prior,
            noise=self.noise,
            degrees=self.degrees,
        )

    def _check(self, context: BuildContext) -> None:
        for name, most in _MOST.items():
            value = getattr(self, name)
            if value is not None and not (isinstance(value, Integral) and 1 <= int(value) <= most):
                expected = f"must be an int from 1 to {most}"
                raise ValueError(f"DeepGP({name}=...) {expected}, got {quoted(value)}.")
        if self.width not in (None, context.inducing.shape[1]) and self.mean is not None:
            raise ValueError(f"DeepGP(mean=...) needs width=None, got width={self.width}.")


def _stretched(kernel: Kernel, factor: float) -> Kernel:
    """The kernel with longer length scales, where the user gave none."""
    if isinstance(kernel, Sum | Product):
        parts = (_stretched(kernel.first, factor), _stretched(kernel.second, factor))
        return dataclasses.replace(kernel, first=parts[0], second=parts[1])
    lengthscale = getattr(kernel, "lengthscale", None)
    if lengthscale is None or not lengthscale.automatic:
        return kernel
    longer = dataclasses.replace(lengthscale, raw=np.asarray(lengthscale.raw) + np.log(factor))
    return dataclasses.replace(kernel, lengthscale=longer)


def _principal_axes(Z: np.ndarray, width: int) -> np.ndarray:
    """Principal axes (D, width) of the inputs; zero columns where width > D."""
    axes = np.linalg.svd(Z - Z.mean(axis=0), full_matrices=False)[2].T[:, :width]
    return np.pad(axes, ((0, 0), (0, width - axes.shape[1])))
