"""Cells of text tables: numbers with either decimal mark, dates, and what counts as missing."""

import re
from collections.abc import Collection, Mapping, Sequence
from datetime import UTC, datetime
from enum import StrEnum
from typing import Any, NamedTuple

import numpy as np

from dagp.core.text import quoted

MISSING = frozenset({"", "na", "n/a", "#n/a", "nan", "null", "none"})
"""Contents of a missing cell, in lower case."""
_NAN = re.compile(r"[+-]?(nan(\([^()]*\))?|1\.#(qnan|snan|ind)\d*)", re.IGNORECASE)
"""NaN as programs in C write it, with a sign or a payload."""
# One way to read each digit: a cell of many digits and a letter is refused in linear time.
_DOT = re.compile(r"[+-]?(\d+(\.\d*)?|\.\d+)([eE][+-]?\d+)?")
# Dots group digits only where a comma follows: otherwise they could be decimal points.
_COMMA = re.compile(r"[+-]?(\d{1,3}(\.\d{3})+(?=,)|\d+(?![.\d])|(?=,\d))(,\d*)?([eE][+-]?\d+)?")
_ISO = re.compile(r"\d{4}-\d\d-\d\d([T ]\d\d:\d\d.*)?")
_YEAR_FIRST = re.compile(r"(\d{4})[/.](\d\d?)[/.](\d\d?)(.*)")
_UNCLEAR_DATE = re.compile(r"\d\d?/\d\d?/(\d\d|\d{4})( .*)?")
_DAY_FIRST = re.compile(r"(\d\d?)\.(\d\d?)\.(\d{4})(.*)")


class Kind(StrEnum):
    """What the cells of a column hold, and so how they are read."""

    number = "number"
    date = "date"
    text = "text"


class Part(NamedTuple):
    """Consecutive rows of a table."""

    rows: np.ndarray
    """Line number of each row in the file, as editors and spreadsheets show it."""
    columns: dict[str, np.ndarray]
    """Numbers (NaN where a cell is empty), datetime64 (NaT), or text (None), by column."""
    copies: Mapping[str, np.ndarray] = {}
    """Cells to be written again as they are, by column."""

    @property
    def values(self) -> np.ndarray:
        """The columns, which are all numbers, side by side."""
        return np.stack([np.empty(len(self.rows)), *self.columns.values()], axis=1)[:, 1:]

    def select(self, rows: np.ndarray | slice) -> "Part":
        """Some of the rows."""
        columns, copies = ({n: c[rows] for n, c in kind.items()} for kind in self[1:])
        return Part(self.rows[rows], columns, copies)


class Request(NamedTuple):
    """What is read from a table."""

    kinds: Mapping[str, Kind]
    """What the wanted columns hold."""
    copied: Sequence[str] = ()
    """Columns whose cells are wanted as they are, for `Part.copies`."""

    @property
    def names(self) -> list[str]:
        """All columns that are read, each once."""
        return list(dict.fromkeys([*self.kinds, *self.copied]))


def joined(parts: Sequence[Part]) -> Part:
    """Parts of the same columns, one after the other."""
    if len(parts) == 1:
        return parts[0]
    first = parts[0]
    columns = {name: np.concatenate([p.columns[name] for p in parts]) for name in first.columns}
    copies = {name: np.concatenate([p.copies[name] for p in parts]) for name in first.copies}
    return Part(np.concatenate([part.rows for part in parts]), columns, copies)


def absent(column: np.ndarray) -> np.ndarray:
    """Mask of the missing cells of a column."""
    if column.dtype.kind == "M":
        return np.isnat(column)
    if column.dtype.kind == "O":
        return np.array([cell is None for cell in column], dtype=bool)
    return np.isnan(column)


def is_missing(cell: str) -> bool:
    """Whether a cell counts as empty.

    >>> is_missing(" N/A "), is_missing("-nan"), is_missing("NaN(0x7)"), is_missing("0")
    (True, True, True, False)
    """
    text = cell.strip()
    return text.lower() in MISSING or _NAN.fullmatch(text) is not None


def number(cell: str, decimal: str) -> float | None:
    """The number in a cell, None if it is not a number.

    >>> number("1.234,5", ","), number(" 2e3 ", "."), number("1,5", ".")
    (1234.5, 2000.0, None)
    """
    text = cell.strip()
    if decimal == "," and _COMMA.fullmatch(text):
        return float(text.replace(".", "").replace(",", "."))
    if decimal == "." and _DOT.fullmatch(text):
        return float(text)
    return None


