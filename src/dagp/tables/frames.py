"""Results as arrays or data frames, one row for every row of a table given for prediction."""

import importlib
from collections.abc import Callable, Sequence
from typing import Any, Literal, NamedTuple, TypeAlias

import numpy as np
from sklearn import get_config

from dagp.core.text import quoted
from dagp.core.typing import Bool, Float, Table
from dagp.tables.reading import row_names
from dagp.tables.validation import check_finite, check_inputs, input_labels

Output: TypeAlias = Literal["numpy", "pandas", "polars"]
OUTPUTS = ("numpy", "pandas", "polars")


class RowsToPredict(NamedTuple):
    """Rows of a table given for prediction; incomplete ones get NaN where the fit dropped such."""

    table: Table
    X: Float[np.ndarray, "N D"]
    complete: Bool[np.ndarray, " N"]

    @staticmethod
    def of(estimator: Any, X: Table) -> "RowsToPredict":
        drops = estimator.missing == "drop"
        values = check_inputs(estimator, X, reset=False, finite=not drops)
        complete = np.logical_not(np.isnan(values).any(axis=1))
        # All rows, lest the first that is wrong be called by its place among the complete ones.
        known = np.where(np.isnan(values), 0.0, values)
        check_finite(known, "X", input_labels(estimator, X), row_names(X, len(values)))
        return RowsToPredict(X, values, complete)

    def each(
        self, predict: Callable[[Float[np.ndarray, "C D"]], np.ndarray], *shape: int
    ) -> np.ndarray:
        """Predictions of the complete rows, of this shape per row, and NaN for the others."""
        if self.complete.all():
            return predict(self.X)
        found = np.full((len(self.X), *shape), np.nan)
        if self.complete.any():
            found[self.complete] = predict(self.X[self.complete])
        return found

    def framed(self, values: np.ndarray, columns: Sequence[str], output: Output | None) -> Any:
        """Values in the form asked for; None is that of scikit-learn's ``transform_output``."""
        kind = get_config()["transform_output"] if output is None else output
        if output is not None and kind not in OUTPUTS:
            raise ValueError(f"output must be one of {OUTPUTS} or None, got {quoted(output)}.")
        if kind not in ("pandas", "polars"):
            return values
        cells = dict(zip(columns, values.reshape(len(values), -1).T, strict=True))
        try:
            library = importlib.import_module(kind)
        except ModuleNotFoundError as missing:
            raise ModuleNotFoundError(
                f"output={quoted(kind)} needs {kind}: pip install {kind}."
            ) from missing
        if kind == "polars":
            return library.DataFrame(cells)
        return library.DataFrame(cells, index=self._index(library))

    def _index(self, pandas: Any) -> Any:
        """The index of the table, with its type and name."""
        index = getattr(self.table, "index", None)
        return index if isinstance(index, pandas.Index) else row_names(self.table, len(self.X))
