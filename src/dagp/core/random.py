"""Conversion of the `random_state` argument."""

import numpy as np
from sklearn.utils import check_random_state

from dagp.core.text import quoted
from dagp.core.typing import RandomState


def as_random_state(random_state: RandomState) -> np.random.RandomState:
    """A RandomState from a seed, None, or NumPy's old or new generators.

    A generator is shared, not copied: drawing advances it.

    >>> generator = np.random.default_rng(0)
    >>> as_random_state(generator).uniform() == as_random_state(generator).uniform()
    False
    """
    if isinstance(random_state, np.random.Generator):
        # check_random_state rejects the new generators.
        return np.random.RandomState(random_state.bit_generator)
    try:
        return check_random_state(random_state)
    except ValueError as error:
        # NumPy does not say which setting it is, nor what it got.
        expected = "an int from 0 to 2**32 - 1, a generator of NumPy or None"
        raise ValueError(f"random_state must be {expected}, got {quoted(random_state)}.") from error
