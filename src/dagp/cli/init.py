"""`dagp init`: looks at a table and writes a config file for `dagp fit`, with comments."""

import json
import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import numpy as np
from typer import Option

from dagp.cli import options, tables
from dagp.cli.app import InputError, check_output, print_message, print_result
from dagp.cli.cells import Kind
from dagp.cli.roles import role_of_kind
from dagp.cli.survey import Column, survey
from dagp.core.text import quoted, shown
from dagp.files.atomic import replace
from dagp.tables.columns import ROLES

_MODEL = """\
[model]
processes = 2            # or "auto" to determine the number
noise_process = false    # true: one more process, for outliers
kernel = "squared-exponential"   # matern52 and matern32 for rougher functions
noise = "gaussian"       # "student" or "laplace": heavy tails, for readings with large errors
varying_noise = false    # true: noise that depends on the inputs
depth = 1                # GP layers of each process
gate = "gp"              # "constant": weights of the processes do not depend on the inputs
# inducing = "auto"      # inducing points: a number, or "all" for exact inference
# Processes that differ, instead of a number:
# [[model.processes]]
# kind = "gp"            # gp, deep-gp, noise or uniform
# kernel = { kind = "periodic", period = 24.0 }
# noise_std = { value = 0.1, fixed = true }
# [[model.processes]]
# kind = "noise"

[search]
starts = 8               # initialisations that are compared
max_iter = 1000          # most steps of the final training
tol = 1e-4               # gain per row below which training ends
seed = 0                 # the same seed gives the same model
# batch_size = 1000      # rows per minibatch, for large tables
"""


def init(
    data: options.Data,
    out: Annotated[Path, Option("--out", "-o", help="Config file to write.")] = Path("dagp.toml"),
    target: Annotated[
        str | None,
        Option("--target", "-t", help="Output column; the last column of numbers if omitted."),
    ] = None,
    delimiter: options.Delimiter = None,
    decimal: options.Decimal = None,
    force: options.Force = False,
) -> None:
    """Look at a table and write a config file for dagp fit.

    The file names target, inputs and their roles, and has comments on every
    column and setting. Edit it as you like.
    """
    check_output(out, force, data)
    with tables.open_table(data, delimiter, decimal) as table:
        columns = survey(table)
        chosen = _target(table, columns, target)
    inputs = [column for column in columns if column.usable and column is not chosen]
    if not inputs:
        raise InputError(
            f"{data}: no column besides the target {quoted(chosen.name)} can be an input."
        )
    stated = {"delimiter": delimiter, "decimal": decimal}
    left = [c for c in columns if c is not chosen and not c.usable]
    parts = [
        _heading(data, out, columns, len(chosen.missing)),
        _data(chosen, inputs, left, {k: v for k, v in stated.items() if v}),
        _columns(inputs),
        _MODEL,
    ]
    replace(out, lambda file: file.write("\n".join(parts).encode()))
    print_message(
        f"Target {quoted(chosen.name)}, {len(inputs)} input(s), {len(left)} column(s) left out."
    )
    print_result(f"Config: {out}")
    print_result(f"To fit: {_command(data, out)}")


def _target(table: tables.Table, columns: Sequence[Column], name: str | None) -> Column:
    """The column of this name, or the last one of numbers."""
    if name is not None:
        tables.require_columns(table, [name])
        found = next(column for column in columns if column.name == name)
        if found.kind is not Kind.number or not len(found.missing) or found.missing.all():
            raise InputError(
                f"{table.name}: the target {quoted(name)} must hold numbers: {found.text}."
            )
        return found
    numbers = [c for c in columns if c.usable and c.kind is Kind.number]
    if not numbers:
        raise InputError(f"{table.name} has no column of numbers that could be the target.")
    return numbers[-1]


def _command(data: str, out: Path) -> str:
    return shlex.join(["dagp", "fit", data, "--config", str(out)])


def _heading(data: str, out: Path, columns: Sequence[Column], rows: int) -> str:
    return (
        f"# Settings of: {shown(_command(data, out))}\n"
        f"# The table has {rows} rows and {len(columns)} columns. Options of dagp fit override "
        "this file.\n"
    )


def _data(
    target: Column, inputs: Sequence[Column], left: Sequence[Column], stated: dict[str, str]
) -> str:
    """The table [data]."""
    lines = ["[data]", "# The output; any other column of numbers can be it."]
    lines += [f"target = {_quoted(target.name)}  # {shown(target.described)}"]
    lines += ["features = ["]
    lines += [f"    {_quoted(c.name)},  # {shown(c.described)}" for c in inputs]
    lines += ["]"]
    lines += ["# Left out:"] * bool(left)
    lines += [f"#   {_quoted(c.name)}: {shown(c.text)}" for c in left]
    empty = int(np.any([c.missing for c in (target, *inputs)], axis=0).sum())
    if empty:
        lines += [f'missing = "drop"  # leaves out rows with empty cells, here {empty}; or "raise"']
    else:
        lines += ['missing = "raise"  # an error for rows with empty cells; or "drop"']
    lines += ['# weights = "…"   # column with the weights of rows']
    lines += ['# labels = "…"    # column with known process numbers, from 0; empty where unknown']
    lines += [f"{key} = {_quoted(value)}" for key, value in stated.items()]
    return "\n".join(lines) + "\n"


def _columns(inputs: Sequence[Column]) -> str:
    """The table [columns]."""
    lines = ["[columns]", f"# Roles: {', '.join(ROLES)}; or several, such as days+daily."]
    others = [column for column in inputs if column.kind is not Kind.number]
    lines += [f"{_quoted(c.name)} = {_quoted(role_of_kind(c.kind))}" for c in others]
    return "\n".join(lines) + "\n"


def _quoted(text: str) -> str:
    """A TOML string."""
    return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007f")
