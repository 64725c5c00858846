"""ChoiceNet (Choi et al. 2018): a mixture density network with components correlated to a target.

Features h(x) are shared. Component k has a correlation ρ_k(x) with the target, ρ_1 fixed near one,
and its weights on the features are a sample correlated with the target's weights W* ~ N(μ, σ²):

    W_k = ρ μ + (1 − ρ²) (ρ (W* − μ) / σ + sqrt(1 − ρ²) Z),    Z ~ N(0, 1)

(the Cholesky block). Its mean is W_k · h(x) and its variance (1 − ρ²) σ²(x) + 1/τ. Training
maximises the mixture density; the prediction is component 1 with correlation one, μ · h(x).
"""

from dataclasses import KW_ONLY, dataclass
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from dagp.baselines.base import DensityBaseline, Predicted, setting
from dagp.baselines.capabilities import Capabilities
from dagp.baselines.mdn import mixture_log_density
from dagp.baselines.network import Layer, Minibatch, NetworkBaseline, forward, init_network
from dagp.core.typing import Array, Float, Inputs, PerPoint, PerProcess, RandomState, Scalar, Table

TARGET_CORRELATION = 0.99
"""Correlation ρ_1 of the first component with the target during training."""
MAX_CORRELATION = 0.999
"""Upper limit of the other correlations: sqrt(1 − ρ²) has no finite gradient at one."""
KL_FLOOR = 1e-2
"""Added inside the logarithms of the divergence: mixture weights may vanish."""
LOSS_WINDOW = 500
"""Last steps over which the loss is averaged to compare training runs."""


class Weights(NamedTuple):
    """Trainable parameters."""

    features: list[Layer]
    correlations: Layer
    logits: Layer
    log_variance: Layer
    mean: Float[Array, " Q"]
    """μ; the standard deviation σ cancels."""


class Heads(NamedTuple):
    """Outputs of the network at each point."""

    features: Float[Array, "N Q"]
    correlations: PerProcess
    logits: PerProcess
    variance: Float[Array, "N 1"]


def heads(weights: Weights, X: Inputs, reference: float) -> Heads:
    """Outputs of the network, with `reference` as the correlation ρ_1."""
    features = jax.nn.relu(forward(weights.features, X))
    others = MAX_CORRELATION * jax.nn.sigmoid(forward([weights.correlations], features))
    first = jnp.full((len(X), 1), reference)
    return Heads(
        features,
        jnp.concatenate([first, others], axis=1),
        forward([weights.logits], features),
        # At least one: an uncorrelated component must be broad.
        jnp.exp(jax.nn.relu(forward([weights.log_variance], features))),
    )


def drawn_std(found: Heads) -> PerProcess:
    """Standard deviation of the component means over samples of the Cholesky block."""
    length = jnp.sqrt(jnp.sum(found.features**2, axis=1, keepdims=True) + 1e-12)
    return (1 - found.correlations**2) * length


def drawn_means(weights: Weights, found: Heads, key: Array) -> PerProcess:
    """Component means under one sample of the Cholesky block per point.

    W_k · h is normal given h: outputs are sampled directly, by two random numbers per component.
    """
    rho = found.correlations
    towards, away = jax.random.normal(key, (2, *rho.shape))
    noise = rho * towards + jnp.sqrt(1 - rho**2) * away
    return rho * (found.features @ weights.mean)[:, None] + drawn_std(found) * noise


@dataclass(frozen=True)
class _Loss:
    """Mean negative log density, and divergence between correlations and weights."""

    tau_inverse: float
    kl: float

    def __call__(self, weights: Weights, batch: Minibatch, key: Array) -> Scalar:
        found = heads(weights, batch.X, TARGET_CORRELATION)
        rho = found.correlations
        means = drawn_means(weights, found, key)
        variances = (1 - rho**2) * found.variance + self.tau_inverse
        density = mixture_log_density(found.logits, means, variances, batch.y)
        weight, shifted = jax.nn.softmax(found.logits), rho + 1
        divergence = shifted * (jnp.log(shifted + KL_FLOOR) - jnp.log(weight + KL_FLOOR))
        return -density.mean() + self.kl * divergence.sum(axis=1).mean()


