"""`dagp demo`: fit of the multimodal example, with a figure and a report."""

from pathlib import Path
from typing import Annotated

from typer import Option

from dagp import datasets, report
from dagp.cli.app import console
from dagp.cli.plot import save_overview
from dagp.cli.progress import fit_with_progress, show_summary
from dagp.estimator import DAGP


def demo(
    out: Annotated[
        Path, Option("--out", "-o", help="Folder for the figure and the report.")
    ] = Path("dagp-demo"),
    seed: Annotated[int, Option(help="Random seed of the data and of the fit.")] = 0,
) -> DAGP:
    """Separate the multimodal example into its processes.

    From Python, ``model = dagp.cli.demo.demo()`` does the same and returns
    the fitted model.
    """
    data = datasets.multimodal(random_state=seed)
    points = f"[bold]{len(data.X)} points[/bold]"
    console.print(f"{points} from three functions; fitting up to four processes.")
    model = fit_with_progress(DAGP(n_processes=4, random_state=seed), data.X, data.y)
    figure = save_overview(model, data.X, data.y, out / "overview.png")
    page = report.write(model, data.X, data.y, out / "report.html")
    show_summary(model)
    console.print(f"Figure: [bold]{figure}[/bold]")
    console.print(f"Report: [bold]{page}[/bold] (open it in a browser)")
    console.print(
        "The same from Python: "
        f"[cyan]DAGP(n_processes=4, random_state={seed}).fit(X, y)[/cyan] "
        f"with [cyan]datasets.multimodal(random_state={seed})[/cyan]"
    )
    return model
