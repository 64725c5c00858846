"""Bayesian neural network with latent variables (BNN+LV), by black-box α-divergence minimisation.

The network f with weights W has a latent input z_n beside the inputs x_n of each point, and so can
predict several modes for one input: y_n = f(x_n, z_n; W) + ε_n, with ε_n ~ N(0, σ²), z_n ~ N(0, γ),
every w ~ N(0, λ), λ = 1 and γ the number of inputs. The mean-field Gaussian q and σ² minimise the
energy, here with the site functions of Depeweg et al. (2017) written as density ratios::

    E(q) = −(1/α) Σ_n log E_q[(p(y_n | W, x_n, z_n) (p(W) / q(W))^(1/N) p(z_n) / q(z_n))^α],

so that no large terms cancel, and E is the negative ELBO when α → 0. The expectation is estimated
by reparametrised samples, the sum by minibatches.
"""

import functools
import itertools
from collections.abc import Sequence
from dataclasses import KW_ONLY, dataclass
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from scipy.special import ndtri

from dagp.baselines.base import DensityBaseline, Predicted, check_number, setting
from dagp.baselines.capabilities import Capabilities
from dagp.baselines.network import Layer, Minibatch, forward, init_network, train_network
from dagp.core.typing import Array, Float, Inputs, PerPoint, RandomState, Scalar
from dagp.inference.standardize import padded, padded_length

WEIGHT_VARIANCE = 1.0
"""Prior variance λ of a weight."""
INIT_WEIGHT_LOGIT, INIT_LATENT_LOGIT, INIT_LOG_NOISE = -10.0, 5.0, -5.0
"""Initial values, as in the authors' code: logits of the variances of weights (near zero) and of z
(close to the prior), and log noise variance (too small to explain the data, so that z has to)."""
CHUNK = 1024
"""Points per prediction call."""


class MeanField(NamedTuple):
    """Mean-field Gaussian posterior of weights or latent inputs."""

    mean: Float[Array, " n"]
    logit: Float[Array, " n"]
    """Logit of variance / prior variance: a fraction, so that the ratios q / p stay proper."""


class Posterior(NamedTuple):
    """Variational posterior and noise: the trained parameters."""

    weights: MeanField
    latent: MeanField
    """Divided by `latent_scale`."""
    log_noise: Scalar
    """Log variance of the noise."""


class Draws(NamedTuple):
    """Networks sampled from the posterior, each with a latent input from its prior."""

    sizes: tuple[int, ...]
    weights: Float[np.ndarray, "S n"]
    z: Float[np.ndarray, " S"]
    noise_variance: float


def latent_scale(total: Any, batch_size: int) -> Any:
    """Factor of the stored parameters of q(z), which speeds up their training.

    Adam moves a parameter with gradients in one of total / batch_size minibatches by the root of
    this ratio; scaled, it moves by the ratio, the authors' learning rate of latent inputs.
    """
    return (total / batch_size) ** 0.5


@dataclass(frozen=True)
class Energy:
    """Minibatch estimate of the energy E(q); with `alpha` zero the limit, the negative ELBO."""

    alpha: float
    samples: int
    sizes: tuple[int, ...]
    """Layer sizes, from all inputs to the output."""

    def __call__(self, q: Posterior, batch: Minibatch, key: Array) -> Scalar:
        weight_key, latent_key = jax.random.split(key)
        scale = latent_scale(batch.total, len(batch.indices))
        latent = MeanField(*(column[batch.indices] * scale for column in q.latent))
        weights, weight_ratios = _draw(q.weights, WEIGHT_VARIANCE, self.samples, weight_key)
        z, z_ratios = _draw(latent, batch.X.shape[1], self.samples, latent_key)
        network = functools.partial(network_output, self.sizes)
        outputs = jax.vmap(network, (0, 0, None))(weights, z, batch.X)
        misfit = (batch.y - outputs) ** 2 * jnp.exp(-q.log_noise)
        log_density = -0.5 * (misfit + q.log_noise + np.log(2 * np.pi))
        weight_ratio = jnp.sum(weight_ratios, 1, keepdims=True) / batch.total
        log_factors = log_density - weight_ratio - z_ratios
        return -batch.total * jnp.mean(_log_power_mean(log_factors, self.alpha))


def _draw(
    q: MeanField, prior_variance: float, samples: int, key: Array
) -> tuple[Float[Array, "S n"], Float[Array, "S n"]]:
    """Reparametrised samples from q, and log q − log p of each value."""
    noise = jax.random.normal(key, (samples, *q.mean.shape), q.mean.dtype)
    values = q.mean + jnp.sqrt(prior_variance * jax.nn.sigmoid(q.logit)) * noise
    ratios = 0.5 * (values**2 / prior_variance - noise**2 - jax.nn.log_sigmoid(q.logit))
    return values, ratios


def _log_power_mean(logs: Float[Array, "S N"], alpha: float) -> PerPoint:
    """(1/α) log mean exp(α·) over the samples."""
    if alpha == 0:
        return jnp.mean(logs, axis=0)
    return (jax.nn.logsumexp(alpha * logs, axis=0) - np.log(len(logs))) / alpha


