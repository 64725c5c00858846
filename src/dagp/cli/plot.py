"""`dagp plot`: the overview picture of a model."""

from pathlib import Path
from typing import Annotated

import numpy as np
import typer

from dagp import plot as pictures
from dagp.cli.app import Force, InputError, ModelFile, Shown, Target, check_output, console
from dagp.cli.models import data_of, opened_model
from dagp.cli.progress import noted
from dagp.estimator import DAGP

__all__ = ["plot", "save_overview"]


def plot(
    model: ModelFile,
    out: Annotated[Path, typer.Option("--out", "-o", help="Picture: .png, .pdf or .svg.")] = Path(
        "figure.png"
    ),
    data: Shown = None,
    target: Target = None,
    feature: Annotated[
        str | None, typer.Option(help="Input along the horizontal axis; the first if left out.")
    ] = None,
    force: Force = False,
) -> None:
    """Draw the joint posterior, the assignments and the gate."""
    check_output(out, force)
    fitted = opened_model(model)
    column = 0
    if feature is not None:
        known = fitted.features or [str(i) for i in range(fitted.inputs)]
        if feature not in known:
            raise InputError(f"{model} has no input {feature!r}; it has {', '.join(known)}.")
        column = known.index(feature)
    with noted(), console.status("drawing"):
        X, y = data_of(fitted, data, target)
        save_overview(fitted.estimator, X, y, out, target or fitted.target, column)
    console.print(f"Picture: {out}", markup=False, highlight=False, soft_wrap=True)


def save_overview(
    model: DAGP,
    X: np.ndarray,
    y: np.ndarray,
    path: Path,
    target: str | None = None,
    column: int = 0,
) -> Path:
    """Write the overview picture, without needing a screen."""
    path.parent.mkdir(parents=True, exist_ok=True)
    axes = pictures.overview(model, X, y, column=column)
    for ax in axes:
        # Names come from files: a dollar sign in one is no mathematics.
        ax.set_xlabel(ax.get_xlabel(), parse_math=False)
    for ax in axes[:2]:
        ax.set_ylabel(target or ax.get_ylabel(), parse_math=False)
    try:
        axes[0].figure.savefig(path, dpi=150)
    except ValueError as error:
        raise InputError(f"Cannot draw {path}: {error}.") from error
    pictures.plt.close(axes[0].figure)
    return path
