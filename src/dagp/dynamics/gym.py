"""A fitted transition model as an environment of Gymnasium, for other people's algorithms."""

from typing import TYPE_CHECKING, Any

import numpy as np

try:
    import gymnasium  # pyright: ignore[reportMissingImports]
except ModuleNotFoundError as missing:
    raise ModuleNotFoundError(
        "Environments need Gymnasium: pip install 'dagp[gym]'.", name=missing.name
    ) from missing
import jax

from dagp.core.precision import numerics
from dagp.dynamics import checks
from dagp.dynamics.paths import begin_paths, key_of, one_step

if TYPE_CHECKING:
    from dagp.dynamics.rollout import Reward
    from dagp.dynamics.transition import Functions, TransitionModel

__all__ = ["ModelEnv"]


class ModelEnv(gymnasium.Env):
    """An environment whose transitions are drawn from a model.

    Each episode is one trajectory of `TransitionModel.rollout`. Its ``info`` holds the regime, the
    probabilities of the regimes, and how far the step lies outside of the training data.

    Parameters
    ----------
    model : fitted TransitionModel
    reward : callable
        As in `improve_policy`.
    starts : array-like of shape (B, S), default=None
        States in which episodes start; None: the training states.
    horizon : int, default=100
        Steps after which an episode is truncated.
    terminal : int, default=None
        Regime that ends an episode, such as a failure.
    functions : {"step", "trajectory"}, default="step"
        As in `TransitionModel.rollout`.

    Examples
    --------
    ``ModelEnv(model, lambda state, action, after, p: after[0])`` is passed to the algorithm in
    place of the real system.
    """

    metadata = {"render_modes": []}  # noqa: RUF012

    def __init__(
        self,
        model: "TransitionModel",
        reward: "Reward",
        *,
        starts: Any = None,
        horizon: int = 100,
        terminal: int | None = None,
        functions: "Functions" = "step",
    ):
        self._dynamics = model.dynamics(functions)
        self._model, self._reward = model, reward
        given = model.states_ if starts is None else starts
        self._starts = checks.table("starts", given, model.n_states_)
        self._horizon, self._terminal = checks.whole("horizon", horizon), terminal
        low, high = checks.interval("bounds", model.bounds, model.n_states_)
        self.observation_space = gymnasium.spaces.Box(low, high, dtype=np.float64)
        self.action_space = gymnasium.spaces.Box(*model.action_bounds_.T, dtype=np.float64)

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[np.ndarray, dict]:
        """Start an episode."""
        super().reset(seed=seed)
        with numerics():
            self._key = key_of(self.np_random)
            self._key, own = jax.random.split(self._key)
            self._drawn = begin_paths(self._dynamics, own, 1)
        self._state = self._starts[self.np_random.integers(len(self._starts))]
        self._time = 0
        return self._state.copy(), {}

    def step(self, action: Any) -> tuple[np.ndarray, float, bool, bool, dict[str, Any]]:
        """One step of the episode."""
        done = np.asarray(action, np.float64).reshape(1, -1)
        if done.shape[1] != self._model.n_actions_:
            raise ValueError(
                f"An action has {self._model.n_actions_} numbers, got {done.shape[1]}."
            )
        before = self._state[None]
        checks.actions(done[None], before[None], *self._model.action_bounds_.T)
        with numerics():
            self._key, own = jax.random.split(self._key)
            step = one_step(self._dynamics, self._drawn, before, done, own)
            after, weights = np.asarray(step.next_states)[0], np.asarray(step.weights)[0]
            reward = float(self._reward(before[0], done[0], after, weights))
            regime = int(step.regimes[0])
        beyond = self._model.range_.beyond(np.concatenate([before, done], axis=1))
        self._state, self._time = after, self._time + 1
        info = {"regime": regime, "probabilities": weights, "outside": float(beyond.max())}
        over = self._time >= self._horizon
        return after.copy(), reward, regime == self._terminal, over, info
