"""What the results mean and what to do next, for readers who do not know the method."""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np

from dagp.describe.summary import joint_sentence
from dagp.report.calibration import LEVELS, Calibration, Verdict, verdict
from dagp.report.case import Case
from dagp.report.doubts import UNSURE, least_clear
from dagp.report.text import listed, number_of, percent
from dagp.search.settings import DOUBTED
from dagp.search.verdict import decisive_rows

_NAMED = 5
"""Rows that are named as examples."""
_LONGEST = 40
"""Most characters of a label in a sentence."""


class Finding(NamedTuple):
    """One thing to know, and one thing to do about it."""

    what: str
    next: str


def findings(case: Case, found: Calibration) -> list[Finding]:
    """What there is to say about a fit, the most important first."""
    parts = (_regimes, _outliers, _ambiguous, _associations, _search, _unfinished, _unused, _gaps)
    said = [finding for part in parts for finding in part(case)]
    verdicts = [verdict(found, p) for p in range(len(case.outputs))]
    return [*said, *_ranges(case, found, verdicts)]


def _regimes(case: Case) -> Iterator[Finding]:
    used = [k for k in case.active if k not in case.clutter]
    shares = [f"{case.name(k).lower()} ({percent(np.mean(case.owner == k))})" for k in used]
    inputs = "the inputs" if len(case.inputs) > 3 else listed(case.inputs)
    outputs = "the outputs" if len(case.outputs) > 3 else listed(case.outputs)
    if not used:
        what = f"No regime was found: {outputs} cannot be told from {inputs}."
        step = "Check that the right columns are inputs, and whether one is missing."
    elif len(used) == 1:
        what = f"There is one regime, {shares[0]}: one rule connects {inputs} with {outputs}."
        step = "If you expected several, fit again with a larger number of processes."
    else:
        what = (
            f"The rows come from {len(used)} regimes: {listed(shares)}. "
            f"In each of them {outputs} {'depends' if len(case.outputs) == 1 else 'depend'} on "
            f"{inputs} by a rule of its own."
        )
        step = (
            "Look at the first chart and give each process the name it has for you, "
            "such as a machine, a mode of operation or a sensor."
        )
    yield Finding(what, step)


def _outliers(case: Case) -> Iterator[Finding]:
    rows = np.flatnonzero(np.isin(case.owner, case.clutter))
    if rows.size:
        surest = rows[np.argsort(-case.largest[rows], kind="stable")]
        yield Finding(
            f"{number_of(rows.size, 'row')} ({percent(rows.size / len(case.owner))}) "
            f"{'fits' if rows.size == 1 else 'fit'} none of the regimes and "
            f"{'was' if rows.size == 1 else 'were'} set aside as outliers: "
            f"{_rows(case, surest)}.",
            "Look at these rows first: are they faults of the measurement, or events that matter?",
        )


def _ambiguous(case: Case) -> Iterator[Finding]:
    rows, N = least_clear(case), len(case.owner)
    if len(case.active) < 2:
        return
    if not rows.size:
        yield Finding(
            f"For every row it is clear which process produced it ({percent(UNSURE)} or more).",
            "Use the assignments as they are; the download below has one line per row.",
        )
        return
    yield Finding(
        f"For {percent(1 - rows.size / N)} of the rows it is clear which process produced them "
        f"({percent(UNSURE)} or more). {number_of(rows.size, 'row')} could belong to more than "
        f"one; the least clear: {_rows(case, rows)}.",
        "For these rows use the probabilities in the download instead of the assigned process; "
        "where you know the process, give it as a label and fit again.",
    )


def _associations(case: Case) -> Iterator[Finding]:
    weights = case.model.association_weights_
    shares = [percent(weight) for weight in sorted(weights[weights > 0], reverse=True)]
    if len(shares) > 1:
        decisive = _decisive(case)
        step = "Read predictions and probabilities as averages over all of them."
        if decisive:
            step = (
                f"Find out which process produced {'row' if len(decisive) == 1 else 'rows'} "
                f"{listed(decisive)} of the fitted data and fit again with that as labels: it "
                "decides between the first two."
            )
        yield Finding(
            f"{len(shares)} divisions of the rows explain them almost equally well, with "
            f"probabilities of {listed(shares)}: parts of two processes may have changed places. "
            "Probabilities of rows and ranges of processes take all of them into account.",
            step,
        )


