"""The `dagp` command, also `python -m dagp`."""

import _thread
import signal
import sys
import threading
from typing import Any


def main() -> None:
    """Run the command line; Ctrl-C may come at any time, also before it is imported."""
    sys.unraisablehook = _repeat_interrupt
    try:
        from dagp.cli import main as command

        command()
    except KeyboardInterrupt:
        print("Stopped.", file=sys.stderr)
        sys.exit(130)
    finally:
        # The work is done or given up; what is left to do at the end takes no time.
        signal.signal(signal.SIGINT, signal.SIG_IGN)


def _repeat_interrupt(ignored: Any) -> None:
    """Repeat a Ctrl-C that came inside a callback, such as of the garbage collector, where Python
    prints exceptions and goes on."""
    if issubclass(ignored.exc_type, KeyboardInterrupt):
        # A little later: here it would be ignored again.
        threading.Timer(0.02, _interrupt).start()
    else:
        sys.__unraisablehook__(ignored)


def _interrupt() -> None:
    if hasattr(signal, "pthread_kill"):
        # Also ends a call that waits, such as for a file.
        signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGINT)
    else:  # pragma: no cover  (Windows)
        _thread.interrupt_main()


if __name__ == "__main__":
    main()
