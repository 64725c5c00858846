"""Simulated data sets of the paper, with known assignments."""

from typing import Any, Literal

import numpy as np

from dagp.core.random import as_random_state
from dagp.core.typing import RandomState
from dagp.datasets.curves import Dataset, one_input

System = Literal["mixed", "default", "short"]


def noise_separation(
    outliers: float = 0.4,
    noise: float = 0.15,
    n: int = 1000,
    n_test: int = 1000,
    random_state: RandomState = None,
) -> Dataset:
    """One smooth function with uniform outliers.

    Process 0 is ``y = cos(πx/2) exp(−(x/2)²)`` plus normal noise, process 1 the outliers, uniform
    on [−1, 3]; x is uniform on [−3, 3]. ``y_test`` of shape (n_test,) is the signal.

    Parameters
    ----------
    outliers : float, default=0.4
        Probability of an outlier.
    noise : float, default=0.15
        Standard deviation of the noise: 0.15 in the text of the paper, 0 in its published table.
    n, n_test : int, default=1000
    random_state : int, Generator, RandomState or None, default=None
        As in every data set of `dagp.datasets`.

    Examples
    --------
    >>> data = noise_separation(outliers=0.2, random_state=0)
    >>> data.X.shape, data.y.shape, sorted(set(data.process.tolist()))
    ((1000, 1), (1000,), [0, 1])
    """
    if not 0 <= outliers <= 1:
        raise ValueError(f"outliers must be a share between 0 and 1, got {outliers}.")
    rng = as_random_state(random_state)

    def signal(x: np.ndarray) -> np.ndarray:
        return np.cos(np.pi * x / 2) * np.exp(-((x / 2) ** 2))

    x = rng.uniform(-3, 3, n)
    process = (rng.uniform(size=n) < outliers).astype(int)
    y = np.where(process == 1, rng.uniform(-1, 3, n), signal(x) + noise * rng.standard_normal(n))
    grid = np.linspace(-3, 3, n_test)
    return one_input(x, y, process, grid, signal(grid))


def multimodal(
    noise: float = 0.005,
    offset: float | None = None,
    n: int = 350,
    n_test: int = 1000,
    random_state: RandomState = None,
) -> Dataset:
    """Three functions observed at the same inputs; two of them coincide in places.

    Parameters
    ----------
    noise : float, default=0.005
        Standard deviation of the noise: 0.005 in the text of the paper, 0.05 in its figure.
    offset : float, default=None
        Level of the third function; None is −1 for ``noise < 0.05`` (text), else −2.25 (figure).
    n : int, default=350
        Number of inputs, each observed once per function: 3·n rows.
    n_test : int, default=1000
    random_state : int, Generator, RandomState or None, default=None
        As in every data set of `dagp.datasets`.

    Examples
    --------
    >>> multimodal(random_state=0).X.shape
    (1050, 1)
    """
    rng = as_random_state(random_state)
    level = offset if offset is not None else (-1.0 if noise < 0.05 else -2.25)

    def functions(x: np.ndarray) -> np.ndarray:
        first = np.sin(x)
        second = np.sin(x) - 2 * np.exp(-((x - 2) ** 2) / 2)
        third = level - 3 * x / (8 * np.pi) + 0.3 * np.sin(2 * x)
        return np.stack([first, second, third], axis=1)

    x = rng.uniform(-2 * np.pi, 2 * np.pi, n)
    y = functions(x) + noise * rng.standard_normal((n, 3))
    grid = np.linspace(-2 * np.pi, 2 * np.pi, n_test)
    process = np.repeat(np.arange(3), n)
    return one_input(np.tile(x, 3), y.T.ravel(), process, grid, functions(grid))


_POLES = {"default": (0.1, 0.5), "short": (0.05, 0.05)}
"""Mass and half-length of the pole."""


