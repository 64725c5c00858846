"""Model files, opened: the estimator, what its columns are called, and its data."""

from pathlib import Path
from typing import NamedTuple

import numpy as np

from dagp import modelfile, storage
from dagp.cli import tables
from dagp.cli.app import InputError
from dagp.errors import StorageError
from dagp.estimator import DAGP

__all__ = ["Model", "data_of", "described", "inputs_of", "opened_model"]


class Model(NamedTuple):
    """A model file."""

    path: Path
    estimator: DAGP
    features: list[str] | None
    """Names of the inputs, where the model knows them."""
    inputs: int
    outputs: int
    target: str | None


def described(path: Path) -> storage.Header:
    """What a file says about itself, without its arrays."""
    if path.is_dir():
        raise InputError(f"{path} is a folder, not a model file.")
    if not path.exists():
        raise InputError(f"There is no file {path}.")
    try:
        return storage.describe(path)
    except StorageError as error:
        raise InputError(str(error)) from error


def opened_model(path: Path) -> Model:
    """The model in a file."""
    about = described(path).about
    try:
        estimator = DAGP.load(path)
    except StorageError as error:
        raise InputError(str(error)) from error
    target = about.get("target")
    if not isinstance(target, str | None):
        raise InputError(f"{path} is damaged: the name of its target is none.")
    names = getattr(estimator, "feature_names_in_", None)
    units = estimator.posterior_.units
    return Model(
        path,
        estimator,
        None if names is None else [str(name) for name in names],
        units.x_unit.size,
        units.y_unit.size,
        target,
    )


def inputs_of(model: Model, table: tables.Table, target: str | None) -> list[str]:
    """The columns of a table that the model takes; by position where it knows no names."""
    if model.features is not None:
        return tables.find(table, model.features)
    names = [name for name in table.columns if name != target]
    if len(names) != model.inputs:
        raise InputError(
            f"{model.path} knows no names of columns and takes {model.inputs}; "
            f"{table.name} has {len(names)}."
        )
    return names


def data_of(model: Model, data: str | None, target: str | None) -> tuple[np.ndarray, np.ndarray]:
    """Complete rows to show: those of a table, or else those the model was fitted to."""
    if data is None:
        kept = modelfile.training_data(model.path)
        if kept is None:
            raise InputError(f"{model.path} was saved without its data; --data names some.")
        X, y = kept
        keep = ~np.isnan(np.column_stack([X, y])).any(axis=1)
        return X[keep], y[keep]
    name = target or model.target
    if name is None or model.outputs > 1:
        raise InputError(f"{model.path} does not say which column is the target; --target does.")
    with tables.opened(data) as table:
        names = [*inputs_of(model, table, name), *tables.find(table, [name])]
        part = tables.complete(table, tables.read(table, names), names, drop=True)
    return part.values[:, :-1], part.values[:, -1]
