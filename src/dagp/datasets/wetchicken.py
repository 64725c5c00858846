"""Wet-chicken: a canoe above a waterfall, a benchmark of policy search (Hans and Udluft 2009).

The canoe drifts on a river of length 5 and width 5, in state (x, y). Far down the river, at high x,
the reward is high and the waterfall, at x = 5, is near. At high y the flow is strong and steady, at
low y it is weak and turbulent. Who drops starts again at (0, 0).
"""

from typing import Any

import numpy as np

from dagp.core.random import as_random_state
from dagp.core.typing import Float, Int, RandomState
from dagp.datasets.curves import Dataset, check_whole

LENGTH, WIDTH = 5.0, 5.0
_FASTEST, _ROUGHEST = 3.0, 3.5

Rows = Float[np.ndarray, "N 2"]


class WetChicken:
    """The true system: transitions, and what a model of it should find.

    Attributes
    ----------
    bounds, action_bounds : lists of two pairs (low, high)
    reset : tuple of two floats
        State after a drop.

    Examples
    --------
    >>> WetChicken().drop_probability([[4.0, 0.0]], [[1.0, 0.0]]).round(3)
    array([0.5])
    """

    bounds = ((0.0, LENGTH), (0.0, WIDTH))
    action_bounds = ((-1.0, 1.0), (-1.0, 1.0))
    reset = (0.0, 0.0)

    def flow(self, states: Any) -> Float[np.ndarray, " N"]:
        """Speed of the river, 3 y / 5.

        Parameters
        ----------
        states : array-like of shape (N, 2)
        """
        return _FASTEST * _rows(states)[:, 1] / WIDTH

    def turbulence(self, states: Any) -> Float[np.ndarray, " N"]:
        """Half-width of the uniform noise of the next x, 3.5 less the flow.

        Parameters
        ----------
        states : array-like of shape (N, 2)
        """
        return _ROUGHEST - self.flow(states)

    def drift(self, states: Any, actions: Any) -> Rows:
        """Mean of the next state, as if the river had no ends.

        Parameters
        ----------
        states, actions : array-like of shape (N, 2)
        """
        s, a = _rows(states), _rows(actions)
        along = s[:, 0] + 1.5 * a[:, 0] - 0.5 + self.flow(s)
        return np.stack([along, s[:, 1] + a[:, 1]], axis=1)

    def drop_probability(self, states: Any, actions: Any) -> Float[np.ndarray, " N"]:
        """Probability that the next step ends in the waterfall.

        Parameters
        ----------
        states, actions : array-like of shape (N, 2)
        """
        reach = self.turbulence(states)
        over = self.drift(states, actions)[:, 0] + reach - LENGTH
        return np.clip(over / (2 * reach), 0.0, 1.0)

    def drifting(
        self, states: Any, actions: Any
    ) -> tuple[Float[np.ndarray, " N"], Float[np.ndarray, " N"]]:
        """Mean and standard deviation of the next x of a canoe that does not drop.

        Parameters
        ----------
        states, actions : array-like of shape (N, 2)
        """
        centre, reach = self.drift(states, actions)[:, 0], self.turbulence(states)
        low, high = centre - reach, np.minimum(centre + reach, LENGTH)
        # Where a drop is certain, high is below low: as if it were just avoided.
        low = np.minimum(low, high - 1e-9)
        begin, width = np.maximum(low, 0.0), high - low
        mean = (high**2 - begin**2) / 2 / width
        square = (high**3 - begin**3) / 3 / width
        ashore = high <= 0
        mean, square = np.where(ashore, 0.0, mean), np.where(ashore, 0.0, square)
        return mean, np.sqrt(np.maximum(square - mean**2, 0.0))

    def restart_probability(self, states: Any, actions: Any) -> Float[np.ndarray, " N"]:
        """Probability that the next state is (0, 0): after a drop, or ashore in that corner.

        Transitions alone do not tell the two apart.

        Parameters
        ----------
        states, actions : array-like of shape (N, 2)
        """
        reach, drift = self.turbulence(states), self.drift(states, actions)
        ashore = np.clip((reach - drift[:, 0]) / (2 * reach), 0.0, 1.0)
        return self.drop_probability(states, actions) + np.where(drift[:, 1] <= 0, ashore, 0.0)

    def step(
        self, states: Any, actions: Any, random_state: RandomState = None
    ) -> tuple[Rows, Int[np.ndarray, " N"]]:
        """Next states, and whether the canoe dropped (1) or not (0).

        Parameters
        ----------
        states, actions : array-like of shape (N, 2)
        random_state : int, Generator, RandomState or None, default=None
        """
        s = _rows(states)
        swing = as_random_state(random_state).uniform(-1, 1, len(s))
        after = self.drift(s, actions)
        after[:, 0] += self.turbulence(s) * swing
        dropped = after[:, 0] > LENGTH
        after = np.clip(after, 0.0, (LENGTH, WIDTH))
        after[dropped] = self.reset
        return after, dropped.astype(int)

    def evaluate(
        self,
        policy: Any,
        steps: int = 100,
        n: int = 1000,
        random_state: RandomState = None,
    ) -> tuple[float, float]:
        """Mean reward per step, and share of the steps that end in a drop, of a policy.

        Parameters
        ----------
        policy : callable
            Function of states (n, 2) to actions (n, 2).
        steps, n : int, default=100 and 1000
            Length and number of the trajectories, from uniform starts.
        random_state : int, Generator, RandomState or None, default=None
        """
        rng = as_random_state(random_state)
        states = rng.uniform(0, (LENGTH, WIDTH), (n, 2))
        reward, drops = 0.0, 0.0
        for _ in range(steps):
            states, dropped = self.step(states, policy(states), rng)
            reward += float(states[:, 0].mean()) / steps
            drops += float(dropped.mean()) / steps
        return reward, drops


