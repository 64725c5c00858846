"""Reads the training data of `dagp fit` from a table: inputs, target, weights and labels."""

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import numpy as np

from dagp.cli import frames, tables
from dagp.cli.app import InputError, NotNumericError
from dagp.cli.cells import Kind, Part
from dagp.cli.config import Settings
from dagp.cli.roles import check_categories, kind_of_role, role_advice, role_of_kind
from dagp.cli.spelling import listed, split_names
from dagp.core.text import quoted
from dagp.tables.validation import HEAVIEST


class TrainingData(NamedTuple):
    """Columns that a model is fitted to, with the names of the inputs."""

    X: Any
    """Numbers, or a data frame if some columns hold something else."""
    y: np.ndarray
    weights: np.ndarray | None
    labels: np.ndarray | None
    features: list[str]
    roles: dict[str, str] | None
    """Roles of the inputs; None if all are numbers."""
    lines: np.ndarray
    """Line of each row in its file."""


def read_training_data(
    table: tables.Table, settings: Settings, inputs: list[str], processes: int
) -> TrainingData:
    """Read and check the inputs and the columns that the settings name."""
    target, weights, labels = settings["target"], settings.get("weights"), settings.get("labels")
    others = [name for name in (target, weights, labels) if name is not None]
    names = [*inputs, *others]
    stated: Mapping[str, str] = settings.get("columns", {})
    kinds = {name: kind_of_role(table, name, stated.get(name)) for name in inputs}
    part = _read(table, names, kinds, stated)
    if labels is not None:
        known = part.columns[labels]
        part.columns[labels] = np.where(np.isnan(known), -1, known)
    gaps = tables.incomplete_rows(table, part, settings.get("missing") == "drop")
    if weights is not None:
        _check(table, part, weights, lambda w: w < 0, "a weight must not be negative")
        most = f"a weight must not exceed {HEAVIEST:.0e}"
        _check(table, part, weights, lambda w: w > HEAVIEST, most)
        if not np.any(part.columns[weights][~gaps] > 0):
            zero = f"column {quoted(weights)} is zero in every row"
            raise InputError(f"{table.name}: {zero}, so that no weight is left.")
        part.columns[weights] = np.where(gaps, 1.0, part.columns[weights])
    if labels is not None:
        expected = f"a label must be a process from 0 to {processes - 1}, empty or -1 if unknown"
        valid = np.arange(-1, processes)
        _check(table, part, labels, lambda found: ~np.isin(found, valid), expected)
    roles = {name: stated.get(name, role_of_kind(kind)) for name, kind in kinds.items()}
    return TrainingData(
        frames.inputs_of(part, inputs),
        # All rows are handed on, so that the model knows each; those without an output are dropped.
        np.where(gaps, np.nan, part.columns[target]),
        None if weights is None else part.columns[weights],
        None if labels is None else part.columns[labels],
        inputs,
        None if set(roles.values()) == {"number"} else roles,
        part.rows,
    )


def _read(
    table: tables.Table, names: list[str], kinds: Mapping[str, Kind], stated: Mapping[str, str]
) -> Part:
    """The columns, with advice where one holds text."""
    try:
        part = tables.read_columns(table, names, kinds)
    except NotNumericError as error:
        # The target, weights and labels must be numbers.
        hint = f" {role_advice(error.column)}." if error.column in kinds else ""
        raise InputError(f"{error}{hint}") from error
    texts = [name for name, kind in kinds.items() if kind is Kind.text and name not in stated]
    check_categories(table, part, texts)
    return part


def _check(
    table: tables.Table,
    part: Part,
    column: str,
    wrong: Callable[[np.ndarray], np.ndarray],
    expected: str,
) -> None:
    """Raise InputError for the first wrong cell of a column."""
    values = part.columns[column]
    if (bad := wrong(values)).any():
        first = np.flatnonzero(bad)[0]
        where = f"{table.name}, row {part.rows[first]}, column {quoted(column)}"
        raise InputError(f"{where}: {expected}, got {values[first]:g}.")


def input_names(table: tables.Table, settings: Settings) -> list[str]:
    """Input columns: those of the setting, or all others; none whose role is to be ignored."""
    if "target" not in settings:
        raise InputError("--target must name the output column, or target in [data] of --config.")
    taken = [settings[key] for key in ("target", "weights", "labels") if key in settings]
    features, where = settings.get("features"), settings.where("features")
    roles = settings.get("columns", {})
    tables.require_columns(table, [*taken, *roles])
    for name in taken:
        if name in roles:
            found = f"{quoted(name)} is the target, weights or labels column"
            raise InputError(f"{found}: it holds numbers and has no role.")
    if features is None:
        names = [name for name in table.columns if name not in taken]
    elif isinstance(features, list):
        names = features
    elif features in table.columns:
        names = [features]
    else:
        names = split_names(features)
    for name in names:
        if name in taken:
            raise InputError(f"{where}: {quoted(name)} is the target, weights or labels column.")
        if features is not None and names.count(name) > 1:
            raise InputError(f"{where}: column {quoted(name)} is listed twice.")
    names = [name for name in names if roles.get(name) != "ignore"]
    if not names:
        raise InputError(
            f"{table.name} has only the columns {listed(table.columns)}: "
            "no input column is left. If it has more columns, set --delimiter."
        )
    return tables.require_columns(table, names)
