"""Input columns of dates, durations and times of day."""

import datetime
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from dagp.core.tags import storable
from dagp.core.text import quoted
from dagp.tables.kinds import ROUND, Column, Encoded
from dagp.tables.reading import Cells, is_missing

SECONDS = {"seconds": 1, "minutes": 60, "hours": 3600, "days": 86400, "years": 31_557_600}
"""Units of time; a year has 365.25 days."""
PERIODS = {"daily": 86400, "weekly": 7 * 86400, "yearly": 31_557_600}
_SPANS = {"seconds": 120, "minutes": 7200, "hours": 2 * 86400, "days": 1000 * 86400}
"""Longest span of the data, in seconds, for which a unit is chosen; years beyond."""


@storable("column/Time")
@dataclass(frozen=True)
class Time(Column):
    """Dates, durations or times of day: a number in a unit, or the phase in one or several periods.

    A phase is encoded as cosine and sine, under which a squared exponential kernel is the periodic
    one: ``exp(-2 sin²(π Δt / period) / lengthscale²)``.
    """

    name: str | int
    holds: str
    """"dates", "durations" or "times of day"."""
    origin: str
    """The date from which dates are counted; empty for the others."""
    unit: str
    trend: bool
    """Whether time itself is an input, besides its phases."""
    periods: tuple[str, ...]
    zoned: bool = False

    @property
    def inputs(self) -> tuple[str, ...]:
        trend = (f"{self.title} ({self._counted})",) if self.trend else ()
        return (*trend, *(f"{self.title} ({period})" for period in self.periods))

    @property
    def _counted(self) -> str:
        zone = " UTC" if self.zoned else ""
        return f"{self.unit} since {self.origin}{zone}" if self.origin else self.unit

    @property
    def encoded(self) -> tuple[tuple[str, ...], ...]:
        trend = (self.inputs[:1],) if self.trend else ()
        phases = ((f"{self.title} ({p}, cos)", f"{self.title} ({p}, sin)") for p in self.periods)
        return (*trend, *phases)

    @property
    def units(self) -> list[tuple[float, float]]:
        return [(np.nan, np.nan)] * self.trend + [(0.0, ROUND)] * (2 * len(self.periods))

    def encode(self, cells: Cells) -> Encoded:
        values, holds, zoned = time_values(cells)
        if holds != self.holds:
            raise ValueError(f"{cells.label} holds {holds}, and {self.holds} in the fit.")
        if zoned != self.zoned:
            zones = ["without a time zone", "with a time zone"]
            found = f"{cells.label} holds times {zones[zoned]}, and {zones[self.zoned]} in the fit"
            raise ValueError(f"{found}; give both one.")
        since = values - np.datetime64(self.origin) if self.origin else values
        columns = [since / _span(SECONDS[self.unit])] if self.trend else []
        for period in self.periods:
            phase = 2 * np.pi * (since / _span(PERIODS[period]) % 1)
            columns += [np.cos(phase), np.sin(phase)]
        return np.stack(columns, axis=1)

    def decode(self, columns: Encoded) -> list[Any]:
        if self.trend:
            seconds = columns[:, 0] * SECONDS[self.unit]
        else:
            # Times with the same first phase, which the model cannot tell apart.
            phase = np.arctan2(columns[:, 1], columns[:, 0]) / (2 * np.pi) % 1
            seconds = phase * PERIODS[self.periods[0]]
        since = np.full(len(columns), np.timedelta64("NaT", "us"))
        known = ~np.isnan(seconds)
        since[known] = np.rint(seconds[known] * 1e6).astype("timedelta64[us]")
        return list(np.datetime64(self.origin) + since if self.origin else since)

    def typical(self, middle: np.ndarray) -> np.ndarray:
        return np.concatenate([middle[: int(self.trend)], np.tile([1.0, 0.0], len(self.periods))])

    def along(self, columns: Encoded, at: int) -> Encoded:
        phase = at - self.trend
        if phase < 0:
            return columns
        partner = at + 1 if phase % 2 == 0 else at - 1
        columns = columns.copy()
        columns[:, partner] = np.sqrt(np.maximum(1 - columns[:, at] ** 2, 0.0))
        return columns

    def within(self, other: Column) -> bool:
        # Counted from another date, or in another unit.
        if not isinstance(other, Time):
            return False
        return replace(self, origin=other.origin, unit=other.unit) == other

    def describe(self) -> str:
        inputs = [self._counted] if self.trend else []
        return f"{self.holds}: {', '.join([*inputs, *self.periods])}"

    def check(self) -> bool:
        right = self.unit in SECONDS and set(self.periods) <= set(PERIODS)
        right = right and self.holds in ("dates", "durations", "times of day")
        right = right and isinstance(self.trend, bool) and isinstance(self.zoned, bool)
        counted = bool(self.origin) == (self.holds == "dates")
        if self.origin:
            datetime.date.fromisoformat(self.origin)
        return right and counted and (self.trend or bool(self.periods))


