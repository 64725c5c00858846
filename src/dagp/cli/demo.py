"""`dagp demo`: the multimodal example."""

from pathlib import Path
from typing import Annotated

import numpy as np
import typer
from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn
from rich.table import Table

from dagp import datasets, plot, summary
from dagp.cli.app import app, console
from dagp.estimator import DAGP
from dagp.train import Progress as Step

__all__ = ["demo"]


@app.command()
def demo(
    out: Annotated[Path, typer.Option("--out", "-o", help="Folder for the picture.")] = Path(
        "dagp-demo"
    ),
    seed: Annotated[int, typer.Option(help="Seed of the data and of the fit.")] = 0,
) -> DAGP:
    """Separate the multimodal example into its processes.

    From Python, ``model = dagp.cli.demo()`` does the same and returns the fitted model.
    """
    data = datasets.multimodal(random_state=seed)
    console.print(
        f"[bold]{len(data.X)} points[/bold] from three functions; looking for up to four processes."
    )
    model = fit_with_progress(DAGP(n_processes=4, random_state=seed), data.X, data.y)
    show_summary(model)
    picture = save_overview(model, data.X, data.y, out / "overview.png")
    console.print(f"Picture: [bold]{picture}[/bold]")
    console.print(
        "The same from Python: "
        f"[cyan]DAGP(n_processes=4, random_state={seed}).fit(X, y)[/cyan] "
        f"with [cyan]datasets.multimodal(random_state={seed})[/cyan]"
    )
    return model


def fit_with_progress(model: DAGP, X: np.ndarray, y: np.ndarray) -> DAGP:
    """Fit and show where the search is."""
    columns = (
        SpinnerColumn(),
        TextColumn("{task.description}"),
        BarColumn(),
        TextColumn("{task.fields[bound]}"),
        TimeElapsedColumn(),
    )
    with Progress(*columns, console=console, transient=True) as progress:
        task = progress.add_task("compiling", total=None, bound="")

        def show(step: Step) -> bool:
            progress.update(
                task,
                description=f"{step.phase}, start {step.start + 1}, step {step.step}",
                bound=f"bound {step.bound:.1f}",
            )
            return False

        return model.set_params(callbacks=(show,)).fit(X, y).set_params(callbacks=())


def show_summary(model: DAGP) -> None:
    """The summary as a table in the terminal."""
    table = Table(title=summary.headline(model), title_justify="left", title_style="")
    for name in summary.COLUMNS:
        table.add_column(name, overflow="fold")
    for row in summary.rows(model):
        table.add_row(*row)
    console.print(table)


def save_overview(model: DAGP, X: np.ndarray, y: np.ndarray, path: Path) -> Path:
    """Write the overview picture, without needing a screen."""
    path.parent.mkdir(parents=True, exist_ok=True)
    figure = plot.overview(model, X, y)[0].figure
    figure.savefig(path, dpi=150)
    return path
