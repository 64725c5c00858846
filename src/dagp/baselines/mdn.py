"""Mixture density network (MDN, Bishop 1994): a network whose outputs parametrise a mixture."""

from dataclasses import KW_ONLY, dataclass

import jax
import jax.numpy as jnp
import numpy as np

from dagp.baselines.base import DensityBaseline, Predicted, setting
from dagp.baselines.capabilities import Capabilities
from dagp.baselines.network import Layer, Minibatch, NetworkBaseline, forward, init_network
from dagp.core.typing import Array, Inputs, PerPoint, PerProcess, RandomState, Scalar, Table

MIN_STD = 1e-3
"""In standardised units; bounds the density of a component that collapses onto one point."""


def mixture_parameters(layers: list[Layer], X: Inputs) -> tuple[PerProcess, PerProcess, PerProcess]:
    """Logits, means and variances of the mixture at each point, from the network's outputs."""
    logits, means, raw = jnp.split(forward(layers, X), 3, axis=1)
    return logits, means, jax.nn.softplus(raw) ** 2 + MIN_STD**2


def mixture_log_density(
    logits: PerProcess, means: PerProcess, variances: PerProcess, y: PerPoint
) -> PerPoint:
    """Log density of a Gaussian mixture at one output per point."""
    quadratic = (y[:, None] - means) ** 2 / variances + jnp.log(2 * np.pi * variances)
    return jax.nn.logsumexp(jax.nn.log_softmax(logits) - 0.5 * quadratic, axis=1)


def negative_log_density(layers: list[Layer], batch: Minibatch, key: Array) -> Scalar:
    """Mean negative log density."""
    return -mixture_log_density(*mixture_parameters(layers, batch.X), batch.y).mean()


@dataclass(eq=False, repr=False)
class MDN(NetworkBaseline, DensityBaseline):
    """Mixture density network (Bishop 1994): weights, means and variances are outputs of a network.

    Components are not processes: nothing ties a component at one input to the same one at another.

    Parameters
    ----------
    n_components : int, default=10
        Number of components.
    hidden : tuple of int, default=(64, 64)
    l2 : float, default=1e-5
    steps : int, default=3000
    batch_size : int, default=256
    learning_rate : float, default=3e-3
    random_state : int, RandomState, Generator or None, default=None
        As in `MLP`.

    Attributes
    ----------
    layers_ : list of Layer
        Weights and biases, in standardised units.
    losses_ : ndarray of shape (steps,)
        Loss at each step.

    Examples
    --------
    >>> import numpy as np
    >>> X = np.linspace(-1, 1, 200)[:, None]
    >>> y = np.where(np.arange(200) % 2, 1.0, -1.0)
    >>> model = MDN(2, steps=500, random_state=0).fit(X, y)
    >>> np.sort(model.predict_mixture([[0.0]]).modes()[0].round(1)).tolist()
    [-1.0, 1.0]
    """

    n_components: int = setting(10, least=1)
    hidden: tuple[int, ...] = (64, 64)
    _: KW_ONLY
    l2: float = setting(1e-5, least=0.0)
    steps: int = setting(3000, least=1)
    batch_size: int = setting(256, least=1)
    learning_rate: float = setting(3e-3, least=0.0)
    random_state: RandomState = None

    capabilities = Capabilities(scalable=True, predictive_posterior=True, multimodal=True)

    def _learn(self, X: Inputs, y: PerPoint, rng: np.random.Generator) -> None:
        K = self.n_components
        layers = init_network([X.shape[1], *self._hidden_sizes(), 3 * K], rng)
        # Components with equal initial means would stay equal: spread over the outputs.
        last = layers[-1].offset.copy()
        last[K : 2 * K] = np.quantile(y, (np.arange(K) + 0.5) / K)
        layers[-1] = layers[-1]._replace(offset=last)
        self.layers_, self.losses_ = self._train(negative_log_density, layers, X, y, rng)

    def _components(self, X: Inputs) -> Predicted:
        logits, means, variances = mixture_parameters(self.layers_, X)
        return Predicted(jax.nn.softmax(logits), means, jnp.zeros_like(means), variances)

    def predict_heaviest(self, X: Table) -> np.ndarray:
        """Mean of the component with the largest weight: robust to outliers, shape (N,)."""
        mixture = self.predict_mixture(X)
        return mixture.means[np.arange(len(mixture)), mixture.weights.argmax(axis=1)]
