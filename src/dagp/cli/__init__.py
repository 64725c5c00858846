"""The command line: one module per command."""

from dagp.cli.app import app
from dagp.cli.demo import demo
from dagp.cli.reproduce import reproduce

__all__ = ["app", "demo", "main", "reproduce"]


def main() -> None:
    """Entry point of the `dagp` command."""
    app()
