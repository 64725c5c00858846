"""Kinds of input columns: numbers and categories. Each kind encodes its cells as numbers.

A column becomes one or several *inputs*, which have a length scale each, and an input one or
several encoded columns, which share it.
"""

import abc
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from dagp.core.errors import warn
from dagp.core.tags import storable
from dagp.core.text import shown
from dagp.core.typing import Float
from dagp.tables.reading import Cells, is_missing, numbers

Encoded = Float[np.ndarray, "N C"]

ROUND = float(np.sqrt(0.5))
"""Standard deviation of cosine and sine, and distance from each other, in halves, of two levels."""
_SHOWN = 5
"""Most levels that are listed in words."""


class Column(abc.ABC):
    """What a column of the table holds, and how it is encoded."""

    name: str | int

    @property
    def title(self) -> str:
        """Its name, or x and its position."""
        return self.name if isinstance(self.name, str) else f"x{self.name}"

    @property
    @abc.abstractmethod
    def inputs(self) -> tuple[str, ...]:
        """Names of its inputs."""

    @property
    @abc.abstractmethod
    def encoded(self) -> tuple[tuple[str, ...], ...]:
        """Names of the encoded columns, for each of its inputs."""

    @property
    @abc.abstractmethod
    def units(self) -> list[tuple[float, float]]:
        """Centre and unit of every encoded column; NaN where the data decide."""

    @abc.abstractmethod
    def encode(self, cells: Cells) -> Encoded:
        """The cells as numbers, NaN where they are missing."""

    @abc.abstractmethod
    def decode(self, columns: Encoded) -> list[Any]:
        """The cells of encoded rows."""

    @abc.abstractmethod
    def typical(self, middle: np.ndarray) -> np.ndarray:
        """An encoded cell to hold the column at, given the middle of the encoded range."""

    def along(self, columns: Encoded, at: int) -> Encoded:
        """Encoded cells in which column `at` was varied, with those that depend on it."""
        return columns

    def within(self, other: "Column") -> bool:
        """Whether another description holds for this column too."""
        return self == other

    @abc.abstractmethod
    def describe(self) -> str:
        """What it holds, in words."""

    @abc.abstractmethod
    def check(self) -> bool:
        """Whether a column read from a file is valid."""


@storable("column/Number")
@dataclass(frozen=True)
class Number(Column):
    """Numbers, as they are."""

    name: str | int

    @property
    def inputs(self) -> tuple[str, ...]:
        return (self.title,)

    @property
    def encoded(self) -> tuple[tuple[str, ...], ...]:
        return ((self.title,),)

    @property
    def units(self) -> list[tuple[float, float]]:
        return [(np.nan, np.nan)]

    def encode(self, cells: Cells) -> Encoded:
        if cells.values.dtype.kind in "mM":
            raise ValueError(f"{cells.label} holds dates or times, and numbers in the fit.")
        return numbers(cells.values, lambda _: cells.label)[:, None]

    def decode(self, columns: Encoded) -> list[Any]:
        return columns[:, 0].tolist()

    def typical(self, middle: np.ndarray) -> np.ndarray:
        return middle

    def describe(self) -> str:
        return "number"

    def check(self) -> bool:
        return True


@storable("column/Ignored")
@dataclass(frozen=True)
class Ignored(Column):
    """A column that the model does not see."""

    name: str | int

    @property
    def inputs(self) -> tuple[str, ...]:
        return ()

    @property
    def encoded(self) -> tuple[tuple[str, ...], ...]:
        return ()

    @property
    def units(self) -> list[tuple[float, float]]:
        return []

    def encode(self, cells: Cells) -> Encoded:
        return np.empty((len(cells.values), 0))

    def decode(self, columns: Encoded) -> list[Any]:
        # Not empty: a row is complete without it.
        return [""] * len(columns)

    def typical(self, middle: np.ndarray) -> np.ndarray:
        return middle

    def describe(self) -> str:
        return "ignored"

    def check(self) -> bool:
        return True


def level_of(cell: Any) -> Any:
    """A cell as a level: text, a boolean or a number."""
    if isinstance(cell, np.generic):
        cell = cell.item()
    if isinstance(cell, bytes):
        return cell.decode(errors="replace")
    if isinstance(cell, float):
        return int(cell) if cell.is_integer() else cell
    return cell if isinstance(cell, bool | int) else str(cell)


