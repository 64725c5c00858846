"""Mean functions of the Gaussian process priors, in the user's units."""

from dagp.model.means import Constant, Identity, Linear, Mean, Projection, Zero

__all__ = ["Constant", "Identity", "Linear", "Mean", "Projection", "Zero"]
