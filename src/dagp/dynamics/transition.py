"""Transition models: a `DAGP` of the next state, given a state and an action."""

import dataclasses
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Literal, Self

import numpy as np
from sklearn.base import BaseEstimator, clone
from sklearn.utils.validation import check_is_fitted

from dagp.core.precision import numerics
from dagp.core.typing import Float, RandomState
from dagp.dynamics import checks
from dagp.dynamics.paths import Rollout, next_moments, roll_out
from dagp.dynamics.policy import Policy
from dagp.dynamics.separate import Own, enough_inducing, own_functions
from dagp.dynamics.steps import Frame, ModelDynamics
from dagp.dynamics.stops import fit_past_stops
from dagp.estimator import DAGP
from dagp.files import modelfile
from dagp.model.clutter import Noise
from dagp.model.deep import DeepGP
from dagp.model.gp import GP
from dagp.model.means import Projection
from dagp.model.parameters import fixed
from dagp.model.process import ProcessPrior
from dagp.predict.posterior import predictive_shapes
from dagp.tables.settings import check_settings

Functions = Literal["step", "trajectory"]
_RESET_WIDTH = 0.01
"""Standard deviation of the states after a reset, in ranges of the next states."""


class TransitionModel(BaseEstimator):
    """A model of transitions with several regimes, on `DAGP`.

    Parameters
    ----------
    estimator : DAGP, default=None
        Settings of the model, such as the number of regimes and their priors; None is ``DAGP()``.
    differences : bool, default=True
        Whether functions are those of the difference from the state, rather than of the next
        state. With `reset`, this is the prior mean of GPs that have no other.
    bounds : sequence of S pairs (low, high), default=None
        Known bounds of the states, at which trajectories stop; None in a pair, or instead of a
        pair, is no bound. If the number of regimes is to be found, states that are stopped at a
        bound make no regime.
    periods : sequence of S floats or None, default=None
        Periods of states such as angles, None for the others; these states are between plus and
        minus half of their period.
    action_bounds : sequence of A pairs (low, high), default=None
        Allowed actions; None is the range of the training data.
    reset : array-like of shape (S,), default=None
        State at which the system restarts, such as after a failure. It is a regime of its own,
        the last one, in addition to those of `estimator`.
    separate : bool, default=True
        Whether the functions of every state are trained with kernels of their own once the
        association is found, with the noise and kernels of `estimator` as priors. Otherwise the
        states share kernels, and one that can be predicted precisely decides which inputs matter.

    Attributes
    ----------
    model_ : DAGP
        The fitted model, of states and actions side by side.
    n_states_, n_actions_, n_regimes_ : int
    reset_regime_ : int or None
        The regime of resets.
    states_ : ndarray of shape (N, S)
        Training states.

    Examples
    --------
    >>> import numpy as np
    >>> from dagp import DAGP
    >>> rng = np.random.default_rng(0)
    >>> states, actions = rng.uniform(-1, 1, (40, 1)), rng.uniform(-1, 1, (40, 1))
    >>> after = 0.9 * states + 0.1 * actions
    >>> model = TransitionModel(DAGP(1, n_init=1, tol=1e-1, random_state=0))
    >>> model = model.fit(states, actions, after)
    >>> paths = model.rollout(lambda states: -states, [0.5], horizon=3, n_samples=5, random_state=0)
    >>> paths.states.shape, paths.actions.shape
    ((5, 4, 1), (5, 3, 1))
    """

    model_: DAGP
    n_states_: int
    n_actions_: int
    reset_regime_: int | None
    states_: Float[np.ndarray, "N S"]
    own_: list[Own]
    _actions: tuple[np.ndarray, np.ndarray]

    def __init__(
        self,
        estimator: DAGP | None = None,
        *,
        differences: bool = True,
        bounds: Any = None,
        periods: Any = None,
        action_bounds: Any = None,
        reset: Any = None,
        separate: bool = True,
    ):
        self.estimator = estimator
        self.differences = differences
        self.bounds = bounds
        self.periods = periods
        self.action_bounds = action_bounds
        self.reset = reset
        self.separate = separate

    def fit(self, states: Any, actions: Any, next_states: Any, labels: Any = None) -> Self:
        """Fit the model to observed transitions.

        Parameters
        ----------
        states : array-like of shape (N, S)
        actions : array-like of shape (N, A), or None
            None: a system without actions.
        next_states : array-like of shape (N, S)
        labels : array-like of int of shape (N,), default=None
            Regime where it is known, −1 elsewhere.
        """
        before = checks.table("states", states)
        none = np.zeros((len(before), 0))
        done = none if actions is None else checks.table("actions", actions)
        after = checks.table("next_states", next_states, before.shape[1])
        for name, other in (("actions", done), ("next_states", after)):
            if len(other) != len(before):
                raise ValueError(
                    f"{name} must have {len(before)} rows as states, got {len(other)}."
                )
        low, high = checks.interval("bounds", self.bounds, before.shape[1])
        checks.inside("states", before, low, high)
        checks.inside("next_states", after, low, high)
        allowed = checks.interval("action_bounds", self.action_bounds, done.shape[1])
        checks.inside("actions", done, *allowed)
        reset = self._checked_reset(before.shape[1])
        estimator: Any = clone(DAGP() if self.estimator is None else self.estimator)
        periods = checks.periods(self.periods, before.shape[1])
        target = after
        if self.differences and reset is None:
            target = checks.nearest(after - before, periods)
        X, priors = np.hstack([before, done]), check_settings(estimator)
        if reset is not None:
            estimator.set_params(processes=self._with_reset(priors, X, after, reset))
        amount = estimator.inducing
        if self.separate:
            estimator.set_params(inducing=enough_inducing(amount, priors, X, target.shape[1]))
        if labels is None:
            shift = before if self.differences and reset is None else 0.0
            ends = (np.broadcast_to(end - shift, target.shape) for end in (low, high))
            target = fit_past_stops(estimator, X, target, *ends)
        else:
            estimator.fit(X, target, labels=labels)
        estimator.set_params(inducing=amount)
        stay = self.differences and reset is not None
        own: list[Own] = [None for _ in estimator.processes_]
        if self.separate:
            own = own_functions(estimator, priors, X, target, stay)
        # All at once: a fit that fails or is stopped leaves the model as it was.
        self.model_, self.own_ = estimator, own
        self.n_states_, self.n_actions_ = before.shape[1], done.shape[1]
        self.reset_regime_ = None if reset is None else _reset_regime(estimator)
        self.states_ = before
        seen = (done.min(axis=0), done.max(axis=0))
        self._actions = seen if self.action_bounds is None else allowed
        return self

    def _checked_reset(self, columns: int) -> np.ndarray | None:
        if self.reset is None:
            return None
        reset = np.asarray(self.reset, np.float64)
        if reset.shape != (columns,) or not np.all(np.isfinite(reset)):
            raise ValueError(f"reset must be a state of {columns} numbers, got {self.reset!r}.")
        return reset

    def _with_reset(
        self, given: list[ProcessPrior], X: np.ndarray, after: np.ndarray, reset: np.ndarray
    ) -> list[ProcessPrior]:
        """Priors of the regimes, that of resets last; all predict the next state."""
        stay = Projection(np.eye(X.shape[1], after.shape[1]))
        priors: list[ProcessPrior] = []
        for prior in given:
            if self.differences and isinstance(prior, GP | DeepGP) and prior.mean is None:
                prior = dataclasses.replace(prior, mean=stay)
            priors.append(prior)
        width = np.ptp(np.vstack([after, reset[None]]), axis=0)
        std = _RESET_WIDTH * np.where(width > 0, width, 1.0)
        return [*priors, Noise(mean=reset, std=fixed(std))]

    @property
    def n_regimes_(self) -> int:
        """Number of regimes K."""
        check_is_fitted(self, "model_")
        return self.model_.posterior_.model.n_processes

    @property
    def action_bounds_(self) -> Float[np.ndarray, "A 2"]:
        """Allowed actions: those given, or the range of the training data."""
        check_is_fitted(self, "model_")
        return np.stack(self._actions, axis=1)

    @property
    def range_(self) -> checks.Range:
        """Range of the training states and actions."""
        return checks.Range(*self.model_.extent_)

    def dynamics(self, functions: Functions = "step") -> ModelDynamics:
        """The model as a tree of arrays that compiled roll-outs use.

        Parameters
        ----------
        functions : {"step", "trajectory"}, default="step"
            As in `rollout`.
        """
        check_is_fitted(self, "model_")
        if functions not in ("step", "trajectory"):
            raise ValueError(f'functions must be "step" or "trajectory", got {functions!r}.')
        low, high = checks.interval("bounds", self.bounds, self.n_states_)
        reset = self._checked_reset(self.n_states_)
        standing = np.asarray(float(self.differences and reset is None))
        frame = Frame(low, high, checks.periods(self.periods, self.n_states_), reset, standing)
        with numerics():
            return ModelDynamics.of(
                self.model_.posterior_,
                self.own_,
                frame,
                self.reset_regime_,
                functions == "trajectory",
            )

    def predict(
        self, states: Any, actions: Any = None
    ) -> tuple[Float[np.ndarray, "N K S"], Float[np.ndarray, "N K S"]]:
        """Mean and standard deviation of the next state in each regime, without bounds.

        Parameters
        ----------
        states : array-like of shape (N, S)
        actions : array-like of shape (N, A), default=None

        Returns
        -------
        two ndarrays of shape (N, K, S)
        """
        check_is_fitted(self, "model_")
        rows, done = self._inputs(states, actions)
        return next_moments(self, rows, done)

    def predict_regimes(self, states: Any, actions: Any = None) -> Float[np.ndarray, "N K"]:
        """Probability of each regime for the next step.

        Parameters
        ----------
        states : array-like of shape (N, S)
        actions : array-like of shape (N, A), default=None
        """
        check_is_fitted(self, "model_")
        return self.model_.predict_assignment(np.hstack(self._inputs(states, actions)))

    def _inputs(self, states: Any, actions: Any) -> tuple[np.ndarray, np.ndarray]:
        rows = checks.table("states", states, self.n_states_)
        done = np.zeros((len(rows), 0)) if actions is None else actions
        return rows, checks.table("actions", done, self.n_actions_)

    def rollout(
        self,
        policy: Policy | Callable[[np.ndarray], Any] | None,
        start: Any,
        horizon: int,
        n_samples: int = 1,
        random_state: RandomState = None,
        *,
        functions: Functions = "step",
        regimes: Any = "step",
    ) -> Rollout:
        """Trajectories from the whole posterior: functions, noise and regimes.

        Parameters
        ----------
        policy : Policy, callable or None
            A `Policy`, which is compiled, or a NumPy function of states (n, S) to actions (n, A).
            None is for models without actions.
        start : array-like of shape (S,) or (B, S)
            One state to start from, or several.
        horizon : int
            Number of steps T.
        n_samples : int, default=1
            Trajectories from each start.
        random_state : int, Generator, RandomState or None, default=None
        functions : {"step", "trajectory"}, default="step"
            Whether the value of a function is drawn anew at every step, or one function for a whole
            trajectory, so that the doubt about the model stays the same along it.
        regimes : {"step", "trajectory"} or array-like of shape (K,) or (B, K), default="step"
            Whether the regime is drawn at every step, from the gate, or once for a whole
            trajectory, from the regimes' shares of the training data: for data of several systems,
            each of which stays what it is. Probabilities are for trajectories too, of each regime,
            perhaps for each start: ``regimes=model.predict_regimes(start, action)`` where systems
            are found at different states, ``[1, 0]`` where it is known which one it is.

        Returns
        -------
        Rollout
            With arrays of shape (n_samples, T, …), or (n_samples, B, T, …) for several starts.
        """
        return roll_out(self, policy, start, horizon, n_samples, random_state, functions, regimes)

    def save(self, path: str | Path) -> Path:
        """Write the fitted model to a file, which `DAGP.load` reads too.

        Parameters
        ----------
        path : str or Path
        """
        check_is_fitted(self, "model_")
        low, high = checks.interval("bounds", self.bounds, self.n_states_)
        about = {
            "differences": bool(self.differences),
            "bounds": np.stack([low, high]),
            "periods": checks.periods(self.periods, self.n_states_),
            "action_bounds": np.stack(self._actions),
            "given_actions": self.action_bounds is not None,
            "reset": self._checked_reset(self.n_states_),
            "reset_regime": self.reset_regime_,
            "states": self.states_,
            "own": [None if parts is None else list(parts) for parts in self.own_],
        }
        return modelfile.save(self.model_, path, None, more={"transition": about})

    @classmethod
    def load(cls, path: str | Path) -> Self:
        """Read a model; it rolls out as the saved one.

        Parameters
        ----------
        path : str or Path
        """
        estimator = modelfile.load(DAGP, path)
        with modelfile.refusing(f"{path} does not hold a transition model"):
            about = modelfile.part(path, "transition")
            settings: Any = clone(estimator)
            found = cls(
                settings,
                differences=about["differences"],
                bounds=_pairs(about["bounds"]),
                periods=about["periods"].tolist(),
                action_bounds=_pairs(about["action_bounds"]) if about["given_actions"] else None,
                reset=about["reset"],
            )
            found.states_, found.model_ = about["states"], estimator
            found.n_states_ = found.states_.shape[1]
            found.n_actions_ = about["action_bounds"].shape[1]
            found._actions = tuple(about["action_bounds"])
            found.reset_regime_ = about["reset_regime"]
            found.own_ = [None if parts is None else tuple(parts) for parts in about["own"]]
            found.separate = any(parts is not None for parts in found.own_)
            found._check_loaded()
        return found

    def _check_loaded(self) -> None:
        """Raise ValueError if the parts of a file do not fit together."""
        expected = self.model_.n_features_in_, self.model_.posterior_.units.y_unit.size
        if expected != (self.n_states_ + self.n_actions_, self.n_states_):
            raise ValueError("states and actions are not the columns of the model")
        checks.table("states", self.states_)
        if len(self.own_) != self.n_regimes_:
            raise ValueError("there are functions of other regimes")
        for posterior in (p for parts in self.own_ for p in parts or ()):
            predictive_shapes(posterior, self.n_states_ + self.n_actions_)
        checks.interval("bounds", self.bounds, self.n_states_)
        checks.periods(self.periods, self.n_states_)
        checks.interval("action_bounds", self.action_bounds, self.n_actions_)
        regime = self.reset_regime_
        if (self._checked_reset(self.n_states_) is None and regime is not None) or (
            regime is not None and not 0 <= regime < self.n_regimes_
        ):
            raise ValueError("there is no such regime of resets")


def _pairs(ends: Float[np.ndarray, "2 C"]) -> Sequence[tuple[float, float]]:
    return [(float(low), float(high)) for low, high in ends.T]


def _reset_regime(model: DAGP) -> int | None:
    """The regime of resets, which is last, unless ``n_processes="auto"`` has removed it."""
    last = model.processes_[-1]
    return last.index if last.kind == "Noise" else None
