"""`dagp reproduce`: the paper's tables and figures."""

import os
from enum import StrEnum
from pathlib import Path
from typing import Annotated

from rich import progress as bars
from typer import Argument, BadParameter, Option

from dagp.cli.app import CommandError, console
from dagp.core.text import quoted
from dagp.distributed import DaskError
from dagp.experiments import capabilities
from dagp.experiments.experiment import Row
from dagp.experiments.figures import FIGURES
from dagp.experiments.robust import DATA as UCI_FOLDER
from dagp.experiments.robust import UCI
from dagp.experiments.runner import EXPERIMENTS, FIRST_SEED, Task, run, tasks
from dagp.experiments.tables import markdown
from dagp.files.atomic import replace


class ExperimentName(StrEnum):
    """Experiments by name."""

    noise = "noise"
    multimodal = "multimodal"
    cartpole = "cartpole"
    robust = "robust"
    wetchicken = "wetchicken"
    capabilities = "capabilities"
    all = "all"


def reproduce(
    what: Annotated[ExperimentName, Argument(help="Experiment to run.")],
    seeds: Annotated[int, Option(min=1, help="Data sets per variant.")] = 10,
    models: Annotated[
        str | None, Option(help="Models to run, separated by commas; all if omitted.")
    ] = None,
    jobs: Annotated[int, Option(min=1, help="Number of fits that run in parallel.")] = 1,
    dask: Annotated[
        str | None,
        Option(
            metavar="ADDRESS",
            help="Dask scheduler whose workers run the fits, such as tcp://host:8786.",
        ),
    ] = None,
    quick: Annotated[
        bool, Option("--quick", help="One seed, small data: a check, not a result.")
    ] = False,
    data: Annotated[
        Path | None, Option(help="Folder with the UCI data sets of the experiment robust.")
    ] = None,
    figures: Annotated[bool, Option(help="Also plot the figures.")] = True,
    out: Annotated[Path, Option("--out", "-o", help="Folder for tables and figures.")] = Path(
        "results"
    ),
) -> None:
    """Compute the paper's tables and figures, next to the published numbers.

    Fits whose results are already in the folder are not repeated: an
    interrupted run continues when it is started again.
    """
    if data is not None:
        # Read by the workers too.
        os.environ[UCI_FOLDER] = str(_checked(data))
    everything = what is ExperimentName.all
    names = [*EXPERIMENTS, ExperimentName.capabilities.value] if everything else [what.value]
    chosen = None if models is None else [name.strip() for name in models.split(",")]
    _check_models(chosen, names)
    # All tasks before the first fit: an error in one of them must not cost the fits of others.
    seeds = 1 if quick else seeds
    known = [name for name in names if name in EXPERIMENTS]
    planned = {name: _tasks(name, seeds, chosen, quick, everything) for name in known}
    folder = out / ("reproduce-quick" if quick else "reproduce")
    if dask is not None and jobs != 1:
        raise BadParameter("The workers of --dask run the fits.", param_hint="--jobs")
    for name in names:
        try:
            if name in planned:
                _run_experiment(name, planned[name], folder, jobs, dask)
            else:
                _run_capabilities(folder, chosen, jobs, dask)
        except DaskError as error:
            again = "Results so far are kept, and the same command continues."
            raise CommandError(f"{error} {again}") from error
        if figures and name in FIGURES:
            for figure in FIGURES[name](folder, FIRST_SEED, quick):
                console.print(f"[bold]{figure}[/bold]")


def _checked(folder: Path) -> Path:
    """The folder of the UCI data sets; BadParameter if it lacks one of them."""
    missing = [name for name in UCI if not (folder / f"{name}.csv").is_file()]
    if missing:
        raise BadParameter(f"There is no file {folder / missing[0]}.csv.", param_hint="--data")
    return folder.resolve()


def _check_models(chosen: list[str] | None, names: list[str]) -> None:
    """Raise BadParameter for a model of none of the experiments, before anything runs."""
    known = {
        model: None
        for name in names
        for model in (EXPERIMENTS[name].competitors if name in EXPERIMENTS else capabilities.MODELS)
    }
    unknown = [model for model in chosen or [] if model not in known]
    if unknown:
        raise BadParameter(
            f"There is no model {quoted(unknown[0])}; expected some of {', '.join(known)}.",
            param_hint="--models",
        )


def _tasks(
    name: str, seeds: int, chosen: list[str] | None, quick: bool, everything: bool
) -> list[Task]:
    """The fits of one experiment; with `all`, of those chosen models that it has."""
    experiment = EXPERIMENTS[name]
    if chosen is not None and everything:
        chosen = [model for model in chosen if model in experiment.competitors]
    return tasks(experiment, range(FIRST_SEED, FIRST_SEED + seeds), chosen, quick)


def _run_experiment(
    name: str, planned: list[Task], folder: Path, jobs: int, dask: str | None
) -> None:
    """Run the fits that are missing and write the table."""
    experiment = EXPERIMENTS[name]
    rows = _fits(planned, folder / f"{name}.csv", jobs, dask, experiment.title)
    table = folder / f"{name}.md"
    replace(table, lambda file: file.write(markdown(experiment, rows).encode()))
    console.print(f"[bold]{table}[/bold]")


def _fits(planned: list[Task], record: Path, jobs: int, dask: str | None, title: str) -> list[Row]:
    """Results of the fits, with a progress bar."""
    columns = (
        "{task.description}",
        bars.BarColumn(),
        bars.MofNCompleteColumn(),
        bars.TimeElapsedColumn(),
        "left",
        bars.TimeRemainingColumn(elapsed_when_finished=False),
        "{task.fields[last]}",
    )
    with bars.Progress(*columns, console=console) as progress:
        bar = progress.add_task(title, total=None, last="")

        def show(done: int, total: int, row: Row) -> None:
            last = f"{row['model']}, {row['variant']}: {row['seconds']:.0f} s"
            progress.update(bar, completed=done, total=total, last=last)

        return run(planned, record, jobs=jobs, dask=dask, callback=show)


def _run_capabilities(folder: Path, chosen: list[str] | None, jobs: int, dask: str | None) -> None:
    """Run the capability checks and write their table."""
    results: dict[str, dict[str, bool]] = {}
    with bars.Progress(console=console) as progress:
        known = {n: m for n, m in capabilities.MODELS.items() if chosen is None or n in chosen}
        bar = progress.add_task("Capabilities", total=len(known))
        for name, shown in zip(
            known, capabilities.demonstrations(known.values(), jobs, dask), strict=True
        ):
            results[name] = shown
            progress.advance(bar)
    folder.mkdir(parents=True, exist_ok=True)
    table = folder / "capabilities.md"
    text = capabilities.markdown(results)
    replace(table, lambda file: file.write(text.encode()))
    console.print(text, markup=False)
    console.print(f"[bold]{table}[/bold]")
