"""A page from its sections."""

import base64
import hashlib
import re
from collections.abc import Mapping
from importlib import resources
from string import Template
from typing import Any

import numpy as np

from dagp import summary
from dagp.report import payload, slices, tables
from dagp.report.calibration import Calibration, calibration, verdict
from dagp.report.case import Case
from dagp.report.relevance import Relevance, relevance
from dagp.report.text import embedded, escape, listed, number, percent

__all__ = ["render"]

_UNSURE = 0.9
"""A point whose most likely process is less likely than this could belong to several."""


def render(case: Case, title: str, settings: Mapping[str, Any] | None) -> str:
    """The whole page."""
    found = calibration(case.mixture, case.y)
    matters = relevance(case) if len(case.inputs) > 1 else None
    strength = np.ones(1) if matters is None else matters.overall()
    cuts, first = slices.cut(case, strength), int(strength.argmax())
    out = payload.outliers(case)
    sections = [
        _processes(case),
        _curves(case, [one.axis for one in cuts], first),
        _pairs(case, first),
        _relevance(case, matters),
        _calibration(case, found),
        _outliers(case, out),
        _fit(case),
        _settings(case, settings),
    ]
    sections = [section for section in sections if section]
    script = "".join(map(_asset, ("chart.js", "panels.js", "controls.js")))
    return Template(_asset("page.html")).substitute(
        title=escape(title),
        digest=base64.b64encode(hashlib.sha256(script.encode()).digest()).decode(),
        style=_asset("page.css"),
        script=script,
        lead=_lead(case),
        contents="".join(f'<li><a href="#{name}">{text}</a></li>' for name, text, _ in sections),
        bar=_bar(case),
        sections="".join(_section(*section) for section in sections),
        data=embedded(payload.payload(case, found, cuts, out) | {"first": first}),
    )


def _asset(name: str) -> str:
    return resources.files("dagp.report").joinpath(name).read_text("utf-8")


Section = tuple[str, str, str]
"""Anchor, heading, content."""


def _section(anchor: str, heading: str, content: str) -> str:
    return (
        f'<section id="{anchor}" aria-labelledby="{anchor}-h"><h2 id="{anchor}-h">{heading}</h2>'
        f"{content}</section>"
    )


def _say(*sentences: str) -> str:
    # A number and its sign stay on one line.
    text = re.sub(r"(?<=\d) %", "\N{NO-BREAK SPACE}%", " ".join(s for s in sentences if s))
    return f"<p>{escape(text)}</p>"


def _canvas(name: str, label: str, size: str = "", points: bool = False) -> str:
    """A picture that the script fills in; one with points can be walked through by keys."""
    keys = "Arrow keys move from point to point, plus and minus zoom, 0 shows everything."
    role = (
        f'tabindex="0" role="application" aria-roledescription="chart" aria-label="{label}. {keys}"'
        if points
        else f'role="img" aria-label="{label}"'
    )
    return (
        f'<div class="chart {size}"><canvas id="{name}" {role}></canvas>'
        f'<button type="button" class="reset" hidden>Show all</button></div>'
    )


# -------------------------------------------------------------------------------------- sections


def _lead(case: Case) -> str:
    shown = len(payload.drawn(case))
    counts = {"point": len(case.y), "input": len(case.inputs), "output": len(case.outputs)}
    size = ", ".join(_number_of(count, word) for word, count in counts.items()) + "."
    return (
        _say(size, summary.headline(case.model))
        + (
            _say(
                f"Pictures show {shown} of the {len(case.y)} points, chosen at random and the same "
                "every time; numbers and tables use all of them."
            )
            if shown < len(case.y)
            else ""
        )
        + (
            _say(f"{_number_of(case.dropped, 'row')} with missing values left out.")
            if case.dropped
            else ""
        )
    )


def _number_of(count: int, word: str) -> str:
    return f"{count} {word}{'' if count == 1 else 's'}"


def _bar(case: Case) -> str:
    """The switches that hold for the whole page."""
    boxes = "".join(
        f'<label class="pill"><input type="checkbox" data-process="{k}"'
        f"{' checked' if case.model.active_[k] else ''}>"
        f'<span class="swatch" style="background:{case.colour(k)}"></span>'
        f"{k}{_remark(case, k)}</label>"
        for k in range(case.shares.shape[1])
    )
    choice = ""
    if len(case.outputs) > 1:
        choice = f'<label class="choice">Output {_select("output", case.outputs)}</label>'
    return (
        f'{choice}<fieldset><legend>Processes</legend><div class="pills">{boxes}</div></fieldset>'
    )


def _remark(case: Case, k: int) -> str:
    if not case.model.active_[k]:
        return " (unused)"
    return f" ({case.model.processes_[k].kind.lower()})" if k in case.clutter else ""


def _select(name: str, options: list[str], chosen: int = 0, values: list[int] | None = None) -> str:
    values = list(range(len(options))) if values is None else values
    items = "".join(
        f'<option value="{value}"{" selected" if value == chosen else ""}>{escape(text)}</option>'
        for value, text in zip(values, options, strict=True)
    )
    return f'<select id="{name}">{items}</select>'


