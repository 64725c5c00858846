"""Plots of roll-outs: fans of trajectories, and maps of the probability of a regime."""

from typing import TYPE_CHECKING, Any

import numpy as np
from matplotlib import pyplot as plt
from matplotlib.axes import Axes
from matplotlib.collections import LineCollection
from matplotlib.lines import Line2D
from matplotlib.ticker import MaxNLocator

from dagp.plot.processes import colour

if TYPE_CHECKING:
    from dagp.dynamics.paths import Rollout
    from dagp.dynamics.transition import TransitionModel

_MOST = 200
"""Trajectories that are drawn; more of them hide each other."""
_GRID = 60


def fan(
    rollout: "Rollout",
    state: int = 0,
    *,
    level: float = 0.9,
    name: str | None = None,
    ax: Axes | None = None,
) -> Axes:
    """Fan of trajectories of one state, each step in the colour of its regime.

    Lines mark the median and the central region of the samples.

    Parameters
    ----------
    rollout : Rollout
        Of one start.
    state : int, default=0
        The state on the y axis.
    level : float, default=0.9
        Probability of the region.
    name : str, default=None
        Label of the y axis.
    ax : matplotlib.axes.Axes, default=None
    """
    if rollout.regimes.ndim != 2:
        raise ValueError("A fan shows the trajectories of one start; this roll-out has several.")
    ax = ax or plt.gca()
    paths = rollout.states[:_MOST, :, state]
    time = np.arange(paths.shape[1])
    points = np.stack([np.broadcast_to(time, paths.shape), paths], axis=-1)
    segments = np.stack([points[:, :-1], points[:, 1:]], axis=2).reshape(-1, 2, 2)
    owners = rollout.regimes[:_MOST].ravel()
    faint = min(1.0, 12 / len(paths) + 0.08)
    shades = [colour(int(k)) for k in owners]
    ax.add_collection(LineCollection(list(segments), colors=shades, lw=0.8, alpha=faint))
    ends = rollout.quantile([0.5 - level / 2, 0.5, 0.5 + level / 2])[..., state]
    for quantile, style in zip(ends, (":", "-", ":"), strict=True):
        ax.plot(time, quantile, color="black", ls=style, lw=1.2)
    ax.autoscale_view()
    ax.set(xlabel="step", ylabel=name or f"state {state}", xlim=(0, time[-1]))
    ax.xaxis.set_major_locator(MaxNLocator(integer=True))
    marks = [
        Line2D([], [], color=colour(int(k)), label=f"regime {k}")
        for k in np.unique(rollout.regimes)
    ]
    place = {"loc": "lower right", "bbox_to_anchor": (1, 1), "ncols": 4}
    ax.legend(handles=marks, **place, fontsize="small", frameon=False)
    return ax


def hazard(
    model: "TransitionModel",
    regime: int,
    *,
    states: tuple[int, int] = (0, 1),
    policy: Any = None,
    at: Any = None,
    ax: Axes | None = None,
) -> Axes:
    """Map of the probability of a regime over two states.

    Parameters
    ----------
    model : fitted TransitionModel
    regime : int
    states : tuple of two int, default=(0, 1)
        The states on the x and the y axis.
    policy : callable or array-like of shape (A,), default=None
        The actions: a function of states (n, S), such as a `Policy`, or one action everywhere; None
        is the middle of the allowed actions.
    at : array-like of shape (S,), default=None
        Values of the other states; None is the middle of the training data.
    ax : matplotlib.axes.Axes, default=None
    """
    if not 0 <= regime < model.n_regimes_:
        raise ValueError(f"There is no regime {regime}; this model has {model.n_regimes_}.")
    ax = ax or plt.gca()
    low, high = model.range_
    middle = (low + high)[: model.n_states_] / 2 if at is None else np.asarray(at, float)
    first, second = (np.linspace(low[c], high[c], _GRID) for c in states)
    rows = np.tile(middle, (_GRID * _GRID, 1))
    across, up = np.meshgrid(first, second)
    rows[:, states[0]], rows[:, states[1]] = across.ravel(), up.ravel()
    if callable(policy):
        actions = np.asarray(policy(rows))
    else:
        one = model.action_bounds_.mean(axis=1) if policy is None else np.asarray(policy, float)
        actions = np.tile(one, (len(rows), 1))
    levels = model.predict_regimes(rows, actions)[:, regime].reshape(across.shape)
    drawn = ax.pcolormesh(first, second, levels, vmin=0, vmax=1, cmap="magma_r", shading="gouraud")
    ax.figure.colorbar(drawn, ax=ax, label=f"probability of regime {regime}")
    ax.set(xlabel=f"state {states[0]}", ylabel=f"state {states[1]}")
    return ax
