"""Data association with Gaussian processes."""

import importlib
from types import ModuleType
from typing import TYPE_CHECKING

from dagp.garbage import uncollected
from dagp.version import __version__

if TYPE_CHECKING:
    from dagp import datasets, kernels, means, plot
    from dagp.clutter import Noise, Uniform
    from dagp.concrete import Concrete
    from dagp.deep import DeepGP
    from dagp.errors import FitError, SearchWarning
    from dagp.estimator import DAGP
    from dagp.mixture import Mixture
    from dagp.parameters import Gamma, HalfCauchy, LogNormal, fixed, parameter
    from dagp.processes import GP

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

# Where each name lives. JAX, scikit-learn and matplotlib take seconds to import: a name is
# fetched when somebody asks for it, so that `dagp --help` need not wait for them.
_HOMES = {
    "DAGP": "estimator",
    "GP": "processes",
    "Concrete": "concrete",
    "DeepGP": "deep",
    "FitError": "errors",
    "Gamma": "parameters",
    "HalfCauchy": "parameters",
    "LogNormal": "parameters",
    "Mixture": "mixture",
    "Noise": "clutter",
    "SearchWarning": "errors",
    "Uniform": "clutter",
    "fixed": "parameters",
    "parameter": "parameters",
}
_MODULES = ("datasets", "kernels", "means", "plot")


def __getattr__(name: str) -> object:
    if name in _MODULES:
        return _module(name)
    if name not in _HOMES:
        raise AttributeError(f"module 'dagp' has no attribute {name!r}")
    value = getattr(_module(_HOMES[name]), name)
    globals()[name] = value
    return value


@uncollected()
def _module(name: str) -> ModuleType:
    return importlib.import_module(f"dagp.{name}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
