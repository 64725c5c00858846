"""`DAGP`, the estimator: a scikit-learn regressor for data association with Gaussian processes."""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Self

import numpy as np
from sklearn.base import BaseEstimator, RegressorMixin
from sklearn.utils import Tags
from sklearn.utils.validation import check_is_fitted

from dagp.core.typing import Bool, Float, Int, RandomState, Table
from dagp.describe import export, summary
from dagp.describe.explain import Explanation, explain, outliers
from dagp.files.modelfile import discard_checkpoint
from dagp.files.stored import Stored
from dagp.fitting import fit_estimator, update_estimator
from dagp.inference.concrete import Concrete
from dagp.inference.stream import Stream
from dagp.inference.train import Progress
from dagp.model.gates import GatePrior
from dagp.model.process import ProcessPrior
from dagp.predict.posterior import Posterior
from dagp.predict.process import FittedProcess
from dagp.predictions import Predictions
from dagp.tables.columns import Columns

if TYPE_CHECKING:
    import xarray

__all__ = ["DAGP"]


class DAGP(Predictions, Stored, RegressorMixin, BaseEstimator):
    """Data association with Gaussian processes.

    Infers from inputs and outputs alone which process produced each observation, the function and
    noise of each process, and the probability of each process at an input.

    Parameters
    ----------
    n_processes : int or "auto", default=2
        Number of processes; superfluous ones stay unused (see `active_`). ``"auto"`` counts
        them, up to six or the length of `processes`, and removes superfluous ones.
    processes : sequence of priors, prior or None, default=None
        A list such as ``[GP(), Noise()]``, or one prior to be repeated `n_processes` times; None
        is ``GP()``.
    gate : GP, DeepGP, other GatePrior, "constant" or None, default=None
        Prior of the gate: None is a GP with squared exponential kernel, ``"constant"`` has mixing
        weights that do not depend on the input.
    inducing : "auto", "all", int or array-like of shape (M, D), default="auto"
        Number of inducing points, or their positions. ``"auto"``, or None, begins with 32, or 100
        with several inputs, and doubles them where they leave too much of a function unexplained;
        up to 1000 rows it uses all inputs then. ``"all"`` does so in any case (exact inference).
    inference : {"collapsed", "concrete"} or Concrete, default="collapsed"
        ``"collapsed"`` sums the assignments out of the ELBO; ``"concrete"`` is the paper's scheme,
        with sampled relaxed assignments, whose settings are a `Concrete`.
    posterior : {"best", "averaged"}, default="best"
        ``"best"`` takes the best association and its hyperparameters as known; ``"averaged"``
        averages over other associations that are almost as probable (`association_weights_`), and
        functions over uncertain hyperparameters, with a vague prior where they have none: bands are
        wider, and fits take 1.2 to 2 times as long. Fits in minibatches or with more than 200
        inducing points, and functions or gates of several layers, have the best ones, and a
        warning says so; so do updates by `partial_fit`, without one.
    n_init : int, default=8
        Number of starts of a round; up to three rounds follow until one is found again.
    max_iter : int, default=1000
        Most steps of the final training.
    tol : float, default=1e-4
        Training converges when a block of steps gains less than this per data point.
    batch_size : int, default=None
        Rows per minibatch, with the search on a subsample; None is 1000 above 20 000 rows, or all.
    standardize : bool, default=True
        Whether to standardise columns; parameters and results are in the user's units either way.
    dtype : {"float64", "float32"}, default="float64"
        Precision of the computation.
    missing : {"raise", "drop"}, default="raise"
        Treatment of NaN: an error, or leave out rows without all inputs and any output. With
        several outputs, missing ones leave the others of their row in use.
    columns : dict, default=None
        Roles of columns, by name or position: ``"number"``, ``"category"``, ``"ignore"``, or for
        times ``"time"``, a unit such as ``"days"``, a period (``"daily"``, ``"weekly"``,
        ``"yearly"``), or several, such as ``"days+daily"``. The others are taken by their types.
    random_state : int, Generator, RandomState or None, default=None
        Seed; the same seed gives identical results.
    warm_start : bool, default=False
        Whether `fit` continues from the previous solution instead of new starts.
    verbose : int, default=0
        1 shows the lines that the logger ``dagp`` gets for every start and block.
    progress : bool, default=False
        Whether to show a bar, in terminals (with rich) and notebooks; elsewhere, sparse lines.
    callbacks : sequence of callables, default=()
        Called with a `Progress` between blocks; one that returns true stops the fit.
    checkpoint : str or Path, default=None
        File for checkpoints of the fit; removed when the fit is complete.
    checkpoint_every : float, default=30.0
        Seconds between checkpoints.
    resume : bool, default=False
        Whether to resume the same fit from `checkpoint`; the result is as without interruption.

    Attributes
    ----------
    responsibilities_ : ndarray of shape (N, K)
        Probability that each process produced each row given to `fit`; NaN for dropped rows.
    assignment_ : ndarray of shape (N,)
        Most probable process of each row; −1 for dropped rows.
    used_mask_ : ndarray of bool of shape (N,)
        False for rows that ``missing="drop"`` left out.
    index_ : ndarray of shape (N,)
        What the rows are called: the index of a data frame, the lines of a file, or 0 to N − 1.
    processes_ : list of FittedProcess
        Fitted processes, with `predict`, `sample_y`, `noise_std_` and `kernel_`.
    active_ : ndarray of shape (K,)
        Whether each process is in use.
    lower_bound_ : float
        Final ELBO.
    lower_bounds_ : ndarray of shape (n_iter_,)
        Its history.
    confidence_ : float
        Probability that the association is the best one; NaN if only one start was made.
    joints_ : list of dict
        Where two processes may have been exchanged at little cost, as beyond a gap of the input:
        the pair, the value of a single input ``"beyond"`` which (NaN with several), the ``"share"``
        of the data that would change its process, and the ``"log_odds"`` against the exchange.
    log_stds_ : list of dict
        For each process, standard deviations of the logarithms of ``"noise_std"``,
        ``"lengthscale"`` and ``"variance"``; empty where they were taken as known.
    restarts_ : list of dict
        Kind, ELBO, rungs, steps, fate and moves of each start; see ``summary(verbose=True)``.
    alternatives_ : list of DAGP
        Other solutions, best first. Those of the search are not trained to convergence; before them
        stand those that ``posterior="averaged"`` averages over.
    association_weights_ : ndarray of shape (1 + number of alternatives,)
        Probability of the association of the model and of each of `alternatives_`; 0 for those that
        predictions leave out.
    converged_ : bool
        Whether the ELBO had stopped rising when training ended.
    n_iter_ : int
        Steps of the start that was kept.
    n_features_in_ : int
        Number of input columns D.
    columns_ : Columns
        What each column holds, and how it is encoded.
    feature_names_in_ : ndarray of shape (D,), if `X` has column names
    target_names_ : list of P str, or None if `y` has no names

    Examples
    --------
    >>> from dagp import DAGP, GP, Noise, datasets
    >>> data = datasets.noise_separation(outliers=0.2, n=200, random_state=0)
    >>> model = DAGP(processes=[GP(), Noise()], n_init=2, tol=1e-2, random_state=0)
    >>> model.fit(data.X, data.y).predict_assignment([[0.0]]).shape
    (1, 2)
    """

    # Fitted attributes, set by `dagp.fitting`.
    responsibilities_: Float[np.ndarray, "N K"]
    assignment_: Int[np.ndarray, " N"]
    used_mask_: Bool[np.ndarray, " N"]
    index_: np.ndarray
    active_: Bool[np.ndarray, " K"]
    processes_: list[FittedProcess]
    lower_bound_: float
    lower_bounds_: Float[np.ndarray, " steps"]
    confidence_: float
    joints_: list[dict[str, Any]]
    log_stds_: list[dict[str, np.ndarray]]
    restarts_: list[dict[str, Any]]
    alternatives_: "list[DAGP]"
    converged_: bool
    n_iter_: int
    n_features_in_: int
    flat_: bool
    target_names_: list[str] | None
    extent_: tuple[np.ndarray, np.ndarray]
    columns_: Columns
    posterior_: Posterior
    stream_: Stream

    def __init__(
        self,
        n_processes: int | Literal["auto"] = 2,
        processes: Sequence[ProcessPrior] | ProcessPrior | None = None,
        gate: GatePrior | Literal["constant"] | None = None,
        *,
        inducing: Any = "auto",
        inference: Literal["collapsed", "concrete"] | Concrete = "collapsed",
        posterior: Literal["best", "averaged"] = "best",
        n_init: int = 8,
        max_iter: int = 1000,
        tol: float = 1e-4,
        batch_size: int | None = None,
        standardize: bool = True,
        dtype: Literal["float64", "float32"] = "float64",
        missing: Literal["raise", "drop"] = "raise",
        columns: Mapping[str | int, Any] | None = None,
        random_state: RandomState = None,
        warm_start: bool = False,
        verbose: int = 0,
        progress: bool = False,
        callbacks: Sequence[Callable[[Progress], Any]] = (),
        checkpoint: str | Path | None = None,
        checkpoint_every: float = 30.0,
        resume: bool = False,
    ):
        self.n_processes = n_processes
        self.processes = processes
        self.gate = gate
        self.inducing = inducing
        self.inference = inference
        self.posterior = posterior
        self.n_init = n_init
        self.max_iter = max_iter
        self.tol = tol
        self.batch_size = batch_size
        self.standardize = standardize
        self.dtype = dtype
        self.missing = missing
        self.columns = columns
        self.random_state = random_state
        self.warm_start = warm_start
        self.verbose = verbose
        self.progress = progress
        self.callbacks = callbacks
        self.checkpoint = checkpoint
        self.checkpoint_every = checkpoint_every
        self.resume = resume

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.target_tags.multi_output = True
        tags.target_tags.single_output = True
        return tags

    def fit(self, X: Table, y: Table, sample_weight: Any = None, labels: Any = None) -> Self:
        """Fit the model.

        Parameters
        ----------
        X : array-like of shape (N, D); NumPy, pandas, polars or pyarrow
        y : array-like of shape (N,) or (N, P)
        sample_weight : array-like of shape (N,), default=None
            A weight of 2 equals repeating the row.
        labels : array-like of int of shape (N,), default=None
            Index of the process where it is known, −1 elsewhere.
        """
        fit_estimator(self, X, y, sample_weight, labels)
        discard_checkpoint(self)
        return self

    def partial_fit(self, X: Table, y: Table, sample_weight: Any = None) -> Self:
        """Update with new rows (streaming); earlier rows are not needed any more.

        The first call is `fit`, and needs enough rows to find the association. Every row counts as
        new. Afterwards the fitted attributes per row are those of the rows of the last call.

        Parameters
        ----------
        X : array-like of shape (N, D)
        y : array-like of shape (N,) or (N, P)
        sample_weight : array-like of shape (N,), default=None
        """
        if not hasattr(self, "posterior_"):
            return self.fit(X, y, sample_weight)
        update_estimator(self, X, y, sample_weight)
        return self

    def explain(self, x: Any, y: Any) -> Explanation:
        """Probability of each process for one observation, and what each predicts.

        Parameters
        ----------
        x : array-like of shape (D,), mapping of column names, or frame of one row
        y : float or array-like of shape (P,)

        Examples
        --------
        >>> from dagp import DAGP, GP, Noise, datasets
        >>> data = datasets.noise_separation(outliers=0.2, n=200, random_state=0)
        >>> model = DAGP(processes=[GP(), Noise()], n_init=2, tol=1e-2, random_state=0)
        >>> model.fit(data.X, data.y).explain([0.0], 2.5).process
        1
        """
        check_is_fitted(self)
        return explain(self, x, y)

    @property
    def association_weights_(self) -> Float[np.ndarray, " S"]:
        """Probability of the association of the model and of each of `alternatives_`."""
        check_is_fitted(self)
        weights = np.zeros(1 + len(self.alternatives_))
        found = [weight for weight, _, _ in self.posterior_.associations()]
        weights[: len(found)] = found
        return weights

    def to_xarray(self, data: tuple[Any, Any] | None = None) -> "xarray.Dataset":
        """Responsibilities, assignments, processes and history of the ELBO, with named dimensions.

        Parameters
        ----------
        data : tuple (X, y), default=None
            Training rows to include, with weight, mean and std of each process there.

        Examples
        --------
        >>> from dagp import DAGP, datasets
        >>> data = datasets.noise_separation(0.0, n=50, random_state=0)
        >>> model = DAGP(1, n_init=1, tol=1e-1).fit(data.X, data.y)
        >>> dict(model.to_xarray((data.X, data.y))["mean"].sizes)
        {'point': 50, 'process': 1}
        """
        check_is_fitted(self)
        return export.to_xarray(self, data)

    def outliers(self, probability: float = 0.5) -> np.ndarray:
        """Rows given to `fit` that clutter produced, most probable first, by their names in
        `index_`: labels of a data frame, otherwise positions.

        Parameters
        ----------
        probability : float, default=0.5
            Least probability of clutter.

        Returns
        -------
        ndarray of shape (O,)
        """
        check_is_fitted(self)
        return outliers(self, probability)

    def summary(self, verbose: bool = False) -> str:
        """Table of the processes.

        Parameters
        ----------
        verbose : bool, default=False
            Whether to add a table of the starts.
        """
        check_is_fitted(self)
        return summary.text(self, verbose)

    def _html_repr(self) -> str:
        return summary.html(self) if hasattr(self, "processes_") else super()._html_repr()
