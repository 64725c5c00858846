"""Typer application: list of commands, shared options, consoles, and errors with exit codes."""

import importlib
import os
from pathlib import Path
from typing import Annotated, Any

try:
    import typer
    from rich.console import Console
    from typer.core import TyperGroup
    from typer.main import get_command
except ModuleNotFoundError as missing:  # pragma: no cover
    raise SystemExit(
        f"The command line needs {missing.name}: pip install 'dagp[cli]'."
    ) from missing

from dagp.core.errors import FitError, StorageError
from dagp.core.version import __version__

COMMANDS = {
    "demo": "Separate the multimodal example into its processes.",
    "init": "Look at a table and write a config file for dagp fit.",
    "fit": "Separate a table into processes and save the model.",
    "predict": "Predict every row: the mixture, its interval, and each process.",
    "report": "Write a self-contained HTML page: figures, tables, settings.",
    "plot": "Plot the joint posterior, the assignments and the gate.",
    "info": "Describe a model or checkpoint file without loading the model.",
    "reproduce": "Compute the paper's tables and figures, next to the published numbers.",
    "launch": "Run a fit with several workers that share the rows.",
    "bench": "Measure speed and memory on this machine.",
}
"""Help texts of `dagp --help`; a command's module is imported only when the command is called."""

console = Console()
"""Standard output: results, which may be piped."""
messages = Console(stderr=True)
"""Standard error: progress, notes and errors."""


class CommandError(Exception):
    """Ends a command with a one-line message; `code` is the exit code."""

    def __init__(self, message: str, code: int = 1):
        super().__init__(message)
        self.code = code


class InputError(CommandError):
    """A mistake that the user can correct: in a file, a column, a cell or an option."""

    def __init__(self, message: str):
        super().__init__(message, 2)


class NotNumericError(InputError):
    """A cell or a column that does not hold numbers, or dates where those are expected."""

    def __init__(self, message: str, column: str):
        super().__init__(message)
        self.column = column


def print_message(text: str) -> None:
    """Print one line to stderr, never wrapped, so that it can be searched and copied."""
    # Column names come from untrusted files, and terminals act on control characters.
    text = "".join(c if c.isprintable() else "?" for c in text)
    messages.print(text, markup=False, highlight=False, soft_wrap=True)


def print_result(text: str) -> None:
    """Print one line to stdout, never wrapped and without markup."""
    console.print(text, markup=False, highlight=False, soft_wrap=True)


def check_output(path: Path, force: bool) -> None:
    """Raise InputError for an output path that cannot be written, before anything is computed."""
    if path.is_dir():
        raise InputError(f"Cannot write {path}: it is a folder, expected a file name.")
    if path.exists() and not force:
        raise InputError(f"{path} exists already; --force overwrites it.")
    if not path.parent.is_dir():
        raise InputError(f"Cannot write {path}: there is no folder {path.parent}.")
    if not os.access(path.parent, os.W_OK):
        raise InputError(f"Cannot write {path}: the folder {path.parent} is read-only.")


class _LazyGroup(TyperGroup):
    """Imports a command when it is called; turns expected errors into one line and an exit code."""

    def list_commands(self, ctx: Any) -> list[str]:
        return list(COMMANDS)

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        if args and (name := args[0]) in COMMANDS:
            single = typer.Typer(add_completion=False, pretty_exceptions_enable=False)
            single.command(name)(getattr(importlib.import_module(f"dagp.cli.{name}"), name))
            self.add_command(get_command(single), name)
        return super().resolve_command(ctx, args)

    def invoke(self, ctx: Any) -> Any:
        try:
            return super().invoke(ctx)
        except CommandError as error:
            self._exit(str(error), error.code)
        except StorageError as error:
            # Code 1 for a failing system (disk full), 2 for a file with unexpected content.
            self._exit(str(error), 1 if isinstance(error.__cause__, OSError) else 2)
        except FitError as error:
            self._exit(f"The fit failed: {error}", 1)
        except (MemoryError, RuntimeError) as error:
            # RuntimeError: by JAX when memory runs out; catching its own type would import JAX.
            if not isinstance(error, MemoryError) and "RESOURCE_EXHAUSTED" not in str(error):
                raise
            self._exit("Not enough memory; --batch-size or fewer --inducing points need less.", 1)
        except OSError as error:
            if isinstance(error, BrokenPipeError):
                raise  # the reading end of a pipe was closed; click exits quietly
            self._exit(f"{error.filename or 'The system'}: {error.strerror or error}.", 1)
        except KeyboardInterrupt:
            self._exit("Stopped.", 130)

    @staticmethod
    def _exit(message: str, code: int) -> None:
        print_message(message if code == 130 else f"Error: {' '.join(message.split())}")
        raise typer.Exit(code)


app = typer.Typer(name="dagp", cls=_LazyGroup, no_args_is_help=True, pretty_exceptions_enable=False)


def _print_version(requested: bool) -> None:
    if requested:
        console.print(f"dagp {__version__}")
        raise typer.Exit


@app.callback()
def _global_options(
    version: Annotated[
        bool,
        typer.Option(
            "--version", callback=_print_version, is_eager=True, help="Print the version and exit."
        ),
    ] = False,
) -> None:
    """Data association with Gaussian processes."""


def _placeholder() -> None:
    """Stands for a command in the list until the command is loaded."""


for _name, _help in COMMANDS.items():
    app.command(_name, help=_help)(_placeholder)
