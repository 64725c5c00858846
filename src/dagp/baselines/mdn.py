"""A network that predicts a mixture."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from dagp.baselines.base import DensityBaseline, Predicted
from dagp.baselines.network import (
    Layer,
    Rows,
    Trained,
    check_hidden,
    forward,
    network,
    squares,
)
from dagp.capabilities import Capabilities
from dagp.typing import Array, Float, Inputs, PerPoint, PerProcess, RandomState, Scalar, Table

__all__ = ["MDN", "mixture_log_density"]

SMALLEST_STD = 1e-3
"""In standardised units: a component on a single point must not have an infinite density."""


class Head(NamedTuple):
    """What the network says at each point."""

    logits: PerProcess
    means: PerProcess
    variances: PerProcess


def head(layers: list[Layer], X: Inputs) -> Head:
    """Read the outputs of the network as those of a mixture."""
    logits, means, raw = jnp.split(forward(layers, X), 3, axis=1)
    return Head(logits, means, jax.nn.softplus(raw) ** 2 + SMALLEST_STD**2)


def mixture_log_density(
    logits: PerProcess, means: PerProcess, variances: PerProcess, y: PerPoint
) -> PerPoint:
    """Log density of a mixture of normals at one output per point."""
    quadratic = (y[:, None] - means) ** 2 / variances + jnp.log(2 * np.pi * variances)
    return jax.nn.logsumexp(jax.nn.log_softmax(logits) - 0.5 * quadratic, axis=1)


@dataclass(frozen=True)
class _Loss:
    """Mean negative log density with weight decay."""

    l2: float

    def __call__(self, layers: list[Layer], rows: Rows, key: Array) -> Scalar:
        found = head(layers, rows.X)
        return self.l2 * squares(layers) - mixture_log_density(*found, rows.y).mean()


class MDN(Trained, DensityBaseline):
    """Mixture density network (Bishop 1994): weights, means and variances are outputs of a network.

    A component has no identity: the network may change at will which one describes what.

    Parameters
    ----------
    n_components : components of the mixture
    hidden : sizes of the hidden layers
    l2 : weight of the sum of squared parameters beside the mean negative log density
    steps, batch_size, learning_rate : of Adam; the rate falls along a half cosine
    random_state : seed

    >>> import numpy as np
    >>> X = np.linspace(-1, 1, 200)[:, None]
    >>> y = np.where(np.arange(200) % 2, 1.0, -1.0)
    >>> model = MDN(2, steps=500, random_state=0).fit(X, y)
    >>> np.sort(model.predict_mixture([[0.0]]).modes()[0].round(1)).tolist()
    [-1.0, 1.0]
    """

    layers_: list[Layer]
    losses_: Float[np.ndarray, " T"]
    capabilities: ClassVar[Capabilities] = Capabilities(
        scalable=True, predictive_posterior=True, multimodal=True
    )

    def __init__(
        self,
        n_components: int = 10,
        hidden: tuple[int, ...] = (64, 64),
        *,
        l2: float = 1e-5,
        steps: int = 3000,
        batch_size: int = 256,
        learning_rate: float = 3e-3,
        random_state: RandomState = None,
    ):
        self.n_components = n_components
        self.hidden = hidden
        self.l2 = l2
        self.steps = steps
        self.batch_size = batch_size
        self.learning_rate = learning_rate
        self.random_state = random_state

    def _settings(self) -> Mapping[str, tuple[Any, type, float]]:
        return {
            "n_components": (self.n_components, int, 1),
            **self._of_training(),
        }

    def _learn(self, X: Inputs, y: PerPoint, rng: np.random.Generator) -> None:
        K = self.n_components
        layers = network([X.shape[1], *check_hidden(self.hidden), 3 * K], rng)
        # Components that begin alike stay alike: spread over the outputs they differ.
        last = layers[-1].offset.copy()
        last[K : 2 * K] = np.quantile(y, (np.arange(K) + 0.5) / K)
        layers[-1] = layers[-1]._replace(offset=last)
        self.layers_, self.losses_ = self._train_on(_Loss(self.l2), layers, X, y, rng)

    def _components(self, X: Inputs) -> Predicted:
        found = head(self.layers_, X)
        nothing = jnp.zeros_like(found.variances)
        return Predicted(jax.nn.softmax(found.logits), found.means, nothing, found.variances)

    def predict_heaviest(self, X: Table) -> np.ndarray:
        """Mean of the component with the largest weight at each row: what outliers do not pull."""
        mixture = self.predict_mixture(X)
        return mixture.means[np.arange(len(mixture)), mixture.weights.argmax(axis=1)]