def date(cell: str) -> datetime | None:
    """The moment in a cell, in UTC if it has a time zone; None if it is not a date.

    Only forms that have one reading: 2024-01-31, 2024/01/31 and 31.01.2024, also with a time.

    >>> date("31.1.2024 12:30"), date("01/02/2024")
    (datetime.datetime(2024, 1, 31, 12, 30), None)
    """
    text = cell.strip()
    if found := _YEAR_FIRST.fullmatch(text):
        year, month, day, rest = found.groups()
    elif found := _DAY_FIRST.fullmatch(text):
        day, month, year, rest = found.groups()
    elif _ISO.fullmatch(text):
        year, month, day, rest = text[:4], text[5:7], text[8:10], text[10:]
    else:
        return None
    try:
        moment = datetime.fromisoformat(f"{year}-{int(month):02d}-{int(day):02d}{rest}")
    except ValueError:
        return None
    return moment if moment.tzinfo is None else moment.astimezone(UTC).replace(tzinfo=None)


def are_unclear_dates(cells: Collection[str]) -> bool:
    """Whether texts are dates whose day and month can be mistaken for each other.

    >>> are_unclear_dates(["1/2/2024", "01/31/24 12:30"]), are_unclear_dates(["2024-01-31"])
    (True, False)
    """
    return len(cells) > 0 and all(_UNCLEAR_DATE.fullmatch(cell) for cell in cells)


def copied(cells: Sequence[str], decimal: str) -> np.ndarray:
    """The cells of a column, to be written again."""
    return objects([as_written(cell, decimal) for cell in cells])


def as_written(cell: str, decimal: str) -> str:
    """A cell to be written again; a decimal comma becomes a point.

    >>> as_written(" 007", "."), as_written("1.234,5", ",")
    ('007', '1234.5')
    """
    text = cell.strip()
    if decimal == "," and number(text, ",") is not None:
        return text.replace(".", "").replace(",", ".")
    return text


def kind_of(cells: Sequence[str], decimal: str) -> Kind:
    """What a column holds, by the majority of its cells that are not missing."""
    known = [cell for cell in cells if not is_missing(cell)]
    numbers = sum(number(cell, decimal) is not None for cell in known)
    if 2 * numbers >= len(known):
        return Kind.number
    dates = sum(date(cell) is not None for cell in known)
    return Kind.date if 2 * dates > len(known) else Kind.text


def convert(cells: Sequence[str], kind: Kind, decimal: str) -> np.ndarray:
    """The cells of a column as `kind`; raises CellError for the first that is not."""
    if kind is Kind.text:
        return objects([None if is_missing(cell) else cell.strip() for cell in cells])
    if kind is Kind.date:
        moments = [_date_cell(cell, i) for i, cell in enumerate(cells)]
        return np.array(moments, dtype="datetime64[us]")
    try:
        if decimal == "," or any("_" in cell for cell in cells):
            raise ValueError
        values = np.array([float(cell) for cell in cells], dtype=np.float64)
    except ValueError:
        # Some cell is not a plain number: one by one, to locate it.
        values = np.array([_number_cell(cell, i, decimal) for i, cell in enumerate(cells)], float)
    if np.isinf(values).any():
        first = int(np.flatnonzero(np.isinf(values))[0])
        raise CellError(first, f"{quoted(cells[first].strip())} is infinite")
    return values


class CellError(ValueError):
    """A cell that cannot be read as what its column holds; `index` is its place in the column."""

    def __init__(self, index: int, reason: str, not_number: bool = False):
        super().__init__(reason)
        self.index, self.not_number = index, not_number


def objects(cells: Sequence[Any]) -> np.ndarray:
    """A column of objects."""
    column = np.empty(len(cells), dtype=object)
    column[:] = cells
    return column


def _date_cell(cell: str, index: int) -> datetime | None:
    moment = date(cell)
    if moment is None and not is_missing(cell):
        expected = "not a date such as 2024-01-31 or 31.01.2024"
        raise CellError(index, f"{quoted(cell.strip())} is {expected}", not_number=True)
    return moment


def _number_cell(cell: str, index: int, decimal: str) -> float:
    value = number(cell, decimal)
    if value is not None:
        return value
    if is_missing(cell):
        return np.nan
    hint = " (--decimal , reads decimal commas)" if number(cell, ",") is not None else ""
    raise CellError(index, f"{quoted(cell.strip())} is not a number{hint}", not_number=True)