def cartpole(
    system: System = "mixed",
    n: int = 500,
    n_test: int = 5000,
    noise: float = 0.1,
    wrap_angle: bool = True,
    random_state: RandomState = None,
) -> Dataset:
    """Transitions of two cart-pole systems with different poles.

    A row is the state before an action (cart position and velocity, pole angle and velocity) and
    the action; the output is the change of the pole angle while the action is held for five steps.
    Process 0 is the default pole, 1 the short one, also in ``process_test`` of the noisy test rows.

    Parameters
    ----------
    system : {"mixed", "default", "short"}, default="mixed"
        Which poles: both, or one of them.
    n, n_test : int, default=500 and 5000
        Number of training and of test rows per system.
    wrap_angle : bool, default=True
        Whether angles are wrapped to [−π, π).
    noise : float, default=0.1
    random_state : int, Generator, RandomState or None, default=None
        As in every data set of `dagp.datasets`.

    Examples
    --------
    >>> data = cartpole("default", n=50, n_test=10, random_state=0)
    >>> data.X.shape, data.X_test.shape
    ((50, 5), (10, 5))
    """
    if system not in ("mixed", *_POLES):
        raise ValueError(f"system must be 'mixed', 'default' or 'short', got {system!r}.")
    rng = as_random_state(random_state)
    names = tuple(_POLES) if system == "mixed" else (system,)

    def draw(count: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        parts = [_transitions(*_POLES[name], count, wrap_angle, rng) for name in names]
        X, turn = (np.concatenate(column) for column in zip(*parts, strict=True))
        process = np.repeat([list(_POLES).index(name) for name in names], count)
        return X, turn + noise * rng.standard_normal(len(turn)), process

    X, y, process = draw(n)
    X_test, y_test, process_test = draw(n_test)
    return Dataset(
        X=X,
        y=y,
        process=process,
        X_test=X_test,
        y_test=y_test,
        process_test=process_test,
        feature_names=["position", "velocity", "angle", "angular_velocity", "action"],
        target_names=["turn"],
    )


class CartPole:
    """The true cart-poles: what a force does to cart and pole.

    Parameters
    ----------
    hold : int, default=5
        Steps of 0.02 s for which an action is held.

    Examples
    --------
    >>> pole = CartPole()
    >>> pole.step([[0.0, 0.0, 0.1, 0.0]], [[0.0]], "default").shape
    (1, 4)
    """

    def __init__(self, hold: int = 5):
        self.hold = hold

    def step(self, states: Any, actions: Any, system: str = "default") -> np.ndarray:
        """States (N, 4) after an action; angles go on beyond ±π.

        Parameters
        ----------
        states : array-like of shape (N, 4)
            Cart position and velocity, pole angle and velocity.
        actions : array-like of shape (N, 1)
            Between −1 and 1, of 10 N.
        system : {"default", "short"}, default="default"
        """
        if system not in _POLES:
            raise ValueError(f"system must be 'default' or 'short', got {system!r}.")
        state = np.asarray(states, np.float64).T
        force = 10.0 * np.asarray(actions, np.float64)[:, 0]
        for _ in range(self.hold):
            state = _euler_step(state, force, *_POLES[system])
        return state.T


def _transitions(
    pole_mass: float, half_length: float, count: int, wrap_angle: bool, rng: np.random.RandomState
) -> tuple[np.ndarray, np.ndarray]:
    """Transitions of trajectories of ten actions, each held for five Euler steps."""
    actions_each, hold = 10, 5
    trajectories = -(-count // actions_each)
    state = rng.uniform(-0.05, 0.05, (4, trajectories))
    rows, turns = [], []
    for _ in range(actions_each):
        action = rng.uniform(-1, 1, trajectories)
        before = state.copy()
        for _ in range(hold):
            state = _euler_step(state, 10.0 * action, pole_mass, half_length)
        turns.append(state[2] - before[2])
        if wrap_angle:
            before[2] = (before[2] + np.pi) % (2 * np.pi) - np.pi
        rows.append(np.vstack([before, action]))
    X = np.stack(rows, axis=-1).transpose(1, 2, 0).reshape(-1, 5)
    return X[:count], np.stack(turns, axis=-1).reshape(-1)[:count]


def _euler_step(
    state: np.ndarray, force: np.ndarray, pole_mass: float, half_length: float
) -> np.ndarray:
    """One explicit Euler step of the cart-pole equations (Barto, Sutton and Anderson 1983)."""
    gravity, cart_mass, tau = 9.8, 1.0, 0.02
    _, velocity, angle, turning = state
    total = cart_mass + pole_mass
    sin, cos = np.sin(angle), np.cos(angle)
    push = (force + pole_mass * half_length * turning**2 * sin) / total
    inertia = half_length * (4.0 / 3.0 - pole_mass * cos**2 / total)
    turn_acceleration = (gravity * sin - cos * push) / inertia
    acceleration = push - pole_mass * half_length * turn_acceleration * cos / total
    return state + tau * np.stack([velocity, acceleration, turning, turn_acceleration])