def _search(case: Case) -> Iterator[Finding]:
    model = case.model
    sure = model.confidence_
    if len(case.model.processes_) < 2:
        return
    for joint in model.joints_:
        yield Finding(
            joint_sentence(joint),
            "Find out which process produced one of those rows, and fit again with that as label.",
        )
    if model.joints_ and sure < DOUBTED:
        return
    if np.isnan(sure):
        yield Finding(
            "The search was made only once, so it is not known whether another division of the "
            "rows explains them better.",
            "Fit again with several starts: n_init=8 in Python, --starts 8 on the command line.",
        )
    elif sure >= DOUBTED:
        several = np.count_nonzero(model.association_weights_) > 1
        found = "the most probable division" if several else "the same division"
        yield Finding(
            f"Independent searches came to {found} of the rows (confidence {sure:.2f}).",
            "Nothing needs to be done; fit again when there are more data.",
        )
    else:
        decisive = _decisive(case)
        more = max(2 * int(model.n_init), 16)
        step = f"Fit again with more starts: n_init={more} in Python, --starts {more} elsewhere."
        if decisive:
            noun = "row" if len(decisive) == 1 else "rows"
            step = (
                f"Find out which process produced {noun} {listed(decisive)} of the fitted data and "
                "fit again with that as labels: it decides between the two."
            )
        yield Finding(
            "Another division of the rows may be as good or better "
            f"(confidence {sure:.2f}, where 1 is certain).",
            step,
        )


def _decisive(case: Case) -> list[str]:
    """Rows of the fit whose labels would decide between the solution and the best alternative."""
    model = case.model
    if not model.alternatives_:
        return []
    kept, rival = model.responsibilities_, model.alternatives_[0].responsibilities_
    if kept.shape != rival.shape:
        return []
    used = model.used_mask_
    rows = decisive_rows(kept[used], rival[used], np.ones(int(used.sum())))
    return [_cut(label) for label in model.index_[used][rows]]


def _unfinished(case: Case) -> Iterator[Finding]:
    if not case.model.converged_:
        steps = 2 * int(case.model.max_iter)
        yield Finding(
            "Training ended before it was finished; curves and noise may still change a little.",
            f"Fit again with more steps: max_iter={steps} in Python, --max-iter {steps} elsewhere.",
        )


def _unused(case: Case) -> Iterator[Finding]:
    spare = [k for k in range(len(case.model.processes_)) if k not in case.active]
    if spare:
        names, one = listed(str(k) for k in spare), len(spare) == 1
        yield Finding(
            f"{'Process' if one else 'Processes'} {names} {'is' if one else 'are'} not used: the "
            "data can be explained without. That is no fault.",
            f"Nothing needs to be done; a fit with {number_of(len(case.active), 'process')} "
            "gives the same picture in less time.",
        )


def _gaps(case: Case) -> Iterator[Finding]:
    if case.dropped:
        yield Finding(
            f"{number_of(len(case.dropped), 'row')} with missing values left out: "
            f"{_examples(case.dropped)}.",
            "If these rows matter, fill in the missing values and make the report again.",
        )
    missing = np.isnan(case.y).sum(axis=0)
    gaps = [f"{n} of {name}" for n, name in zip(missing, case.outputs, strict=True) if n]
    if gaps:
        yield Finding(
            f"Values are missing ({listed(gaps)}); their rows are judged by their other outputs.",
            "Read the probabilities of these rows with more care than those of complete ones.",
        )


def _ranges(case: Case, found: Calibration, judged: Sequence[Verdict]) -> Iterator[Finding]:
    """The calibration, without the word."""
    wrong = [(p, v.narrow) for p, v in enumerate(judged) if v.narrow is not None]
    if wrong:
        step = "add a process for outliers: Noise() in Python, --noise-process elsewhere."
        if case.clutter:
            step = "let the noise depend on the inputs: GP(noise_gp=GP()) in Python."
        yield Finding(
            f"Predicted ranges are too narrow: {_held(case, found, wrong, 'only ')}.",
            f"Do not rely on the ranges yet; {step}",
        )
    wrong = [(p, v.wide) for p, v in enumerate(judged) if v.wide is not None]
    if wrong:
        yield Finding(
            f"Predicted ranges are too wide: {_held(case, found, wrong, '')}.",
            "Predictions are safe but cautious; let the noise depend on the inputs: "
            "GP(noise_gp=GP()) in Python.",
        )
    if all(v.wide is None and v.narrow is None for v in judged):
        few = "" if all(v.close for v in judged) else ", as far as so few rows can tell"
        yield Finding(
            f"Predicted ranges hold as many values as they promise{few}.",
            "Check this on rows that the fit has not seen: dagp report MODEL --data TABLE.",
        )


def _held(case: Case, found: Calibration, wrong: list[tuple[int, int]], only: str) -> str:
    several = len(case.outputs) > 1
    return listed(
        f"the range that should hold {percent(LEVELS[level])} of the values"
        f"{f' of {case.outputs[p]}' if several else ''} holds {only}"
        f"{percent(found.coverage[p, level])}"
        for p, level in wrong
    )


def _rows(case: Case, order: np.ndarray) -> str:
    names = case.rows
    return _examples([names[i] for i in order])


def _examples(labels: Sequence[object]) -> str:
    """The first few rows by name."""
    few = [_cut(label) for label in labels[:_NAMED]]
    if len(labels) > _NAMED:
        return f"rows {', '.join(few)} and {len(labels) - _NAMED} more"
    return f"{'row' if len(few) == 1 else 'rows'} {listed(few)}"


def _cut(label: object) -> str:
    text = str(label)
    return text if len(text) <= _LONGEST else text[:_LONGEST] + "…"
