"""Interfaces for user-defined processes and gates.

Subclass `ProcessPrior` and `Process` (or `GatePrior` and `Gate`), and register both classes with
`dagp.storage.register` so that they can be saved. All else uses these interfaces alone.

>>> issubclass(SparseGP, LatentFunction)
True
"""

from dagp.model.gates import Gate, GateMarginals, GatePrior
from dagp.model.gp import GPProcess
from dagp.model.noisy import NoisyFunction
from dagp.model.process import BuildContext, Components, Process, ProcessPrior
from dagp.model.sparse_gp import LatentFunction, Marginals, Projection, SparseGP
from dagp.model.variational import GaussianQ, NaturalGaussian

__all__ = [
    "BuildContext",
    "Components",
    "GPProcess",
    "Gate",
    "GateMarginals",
    "GatePrior",
    "GaussianQ",
    "LatentFunction",
    "Marginals",
    "NaturalGaussian",
    "NoisyFunction",
    "Process",
    "ProcessPrior",
    "Projection",
    "SparseGP",
]
