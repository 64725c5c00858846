"""Data preparation: canonical row order, standardised units, padded shapes."""

from typing import Any, NamedTuple

import numpy as np

from dagp.core.sharding import round_up_rows, shard_rows
from dagp.core.tags import storable
from dagp.core.typing import Float, Int
from dagp.model.association import Batch

FAR = 1e15
"""Standardised inputs are clipped here, so that squared distances do not overflow."""
FORBIDDEN = -1e30
"""Added to the log joint where a label excludes a process. Finite, so that it never becomes NaN."""

_NEAR, _SIMILAR = 3.0, 4.0
"""Largest distance of the centres, in units, and ratio of the units, of data that are alike."""
_BULK = (0.05, 0.95)
_BULK_OF_NORMAL = 3.2897072539029444
"""Width of that bulk for a standard normal: the unit of a normal column is its std."""


class Sample(NamedTuple):
    """Distinct rows with their weights."""

    X: Float[np.ndarray, "N D"]
    y: Float[np.ndarray, "N P"]
    """NaN where one of several outputs is missing."""
    weight: Float[np.ndarray, " N"]
    labels: Int[np.ndarray, " N"]
    """The process that produced a row, −1 where unknown."""

    def take(self, rows: Any) -> "Sample":
        """Some of the rows."""
        return Sample(*(column[rows] for column in self))


Known = Float[np.ndarray, "D 2"]
"""Centre and unit of inputs that do not depend on the data; NaN for the others."""


@storable("data/Units")
class Units(NamedTuple):
    """Centre and unit of every column: user's = standardised * unit + centre."""

    x_centre: Float[np.ndarray, " D"]
    x_unit: Float[np.ndarray, " D"]
    y_centre: Float[np.ndarray, " P"]
    y_unit: Float[np.ndarray, " P"]

    @staticmethod
    def of(sample: Sample, standardize: bool = True, known: Known | None = None) -> "Units":
        """Units of a sample, or none (centre 0, unit 1); `known` are those of some inputs."""
        columns = [*sample.X.T, *sample.y.T]
        if standardize:
            found = np.array([_centre_and_unit(c, sample.weight) for c in columns])
            if known is not None:
                found[: len(known)] = np.where(np.isnan(known), found[: len(known)], known)
            centre, unit = found.T
        else:
            centre, unit = np.zeros(len(columns)), np.ones(len(columns))
        D = sample.X.shape[1]
        return Units(centre[:D], unit[:D], centre[D:], unit[D:])

    def apply(self, sample: Sample) -> Sample:
        return sample._replace(X=self.standard_x(sample.X), y=self.standard_y(sample.y))

    def resembles(self, other: "Units") -> bool:
        """Whether other data may be expressed in these units: of similar centre and spread."""
        pairs = ((self[0], self[1], other[0], other[1]), (self[2], self[3], other[2], other[3]))
        return all(
            np.all(np.abs(there - here) <= _NEAR * unit)
            and np.all((wide <= _SIMILAR * unit) & (unit <= _SIMILAR * wide))
            for here, unit, there, wide in pairs
        )

    def standard_x(self, X: Float[np.ndarray, "N D"]) -> Float[np.ndarray, "N D"]:
        with np.errstate(over="ignore"):
            return np.clip((X - self.x_centre) / self.x_unit, -FAR, FAR)

    def standard_y(self, y: Float[np.ndarray, "N P"]) -> Float[np.ndarray, "N P"]:
        return (y - self.y_centre) / self.y_unit


def _centre_and_unit(column: np.ndarray, weight: np.ndarray) -> tuple[float, float]:
    """Middle and width of the bulk of a column, robust to outliers, overflow and missing cells."""
    column, weight = column[~np.isnan(column)], weight[~np.isnan(column)]
    order = np.argsort(column, kind="stable")
    mass = np.cumsum(weight[order])
    low, high = column[order][np.searchsorted(mass, np.array(_BULK) * mass[-1])]
    width = high / _BULK_OF_NORMAL - low / _BULK_OF_NORMAL
    if not width > 0:
        # More than 90 % of the column is one value: use its whole range.
        low, high = column[order][[0, -1]]
        width = high / 2 - low / 2
    smallest = 16 * np.finfo(float).eps * max(abs(low), abs(high))
    unit = width if width > max(smallest, np.finfo(float).tiny) else 1.0
    return low / 2 + high / 2, unit


def canonical(sample: Sample) -> tuple[Sample, Int[np.ndarray, " N"]]:
    """Distinct rows in sorted order, with the weights of equal rows added up.

    Rows of zero weight are dropped. Also returns the index of each row, −1 if dropped.
    """
    used = sample.weight > 0
    table = np.column_stack([sample.X, sample.y, sample.labels])[used] + 0.0
    # Unlike infinity, which no data hold, NaN does not equal itself.
    table[np.isnan(table)] = np.inf
    rows, inverse = np.unique(table, axis=0, return_inverse=True)
    weight = np.bincount(inverse.ravel(), weights=sample.weight[used])
    D = sample.X.shape[1]
    distinct = Sample(
        np.ascontiguousarray(rows[:, :D]),
        np.where(np.isinf(rows[:, D:-1]), np.nan, rows[:, D:-1]),
        weight,
        rows[:, -1].astype(np.int64),
    )
    where = np.full(len(sample.X), -1)
    where[used] = inverse.ravel()
    return distinct, where


class Prepared(NamedTuple):
    """The data of a fit, prepared once, with the mapping back to the user's rows."""

    rows: Sample
    """In the user's order and units."""
    sample: Sample
    """Distinct rows in canonical order, standardised."""
    inverse: Int[np.ndarray, " N"]
    """Index of each row in `sample`; −1 for rows of zero weight."""
    units: Units

    @staticmethod
    def of(
        rows: Sample,
        units: Units | None = None,
        standardize: bool = True,
        known: Known | None = None,
    ) -> "Prepared":
        """Prepare rows, in the given units or in those of the rows (see `Units.of`)."""
        distinct, inverse = canonical(rows)
        units = Units.of(distinct, standardize, known) if units is None else units
        return Prepared(rows, units.apply(distinct), inverse, units)


def padded_length(n: int) -> int:
    """Next larger number of rows to compile for: few distinct shapes, at most 1/16 more rows."""
    # With many rows, padding costs more than another compilation.
    granule = min(max(64, 2 ** max(n.bit_length() - 5, 0)), 1024)
    return round_up_rows(-(-n // granule) * granule)


def padded(array: np.ndarray, length: int) -> np.ndarray:
    """`array` with rows of zeros up to `length`."""
    return np.concatenate([array, np.zeros((length - len(array), *array.shape[1:]), array.dtype)])


def label_log_mask(labels: Int[np.ndarray, " N"], processes: int) -> Float[np.ndarray, "N K"]:
    """Zero where a process may have produced the row, `FORBIDDEN` where a label excludes it."""
    other = labels[:, None] != np.arange(processes)
    return np.where((labels[:, None] >= 0) & other, FORBIDDEN, 0.0)


def to_batch(sample: Sample, processes: int, length: int | None = None) -> Batch:
    """A standardised sample as a batch, padded with rows of zero weight."""
    length = length or padded_length(len(sample.X))
    columns = (sample.X, sample.y, sample.weight, label_log_mask(sample.labels, processes))
    return Batch(*(padded(column, length) for column in columns))


def to_device_batch(sample: Sample, processes: int) -> Batch:
    """`to_batch`, on the devices."""
    return shard_rows(to_batch(sample, processes))
