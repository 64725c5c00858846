"""Renders the HTML report from its sections."""

import base64
import hashlib
import re
from collections.abc import Mapping
from importlib import resources
from string import Template
from typing import Any

import numpy as np

from dagp.describe import summary
from dagp.report import payload, slices, tables
from dagp.report.calibration import Calibration, calibration, words
from dagp.report.case import DARK, PALETTE, Case
from dagp.report.doubts import UNSURE, Doubts, certainty, doubts, least_clear
from dagp.report.meaning import findings
from dagp.report.relevance import Relevance, relevance
from dagp.report.text import embedded, escape, listed, number, number_of, percent

_SCRIPTS = ("chart.js", "panels.js", "download.js", "controls.js")
_NAMES = {
    "caller": "Rows have the names that were given with the data.",
    "index": "Rows have the names of the index of the data frame.",
    "fit": "Rows have the names they had in the fit.",
    "position": "Rows are numbered from 0.",
}


def render(case: Case, title: str, settings: Mapping[str, Any] | None) -> str:
    """The complete HTML page."""
    found = calibration(case.mixture, case.y)
    matters = relevance(case) if len(case.inputs) > 1 else None
    strength = np.ones(1) if matters is None else matters.overall()
    cuts, first = slices.cut(case, strength), int(strength.argmax())
    out, known = payload.outliers(case), doubts(case)
    parts = [
        _meaning(case, found),
        _processes(case, known),
        _curves(case, [one.axis for one in cuts], first),
        _pairs(case, first),
        _relevance(case, matters),
        _calibration(case, found),
        _assignments(case),
        _ambiguous(case, known),
        _outliers(case, out, known),
        _fit(case),
        _settings(case, settings),
    ]
    sections = [part for part in parts if part]
    script = "".join(map(_asset, _SCRIPTS))
    return Template(_asset("page.html")).substitute(
        title=escape(title),
        digest=base64.b64encode(hashlib.sha256(script.encode()).digest()).decode(),
        style=_style(),
        script=script,
        lead=_lead(case),
        contents="".join(f'<li><a href="#{name}">{text}</a></li>' for name, text, _ in sections),
        bar=_bar(case),
        sections="".join(_section(*section) for section in sections),
        data=embedded(payload.payload(case, found, cuts, out) | {"first": first}),
    )


def _asset(name: str) -> str:
    return resources.files("dagp.report").joinpath(name).read_text("utf-8")


def _style() -> str:
    """The style sheet with the colours of the processes, which are those of the plots."""
    light, dark = (
        "".join(f"--process-{k}: {colour};" for k, colour in enumerate(colours))
        for colours in (PALETTE, DARK)
    )
    return _asset("page.css").replace("/* light */", light).replace("/* dark */", dark)


Section = tuple[str, str, str]
"""Anchor, heading, content."""


def _section(anchor: str, heading: str, content: str) -> str:
    return (
        f'<section id="{anchor}" aria-labelledby="{anchor}-h"><h2 id="{anchor}-h">{heading}</h2>'
        f"{content}</section>"
    )


def _say(*sentences: str) -> str:
    # No line break between a number and its per cent sign.
    text = re.sub(r"(?<=\d) %", "\N{NO-BREAK SPACE}%", " ".join(s for s in sentences if s))
    return f"<p>{escape(text)}</p>"


def _canvas(name: str, label: str, size: str = "", points: bool = False) -> str:
    """A canvas for a chart; one with points is navigable by keyboard."""
    keys = "Arrow keys move from point to point, plus and minus zoom, 0 shows everything."
    role = f'role="img" aria-label="{label}"'
    if points:
        role = f'role="application" aria-roledescription="chart" aria-label="{label}. {keys}"'
        role = f'tabindex="0" {role}'
    return (
        f'<div class="chart {size}"><canvas id="{name}" {role}></canvas>'
        f'<button type="button" class="reset" hidden>Show all</button></div>'
    )


# -------------------------------------------------------------------------------------- sections


def _lead(case: Case) -> str:
    N, shown = len(case.y), len(payload.drawn(case))
    counts = {"point": N, "input": len(case.inputs), "output": len(case.outputs)}
    size = ", ".join(number_of(count, word) for word, count in counts.items()) + "."
    lead = _say(size, summary.headline(case.model))
    if shown < N:
        sample = f"Charts show a fixed random sample, {shown} of the {N} points;"
        lead += _say(sample, "numbers and tables use all of them.")
    if case.dropped:
        lead += _say(f"{number_of(len(case.dropped), 'row')} with missing values left out.")
    return lead