@dataclass(eq=False, repr=False)
class ChoiceNet(NetworkBaseline, DensityBaseline):
    """ChoiceNet (Choi et al. 2018): robust regression under heavy corruption of the outputs.

    Parameters
    ----------
    n_components : int, default=5
        Number of components; the first is the target, alone a regression with varying noise.
    hidden : tuple of int, default=(64, 64)
        Sizes of the hidden layers; the last one holds the features.
    tau_inverse : float, default=1e-3
        Minimum variance 1/τ of a component, in standardised units.
    kl : float, default=1e-6
        Factor of the divergence between correlations and mixture weights in the loss.
    n_init : int, default=5
        Number of training runs, of which the one with the lowest loss is kept. Under heavy
        corruption most random starts end with the target among the corruptions, at a higher loss.
    l2 : float, default=1e-6
    steps : int, default=6000
    batch_size : int, default=256
    learning_rate : float, default=3e-3
    random_state : int, RandomState, Generator or None, default=None
        As in `MLP`.

    Attributes
    ----------
    weights_ : Weights
        Trained parameters, in standardised units.
    losses_ : ndarray of shape (steps,)
        Loss at each step.

    Examples
    --------
    >>> from dagp import datasets
    >>> data = datasets.noise_separation(0.2, noise=0.0, n=300, random_state=0)
    >>> model = ChoiceNet(steps=1000, n_init=1, random_state=0).fit(data.X, data.y)
    >>> bool(abs(model.predict(data.X_test) - data.y_test).mean() < 0.15)
    True
    """

    n_components: int = setting(5, least=1)
    hidden: tuple[int, ...] = (64, 64)
    _: KW_ONLY
    tau_inverse: float = setting(1e-3, least=1e-12)
    kl: float = setting(1e-6, least=0.0)
    l2: float = setting(1e-6, least=0.0)
    steps: int = setting(6000, least=1)
    batch_size: int = setting(256, least=1)
    learning_rate: float = setting(3e-3, least=0.0)
    n_init: int = setting(5, least=1)
    random_state: RandomState = None

    capabilities = Capabilities(scalable=True, predictive_posterior=True)

    def _learn(self, X: Inputs, y: PerPoint, rng: np.random.Generator) -> None:
        loss = _Loss(self.tau_inverse, self.kl)
        starts = (self._start(X.shape[1], rng) for _ in range(self.n_init))
        runs = (self._train(loss, start, X, y, rng) for start in starts)
        self.weights_, self.losses_ = min(runs, key=lambda run: run[1][-LOSS_WINDOW:].mean())

    def _start(self, inputs: int, rng: np.random.Generator) -> Weights:
        """Random initial weights."""
        sizes, K = (inputs, *self._hidden_sizes()), self.n_components
        features = init_network(sizes, rng)
        correlations, logits, log_variance = (
            Layer(0.01 * rng.standard_normal((sizes[-1], outputs)), np.zeros(outputs))
            for outputs in (K - 1, K, 1)
        )
        mean = 0.1 * rng.standard_normal(sizes[-1])
        return Weights(features, correlations, logits, log_variance, mean)

    def _means(self, X: Inputs) -> PerPoint:
        return heads(self.weights_, X, 1.0).features @ self.weights_.mean

    def _components(self, X: Inputs) -> Predicted:
        found = heads(self.weights_, X, 1.0)
        rho = found.correlations
        return Predicted(
            jax.nn.softmax(found.logits),
            rho * (found.features @ self.weights_.mean)[:, None],
            drawn_std(found) ** 2,
            (1 - rho**2) * found.variance + self.tau_inverse,
        )

    def predict_correlations(self, X: Table) -> np.ndarray:
        """Correlation of each component with the target, shape (N, K); one for the first."""
        return self._evaluate(lambda X: heads(self.weights_, X, 1.0).correlations, X)
