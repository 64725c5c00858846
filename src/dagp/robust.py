"""`RobustGPR`: Gaussian process regression for data of which some readings are wrong."""

from dataclasses import KW_ONLY, dataclass
from typing import Any, Literal, Self, overload

import numpy as np
from sklearn.base import BaseEstimator, RegressorMixin
from sklearn.utils import Tags
from sklearn.utils.validation import check_is_fitted

from dagp.core.typing import Bool, Float, RandomState, Table
from dagp.estimator import DAGP
from dagp.model.clutter import Noise
from dagp.model.gp import GP
from dagp.model.kernel import Kernel
from dagp.model.kernels import Matern32, Matern52
from dagp.model.noise_shapes import NoiseName
from dagp.predict.density import Density
from dagp.predict.mixture import Mixture

__all__ = ["RobustGPR"]


@dataclass(eq=False, repr=False)
class RobustGPR(Density, RegressorMixin, BaseEstimator):
    """Gaussian process regression that finds and ignores wrong readings.

    In place of scikit-learn's ``GaussianProcessRegressor``, where some outputs may be far off: a
    `DAGP` with one function and clutter that is uniform over the range of the outputs. Predictions
    are those of the function. Where nothing is wrong, it is GP regression: the ELBO decides, and
    where outliers do not look like such clutter, cross-validation.

    Parameters
    ----------
    kernel : Kernel, default=None
        Kernel in the units of the data; None is the sum of a Matérn-5/2 and a Matérn-3/2 kernel,
        each with one length scale per input: a smooth function with rough details.
    noise : {"gaussian", "student", "laplace"}, default="gaussian"
        Shape of the noise of good readings; heavy tails are for data in which all readings have
        errors of very different sizes, and use inducing points.
    noise_std : float, array-like or Parameter, default=None
        Initial standard deviation of the noise of good readings; ``fixed(...)`` holds it.
    gate : GP, "constant" or None, default="constant"
        Where readings are wrong: equally likely everywhere, or, with a GP or None, more likely for
        some inputs than for others.
    inducing : "auto", int or array-like of shape (M, D), default="auto"
        Number of inducing points, or their positions. ``"auto"`` is exact inference up to 1000
        rows with several inputs, and otherwise as in `DAGP`.
    n_init : int, default=4
        Number of starts of the search for wrong readings.
    max_iter : int, default=1000
        Most steps of the final training.
    tol : float, default=1e-4
        Training converges when a round of steps gains less than this per data point.
    missing : {"raise", "drop"}, default="raise"
        Treatment of NaN; see `DAGP`.
    columns : dict, default=None
        Roles of columns; see `DAGP`.
    random_state : int, Generator, RandomState or None, default=None
        Seed; the same seed gives identical results.

    Attributes
    ----------
    outliers_ : ndarray of bool of shape (N,)
        Whether each reading is more likely wrong than right.
    outlier_probability_ : ndarray of shape (N,)
        Probability that each reading is wrong; NaN for dropped rows.
    kernel_ : Kernel
        Fitted kernel in the units of the data.
    noise_std_ : ndarray of shape (P,)
        Standard deviation of a good reading around the function.
    lower_bound_ : float
        ELBO of the fit, in place of a log marginal likelihood.
    model_ : DAGP
        The fitted model, for its summary, files, plots and report.

    Examples
    --------
    >>> import numpy as np
    >>> X = np.linspace(0, 6, 60)[:, None]
    >>> y = np.sin(X[:, 0])
    >>> y[[7, 30]] += 3
    >>> model = RobustGPR(random_state=0).fit(X, y)
    >>> np.flatnonzero(model.outliers_)
    array([ 7, 30])
    >>> bool(abs(model.predict([[3.0]])[0] - np.sin(3.0)) < 0.01)
    True
    """

    kernel: Kernel | None = None
    _: KW_ONLY
    noise: NoiseName = "gaussian"
    noise_std: Any = None
    gate: Any = "constant"
    inducing: Any = "auto"
    n_init: int = 4
    max_iter: int = 1000
    tol: float = 1e-4
    missing: str = "raise"
    columns: Any = None
    random_state: RandomState = None

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.target_tags.multi_output = True
        tags.input_tags.allow_nan = self.missing == "drop"
        return tags

    def fit(self, X: Table, y: Table, sample_weight: Any = None) -> Self:
        """Fit the function, and find the readings that are wrong.

        Parameters
        ----------
        X : array-like of shape (N, D)
        y : array-like of shape (N,) or (N, P)
            With several outputs, a wrong row is wrong in all of them.
        sample_weight : array-like of shape (N,), default=None
        """
        kernel = Matern52() + Matern32() if self.kernel is None else self.kernel
        settings = self.get_params(deep=False)
        for name in ("kernel", "noise", "noise_std"):
            del settings[name]
        several = np.ndim(X) == 2 and np.shape(X)[1] > 1
        if isinstance(self.inducing, str) and self.inducing == "auto" and several:
            settings["inducing"] = "all"
        # Uniform: a wrong reading may be anywhere in the range, and clutter that adapts its width
        # would take good readings with somewhat larger errors than the others.
        signal = GP(kernel, noise=self.noise, noise_std=self.noise_std)
        processes = [signal, Noise(shape="uniform")]
        self.model_: DAGP = DAGP(2, processes, **settings).fit(X, y, sample_weight)
        for name in ("n_features_in_", "feature_names_in_", "n_iter_", "lower_bound_"):
            if hasattr(self.model_, name):
                setattr(self, name, getattr(self.model_, name))
        self.outlier_probability_: Float[np.ndarray, " N"] = self.model_.responsibilities_[:, 1]
        self.outliers_: Bool[np.ndarray, " N"] = self.outlier_probability_ > 0.5
        fitted = self.model_.processes_[0]
        self.kernel_, self.noise_std_ = fitted.kernel_, fitted.noise_std_
        return self

    @overload
    def predict(
        self, X: Table, return_std: Literal[False] = False, return_cov: Literal[False] = False
    ) -> np.ndarray: ...
    @overload
    def predict(
        self, X: Table, return_std: bool = False, return_cov: bool = False
    ) -> np.ndarray | tuple[np.ndarray, np.ndarray]: ...
    def predict(self, X: Table, return_std: bool = False, return_cov: bool = False) -> Any:
        """Mean of the function and, if requested, its standard deviation or joint covariance.

        Parameters
        ----------
        X : array-like of shape (N, D)
        return_std : bool, default=False
            Whether to return the standard deviation of the function, (N,) or (N, P), without the
            noise of a reading, `noise_std_`.
        return_cov : bool, default=False
            Whether to return the covariance (N, N), or (N, N, P), instead.
        """
        check_is_fitted(self)
        if return_std and return_cov:
            raise ValueError("At most one of return_std and return_cov can be requested.")
        signal = self.model_.processes_[0]
        if return_cov:
            return signal.predict(X), signal.covariance(X)
        return signal.predict(X, return_std)

    def predict_mixture(self, X: Table, noise: bool = True) -> Mixture:
        """Density of a good reading; without `noise`, of the function."""
        check_is_fitted(self)
        return self.model_.predict_mixture(X, noise).marginal(0)

    def sample_y(self, X: Table, n_samples: int = 1, random_state: RandomState = 0) -> np.ndarray:
        """Joint draws of the function, (N, n_samples) or (N, P, n_samples).

        Parameters
        ----------
        X : array-like of shape (N, D)
        n_samples : int, default=1
        random_state : int, Generator, RandomState or None, default=0
        """
        check_is_fitted(self)
        draws = self.model_.processes_[0].sample_y(X, n_samples, random_state)
        return np.moveaxis(draws, 0, -1)
