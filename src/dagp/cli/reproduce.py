"""`dagp reproduce`: the paper's tables and figures."""

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)

from dagp.cli.app import console
from dagp.experiments import capabilities
from dagp.experiments.experiment import Row
from dagp.experiments.figures import FIGURES
from dagp.experiments.runner import EXPERIMENTS, FIRST_SEED, Task, run, tasks
from dagp.experiments.tables import markdown

__all__ = ["reproduce"]


class What(StrEnum):
    """Experiments by name."""

    noise = "noise"
    multimodal = "multimodal"
    cartpole = "cartpole"
    capabilities = "capabilities"
    all = "all"


def reproduce(
    what: Annotated[What, typer.Argument(help="Which experiment.")],
    seeds: Annotated[int, typer.Option(min=1, help="Data sets per variant.")] = 10,
    models: Annotated[
        str | None, typer.Option(help="Models to run, separated by commas; all if left out.")
    ] = None,
    jobs: Annotated[int, typer.Option(min=1, help="Fits at a time, each its own process.")] = 1,
    quick: Annotated[
        bool, typer.Option("--quick", help="One seed, small data: a check, not a result.")
    ] = False,
    figures: Annotated[bool, typer.Option(help="Draw the figures too.")] = True,
    out: Annotated[Path, typer.Option("--out", "-o", help="Folder for tables and figures.")] = Path(
        "results"
    ),
) -> None:
    """Compute the paper's tables and figures, beside the published numbers.

    Fits that are already in the folder are not computed again: a run that was stopped goes on
    where it was.
    """
    names = [what.value] if what is not What.all else [*EXPERIMENTS, What.capabilities.value]
    chosen = None if models is None else [name.strip() for name in models.split(",")]
    _check_models(chosen, names)
    wanted = {name: _tasks(name, seeds, chosen, quick, what) for name in names}
    folder = out / ("reproduce-quick" if quick else "reproduce")
    for name in names:
        if name == What.capabilities.value:
            _capabilities(folder, chosen)
            continue
        rows = _fits(wanted[name], folder / f"{name}.csv", jobs, EXPERIMENTS[name].title)
        report = folder / f"{name}.md"
        report.write_text(markdown(EXPERIMENTS[name], rows))
        console.print(f"[bold]{report}[/bold]")
        if figures and name in FIGURES:
            for picture in FIGURES[name](folder, FIRST_SEED, quick):
                console.print(f"[bold]{picture}[/bold]")


def _check_models(chosen: list[str] | None, names: list[str]) -> None:
    """Every model that is asked for is somewhere among what is run: no wrong name costs a fit."""
    known = {
        model: None
        for name in names
        for model in (EXPERIMENTS[name].competitors if name in EXPERIMENTS else capabilities.MODELS)
    }
    unknown = [model for model in chosen or [] if model not in known]
    if unknown:
        there = ", ".join(known)
        raise typer.BadParameter(
            f"There is no model {unknown[0]!r}; there are {there}.", param_hint="--models"
        )


def _tasks(name: str, seeds: int, chosen: list[str] | None, quick: bool, what: What) -> list[Task]:
    """All that is asked for, before anything runs."""
    if name == What.capabilities.value:
        return []
    experiment = EXPERIMENTS[name]
    if chosen is not None and what is What.all:
        chosen = [model for model in chosen if model in experiment.competitors]
    count = 1 if quick else seeds
    return tasks(experiment, range(FIRST_SEED, FIRST_SEED + count), chosen, quick)


def _fits(wanted: list[Task], record: Path, jobs: int, title: str) -> list[Row]:
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TextColumn("left"),
        TimeRemainingColumn(elapsed_when_finished=False),
        TextColumn("{task.fields[last]}"),
    )
    with Progress(*columns, console=console) as progress:
        bar = progress.add_task(title, total=None, last="")

        def tell(done: int, total: int, row: Row) -> None:
            last = f"{row['model']}, {row['variant']}: {row['seconds']:.0f} s"
            progress.update(bar, completed=done, total=total, last=last)

        return run(wanted, record, jobs=jobs, tell=tell)


def _capabilities(folder: Path, chosen: list[str] | None) -> None:
    shown: dict[str, dict[str, bool]] = {}
    with Progress(console=console) as progress:
        known = {n: m for n, m in capabilities.MODELS.items() if chosen is None or n in chosen}
        bar = progress.add_task("Capabilities", total=len(known))
        for name, model in known.items():
            shown[name] = capabilities.demonstrate(model)
            progress.advance(bar)
    folder.mkdir(parents=True, exist_ok=True)
    report = folder / "capabilities.md"
    report.write_text(capabilities.markdown(shown))
    console.print(report.read_text(), markup=False)
    console.print(f"[bold]{report}[/bold]")
