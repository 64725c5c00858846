"""Usage: share of the data of each process, and which processes are in use."""

import numpy as np

from dagp.core.typing import Bool, Float

UNUSED = 0.01
"""A process that accounts for less than this share of the data is not in use."""


def shares_of_data(
    responsibilities: Float[np.ndarray, "N K"], weight: Float[np.ndarray, " N"]
) -> Float[np.ndarray, " K"]:
    """Share of the data that each process accounts for."""
    return weight @ responsibilities / weight.sum()


def in_use(shares: Float[np.ndarray, " K"]) -> Bool[np.ndarray, " K"]:
    """Which processes are in use, by their shares of the data."""
    return shares >= UNUSED
