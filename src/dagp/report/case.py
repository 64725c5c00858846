"""A fitted model with validated data and its predictions: input of all parts of a report."""

from typing import TYPE_CHECKING, Any, NamedTuple

import narwhals as nw
import numpy as np
from sklearn.utils.validation import check_is_fitted

from dagp.core.typing import Float, Int, Table
from dagp.predict.mixture import Mixture
from dagp.tables.validation import check_inputs, check_outputs, usable_rows

if TYPE_CHECKING:
    from dagp.estimator import DAGP

# Same as dagp.plot.PALETTE, which cannot be imported without matplotlib.
PALETTE = ("#0072B2", "#E69F00", "#009E73", "#CC79A7", "#56B4E9", "#D55E00", "#F0E442", "#000000")


class Case(NamedTuple):
    """A fitted model and complete rows of data, with the predictive mixture of each row."""

    model: "DAGP"
    X: Float[np.ndarray, "N D"]
    y: Float[np.ndarray, "N P"]
    rows: Int[np.ndarray, " N"]
    """Index of each row in the data as passed by the user."""
    dropped: int
    """Number of rows left out because of a NaN."""
    inputs: list[str]
    outputs: list[str]
    mixture: Mixture
    responsibilities: Float[np.ndarray, "N K"]
    owner: Int[np.ndarray, " N"]
    """The most probable process of each row."""

    @property
    def clutter(self) -> list[int]:
        """Processes without a function: `Noise` and `Uniform`."""
        return [p.index for p in self.model.processes_ if p.kernel_ is None]

    @property
    def active(self) -> list[int]:
        """Processes in use."""
        return np.flatnonzero(self.model.active_).tolist()

    def colour(self, k: int) -> str:
        """The colour of a process."""
        return PALETTE[k % len(PALETTE)]

    def name(self, k: int) -> str:
        """The displayed name of a process."""
        return f"Process {k}"


def read(model: "DAGP", X: Table, y: Table) -> Case:
    """Validate the data as the model does and predict every row."""
    check_is_fitted(model)
    finite = model.missing != "drop"
    array = check_inputs(model, X, reset=False, finite=finite)
    level = check_outputs(y, len(array), finite=finite)
    level = level.reshape(len(level), -1)
    wanted = len(model.processes_[0].noise_std_)
    if level.shape[1] != wanted:
        raise ValueError(f"y has {level.shape[1]} outputs, the model was fitted to {wanted}.")
    keep = np.ones(len(array), bool) if finite else usable_rows(array, level)
    array, level = array[keep], level[keep]
    known = getattr(model, "feature_names_in_", None)
    known = known if model.columns_.plain else model.columns_.names
    inputs = _names(known, X, array.shape[1], "x")
    outputs = _names(None, y, level.shape[1], "y")
    mixture = model.posterior_.mixture(array, flat=False)
    shares = mixture.responsibilities(level)
    rows, dropped, owner = np.flatnonzero(keep), int(np.sum(~keep)), shares.argmax(axis=1)
    return Case(model, array, level, rows, dropped, inputs, outputs, mixture, shares, owner)


def _names(known: Any, table: Any, count: int, letter: str) -> list[str]:
    """Column names: from the fit, else from the table, else a letter with a number."""
    frame = nw.from_native(table, pass_through=True, allow_series=True)
    if known is None and isinstance(frame, nw.DataFrame):
        known = frame.columns
    elif known is None and isinstance(frame, nw.Series) and frame.name is not None:
        known = [frame.name]
    if known is not None and len(known) == count:
        return [str(name) for name in known]
    return [letter] if count == 1 else [f"{letter}{i}" for i in range(count)]
