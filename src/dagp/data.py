"""Data on their way into the model: canonical order, standard units, padded shapes."""

from typing import NamedTuple

import numpy as np

from dagp.model import Batch
from dagp.placement import place, rounded
from dagp.typing import Float, Int

__all__ = [
    "FAR",
    "FORBIDDEN",
    "Sample",
    "Units",
    "allowed",
    "canonical",
    "on_devices",
    "padded",
    "padded_length",
    "to_batch",
]

FAR = 1e15
"""Standard units beyond which one input is as far away as any other: nothing overflows there."""
FORBIDDEN = -1e30
"""Added to the log joint where a label rules a process out. Finite: infinities breed NaN."""

_BULK = (0.05, 0.95)
_BULK_OF_NORMAL = 3.2897072539029444
"""Width of the bulk of a standard normal, so that a normal column has unit one per std."""


class Sample(NamedTuple):
    """Distinct rows with their weights."""

    X: Float[np.ndarray, "N D"]
    y: Float[np.ndarray, "N P"]
    weight: Float[np.ndarray, " N"]
    labels: Int[np.ndarray, " N"]
    """The process that produced a row, −1 where unknown."""


class Units(NamedTuple):
    """Centre and unit of every column: user's = standardised * unit + centre."""

    x_centre: Float[np.ndarray, " D"]
    x_unit: Float[np.ndarray, " D"]
    y_centre: Float[np.ndarray, " P"]
    y_unit: Float[np.ndarray, " P"]

    @staticmethod
    def of(sample: Sample, standardize: bool = True) -> "Units":
        """Units of a sample, or none (centre 0, unit 1)."""
        columns = [*sample.X.T, *sample.y.T]
        if standardize:
            centre, unit = np.array([_centre_and_unit(c, sample.weight) for c in columns]).T
        else:
            centre, unit = np.zeros(len(columns)), np.ones(len(columns))
        D = sample.X.shape[1]
        return Units(centre[:D], unit[:D], centre[D:], unit[D:])

    def apply(self, sample: Sample) -> Sample:
        """The sample in standard units."""
        return sample._replace(X=self.standard_x(sample.X), y=self.standard_y(sample.y))

    def standard_x(self, X: Float[np.ndarray, "N D"]) -> Float[np.ndarray, "N D"]:
        """Inputs in standard units."""
        with np.errstate(over="ignore"):
            return np.clip((X - self.x_centre) / self.x_unit, -FAR, FAR)

    def standard_y(self, y: Float[np.ndarray, "N P"]) -> Float[np.ndarray, "N P"]:
        """Outputs in standard units."""
        return (y - self.y_centre) / self.y_unit


def _centre_and_unit(column: np.ndarray, weight: np.ndarray) -> tuple[float, float]:
    """Middle and width of the bulk of a column.

    Quantiles rather than moments: these data are polluted by assumption, and one wild value
    must not shrink everything else to a line. They do not overflow either.
    """
    order = np.argsort(column, kind="stable")
    mass = np.cumsum(weight[order])
    low, high = column[order][np.searchsorted(mass, np.array(_BULK) * mass[-1])]
    width = high / _BULK_OF_NORMAL - low / _BULK_OF_NORMAL
    if not width > 0:
        # More than 90 % of the column is one value: fall back on its whole range.
        low, high = column[order][[0, -1]]
        width = high / 2 - low / 2
    smallest = 16 * np.finfo(float).eps * max(abs(low), abs(high))
    unit = width if width > max(smallest, np.finfo(float).tiny) else 1.0
    return low / 2 + high / 2, unit


def canonical(sample: Sample) -> tuple[Sample, Int[np.ndarray, " N"]]:
    """Distinct rows in sorted order, with the weights of equal rows added up.

    What is fitted then cannot depend on the order of the rows, and a repeated row is the same
    thing as a row of double weight. Rows of zero weight are as good as absent. Also says where
    each row went, −1 for the absent.
    """
    used = sample.weight > 0
    table = np.column_stack([sample.X, sample.y, sample.labels])[used] + 0.0
    rows, inverse = np.unique(table, axis=0, return_inverse=True)
    weight = np.bincount(inverse.ravel(), weights=sample.weight[used])
    D = sample.X.shape[1]
    distinct = Sample(
        np.ascontiguousarray(rows[:, :D]),
        np.ascontiguousarray(rows[:, D:-1]),
        weight,
        rows[:, -1].astype(np.int64),
    )
    place = np.full(len(sample.X), -1)
    place[used] = inverse.ravel()
    return distinct, place


def padded_length(n: int) -> int:
    """The next larger shape we compile for: at most a sixteenth more rows, few distinct shapes."""
    # With many rows, rows of nothing cost more than another compilation does.
    granule = min(max(64, 2 ** max(n.bit_length() - 5, 0)), 1024)
    return rounded(-(-n // granule) * granule)


def padded(array: np.ndarray, length: int) -> np.ndarray:
    """`array` with rows of zeros up to `length`."""
    return np.concatenate([array, np.zeros((length - len(array), *array.shape[1:]), array.dtype)])


def allowed(labels: Int[np.ndarray, " N"], processes: int) -> Float[np.ndarray, "N K"]:
    """Zero where a process may have produced the row, `FORBIDDEN` where a label says otherwise."""
    other = labels[:, None] != np.arange(processes)
    return np.where((labels[:, None] >= 0) & other, FORBIDDEN, 0.0)


def to_batch(sample: Sample, processes: int, length: int | None = None) -> Batch:
    """A standardised sample as the model takes it: padded, with rows of zero weight."""
    length = length or padded_length(len(sample.X))
    columns = (sample.X, sample.y, sample.weight, allowed(sample.labels, processes))
    return Batch(*(padded(column, length) for column in columns))


def on_devices(sample: Sample, processes: int) -> Batch:
    """The same where it is computed with."""
    return place(to_batch(sample, processes))
