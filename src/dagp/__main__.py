"""The `dagp` command, also `python -m dagp`."""

import _thread
import gc
import signal
import sys
import threading
from types import FrameType
from typing import Any


def main() -> None:
    """Run the command line; Ctrl-C may come at any time, also before it is imported."""
    sys.unraisablehook = _repeat_interrupt
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, _raise_outside_imports)
    try:
        from dagp.cli import main as command

        command()
    except KeyboardInterrupt:
        print("Stopped.", file=sys.stderr)
        sys.exit(130)
    finally:
        # The work is done or given up; what is left to do at the end takes no time.
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        # Otherwise the interpreter would look for garbage in all that was imported before it ends.
        gc.freeze()


def _raise_outside_imports(number: int, frame: FrameType | None) -> None:
    """Raise KeyboardInterrupt, once no import is under way: where an exception ends the
    initialisation of an extension module, Python may crash."""
    while frame is not None:
        if frame.f_code.co_filename.startswith("<frozen importlib"):
            _interrupt_later()
            return
        frame = frame.f_back
    raise KeyboardInterrupt


def _repeat_interrupt(ignored: Any) -> None:
    """Repeat a Ctrl-C that came inside a callback, such as of the garbage collector, where Python
    prints exceptions and goes on."""
    if issubclass(ignored.exc_type, KeyboardInterrupt):
        _interrupt_later()  # here it would be ignored again
    else:
        sys.__unraisablehook__(ignored)


def _interrupt_later() -> None:
    later = threading.Timer(0.02, _interrupt)
    later.daemon = True  # an exit does not wait for it
    later.start()


def _interrupt() -> None:
    if hasattr(signal, "pthread_kill"):
        # Also ends a call that waits, such as for a file.
        signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGINT)
    else:  # pragma: no cover  (Windows)
        _thread.interrupt_main()


if __name__ == "__main__":
    main()
