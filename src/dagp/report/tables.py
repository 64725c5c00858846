"""HTML tables of the report. Cells are escaped unless they are `Markup`."""

import platform
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import jax
import numpy as np
import scipy
import sklearn

from dagp.core.version import __version__
from dagp.describe import summary
from dagp.report.calibration import LEVELS, TABLE, Calibration
from dagp.report.case import Case
from dagp.report.doubts import Doubts, reason
from dagp.report.relevance import Relevance
from dagp.report.text import escape, number, percent, plain

_LONG = 30
"""Number of rows above which a table scrolls inside its frame."""
_MOST_INPUTS = 30
SHOWN_OUTLIERS = 100
SHOWN_AMBIGUOUS = 50


class Markup(str):
    """A string that is HTML already."""

    __slots__ = ()


def _cell(value: object) -> str:
    return value if isinstance(value, Markup) else escape(value)


def table(caption: str, header: Sequence[object], rows: Iterable[Sequence[object]]) -> str:
    """A table that scrolls inside its own frame on a narrow screen."""
    rows = list(rows)
    head = "".join(f'<th scope="col">{_cell(cell)}</th>' for cell in header)
    body = ""
    for first, *rest in rows:
        cells = "".join(f"<td>{_cell(cell)}</td>" for cell in rest)
        body += f'<tr><th scope="row">{_cell(first)}</th>{cells}</tr>'
    label, frame = escape(caption), "scroll long" if len(rows) > _LONG else "scroll"
    return (
        f'<div class="{frame}" tabindex="0" role="region" aria-label="{label}"><table>'
        f"<caption>{label}</caption><thead><tr>{head}</tr></thead><tbody>{body}</tbody>"
        "</table></div>"
    )


def _tag(case: Case, k: int) -> Markup:
    """The name of a process with a swatch of its colour."""
    text = case.name(k) + ("" if case.model.active_[k] else " (unused)")
    swatch = f'<span class="swatch" style="background:{case.colour(k)}"></span>'
    return Markup(f'<span class="tag">{swatch}{text}</span>')


def processes(case: Case) -> str:
    """One row per process: kind, number of points, noise, where the gate prefers it, kernel."""
    header = ["process", "kind", "points in these data", "share of training data", "noise std"]
    one_input = len(case.inputs) == 1
    header += ["where the gate prefers it", "function"] if one_input else ["function"]
    rows = []
    for k, row in enumerate(summary.rows(case.model)):
        _, kind, share, noise, where, function = row
        mine = int(np.sum(case.owner == k))
        found = f"{mine} ({percent(mine / len(case.owner))})"
        cells = [_tag(case, k), kind, found, share, noise]
        rows.append([*cells, where, function] if one_input else [*cells, function])
    return table("Processes", header, rows)


def relevant(case: Case, found: Relevance) -> str:
    """One row per input, with a bar for each used process and for the gate."""
    used = [k for k in case.active if k not in case.clutter]
    order = np.argsort(-found.overall(), kind="stable")[:_MOST_INPUTS]
    columns = case.model.columns_
    names = case.inputs if columns.plain else [columns.inputs[i] for i in columns.members]
    order = np.arange(len(case.inputs)) if len(case.inputs) <= _MOST_INPUTS else order
    # Columns that encode one input have one effect.
    order = [d for d in order if d == columns.members.index(columns.members[d])]
    most = max(float(np.max(found.processes[used], initial=0.0)), 1e-12)
    header = ["input", *[_tag(case, k) for k in used], "gate"]
    rows = []
    for d in order:
        bars = [_bar(found.processes[k, d], most, case.colour(k)) for k in used]
        rows.append([names[d], *bars, _bar(found.gate[d], 1.0, "var(--soft)")])
    return table("Relevance of the inputs", header, rows)


def _bar(value: float, most: float, colour: str) -> Markup:
    width = 100 * min(value / most, 1.0)
    return Markup(
        f'<span class="meter"><span style="width:{width:.0f}%;background:{colour}"></span></span>'
        f"{value:.2f}"
    )


def calibrated(case: Case, found: Calibration) -> str:
    """One row per interval level, one column per output."""
    header = ["interval", *[f"values of {name} inside" for name in case.outputs]]
    rows = [
        [f"{100 * v:.0f} %", *[f"{100 * c:.1f} %" for c in found.coverage[:, LEVELS.index(v)]]]
        for v in TABLE
    ]
    return table("Coverage", header, rows)


def outliers(case: Case, known: Doubts, rows: Sequence[int]) -> str:
    """The first outliers; the download has more."""
    header = ["row", *case.inputs, *case.outputs, "process", "responsibility", "why"]
    body = [
        [*_observation(case, i), _tag(case, int(case.owner[i])), f"{case.largest[i]:.2f}", why]
        for i, why in _reasons(case, known, rows[:SHOWN_OUTLIERS])
    ]
    return table("Outliers", header, body)


def ambiguous(case: Case, known: Doubts, rows: Sequence[int]) -> str:
    """The first of the rows, with the two most probable processes of each."""
    header = ["row", *case.inputs, *case.outputs, "process", "probability"]
    header += ["or process", "probability", "why"]
    body = [
        [
            *_observation(case, i),
            _tag(case, int(case.owner[i])),
            f"{case.largest[i]:.2f}",
            _tag(case, int(known.rival[i])),
            f"{case.responsibilities[i, known.rival[i]]:.2f}",
            why,
        ]
        for i, why in _reasons(case, known, rows[:SHOWN_AMBIGUOUS])
    ]
    return table("Ambiguous rows", header, body)


def _observation(case: Case, i: int) -> list[object]:
    """The name, the inputs and the outputs of a row."""
    outputs = ["" if np.isnan(v) else number(v) for v in case.y[i]]
    return [case.rows[i], *map(number, case.X[i]), *outputs]


def _reasons(case: Case, known: Doubts, rows: Sequence[int]) -> Iterator[tuple[int, str]]:
    return ((i, reason(case, known, i)) for i in rows)


def starts(case: Case) -> str:
    """One row per start of the search."""
    return table("Starts", summary.START_COLUMNS, summary.starts(case.model))


def settings(case: Case, given: Mapping[str, Any] | None) -> str:
    """Parameters of the model, the caller's entries, and versions of the packages."""
    own, extra = (
        [(str(name), plain(value)) for name, value in entries.items()]
        for entries in (case.model.get_params(deep=False), given or {})
    )
    packages = {"jax": jax, "numpy": np, "scipy": scipy, "scikit-learn": sklearn}
    versions = {"dagp": __version__} | {name: one.__version__ for name, one in packages.items()}
    versions["Python"] = platform.python_version()
    return (
        (table("About this report", ["entry", "value"], extra) if extra else "")
        + table("Settings of the model", ["setting", "value"], own)
        + table("Versions", ["package", "version"], versions.items())
    )
