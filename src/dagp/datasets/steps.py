"""A function that one smooth GP cannot follow: levels with jumps between them."""

import numpy as np
from sklearn.utils import Bunch

from dagp.datasets.harder import check_noise, check_sizes, check_whole
from dagp.seeds import random_source
from dagp.typing import RandomState

__all__ = ["steps"]


def steps(
    jumps: int = 3,
    noise: float = 0.05,
    n: int = 200,
    n_test: int = 1000,
    random_state: RandomState = None,
) -> Bunch:
    """Constant levels on [-1, 1], with some jumps of about one in between.

    A composition of smooth functions does this easily (bend the input first), a single one with
    one length scale does not. The places of the jumps are kept in ``jumps``; ``process`` is zero
    everywhere; ``y_test`` is noisy, like ``y``, and ``f_test`` is not.

    >>> data = steps(jumps=2, random_state=0)
    >>> len(np.unique(data.f_test))
    3
    """
    check_whole("jumps", jumps, 1)
    check_noise(noise)
    check_sizes(n, n_test)
    rng = random_source(random_state)
    width = 2 / (jumps + 1)
    places = -1 + width * (1 + np.arange(jumps) + rng.uniform(-0.3, 0.3, jumps))
    heights = rng.choice([-1, 1], jumps) * rng.uniform(0.7, 1.3, jumps)
    levels = np.concatenate([[0.0], np.cumsum(heights)])
    x, x_test = rng.uniform(-1, 1, n), rng.uniform(-1, 1, n_test)
    f, f_test = (levels[np.searchsorted(places, at)] for at in (x, x_test))
    return Bunch(
        X=x[:, None],
        y=f + noise * rng.standard_normal(n),
        process=np.zeros(n, int),
        X_test=x_test[:, None],
        y_test=f_test + noise * rng.standard_normal(n_test),
        f_test=f_test,
        jumps=places,
    )
