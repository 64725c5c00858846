"""Reads the training data of `dagp fit` from a table: inputs, target, weights and labels."""

import csv
from typing import NamedTuple

import numpy as np

from dagp.cli import tables
from dagp.cli.app import InputError, NotNumericError
from dagp.inference.standardize import Sample
from dagp.tables.validation import check_labels, check_weights


class TrainingData(NamedTuple):
    """Arrays that a model is fitted to, with the names of the inputs."""

    X: np.ndarray
    y: np.ndarray
    weights: np.ndarray | None
    labels: np.ndarray | None
    features: list[str]

    def sample(self, processes: int) -> Sample:
        """The validated rows, as the estimator uses them for the checkpoint's fingerprint."""
        weights = check_weights(self.weights, len(self.X))
        labels = check_labels(self.labels, len(self.X), processes)
        return Sample(self.X, self.y[:, None], weights, labels)


def read_training_data(
    table: tables.Table,
    target: str,
    features: str | None,
    weights: str | None,
    labels: str | None,
    drop: bool,
) -> TrainingData:
    """Read and check the columns that the options of `dagp fit` name."""
    others = [name for name in (weights, labels) if name is not None]
    tables.require_columns(table, [target, *others])
    inputs = _input_names(table, features, {target, *others})
    names = tables.require_columns(table, [*inputs, target, *others])
    try:
        part = tables.read_columns(table, names)
    except NotNumericError as error:
        hint = "" if features else " --features selects the input columns."
        raise InputError(f"{error}{hint}") from error
    if labels is not None:
        part.values[:, -1] = np.where(np.isnan(part.values[:, -1]), -1, part.values[:, -1])
    part = tables.complete_rows(table, part, names, drop)
    # Contiguous copies: the checkpoint's fingerprint is computed from the bytes of these arrays.
    D = len(inputs)
    X, y = np.ascontiguousarray(part.values[:, :D]), part.values[:, D].copy()
    weight = None if weights is None else part.values[:, D + 1].copy()
    known = None if labels is None else part.values[:, -1].copy()

    def check(column: str | None, values: np.ndarray, bad: np.ndarray, expected: str) -> None:
        if bad.any():
            first = np.flatnonzero(bad)[0]
            where = f"{table.name}, row {part.rows[first]}, column {column!r}"
            raise InputError(f"{where}: {expected}, got {values[first]:g}.")

    if weight is not None:
        check(weights, weight, weight < 0, "a weight must not be negative")
    if known is not None:
        expected = "a label must be a process number 0, 1, …, or empty or -1 if unknown"
        check(labels, known, (known < -1) | (known % 1 != 0), expected)
    return TrainingData(X, y, weight, known, inputs)


def _input_names(table: tables.Table, features: str | None, taken: set[str]) -> list[str]:
    """Input columns: those of --features, or all that have no other role."""
    if features is None:
        names = [name for name in table.columns if name not in taken]
    elif features in table.columns:
        names = [features]
    else:
        names = [name.strip() for name in next(csv.reader([features], skipinitialspace=True))]
    for name in names:
        if name in taken:
            raise InputError(f"--features: {name!r} is the target, weights or labels column.")
        if features is not None and names.count(name) > 1:
            raise InputError(f"--features: column {name!r} is listed twice.")
    if not names:
        raise InputError(
            f"{table.name} has only the columns {', '.join(map(repr, table.columns))}: "
            "no input column is left. If it has more columns, set --delimiter."
        )
    return names
