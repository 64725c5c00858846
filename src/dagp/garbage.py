"""Python's search for garbage, put off while it could find none."""

import gc
from collections.abc import Iterator
from contextlib import contextmanager

__all__ = ["uncollected"]


@contextmanager
def uncollected() -> Iterator[None]:
    """Do not look for garbage inside the ``with`` block, or the decorated function.

    Importing a library and tracing a program make a great many objects and drop few: going
    through them all again and again takes an eighth of the one and a quarter of the other.

    >>> with uncollected():
    ...     print(gc.isenabled())
    False
    """
    collecting = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if collecting:
            gc.enable()
