"""`dagp report`: a self-contained HTML page about a model."""

from pathlib import Path
from typing import Annotated, Any

import numpy as np
from typer import Option

from dagp import report as html_report
from dagp.cli import options
from dagp.cli.app import check_output, console, print_result
from dagp.cli.models import load_model, rows_to_show
from dagp.cli.progress import warnings_as_notes


def report(
    model: options.ModelFile,
    out: Annotated[Path, Option("--out", "-o", help="HTML file to write.")] = Path("report.html"),
    data: options.DataTable = None,
    target: options.Target = None,
    title: Annotated[str | None, Option(help="Title of the page.")] = None,
    force: options.Force = False,
) -> None:
    """Write a self-contained HTML page: figures, tables, settings."""
    check_output(out, force)
    fitted = load_model(model)
    name = target or fitted.target
    settings = {"model file": model.name, "data": data or "kept in the model file"}
    if name is not None:
        settings["target"] = name
    heading = {} if title is None else {"title": title}
    with warnings_as_notes(), console.status("writing"):
        X, y = rows_to_show(fitted, data, target)
        named = _with_name(y, name)
        html_report.write(fitted.estimator, X, named, out, settings=settings, **heading)
    print_result(f"Report: {out}")


def _with_name(y: np.ndarray, name: str | None) -> Any:
    """The output as a named column, if pyarrow is installed."""
    if name is None or y.ndim > 1:
        return y
    try:
        import pyarrow as pa
    except ModuleNotFoundError:
        return y
    return pa.table({name: y})
