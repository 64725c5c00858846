"""A fitted model with validated data and its predictions: input of all parts of a report."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from sklearn.utils.validation import check_is_fitted

from dagp.core.typing import Bool, Float, Int, Table
from dagp.describe.observations import Origin, input_names, observations
from dagp.predict.mixture import Mixture
from dagp.tables.reading import output_names

if TYPE_CHECKING:
    from dagp.estimator import DAGP

# Same as dagp.plot.processes.PALETTE, which cannot be imported without matplotlib.
PALETTE = ("#0072B2", "#E69F00", "#009E73", "#CC79A7", "#56B4E9", "#D55E00", "#F0E442", "#000000")
DARK = ("#3D94D9", "#E69F00", "#00B386", "#D98BB5", "#7CC8F2", "#E87722", "#F0E442", "#F0F3F6")
"""The same hues on a dark ground: blue lighter, and white for black."""


class Case(NamedTuple):
    """A fitted model and rows of data that it can use, with the predictive mixture of each."""

    model: "DAGP"
    X: Float[np.ndarray, "N D"]
    y: Float[np.ndarray, "N P"]
    """NaN where one of several outputs is missing."""
    used: Bool[np.ndarray, " given"]
    """Which of the rows given these are; the others lack an input or all outputs."""
    labels: list[int | float | str]
    """What the user calls each of the rows given."""
    origin: Origin
    inputs: list[str]
    outputs: list[str]
    mixture: Mixture
    responsibilities: Float[np.ndarray, "N K"]
    owner: Int[np.ndarray, " N"]
    """The most probable process of each row."""

    @property
    def rows(self) -> list[int | float | str]:
        """What the user calls each row."""
        return [self.labels[i] for i in np.flatnonzero(self.used)]

    @property
    def dropped(self) -> list[int | float | str]:
        """What the user calls the rows that were left out."""
        return [self.labels[i] for i in np.flatnonzero(~self.used)]

    @property
    def largest(self) -> Float[np.ndarray, " N"]:
        """Responsibility of the most probable process of each row."""
        return self.responsibilities.max(axis=1)

    @property
    def clutter(self) -> list[int]:
        """Processes without a function: `Noise` and `Uniform`."""
        return [p.index for p in self.model.processes_ if p.kernel_ is None]

    @property
    def active(self) -> list[int]:
        """Processes in use."""
        return np.flatnonzero(self.model.active_).tolist()

    def colour(self, k: int) -> str:
        """The colour of a process, as a variable of the style sheet: it differs in dark mode."""
        return f"var(--process-{k % len(PALETTE)})"

    def name(self, k: int) -> str:
        """The displayed name of a process."""
        return f"Process {k}"


def read(
    model: "DAGP",
    X: Table,
    y: Table,
    outputs: Sequence[str] | None = None,
    rows: Sequence[Any] | np.ndarray | None = None,
) -> Case:
    """Validate the data as the model does and predict every row.

    `outputs` and `rows` are names of the outputs and rows, instead of those of the tables.
    """
    check_is_fitted(model)
    seen = observations(model, X, y, rows=rows)
    D, P = seen.X.shape[1], seen.y.shape[1]
    if outputs is not None and len(outputs) != P:
        raise ValueError(f"outputs names {len(outputs)} outputs, y has {P}.")
    inputs = _names(input_names(model, X), D, "x")
    outputs = _names(outputs or output_names(y) or model.target_names_, P, "y")
    mixture = model.posterior_.mixture(seen.X, flat=False)
    found = mixture.responsibilities(seen.y)
    return Case(model, *seen, inputs, outputs, mixture, found, found.argmax(axis=1))


def _names(known: Sequence[str] | None, count: int, letter: str) -> list[str]:
    """Column names, or a letter with a number where they are not known."""
    if known is not None and len(known) == count:
        return [str(name) for name in known]
    return [letter] if count == 1 else [f"{letter}{i}" for i in range(count)]