@storable("column/Category")
@dataclass(frozen=True)
class Category(Column):
    """A category: one-hot columns, so that any two levels are equally far apart.

    True and false take one column. A level that the fit has not seen is encoded as a further corner
    of the same simplex, as far from each known level as these are from each other: its prediction
    is a compromise between them, and its variance includes that between levels.
    """

    name: str | int
    levels: tuple[Any, ...]
    """In ascending order."""
    common: int
    """Index of the most frequent one."""

    @property
    def binary(self) -> bool:
        """Whether the levels are false and true."""
        return len(self.levels) == 2 and all(isinstance(level, bool) for level in self.levels)

    @property
    def inputs(self) -> tuple[str, ...]:
        return (self.title,)

    @property
    def encoded(self) -> tuple[tuple[str, ...], ...]:
        if self.binary:
            return ((self.title,),)
        return (tuple(f"{self.title}={level}" for level in self.levels),)

    @property
    def units(self) -> list[tuple[float, float]]:
        return [(0.5, 0.5)] if self.binary else [(0.0, ROUND)] * len(self.levels)

    @property
    def corners(self) -> Encoded:
        """The code of each level and, last, of one that was not seen."""
        if self.binary:
            return np.array([[0.0], [1.0], [np.nan]])
        L = len(self.levels)
        # The squared distance of c·(1, …, 1) from each unit vector is 2, as between these.
        return np.vstack([np.eye(L), np.full(L, (1 - np.sqrt(1 + L)) / L)])

    def encode(self, cells: Cells) -> Encoded:
        place = {level: i for i, level in enumerate(self.levels)}
        found = [None if is_missing(cell) else level_of(cell) for cell in cells.values]
        codes = np.array([place.get(level, len(place)) for level in found], dtype=int)
        missing = np.array([level is None for level in found], dtype=bool)
        if np.any(unseen := (codes == len(place)) & ~missing):
            self._tell({found[n] for n in np.flatnonzero(unseen)}, cells.label)
        rows = self.corners[codes]
        rows[missing] = np.nan
        return rows

    def _tell(self, unseen: set[Any], label: str) -> None:
        if self.binary:
            raise ValueError(f"{label} holds {_listed(unseen)}, and true or false in the fit.")
        warn(
            f"{label} holds {_listed(unseen)}, which the fit has not seen: taken as a new level, "
            "as different from the known ones as these are from each other.",
        )

    def decode(self, columns: Encoded) -> list[Any]:
        distance = np.sum((columns[:, None] - self.corners) ** 2, axis=2)
        nearest = np.argmin(np.where(np.isnan(distance), np.inf, distance), axis=1)
        cells = [(*self.levels, "(unseen)")[i] for i in nearest]
        return [None if np.isnan(row[0]) else c for row, c in zip(columns, cells, strict=True)]

    def typical(self, middle: np.ndarray) -> np.ndarray:
        return self.corners[self.common]

    def along(self, columns: Encoded, at: int) -> Encoded:
        if self.binary:
            return columns
        # From the average of the other levels to this one.
        others = np.arange(len(self.levels)) != at
        share = (1 - columns[:, [at]]) / max(len(self.levels) - 1, 1)
        return np.where(others, share, columns)

    def within(self, other: Column) -> bool:
        if not isinstance(other, Category):
            return False
        same = self.name == other.name and self.binary == other.binary
        return same and set(self.levels) <= set(other.levels)

    def describe(self) -> str:
        if self.binary:
            return "false or true"
        return f"category of {len(self.levels)} ({_listed(self.levels)})"

    def check(self) -> bool:
        plain = all(isinstance(level, str | bool | int | float) for level in self.levels)
        distinct = len(set(self.levels)) == len(self.levels)
        known = type(self.common) is int and 0 <= self.common < len(self.levels)
        return plain and distinct and known


def _listed(levels: Sequence[Any] | set[Any]) -> str:
    """The first levels, in words."""
    ordered = sorted(levels, key=level_order) if isinstance(levels, set) else list(levels)
    more = f" and {len(ordered) - _SHOWN} more" if len(ordered) > _SHOWN else ""
    return ", ".join(shown(level, 40) for level in ordered[:_SHOWN]) + more


def level_order(level: Any) -> tuple[bool, Any]:
    """Key that sorts numbers before text."""
    return isinstance(level, str), level
