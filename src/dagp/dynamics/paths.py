"""Roll-outs for users: checked, in NumPy arrays, also for policies that are not JAX functions."""

from collections.abc import Iterable
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

import equinox as eqx
import jax
import numpy as np
from sklearn.utils.validation import check_is_fitted

from dagp.core.precision import numerics
from dagp.core.programs import program
from dagp.core.random import as_random_state
from dagp.core.threads import concurrently, free_cores
from dagp.core.typing import Array, Float, Int, RandomState
from dagp.dynamics import checks
from dagp.dynamics.policy import Call, Policy
from dagp.dynamics.rollout import Act, Steps, advance, simulate
from dagp.dynamics.steps import Dynamics, ModelDynamics, States

if TYPE_CHECKING:
    from dagp.dynamics.transition import TransitionModel

_BATCH = 250
"""Most trajectories of a batch."""


@dataclass(frozen=True)
class Rollout:
    """Trajectories of a model under a policy.

    Attributes
    ----------
    states : ndarray of shape (n_samples, T + 1, S), or (n_samples, B, T + 1, S) for B starts
        The start is the first.
    actions : ndarray of shape (n_samples, …, T, A)
    regimes : ndarray of int of shape (n_samples, …, T)
        The regime of each step.
    probabilities : ndarray of shape (n_samples, …, T, K)
        Probability of each regime at each step, given the state and the action; if it is drawn for
        a whole trajectory, the probabilities of that draw.
    outside : ndarray of shape (n_samples, …, T)
        How far state or action lie outside of the range of the training data, in widths of that
        range; 0 inside.

    Examples
    --------
    >>> import numpy as np
    >>> from dagp import DAGP
    >>> from dagp.dynamics import TransitionModel
    >>> x = np.linspace(0, 1, 20)[:, None]
    >>> model = TransitionModel(DAGP(1, n_init=1, tol=1e-1, random_state=0)).fit(x, None, x / 2)
    >>> model.rollout(None, [0.5], horizon=2, n_samples=10).regime_probabilities().shape
    (2, 1)
    """

    states: Float[np.ndarray, "*batch T1 S"]
    actions: Float[np.ndarray, "*batch T A"]
    regimes: Int[np.ndarray, "*batch T"]
    probabilities: Float[np.ndarray, "*batch T K"]
    outside: Float[np.ndarray, "*batch T"]

    def regime_probabilities(self) -> Float[np.ndarray, "*B T K"]:
        """Probability of each regime at each step, (T, K) or (B, T, K): mean over the samples."""
        return self.probabilities.mean(axis=0)

    def quantile(self, q: Any) -> np.ndarray:
        """Quantiles of the states over the samples.

        Parameters
        ----------
        q : float or array-like of shape (Q,)

        Returns
        -------
        ndarray of shape (…, T + 1, S), or (Q, …, T + 1, S)
        """
        return np.quantile(self.states, q, axis=0)


@partial(program, emitters=True)
def _compiled(
    dynamics: Dynamics,
    act: Act,
    parameters: Any,
    start: States,
    seed: Any,
    times: Int[Array, " T"],
    kept: Int[Array, " N"] | None,
) -> Steps:
    key = jax.random.key(seed)
    return simulate(dynamics, act, parameters, start, len(times), key, kept=kept)


@eqx.filter_jit
def begin_paths(dynamics: Dynamics, key: Array, count: int) -> Any:
    """What is drawn once for each trajectory, compiled."""
    return dynamics.begin(key, count)


@eqx.filter_jit
def one_step(
    dynamics: Dynamics, drawn: Any, states: States, actions: Array, key: Array, kept: Any = None
) -> Steps:
    """One step of every trajectory, compiled; see `advance`."""
    return advance(dynamics, drawn, states, actions, key, kept=kept)


@eqx.filter_jit
def _moments(dynamics: ModelDynamics, states: States, actions: Array) -> Any:
    return dynamics.moments(states, actions)


