"""`dagp bench`: how fast it is here.

Compare ratios within one run; seconds depend on the machine.
"""

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Annotated, Any

import jax
import typer
from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

from dagp.bench.suite import MEASUREMENTS, SUITES, measured
from dagp.cli.app import Force, InputError, check_output, messages
from dagp.cli.progress import noted

__all__ = ["bench"]


def bench(
    suite: Annotated[
        str, typer.Option(help="quick: about a minute; full: every size, many minutes.")
    ] = "quick",
    only: Annotated[
        list[str] | None,
        typer.Option(help=f"One of {', '.join(MEASUREMENTS)}; may be given several times."),
    ] = None,
    out: Annotated[
        Path | None, typer.Option("--out", "-o", help="JSON file; stdout if left out.")
    ] = None,
    force: Force = False,
) -> None:
    """Measure how fast it is on this machine."""
    _check("--suite", [suite], SUITES)
    _check("--only", only or [], MEASUREMENTS)
    if out is not None:
        check_output(out, force)
    # Compilation is one of the things to be measured.
    jax.config.update("jax_enable_compilation_cache", False)
    look = (SpinnerColumn(), TextColumn("{task.description}"), TimeElapsedColumn())
    figures: dict[str, Any] = {}
    quiet = not messages.is_terminal
    bar = Progress(*look, console=messages, transient=True, disable=quiet)
    with noted(aloud=False), bar as progress:
        task = progress.add_task("", total=None)
        for name, value in measured(suite, only or None):
            progress.update(task, description=name)
            if value is not None:
                figures[name] = value
                _write(figures, out)
    if out is None:
        typer.echo(json.dumps(figures, indent=2))


def _check(option: str, given: Iterable[str], known: Iterable[str]) -> None:
    known = list(known)
    for name in given:
        if name not in known:
            raise InputError(f"{option} {name}: there is no such name; use {', '.join(known)}.")


def _write(figures: dict[str, Any], out: Path | None) -> None:
    """Everything so far: a run that is stopped has lost nothing."""
    if out is not None:
        out.write_text(json.dumps(figures, indent=2) + "\n")
