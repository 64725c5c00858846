"""How a fit is going, and what it found, in the terminal."""

import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn
from rich.table import Table

from dagp import summary
from dagp.cli.app import console, messages, say
from dagp.estimator import DAGP
from dagp.train import Progress as Step

__all__ = ["fit_with_progress", "noted", "show_summary"]

EVERY = 30.0
"""Seconds between lines where no bar can be drawn."""
_TRAINING = ("train", "batches")
"""Phases that end after `max_iter` steps at the latest."""
_HERE = {"n_init": "--starts", "max_iter": "--max-iter", "batch_size": "--batch-size"}
"""What settings of the estimator are called here."""


class Pace:
    """Seconds a step takes in the present phase, and so how long the phase can last at most."""

    def __init__(self, steps: int):
        self._steps = steps
        self._phase = ("", 0)
        self._began = (0, 0.0)

    def left(self, step: Step) -> str:
        """At most so long, as text; empty where nothing can be said."""
        now = time.monotonic()
        if self._phase != (step.phase, step.start) or step.step <= self._began[0]:
            self._phase, self._began = (step.phase, step.start), (step.step, now)
            return ""
        if step.phase not in _TRAINING:
            return ""
        pace = (now - self._began[1]) / (step.step - self._began[0])
        seconds = round(pace * max(self._steps - step.step, 0))
        return f"at most {seconds // 60}:{seconds % 60:02d} left"


class Clock:
    """Strikes now and then: lines in a log file, where a bar cannot be drawn."""

    def __init__(self) -> None:
        self._last = time.monotonic()

    def struck(self) -> bool:
        """Whether it is time for a line."""
        due = time.monotonic() - self._last >= EVERY
        if due:
            self._last = time.monotonic()
        return due


def fit_with_progress(
    model: DAGP,
    X: np.ndarray,
    y: np.ndarray,
    *,
    also: Callable[[], Any] = lambda: None,
    **more: Any,
) -> DAGP:
    """Fit and show where the search is; `also` is called whenever there is news."""
    columns = (
        SpinnerColumn(),
        TextColumn("{task.description}"),
        BarColumn(bar_width=20),
        TextColumn("{task.fields[bound]}"),
        TimeElapsedColumn(),
        TextColumn("{task.fields[left]}"),
    )
    pace = Pace(model.max_iter)
    quiet, clock = not messages.is_terminal, Clock()
    with Progress(*columns, console=messages, transient=True, disable=quiet) as progress:
        task = progress.add_task("compiling", total=None, bound="", left="")

        def show(step: Step) -> bool:
            long = step.phase in _TRAINING
            place = f"{step.phase}, start {step.start + 1}, step {step.step}"
            bound, left = f"bound {step.bound:.1f}", pace.left(step)
            progress.update(
                task,
                description=place,
                total=model.max_iter if long else None,
                completed=step.step if long else 0,
                bound=bound,
                left=left,
            )
            if quiet and clock.struck():
                say(", ".join(filter(None, (place, bound, left))))
            also()
            return False

        return model.set_params(callbacks=(show,)).fit(X, y, **more).set_params(callbacks=())


@contextmanager
def noted(aloud: bool = True) -> Iterator[list[str]]:
    """Warnings as notes on stderr, without the places in the code that they come from."""
    notes: list[str] = []
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        warnings.filterwarnings("ignore", category=DeprecationWarning)
        # Columns are matched by name before the model sees them, as plain arrays.
        warnings.filterwarnings("ignore", message="X does not have valid feature names")
        yield notes
    notes += dict.fromkeys(_worded(str(warning.message)) for warning in caught)
    for note in notes:
        if aloud:
            say(f"Note: {note}")


def _worded(message: str) -> str:
    for name, option in _HERE.items():
        message = message.replace(name, option)
    message = message.replace("Look at alternatives_[0]; labels", "Labels (--labels)")
    return message.replace(", and see alternatives_", "").replace("(inducing=...)", "(--inducing)")


def show_summary(model: DAGP) -> None:
    """The summary as a table in the terminal."""
    table = Table(title=summary.headline(model), title_justify="left", title_style="")
    for name in summary.COLUMNS:
        table.add_column(name, overflow="fold")
    for row in summary.rows(model):
        table.add_row(*row)
    console.print(table, markup=False)
