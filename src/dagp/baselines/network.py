"""Feed-forward networks, and their training on shuffled batches."""

import functools
import itertools
from collections.abc import Callable, Sequence
from numbers import Integral
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from dagp.data import padded, padded_length
from dagp.stochastic import shuffled
from dagp.train import ADAM, BLOCK, apply
from dagp.typing import Array, Float, Inputs, Int, PerPoint, Scalar

__all__ = [
    "Layer",
    "Rows",
    "Trained",
    "check_hidden",
    "forward",
    "network",
    "squares",
    "train_network",
]

COOLING = 0.1
"""The rate falls along a half cosine to this part of itself: late steps average out the noise
of the batches."""


class Layer(NamedTuple):
    """An affine map."""

    matrix: Float[Array, "I O"]
    offset: Float[Array, " O"]


class Rows(NamedTuple):
    """Some data points, and how many data points there are in all."""

    place: Int[Array, " B"]
    X: Inputs
    y: PerPoint
    total: Scalar


def network(sizes: Sequence[int], rng: np.random.Generator) -> list[Layer]:
    """Layers from sizes[0] inputs to sizes[-1] outputs (He et al. 2015: for ReLUs)."""
    return [
        Layer(rng.standard_normal((i, o)) * np.sqrt(2 / i), np.zeros(o))
        for i, o in itertools.pairwise(sizes)
    ]


class Trained:
    """What estimators share whose parameters are trained on shuffled batches."""

    steps: int
    batch_size: int
    learning_rate: float
    l2: float

    def _of_training(self) -> dict[str, tuple[Any, type, float]]:
        """Least values of the settings of training, as `Baseline` wants them."""
        return {
            "l2": (self.l2, float, 0),
            "steps": (self.steps, int, 1),
            "batch_size": (self.batch_size, int, 1),
            "learning_rate": (self.learning_rate, float, 0),
        }

    def _train_on(
        self, loss: "Loss", parameters: Any, X: Inputs, y: PerPoint, rng: np.random.Generator
    ) -> tuple[Any, Float[np.ndarray, " T"]]:
        """See `train_network`."""
        pace = {"steps": self.steps, "batch_size": self.batch_size, "rate": self.learning_rate}
        return train_network(loss, parameters, X, y, rng, **pace)


def check_hidden(hidden: Any) -> tuple[int, ...]:
    """Sizes of hidden layers, or one clear sentence."""
    sizes = tuple(hidden) if isinstance(hidden, Sequence) else ()
    if not sizes or not all(isinstance(size, Integral) and int(size) >= 1 for size in sizes):
        raise ValueError(f"hidden must hold the sizes of one or more layers, got {hidden!r}.")
    return sizes


def forward(layers: Sequence[Layer], X: Inputs) -> Float[Array, "N O"]:
    """ReLU after every layer but the last."""
    for layer in layers[:-1]:
        X = jax.nn.relu(X @ layer.matrix + layer.offset)
    return X @ layers[-1].matrix + layers[-1].offset


def squares(tree: Any) -> Scalar:
    """Sum of squares of every number in a tree: what weight decay is about."""
    return sum((jnp.sum(leaf**2) for leaf in jax.tree.leaves(tree)), start=jnp.zeros(()))


Loss = Callable[[Any, Rows, Array], Scalar]
"""Of parameters, some rows and a random key; a function of its own, not a closure."""


def train_network(
    loss: Loss,
    parameters: Any,
    X: Inputs,
    y: PerPoint,
    rng: np.random.Generator,
    *,
    steps: int,
    batch_size: int,
    rate: float,
) -> tuple[Any, Float[np.ndarray, " T"]]:
    """Parameters after `steps` steps of Adam on shuffled batches, and the loss at each."""
    size = min(batch_size, len(X))
    batches = shuffled(len(X), size, rng)
    key = jax.random.key(int(rng.integers(2**31)))
    parameters = jax.tree.map(jnp.asarray, parameters)
    moments = ADAM.init(parameters)
    # Padded to a few lengths: data sets of nearly one size share compiled code.
    length = padded_length(len(X))
    data = (padded(np.asarray(X), length), padded(np.asarray(y), length))
    blocks = -(-steps // BLOCK)
    fall = 0.5 * (1 + np.cos(np.pi * np.arange(blocks * BLOCK) / (blocks * BLOCK)))
    rates = (rate * (COOLING + (1 - COOLING) * fall)).reshape(blocks, BLOCK)
    losses = []
    for block in range(blocks):
        rows = np.stack([next(batches) for _ in range(BLOCK)])
        keys = jax.random.split(jax.random.fold_in(key, block), BLOCK)
        parameters, moments, values = _block(
            loss, parameters, moments, *data, rows, jnp.asarray(float(len(X))), keys, rates[block]
        )
        losses.append(np.asarray(values))
    return parameters, np.concatenate(losses)


@functools.partial(jax.jit, static_argnums=0)
def _block(
    loss: Loss,
    parameters: Any,
    moments: Any,
    X: Inputs,
    y: PerPoint,
    rows: Int[Array, "T B"],
    total: Scalar,
    keys: Array,
    rates: Float[Array, " T"],
) -> tuple[Any, Any, Float[Array, " T"]]:
    def step(state: tuple[Any, Any], this: Any) -> tuple[tuple[Any, Any], Scalar]:
        parameters, moments = state
        index, key, rate = this
        some = Rows(index, X[index], y[index], total)
        value, gradient = jax.value_and_grad(loss)(parameters, some, key)
        return apply(parameters, gradient, moments, rate), value

    (parameters, moments), values = jax.lax.scan(step, (parameters, moments), (rows, keys, rates))
    return parameters, moments, values
