"""The nearest spelling of a name that does not exist."""

import csv
import difflib
import io
import re
from collections.abc import Iterable

from dagp.core.text import LONGEST, quoted


def nearest(name: str, known: Iterable[str]) -> str | None:
    """The most similar name; one that extends `name` comes first, as units are often omitted."""
    if len(name) > LONGEST:
        return None  # comparing takes time that grows with the square of the length
    lower = {one.lower(): one for one in known if len(one) <= LONGEST}
    wanted = name.lower()
    longer = [one for one in lower if re.search(rf"\b{re.escape(wanted)}", one)]
    longer.sort(key=lambda one: (not one.startswith(wanted), len(one)))
    near = longer or difflib.get_close_matches(wanted, lower, n=1, cutoff=0.5)
    return lower[near[0]] if near else None


def suggestion(name: str, known: Iterable[str]) -> str:
    """A question with the nearest name, to follow an error; empty if none is near.

    >>> suggestion("kernal", ["kernel", "gate"])
    " Did you mean 'kernel'?"
    """
    near = nearest(name, known)
    return f" Did you mean {quoted(near)}?" if near else ""


def split_names(option: str) -> list[str]:
    """Names that an option lists, separated by commas; quotes keep a comma in a name.

    >>> split_names('a, "b, c"')
    ['a', 'b, c']
    """
    lines = io.StringIO(option, newline="")
    try:
        rows = list(csv.reader(lines, skipinitialspace=True))
    except csv.Error:
        return [option]  # no name of a column, as the message will say
    return [name.strip() for row in rows for name in row]


def listed(names: Iterable[str], most: int = 20) -> str:
    """Names as a list in a sentence."""
    names = list(names)
    return ", ".join(map(quoted, names[:most])) + (", …" * (len(names) > most))
