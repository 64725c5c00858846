"""Gaussian process regression: the model everybody compares with."""

from typing import Any, ClassVar, Self

from sklearn.base import BaseEstimator, RegressorMixin
from sklearn.utils import Tags
from sklearn.utils.validation import check_is_fitted

from dagp.capabilities import Capabilities
from dagp.density import Density
from dagp.estimator import DAGP
from dagp.kernels import Kernel
from dagp.mixture import Mixture
from dagp.processes import GP
from dagp.typing import RandomState, Table

__all__ = ["GPR"]


class GPR(Density, RegressorMixin, BaseEstimator):
    """Sparse variational GP regression (Titsias 2009): `DAGP` with a single process.

    Parameters
    ----------
    kernel : a kernel in the units of the data; squared exponential if left out
    inducing : number of inducing points; chosen from the data if left out
    max_iter, tol : most training steps; gain per point below which training ends
    batch_size : rows per step; None uses all
    random_state : seed

    >>> import numpy as np
    >>> X = np.linspace(0, 6, 50)[:, None]
    >>> model = GPR(random_state=0).fit(X, np.sin(X[:, 0]))
    >>> bool(abs(model.predict([[2.0]])[0] - np.sin(2.0)) < 0.01)
    True
    """

    capabilities: ClassVar[Capabilities] = Capabilities(
        bayesian=True, scalable=True, predictive_posterior=True, interpretable_priors=True
    )

    def __init__(
        self,
        kernel: Kernel | None = None,
        *,
        inducing: Any = None,
        max_iter: int = 1000,
        tol: float = 1e-4,
        batch_size: int | None = None,
        random_state: RandomState = None,
    ):
        self.kernel = kernel
        self.inducing = inducing
        self.max_iter = max_iter
        self.tol = tol
        self.batch_size = batch_size
        self.random_state = random_state

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.target_tags.multi_output = True
        return tags

    def fit(self, X: Table, y: Table) -> Self:
        """Learn from inputs (N, D) and outputs (N,)."""
        self.model_: DAGP = DAGP(
            1,
            GP(self.kernel),
            inducing=self.inducing,
            max_iter=self.max_iter,
            tol=self.tol,
            batch_size=self.batch_size,
            random_state=self.random_state,
        ).fit(X, y)
        for name in ("n_features_in_", "feature_names_in_"):
            if hasattr(self.model_, name):
                setattr(self, name, getattr(self.model_, name))
        return self

    def predict(self, X: Table, return_std: bool = False) -> Any:
        """The expected output at each row of `X`, and its standard deviation on request."""
        check_is_fitted(self)
        return self.model_.predict(X, return_std)

    def predict_mixture(self, X: Table, noise: bool = True) -> Mixture:
        check_is_fitted(self)
        return self.model_.predict_mixture(X, noise)
