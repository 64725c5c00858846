"""A plain feed-forward network."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from dagp.baselines.base import Baseline
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
from dagp.typing import Array, Float, Inputs, PerPoint, RandomState, Scalar

__all__ = ["MLP"]


@dataclass(frozen=True)
class _SquaredError:
    """Mean squared error with weight decay."""

    l2: float

    def __call__(self, layers: list[Layer], rows: Rows, key: Array) -> Scalar:
        error = forward(layers, rows.X)[:, 0] - rows.y
        return (error**2).mean() + self.l2 * squares(layers)


class MLP(Trained, Baseline):
    """ReLU network trained on the squared error: what a regression does that knows no mixtures.

    Parameters
    ----------
    hidden : sizes of the hidden layers
    l2 : weight of the sum of squared parameters beside the mean squared error
    steps, batch_size, learning_rate : of Adam; the rate falls along a half cosine
    random_state : seed

    >>> import numpy as np
    >>> X = np.linspace(-1, 1, 100)[:, None]
    >>> model = MLP(steps=500, random_state=0).fit(X, np.abs(X[:, 0]))
    >>> bool(abs(model.predict([[0.5]])[0] - 0.5) < 0.05)
    True
    """

    layers_: list[Layer]
    losses_: Float[np.ndarray, " T"]
    capabilities: ClassVar[Capabilities] = Capabilities(scalable=True)

    def __init__(
        self,
        hidden: tuple[int, ...] = (64, 64),
        *,
        l2: float = 1e-5,
        steps: int = 3000,
        batch_size: int = 256,
        learning_rate: float = 3e-3,
        random_state: RandomState = None,
    ):
        self.hidden = hidden
        self.l2 = l2
        self.steps = steps
        self.batch_size = batch_size
        self.learning_rate = learning_rate
        self.random_state = random_state

    def _settings(self) -> Mapping[str, tuple[Any, type, float]]:
        return self._of_training()

    def _learn(self, X: Inputs, y: PerPoint, rng: np.random.Generator) -> None:
        layers = network([X.shape[1], *check_hidden(self.hidden), 1], rng)
        self.layers_, self.losses_ = self._train_on(_SquaredError(self.l2), layers, X, y, rng)

    def _means(self, X: Inputs) -> PerPoint:
        return forward(self.layers_, X)[:, 0]
