"""A Bayesian neural network with latent inputs, trained by black-box α-divergence minimisation.

Depeweg, Hernández-Lobato, Doshi-Velez and Udluft, *Learning and policy search in stochastic
dynamical systems with Bayesian neural networks*, 2017. The network f of weights W sees a latent
number z_n beside the inputs of each point, and so can answer one input in several ways::

    y_n = f(x_n, z_n; W) + ε_n,   ε_n ~ N(0, σ²),   z_n ~ N(0, γ),   every w ~ N(0, λ),

with λ = 1 and γ the number of inputs. Posteriors are independent normals, q(w) = N(m, v) for each
weight and q(z_n) for each training point. They and σ² minimise the energy of the paper::

    E(q) = −log Z_q − (1/α) Σ_n log E_q[(p(y_n | W, x_n, z_n) / (f(W) f_n(z_n)))^α] + constant,
    f(W) = exp Σ_w {(v − λ) / (2λvN) w² + m / (vN) w},   f_n likewise with γ and N = 1,
    log Z_q = Σ {½ log(2πv) + m² / (2v)} over all weights and all z_n.

All normalisers can go into the expectation, where the sites become what they stand for,
f(W) ∝ (q(W) / p(W))^(1/N) and f_n(z_n) ∝ q(z_n) / p(z_n). Computed here is the same number as ::

    E(q) = −(1/α) Σ_n log E_q[(p(y_n | W, x_n, z_n) (p(W) / q(W))^(1/N) p(z_n) / q(z_n))^α]:

no large terms cancel, and the constant is such that E is minus the variational bound when α → 0.
Reparametrised draws stand for the expectation, batches for the sum.
"""

import functools
import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from scipy.special import ndtri

from dagp.baselines.base import DensityBaseline, Predicted
from dagp.baselines.network import Layer, Rows, forward, network, train_network
from dagp.capabilities import Capabilities
from dagp.data import padded, padded_length
from dagp.typing import Array, Float, Inputs, PerPoint, RandomState, Scalar

__all__ = ["BNNLV"]

WEIGHT_VARIANCE = 1.0
"""λ."""
NARROW, WIDE, QUIET = -10.0, 5.0, -5.0
"""Where training starts, as in the authors' code: logits of the variances of weights (nearly a
plain network) and of z (nearly the prior), log variance of the noise (too small to explain the
data, so that z has to)."""
CHUNK = 1024
"""Points predicted at once."""


class Normals(NamedTuple):
    """Independent normals: what is believed about weights or latent inputs.

    The variance is a share of the prior's: data only ever narrow a belief, and the sites, which
    divide by what they took away, stay proper.
    """

    mean: Float[Array, " n"]
    logit: Float[Array, " n"]
    """Of variance / prior variance."""


class Belief(NamedTuple):
    """What is learned."""

    weights: Normals
    latent: Normals
    """Divided by `stretch`."""
    log_noise: Scalar
    """Log variance of the noise."""


class Draws(NamedTuple):
    """Networks drawn from the posterior, each with a latent input from its prior."""

    sizes: tuple[int, ...]
    weights: Float[np.ndarray, "S n"]
    z: Float[np.ndarray, " S"]
    noise_variance: float


def stretch(total: Any, batch_size: int) -> Any:
    """What stored latent numbers are multiplied with.

    A point is seen once in total / batch_size steps, and its z must not fall behind the weights.
    Adam lets a parameter seen that rarely move as the square root of this ratio at each sight;
    stretched by the root, it moves as the ratio, the authors' rate for the latent inputs.
    """
    return (total / batch_size) ** 0.5


@dataclass(frozen=True)
class Energy:
    """Estimate of E(q) from some rows; `alpha` zero is the limit, minus the variational bound."""

    alpha: float
    samples: int
    sizes: tuple[int, ...]
    """Of the layers, from all inputs to the output."""

    def __call__(self, q: Belief, rows: Rows, key: Array) -> Scalar:
        """Of a belief, some rows and a random key."""
        for_weights, for_latent = jax.random.split(key)
        reach = stretch(rows.total, len(rows.place))
        latent = Normals(*(column[rows.place] * reach for column in q.latent))
        weights, of_weights = _draw(q.weights, WEIGHT_VARIANCE, self.samples, for_weights)
        z, of_z = _draw(latent, rows.X.shape[1], self.samples, for_latent)
        outputs = jax.vmap(functools.partial(_function, self.sizes), (0, 0, None))(
            weights, z, rows.X
        )
        misfit = (rows.y - outputs) ** 2 * jnp.exp(-q.log_noise)
        log_density = -0.5 * (misfit + q.log_noise + np.log(2 * np.pi))
        log_factors = log_density - jnp.sum(of_weights, 1, keepdims=True) / rows.total - of_z
        return -rows.total * jnp.mean(_log_power_mean(log_factors, self.alpha))


