"""Runs the fits of an experiment: on several processes, resuming, always with a record on disk.

A fit is a function of its variant, model and seed, so results do not depend on how many run at
once or in which order they end.
"""

import csv
import os
import time
import warnings
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

from joblib import Parallel, delayed

from dagp.experiments.cartpole import CARTPOLE
from dagp.experiments.experiment import Experiment, Row
from dagp.experiments.multimodal import MULTIMODAL
from dagp.experiments.noise import NOISE
from dagp.runtime import numerics

__all__ = ["EXPERIMENTS", "FIRST_SEED", "Task", "read", "run", "run_task", "tasks", "write"]

EXPERIMENTS = {experiment.name: experiment for experiment in (NOISE, MULTIMODAL, CARTPOLE)}
FIRST_SEED = 100
"""Seeds below are for tuning."""
Tell = Callable[[int, int, Row], Any]
"""Told how many fits are done, of how many, and the scores of the last one."""


class Task(NamedTuple):
    """One fit."""

    experiment: str
    variant: str
    model: str
    seed: int
    quick: bool

    @staticmethod
    def of(row: Row) -> "Task":
        """The fit a row of the record is about."""
        seed, quick = int(row["seed"]), str(row["quick"]) == "True"
        return Task(row["experiment"], row["variant"], row["model"], seed, quick)


def tasks(
    experiment: Experiment, seeds: Iterable[int], models: Iterable[str] | None, quick: bool
) -> list[Task]:
    """Every fit that is asked for; those of one model in a row, as they share compiled code."""
    chosen = list(experiment.competitors) if models is None else list(models)
    unknown = [name for name in chosen if name not in experiment.competitors]
    if unknown:
        raise ValueError(
            f"{experiment.name} has no model {unknown[0]!r}; it has "
            f"{', '.join(experiment.competitors)}."
        )
    variants = experiment.quick_variants if quick else experiment.variants
    seeds = list(seeds)
    return [
        Task(experiment.name, variant, model, seed, quick)
        for model in chosen
        for variant in variants
        for seed in seeds
    ]


def run_task(task: Task) -> Row:
    """Fit and score. A fit that fails is a result, with its reason."""
    experiment = EXPERIMENTS[task.experiment]
    row: Row = task._asdict()
    begin = time.perf_counter()
    # One BLAS thread, as in a worker: the order of sums must not depend on where a fit runs.
    with numerics(), warnings.catch_warnings():
        # Doubts about a fit are for somebody who looks at that fit; here the scores speak.
        warnings.simplefilter("ignore")
        try:
            data = experiment.data(task.variant, task.seed, task.quick)
            begin = time.perf_counter()
            model = experiment.competitors[task.model](data, task.seed, task.quick)
            seconds = time.perf_counter() - begin
            return row | experiment.score(model, data) | {"seconds": seconds}
        except Exception as error:
            return row | {"seconds": time.perf_counter() - begin, "error": repr(error)}


def run(
    wanted: list[Task], record: Path, *, jobs: int = 1, tell: Tell = lambda *_: None
) -> list[Row]:
    """Results of all tasks; what the record already holds is not done again."""
    rows = read(record)
    known = {Task.of(row) for row in rows if not row.get("error")}
    rows = [row for row in rows if Task.of(row) in known]
    missing = [task for task in wanted if task not in known]
    for done, row in enumerate(_results(missing, jobs), start=1):
        rows.append(row)
        write(rows, record)
        tell(done, len(missing), row)
    asked = set(wanted)
    # Read back: a result is the same whether it was computed now or before.
    return [row for row in read(record) if Task.of(row) in asked]


def _results(missing: list[Task], jobs: int) -> Iterator[Row]:
    if jobs == 1 or len(missing) < 2:
        yield from map(run_task, missing)
        return
    # loky starts fresh interpreters: a process forked after JAX has started hangs.
    pool: Any = Parallel(n_jobs=jobs, backend="loky", return_as="generator_unordered")
    yield from pool(delayed(run_task)(task) for task in missing)


def read(record: Path) -> list[Row]:
    """Rows of a record; numbers as numbers, absent scores left out."""
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
    """The record, complete or as it was: a run that is stopped loses nothing."""
    rows = sorted(rows, key=lambda row: tuple(map(str, Task.of(row))))
    columns = list(dict.fromkeys(name for row in rows for name in row))
    record.parent.mkdir(parents=True, exist_ok=True)
    draft = record.with_suffix(f".{os.getpid()}.tmp")
    with draft.open("w", newline="") as file:
        table = csv.DictWriter(file, columns)
        table.writeheader()
        table.writerows({**row, "seed": int(row["seed"])} for row in rows)
    draft.replace(record)
