"""Terminal output of a fit: progress bar or log lines, warnings, and the summary."""

import re
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn
from rich.table import Table

from dagp.cli.app import console, messages, print_message, print_result
from dagp.describe import summary
from dagp.describe.progress import log_lines, terminal_bar
from dagp.estimator import DAGP
from dagp.fitting import fit_estimator
from dagp.inference.run_log import RunLog
from dagp.inference.train import Progress as Step

_OPTIONS = {
    "n_init": "--starts",
    "max_iter": "--max-iter",
    "batch_size": "--batch-size",
    "n_processes": "--processes",
    "random_state": "--seed",
    "missing='drop'": "--missing drop",
}
"""Command-line options of the estimator's settings."""


def fit_with_progress(
    model: DAGP,
    X: np.ndarray,
    y: np.ndarray,
    after_block: Callable[[], Any] = lambda: None,
    log: RunLog | None = None,
    **more: Any,
) -> DAGP:
    """Fit and show the progress; `after_block` runs after each block. The checkpoint is kept."""
    with _shown_steps(model.max_iter) as show_step:

        def show(step: Step) -> None:
            show_step(step)
            after_block()

        fit_estimator(model.set_params(callbacks=(show,)), X, y, log=log, **more)
        return model.set_params(callbacks=())


@contextmanager
def _shown_steps(max_iter: int) -> Iterator[Callable[[Step], None]]:
    """A bar on stderr, if that is a terminal; otherwise a line now and then."""
    if not messages.is_terminal:
        yield log_lines(max_iter, print_message)
        return
    with terminal_bar(max_iter, messages) as show:
        yield show


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
    message = re.sub(
        r"it and alternatives_\[\d+\], whose", "it and another solution, whose", message
    )
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
