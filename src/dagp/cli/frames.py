"""Columns of a table in the form that the estimator takes."""

import importlib
from collections.abc import Sequence
from typing import Any

import numpy as np

from dagp.cli.app import InputError
from dagp.cli.cells import Part


def inputs_of(part: Part, names: Sequence[str]) -> Any:
    """The named columns: an array if all are numbers, otherwise a data frame."""
    columns = {name: part.columns[name] for name in names}
    if all(column.dtype.kind == "f" for column in columns.values()):
        # Contiguous: the checkpoint's fingerprint is computed from its bytes.
        return np.ascontiguousarray(Part(part.rows, columns).values)
    return _frame(columns)


def _frame(columns: dict[str, np.ndarray]) -> Any:
    for library, kind in (("pyarrow", "table"), ("pandas", "DataFrame"), ("polars", "DataFrame")):
        try:
            module = importlib.import_module(library)
        except ModuleNotFoundError:
            continue
        return getattr(module, kind)(columns)
    raise InputError("Columns of text or dates need pyarrow (pip install pyarrow).")
