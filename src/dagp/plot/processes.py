"""Plots of data, processes, assignments, gate and search."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import narwhals as nw
import numpy as np
from scipy.special import ndtr

try:
    import matplotlib.pyplot as plt
    from matplotlib.axes import Axes
    from matplotlib.collections import LineCollection, PolyCollection
    from matplotlib.colors import to_rgb
    from matplotlib.lines import Line2D
except ModuleNotFoundError as missing:  # pragma: no cover
    raise ModuleNotFoundError(
        "Plots need matplotlib: pip install 'dagp[plot]'.", name=missing.name
    ) from missing

from dagp.core.text import shown
from dagp.describe.observations import input_names, observations

if TYPE_CHECKING:
    from dagp.estimator import DAGP
    from dagp.predict.mixture import Mixture

# The Okabe–Ito palette, with black last because it suggests "no process".
PALETTE = ("#0072B2", "#E69F00", "#009E73", "#CC79A7", "#56B4E9", "#D55E00", "#F0E442", "#000000")
_GRID = 400
_BAND = 2.0
"""Half-width of the shaded band in standard deviations."""


def colour(process: int) -> str:
    """The colour of a process, as ``"#rrggbb"``.

    Parameters
    ----------
    process : int
        Index of the process; colours repeat after eight.

    Examples
    --------
    >>> colour(0)
    '#0072B2'
    """
    return PALETTE[process % len(PALETTE)]


def data(
    X: Any, y: Any, process: Any = None, *, column: int = 0, output: int = 0, ax: Axes | None = None
) -> Axes:
    """Scatter plot of the points, coloured by their process where it is known.

    Parameters
    ----------
    X, y : table of shape (N, D), array of shape (N,) or (N, P)
        Inputs and outputs; points with a missing coordinate are left out.
    process : array of int of shape (N,), default=None
        Process of each point; -1, or None for all, is unknown and grey.
    column, output : int, default=0
    ax : matplotlib.axes.Axes, default=None
    """
    ax = ax or plt.gca()
    # Matplotlib leaves out points with a missing coordinate.
    x, level = _column(X, column), _column(y, output)
    process = np.full(len(x), -1) if process is None else np.asarray(process)
    for k in np.unique(process):
        at, shade = process == k, colour(int(k)) if k >= 0 else "0.45"
        label = f"process {k}" if k >= 0 else None
        ax.scatter(x[at], level[at], s=6, color=shade, alpha=0.7, linewidths=0, label=label)
    ax.set(xlabel=_name(X, column, "x"), ylabel=_name(y, output, "y"))
    return ax


def posterior(
    model: "DAGP",
    X: Any = None,
    y: Any = None,
    *,
    column: int = 0,
    output: int = 0,
    margin: float = 0.05,
    ax: Axes | None = None,
) -> Axes:
    """Predictive mean of every used process with a band of two standard deviations, or with
    heavy-tailed noise of the same probability.

    Opacity follows the weight of the process in the gate. Unused processes are in the legend only.

    Parameters
    ----------
    model : fitted DAGP
    X, y : as for `data`, default=None
        Points in the background.
    column, output : int, default=0
    margin : float, default=0.05
    ax : matplotlib.axes.Axes, default=None
    """
    ax = ax or plt.gca()
    grid, rows = _sweep(model, column, margin)
    mixture = model.posterior_.mixture(rows, flat=False)
    level = np.empty(0)
    if X is not None and y is not None:
        # In the background even where the model would not take them: they are only drawn.
        seen = observations(model, X, y, finite=False)
        level = seen.y[:, output]
        ax.scatter(seen.X[:, column], level, s=4, color="0.6", linewidths=0, zorder=1)
        level = level[~np.isnan(level)]
    for k in np.flatnonzero(model.active_).tolist():
        alone = mixture.marginal(k)
        mean, std = alone.mean()[:, output], _spread(model, alone, k)[:, output]
        _faded(ax, grid, mean, std, _weight(mixture, k), colour(k))
    ax.autoscale_view()
    if level.size:
        # Limited to the neighbourhood of the data: a process may extrapolate far.
        low, high = ax.get_ylim()
        reach = 0.25 * (level.max() - level.min())
        if reach > 0:
            ax.set_ylim(max(low, level.min() - reach), min(high, level.max() + reach))
    ax.set(xlabel=_label(model, X, column), ylabel=_name(y, output, _target(model, output)))
    _legend(ax, _lines(model, ax))
    return ax


def assignment(
    model: "DAGP", X: Any, y: Any, *, column: int = 0, output: int = 0, ax: Axes | None = None
) -> Axes:
    """Scatter plot of the points, coloured by their most probable process.

    Opacity follows the responsibility of that process.

    Parameters
    ----------
    model : fitted DAGP
    X, y : as for `data`
    column, output : int, default=0
    ax : matplotlib.axes.Axes, default=None
    """
    ax = ax or plt.gca()
    seen = observations(model, X, y)
    found = model.posterior_.mixture(seen.X, flat=False).responsibilities(seen.y)
    owner, sure = found.argmax(axis=1), np.clip(found.max(axis=1), 0.25, 1.0)
    shades = np.array([(*to_rgb(colour(k)), s) for k, s in zip(owner, sure, strict=True)])
    # A row may lack this output and have others.
    there = ~np.isnan(seen.y[:, output])
    points = seen.X[there, column], seen.y[there, output]
    ax.scatter(*points, s=6, c=shades[there], linewidths=0)
    ax.set(xlabel=_label(model, X, column), ylabel=_name(y, output, _target(model, output)))
    return ax


def gate(model: "DAGP", *, column: int = 0, margin: float = 0.05, ax: Axes | None = None) -> Axes:
    """Gate: probability of each process along one input; unused processes dotted.

    Parameters
    ----------
    model : fitted DAGP
    column : int, default=0
    margin : float, default=0.05
    ax : matplotlib.axes.Axes, default=None
    """
    ax = ax or plt.gca()
    _legend(ax, _gate(model, column, margin, ax))
    return ax


def overview(
    model: "DAGP",
    X: Any,
    y: Any,
    *,
    column: int = 0,
    output: int = 0,
    ax: Sequence[Axes] | np.ndarray | None = None,
) -> Sequence[Axes]:
    """Joint posterior, assignments and gate, one above the other.

    Parameters
    ----------
    model : fitted DAGP
    X, y : as for `data`
    column, output : int, default=0
    ax : sequence of three matplotlib.axes.Axes, default=None
        A new figure if None.
    """
    panels: Any = ax
    if panels is None:
        _, panels = plt.subplots(
            3, 1, figsize=(8, 9), sharex=True, height_ratios=(3, 3, 1.5), layout="constrained"
        )
    top, middle, bottom = panels
    posterior(model, X, y, column=column, output=output, ax=top)
    assignment(model, X, y, column=column, output=output, ax=middle)
    # The legend of the first is that of all three.
    _gate(model, column, 0.05, bottom)
    for axes, title in ((top, "joint posterior"), (middle, "assignment"), (bottom, "gate")):
        axes.set_title(title, loc="left", fontsize="medium")
    top.set_xlabel("")
    middle.set_xlabel("")
    return panels


def bound(model: "DAGP", *, ax: Axes | None = None) -> Axes:
    """ELBO during training, and where the other starts of the search ended.

    Parameters
    ----------
    model : fitted DAGP
    ax : matplotlib.axes.Axes, default=None
    """
    ax = ax or plt.gca()
    trace = model.lower_bounds_
    ax.plot(np.arange(1, len(trace) + 1), trace, color=colour(0), lw=1.5, label="kept start")
    others = [row for row in model.restarts_ if not row["kept"]]
    if others:
        steps, ends = zip(*((row["steps"], row["bound"]) for row in others), strict=True)
        ax.scatter(steps, ends, s=12, color=colour(1), label="other starts", zorder=3)
    # The ELBO of the first steps is far lower and would dominate the scale.
    low, high = np.quantile(trace, 0.05), trace.max()
    if high > low:
        ax.set_ylim(low - 0.5 * (high - low), high + 0.1 * (high - low))
    ax.set(xlabel="step", ylabel="ELBO")
    ax.legend(loc="lower right", fontsize="small")
    return ax


def restarts(model: "DAGP", *, ax: Axes | None = None) -> Axes:
    """The race of the starts: distance of each from the best ELBO, at every rung.

    Parameters
    ----------
    model : fitted DAGP
    ax : matplotlib.axes.Axes, default=None
    """
    ax = ax or plt.gca()
    best = model.restarts_[0]["bound"]
    for row in reversed(model.restarts_):
        # Logarithmic distance to the best: differences matter most where it is small.
        below = np.maximum(best - np.array(row["rungs"]), 1.0)
        shade = colour(0) if row["kept"] else "0.6"
        ax.plot(np.arange(1, len(below) + 1), below, "o-", color=shade, ms=4, lw=1.5)
        end, tint = (len(below), below[-1]), shade if row["kept"] else "0.4"
        place = {"xytext": (5, 0), "textcoords": "offset points", "va": "center"}
        ax.annotate(row["kind"], end, **place, fontsize="small", color=tint)
    ax.set_yscale("log")
    ax.invert_yaxis()
    rungs = max(len(row["rungs"]) for row in model.restarts_)
    ax.set(xlabel="rung", ylabel="ELBO below the best", xlim=(0.8, rungs + 0.7))
    ax.set_xticks(range(1, rungs + 1))
    return ax


def _gate(model: "DAGP", column: int, margin: float, ax: Axes) -> list[Line2D]:
    grid, rows = _sweep(model, column, margin)
    ax.set(xlabel=_label(model, None, column), ylabel="gate weight", ylim=(-0.02, 1.02))
    return _lines(model, ax, grid, model.posterior_.gate(rows))


def _lines(
    model: "DAGP", ax: Axes, x: np.ndarray | None = None, levels: np.ndarray | None = None
) -> list[Line2D]:
    """One labelled line per process, dotted and thin if it is unused; empty without `x`."""
    lines: list[Line2D] = []
    for k, process in enumerate(model.processes_):
        used = bool(model.active_[k])
        style = {"lw": 2, "ls": "-"} if used else {"lw": 1, "ls": ":"}
        label = f"process {k} ({process.kind}, {f'{process.share_:.0%}' if used else 'unused'})"
        points = ([], []) if x is None or levels is None else (x, levels[:, k])
        lines += ax.plot(*points, color=colour(k), label=label, **style)
    return lines


def _legend(ax: Axes, entries: list[Line2D]) -> None:
    """A legend above the axes, where it covers no data."""
    place = {"loc": "lower right", "bbox_to_anchor": (1, 1), "ncols": 3}
    ax.legend(handles=entries, **place, fontsize="small", frameon=False)


def _weight(mixture: "Mixture", k: int) -> np.ndarray:
    """Weight of a process, which may have several components."""
    own = [c for c, owner in enumerate(mixture.owner) if owner == k]
    return mixture.weights[:, own].sum(axis=1)


def _column(table: Any, index: int) -> np.ndarray:
    """One column of a table; numbers as float64, NaN where a cell is missing."""
    frame = nw.from_native(table, pass_through=True, allow_series=True)
    if isinstance(frame, nw.DataFrame):
        frame = frame[:, index]
    if isinstance(frame, nw.Series):
        numeric = frame.dtype.is_numeric()
        return np.asarray((frame.cast(nw.Float64) if numeric else frame).to_numpy())
    array = np.asarray(table)
    return array if array.ndim == 1 else array[:, index]


def _name(table: Any, index: int, default: str) -> str:
    frame = nw.from_native(table, pass_through=True, allow_series=True)
    if isinstance(frame, nw.DataFrame):
        return shown(frame.columns[index])
    return shown(getattr(frame, "name", None) or default)


def _label(model: "DAGP", X: Any, column: int) -> str:
    known = input_names(model, X)
    return "x" if known is None else shown(known[column])


def _target(model: "DAGP", output: int) -> str:
    return shown(model.target_names_[output]) if model.target_names_ else "y"


def _sweep(model: "DAGP", column: int, margin: float) -> tuple[np.ndarray, np.ndarray]:
    """A grid along one input, and rows with all other inputs at the middle of their range."""
    low, high = model.extent_
    reach = margin * (high[column] - low[column])
    grid = np.linspace(low[column] - reach, high[column] + reach, _GRID)
    return grid, model.columns_.along((low + high) / 2, column, grid)


def _spread(model: "DAGP", alone: "Mixture", k: int) -> np.ndarray:
    """Half the height of the band of a process, in units of `_BAND`."""
    if model.processes_[k].noise_ == "gaussian":
        return np.sqrt(alone.variance())
    # Heavy tails may have no standard deviation.
    low, high = alone.interval(1 - 2 * float(ndtr(-_BAND)))
    return (high - low) / (2 * _BAND)


def _faded(
    ax: Axes, x: np.ndarray, mean: np.ndarray, std: np.ndarray, weight: np.ndarray, shade: str
) -> None:
    """A line with a band, drawn in segments so that opacity can follow the weight."""
    likely = np.clip((weight[1:] + weight[:-1]) / 2, 0.0, 1.0)
    # The square root keeps a rare process visible.
    strong, pale = (
        [(*to_rgb(shade), a) for a in power] for power in (likely**0.5, 0.3 * likely**0.7)
    )
    line = np.stack([x, mean], axis=1)
    segments = np.stack([line[:-1], line[1:]], axis=1)
    ax.add_collection(LineCollection(list(segments), colors=strong, lw=2))
    low, high = (np.stack([x, mean + s * _BAND * std], axis=1) for s in (-1, 1))
    pieces = np.stack([low[:-1], low[1:], high[1:], high[:-1]], axis=1)
    ax.add_collection(PolyCollection(list(pieces), facecolors=pale, edgecolors="none"))
