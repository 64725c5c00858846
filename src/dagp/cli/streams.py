"""Standard streams that are closed, or that break while a command writes to them."""

import contextlib
import io
import os
import sys
from typing import Any, TextIO

from rich.console import Console

_NAMES = ("stdin", "stdout", "stderr")
_missing: set[str] = set()
"""Streams that were closed when the command began."""


def open_closed() -> None:
    """Put the null device in place of standard streams that are closed.

    Otherwise the next file that is opened takes the number of the stream, and what a library writes
    to its standard error goes into that file.
    """
    for number, name in enumerate(_NAMES):
        try:
            os.fstat(number)
        except OSError:
            # Opened with the lowest free number, which is this one.
            os.open(os.devnull, os.O_RDWR)
        if getattr(sys, name) is None:
            _missing.add(name)
            mode = "r" if name == "stdin" else "w"
            setattr(sys, name, open(number, mode, encoding="utf-8", closefd=False))  # noqa: SIM115


def escape_what_has_no_code() -> None:
    """Print characters that the encoding of standard output lacks, such as letters of a column name
    where it is ASCII, as escapes."""
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")


def stdout_is_closed() -> bool:
    """Whether results would be lost."""
    return "stdout" in _missing


def silence(stream: TextIO) -> None:
    """Send what is still written to a broken stream to the null device."""
    with contextlib.suppress(OSError, ValueError):
        null = os.open(os.devnull, os.O_WRONLY)
        os.dup2(null, stream.fileno())
        os.close(null)


class Results(Console):
    """Standard output: results, which may be piped."""

    def on_broken_pipe(self) -> None:
        """Let the command end as others do whose reader has gone; Rich would end it with code 1."""
        raise BrokenPipeError


class Messages(Console):
    """Standard error: progress, notes and errors. None of them is worth the work of a command."""

    def print(self, *objects: Any, **options: Any) -> None:
        """Print, unless that cannot be done."""
        try:
            super().print(*objects, **options)
        except OSError:
            silence(sys.stderr)

    def on_broken_pipe(self) -> None:
        """Say nothing from here on."""
        silence(sys.stderr)
