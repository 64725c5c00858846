"""The logger `dagp`, and how its lines reach users who have configured no logging."""

import logging
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager

logger = logging.getLogger("dagp")
logger.addHandler(logging.NullHandler())


class _Display:
    """Shows lines of level INFO while fits ask for it, several of them perhaps at once."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._users = 0
        self._level = logging.NOTSET
        self._handler: logging.Handler | None = None

    def open(self) -> None:
        with self._lock:
            self._users += 1
            if self._users > 1:
                return
            self._level = logger.level
            if logger.getEffectiveLevel() > logging.INFO:
                logger.setLevel(logging.INFO)
            if not _is_configured():
                self._handler = logging.StreamHandler(sys.stdout)
                logger.addHandler(self._handler)

    def close(self) -> None:
        with self._lock:
            self._users -= 1
            if self._users:
                return
            logger.setLevel(self._level)
            if self._handler is not None:
                logger.removeHandler(self._handler)
                self._handler = None


_display = _Display()


@contextmanager
def lines_shown(wanted: bool = True) -> Iterator[None]:
    """Show lines of level INFO inside the block, if wanted.

    They go to the handlers that the user has configured, or to stdout where there is none.
    """
    if not wanted:
        yield
        return
    _display.open()
    try:
        yield
    finally:
        _display.close()


def _is_configured() -> bool:
    """Whether a handler would take lines of our logger."""
    node: logging.Logger | None = logger
    while node is not None:
        if not all(isinstance(handler, logging.NullHandler) for handler in node.handlers):
            return True
        node = node.parent if node.propagate else None
    return False
