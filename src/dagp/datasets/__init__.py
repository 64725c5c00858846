"""Data sets with the truth about every point: those of the paper, and harder ones.

Each function returns a scikit-learn ``Bunch``: training data ``X``, ``y``, the process that
produced each point in ``process``, and a test set. The harder ones also say in ``separable`` which
points somebody who knows the functions and the noise could assign.
"""

from dagp.datasets.harder import crossings, heteroscedastic, rare, sheets, switch, trajectories
from dagp.datasets.paper import cartpole, multimodal, noise_separation
from dagp.datasets.steps import steps

__all__ = [
    "cartpole",
    "crossings",
    "heteroscedastic",
    "multimodal",
    "noise_separation",
    "rare",
    "sheets",
    "steps",
    "switch",
    "trajectories",
]
