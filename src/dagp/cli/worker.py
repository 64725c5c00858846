"""Worker side of `dagp launch`: joins the other workers, reports progress and their loss."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from jax.errors import JaxRuntimeError

from dagp import distributed
from dagp.cli.app import CommandError, InputError, console, messages

HEARTBEAT = "DAGP_HEARTBEAT"
"""Environment variable with the file that a worker touches after every block of steps."""
WORKER_LOST = 75
"""Exit code (EX_TEMPFAIL) when another worker is lost: a restart may succeed."""


@contextmanager
def join_workers() -> Iterator[bool]:
    """Join the other workers, if there are any; yields whether this one writes the files.

    Only the leading worker prints.
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
        raise CommandError(f"Lost the other workers: {reason}", WORKER_LOST) from error


def heartbeat() -> None:
    """Signal progress to `dagp launch`, where it started this worker."""
    if path := os.environ.get(HEARTBEAT):
        Path(path).touch()
