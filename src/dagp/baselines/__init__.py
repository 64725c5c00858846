"""Baselines of the paper as scikit-learn estimators: GPs, GP mixtures and neural networks.

They take the same data as `dagp.DAGP`; those that predict a density return the same `Mixture`.

>>> from dagp import baselines
>>> baselines.GPR.capabilities.multimodal, baselines.MDN.capabilities.multimodal
(False, True)
"""

from dagp.baselines.bnnlv import BNNLV
from dagp.baselines.choicenet import ChoiceNet
from dagp.baselines.gpr import GPR
from dagp.baselines.lgpr import LGPR
from dagp.baselines.mdn import MDN
from dagp.baselines.mlp import MLP
from dagp.baselines.omgp import OMGP
from dagp.baselines.rgpr import RGPR

__all__ = ["BNNLV", "GPR", "LGPR", "MDN", "MLP", "OMGP", "RGPR", "ChoiceNet"]
