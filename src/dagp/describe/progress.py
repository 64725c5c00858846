"""Progress of a fit: a bar in terminals and notebooks, otherwise log lines."""

import logging
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, NamedTuple

from dagp.core.log import lines_shown, logger
from dagp.core.sharding import any_worker, is_leader
from dagp.inference.train import Callback, Progress

if TYPE_CHECKING:
    from dagp.estimator import DAGP

LOG_INTERVAL = 30.0
"""Seconds between log lines where no bar can be drawn."""
_TRAINING = ("train", "batches")
"""Phases that end after `max_iter` steps at the latest."""

Show = Callable[[Progress], None]


def joint_callback(callbacks: Sequence[Callback], verbose: int) -> Callback:
    """One callback for all callbacks and for the log; true if any returns true.

    A line of the log has level INFO if `verbose`, otherwise DEBUG.
    """
    level = logging.INFO if verbose else logging.DEBUG

    def callback(progress: Progress) -> bool:
        logger.log(level, "%s: start %d, step %d, ELBO %.2f", *progress)
        # A list, so that every callback is called.
        return any_worker(any([bool(each(progress)) for each in callbacks]))  # noqa: C419

    return callback


class Pace:
    """Seconds per step in the current phase, and the time left at that pace."""

    def __init__(self, steps: int):
        self._steps = steps
        self._phase = ("", 0)
        self._began = (0, 0.0)

    def left(self, step: Progress) -> str:
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


class View(NamedTuple):
    """What is shown of a step."""

    position: str
    elbo: str
    left: str
    done: float | None
    """Steps taken as a share of `max_iter`; None outside the training phases."""

    @staticmethod
    def of(step: Progress, pace: Pace, max_iter: int) -> "View":
        done = step.step / max_iter if step.phase in _TRAINING else None
        position = f"{step.phase}, start {step.start + 1}, step {step.step}"
        return View(position, f"ELBO {step.bound:.1f}", pace.left(step), done)

    @property
    def line(self) -> str:
        return ", ".join(filter(None, self[:3]))


@contextmanager
def following(estimator: "DAGP") -> Iterator[Callback]:
    """The callback of a fit: the user's, log lines, and the bar that `progress` asks for."""
    with ExitStack() as stack:
        shows: list[Show] = []
        if estimator.progress and is_leader():
            shows.append(stack.enter_context(_display(estimator.max_iter)))
        stack.enter_context(lines_shown(bool(estimator.verbose)))
        yield joint_callback([*shows, *estimator.callbacks], estimator.verbose)


@contextmanager
def _display(max_iter: int) -> Iterator[Show]:
    """The best display that this program has."""
    if _in_notebook():
        with _notebook_bar(max_iter) as show:
            yield show
        return
    if sys.stderr is not None and sys.stderr.isatty() and find_spec("rich") is not None:
        from rich.console import Console

        with terminal_bar(max_iter, Console(stderr=True)) as show:
            yield show
        return
    with lines_shown():
        yield log_lines(max_iter, logger.info)


def log_lines(max_iter: int, write: Callable[[str], Any]) -> Show:
    """Writes a line from time to time."""
    pace, logged = Pace(max_iter), time.monotonic()

    def show(step: Progress) -> None:
        nonlocal logged
        view = View.of(step, pace, max_iter)
        if time.monotonic() - logged >= LOG_INTERVAL:
            logged = time.monotonic()
            write(view.line)

    return show


@contextmanager
def terminal_bar(max_iter: int, console: Any) -> Iterator[Show]:
    """A bar in a terminal, drawn by rich; removed at the end."""
    from rich import progress as bars

    columns = (
        bars.SpinnerColumn(),
        bars.TextColumn("{task.description}"),
        bars.BarColumn(bar_width=20),
        bars.TextColumn("{task.fields[elbo]}"),
        bars.TimeElapsedColumn(),
        bars.TextColumn("{task.fields[left]}"),
    )
    pace = Pace(max_iter)
    with bars.Progress(*columns, console=console, transient=True) as bar:
        task = bar.add_task("compiling", total=None, elbo="", left="")

        def show(step: Progress) -> None:
            view = View.of(step, pace, max_iter)
            total = None if view.done is None else 1.0
            bar.update(
                task,
                description=view.position,
                total=total,
                completed=view.done or 0.0,
                elbo=view.elbo,
                left=view.left,
            )

        yield show


@contextmanager
def _notebook_bar(max_iter: int) -> Iterator[Show]:
    """A bar in the output of a notebook's cell, which stays there."""
    # HTML that the notebook replaces in place: rich would need ipywidgets.
    from IPython.display import HTML, display  # pyright: ignore[reportMissingImports]

    pace, view = Pace(max_iter), View("compiling", "", "", None)
    shown: Any = display(HTML(_html(view)), display_id=True)

    def show(step: Progress) -> None:
        nonlocal view
        view = View.of(step, pace, max_iter)
        shown.update(HTML(_html(view)))

    try:
        yield show
    finally:
        shown.update(HTML(_html(view._replace(left="", done=1.0))))


def _html(view: View) -> str:
    share = "" if view.done is None else f' value="{min(view.done, 1.0):.3f}"'
    return f'<progress{share} max="1" style="width:20em"></progress> <code>{view.line}</code>'


def _in_notebook() -> bool:
    ipython: Any = sys.modules.get("IPython")
    shell = ipython.get_ipython() if ipython is not None else None
    # The shell of a terminal has no kernel.
    return getattr(shell, "kernel", None) is not None
