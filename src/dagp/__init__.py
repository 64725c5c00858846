"""Data association with Gaussian processes."""

import importlib
from types import ModuleType
from typing import TYPE_CHECKING

from dagp.core.gc import gc_paused
from dagp.core.imports import deferred_imports
from dagp.core.version import __version__

if TYPE_CHECKING:
    from dagp import datasets, dynamics, kernels, means, plot
    from dagp.core.errors import FitError, SearchWarning, StorageError
    from dagp.core.program_files import clear_cache
    from dagp.estimator import DAGP
    from dagp.inference.concrete import Concrete
    from dagp.model.clutter import Noise, Uniform
    from dagp.model.deep import DeepGP
    from dagp.model.gp import GP
    from dagp.model.parameters import Gamma, HalfCauchy, LogNormal, fixed, parameter
    from dagp.predict.mixture import Mixture
    from dagp.robust import RobustGPR

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
    "RobustGPR",
    "SearchWarning",
    "StorageError",
    "Uniform",
    "__version__",
    "clear_cache",
    "datasets",
    "dynamics",
    "fixed",
    "kernels",
    "means",
    "parameter",
    "plot",
]

# Module of each name, imported on first access: JAX and scikit-learn take seconds to import.
_HOMES = {
    "DAGP": "estimator",
    "GP": "model.gp",
    "Concrete": "inference.concrete",
    "DeepGP": "model.deep",
    "Mixture": "predict.mixture",
    "RobustGPR": "robust",
    "clear_cache": "core.program_files",
    **dict.fromkeys(("FitError", "SearchWarning", "StorageError"), "core.errors"),
    **dict.fromkeys(("Noise", "Uniform"), "model.clutter"),
    **dict.fromkeys(("Gamma", "HalfCauchy", "LogNormal", "fixed", "parameter"), "model.parameters"),
}
_MODULES = ("datasets", "dynamics", "kernels", "means", "plot")


def __getattr__(name: str) -> object:
    if name in _MODULES:
        return _module(name)
    if name not in _HOMES:
        raise AttributeError(f"module 'dagp' has no attribute {name!r}")
    value = getattr(_module(_HOMES[name]), name)
    globals()[name] = value
    return value


@gc_paused()
@deferred_imports()
def _module(name: str) -> ModuleType:
    return importlib.import_module(f"dagp.{name}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
