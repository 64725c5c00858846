"""`dagp predict`: predictions for the rows of a table, computed in parts of bounded memory."""

import io
import json
import sys
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain
from pathlib import Path
from typing import Annotated, BinaryIO, NamedTuple

import numpy as np
from typer import Option, echo

from dagp.cli import frames, options, tables
from dagp.cli.app import InputError, check_output, check_stdout, print_message
from dagp.cli.cells import Kind, Part, Request, absent
from dagp.cli.keeping import kept_columns, kept_fields
from dagp.cli.models import Model, input_columns, input_kinds, load_model
from dagp.cli.progress import spinner, warnings_as_notes
from dagp.cli.writing import (
    AUTO,
    Columns,
    Digits,
    Field,
    parse_digits,
    write_csv,
    write_json,
    write_parquet,
)
from dagp.files.atomic import replace
from dagp.predict.mixture import Mixture

STDOUT = "-"
_ROW = Field("row", "int64")
"""The line of each row in its file."""


def predict(
    model: options.ModelFile,
    data: options.Data,
    out: Annotated[
        str, Option("--out", "-o", help="CSV or Parquet file to write; - is standard output.")
    ] = STDOUT,
    keep: Annotated[
        list[str] | None,
        Option(help="Columns of DATA to copy, separated by commas, or all; can be repeated."),
    ] = None,
    level: Annotated[float, Option(help="Probability of the interval.")] = 0.95,
    digits: Annotated[
        str, Option(help="Digits in CSV and JSON: auto (what a number deserves), full or a number.")
    ] = AUTO,
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
    input gets empty cells. The column row has the line of each row in DATA.
    """
    if not 0 < level < 1:
        raise InputError(f"--level must be between 0 and 1, got {level}.")
    precision = parse_digits(digits)
    if out == STDOUT or as_json:
        check_stdout()
    if out != STDOUT:
        check_output(Path(out), force, model, data)
    fitted = load_model(model)
    with warnings_as_notes(), tables.open_table(data, delimiter, decimal) as table:
        plan = _plan(fitted, table, target, keep or [], level)
        counts = {"rows": 0, "empty": 0}
        parts = _predictions(plan, table.parts(plan.request), counts)
        # Raised before an output is opened.
        if (first := next(parts, None)) is None:
            raise InputError(f"{table.name} has a header and no rows.")
        _write(out, plan.fields, chain([first], parts), as_json, precision)
    if counts["empty"]:
        share = f"{counts['empty']} of {counts['rows']} rows"
        print_message(f"{share} have empty inputs and no prediction.")
    if as_json and out != STDOUT:
        names = [field.name for field in plan.fields]
        echo(json.dumps({"output": out, "columns": names, **counts}))


class Plan(NamedTuple):
    """What is read for a prediction, and what is written."""

    fitted: Model
    inputs: list[str]
    target: str | None
    request: Request
    level: float
    fields: list[Field]


def _plan(
    fitted: Model, table: tables.Table, target: str | None, keep: Sequence[str], level: float
) -> Plan:
    """Columns to read and to write."""
    inputs = input_columns(fitted, table, target or fitted.target)
    if target is None and fitted.target in table.columns and fitted.outputs == 1:
        target = fitted.target
    targets = [] if target is None else tables.require_columns(table, [target])
    kinds = dict.fromkeys([*inputs, *targets], Kind.number) | input_kinds(fitted, inputs)
    kept = kept_columns(table, keep)
    predicted = _output_fields(fitted, target is not None)
    copied = kept_fields(table, kept, [field.name for field in predicted])
    fields = [_ROW, *copied, *predicted]
    return Plan(fitted, inputs, target, Request(kinds, kept), level, fields)


def _output_fields(fitted: Model, has_target: bool) -> list[Field]:
    """Columns of the predictions; means have the digits that their errors deserve."""
    outputs = [""] if fitted.outputs == 1 else [f"_y{j}" for j in range(fitted.outputs)]
    fields = [
        Field(f"{name}{j}", error=None if name == "sd" else f"sd{j}")
        for name in ("mean", "sd", "lower", "upper")
        for j in outputs
    ]
    for k in range(len(fitted.estimator.processes_)):
        fields.append(Field(f"weight_{k}"))
        fields += [Field(f"mean_{k}{j}", error=f"sd_{k}{j}") for j in outputs]
        fields += [Field(f"sd_{k}{j}") for j in outputs]
    if has_target:
        fields += [Field(f"responsibility_{k}") for k in range(len(fitted.estimator.processes_))]
        fields += [Field("log_density"), Field("assignment", "int64")]
    return fields


def _predictions(plan: Plan, parts: Iterable[Part], counts: dict[str, int]) -> Iterator[Columns]:
    """Output columns of each part, NaN where an input is empty; counts such rows, and all."""
    width = len(plan.fields) - 1 - len(plan.request.copied)
    with spinner("predicting") as describe:
        for part in parts:
            known = ~np.any([absent(part.columns[name]) for name in plan.inputs], axis=0)
            columns = np.full((width, len(known)), np.nan)
            if known.any():
                columns[:, known] = _predict_rows(plan, part.select(known))
            counts["rows"] += len(known)
            counts["empty"] += int((~known).sum())
            describe(f"{counts['rows']} rows predicted")
            yield [part.rows, *part.copies.values(), *_with_integers(plan, columns)]


def _predict_rows(plan: Plan, part: Part) -> np.ndarray:
    """Output columns of rows with complete inputs."""
    estimator, flat = plan.fitted.estimator, plan.fitted.outputs == 1
    X, columns_ = frames.inputs_of(part, plan.inputs), estimator.columns_
    try:
        X = X if columns_.plain else columns_.encode(X)
    except ValueError as error:
        raise InputError(str(error)) from error
    mixture = estimator.posterior_.mixture(X, flat=flat)
    columns = _mixture_columns(mixture, len(estimator.processes_), plan.level)
    if plan.target is not None:
        columns += _target_columns(mixture, part.columns[plan.target])
    return np.column_stack(columns).T


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


def _write(
    out: str, fields: Sequence[Field], parts: Iterable[Columns], as_json: bool, digits: Digits
) -> None:
    """Write to stdout, or to a file that is replaced only when all rows are written."""
    if out == STDOUT:
        write = write_json if as_json else write_csv
        write(sys.stdout, fields, parts, digits)
        return

    def fill(file: BinaryIO) -> None:
        if Path(out).suffix.lower() in (".parquet", ".pq"):
            write_parquet(file, fields, parts)
            return
        text = io.TextIOWrapper(file, "utf-8", newline="")
        write_csv(text, fields, parts, digits)
        text.detach()

    replace(out, fill)


def _with_integers(plan: Plan, columns: np.ndarray) -> Columns:
    """The columns, with assignments as integers."""
    found: Columns = list(columns)
    if plan.target is not None:
        whole = [None if np.isnan(v) else int(v) for v in found[-1]]
        found[-1] = np.array(whole, dtype=object)
    return found
