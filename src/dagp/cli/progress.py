"""Terminal output of a fit: progress bar or log lines, warnings, and the summary."""

import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn
from rich.table import Table

from dagp.cli.app import console, messages, print_message, print_result
from dagp.describe import summary
from dagp.estimator import DAGP
from dagp.fitting import fit_estimator
from dagp.inference.run_log import RunLog
from dagp.inference.train import Progress as Step

LOG_INTERVAL = 30.0
"""Seconds between log lines, where stderr is no terminal and no bar can be drawn."""
_TRAINING = ("train", "batches")
"""Phases that end after `max_iter` steps at the latest."""
_OPTIONS = {
    "n_init": "--starts",
    "max_iter": "--max-iter",
    "batch_size": "--batch-size",
    "n_processes": "--processes",
    "missing='drop'": "--missing drop",
}
"""Command-line options of the estimator's settings."""


class Pace:
    """Seconds per step in the current phase, and the time left at that pace."""

    def __init__(self, steps: int):
        self._steps = steps
        self._phase = ("", 0)
        self._began = (0, 0.0)

    def left(self, step: Step) -> str:
        """Upper limit of the time left, as text; empty outside the training phases."""
        now = time.monotonic()
        if self._phase != (step.phase, step.start) or step.step <= self._began[0]:
            self._phase, self._began = (step.phase, step.start), (step.step, now)
            return ""
        if step.phase not in _TRAINING:
            return ""
        pace = (now - self._began[1]) / (step.step - self._began[0])
        seconds = round(pace * max(self._steps - step.step, 0))
        return f"at most {seconds // 60}:{seconds % 60:02d} left"


def fit_with_progress(
    model: DAGP,
    X: np.ndarray,
    y: np.ndarray,
    after_block: Callable[[], Any] = lambda: None,
    log: RunLog | None = None,
    **more: Any,
) -> DAGP:
    """Fit and show the progress; `after_block` runs after each block. The checkpoint is kept."""
    columns = (
        SpinnerColumn(),
        TextColumn("{task.description}"),
        BarColumn(bar_width=20),
        TextColumn("{task.fields[elbo]}"),
        TimeElapsedColumn(),
        TextColumn("{task.fields[left]}"),
    )
    pace, logged = Pace(model.max_iter), time.monotonic()
    with _progress(*columns) as progress:
        task = progress.add_task("compiling", total=None, elbo="", left="")

        def show(step: Step) -> bool:
            nonlocal logged
            training = step.phase in _TRAINING
            position = f"{step.phase}, start {step.start + 1}, step {step.step}"
            elbo, left = f"ELBO {step.bound:.1f}", pace.left(step)
            progress.update(
                task,
                description=position,
                total=model.max_iter if training else None,
                completed=step.step if training else 0,
                elbo=elbo,
                left=left,
            )
            if progress.disable and time.monotonic() - logged >= LOG_INTERVAL:
                logged = time.monotonic()
                print_message(", ".join(filter(None, (position, elbo, left))))
            after_block()
            return False

        fit_estimator(model.set_params(callbacks=(show,)), X, y, log=log, **more)
        return model.set_params(callbacks=())


def _progress(*columns: Any) -> Progress:
    """A progress display on stderr, if that is a terminal."""
    quiet = not messages.is_terminal
    return Progress(*columns, console=messages, transient=True, disable=quiet)


@contextmanager
def spinner(text: str = "") -> Iterator[Callable[[str], None]]:
    """A spinner in the terminal; yields a function that sets its text."""
    columns = (SpinnerColumn(), TextColumn("{task.description}"), TimeElapsedColumn())
    with _progress(*columns) as progress:
        task = progress.add_task(text, total=None)
        yield lambda text: progress.update(task, description=text)


@contextmanager
def warnings_as_notes(show: bool = True) -> Iterator[list[str]]:
    """Collect warnings as notes, printed to stderr at the end without their code locations."""
    notes: list[str] = []
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        warnings.filterwarnings("ignore", category=DeprecationWarning)
        # The commands match columns by name and pass plain arrays to the model.
        warnings.filterwarnings("ignore", message="X does not have valid feature names")
        yield notes
    notes += dict.fromkeys(with_option_names(str(warning.message)) for warning in caught)
    for note in notes if show else ():
        print_message(f"Note: {note}")


def with_option_names(message: str) -> str:
    """A message of the library with command-line options in place of Python names."""
    for name, option in _OPTIONS.items():
        message = message.replace(name, option)
    message = message.replace("or give labels:", "or give labels (--labels):")
    message = message.replace("it and alternatives_[0], whose", "it and another solution, whose")
    message = message.replace("--max-iter or tol.", "--max-iter or --tol.")
    return message.replace("(inducing=...)", "(--inducing)")


def show_summary(model: DAGP) -> None:
    """Print the summary as a table."""
    table = Table(title=summary.headline(model), title_justify="left", title_style="")
    for name in summary.COLUMNS:
        table.add_column(name, overflow="fold")
    for row in summary.rows(model):
        table.add_row(*row)
    console.print(table, markup=False)
    for line in model.columns_.describe():
        print_result(line)
