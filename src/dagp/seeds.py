"""Where randomness comes from: whatever a user hands in as `random_state`."""

import numpy as np
from sklearn.utils import check_random_state

from dagp.typing import RandomState

__all__ = ["random_source"]


def random_source(random_state: RandomState) -> np.random.RandomState:
    """A source of random numbers from a seed, None, or NumPy's old or new generators.

    A generator is drawn from, not copied: it has moved on afterwards.

    >>> generator = np.random.default_rng(0)
    >>> random_source(generator).uniform() == random_source(np.random.default_rng(0)).uniform()
    True
    >>> random_source(generator).uniform() == random_source(np.random.default_rng(0)).uniform()
    False
    """
    if isinstance(random_state, np.random.Generator):
        # scikit-learn's own check refuses these.
        return np.random.RandomState(random_state.bit_generator)
    return check_random_state(random_state)
