"""Sparse variational Gaussian process regression (Titsias 2009)."""

from dataclasses import KW_ONLY, dataclass
from typing import Any, Literal, Self, overload

import numpy as np
from sklearn.base import BaseEstimator, RegressorMixin
from sklearn.utils import Tags
from sklearn.utils.validation import check_is_fitted

from dagp.baselines.capabilities import Capabilities
from dagp.core.typing import RandomState, Table
from dagp.estimator import DAGP
from dagp.model.gp import GP
from dagp.model.kernel import Kernel
from dagp.predict.density import Density
from dagp.predict.mixture import Mixture


@dataclass(eq=False, repr=False)
class GPR(Density, RegressorMixin, BaseEstimator):
    """Sparse variational GP regression (Titsias 2009): `DAGP` with a single process.

    Parameters
    ----------
    kernel : Kernel or None, default=None
        Kernel in the units of the data; squared exponential if None.
    inducing : int, array of shape (M, D) or None, default=None
        Number of inducing points or their positions; chosen from the data if None.
    max_iter : int, default=1000
        Maximum number of steps of the final training.
    tol : float, default=1e-4
        Training ends when a block of steps gains less than this per data point.
    batch_size : int or None, default=None
        Rows per training step; all if None.
    random_state : int, RandomState, Generator or None, default=None
        Seed.

    Attributes
    ----------
    model_ : DAGP
        The fitted model with one process.
    n_iter_ : int
        Number of training steps, those of the search included.

    Examples
    --------
    >>> import numpy as np
    >>> X = np.linspace(0, 6, 50)[:, None]
    >>> model = GPR(random_state=0).fit(X, np.sin(X[:, 0]))
    >>> bool(abs(model.predict([[2.0]])[0] - np.sin(2.0)) < 0.01)
    True
    """

    kernel: Kernel | None = None
    _: KW_ONLY
    inducing: Any = None
    max_iter: int = 1000
    tol: float = 1e-4
    batch_size: int | None = None
    random_state: RandomState = None

    capabilities = Capabilities(
        bayesian=True, scalable=True, predictive_posterior=True, interpretable_priors=True
    )

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.target_tags.multi_output = True
        return tags

    def fit(self, X: Table, y: Table) -> Self:
        """Fit the model to inputs of shape (N, D) and outputs of shape (N,) or (N, P)."""
        settings = self.get_params(deep=False)
        self.model_: DAGP = DAGP(1, GP(settings.pop("kernel")), **settings).fit(X, y)
        for name in ("n_features_in_", "feature_names_in_", "n_iter_"):
            if hasattr(self.model_, name):
                setattr(self, name, getattr(self.model_, name))
        return self

    @overload
    def predict(self, X: Table, return_std: Literal[False] = False) -> np.ndarray: ...
    @overload
    def predict(self, X: Table, return_std: Literal[True]) -> tuple[np.ndarray, np.ndarray]: ...
    @overload
    def predict(self, X: Table, return_std: bool) -> Any: ...
    def predict(self, X: Table, return_std: bool = False) -> Any:
        """Predictive mean and, if requested, standard deviation, of shape (N,) or (N, P)."""
        check_is_fitted(self)
        return self.model_.predict(X, return_std)

    def predict_mixture(self, X: Table, noise: bool = True) -> Mixture:
        check_is_fitted(self)
        return self.model_.predict_mixture(X, noise)
