"""The input columns of a fit: what each holds, and how a table is encoded as numbers."""

import datetime
import difflib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from dagp.core.tags import storable
from dagp.core.text import quoted, shown
from dagp.core.typing import Float, Table
from dagp.tables.kinds import Category, Column, Ignored, Number, level_of, level_order
from dagp.tables.reading import (
    Cells,
    as_objects,
    cells_of,
    check_unicode,
    has_columns,
    is_missing,
    is_numeric,
    names,
)
from dagp.tables.times import PERIODS, SECONDS, is_time, time_column

MOST_LEVELS, LEAST_ROWS = 50, 3
"""Text is a category if it has at most so many levels, each in so many rows on average; otherwise
it is free text."""
MOST_DECLARED = 1000
"""Most levels of a column that is said to be a category."""
ALONE = ("number", "category", "ignore")
ROLES = (*ALONE, "time", *SECONDS, *PERIODS)
"""Roles of a column. Those of times can be combined, such as ``"days+daily"``."""

Role = tuple[str, ...]


def parse_role(role: Any) -> Role | None:
    """The parts of a role, given as text or as a list; None if it is no role."""
    parts = role.split("+") if isinstance(role, str) else role
    if not isinstance(parts, Sequence) or not parts or not set(parts) <= set(ROLES):
        return None
    alone = len(parts) == 1 or not set(parts) & set(ALONE)
    counted = [part for part in parts if part == "time" or part in SECONDS]
    return tuple(parts) if alone and len(counted) <= 1 and len(set(parts)) == len(parts) else None


def are_roles(columns: Any) -> bool:
    """Whether a setting maps names or positions of columns to roles."""
    if not isinstance(columns, Mapping):
        return columns is None
    known = (isinstance(key, str | int) and parse_role(role) for key, role in columns.items())
    return all(known)


