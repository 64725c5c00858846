"""`dagp predict`: predictions for the rows of a table, computed in parts of bounded memory."""

import io
import json
import sys
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain
from pathlib import Path
from typing import Annotated, BinaryIO

import numpy as np
from typer import Option, echo

from dagp.cli import options, tables
from dagp.cli.app import InputError, check_output, print_message
from dagp.cli.models import Model, input_columns, load_model
from dagp.cli.progress import spinner
from dagp.files.atomic import replace
from dagp.predict.mixture import Mixture

STDOUT = "-"


def predict(
    model: options.ModelFile,
    data: options.Data,
    out: Annotated[
        str, Option("--out", "-o", help="CSV or Parquet file to write; - is standard output.")
    ] = STDOUT,
    level: Annotated[float, Option(help="Probability of the interval.")] = 0.95,
    target: options.Target = None,
    delimiter: options.Delimiter = None,
    decimal: options.Decimal = None,
    as_json: Annotated[
        bool, Option("--json", help="Print JSON on stdout: the rows, or a summary of OUT.")
    ] = False,
    force: options.Force = False,
) -> None:
    """Predict every row: the mixture, its interval, and each process.

    Columns are matched by name. If the target is among them, the log density
    and the responsibility of each process are added. A row with an empty
    input gets empty cells.
    """
    if not 0 < level < 1:
        raise InputError(f"--level must be between 0 and 1, got {level}.")
    if out != STDOUT:
        check_output(Path(out), force)
    fitted = load_model(model)
    with tables.open_table(data, delimiter, decimal) as table:
        wanted, has_target = _wanted_columns(fitted, table, target)
        names = _output_names(fitted, has_target)
        counts = {"rows": 0, "empty": 0}
        parts = _predictions(fitted, table.parts(wanted), has_target, level, counts)
        # Raised before an output is opened.
        if (first := next(parts, None)) is None:
            raise InputError(f"{table.name} has a header and no rows.")
        _write(out, names, chain([first], parts), as_json)
    if counts["empty"]:
        share = f"{counts['empty']} of {counts['rows']} rows"
        print_message(f"{share} have empty inputs and no prediction.")
    if as_json and out != STDOUT:
        echo(json.dumps({"output": out, "columns": names, **counts}))


def _wanted_columns(
    fitted: Model, table: tables.Table, target: str | None
) -> tuple[list[str], bool]:
    """Columns to read, and whether the last one is the target."""
    inputs = input_columns(fitted, table, target or fitted.target)
    if target is None and fitted.target in table.columns and fitted.outputs == 1:
        target = fitted.target
    targets = [] if target is None else [target]
    return tables.require_columns(table, [*inputs, *targets]), target is not None


def _output_names(fitted: Model, has_target: bool) -> list[str]:
    """Column names of the predictions."""
    outputs = [""] if fitted.outputs == 1 else [f"_y{j}" for j in range(fitted.outputs)]
    names = [f"{name}{j}" for name in ("mean", "sd", "lower", "upper") for j in outputs]
    for k in range(len(fitted.estimator.processes_)):
        names += [f"weight_{k}", *(f"{name}_{k}{j}" for name in ("mean", "sd") for j in outputs)]
    if has_target:
        names += [f"responsibility_{k}" for k in range(len(fitted.estimator.processes_))]
        names += ["log_density", "assignment"]
    return names


def _predictions(
    fitted: Model,
    parts: Iterable[tables.Part],
    has_target: bool,
    level: float,
    counts: dict[str, int],
) -> Iterator[tables.Columns]:
    """Output columns of each part, NaN where an input is empty; counts such rows, and all."""
    with spinner("predicting") as describe:
        for part in parts:
            known = np.logical_not(np.isnan(part.values[:, : fitted.inputs]).any(axis=1))
            rows = np.full((len(known), len(_output_names(fitted, has_target))), np.nan)
            if known.any():
                rows[known] = _predict_rows(fitted, part.values[known], has_target, level)
            counts["rows"] += len(known)
            counts["empty"] += int((~known).sum())
            describe(f"{counts['rows']} rows predicted")
            yield list(rows.T)


def _predict_rows(fitted: Model, values: np.ndarray, has_target: bool, level: float) -> np.ndarray:
    """Output rows for complete inputs, which may be followed by the target."""
    X, y = values[:, : fitted.inputs], values[:, fitted.inputs :]
    mixture = fitted.estimator.posterior_.mixture(X, flat=fitted.outputs == 1)
    columns = _mixture_columns(mixture, len(fitted.estimator.processes_), level)
    if has_target:
        columns += _target_columns(mixture, y[:, 0])
    return np.column_stack(columns)


def _mixture_columns(mixture: Mixture, processes: int, level: float) -> list[np.ndarray]:
    """Mean, standard deviation and interval of the mixture; weight, mean and sd per process."""
    columns = [mixture.mean(), np.sqrt(mixture.variance()), *mixture.interval(level)]
    for k in range(processes):
        own = [c for c, owner in enumerate(mixture.owner) if owner == k]
        marginal = mixture.marginal(k)
        weight = mixture.weights[:, own].sum(axis=1)
        columns += [weight, marginal.mean(), np.sqrt(marginal.variance())]
    return columns


def _target_columns(mixture: Mixture, y: np.ndarray) -> list[np.ndarray]:
    """Responsibilities, log density and assignment; NaN where the target is missing."""
    known = ~np.isnan(y)
    y = np.where(known, y, 0.0)
    responsibilities = mixture.responsibilities(y)
    assignment = responsibilities.argmax(axis=1).astype(float)
    columns = [*responsibilities.T, mixture.log_prob(y), assignment]
    return [np.where(known, column, np.nan) for column in columns]


def _write(out: str, names: Sequence[str], parts: Iterable[tables.Columns], as_json: bool) -> None:
    """Write to stdout, or to a file that is replaced only when all rows are written."""
    if out == STDOUT:
        write = tables.write_json if as_json else tables.write_csv
        write(sys.stdout, names, _with_integers(names, parts))
        return

    def fill(file: BinaryIO) -> None:
        if Path(out).suffix.lower() in (".parquet", ".pq"):
            tables.write_parquet(file, names, parts)
            return
        text = io.TextIOWrapper(file, "utf-8", newline="")
        tables.write_csv(text, names, _with_integers(names, parts))
        text.detach()

    replace(out, fill)


def _with_integers(
    names: Sequence[str], parts: Iterable[tables.Columns]
) -> Iterator[tables.Columns]:
    """The same parts, with assignments as integers."""
    for columns in parts:
        if names[-1] == "assignment":
            values = [v if np.isnan(v) else int(v) for v in columns[-1]]
            columns[-1] = np.array(values, dtype=object)
        yield columns
