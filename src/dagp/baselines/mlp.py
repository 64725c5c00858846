"""Multilayer perceptron: feed-forward ReLU network trained on the squared error."""

from dataclasses import KW_ONLY, dataclass

import numpy as np

from dagp.baselines.base import setting
from dagp.baselines.capabilities import Capabilities
from dagp.baselines.network import Layer, Minibatch, NetworkBaseline, forward, init_network
from dagp.core.typing import Array, Inputs, PerPoint, RandomState, Scalar


def squared_error(layers: list[Layer], batch: Minibatch, key: Array) -> Scalar:
    """Mean squared error."""
    return ((forward(layers, batch.X)[:, 0] - batch.y) ** 2).mean()


@dataclass(eq=False, repr=False)
class MLP(NetworkBaseline):
    """Multilayer perceptron trained on the squared error: regression to the conditional mean.

    Parameters
    ----------
    hidden : tuple of int, default=(64, 64)
        Sizes of the hidden layers.
    l2 : float, default=1e-5
        Weight decay: factor of the sum of squared parameters in the loss.
    steps : int, default=3000
        Number of Adam steps, rounded up to a multiple of 25.
    batch_size : int, default=256
        Rows per step.
    learning_rate : float, default=3e-3
        Initial learning rate of a cosine schedule.
    random_state : int, RandomState, Generator or None, default=None
        Seed.

    Attributes
    ----------
    layers_ : list of Layer
        Weights and biases, in standardised units.
    losses_ : ndarray of shape (steps,)
        Loss at each step.

    Examples
    --------
    >>> import numpy as np
    >>> X = np.linspace(-1, 1, 100)[:, None]
    >>> model = MLP(steps=500, random_state=0).fit(X, np.abs(X[:, 0]))
    >>> bool(abs(model.predict([[0.5]])[0] - 0.5) < 0.05)
    True
    """

    hidden: tuple[int, ...] = (64, 64)
    _: KW_ONLY
    l2: float = setting(1e-5, least=0.0)
    steps: int = setting(3000, least=1)
    batch_size: int = setting(256, least=1)
    learning_rate: float = setting(3e-3, least=0.0)
    random_state: RandomState = None

    capabilities = Capabilities(scalable=True)

    def _learn(self, X: Inputs, y: PerPoint, rng: np.random.Generator) -> None:
        layers = init_network([X.shape[1], *self._hidden_sizes(), 1], rng)
        self.layers_, self.losses_ = self._train(squared_error, layers, X, y, rng)

    def _means(self, X: Inputs) -> PerPoint:
        return forward(self.layers_, X)[:, 0]
