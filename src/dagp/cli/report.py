"""`dagp report`: a self-contained HTML page about a model."""

from pathlib import Path
from typing import Annotated, Any

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
    check_output(out, force, model, data)
    fitted = load_model(model)
    name = target or fitted.target
    settings = {"model file": model.name, "data": data or "kept in the model file"}
    if name is not None:
        settings["target"] = name
    heading: dict[str, Any] = {} if title is None else {"title": title}
    with warnings_as_notes(), console.status("writing"):
        X, y, lines, dropped = rows_to_show(fitted, data, target)
        if lines is not None:
            settings["rows"] = f"lines of {data}"
        if dropped:
            settings["rows left out"] = f"{dropped} with empty cells"
        outputs = None if name is None or y.ndim > 1 else [name]
        html_report.write(
            fitted.estimator, X, y, out, settings=settings, outputs=outputs, rows=lines, **heading
        )
    print_result(f"Report: {out}")
