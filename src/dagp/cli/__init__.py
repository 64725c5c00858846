"""The command line: one module per command, each with a function of its name."""

import os

from dagp.cli.app import app
from dagp.cli.cache import keep_compiled

__all__ = ["app", "main"]


def main() -> None:
    """Entry point of the `dagp` command."""
    # Pictures go to files; a screen, or a notebook that calls us, is none of our concern.
    os.environ["MPLBACKEND"] = "agg"
    keep_compiled()
    app()
