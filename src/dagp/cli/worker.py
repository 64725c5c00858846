"""Worker side of `dagp launch`: joins the other workers, reports progress and their loss."""

import atexit
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from jax.errors import JaxRuntimeError

from dagp import distributed
from dagp.cli.app import CommandError, InputError, console, messages

HEARTBEAT = "DAGP_HEARTBEAT"
"""Environment variable with the file that a worker touches after every block of steps."""
WORKER_LOST = 75
"""Exit code (EX_TEMPFAIL) when another worker is lost: a restart may succeed."""
PORT_TAKEN = 71
"""Exit code (EX_OSERR) of a worker of `dagp launch` that cannot listen on its port."""
_GOODBYE = 5.0
"""Seconds in which all workers that refuse the same mistake should have found it."""


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
        _connect(place)
        console.quiet = messages.quiet = not distributed.leading()
        with distributed.together():
            yield distributed.leading()
    except JaxRuntimeError as error:
        _leave_at_exit(WORKER_LOST)
        reason = str(error).splitlines()[0][:200]
        raise CommandError(f"Lost the other workers: {reason}", WORKER_LOST) from error
    except Exception as error:
        if not distributed.leave_together(_GOODBYE):
            # Also where it does not lead: the others have not met the error and will not tell it.
            messages.quiet = False
            _leave_at_exit(getattr(error, "code", 1))
        raise


def _connect(place: distributed.Place) -> None:
    try:
        distributed.initialize(place)
    except OSError as error:
        code = PORT_TAKEN if HEARTBEAT in os.environ else 2
        raise CommandError(str(error), code) from error
    except ValueError as error:
        raise InputError(str(error)) from error


def _leave_at_exit(code: int) -> None:
    """End without waiting for workers that are lost, as JAX does: it aborts the process later."""

    def leave() -> None:
        for stream in (sys.stdout, sys.stderr):
            with suppress(OSError, ValueError):
                stream.flush()
        os._exit(code)

    atexit.register(leave)


def heartbeat() -> None:
    """Signal progress to `dagp launch`, where it started this worker."""
    if path := os.environ.get(HEARTBEAT):
        Path(path).touch()
