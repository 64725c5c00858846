"""Capabilities of a model, declared by its class and tested by `dagp reproduce capabilities`."""

from typing import NamedTuple


class Capabilities(NamedTuple):
    """Columns of the paper's qualitative comparison of models."""

    bayesian: bool = False
    """Epistemic uncertainty: the variance of the function grows away from the data."""
    scalable: bool = False
    """The cost of training is at most linear in the number of points."""
    predictive_posterior: bool = False
    """Predicts a density."""
    data_association: bool = False
    """Probability of each process for each training point: `responsibilities_`."""
    predictive_associations: bool = False
    """Probability of each process at a new input: `predict_assignment`."""
    multimodal: bool = False
    """Predicts several modes for one input."""
    separate_models: bool = False
    """One model per process: the components of `predict_mixture`."""
    interpretable_priors: bool = False
    """Priors on the functions in the units of the data: kernels."""

    def names(self) -> list[str]:
        """Names of the declared capabilities."""
        return [name for name, declared in self._asdict().items() if declared]


EVERYTHING = Capabilities(*(True for _ in Capabilities._fields))
