"""Base class of processes with a latent function that is observed with noise."""

from typing import Any

from dagp.core.typing import Array, Float, Outputs, Rate
from dagp.model.noise_shapes import NoiseShape
from dagp.model.parameters import Parameter
from dagp.model.process import Process, observed, over_samples, per_sample
from dagp.model.sparse_gp import LatentFunction, Marginals, Projection


class NoisyFunction(Process):
    """Base class of processes with a latent function that is observed with noise."""

    latent: LatentFunction
    noise_std: Parameter
    floor: Array
    """Least standard deviation of the noise."""

    @property
    def kind(self) -> str:
        return "DeepGP" if len(self.latent.layers) > 1 else "GP"

    @property
    def function(self) -> LatentFunction:
        return self.latent

    def noise_variance(self) -> Float[Array, " P"]:
        return self.noise_std.value**2 + self.floor**2

    def squared_error(self, function: Marginals, y: Outputs) -> Outputs:
        """Expected squared distance of each output from the function; from zero where missing."""
        samples = self.latent.samples
        square = (per_sample(observed(y)[0], samples) - function.mean) ** 2 + function.variance
        return over_samples(square, samples)

    def lacking(
        self, shape: NoiseShape, function: Marginals, y: Outputs, precision: Any
    ) -> Outputs:
        """Var[λ] times the squared slope of a point's log density given λ = 1: what uncertain λ
        take from the curvature of the expected log density. For a single layer."""
        there = observed(y)[1]
        spread = shape.spread(self.squared_error(function, y) * precision, there)
        return spread * (there * (observed(y)[0] - function.mean) * precision) ** 2

    def conjugate_step(
        self, projection: Projection, y: Outputs, precision: Outputs, rate: Rate
    ) -> LatentFunction:
        """The function after a natural-gradient step on Gaussian noise of this precision."""
        samples = self.latent.samples
        y, there = observed(y)
        weight = per_sample(precision * there, samples)
        target = weight * (per_sample(y, samples) - projection.mean)
        return self.latent.natural_step(projection, target, weight, rate)
