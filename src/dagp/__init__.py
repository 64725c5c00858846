"""Data association with Gaussian processes."""

import importlib
from typing import TYPE_CHECKING

from dagp import datasets, kernels, means
from dagp.clutter import Noise, Uniform
from dagp.concrete import Concrete
from dagp.deep import DeepGP
from dagp.errors import FitError, SearchWarning
from dagp.estimator import DAGP
from dagp.mixture import Mixture
from dagp.parameters import Gamma, HalfCauchy, LogNormal, fixed, parameter
from dagp.processes import GP
from dagp.version import __version__

if TYPE_CHECKING:
    from dagp import plot

__all__ = [
    "DAGP",
    "GP",
    "Concrete",
    "DeepGP",
    "FitError",
    "Gamma",
    "HalfCauchy",
    "LogNormal",
    "Mixture",
    "Noise",
    "SearchWarning",
    "Uniform",
    "__version__",
    "datasets",
    "fixed",
    "kernels",
    "means",
    "parameter",
    "plot",
]


def __getattr__(name: str) -> object:
    # Plots need matplotlib, which is optional and slow to import.
    if name == "plot":
        return importlib.import_module("dagp.plot")
    raise AttributeError(f"module 'dagp' has no attribute {name!r}")
