"""The command line: one module per command."""

from dagp.cli.app import app
from dagp.cli.bench import bench
from dagp.cli.cache import keep_compiled
from dagp.cli.demo import demo
from dagp.cli.fit import fit
from dagp.cli.info import info
from dagp.cli.plot import plot
from dagp.cli.predict import predict
from dagp.cli.report import report
from dagp.cli.reproduce import reproduce

__all__ = [
    "app",
    "bench",
    "demo",
    "fit",
    "info",
    "main",
    "plot",
    "predict",
    "report",
    "reproduce",
]


def main() -> None:
    """Entry point of the `dagp` command."""
    keep_compiled()
    app()
