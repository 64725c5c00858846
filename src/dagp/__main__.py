"""The `dagp` command, also `python -m dagp`."""

import signal
import sys


def main() -> None:
    """Run the command line; Ctrl-C may come at any time, also before it is imported."""
    try:
        from dagp.cli import main as command

        command()
    except KeyboardInterrupt:
        print("Stopped.", file=sys.stderr)
        sys.exit(130)
    finally:
        # The work is done or given up; what is left to do at the end takes no time.
        signal.signal(signal.SIGINT, signal.SIG_IGN)


if __name__ == "__main__":
    main()
