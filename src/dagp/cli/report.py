"""`dagp report`: one page about a model, to be opened offline."""

from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer

from dagp import report as pages
from dagp.cli.app import Force, ModelFile, Shown, Target, check_output, console
from dagp.cli.models import data_of, opened_model
from dagp.cli.progress import noted

__all__ = ["report"]


def report(
    model: ModelFile,
    out: Annotated[Path, typer.Option("--out", "-o", help="Page to write.")] = Path("report.html"),
    data: Shown = None,
    target: Target = None,
    title: Annotated[str | None, typer.Option(help="Heading of the page.")] = None,
    force: Force = False,
) -> None:
    """Write one self-contained page: pictures, tables, settings."""
    check_output(out, force)
    fitted = opened_model(model)
    name = target or fitted.target
    settings = {"model file": model.name, "data": data or "kept in the model file"}
    if name is not None:
        settings["target"] = name
    heading = {} if title is None else {"title": title}
    with noted(), console.status("writing"):
        X, y = data_of(fitted, data, target)
        pages.write(fitted.estimator, X, _named(y, name), out, settings=settings, **heading)
    console.print(f"Page: {out}", markup=False, highlight=False, soft_wrap=True)


def _named(y: np.ndarray, name: str | None) -> Any:
    """The output under its name, where there is something to hold it."""
    if name is None or y.ndim > 1:
        return y
    try:
        import pyarrow as pa
    except ModuleNotFoundError:
        return y
    return pa.table({name: y})
