"""`dagp plot`: the overview figure of a model."""

from pathlib import Path
from typing import Annotated, Any

import matplotlib.pyplot as plt
import numpy as np
from typer import Option

from dagp import plot as figures
from dagp.cli import options
from dagp.cli.app import InputError, check_output, console, print_result
from dagp.cli.models import Model, load_model, rows_to_show
from dagp.cli.progress import warnings_as_notes
from dagp.cli.spelling import listed, suggestion
from dagp.core.errors import StorageError
from dagp.core.text import quoted, shown
from dagp.estimator import DAGP
from dagp.files.atomic import replace


def plot(
    model: options.ModelFile,
    out: Annotated[Path, Option("--out", "-o", help="Figure to write: .png, .pdf or .svg.")] = Path(
        "figure.png"
    ),
    data: options.DataTable = None,
    target: options.Target = None,
    feature: Annotated[
        str | None, Option(help="Input on the horizontal axis; the first if omitted.")
    ] = None,
    force: options.Force = False,
) -> None:
    """Plot the joint posterior, the assignments and the gate."""
    check_output(out, force, model, data)
    fitted = load_model(model)
    column = 0 if feature is None else _axis(fitted, feature)
    with warnings_as_notes(), console.status("plotting"):
        rows = rows_to_show(fitted, data, target)
        save_overview(fitted.estimator, rows.X, rows.y, out, target or fitted.target, column)
    print_result(f"Figure: {out}")


def _axis(fitted: Model, feature: str) -> int:
    """Place of an input, or of the first column that encodes it."""
    columns = fitted.estimator.columns_
    known = fitted.features or [str(i) for i in range(fitted.inputs)]
    if feature in columns.names:
        return columns.names.index(feature)
    if feature not in known:
        near = suggestion(feature, known)
        raise InputError(
            f"{fitted.path} has no input {quoted(feature)}.{near} It has {listed(known)}."
        )
    return columns.owner.index(known.index(feature))


def save_overview(
    model: DAGP,
    X: np.ndarray,
    y: np.ndarray,
    path: Path,
    target: str | None = None,
    column: int = 0,
) -> Path:
    """Write the overview figure to a file; no display is needed."""
    path.parent.mkdir(parents=True, exist_ok=True)
    axes = figures.overview(model, X, y, column=column)
    for ax in axes:
        # Column names come from files: a dollar sign in one must not start mathematics.
        ax.set_xlabel(ax.get_xlabel(), parse_math=False)
    for ax in axes[:2]:
        ax.set_ylabel(shown(target) if target else ax.get_ylabel(), parse_math=False)
    figure: Any = axes[0].figure
    try:
        kind = path.suffix.removeprefix(".") or "png"
        replace(path, lambda file: figure.savefig(file, format=kind, dpi=150))
    except StorageError:
        raise
    except ValueError as error:
        raise InputError(f"Cannot write {path}: {error}.") from error
    plt.close(figure)
    return path