def _span(seconds: int) -> np.timedelta64:
    return np.timedelta64(seconds * 10**6, "us")


def time_values(cells: Cells) -> tuple[np.ndarray, str, bool]:
    """A column of times as datetime64 or timedelta64, what it holds, and whether it has a zone."""
    kind = cells.values.dtype.kind
    if kind in "mM":
        return cells.values, "dates" if kind == "M" else "durations", cells.zoned
    present = [cell for cell in cells.values if not is_missing(cell)]
    holds, convert = _held(cells, present)
    dtype = "datetime64[us]" if holds == "dates" else "timedelta64[us]"
    values = np.full(len(cells.values), np.array("NaT", dtype))
    for row, cell in enumerate(cells.values):
        if is_missing(cell):
            continue
        try:
            values[row] = convert(cell)
        except ValueError as error:
            wanted = "which is not a date or time, such as 2026-01-31 or 2026-01-31 08:30"
            raise ValueError(
                f"{cells.label} holds {quoted(cell)} in row {row}, {wanted}."
            ) from error
    return values, holds, any(_zone(cell) for cell in present)


def _held(cells: Cells, present: list[Any]) -> tuple[str, Callable[[Any], Any]]:
    """What objects are, and how they are converted."""
    for holds, (types, convert) in _TIMES.items():
        if present and all(isinstance(cell, types) for cell in present):
            return holds, convert
    if all(isinstance(cell, str) or hasattr(cell, "to_timestamp") for cell in present):
        return "dates", _from_text
    raise ValueError(f"{cells.label} holds no dates or times, which its role needs.")


def _zone(cell: Any) -> bool:
    if isinstance(cell, str):
        cell = datetime.datetime.fromisoformat(cell)
    return getattr(cell, "tzinfo", None) is not None


def _from_text(cell: Any) -> Any:
    """A text of ISO 8601, or a period of pandas, as a date."""
    if isinstance(cell, str):
        return _from_date(datetime.datetime.fromisoformat(cell))
    return _from_date(cell.to_timestamp())


def _from_date(cell: Any) -> Any:
    if getattr(cell, "tzinfo", None) is not None:
        cell = cell.astimezone(datetime.UTC).replace(tzinfo=None)
    return np.datetime64(cell)


def _from_clock(cell: datetime.time) -> datetime.timedelta:
    whole = datetime.timedelta(hours=cell.hour, minutes=cell.minute, seconds=cell.second)
    return whole + datetime.timedelta(microseconds=cell.microsecond)


_TIMES: dict[str, tuple[tuple[type, ...], Callable[[Any], Any]]] = {
    "dates": ((datetime.date, np.datetime64), _from_date),
    "durations": ((datetime.timedelta, np.timedelta64), lambda cell: cell),
    "times of day": ((datetime.time,), _from_clock),
}
"""What objects are times, and how they are converted."""


def is_time(cell: Any) -> bool:
    """Whether an object is a date, a duration or a time of day."""
    known = tuple(kind for types, _ in _TIMES.values() for kind in types)
    return isinstance(cell, known) or hasattr(cell, "to_timestamp")


def time_column(cells: Cells, unit: str | None, trend: bool, periods: tuple[str, ...]) -> Time:
    """The description of a column of times; without a unit, their span decides."""
    values, holds, zoned = time_values(cells)
    known = values[~np.isnat(values)]
    origin = ""
    if holds == "dates":
        first = known.min() if len(known) else np.datetime64("1970-01-01")
        # Midnight, so that the daily phase is the time of day.
        origin = str(first.astype("datetime64[D]"))
    if unit is None:
        span = np.ptp(known) / _span(1) if len(known) else 0.0
        unit = next((unit for unit, most in _SPANS.items() if span <= most), "years")
    if holds == "times of day" and not trend and not periods:
        periods = ("daily",)
    return Time(cells.name, holds, origin, unit, trend or not periods, periods, zoned)
