"""`dagp predict`: from a model and a table to predictions, in bounded memory."""

import io
import json
import sys
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Annotated, Any, BinaryIO

import numpy as np
import typer
from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

from dagp import storage
from dagp.cli import tables
from dagp.cli.app import (
    Decimal,
    Delimiter,
    Force,
    InputError,
    ModelFile,
    Target,
    check_output,
    messages,
    say,
)
from dagp.cli.models import Model, inputs_of, opened_model
from dagp.mixture import Mixture

__all__ = ["columns_of", "predict"]

STDOUT = "-"


def predict(
    model: ModelFile,
    data: Annotated[str, typer.Argument(help="CSV or Parquet file; - is standard input.")],
    out: Annotated[
        str, typer.Option("--out", "-o", help="CSV or Parquet file; - is standard output.")
    ] = STDOUT,
    level: Annotated[float, typer.Option(help="Probability between lower and upper.")] = 0.95,
    target: Target = None,
    delimiter: Delimiter = None,
    decimal: Decimal = None,
    as_json: Annotated[
        bool, typer.Option("--json", help="JSON on stdout: the rows, or what OUT holds.")
    ] = False,
    force: Force = False,
) -> None:
    """Predict every row: the mixture, its interval, and each process.

    Columns are found by name. Where the target is among them, its log density and the
    responsibility of each process are given too. A row with an empty cell gets empty answers.
    """
    if not 0 < level < 1:
        raise InputError(f"--level is between 0 and 1, and not {level}.")
    if out != STDOUT:
        check_output(Path(out), force)
    fitted = opened_model(model)
    with tables.opened(data, delimiter, decimal) as table:
        wanted, known = _wanted(fitted, table, target)
        names = columns_of(fitted, known)
        counts = {"rows": 0, "empty": 0}
        parts = _shown(_answers(fitted, table.parts(wanted), known, level, counts), counts)
        _write(out, names, _at_least_one(parts, table), as_json)
    if counts["empty"]:
        say(f"{counts['empty']} of {counts['rows']} rows have empty cells, and empty answers.")
    if as_json and out != STDOUT:
        typer.echo(json.dumps({"output": out, "columns": names, **counts}))


def _wanted(fitted: Model, table: tables.Table, target: str | None) -> tuple[list[str], bool]:
    """Columns to read, and whether the last is the target."""
    inputs = inputs_of(fitted, table, target or fitted.target)
    if target is None and fitted.target in table.columns and fitted.outputs == 1:
        target = fitted.target
    return tables.find(table, [*inputs, *([] if target is None else [target])]), target is not None


def columns_of(fitted: Model, known: bool) -> list[str]:
    """Names of the columns of a prediction."""
    outputs = [""] if fitted.outputs == 1 else [f"_y{j}" for j in range(fitted.outputs)]
    names = [f"{name}{j}" for name in ("mean", "sd", "lower", "upper") for j in outputs]
    for k in range(len(fitted.estimator.processes_)):
        names += [f"weight_{k}", *(f"{name}_{k}{j}" for name in ("mean", "sd") for j in outputs)]
    if known:
        names += [f"responsibility_{k}" for k in range(len(fitted.estimator.processes_))]
        names += ["log_density", "assignment"]
    return names


def _answers(
    fitted: Model, parts: Iterable[tables.Part], known: bool, level: float, counts: dict[str, int]
) -> Iterator[tables.Columns]:
    """Predictions for some rows after others; NaN where an input is not there."""
    D, width = fitted.inputs, len(columns_of(fitted, known))
    for part in parts:
        X, y = part.values[:, :D], part.values[:, D:]
        there = ~np.isnan(X).any(axis=1)
        columns = np.full((len(X), width), np.nan)
        if there.any():
            mixture = fitted.estimator.posterior_.mixture(X[there], flat=fitted.outputs == 1)
            found = _described(mixture, len(fitted.estimator.processes_), level)
            if known:
                found += _explained(mixture, y[there, 0])
            columns[there] = np.column_stack(found)
        counts["rows"] += len(X)
        counts["empty"] += int((~there).sum())
        yield list(columns.T)


def _described(mixture: Mixture, processes: int, level: float) -> list[np.ndarray]:
    found = [mixture.mean(), np.sqrt(mixture.variance()), *mixture.interval(level)]
    for k in range(processes):
        mine = [c for c, owner in enumerate(mixture.owner) if owner == k]
        alone = mixture.marginal(k)
        found += [mixture.weights[:, mine].sum(axis=1), alone.mean(), np.sqrt(alone.variance())]
    return found


def _explained(mixture: Mixture, y: np.ndarray) -> list[np.ndarray]:
    """Responsibilities, log density and assignment; NaN where the output is not there."""
    there = ~np.isnan(y)
    level = np.where(there, y, 0.0)
    shares = mixture.responsibilities(level)
    found = [*shares.T, mixture.log_prob(level), shares.argmax(axis=1).astype(float)]
    return [np.where(there, column, np.nan) for column in found]


def _shown(parts: Iterator[tables.Columns], counts: dict[str, int]) -> Iterator[tables.Columns]:
    look = (SpinnerColumn(), TextColumn("{task.description}"), TimeElapsedColumn())
    quiet = not messages.is_terminal
    with Progress(*look, console=messages, transient=True, disable=quiet) as progress:
        task = progress.add_task("predicting", total=None)
        for part in parts:
            progress.update(task, description=f"{counts['rows']} rows predicted")
            yield part


def _at_least_one(parts: Iterator[Any], table: tables.Table) -> Iterator[Any]:
    """The same; an error where there is nothing, before anything is written."""
    first = next(parts, None)
    if first is None:
        raise InputError(f"{table.name} has a header and no rows.")

    def every() -> Iterator[Any]:
        yield first
        yield from parts

    return every()


def _write(out: str, names: Sequence[str], parts: Iterable[tables.Columns], as_json: bool) -> None:
    """To standard output, or to a file that is either complete or as it was."""
    if out == STDOUT:
        write = tables.write_json if as_json else tables.write_csv
        write(sys.stdout, names, _whole(names, parts))
        return

    def fill(file: BinaryIO) -> None:
        if Path(out).suffix.lower() in (".parquet", ".pq"):
            tables.write_parquet(file, names, parts)
            return
        text = io.TextIOWrapper(file, "utf-8", newline="")
        tables.write_csv(text, names, _whole(names, parts))
        text.detach()

    storage.replace(out, fill)


def _whole(names: Sequence[str], parts: Iterable[tables.Columns]) -> Iterator[tables.Columns]:
    """With assignments as whole numbers where every row has one."""
    for columns in parts:
        if names[-1] == "assignment":
            columns[-1] = _integers(columns[-1])
        yield columns


def _integers(column: np.ndarray) -> np.ndarray:
    if not np.isnan(column).any():
        return column.astype(np.int64)
    return np.array([v if np.isnan(v) else int(v) for v in column], dtype=object)
