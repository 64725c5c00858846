"""Simulated data sets with known assignments: those of the paper, and harder ones.

Each function returns a scikit-learn ``Bunch``: training data ``X``, ``y``, the ``process`` of each
row, and, unless stated otherwise, the noise-free functions on a regular grid, ``X_test`` and
``y_test`` of shape (n_test, K), NaN where a process is absent. The harder ones also mark in
``separable`` the rows that can be assigned given the true functions and noise. Arguments of all:
the standard deviation ``noise``, the numbers ``n`` of training rows and ``n_test`` of test inputs,
and ``random_state``, a seed or random generator.
"""

from dagp.datasets.corrupted import corrupt, friedman, neal
from dagp.datasets.harder import crossings, heteroscedastic, rare, steps, switch, trajectories
from dagp.datasets.paper import CartPole, cartpole, multimodal, noise_separation
from dagp.datasets.surfaces import sheets
from dagp.datasets.turbine import turbine
from dagp.datasets.wetchicken import WetChicken, wet_chicken

__all__ = [
    "CartPole",
    "WetChicken",
    "cartpole",
    "corrupt",
    "crossings",
    "friedman",
    "heteroscedastic",
    "multimodal",
    "neal",
    "noise_separation",
    "rare",
    "sheets",
    "steps",
    "switch",
    "trajectories",
    "turbine",
    "wet_chicken",
]
