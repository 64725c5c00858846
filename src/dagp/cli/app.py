"""The command line application, and the terminal it speaks to."""

from typing import Annotated

try:
    import matplotlib as mpl
    import typer
    from rich.console import Console
except ModuleNotFoundError as missing:  # pragma: no cover
    raise SystemExit(
        f"The command line needs {missing.name}: pip install 'dagp[cli]'."
    ) from missing

from dagp import __version__

__all__ = ["app", "console"]

# Pictures go to files; a screen may not be there.
mpl.use("agg")

app = typer.Typer(
    name="dagp",
    help="Data association with Gaussian processes.",
    no_args_is_help=True,
    add_completion=True,
    pretty_exceptions_enable=False,
)
console = Console()


def _version(wanted: bool) -> None:
    if wanted:
        console.print(f"dagp {__version__}")
        raise typer.Exit


@app.callback()
def _options(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    """Data association with Gaussian processes."""
