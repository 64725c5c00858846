"""Command-line interface: one module per command, each with a function of the command's name."""

import os

from dagp.cli.app import app
from dagp.cli.streams import escape_what_has_no_code, open_closed

__all__ = ["app", "main"]


def main() -> None:
    """The `dagp` command."""
    # Figures are written to files: no display is needed, whatever backend the caller has set.
    os.environ["MPLBACKEND"] = "agg"
    open_closed()
    escape_what_has_no_code()
    app()