def _processes(case: Case) -> Section:
    N, shares = len(case.owner), case.shares.max(axis=1)
    unsure = int(np.sum(shares < _UNSURE))
    items = "".join(f"<li>{escape(_sentence(case, k))}</li>" for k in case.active)
    doubt = (
        f"{_number_of(unsure, 'point')} ({percent(unsure / N)}) could come from more than one "
        f"process: none is {percent(_UNSURE)} likely for them."
        if unsure
        else "Every point clearly belongs to one process."
    )
    return "processes", "Processes", f"<ul>{items}</ul>{_say(doubt)}{tables.processes(case)}"


def _sentence(case: Case, k: int) -> str:
    """A process as an engineer would describe it."""
    share = percent(float(np.mean(case.owner == k)))
    std = case.model.processes_[k].noise_std_
    several = len(std) > 1
    spread = listed(
        f"±{number(s)}" + (f" ({name})" if several else "")
        for s, name in zip(std, case.outputs, strict=True)
    )
    if k in case.clutter:
        return (
            f"{case.name(k)} stands for {share} of the points, which follow no function; they "
            f"scatter by {spread}."
        )
    return f"{case.name(k)} produced {share} of the points; its noise is {spread}."


def _curves(case: Case, axes: list[int], first: int) -> Section:
    several = len(case.inputs) > 1
    gate = "Which process to expect at an input, before its output is known: the gate."
    boxes = (
        '<label><input type="checkbox" id="show-points" checked> points</label>'
        '<label><input type="checkbox" id="show-bands" checked> processes</label>'
    )
    say = _say(
        "Every point has the colour of the process that most likely produced it, paler where that "
        "is unsure; each process is drawn with the band that holds 95 % of its observations, as "
        "strong as it is likely there.",
        "The curves cut through the data at the values of the sliders, and points fade with their "
        "distance from the cut."
        if several
        else "",
        "Point at one, or tap it, to see how likely each process is to have produced it.",
    )
    sliders = ""
    if several:
        names = _select("axis", [case.inputs[d] for d in axes], first, axes)
        sliders = (
            f'<div class="controls"><label class="choice">Input on the axis {names}</label></div>'
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
    last = len(names) - len(case.outputs)
    choices = (
        f'<label class="choice">Across {_select("pair-x", names, first)}</label>'
        f'<label class="choice">Up {_select("pair-y", names, last)}</label>'
    )
    content = (
        _say("Any two columns against each other, coloured by the process of each point.")
        + f'<div class="controls">{choices}</div>'
        + _canvas("pair", "Two columns against each other", "tall", points=True)
        + '<div id="thumbs" class="thumbs" role="group" aria-label="Pairs to choose from"></div>'
    )
    return "pairs", "Pairs of columns", content


def _relevance(case: Case, found: Relevance | None) -> Section | None:
    if found is None:
        return None
    say = _say(
        "How much a process changes when one input alone takes the value it has in another row, in "
        "standard deviations of the output: 0 means that the input does not matter.",
        "For the gate it is the change of the probabilities.",
        f"Computed from {found.rows} rows.",
    )
    return "relevance", "Relevance of the inputs", say + tables.relevant(case, found)


def _calibration(case: Case, found: Calibration) -> Section:
    N = len(case.y)
    words = [f"{verdict(found, N, p)} for {name}" for p, name in enumerate(case.outputs)]
    say = _say(
        f"The predicted intervals are {listed(words)}.",
        "If the predictions are right, a 90 % interval holds 90 % of the points, and the histogram "
        "is flat up to chance (grey band): high ends mean too narrow, a hill too wide.",
        "Data that the model was fitted to make it look a little better than it is.",
    )
    pictures = (
        '<div class="pairwise"><div><h3>Coverage</h3>'
        + _canvas("coverage", "Share of points inside intervals of every level")
        + "</div><div><h3>Histogram of predicted probabilities (PIT)</h3>"
        + _canvas("pit", "Histogram of the predictive cumulative probability")
        + "</div></div>"
    )
    return "calibration", "Calibration", say + pictures + tables.calibrated(case, found)


def _outliers(case: Case, out: payload.Outliers) -> Section | None:
    if not case.clutter:
        return None
    names = listed(case.name(k) for k in case.clutter)
    if not out.total:
        return "outliers", "Outliers", _say(f"No point was assigned to {names}.")
    share = percent(out.total / len(case.owner))
    say = _say(
        f"{_number_of(out.total, 'point')} ({share}) most likely produced by {names}, "
        "without following a function.",
        f"The list holds the {len(out.rows)} that are surest; dagp predict gives all."
        if len(out.rows) < out.total
        else "",
        "Rows count from 0.",
        "The table shows the first of them." if len(out.rows) > tables.SHOWN_OUTLIERS else "",
    )
    button = '<button type="button" id="download">Download the list (CSV)</button>'
    return "outliers", "Outliers", say + button + tables.outliers(case, out.rows.tolist())


def _fit(case: Case) -> Section:
    say = _say(
        "The evidence bound says how well the model explains the data; it rises during training "
        "and should be level at the end. Dots are where other starts of the search ended: several "
        "near the top mean that the solution was found more than once.",
    )
    return "fit", "Fit", say + _canvas("bound", "Evidence bound by step") + tables.starts(case)


def _settings(case: Case, given: Mapping[str, Any] | None) -> Section:
    say = _say("What the model was told and which versions computed it.")
    return "settings", "Settings and versions", say + tables.settings(case, given)
