"""Runs the fits of an experiment in parallel, resumable, with results recorded in a CSV file.

A fit depends on its variant, model and seed only, not on the number of workers or their order.
"""

import csv
import io
import itertools
import time
import warnings
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, NamedTuple

from dagp.core.precision import numerics
from dagp.experiments.cartpole import CARTPOLE
from dagp.experiments.experiment import Experiment, Row
from dagp.experiments.multimodal import MULTIMODAL
from dagp.experiments.noise import NOISE
from dagp.experiments.pool import parallel_map
from dagp.experiments.robust import ROBUST
from dagp.experiments.wetchicken import WETCHICKEN
from dagp.files.atomic import replace

EXPERIMENTS = {
    experiment.name: experiment for experiment in (NOISE, MULTIMODAL, CARTPOLE, ROBUST, WETCHICKEN)
}
FIRST_SEED = 100
"""Smaller seeds are reserved for tuning."""
Callback = Callable[[int, int, Row], Any]
"""Called after each fit with the number of fits done, their total, and the scores of the last."""


class Task(NamedTuple):
    """One fit."""

    experiment: str
    variant: str
    model: str
    seed: int
    quick: bool

    @staticmethod
    def of(row: Row) -> "Task":
        """The fit of a row of the record."""
        seed, quick = int(row["seed"]), str(row["quick"]) == "True"
        return Task(row["experiment"], row["variant"], row["model"], seed, quick)


def tasks(
    experiment: Experiment, seeds: Iterable[int], models: Iterable[str] | None, quick: bool
) -> list[Task]:
    """All requested fits, ordered by model, because fits of one model share compiled code."""
    chosen = list(experiment.competitors) if models is None else list(models)
    if unknown := [name for name in chosen if name not in experiment.competitors]:
        known = ", ".join(experiment.competitors)
        raise ValueError(f"{experiment.name} has no model {unknown[0]!r}; it has {known}.")
    variants = experiment.quick_variants if quick else experiment.variants
    fits = itertools.product(chosen, variants, seeds)
    return [
        Task(experiment.name, variant, model, seed, quick)
        for model, variant, seed in fits
        if experiment.available(variant, model)
    ]


def run_task(task: Task) -> Row:
    """Fit and score; an error is recorded as the result of the fit."""
    experiment = EXPERIMENTS[task.experiment]
    row: Row = task._asdict()
    begin = time.perf_counter()
    # One BLAS thread, as in a worker: the order of summation must not depend on where a fit runs.
    # Warnings about single fits are not needed: every fit is scored.
    with numerics(), warnings.catch_warnings(action="ignore"):
        try:
            data = experiment.data(task.variant, task.seed, task.quick)
            begin = time.perf_counter()
            model = experiment.competitors[task.model](data, task.seed, task.quick)
            seconds = time.perf_counter() - begin
            return row | experiment.score(model, data) | {"seconds": seconds}
        except Exception as error:
            return row | {"seconds": time.perf_counter() - begin, "error": repr(error)}


def run(
    wanted: list[Task],
    record: Path,
    *,
    jobs: int = 1,
    dask: str | None = None,
    callback: Callback = lambda *_: None,
) -> list[Row]:
    """Results of all tasks, from so many processes or from the workers of a Dask scheduler; fits
    that the record already holds are not repeated."""
    rows = read(record)
    known = {Task.of(row) for row in rows if not row.get("error")}
    rows = [row for row in rows if Task.of(row) in known]
    missing = [task for task in wanted if task not in known]
    for done, row in enumerate(parallel_map(run_task, missing, jobs, dask=dask), start=1):
        rows.append(row)
        write(rows, record)
        callback(done, len(missing), row)
    requested = set(wanted)
    # Read back from the file, so that new results are identical to resumed ones.
    return [row for row in read(record) if Task.of(row) in requested]


def read(record: Path) -> list[Row]:
    """Rows of a record, with numbers parsed and empty cells left out."""
    if not record.exists():
        return []
    with record.open(newline="") as file:
        return [
            {name: _value(text) for name, text in row.items() if text != ""}
            for row in csv.DictReader(file)
        ]


def _value(text: str) -> Any:
    if text in ("True", "False"):
        return text == "True"
    try:
        return float(text)
    except ValueError:
        return text


def write(rows: list[Row], record: Path) -> None:
    """Write the record atomically: an interrupted run leaves the previous file."""
    rows = sorted(rows, key=lambda row: tuple(map(str, Task.of(row))))
    columns = list(dict.fromkeys(name for row in rows for name in row))
    record.parent.mkdir(parents=True, exist_ok=True)
    text = io.StringIO(newline="")
    table = csv.DictWriter(text, columns)
    table.writeheader()
    table.writerows({**row, "seed": int(row["seed"])} for row in rows)
    replace(record, lambda file: file.write(text.getvalue().encode()))
