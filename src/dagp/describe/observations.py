"""Observations to show with a fitted model: which rows it can use, and what the user calls them."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import narwhals as nw
import numpy as np

from dagp.core.typing import Bool, Float, Table
from dagp.tables.reading import names
from dagp.tables.validation import check_inputs, check_outputs

if TYPE_CHECKING:
    from dagp.estimator import DAGP

Origin = Literal["caller", "index", "fit", "position"]
"""Where labels of rows come from: the caller, the index of a data frame, the fit, or counting."""


class Observations(NamedTuple):
    """The rows of a table that a fitted model can use."""

    X: Float[np.ndarray, "N D"]
    y: Float[np.ndarray, "N P"]
    """NaN where one of several outputs is missing."""
    used: Bool[np.ndarray, " given"]
    """Which of the rows given these are: those with all inputs and at least one output."""
    labels: list[int | float | str]
    """What the user calls each of the rows given."""
    origin: Origin


def observations(
    model: "DAGP",
    X: Table,
    y: Table,
    *,
    rows: Sequence[Any] | np.ndarray | None = None,
    finite: bool | None = None,
) -> Observations:
    """Validate the data as the model does, and leave out rows as it does.

    `rows` are labels of the rows. Missing cells raise if `finite`, by default as the model is set.
    """
    finite = model.missing != "drop" if finite is None else finite
    inputs = check_inputs(model, X, reset=False, finite=finite)
    outputs = check_outputs(y, len(inputs), finite=finite)
    outputs = outputs.reshape(len(outputs), -1)
    wanted = len(model.processes_[0].noise_std_)
    if outputs.shape[1] != wanted:
        raise ValueError(f"y has {outputs.shape[1]} outputs, the model was fitted to {wanted}.")
    gaps = np.isnan(inputs).any(axis=1), np.isnan(outputs).all(axis=1)
    used = np.logical_not(np.logical_or(*gaps))
    if not used.any():
        raise ValueError("Every row holds a NaN in X or y: no rows are left.")
    inputs, outputs = inputs[used], outputs[used]
    origin, found = _labels(model, X, inputs, used, rows)
    labels = [_plain(label) for label in found]
    if labels == list(range(len(used))):
        origin = "position"
    for name, array in (("X", inputs), ("y", outputs)):
        if np.any(wrong := np.isinf(array).any(axis=1)):
            row = labels[np.flatnonzero(used)[np.argmax(wrong)]]
            raise ValueError(f"Input {name} contains infinity, the first in row {row}.")
    return Observations(inputs, outputs, used, labels, origin)


def input_names(model: "DAGP", X: Table | None) -> Sequence[str] | None:
    """Names of the columns of encoded inputs: those of the fit, else of the table, else None."""
    columns = getattr(model, "columns_", None)
    if columns is not None and not columns.plain:
        return columns.names
    return getattr(model, "feature_names_in_", None if X is None else names(X))


def _labels(
    model: "DAGP",
    X: Table,
    inputs: np.ndarray,
    used: np.ndarray,
    rows: Sequence[Any] | np.ndarray | None,
) -> tuple[Origin, Sequence[Any] | np.ndarray]:
    """Labels of all rows given, and their origin; `inputs` are the used rows of `X`."""
    if rows is not None:
        if len(rows) != len(used):
            raise ValueError(f"rows names {len(rows)} rows, X has {len(used)}.")
        return "caller", rows
    frame: Any = nw.from_native(X, pass_through=True)
    index = nw.maybe_get_index(frame) if isinstance(frame, nw.DataFrame) else None
    if index is not None:
        return "index", list(index)
    if np.array_equal((inputs.min(axis=0), inputs.max(axis=0)), model.extent_):
        # All rows of the fit, or those of them that it has used.
        for labels in (model.index_, model.index_[model.used_mask_]):
            if len(labels) == len(used):
                return "fit", list(labels)
    return "position", range(len(used))


def _plain(label: Any) -> int | float | str:
    """A label as a number or as text.

    >>> [_plain(label) for label in (np.int64(3), np.datetime64("2024-05-01T00:00"), ("a", 1))]
    [3, '2024-05-01', 'a, 1']
    """
    if isinstance(label, tuple):
        return ", ".join(str(_plain(part)) for part in label)
    if isinstance(label, np.datetime64):
        return str(np.datetime_as_string(label, unit="auto")).removesuffix("T00:00")
    if isinstance(label, np.generic):
        label = label.item()
    if isinstance(label, bool) or not isinstance(label, int | float):
        return str(label).removesuffix(" 00:00:00")
    return label if np.isfinite(label) else str(label)
