"""Summary of a fitted model as text and HTML tables."""

import html as _html
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
from scipy.special import ndtri

from dagp.core.text import shown
from dagp.tables.kinds import Category

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from dagp.estimator import DAGP
    from dagp.model.kernel import Kernel
    from dagp.model.parameters import Parameter
    from dagp.predict.process import FittedProcess
    from dagp.tables.columns import Columns

COLUMNS = ("process", "kind", "share", "noise std", "where", "function")
LEVEL = 0.95
"""Probability of the intervals of noise levels, length scales and standard deviations."""
START_COLUMNS = ("start", "ELBO", "ELBO at each rung", "steps", "fate", "moves (ELBO gain)")


def rows(model: "DAGP") -> list[tuple[str, ...]]:
    """One row of text per process, in the order of `COLUMNS`."""
    return [
        (
            str(process.index) + ("" if model.active_[process.index] else " (unused)"),
            process.kind,
            f"{process.share_:.1%}",
            ", ".join(_with_interval(process.noise_std_, stds.get("noise_std"))) + _tails(process),
            _where(model, process),
            "" if process.kernel_ is None else _function(process.kernel_, model.columns_, stds),
        )
        for process, stds in zip(model.processes_, model.log_stds_, strict=True)
    ]


def _with_interval(values: np.ndarray, log_stds: np.ndarray | None) -> list[str]:
    """Numbers with the 95 % interval of each, if the standard deviations of their logarithms are
    known.

    >>> _with_interval(np.array([2.0]), np.array([0.1]))
    ['2 (1.64–2.43)']
    """
    values = np.ravel(values)
    if log_stds is None or len(log_stds) != len(values):
        return list(map(digits, values))
    factors = np.exp(ndtri(0.5 + LEVEL / 2) * log_stds)
    return [
        f"{digits(value)} ({digits(value / factor)}–{digits(value * factor)})"
        for value, factor in zip(values, factors, strict=True)
    ]


def _tails(process: "FittedProcess") -> str:
    """Heavy tails of the noise, in words."""
    if process.degrees_ is not None:
        return f" (Student-t, {digits(process.degrees_)} degrees of freedom)"
    return "" if process.noise_ == "gaussian" else f" ({process.noise_.capitalize()})"


def _function(
    kernel: "Kernel", columns: "Columns", stds: "Mapping[str, np.ndarray] | None" = None
) -> str:
    """A kernel in words: length scale, period and standard deviation of the function."""
    variance, lengthscale = getattr(kernel, "variance", None), getattr(kernel, "lengthscale", None)
    if variance is None or lengthscale is None:
        return repr(kernel)
    stds = stds or {}
    name = type(kernel).__name__
    name = "smooth" if name == "SquaredExponential" else name
    # Named where the table does not show which is which.
    inputs = None if columns.plain or kernel.active is not None else columns.inputs
    words = f"{name}, length scale {_numbers(lengthscale, inputs, stds.get('lengthscale'))}"
    if (period := getattr(kernel, "period", None)) is not None:
        words += f", period {_numbers(period)}"
    std = np.sqrt(_value(variance))
    # The logarithm of a standard deviation is half that of a variance.
    halved = None if "variance" not in stds else stds["variance"] / 2
    return f"{words}, std {', '.join(_with_interval(std, halved))}"


def _numbers(
    p: "Parameter",
    inputs: "Sequence[str] | None" = None,
    log_stds: np.ndarray | None = None,
) -> str:
    """The value of a parameter, or one per input, with the names of these."""
    values = _with_interval(_value(p), log_stds)
    if inputs is not None and len(inputs) == len(values) > 1:
        values = [f"{value} ({name})" for value, name in zip(values, inputs, strict=True)]
    return ", ".join(values)


def digits(value: float) -> str:
    """Three significant digits; an exponent only for very large and very small numbers.

    >>> digits(1683.2), digits(0.031234), digits(1.5e9)
    ('1680', '0.0312', '1.5e+09')
    """
    return f"{float(f'{value:.3g}'):g}"


def _value(p: "Parameter") -> np.ndarray:
    """The value in double precision, independent of JAX's precision setting."""
    return np.exp(np.asarray(p.raw, np.float64))