def network_output(
    sizes: Sequence[int], weights: Float[Array, " n"], z: Float[Array, "..."], X: Inputs
) -> PerPoint:
    """Output of one network, with one z for all points or one per point."""
    layers, begin = [], 0
    for i, o in itertools.pairwise(sizes):
        middle, end = begin + i * o, begin + (i + 1) * o
        layers.append(Layer(weights[begin:middle].reshape(i, o), weights[middle:end]))
        begin = end
    column = jnp.broadcast_to(z, (len(X),))
    return forward(layers, jnp.column_stack([X, column]))[:, 0]


@functools.partial(jax.jit, static_argnums=0)
def _outputs(
    sizes: Sequence[int], weights: Float[Array, "S n"], z: Float[Array, " S"], X: Inputs
) -> Float[Array, "N S"]:
    """Outputs of all sampled networks."""
    # Sequentially: the hidden layers of all networks at once would take hundreds of MB.
    return jax.lax.map(lambda draw: network_output(sizes, draw[0], draw[1], X), (weights, z)).T


@dataclass(eq=False, repr=False)
class BNNLV(DensityBaseline):
    """Bayesian neural network with latent variables (BNN+LV, Depeweg et al. 2017).

    The prediction is a mixture of `predictive_samples` components of equal weight, sampled in
    `fit`. Each is one function of x: a network from the posterior with a latent input from its
    prior, the same at all points. The latent inputs are the midpoints of equally probable strata,
    assigned to the networks at random. The learned noise is added to each component.

    Parameters
    ----------
    hidden : sequence of int, default=(20, 20, 20)
        Sizes of the hidden layers.
    alpha : float, default=0.5
        Divergence to minimise; 0 is variational inference, 1 expectation propagation.
    samples : int, default=25
        Samples of weights and latent inputs per step.
    predictive_samples : int, default=200
        Components of the predictive mixture.
    steps : int, default=12000
    batch_size : int, default=100
    learning_rate : float, default=0.01
    random_state : int, RandomState, Generator or None, default=None
        As in `MLP`.

    Attributes
    ----------
    draws_ : Draws
        The sampled networks, in standardised units.
    energies_ : ndarray of shape (steps,)
        Estimate of the energy at each step.

    Examples
    --------
    >>> import numpy as np
    >>> x = np.linspace(-1, 1, 60)
    >>> y = np.where(np.arange(60) % 2, 1.0, -1.0)
    >>> model = BNNLV((10,), samples=10, steps=1000, random_state=2).fit(x[:, None], y)
    >>> mixture = model.predict_mixture([[0.0]])
    >>> np.sort(mixture.modes()[0][:2]).round()
    array([-1.,  1.])
    """

    hidden: Sequence[int] = (20, 20, 20)
    _: KW_ONLY
    alpha: float = setting(0.5, least=0.0)
    samples: int = setting(25, least=1)
    steps: int = setting(12_000, least=1)
    batch_size: int = setting(100, least=1)
    learning_rate: float = setting(0.01, least=0.0)
    predictive_samples: int = setting(200, least=1)
    random_state: RandomState = None

    capabilities = Capabilities(
        bayesian=True, scalable=True, predictive_posterior=True, multimodal=True
    )

    def _learn(self, X: Inputs, y: PerPoint, rng: np.random.Generator) -> None:
        hidden = np.ravel(self.hidden)
        for i, width in enumerate(hidden):
            check_number(f"hidden[{i}]", width, 1)
        # z is one more input.
        sizes = (X.shape[1] + 1, *map(int, hidden), 1)
        energy = Energy(float(self.alpha), int(self.samples), sizes)
        start = _initial_posterior(sizes, len(X), self.batch_size, rng)
        settings = {"steps": self.steps, "batch_size": self.batch_size, "rate": self.learning_rate}
        posterior, self.energies_ = train_network(energy, start, X, y, rng, **settings)
        S, key = self.predictive_samples, jax.random.key(int(rng.integers(2**31)))
        weights, _ = _draw(posterior.weights, WEIGHT_VARIANCE, S, key)
        z = np.sqrt(X.shape[1]) * ndtri((rng.permutation(S) + 0.5) / S)
        self.draws_ = Draws(sizes, np.asarray(weights), z, float(np.exp(posterior.log_noise)))

    def _components(self, X: Inputs) -> Predicted:
        sizes, weights, z, noise = self.draws_
        X = np.asarray(X)
        parts = [
            _outputs(sizes, weights, z, padded(X[begin : begin + CHUNK], CHUNK))
            for begin in range(0, len(X), CHUNK)
        ]
        means = np.concatenate([np.asarray(part) for part in parts])[: len(X)]
        shape = means.shape
        return Predicted(np.full(shape, 1 / len(z)), means, np.zeros(shape), np.full(shape, noise))


def _initial_posterior(
    sizes: Sequence[int], points: int, batch_size: int, rng: np.random.Generator
) -> Posterior:
    """Variational posterior at the start of training."""
    parts = [np.ravel(part) for layer in init_network(sizes, rng) for part in layer]
    weights = np.concatenate(parts)
    # Padded as the data are, so that data sets of similar size share compiled code.
    zeros = np.zeros(padded_length(points))
    logit = INIT_LATENT_LOGIT / latent_scale(points, min(batch_size, points))
    return Posterior(
        MeanField(weights, np.full(len(weights), INIT_WEIGHT_LOGIT)),
        MeanField(zeros, zeros + logit),
        np.array(INIT_LOG_NOISE),
    )