def _meaning(case: Case, found: Calibration) -> Section:
    say = _say(
        "Each row of the data was produced by one of several processes, and it was not recorded by "
        "which. This page shows how the rows were divided. A process is a source of data with a "
        "rule of its own, such as a machine in one mode of operation.",
    )
    items = "".join(
        f"<li>{_say(one.what)}{_say(f'Next: {one.next}').replace('Next:', '<b>Next:</b>', 1)}</li>"
        for one in findings(case, found)
    )
    return "meaning", "What this means and what to do next", f'{say}<ul class="said">{items}</ul>'


def _bar(case: Case) -> str:
    """The controls for the whole page."""
    boxes = "".join(
        f'<label class="pill"><input type="checkbox" data-process="{k}"'
        " checked>"
        f'<span class="swatch" style="background:{case.colour(k)}"></span>'
        f"{k}{_remark(case, k)}</label>"
        for k in range(case.responsibilities.shape[1])
    )
    choice = _choice("Output", "output", case.outputs) if len(case.outputs) > 1 else ""
    pills = f'<div class="pills">{boxes}</div>'
    return f"{choice}<fieldset><legend>Processes</legend>{pills}</fieldset>"


def _remark(case: Case, k: int) -> str:
    if not case.model.active_[k]:
        return " (unused)"
    return f" ({case.model.processes_[k].kind.lower()})" if k in case.clutter else ""


def _choice(
    label: str, name: str, options: list[str], chosen: int = 0, which: list[int] | None = None
) -> str:
    """A labelled list of the options, or of those with the indices `which`."""
    items = "".join(
        f'<option value="{i}"{" selected" if i == chosen else ""}>{escape(options[i])}</option>'
        for i in (range(len(options)) if which is None else which)
    )
    return f'<label class="choice">{label} <select id="{name}">{items}</select></label>'


def _processes(case: Case, known: Doubts) -> Section:
    N, unsure = len(case.owner), int(np.sum(case.largest < UNSURE))
    said = [f"{_sentence(case, k)} {certainty(case, known, k)}".strip() for k in case.active]
    items = "".join(f"<li>{escape(sentence)}</li>" for sentence in said)
    ambiguous = f"Every point has a process with a probability of {percent(UNSURE)} or more."
    if unsure:
        count = f"{number_of(unsure, 'ambiguous point')} ({percent(unsure / N)})"
        ambiguous = f"{count}: no process has a probability of {percent(UNSURE)} or more."
    return "processes", "Processes", f"<ul>{items}</ul>{_say(ambiguous)}{tables.processes(case)}"


_TAILS = {
    "student": ", and larger errors are frequent (Student-t, {:.3g} degrees of freedom)",
    "laplace": ", and larger errors are frequent (Laplace)",
}
"""What is said of noise that is not normal."""


def _sentence(case: Case, k: int) -> str:
    """One sentence about a process: its share of the points and its noise."""
    share = percent(float(np.mean(case.owner == k)))
    std = case.model.processes_[k].noise_std_
    names = [f" ({name})" for name in case.outputs] if len(std) > 1 else [""]
    spread = listed(f"±{number(s)}{name}" for s, name in zip(std, names, strict=True))
    if k in case.clutter:
        rest = f"{share} of the points follow no function; their standard deviation is {spread}"
        return f"{case.name(k)} is clutter: {rest}."
    process = case.model.processes_[k]
    tails = _TAILS.get(process.noise_, "").format(process.degrees_)
    return f"{case.name(k)} produced {share} of the points; its noise is {spread}{tails}."


_CUT = "Curves are drawn at the values of the sliders; points fade with their distance from them."


def _curves(case: Case, axes: list[int], first: int) -> Section:
    several = len(case.inputs) > 1
    gate = "Probability of each process at an input, before its output is known."
    gate += "" if case.model.active_.all() else " Dotted lines are processes that are not used."
    boxes = (
        '<label><input type="checkbox" id="show-points" checked> points</label>'
        '<label><input type="checkbox" id="show-bands" checked> processes</label>'
    )
    say = _say(
        "Points have the colour of their most probable process and are paler where that is "
        "uncertain. Each process is drawn with the band that holds 95 % of its observations; its "
        "opacity follows the probability of the process.",
        _CUT if several else "",
        "Hover over a point, or tap it, to see the probability of each process.",
    )
    sliders = ""
    if several:
        sliders = (
            f'<div class="controls">'
            f"{_choice('Input on the axis', 'axis', case.inputs, first, axes)}</div>"
            '<div id="sliders" class="sliders"></div><p id="held" class="note"></p>'
        )
    content = (
        f'{say}{sliders}<div class="controls">{boxes}</div>'
        + _canvas("posterior", "Points and processes", "tall", points=True)
        + f"<h3>Gate</h3>{_say(gate)}"
        + _canvas("gate", "Gate: weight of each process", "low")
    )
    return "curves", "Data and processes", content