@storable("data/Columns")
@dataclass(frozen=True)
class Columns:
    """What each column of a table holds, and how the table is encoded as numbers.

    Attributes
    ----------
    columns : tuple of Column
        One per column of the table: `Number`, `Category`, `Time` or `Ignored`.

    Examples
    --------
    >>> table = [["day", 1.0], ["night", 2.0]] * 3
    >>> columns = Columns.of(table)
    >>> columns.names
    ('x0=day', 'x0=night', 'x1')
    >>> columns.encode(table[:2]).tolist()
    [[1.0, 0.0, 1.0], [0.0, 1.0, 2.0]]
    """

    columns: tuple[Column, ...]

    @staticmethod
    def of(table: Table, roles: Mapping[Any, Any] | None = None) -> "Columns":
        """Decide from types, values and stated roles what the columns hold.

        Parameters
        ----------
        table : table of shape (N, D)
        roles : mapping of names or positions to roles, default=None
            See `ROLES`.
        """
        if not has_columns(table):
            return Columns(())
        if is_numeric(table) and not roles:
            return Columns(tuple(map(Number, _names(table))))
        cells = cells_of(table, "X")
        stated = _by_position(roles or {}, [one.name for one in cells])
        columns = tuple(_decided(one, stated.get(i)) for i, one in enumerate(cells))
        if all(isinstance(column, Ignored) for column in columns):
            raise ValueError("columns must leave at least one column of X, all are ignored.")
        return Columns(columns)

    @property
    def plain(self) -> bool:
        """Whether all columns are numbers, which are not encoded."""
        return all(isinstance(column, Number) for column in self.columns)

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the encoded columns, such as ``"shift=night"`` or ``"time (daily, cos)"``."""
        return tuple(name for c in self.columns for block in c.encoded for name in block)

    @property
    def inputs(self) -> tuple[str, ...]:
        """Names of the inputs, which have a length scale each."""
        return tuple(name for column in self.columns for name in column.inputs)

    @cached_property
    def members(self) -> tuple[int, ...]:
        """The input of each encoded column."""
        blocks = [block for column in self.columns for block in column.encoded]
        return tuple(i for i, block in enumerate(blocks) for _ in block)

    @property
    def groups(self) -> tuple[int, ...] | None:
        """`members`, or None if every input has one column."""
        return None if len(self.members) == len(self.inputs) else self.members

    @property
    def owner(self) -> tuple[int, ...]:
        """The column of the table of each encoded column."""
        return tuple(i for i, c in enumerate(self.columns) for block in c.encoded for _ in block)

    @property
    def known_units(self) -> Float[np.ndarray, "D 2"] | None:
        """Centre and unit of encoded columns that do not depend on the data, NaN for the others."""
        if self.plain:
            return None
        return np.array([unit for column in self.columns for unit in column.units])

    def encode(self, table: Table, name: str = "X") -> Float[np.ndarray, "N D"]:
        """A table as numbers, with NaN for missing cells.

        Parameters
        ----------
        table : table of shape (N, D)
        name : str, default="X"
            What errors call the table.
        """
        cells = cells_of(table, name)
        if len(cells) != len(self.columns):
            raise ValueError(f"{name} has {len(cells)} columns, expected {len(self.columns)}.")
        pairs = zip(self.columns, cells, strict=True)
        return np.hstack([column.encode(one) for column, one in pairs])

    def decode(self, X: Float[np.ndarray, "N D"]) -> np.ndarray:
        """The table of encoded rows, as an array of objects, or of numbers if all columns are.

        Parameters
        ----------
        X : array of shape (N, D)
        """
        if self.plain:
            return X
        owner = np.array(self.owner)
        cells = [column.decode(X[:, owner == i]) for i, column in enumerate(self.columns)]
        return np.stack([as_objects(column) for column in cells], axis=1)

    def typical(self, middle: Float[np.ndarray, " D"]) -> Float[np.ndarray, " D"]:
        """An encoded row in the middle of the inputs, with the most common level of categories."""
        owner = np.array(self.owner)
        parts = [column.typical(middle[owner == i]) for i, column in enumerate(self.columns)]
        return np.concatenate(parts)

    def along(
        self, middle: Float[np.ndarray, " D"], column: int, grid: Float[np.ndarray, " G"]
    ) -> Float[np.ndarray, "G D"]:
        """Typical rows in which one encoded column varies, with those that depend on it."""
        rows = np.tile(self.typical(middle), (len(grid), 1))
        rows[:, column] = grid
        mine = np.flatnonzero(np.array(self.owner) == self.owner[column])
        at = int(np.flatnonzero(mine == column % rows.shape[1])[0])
        rows[:, mine] = self.columns[self.owner[column]].along(rows[:, mine], at)
        return rows

    def describe(self) -> list[str]:
        """A line for every column that is not a number."""
        encoded = [column for column in self.columns if not isinstance(column, Number)]
        return [f"{shown(column.title)}: {column.describe()}" for column in encoded]

    def within(self, other: "Columns") -> bool:
        """Whether a table with these columns can be encoded by those of another one."""
        pairs = zip(self.columns, other.columns, strict=False)
        return len(self.columns) == len(other.columns) and all(a.within(b) for a, b in pairs)

    def check(self) -> None:
        """Raise ValueError if columns read from a file are invalid."""
        right = isinstance(self.columns, tuple) and self.columns
        if not right or not all(isinstance(c, Column) for c in self.columns):
            raise ValueError("columns_ must describe at least one column")
        for column in self.columns:
            if not (isinstance(column.name, str | int) and column.check()):
                raise ValueError(f"columns_ describes column {quoted(column.name)} wrongly")


def _names(table: Table) -> list[str | int]:
    """Names of the columns, or their positions."""
    known = names(table) or range(np.asarray(table).shape[1])
    return [name if isinstance(name, str | int) else str(name) for name in known]


def _by_position(roles: Mapping[Any, Any], known: Sequence[str | int]) -> dict[int, Role]:
    """Roles by the position of their columns."""
    found: dict[int, Role] = {}
    for key, role in roles.items():
        if key in known:
            place = known.index(key)
        elif isinstance(key, int) and -len(known) <= key < len(known):
            place = key % len(known)
        else:
            near = difflib.get_close_matches(shown(key), [shown(name) for name in known], 1, 0.5)
            hint = f" Did you mean {quoted(near[0])}?" if near else ""
            raise ValueError(f"columns names {quoted(key)}, which X does not have.{hint}")
        parts = parse_role(role)
        if parts is None:
            known_roles = ", ".join(ROLES)
            raise ValueError(
                f"columns has the unknown role {quoted(role)}; roles are {known_roles}."
            )
        found[place] = parts
    return found


def _decided(cells: Cells, role: Role | None) -> Column:
    """What a column holds, by its role or by its cells."""
    if role != ("ignore",) and len(cells.values) > 1 and not _present(cells):
        raise ValueError(f"{cells.label} contains NaN only: it has no values.")
    if role is None:
        return _guessed(cells)
    if role == ("ignore",):
        return Ignored(cells.name)
    if role == ("number",):
        _check_numbers(cells)
        return Number(cells.name)
    if role == ("category",):
        return _category(cells, MOST_DECLARED)
    units = [part for part in role if part in SECONDS]
    periods = tuple(part for part in role if part in PERIODS)
    return time_column(cells, units[0] if units else None, len(periods) < len(role), periods)


def _guessed(cells: Cells) -> Column:
    """What a column without a role holds."""
    if cells.declared:
        return _category(cells, MOST_DECLARED)
    if cells.values.dtype.kind in "mM":
        return time_column(cells, None, False, ())
    present = [] if cells.values.dtype.kind != "O" else _present(cells)
    if not present:
        return Number(cells.name)
    if all(isinstance(cell, bool | np.bool_) for cell in present):
        return Category(cells.name, (False, True), int(2 * sum(present) > len(present)))
    if all(is_time(cell) for cell in present):
        return time_column(cells, None, False, ())
    distinct = set(present) if all(isinstance(cell, str | bytes) for cell in present) else None
    if distinct is not None and all(map(_is_date, distinct)):
        return time_column(cells, None, False, ())
    # A word among numbers is rather a mistake than a level.
    if 2 * sum(map(_is_number, distinct or present)) >= len(distinct or present):
        _check_numbers(cells)
        return Number(cells.name)
    return _category(cells, MOST_LEVELS)


def _present(cells: Cells) -> list[Any]:
    return [cell for cell in cells.values if not is_missing(cell)]


def _check_numbers(cells: Cells) -> None:
    """Raise unless all cells are numbers, naming the first that is not."""
    Number(cells.name).encode(cells)


def _is_number(cell: Any) -> bool:
    # What is neither text nor a number is refused as a number, with its row.
    if not isinstance(cell, str | bytes):
        return True
    try:
        float(cell)
    except ValueError:
        return False
    return True


def _is_date(cell: str | bytes) -> bool:
    try:
        return len(cell) >= 10 and bool(datetime.datetime.fromisoformat(str(cell)))
    except ValueError:
        return False


def _category(cells: Cells, most: int) -> Column:
    """A category with the levels that occur."""
    present = _present(cells)
    counts: dict[Any, int] = {}
    for cell in present:
        level = level_of(cell)
        if level not in counts:
            check_unicode(level, f"{cells.label} holds")
        counts[level] = counts.get(level, 0) + 1
    free = most == MOST_LEVELS and len(counts) * LEAST_ROWS > len(present)
    if len(counts) > most or free:
        raise ValueError(_refusal(cells, len(counts), most))
    levels = sorted(counts, key=level_order)
    if {type(level) for level in levels} == {bool}:
        levels = [False, True]
    common = max(range(len(levels)), key=lambda i: counts.get(levels[i], 0), default=0)
    return Category(cells.name, tuple(levels), common)


def _refusal(cells: Cells, levels: int, most: int) -> str:
    """Why a column is no category, and what to do."""
    found = f"{cells.label} holds text with {levels} different values in {len(cells.values)} rows"
    if most == MOST_DECLARED:
        return f"{found}, and a category may have {most}. Leave it out, or group its values."
    few = f"more than a category has (up to {most}, each in {LEAST_ROWS} rows on average)"
    what = f'"ignore" or "category" in columns={{{quoted(cells.name)}: ...}}'
    return f"{found}, {few}. Leave it out, or state its role, {what}."
