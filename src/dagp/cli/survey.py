"""Looks at the columns of a table: what each holds, and whether it can be an input of a model."""

from typing import NamedTuple

import numpy as np

from dagp.cli import tables
from dagp.cli.app import InputError
from dagp.cli.cells import Kind, absent, are_unclear_dates
from dagp.cli.roles import is_category
from dagp.core.text import shown

_MOST_MISSING = 0.5
"""Share of empty cells above which a column is left out, as its rows would be dropped."""
_FEW = 10
"""Most different whole numbers that may as well be the codes of a category."""


class Column(NamedTuple):
    """What a column holds, in words, and what it is good for."""

    name: str
    kind: Kind
    text: str
    missing: np.ndarray
    """Mask of the empty cells."""
    usable: bool = True
    """Whether it is proposed as an input."""

    @property
    def described(self) -> str:
        """The description, with the number of empty cells."""
        count = int(self.missing.sum())
        return f"{self.text}, {count} empty" if count and self.usable else self.text


def survey(table: tables.Table) -> list[Column]:
    """The columns of a table in their order; raises InputError if it has no rows."""
    unique = [name for name in table.columns if table.columns.count(name) == 1]
    columns = _read(table, unique)
    if not columns:
        raise InputError(f"{table.name} has no column with a name of its own.")
    return columns


def _read(table: tables.Table, names: list[str]) -> list[Column]:
    """Columns that are read together, or one by one where some cell is wrong."""
    try:
        kinds = {name: table.kind(name) for name in names}
        part = tables.read_columns(table, names, kinds)
        return [_judge(name, kinds[name], part.columns[name]) for name in names]
    except InputError as error:
        if len(names) > 1:
            return [column for name in names for column in _read(table, [name])]
        if "no rows" in str(error) or "cells, the first row" in str(error):
            raise
        reason = str(error).removeprefix(f"{table.name}, ").rstrip(".")
        return [Column(name, Kind.text, reason, np.zeros(0, bool), False) for name in names]


def _judge(name: str, kind: Kind, cells: np.ndarray) -> Column:
    missing = absent(cells)
    known = cells[~missing]
    whole = Column(name, kind, "", missing)
    if len(known) == 0:
        return whole._replace(text="has no values", usable=False)
    if len(known) < _MOST_MISSING * len(cells):
        return whole._replace(text=f"is empty in {missing.mean():.0%} of the rows", usable=False)
    # Text is an array of objects, which are sorted as such.
    levels = np.unique(known)
    if len(levels) == 1:
        return whole._replace(text=f"is {_shown(levels[0])} in every row", usable=False)
    if kind is Kind.text:
        return _judge_text(whole, levels.tolist(), len(known))
    ends = f"from {_shown(levels[0])} to {_shown(levels[-1])}"
    if kind is Kind.date:
        return whole._replace(text=f"dates {ends}")
    if len(known) > 2 and np.all(np.diff(known) == 1):
        return whole._replace(text=f"numbers the rows, {ends}", usable=False)
    codes = len(levels) <= _FEW < len(known) and bool(np.all(levels % 1 == 0))
    hint = f'; {len(levels)} whole numbers, as codes of a category: role "category"'
    return whole._replace(text=f"numbers {ends}{hint if codes else ''}")


def _judge_text(column: Column, levels: list[str], rows: int) -> Column:
    if are_unclear_dates(levels):
        found = f"dates such as {levels[0]}, in which day and month can be mistaken"
        return column._replace(text=f"{found}; write them as 2024-01-31", usable=False)
    if is_category(len(levels), rows):
        shown = ", ".join(map(_shown, levels[:5])) + (", …" * (len(levels) > 5))
        return column._replace(text=f"category of {len(levels)}: {shown}")
    found = f"text with {len(levels)} different values in {rows} rows"
    return column._replace(text=found, usable=False)


def _shown(value: object) -> str:
    """A value in a comment, on one line."""
    if isinstance(value, np.datetime64):
        return str(value.astype("datetime64[s]")).replace("T", " ").removesuffix(" 00:00:00")
    return f"{value:.6g}" if isinstance(value, float) else shown(value, 40)
