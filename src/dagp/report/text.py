"""Formatting of numbers and text for the report: short, escaped, deterministic."""

import html
import json
import re
from collections.abc import Iterable
from typing import Any

import numpy as np

from dagp.describe.summary import digits

_DIGITS = 4
"""Significant digits relative to the spread of a column: finer than a screen resolves."""
_LONGEST = 400


def escape(text: object) -> str:
    """Escape text for an element or a quoted attribute."""
    return html.escape(str(text), quote=True)


def embedded(value: Any) -> str:
    """JSON that is safe inside a script element, for any strings."""
    text = json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    # In JSON these occur in strings only, where the escape is equivalent.
    for sign in "<>&\u2028\u2029":
        text = text.replace(sign, f"\\u{ord(sign):04x}")
    return text


def short(values: Any, digits: int = _DIGITS) -> list[float | None]:
    """Numbers rounded relative to their spread; None where not finite.

    >>> short([0.123456, 1.0, np.nan]), short([1700000000.123, 1700000100.0])
    ([0.1235, 1.0, None], [1700000000.1, 1700000100.0])
    """
    array = np.asarray(values, np.float64).ravel()
    finite = array[np.isfinite(array)]
    if not finite.size:
        return [None] * array.size
    size, low, high = np.abs(finite).max(), finite.min(), finite.max()
    # Halved, because the difference of two very large numbers may overflow.
    spread = high / 2 - low / 2
    if spread > 0 and size > 0:
        digits = min(digits + max(0, int(np.ceil(np.log10(size / 2) - np.log10(spread) - 0.3))), 17)
    return [_rounded(v, digits) if np.isfinite(v) else None for v in array.tolist()]


def _rounded(value: float, digits: int) -> float:
    rounded = float(f"{value:.{digits}g}")
    # Rounding the largest double may overflow.
    return rounded if np.isfinite(rounded) else value


def number(value: float) -> str:
    """A number with three significant digits and a typographic minus.

    >>> number(0.0312345), number(123456.0), number(-0.5)
    ('0.0312', '123000', '−0.5')
    """
    return ("−" if value < 0 else "") + digits(abs(value))


def percent(share: float) -> str:
    r"""A share in per cent, with one decimal below 10 % and above 90 %.

    >>> percent(0.62) == "62\N{NO-BREAK SPACE}%", percent(0.052)[:3], percent(1.0)[:3]
    (True, '5.2', '100')
    """
    value = 100 * share
    digits = 0 if 10 <= value <= 90 or value in (0, 100) else 1
    return f"{value:.{digits}f}\N{NO-BREAK SPACE}%"


def plain(value: object) -> str:
    """A setting as text: of limited length, without memory addresses, which differ between runs.

    >>> plain(np.random.default_rng(0))
    'Generator(PCG64)'
    """
    text = re.sub(r"\s+at 0x[0-9A-Fa-f]+", "", value if isinstance(value, str) else repr(value))
    return text if len(text) <= _LONGEST else text[:_LONGEST] + " …"


def number_of(count: int, word: str) -> str:
    """A count with its noun.

    >>> number_of(1, "row"), number_of(3, "process")
    ('1 row', '3 processes')
    """
    ending = "" if count == 1 else "es" if word.endswith("s") else "s"
    return f"{count} {word}{ending}"


def listed(items: Iterable[str]) -> str:
    """Join items with commas and "and".

    >>> listed(["a", "b", "c"])
    'a, b and c'
    """
    *first, last = items
    return f"{', '.join(first)} and {last}" if first else last
