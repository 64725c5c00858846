"""Feed-forward ReLU networks, and minibatch training by Adam with a cosine learning rate."""

import functools
import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from numbers import Integral
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from dagp.baselines.base import Baseline
from dagp.core.text import quoted
from dagp.core.typing import Array, Float, Inputs, Int, PerPoint, Scalar
from dagp.inference.minibatch import shuffled
from dagp.inference.standardize import padded, padded_length
from dagp.inference.train import STOCHASTIC_ADAM, STOCHASTIC_BLOCK, adam_step

FINAL_RATE = 0.1
"""Final relative to initial learning rate (half cosine): small late steps average out the noise."""


class Layer(NamedTuple):
    """Weights and bias of an affine layer."""

    matrix: Float[Array, "I O"]
    offset: Float[Array, " O"]


class Minibatch(NamedTuple):
    """Rows of the data: their indices, inputs and outputs, and the size of the whole data set."""

    indices: Int[Array, " B"]
    X: Inputs
    y: PerPoint
    total: Scalar


def init_network(sizes: Sequence[int], rng: np.random.Generator) -> list[Layer]:
    """Randomly initialised layers of the given sizes, inputs first (He et al. 2015)."""
    return [
        Layer(rng.standard_normal((i, o)) * np.sqrt(2 / i), np.zeros(o))
        for i, o in itertools.pairwise(sizes)
    ]


def forward(layers: Sequence[Layer], X: Inputs) -> Float[Array, "N O"]:
    """Output of a network with ReLUs after all layers but the last."""
    for layer in layers[:-1]:
        X = jax.nn.relu(X @ layer.matrix + layer.offset)
    return X @ layers[-1].matrix + layers[-1].offset


def sum_of_squares(tree: Any) -> Scalar:
    """Sum of squares of all leaves of a tree, for weight decay."""
    return sum((jnp.sum(leaf**2) for leaf in jax.tree.leaves(tree)), start=jnp.zeros(()))


Loss = Callable[[Any, Minibatch, Array], Scalar]
"""Function of parameters, minibatch and random key; hashable: the key of the compiled code."""


@dataclass(frozen=True)
class WeightDecay:
    """A loss plus `l2` times the sum of squared parameters."""

    loss: Loss
    l2: float

    def __call__(self, parameters: Any, batch: Minibatch, key: Array) -> Scalar:
        return self.loss(parameters, batch, key) + self.l2 * sum_of_squares(parameters)


class NetworkBaseline(Baseline):
    """Base class of networks trained on minibatches with weight decay."""

    hidden: tuple[int, ...]
    l2: float
    steps: int
    batch_size: int
    learning_rate: float
    losses_: Float[np.ndarray, " T"]

    def _hidden_sizes(self) -> tuple[int, ...]:
        """Sizes of the hidden layers; an error unless they are positive whole numbers."""
        sizes = tuple(self.hidden) if isinstance(self.hidden, Sequence) else ()
        if not sizes or not all(isinstance(size, Integral) and int(size) >= 1 for size in sizes):
            found = f"got {quoted(self.hidden)}"
            raise ValueError(f"hidden must be a sequence of positive layer sizes, {found}.")
        return sizes

    def _train(
        self, loss: Loss, parameters: Any, X: Inputs, y: PerPoint, rng: np.random.Generator
    ) -> tuple[Any, Float[np.ndarray, " T"]]:
        """See `train_network`."""
        settings = {"steps": self.steps, "batch_size": self.batch_size, "rate": self.learning_rate}
        return train_network(WeightDecay(loss, self.l2), parameters, X, y, rng, **settings)


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
    """Train by `steps` steps of Adam on shuffled minibatches; returns parameters and losses."""
    size = min(batch_size, len(X))
    batches = shuffled(len(X), size, rng)
    key = jax.random.key(int(rng.integers(2**31)))
    parameters = jax.tree.map(jnp.asarray, parameters)
    state = parameters, STOCHASTIC_ADAM.init(parameters)
    # Padded to a few lengths, so that data sets of similar size share compiled code.
    length = padded_length(len(X))
    total = jnp.asarray(float(len(X)))
    data = (padded(np.asarray(X), length), padded(np.asarray(y), length), total)
    blocks = -(-steps // STOCHASTIC_BLOCK)
    total_steps = blocks * STOCHASTIC_BLOCK
    cosine = 0.5 * (1 + np.cos(np.pi * np.arange(total_steps) / total_steps))
    rates = (rate * (FINAL_RATE + (1 - FINAL_RATE) * cosine)).reshape(blocks, STOCHASTIC_BLOCK)
    losses = []
    for block in range(blocks):
        rows = np.stack([next(batches) for _ in range(STOCHASTIC_BLOCK)])
        keys = jax.random.split(jax.random.fold_in(key, block), STOCHASTIC_BLOCK)
        state, values = _block(loss, state, data, (rows, keys, rates[block]))
        losses.append(np.asarray(values))
    # As NumPy arrays: from a pickle, JAX reads its own in the precision of the user's session.
    return jax.tree.map(np.asarray, state[0]), np.concatenate(losses)


@functools.partial(jax.jit, static_argnums=0)
def _block(
    loss: Loss, state: Any, data: tuple[Inputs, PerPoint, Scalar], per_step: Any
) -> tuple[Any, Float[Array, " T"]]:
    """A block of steps on parameters and optimiser state, given rows, key and rate of each step."""
    X, y, total = data

    def step(state: Any, per_step: Any) -> tuple[Any, Scalar]:
        (parameters, opt_state), (rows, key, rate) = state, per_step
        batch = Minibatch(rows, X[rows], y[rows], total)
        value, gradient = jax.value_and_grad(loss)(parameters, batch, key)
        return adam_step(parameters, gradient, opt_state, rate, adam=STOCHASTIC_ADAM), value

    return jax.lax.scan(step, state, per_step)