def next_moments(
    model: "TransitionModel", states: np.ndarray, actions: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """As `TransitionModel.predict`."""
    dynamics = model.dynamics()
    with numerics():
        mean, variance = _moments(dynamics, states, actions)
        return np.asarray(mean), np.sqrt(np.asarray(variance))


def _no_action(parameters: Any, state: Any) -> Any:
    return state[:0]


def key_of(random_state: RandomState) -> Array:
    """A key of JAX from a random state."""
    return jax.random.key(int(as_random_state(random_state).randint(2**31 - 1)))


def roll_out(
    model: "TransitionModel",
    policy: Any,
    start: Any,
    horizon: int,
    n_samples: int,
    random_state: RandomState,
    functions: Any,
    regimes: Any,
) -> Rollout:
    """As `TransitionModel.rollout`."""
    check_is_fitted(model, "model_")
    horizon, n_samples = checks.whole("horizon", horizon), checks.whole("n_samples", n_samples)
    begin = np.asarray(start, np.float64)
    states = checks.table("start", np.atleast_2d(begin), model.n_states_)
    checks.inside("start", states, *checks.interval("bounds", model.bounds, model.n_states_))
    if policy is None:
        if model.n_actions_:
            raise ValueError(f"This model has {model.n_actions_} actions: policy must not be None.")
        policy = Policy(_no_action, ())
    many = np.repeat(states, n_samples, axis=0)
    rng = as_random_state(random_state)
    chances = _chances(regimes, model, len(states))
    kept = None if chances is None else _drawn_once(np.repeat(chances, n_samples, axis=0), rng)
    dynamics, batches = model.dynamics(functions), _Batches.of(len(many), rng)
    steps: Any
    with numerics():
        if isinstance(policy, Policy):
            _check_width(policy, states[0], model.n_actions_)
            steps = _with_program(dynamics, policy, many, batches, horizon, kept)
        else:
            steps = _with_numpy(dynamics, policy, many, batches, horizon, kept, model)
    checks.actions(steps.actions, steps.states, *model.action_bounds_.T)
    X = np.concatenate([steps.states, steps.actions], axis=2)
    outside = checks.tell_outside(model.range_.beyond(X), model.n_states_)
    if chances is not None:
        steps = steps._replace(weights=_at_every_step(chances, n_samples, horizon))
    final = np.concatenate([steps.states, steps.next_states[-1:]])

    def arranged(part: np.ndarray) -> np.ndarray:
        split = np.moveaxis(part, 0, 1).reshape(len(states), n_samples, len(part), *part.shape[2:])
        split = np.swapaxes(split, 0, 1)
        return split[:, 0] if begin.ndim == 1 else split

    parts = (final, steps.actions, steps.regimes, steps.weights, outside)
    return Rollout(*map(arranged, parts))


def _chances(regimes: Any, model: "TransitionModel", starts: int) -> np.ndarray | None:
    """Probabilities (B, K) of the regime of a whole trajectory; None: it is drawn at every step."""
    if isinstance(regimes, str):
        if regimes not in ("step", "trajectory"):
            raise ValueError(
                f'regimes must be "step", "trajectory" or probabilities, got {regimes!r}.'
            )
        if regimes == "step":
            return None
        # The gate counts rows. A machine that lingers at a state has more of them there, which
        # says nothing about which machine a trajectory that begins there belongs to.
        regimes = [process.share_ for process in model.model_.processes_]
    given = np.asarray(regimes, np.float64)
    count = model.n_regimes_
    if given.shape not in ((count,), (starts, count)):
        raise ValueError(
            f"regimes must be probabilities of shape {(count,)} or {(starts, count)}, one per "
            f"regime and perhaps start, got {given.shape}."
        )
    total = given.sum(axis=-1, keepdims=True)
    if not np.all(np.isfinite(given)) or np.any(given < 0) or np.any(total <= 0):
        raise ValueError("regimes must be probabilities: not negative, not all zero, and finite.")
    return np.broadcast_to(given / total, (starts, count))


def _drawn_once(chances: Float[np.ndarray, "N K"], rng: np.random.RandomState) -> np.ndarray:
    """A regime for every trajectory."""
    above = rng.uniform(size=(len(chances), 1)) > np.cumsum(chances, axis=1)[:, :-1]
    return above.sum(axis=1)


def _at_every_step(chances: np.ndarray, n_samples: int, horizon: int) -> np.ndarray:
    many = np.repeat(chances, n_samples, axis=0)
    return np.broadcast_to(many, (horizon, *many.shape))


def _check_width(policy: Policy, state: np.ndarray, n_actions: int) -> None:
    found = jax.eval_shape(policy.function, policy.parameters, state)
    if getattr(found, "shape", None) != (n_actions,):
        raise ValueError(
            f"The policy must return {n_actions} actions for a state, got "
            f"{getattr(found, 'shape', type(found).__name__)}."
        )


class _Batches(NamedTuple):
    """Trajectories in batches, each with draws of its own, on whichever core.

    On a CPU, several cores compute them at once; on an accelerator, all are one batch.
    """

    total: int
    rows: Int[np.ndarray, "B N"]
    """Trajectories of each batch; the last is filled up, so that all need the same program."""
    seeds: Int[np.ndarray, " B"]

    @staticmethod
    def of(count: int, rng: np.random.RandomState) -> "_Batches":
        batches = -(-count // _BATCH) if jax.default_backend() == "cpu" else 1
        size = -(-count // batches)
        rows = np.minimum(np.arange(batches * size), count - 1).reshape(batches, size)
        return _Batches(count, rows, rng.randint(2**31 - 1, size=batches).astype(np.uint32))

    def joined(self, found: Iterable[Steps], axis: int) -> Steps:
        """Results of all batches; `axis` is that of the trajectories."""

        def join(*parts: Any) -> np.ndarray:
            return np.take(np.concatenate(parts, axis), np.arange(self.total), axis)

        return jax.tree.map(join, *found)


def _of(kept: np.ndarray | None, rows: np.ndarray) -> np.ndarray | None:
    return None if kept is None else kept[rows]


def _with_program(
    dynamics: Dynamics,
    policy: Policy,
    start: np.ndarray,
    batches: _Batches,
    horizon: int,
    kept: np.ndarray | None,
) -> Steps:
    """As `simulate`, in batches."""
    act, times = Call.of(policy.function), np.arange(horizon)

    def run(batch: tuple[np.ndarray, Any]) -> Steps:
        rows, seed = batch
        given = (policy.parameters, start[rows], seed, times, _of(kept, rows))
        steps = _compiled(dynamics, act, *given)
        return jax.tree.map(np.asarray, steps)

    each = list(zip(batches.rows, batches.seeds, strict=True))
    return batches.joined(concurrently(run, each, free_cores()), axis=1)


def _with_numpy(
    dynamics: Dynamics,
    policy: Any,
    start: np.ndarray,
    batches: _Batches,
    horizon: int,
    kept: np.ndarray | None,
    model: "TransitionModel",
) -> Steps:
    """The same step by step, with actions from a NumPy function."""
    keys = [jax.random.split(jax.random.key(seed)) for seed in batches.seeds]
    drawn = [begin_paths(dynamics, begin, batches.rows.shape[1]) for begin, _ in keys]
    keys = [jax.random.split(step, horizon) for _, step in keys]
    states, found = start, []
    for t in range(horizon):
        actions = np.asarray(policy(states), np.float64)
        if actions.shape != (len(start), model.n_actions_):
            raise ValueError(
                f"The policy must return actions of shape {(len(start), model.n_actions_)} for "
                f"states of shape {states.shape}, got {actions.shape}."
            )
        checks.actions(actions[None], states[None], *model.action_bounds_.T)
        parts = [
            one_step(dynamics, own, states[rows], actions[rows], key[t], _of(kept, rows))
            for own, rows, key in zip(drawn, batches.rows, keys, strict=True)
        ]
        found.append(batches.joined(parts, axis=0))
        states = found[-1].next_states
    return Steps(*(np.stack(parts) for parts in zip(*found, strict=True)))
