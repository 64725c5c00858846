"""A fitted model and the data it is asked about: all that the parts of a page are computed from."""

from typing import TYPE_CHECKING, Any, NamedTuple

import narwhals as nw
import numpy as np
from sklearn.utils.validation import check_is_fitted

from dagp.mixture import Mixture
from dagp.typing import Float, Int, Table
from dagp.validation import check_inputs, check_outputs, complete_rows

if TYPE_CHECKING:
    from dagp.estimator import DAGP

__all__ = ["PALETTE", "Case", "read"]

# As dagp.plot.PALETTE, which cannot be imported without matplotlib.
PALETTE = ("#0072B2", "#E69F00", "#009E73", "#CC79A7", "#56B4E9", "#D55E00", "#F0E442", "#000000")


class Case(NamedTuple):
    """A fitted model and complete rows of data, with what the model says of each."""

    model: "DAGP"
    X: Float[np.ndarray, "N D"]
    y: Float[np.ndarray, "N P"]
    rows: Int[np.ndarray, " N"]
    """Where each row stood in the data that were handed in."""
    dropped: int
    """Rows left out because they hold a NaN."""
    inputs: list[str]
    outputs: list[str]
    mixture: Mixture
    shares: Float[np.ndarray, "N K"]
    owner: Int[np.ndarray, " N"]
    """The process that most likely produced each row."""

    @property
    def clutter(self) -> list[int]:
        """Processes without a function: noise and uniform ones."""
        return [p.index for p in self.model.processes_ if p.kernel_ is None]

    @property
    def active(self) -> list[int]:
        """Processes in use."""
        return np.flatnonzero(self.model.active_).tolist()

    def colour(self, k: int) -> str:
        """The colour of a process."""
        return PALETTE[k % len(PALETTE)]

    def name(self, k: int) -> str:
        """What a process is called."""
        return f"Process {k}"


def read(model: "DAGP", X: Table, y: Table) -> Case:
    """Check the data as the model does and ask it about every row.

    >>> from dagp import DAGP, datasets
    >>> data = datasets.noise_separation(outliers=0.0, n=60, random_state=0)
    >>> model = DAGP(n_processes=1, n_init=1, tol=1e-2).fit(data.X, data.y)
    >>> read(model, data.X, data.y).outputs
    ['y']
    """
    check_is_fitted(model)
    finite = model.missing != "drop"
    array = check_inputs(model, X, reset=False, finite=finite)
    level = check_outputs(y, len(array), finite=finite)
    level = level.reshape(len(level), -1)
    wanted = len(model.processes_[0].noise_std_)
    if level.shape[1] != wanted:
        raise ValueError(f"y has {level.shape[1]} outputs, the model was fitted to {wanted}.")
    keep = np.ones(len(array), bool) if finite else complete_rows(array, level)
    array, level = array[keep], level[keep]
    mixture = model.posterior_.mixture(array, flat=False)
    shares = mixture.responsibilities(level)
    return Case(
        model,
        array,
        level,
        np.flatnonzero(keep),
        int(np.sum(~keep)),
        _names(getattr(model, "feature_names_in_", None), X, array.shape[1], "x"),
        _names(None, y, level.shape[1], "y"),
        mixture,
        shares,
        shares.argmax(axis=1),
    )


def _names(known: Any, table: Any, count: int, letter: str) -> list[str]:
    """Names of columns: those the model knows, those of the table, or a letter."""
    frame = nw.from_native(table, pass_through=True, allow_series=True)
    if known is None and isinstance(frame, nw.DataFrame):
        known = frame.columns
    elif known is None and isinstance(frame, nw.Series) and frame.name is not None:
        known = [frame.name]
    if known is not None and len(known) == count:
        return [str(name) for name in known]
    return [letter] if count == 1 else [f"{letter}{i}" for i in range(count)]
