"""What a model can do, declared by its class and demonstrated by `dagp reproduce capabilities`."""

from typing import NamedTuple

__all__ = ["Capabilities"]


class Capabilities(NamedTuple):
    """The questions of the paper's qualitative table.

    >>> Capabilities(bayesian=True).names()
    ['bayesian']
    """

    bayesian: bool = False
    """Knows how little it knows: more uncertain about its function away from the data."""
    scalable: bool = False
    """The cost of training grows no faster than the number of points."""
    predictive_posterior: bool = False
    """Predicts a density."""
    data_association: bool = False
    """Says which process produced each training point: `responsibilities_`."""
    predictive_associations: bool = False
    """Says how probable each process is at a new input: `predict_assignment`."""
    multimodal: bool = False
    """Predicts several outcomes for one input."""
    separate_models: bool = False
    """Has a model of each process on its own: the components of `predict_mixture`."""
    interpretable_priors: bool = False
    """Takes knowledge about the functions, stated in the units of the data: kernels."""

    def names(self) -> list[str]:
        """What is declared."""
        return [name for name, declared in self._asdict().items() if declared]