def _where(model: "DAGP", process: "FittedProcess") -> str:
    """Intervals or levels of a single input where the gate weight of the process is large.

    It exceeds 0.1, or half of the largest weight of the process if that is lower.
    """
    if not model.active_[process.index]:
        return "-"
    low, high = model.extent_
    (first, *others), levels = model.columns_.columns, ()
    if isinstance(first, Category) and not others:
        grid, levels = first.corners[:-1], first.levels
    elif len(low) > 1:
        return "see plot.gate"
    else:
        grid = np.linspace(low, high, 200)
    weight = model.posterior_.gate(grid)[:, process.index]
    likely = weight > min(0.1, 0.5 * weight.max())
    if levels:
        found = [shown(level) for level, here in zip(levels, likely, strict=True) if here]
        return "everywhere" if likely.all() else ", ".join(found)
    edges = np.flatnonzero(np.diff(np.concatenate([[0], likely.astype(int), [0]])))
    spans = list(zip(edges[::2], edges[1::2] - 1, strict=True))
    if spans == [(0, len(grid) - 1)]:
        return "everywhere"
    return ", ".join(f"{digits(grid[a, 0])} to {digits(grid[b, 0])}" for a, b in spans)


def joint_sentence(joint: Mapping[str, Any]) -> str:
    """Where two processes may have been exchanged, and what the evidence says of it."""
    i, j = joint["processes"]
    where = "in a part of the inputs"
    if np.isfinite(joint["beyond"]):
        where = f"beyond {digits(joint['beyond'])}"
    odds = np.exp(max(joint["log_odds"], 0.0))
    return (
        f"Processes {i} and {j} may have been exchanged {where}, where {joint['share']:.0%} of the "
        f"rows would change hands: odds {odds:.2g} to 1 against it; a label of a row there decides."
    )


def headline(model: "DAGP") -> str:
    """The fit in one sentence."""
    used = int(np.sum(model.active_))
    state = "converged" if model.converged_ else "did not converge"
    sure = f"; confidence {model.confidence_:.2f}" if np.isfinite(model.confidence_) else ""
    return (
        f"{used} of {len(model.active_)} processes in use; ELBO {model.lower_bound_:.2f}; "
        f"{state} after {model.n_iter_} steps (best of {len(model.restarts_)} starts"
        f"{_approximation(model)}){sure}{_associations(model)}."
    )


def _associations(model: "DAGP") -> str:
    """How probable the association is, where others are averaged over."""
    weights = model.association_weights_
    others = np.count_nonzero(weights[1:])
    if not others:
        return ""
    count = f"{others} others" if others > 1 else "1 other"
    return f"; association {weights[0]:.0%} probable, averaged with {count}"


def _approximation(model: "DAGP") -> str:
    """The number of inducing points of the functions, and whether these are all inputs."""
    known = model.posterior_.model
    functions = [known.process(k).function for k in range(known.n_processes)]
    counts = sorted({f.layers[0].inducing.raw.shape[0] for f in functions if f is not None})
    if not counts:
        return ""
    exact = counts == [int(np.sum(model.used_mask_))]
    return f"; {', '.join(map(str, counts))} inducing points{', all inputs' if exact else ''}"


def starts(model: "DAGP") -> list[tuple[str, ...]]:
    """One row of text per start, in the order of `START_COLUMNS`."""
    return [
        (
            start["kind"],
            f"{start['bound']:.2f}",
            " ".join(f"{bound:.1f}" for bound in start["rungs"]),
            str(start["steps"]),
            start["fate"],
            ", ".join(f"{name} {gain:+.1f}" for name, gain in start["moves"]) or "-",
        )
        for start in model.restarts_
    ]


def text(model: "DAGP", verbose: bool = False) -> str:
    """The summary as plain text, with a table of the starts if `verbose`."""
    parts = [
        headline(model),
        *map(joint_sentence, model.joints_),
        "",
        *_aligned(COLUMNS, rows(model)),
    ]
    if encoded := model.columns_.describe():
        parts += ["", *encoded]
    if verbose:
        parts += ["", *_aligned(START_COLUMNS, starts(model))]
    return "\n".join(parts)


def _aligned(header: tuple[str, ...], body: list[tuple[str, ...]]) -> list[str]:
    widths = [max(map(len, column)) for column in zip(header, *body, strict=True)]
    table = [header, ["-" * width for width in widths], *body]
    return ["  ".join(map(str.ljust, row, widths)).rstrip() for row in table]


def html(model: "DAGP") -> str:
    """The summary as HTML, for notebooks."""
    head = "".join(f"<th>{name}</th>" for name in COLUMNS)
    body = "".join(
        "<tr>" + "".join(f"<td>{_html.escape(cell)}</td>" for cell in row) + "</tr>"
        for row in rows(model)
    )
    return (
        f"<div><p>{_html.escape(headline(model))}</p>"
        + "".join(f"<p>{_html.escape(joint_sentence(joint))}</p>" for joint in model.joints_)
        + f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"
        + "".join(f"<p>{_html.escape(line)}</p>" for line in model.columns_.describe())
        + "</div>"
    )