def _draw(
    q: Normals, prior_variance: float, samples: int, key: Array
) -> tuple[Float[Array, "S n"], Float[Array, "S n"]]:
    """Draws from q, and log q − log p of each number drawn."""
    noise = jax.random.normal(key, (samples, *q.mean.shape), q.mean.dtype)
    values = q.mean + jnp.sqrt(prior_variance * jax.nn.sigmoid(q.logit)) * noise
    ratios = 0.5 * (values**2 / prior_variance - noise**2 - jax.nn.log_sigmoid(q.logit))
    return values, ratios


def _log_power_mean(logs: Float[Array, "S N"], alpha: float) -> PerPoint:
    """(1/α) log mean exp(α·), down the draws."""
    if alpha == 0:
        return jnp.mean(logs, axis=0)
    return (jax.nn.logsumexp(alpha * logs, axis=0) - np.log(len(logs))) / alpha


def _function(
    sizes: Sequence[int], weights: Float[Array, " n"], z: Float[Array, "..."], X: Inputs
) -> PerPoint:
    """Output of one network, with one z for all points or one for each."""
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
    # One network after the other: the hidden layers of all at once would take hundreds of MB.
    return jax.lax.map(lambda draw: _function(sizes, draw[0], draw[1], X), (weights, z)).T


class BNNLV(DensityBaseline):
    """Bayesian neural network with latent inputs (BNN+LV).

    The prediction is a mixture of `predictive_samples` equal parts. Each is a network drawn from
    the posterior with a latent input from its prior, the same at all points, so that a component
    is one function of x; the latent inputs are the middles of equally probable strata, dealt to
    the networks at random. They are drawn once, when fitting. Weight uncertainty and latent
    inputs are the spread of the components, and the learned noise is added to each.

    Parameters
    ----------
    hidden : widths of the hidden layers
    alpha : which divergence is minimised; 0 is the variational bound, 1 expectation propagation
    samples : draws of the weights and latent inputs at each step
    steps, batch_size, learning_rate : of training by Adam
    predictive_samples : components of the predictive mixture
    random_state : seed of everything random

    Attributes
    ----------
    draws_ : the networks predictions are made from, in standardised units
    energies_ : the estimate of the energy at each step

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

    energies_: Float[np.ndarray, " T"]
    draws_: Draws
    capabilities: ClassVar[Capabilities] = Capabilities(
        bayesian=True, scalable=True, predictive_posterior=True, multimodal=True
    )

    def __init__(
        self,
        hidden: Sequence[int] = (20, 20, 20),
        *,
        alpha: float = 0.5,
        samples: int = 25,
        steps: int = 12_000,
        batch_size: int = 100,
        learning_rate: float = 0.01,
        predictive_samples: int = 200,
        random_state: RandomState = None,
    ) -> None:
        self.hidden = hidden
        self.alpha = alpha
        self.samples = samples
        self.steps = steps
        self.batch_size = batch_size
        self.learning_rate = learning_rate
        self.predictive_samples = predictive_samples
        self.random_state = random_state

    def _settings(self) -> Mapping[str, tuple[Any, type, float]]:
        widths = {f"hidden[{i}]": (width, int, 1) for i, width in enumerate(np.ravel(self.hidden))}
        return widths | {
            "alpha": (self.alpha, float, 0),
            "samples": (self.samples, int, 1),
            "steps": (self.steps, int, 1),
            "batch_size": (self.batch_size, int, 1),
            "learning_rate": (self.learning_rate, float, 0),
            "predictive_samples": (self.predictive_samples, int, 1),
        }

    def _learn(self, X: Inputs, y: PerPoint, rng: np.random.Generator) -> None:
        X, y = np.asarray(X), np.asarray(y)
        # z is one more input.
        sizes = (X.shape[1] + 1, *(int(width) for width in np.ravel(self.hidden)), 1)
        energy = Energy(float(self.alpha), int(self.samples), sizes)
        belief, self.energies_ = train_network(
            energy,
            _first(sizes, len(X), self.batch_size, rng),
            X,
            y,
            rng,
            steps=self.steps,
            batch_size=self.batch_size,
            rate=self.learning_rate,
        )
        S, key = self.predictive_samples, jax.random.key(int(rng.integers(2**31)))
        weights, _ = _draw(belief.weights, WEIGHT_VARIANCE, S, key)
        z = np.sqrt(X.shape[1]) * ndtri((rng.permutation(S) + 0.5) / S)
        self.draws_ = Draws(sizes, np.asarray(weights), z, float(np.exp(belief.log_noise)))

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


def _first(sizes: Sequence[int], points: int, batch_size: int, rng: np.random.Generator) -> Belief:
    """Where training starts."""
    weights = np.concatenate([np.ravel(part) for layer in network(sizes, rng) for part in layer])
    # As long as the padded data: data sets of nearly one size share compiled code.
    nothing = np.zeros(padded_length(points))
    logit = WIDE / stretch(points, min(batch_size, points))
    return Belief(
        Normals(weights, np.full(len(weights), NARROW)),
        Normals(nothing, nothing + logit),
        np.array(QUIET),
    )