def wet_chicken(n: int = 1000, n_test: int = 1000, random_state: RandomState = None) -> Dataset:
    """Transitions of a canoe above a waterfall, from uniform states and actions.

    Rows of ``X`` are states and actions, (x, y, a_x, a_y), of ``y`` the next states; also as
    ``states``, ``actions`` and ``next_states``. Process 0 is drifting, 1 is dropping. ``y_test`` is
    the probability of a drop at ``X_test``, and ``simulator`` the true system.

    Parameters
    ----------
    n, n_test : int, default=1000
    random_state : int, Generator, RandomState or None, default=None
        As in every data set of `dagp.datasets`.

    Examples
    --------
    >>> data = wet_chicken(n=200, random_state=0)
    >>> data.X.shape, data.y.shape, sorted(set(data.process.tolist()))
    ((200, 4), (200, 2), [0, 1])
    """
    check_whole("n", n, 1)
    check_whole("n_test", n_test, 1)
    rng, river = as_random_state(random_state), WetChicken()

    def draw(count: int) -> tuple[Rows, Rows]:
        states = rng.uniform(0, (LENGTH, WIDTH), (count, 2))
        return states, rng.uniform(-1, 1, (count, 2))

    states, actions = draw(n)
    after, process = river.step(states, actions, rng)
    test = draw(n_test)
    return Dataset(
        X=np.hstack([states, actions]),
        y=after,
        process=process,
        X_test=np.hstack(test),
        y_test=river.drop_probability(*test),
        states=states,
        actions=actions,
        next_states=after,
        simulator=river,
        feature_names=["x", "y", "a_x", "a_y"],
        target_names=["x", "y"],
    )


def _rows(values: Any) -> Rows:
    rows = np.asarray(values, np.float64)
    if rows.ndim != 2 or rows.shape[1] != 2:
        raise ValueError(f"states and actions must have shape (N, 2), got {rows.shape}.")
    return rows
