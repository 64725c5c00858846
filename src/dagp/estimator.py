"""`DAGP`, the scikit-learn face of the library."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import jax
import numpy as np
from sklearn.base import BaseEstimator, RegressorMixin
from sklearn.utils import Tags
from sklearn.utils.validation import check_is_fitted

from dagp import export, modelfile, summary
from dagp.capabilities import Capabilities
from dagp.concrete import Concrete
from dagp.data import Sample, Units, canonical
from dagp.deep import DeepGP
from dagp.density import Density
from dagp.doubt import doubted
from dagp.explain import Explanation, explain, outliers
from dagp.fitted import FittedProcess, fitted_process
from dagp.fitting import Options, Stream, fit_collapsed, fit_concrete, go_on, teller
from dagp.memory import remembering
from dagp.mixture import Mixture
from dagp.placement import fetched, same_everywhere
from dagp.posterior import Posterior
from dagp.processes import GP, ProcessPrior
from dagp.race import Contender
from dagp.runtime import numerics
from dagp.search import UNUSED
from dagp.seeds import random_source
from dagp.starts import Problem, inducing_inputs
from dagp.train import Progress, Result
from dagp.typing import Bool, Float, Int, RandomState, Table
from dagp.validation import (
    check_data,
    check_enough,
    check_inputs,
    check_outputs,
    check_parameters,
    check_spread,
)

if TYPE_CHECKING:
    import xarray

__all__ = ["DAGP"]


class DAGP(Density, RegressorMixin, BaseEstimator):
    """Data association with Gaussian processes.

    Which process produced each observation, what does each process look like, and which
    processes matter where: all from inputs and outputs alone.

    Parameters
    ----------
    n_processes
        How many processes to look for. Ones that are not needed stay unused (see `active_`).
        ``"auto"`` begins with many and keeps those that the evidence bound has a use for; with a
        list of `processes` it keeps those of the list that are used.
    processes
        Priors of the processes: a list such as ``[GP(), Noise()]``, or one prior to be repeated
        `n_processes` times. GPs with squared exponential kernels if left out.
    gate
        Prior of the assignment: a `GP` (squared exponential if left out), a `DeepGP`, or
        ``"constant"`` for weights that do not depend on the input.
    inducing
        Number of inducing points, or their positions (M, D) in the user's units.
    inference
        ``"collapsed"``: the assignments are summed out of the evidence bound. ``"concrete"``, or
        a `Concrete` with its settings: the paper's scheme, with relaxed assignments that are
        sampled.
    n_init
        Number of starts that race on the bound.
    max_iter
        Most steps of the final training.
    tol
        Training ends when a block of steps gains less than this per data point.
    batch_size
        Rows per training step, for data too large to use whole; None uses all of them. The
        association is then looked for among a part of the data.
    standardize
        Whether to bring columns to a common size before fitting. Everything that goes in or
        comes out is in the user's units either way.
    dtype
        ``"float64"`` or ``"float32"``.
    missing
        What to do with rows that hold a NaN: ``"raise"`` or ``"drop"``.
    random_state
        Seed; the same seed gives identical results.
    warm_start
        Whether another `fit` begins where the last one ended, instead of racing new starts.
    verbose
        1 prints a line per start and block.
    callbacks
        Functions called with a `Progress` between blocks; one that returns true stops the fit.
    checkpoint
        A file to write down progress in, every `checkpoint_every` seconds; it is removed when the
        fit is complete.
    resume
        Whether to go on from what such a file holds of the same fit, cut off: the result is that
        of a fit that was not.

    Attributes
    ----------
    responsibilities_ : (N, K) probability that each process produced each training point
    assignment_ : (N,) the most probable process
    processes_ : fitted processes, each with `predict`, `sample_y`, `noise_std_`, `kernel_`
    active_ : (K,) whether the process is used
    lower_bound_, lower_bounds_ : evidence bound and its history
    restarts_ : one dict per start: kind, bound, bound at each rung, steps, whether it was kept or
        why it was dropped, moves tried and what they gained; see ``summary(verbose=True)``
    alternatives_ : other solutions the search came across, best first, as estimators; trained as
        far as the search took them
    converged_, n_iter_, n_features_in_, feature_names_in_

    Examples
    --------
    >>> from dagp import DAGP, GP, Noise, datasets
    >>> data = datasets.noise_separation(outliers=0.2, n=200, random_state=0)
    >>> model = DAGP(processes=[GP(), Noise()], n_init=2, tol=1e-2, random_state=0)
    >>> model.fit(data.X, data.y).predict_assignment([[0.0]]).shape
    (1, 2)
    """

    capabilities: ClassVar[Capabilities] = Capabilities(*[True] * len(Capabilities._fields))

    def __init__(
        self,
        n_processes: int | str = 2,
        processes: Sequence[ProcessPrior] | ProcessPrior | None = None,
        gate: GP | DeepGP | str | None = None,
        *,
        inducing: Any = None,
        inference: str | Concrete = "collapsed",
        n_init: int = 8,
        max_iter: int = 1000,
        tol: float = 1e-4,
        batch_size: int | None = None,
        standardize: bool = True,
        dtype: str = "float64",
        missing: str = "raise",
        random_state: RandomState = None,
        warm_start: bool = False,
        verbose: int = 0,
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
        self.n_init = n_init
        self.max_iter = max_iter
        self.tol = tol
        self.batch_size = batch_size
        self.standardize = standardize
        self.dtype = dtype
        self.missing = missing
        self.random_state = random_state
        self.warm_start = warm_start
        self.verbose = verbose
        self.callbacks = callbacks
        self.checkpoint = checkpoint
        self.checkpoint_every = checkpoint_every
        self.resume = resume

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.target_tags.multi_output = True
        tags.target_tags.single_output = True
        return tags

    # ---------------------------------------------------------------------------------- fitting

    def fit(self, X: Table, y: Table, sample_weight: Any = None, labels: Any = None) -> "DAGP":
        """Separate the data into processes.

        Parameters
        ----------
        X : (N, D) inputs; NumPy, pandas, polars, pyarrow
        y : (N,) or (N, P) outputs
        sample_weight : (N,) how much each row counts; 2 is the same as the row twice
        labels : (N,) the process that produced a row where it is known, −1 elsewhere
        """
        priors = check_parameters(self)
        X, y, weight, labels = check_data(self, X, y, sample_weight, labels, len(priors))
        check_enough(len(priors), weight)
        self.flat_: bool = y.ndim == 1
        sample = Sample(X, y.reshape(len(y), -1), weight, labels)
        distinct, place = canonical(sample)
        previous = self._previous(distinct, len(priors))
        units = Units.of(distinct, self.standardize) if previous is None else previous.units
        check_spread(sample, units, self.dtype)
        seed = same_everywhere(random_source(self.random_state).randint(2**31 - 1))
        rng = np.random.default_rng(seed)
        standard = units.apply(distinct)
        inducing = inducing_inputs(self.inducing, standard, units, rng)
        problem = Problem(standard, units, tuple(priors), self.gate, inducing)
        options = Options(
            self.n_init,
            self.max_iter,
            self.tol,
            self.batch_size,
            self.n_processes == "auto",
            rng,
            teller(self.callbacks, self.verbose),
        )
        with numerics(self.dtype), remembering(modelfile.checkpoint(self, sample)):
            if self.inference == "collapsed":
                # What doubt took from the functions is for answers, not for going on.
                model = None if previous is None else getattr(self, "stream_", previous).model
                found = fit_collapsed(problem, options, model)
            else:
                settings = self.inference if isinstance(self.inference, Concrete) else Concrete()
                found = fit_concrete(problem, options, settings)
        self._read_off(sample, place, units, found.result)
        self.lower_bounds_: Float[np.ndarray, " steps"] = found.result.trace
        self.n_iter_: int = len(found.result.trace)
        trained = jax.tree.map(np.asarray, found.result.state.model)
        self.stream_ = Stream.after(trained, float(weight.sum()))
        self.restarts_: list[dict[str, Any]] = [c.record() for c in found.ranking]
        known = place if found.complete else np.full_like(place, -1)
        others = [self._alternative(sample, known, units, *r) for r in found.rivals]
        self.alternatives_: list[DAGP] = others
        modelfile.forget_checkpoint(self)
        return self

    def partial_fit(self, X: Table, y: Table, sample_weight: Any = None) -> "DAGP":
        """Take in data that will not be seen again.

        The first call fits its rows as `fit` does, so it should bring enough of them to find the
        association; later ones add what their rows say to what is known. Every row counts as a
        new one. The fitted attributes per row speak of the rows of the last call.
        """
        if not hasattr(self, "posterior_"):
            return self.fit(X, y, sample_weight)
        units, K = self.posterior_.units, self.posterior_.model.n_processes
        X, y, weight, labels = check_data(self, X, y, sample_weight, None, K, reset=False)
        if (y.ndim == 1) != self.flat_:
            raise ValueError("y must have the same number of columns as in the first call.")
        sample = Sample(X, y.reshape(len(y), -1), weight, labels)
        distinct, place = canonical(sample)
        check_spread(sample, units, self.dtype)
        with numerics(self.dtype):
            self.stream_, result = go_on(self.stream_, units.apply(distinct), self.batch_size)
        self._read_off(sample, place, units, result)
        return self

    def _alternative(
        self,
        sample: Sample,
        place: Int[np.ndarray, " N"],
        units: Units,
        contender: Contender,
        result: Result,
    ) -> "DAGP":
        """Another solution, as an estimator of its own."""
        other = type(self)(**self.get_params(deep=False))
        for name in ("flat_", "n_features_in_", "feature_names_in_"):
            if hasattr(self, name):
                setattr(other, name, getattr(self, name))
        other._read_off(sample, place, units, result)
        other.lower_bounds_, other.n_iter_ = result.trace, contender.steps
        other.restarts_, other.alternatives_ = [contender.record()], []
        return other

    def _previous(self, sample: Sample, processes: int) -> Posterior | None:
        """The posterior to go on from, where a warm start was asked for and is possible."""
        posterior = getattr(self, "posterior_", None) if self.warm_start else None
        if posterior is None or posterior.model.n_processes != processes:
            return None
        shapes = (len(posterior.units.x_unit), len(posterior.units.y_unit))
        return posterior if shapes == (sample.X.shape[1], sample.y.shape[1]) else None

    def _read_off(
        self,
        sample: Sample,
        place: Int[np.ndarray, " N"],
        units: Units,
        result: Result,
    ) -> None:
        trained = Posterior(jax.tree.map(np.asarray, result.state.model), units, self.dtype)
        self.posterior_: Posterior = doubted(trained, sample)
        shares = fetched(result.state.responsibilities).astype(np.float64)[place]
        if np.any(absent := place < 0):
            asked = (sample.X[absent], sample.y[absent], sample.labels[absent])
            shares[absent] = trained.shares(*asked)
        shares /= shares.sum(axis=1, keepdims=True)
        totals = sample.weight @ shares / sample.weight.sum()
        self.responsibilities_: Float[np.ndarray, "N K"] = shares
        self.assignment_: Int[np.ndarray, " N"] = shares.argmax(axis=1)
        self.active_: Bool[np.ndarray, " K"] = totals >= UNUSED
        self.processes_: list[FittedProcess] = [
            fitted_process(self, self.posterior_, k, float(total)) for k, total in enumerate(totals)
        ]
        self.lower_bound_: float = result.bound
        self.converged_: bool = result.status == "converged"
        self.extent_: tuple[np.ndarray, np.ndarray] = (sample.X.min(axis=0), sample.X.max(axis=0))

    # ------------------------------------------------------------------------------- predicting

    def predict(
        self, X: Table, return_std: bool = False
    ) -> np.ndarray | tuple[np.ndarray, np.ndarray]:
        """Mean of the predictive mixture, and its standard deviation."""
        mixture = self.predict_mixture(X)
        if return_std:
            return mixture.mean(), np.sqrt(mixture.variance())
        return mixture.mean()

    def predict_mixture(self, X: Table, noise: bool = True) -> Mixture:
        """The predictive mixture at each row of `X`; ``noise=False`` is the latent function."""
        check_is_fitted(self)
        X = check_inputs(self, X, reset=False)
        return self.posterior_.mixture(X, noise=noise, flat=self.flat_)

    def predict_assignment(self, X: Table) -> Float[np.ndarray, "N K"]:
        """How likely each process is at each row of `X`, before seeing y. Rows sum to one."""
        check_is_fitted(self)
        return self.posterior_.gate(check_inputs(self, X, reset=False))

    def responsibilities(self, X: Table, y: Table) -> Float[np.ndarray, "N K"]:
        """How likely each process is to have produced each pair. Rows sum to one."""
        mixture = self.predict_mixture(X)
        return mixture.responsibilities(check_outputs(y, len(mixture)))

    def score(self, X: Table, y: Table, sample_weight: Any = None) -> float:
        """R² of the mean of the mixture, as scikit-learn wants it; see also `log_score`."""
        return super().score(X, y, sample_weight)

    def sample_y(
        self, X: Table, n_samples: int = 1, random_state: RandomState = None
    ) -> np.ndarray:
        """Independent draws of observations, (n_samples, N) or (n_samples, N, P)."""
        return self.predict_mixture(X).sample(n_samples, random_state)

    # ---------------------------------------------------------------------------------- keeping

    def save(self, path: str | Path, data: tuple[Any, Any] | None = None) -> Path:
        """Write the fitted model to one file; with the `data` (X, y) if a report is to be made.

        >>> import tempfile
        >>> from dagp import DAGP, datasets
        >>> data = datasets.noise_separation(0.0, n=50, random_state=0)
        >>> model = DAGP(1, n_init=1, tol=1e-1).fit(data.X, data.y)
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     again = DAGP.load(model.save(f"{folder}/model.dagp"))
        >>> bool((again.predict(data.X) == model.predict(data.X)).all())
        True
        """
        return modelfile.save(self, path, data)

    @classmethod
    def load(cls, path: str | Path) -> "DAGP":
        """The model in a file: it predicts, bit for bit, as the one that was saved."""
        return modelfile.load(cls, path)

    # ------------------------------------------------------------------------------- describing

    def explain(self, x: Any, y: Any) -> Explanation:
        """Which process produced one observation, how sure that is, and what the others expected.

        >>> from dagp import DAGP, GP, Noise, datasets
        >>> data = datasets.noise_separation(outliers=0.2, n=200, random_state=0)
        >>> model = DAGP(processes=[GP(), Noise()], n_init=2, tol=1e-2, random_state=0)
        >>> model.fit(data.X, data.y).explain([0.0], 2.5).process
        1
        """
        check_is_fitted(self)
        return explain(self, x, y)

    def to_xarray(self, data: tuple[Any, Any] | None = None) -> "xarray.Dataset":
        """The fit with named dimensions; with the `data` (X, y) it was fitted to, all of it.

        Responsibilities, assignments, the processes and the history of the bound; with the data
        also these, and weight, mean and standard deviation of each process at every input.

        >>> from dagp import DAGP, datasets
        >>> data = datasets.noise_separation(0.0, n=50, random_state=0)
        >>> model = DAGP(1, n_init=1, tol=1e-1).fit(data.X, data.y)
        >>> dict(model.to_xarray((data.X, data.y))["mean"].sizes)
        {'point': 50, 'process': 1}
        """
        check_is_fitted(self)
        return export.to_xarray(self, data)

    def outliers(self, probability: float = 0.5) -> Int[np.ndarray, " O"]:
        """Training rows that clutter produced with at least this probability, surest first."""
        check_is_fitted(self)
        return outliers(self, probability)

    def summary(self, verbose: bool = False) -> str:
        """A readable table of the processes; `verbose` adds one of the starts."""
        check_is_fitted(self)
        return summary.text(self, verbose)

    def _html_repr(self) -> str:
        return summary.html(self) if hasattr(self, "processes_") else super()._html_repr()
