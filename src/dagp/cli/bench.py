"""`dagp bench`: timings and memory of fits and predictions on this machine, as JSON.

Compare ratios within one run; seconds depend on the machine.
"""

import json
from pathlib import Path
from typing import Annotated, Any

import jax
from typer import Option, echo

from dagp.bench.suite import MEASUREMENTS, SUITES, measured
from dagp.cli.app import InputError, check_output, check_stdout
from dagp.cli.options import Force
from dagp.cli.progress import spinner, warnings_as_notes
from dagp.core.text import quoted
from dagp.files.atomic import replace


def bench(
    suite: Annotated[
        str, Option(help="quick: about a minute; full: every size, many minutes.")
    ] = "quick",
    only: Annotated[
        list[str] | None,
        Option(help=f"One of {', '.join(MEASUREMENTS)}; may be repeated. All if omitted."),
    ] = None,
    out: Annotated[
        Path | None, Option("--out", "-o", help="JSON file to write; stdout if omitted.")
    ] = None,
    force: Force = False,
) -> None:
    """Measure speed and memory on this machine."""
    checks = (("--suite", [suite], SUITES), ("--only", only or [], MEASUREMENTS))
    for option, given, known in checks:
        for name in given:
            if name not in known:
                raise InputError(f"{option} must be one of {', '.join(known)}, got {quoted(name)}.")
    if out is None:
        check_stdout()
    else:
        check_output(out, force)
    # Compilation time is one of the measurements.
    jax.config.update("jax_enable_compilation_cache", False)
    results: dict[str, Any] = {}
    with warnings_as_notes(show=False), spinner() as describe:
        for name, value in measured(suite, only or None):
            describe(name)
            if value is None:
                continue
            results[name] = value
            if out is not None:  # written at once, so that an interrupted run keeps it
                text = json.dumps(results, indent=2) + "\n"
                replace(out, lambda file, text=text: file.write(text.encode()))
    if out is None:
        echo(json.dumps(results, indent=2))
