"""Model files on the command line: the estimator, its column names, and rows to show."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from dagp.cli import frames, tables
from dagp.cli.app import InputError
from dagp.cli.cells import Kind
from dagp.cli.roles import kind_of_column
from dagp.core.errors import StorageError
from dagp.estimator import DAGP
from dagp.files import format as storage
from dagp.files import modelfile
from dagp.tables.reading import is_missing


class Model(NamedTuple):
    """The content of a model file."""

    path: Path
    estimator: DAGP
    features: list[str] | None
    """Names of the inputs; None if the model was fitted to an array without names."""
    inputs: int
    outputs: int
    target: str | None


def read_header(path: Path) -> storage.Header:
    """The header of a model or checkpoint file, without its arrays."""
    if path.is_dir():
        raise InputError(f"{path} is a folder, not a model file.")
    if not path.exists():
        raise InputError(f"There is no file {path}.")
    try:
        return storage.describe(path)
    except StorageError as error:
        raise InputError(str(error)) from error


def load_model(path: Path) -> Model:
    """The model in a file."""
    about = read_header(path).about
    try:
        estimator = DAGP.load(path)
    except StorageError as error:
        raise InputError(str(error)) from error
    target = about.get("target")
    if not isinstance(target, str | None):
        found = type(target).__name__
        raise InputError(f"{path} is damaged: the target name must be a string, got {found}.")
    names, units = getattr(estimator, "feature_names_in_", None), estimator.posterior_.units
    features = None if names is None else [str(name) for name in names]
    inputs = len(estimator.columns_.columns)
    return Model(path, estimator, features, inputs, units.y_unit.size, target)


def input_columns(model: Model, table: tables.Table, target: str | None) -> list[str]:
    """The input columns of a table, by name, or by position if the model has no names."""
    if model.features is not None:
        return tables.require_columns(table, model.features)
    names = [name for name in table.columns if name != target]
    if len(names) != model.inputs:
        expected = f"has no column names and expects {model.inputs} input column(s)"
        raise InputError(f"{model.path} {expected}; {table.name} has {len(names)}.")
    return names


def input_kinds(model: Model, names: Sequence[str]) -> dict[str, Kind]:
    """How the inputs of a model are read, by what the fit has found in them."""
    columns = model.estimator.columns_.columns
    return {name: kind_of_column(one) for name, one in zip(names, columns, strict=True)}


class Rows(NamedTuple):
    """Rows to show with a model."""

    X: Any
    """Numbers, or a data frame if some columns hold something else."""
    y: np.ndarray
    lines: np.ndarray | None
    """Line of each row in its file; None for the training data, whose rows the model can name."""
    dropped: int = 0
    """Number of rows of the file with empty cells, which are left out."""


def rows_to_show(model: Model, data: str | None, target: str | None) -> Rows:
    """Rows of the table `data`, complete ones, or of the training data if it is None."""
    if data is None:
        saved = modelfile.training_data(model.path)
        if saved is None:
            raise InputError(f"{model.path} was saved without its data; --data must name a table.")
        X, y = saved
        if model.estimator.missing == "drop":
            return Rows(X, y, None)
        empty = np.isnan(X) if X.dtype != object else np.frompyfunc(is_missing, 1, 1)(X)
        keep = ~np.column_stack([empty, np.isnan(y)]).astype(bool).any(axis=1)
        return Rows(X[keep], y[keep], None)
    if model.outputs > 1:
        raise InputError(f"--data needs a model with one output; {model.path} has {model.outputs}.")
    name = target or model.target
    if name is None:
        raise InputError(f"{model.path} has no target name; --target must name the output column.")
    with tables.open_table(data) as table:
        inputs = input_columns(model, table, name)
        names = [*inputs, *tables.require_columns(table, [name])]
        whole = tables.read_columns(table, names, input_kinds(model, inputs))
        gaps = tables.incomplete_rows(table, whole, drop=True)
    part = whole.select(~gaps)
    return Rows(frames.inputs_of(part, inputs), part.columns[name], part.rows, int(gaps.sum()))
