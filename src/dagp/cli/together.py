"""A command that runs in several processes at once: who speaks, who writes, what is lost."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from jax.errors import JaxRuntimeError

from dagp import distributed
from dagp.cli.app import CommandError, InputError, console, messages

__all__ = ["HEARTBEAT", "LOST", "beat", "joined"]

HEARTBEAT = "DAGP_HEARTBEAT"
"""Names the file that a process touches to show that it gets on."""
LOST = 75
"""Exit code when another process is gone: worth another try."""


@contextmanager
def joined() -> Iterator[bool]:
    """Meet the other processes, if there are any; says whether this one is to write files.

    The first process speaks for all.
    """
    try:
        place = distributed.place_of()
    except ValueError as error:
        raise InputError(str(error)) from error
    if place is None:
        yield True
        return
    try:
        distributed.initialize(place)
        console.quiet = messages.quiet = not distributed.leading()
        with distributed.together():
            yield distributed.leading()
    except JaxRuntimeError as error:
        reason = str(error).splitlines()[0][:200]
        raise CommandError(f"Lost the other processes: {reason}", LOST) from error


def beat() -> None:
    """Show whoever watches that this process gets on."""
    if path := os.environ.get(HEARTBEAT):
        Path(path).touch()
