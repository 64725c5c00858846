"""A table with a column of every kind, for tests of tables."""

import numpy as np
import pandas as pd

from dagp import DAGP

N = 60
QUICK = {"n_init": 1, "max_iter": 300, "tol": 1e-1, "inducing": 9, "random_state": 0}
RNG = np.random.default_rng(0)
X = RNG.uniform(-2, 2, N)
MACHINE = np.array(["left", "middle", "right"])[RNG.integers(3, size=N)]
SHIFT = {"left": 0.0, "middle": 2.0, "right": -1.5}
Y = np.sin(2 * X) + [SHIFT[m] for m in MACHINE] + 0.05 * RNG.standard_normal(N)
START = np.datetime64("2026-03-01T05:00:00")
WHEN = START + (np.arange(N) * 3).astype("timedelta64[h]")
"""Every three hours, for a week."""


def fit(table, y=Y, **settings):
    return DAGP(1, **{**QUICK, **settings}).fit(table, y)


def frame(**more):
    return pd.DataFrame({"x": X, "machine": MACHINE, **more})


def mixed():
    """A column of every kind."""
    on = np.arange(N) % 3 == 0
    return frame(on=on, count=np.arange(N) % 7, when=WHEN, note=[f"note {i}" for i in range(N)])


def one_hot(levels=("left", "middle", "right")):
    return np.column_stack([X, *[(level == MACHINE).astype(float) for level in levels]])


ROLES = {"note": "ignore"}