def _pairs(case: Case, first: int) -> Section | None:
    names = [*case.inputs, *case.outputs]
    if len(names) < 3:
        return None
    choices = _choice("Horizontal", "pair-x", names, first)
    choices += _choice("Vertical", "pair-y", names, len(case.inputs))
    content = (
        _say("Any two columns, coloured by the most probable process of each point.")
        + f'<div class="controls">{choices}</div>'
        + _canvas("pair", "Two columns against each other", "tall", points=True)
        + '<div id="thumbs" class="thumbs" role="group" aria-label="Pairs to choose from"></div>'
    )
    return "pairs", "Pairs of columns", content


def _relevance(case: Case, found: Relevance | None) -> Section | None:
    if found is None:
        return None
    say = _say(
        "Typical change of a process when one input alone takes its value from another row, in "
        "standard deviations of the output: 0 means that the input is irrelevant.",
        "For the gate: the change of the probabilities.",
        f"Computed from {found.rows} rows.",
    )
    return "relevance", "Relevance of the inputs", say + tables.relevant(case, found)


def _calibration(case: Case, found: Calibration) -> Section:
    judged = [
        f"The predicted intervals of {name} are {words(found, p)}."
        for p, name in enumerate(case.outputs)
    ]
    say = _say(
        *judged,
        "Every level is judged: a difference counts if it exceeds what chance does with as many "
        "values (2.5 standard deviations) by more than two percentage points.",
        "With calibrated predictions a 90 % interval holds 90 % of the points, and the histogram "
        "is flat up to chance (grey band): high ends mean that intervals are too narrow, a high "
        "middle that they are too wide.",
        "On training data the calibration looks slightly better than it is on new data.",
    )
    pictures = (
        '<div class="pairwise"><div><h3>Coverage</h3>'
        + _canvas("coverage", "Share of points inside intervals of every level")
        + "</div><div><h3>Probability integral transform (PIT)</h3>"
        + _canvas("pit", "Histogram of the predictive cumulative probability")
        + "</div></div>"
    )
    return "calibration", "Calibration", say + pictures + tables.calibrated(case, found)


def _assignments(case: Case) -> Section:
    count, total = payload.downloaded(case), len(case.labels)
    cut = (
        f"The file holds the first {count} of {total} rows; all are given by dagp predict MODEL "
        "TABLE -o FILE, or by model.responsibilities(X, y) in Python."
    )
    say = _say(
        "A file with one line per row: its name, the most probable process (assignment) and the "
        "probability of each process (responsibility).",
        _NAMES[case.origin],
        "Rows that were left out have empty cells." if case.dropped else "",
        cut if count < total else "",
    )
    button = '<button type="button" id="download-assignments">Download the assignments (CSV)'
    return "assignments", "Assignments of all rows", f"{say}{button}</button>"


def _ambiguous(case: Case, known: Doubts) -> Section | None:
    rows = least_clear(case)
    if not rows.size or len(case.active) < 2:
        return None
    shown = tables.SHOWN_AMBIGUOUS
    say = _say(
        f"{number_of(rows.size, 'row')} for which no process has a probability of "
        f"{percent(UNSURE)} or more, the least clear first, and why.",
        f"The first {shown}; the download above has all." if rows.size > shown else "",
        _NAMES[case.origin],
    )
    return "ambiguous", "Ambiguous rows", say + tables.ambiguous(case, known, rows.tolist())


def _outliers(case: Case, out: payload.Outliers, known: Doubts) -> Section | None:
    if not case.clutter:
        return None
    names = listed(case.name(k) for k in case.clutter)
    if not out.total:
        return "outliers", "Outliers", _say(f"No point was assigned to {names}.")
    share, count = percent(out.total / len(case.owner)), len(out.rows)
    shown = tables.SHOWN_OUTLIERS
    some = f"The list holds the {count} of highest responsibility; dagp predict gives all."
    say = _say(
        f"{number_of(out.total, 'point')} ({share}) assigned to {names}, without a function.",
        some if count < out.total else "",
        _NAMES[case.origin],
        f"The table shows the first {shown}." if count > shown else "",
    )
    button = '<button type="button" id="download">Download the list (CSV)</button>'
    return "outliers", "Outliers", say + button + tables.outliers(case, known, out.rows.tolist())


def _fit(case: Case) -> Section:
    say = _say(
        "The evidence lower bound (ELBO) measures how well the model explains the data; it rises "
        "during training and should be flat at the end. Dots mark where the other starts of the "
        "search ended: several near the top mean that the solution was found more than once.",
    )
    return "fit", "Fit", say + _canvas("bound", "ELBO by step") + tables.starts(case)


def _settings(case: Case, given: Mapping[str, Any] | None) -> Section:
    say = _say("Settings of the model and versions of the software.")
    return "settings", "Settings and versions", say + tables.settings(case, given)
