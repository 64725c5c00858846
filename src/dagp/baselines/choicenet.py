"""A network that separates a target from corruptions correlated with it.

Features h(x) are shared. Component k has a correlation ρ_k(x) with the target, ρ_1 fixed near one,
and its weights on the features are a draw that correlates with the target's weights W* ~ N(μ, σ²):

    W_k = ρ μ + (1 − ρ²) (ρ (W* − μ) / σ + sqrt(1 − ρ²) Z),    Z ~ N(0, 1)

(the Cholesky block). Its mean is W_k · h(x) and its variance (1 − ρ²) σ²(x) + 1/τ. Trained on the
density of the mixture; the prediction is component 1 with correlation one, μ · h(x).
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from dagp.baselines.base import DensityBaseline, Predicted
from dagp.baselines.mdn import mixture_log_density
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

__all__ = ["ChoiceNet"]

REFERENCE = 0.99
"""Correlation of the first component with the target while training."""
LARGEST = 0.999
"""Of the other correlations: sqrt(1 − ρ²) has no finite slope at one."""
KL_FLOOR = 1e-2
LAST = 500
"""Steps over which the loss of a training is averaged."""


class Weights(NamedTuple):
    """All that is trained."""

    features: list[Layer]
    correlations: Layer
    logits: Layer
    log_variance: Layer
    mean: Float[Array, " Q"]
    """μ; the standard deviation σ cancels."""


class Heads(NamedTuple):
    """What the network says at each point."""

    features: Float[Array, "N Q"]
    correlations: PerProcess
    logits: PerProcess
    variance: Float[Array, "N 1"]


def heads(weights: Weights, X: Inputs, reference: float) -> Heads:
    """Everything but the draw of the weights."""
    features = jax.nn.relu(forward(weights.features, X))
    others = LARGEST * jax.nn.sigmoid(forward([weights.correlations], features))
    first = jnp.full((len(X), 1), reference)
    return Heads(
        features,
        jnp.concatenate([first, others], axis=1),
        forward([weights.logits], features),
        # At least one: what does not correlate with the target must not be sharp either.
        jnp.exp(jax.nn.relu(forward([weights.log_variance], features))),
    )


def drawn_std(found: Heads) -> PerProcess:
    """Standard deviation of the means of the components over draws of the Cholesky block."""
    length = jnp.sqrt(jnp.sum(found.features**2, axis=1, keepdims=True) + 1e-12)
    return (1 - found.correlations**2) * length


def drawn_means(weights: Weights, found: Heads, key: Array) -> PerProcess:
    """Means of the components under one draw of the Cholesky block per point.

    W_k · h is normal given h, so the draw is made in the space of the outputs, where it takes
    two numbers per component instead of two per feature.
    """
    rho = found.correlations
    towards, away = jax.random.normal(key, (2, *rho.shape))
    noise = rho * towards + jnp.sqrt(1 - rho**2) * away
    return rho * (found.features @ weights.mean)[:, None] + drawn_std(found) * noise


@dataclass(frozen=True)
class _Loss:
    """Negative log density; correlation and weight should agree; weight decay."""

    tau_inverse: float
    kl: float
    l2: float

    def __call__(self, weights: Weights, rows: Rows, key: Array) -> Scalar:
        found = heads(weights, rows.X, REFERENCE)
        rho = found.correlations
        means = drawn_means(weights, found, key)
        variances = (1 - rho**2) * found.variance + self.tau_inverse
        density = mixture_log_density(found.logits, means, variances, rows.y)
        share, closeness = jax.nn.softmax(found.logits), rho + 1
        divergence = closeness * (jnp.log(closeness + KL_FLOOR) - jnp.log(share + KL_FLOOR))
        return (
            -density.mean() + self.kl * divergence.sum(axis=1).mean() + self.l2 * squares(weights)
        )


class ChoiceNet(Trained, DensityBaseline):
    """ChoiceNet (Choi et al. 2018): finds a target function under heavy corruption.

    Parameters
    ----------
    n_components : components of the mixture; the first is the target
    hidden : sizes of the hidden layers, the last of which are the features
    tau_inverse : smallest variance of a component, in standardised units
    kl : weight of the divergence between correlations and mixture weights
    l2 : weight of the sum of squared parameters
    steps, batch_size, learning_rate : of Adam; the rate falls along a half cosine
    n_init : trainings, of which the one with the lowest loss is kept. Under heavy corruption most
        random beginnings end with the target among the corruptions, at a visibly higher loss
    random_state : seed

    >>> from dagp import datasets
    >>> data = datasets.noise_separation(0.2, noise=0.0, n=300, random_state=0)
    >>> model = ChoiceNet(steps=1000, n_init=1, random_state=0).fit(data.X, data.y)
    >>> bool(abs(model.predict(data.X_test) - data.y_test).mean() < 0.15)
    True
    """

    weights_: Weights
    losses_: Float[np.ndarray, " T"]
    capabilities: ClassVar[Capabilities] = Capabilities(scalable=True, predictive_posterior=True)

    def __init__(
        self,
        n_components: int = 5,
        hidden: tuple[int, ...] = (64, 64),
        *,
        tau_inverse: float = 1e-3,
        kl: float = 1e-6,
        l2: float = 1e-6,
        steps: int = 6000,
        batch_size: int = 256,
        learning_rate: float = 3e-3,
        n_init: int = 5,
        random_state: RandomState = None,
    ):
        self.n_components = n_components
        self.hidden = hidden
        self.tau_inverse = tau_inverse
        self.kl = kl
        self.l2 = l2
        self.steps = steps
        self.batch_size = batch_size
        self.learning_rate = learning_rate
        self.n_init = n_init
        self.random_state = random_state

    def _settings(self) -> Mapping[str, tuple[Any, type, float]]:
        return {
            "n_components": (self.n_components, int, 2),
            "tau_inverse": (self.tau_inverse, float, 1e-12),
            "kl": (self.kl, float, 0),
            **self._of_training(),
            "n_init": (self.n_init, int, 1),
        }

    def _learn(self, X: Inputs, y: PerPoint, rng: np.random.Generator) -> None:
        runs = (self._train(X, y, rng) for _ in range(self.n_init))
        self.weights_, self.losses_ = min(runs, key=lambda run: run[1][-LAST:].mean())

    def _train(
        self, X: Inputs, y: PerPoint, rng: np.random.Generator
    ) -> tuple[Weights, Float[np.ndarray, " T"]]:
        """One training from random weights, and the loss at each step."""
        hidden, K = check_hidden(self.hidden), self.n_components
        Q = hidden[-1]

        def small(outputs: int) -> Layer:
            return Layer(0.01 * rng.standard_normal((Q, outputs)), np.zeros(outputs))

        weights = Weights(
            network([X.shape[1], *hidden], rng),
            small(K - 1),
            small(K),
            small(1),
            0.1 * rng.standard_normal(Q),
        )
        return self._train_on(_Loss(self.tau_inverse, self.kl, self.l2), weights, X, y, rng)

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
        """Correlation of each component with the target at each row."""
        return self._ask(lambda X: heads(self.weights_, X, 1.0).correlations, X)
