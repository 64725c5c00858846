"""Typer application: list of commands, shared options, consoles, and errors with exit codes."""

import contextlib
import importlib
import os
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any

try:
    import typer
    from typer.core import TyperGroup
    from typer.main import get_command
except ModuleNotFoundError as missing:  # pragma: no cover
    raise SystemExit(
        f"The command line needs {missing.name}: pip install 'dagp[cli]'."
    ) from missing

from dagp.cli.streams import Messages, Results, silence, stdout_is_closed
from dagp.core.errors import FitError, StorageError
from dagp.core.gc import gc_paused
from dagp.core.imports import deferred_imports
from dagp.core.text import one_line, shown
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

BROKEN_PIPE = 141
"""Exit code of a command whose reader has gone, as after `| head`; 128 and the signal's number."""

console = Results()
messages = Messages(stderr=True)


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
    messages.print(one_line(text), markup=False, highlight=False, soft_wrap=True)


def print_result(text: str) -> None:
    """Print one line to stdout, never wrapped and without markup."""
    console.print(one_line(text), markup=False, highlight=False, soft_wrap=True)


def check_stdout() -> None:
    """Raise InputError if results are to be printed and standard output is closed."""
    if stdout_is_closed():
        raise InputError("Standard output is closed, and the result is to be printed there.")


def check_output(path: Path, force: bool, *inputs: str | Path | None) -> None:
    """Raise InputError for an output path that cannot be written, or that is one of the inputs,
    before anything is computed."""
    try:
        with contextlib.suppress(FileNotFoundError):
            path.lstat()
    except (OSError, ValueError) as error:  # such as a name that is too long
        reason = getattr(error, "strerror", None) or error
        raise InputError(f"Cannot write {shown(path)}: {reason}.") from error
    if path.is_dir():
        raise InputError(f"Cannot write {path}: it is a folder, expected a file name.")
    for given in inputs:
        if given is not None and _is_same_file(path, given):
            raise InputError(f"{path} is read by this command; choose another name for the output.")
    if path.exists():
        if not force:
            raise InputError(f"{path} exists already; --force overwrites it.")
        if not path.is_file():
            return
    if not path.parent.is_dir():
        raise InputError(f"Cannot write {path}: there is no folder {path.parent}.")
    if not os.access(path.parent, os.W_OK):
        raise InputError(f"Cannot write {path}: the folder {path.parent} is read-only.")
    try:
        with tempfile.TemporaryFile(dir=path.parent):
            pass
    except OSError as error:
        raise InputError(f"Cannot write {shown(path)}: {error.strerror}.") from error


def _is_same_file(path: Path, other: str | Path) -> bool:
    with contextlib.suppress(OSError, ValueError):
        # Pipes and terminals are read and written.
        return path.is_file() and path.samefile(other)
    return False


class _LazyGroup(TyperGroup):
    """Imports a command when it is called; turns expected errors into one line and an exit code."""

    def list_commands(self, ctx: Any) -> list[str]:
        return list(COMMANDS)

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        if args and (name := args[0]) in COMMANDS:
            single = typer.Typer(add_completion=False, pretty_exceptions_enable=False)
            with gc_paused(), deferred_imports():
                module = importlib.import_module(f"dagp.cli.{name}")
            single.command(name)(getattr(module, name))
            self.add_command(get_command(single), name)
        return super().resolve_command(ctx, args)

    def make_context(self, *args: Any, **more: Any) -> Any:
        with _told():
            return super().make_context(*args, **more)

    def invoke(self, ctx: Any) -> Any:
        with _told():
            super().invoke(ctx)
            sys.stdout.flush()

    def main(self, *args: Any, standalone_mode: bool = True, **more: Any) -> Any:
        if not standalone_mode:
            return super().main(*args, standalone_mode=False, **more)
        code = super().main(*args, standalone_mode=False, **more)
        sys.exit(code)


@contextlib.contextmanager
def _told() -> Iterator[None]:
    """Turn expected errors into one line and an exit code."""
    try:
        yield
    except CommandError as error:
        _exit(str(error), error.code)
    except StorageError as error:
        # Code 1 for a failing system (disk full), 2 for a file with unexpected content.
        _exit(str(error), 1 if isinstance(error.__cause__, OSError) else 2)
    except FitError as error:
        _exit(f"The fit failed: {error}", 1)
    except (MemoryError, RuntimeError) as error:
        # RuntimeError: by JAX when memory runs out; catching its own type would import JAX.
        if not isinstance(error, MemoryError) and "RESOURCE_EXHAUSTED" not in str(error):
            raise
        _exit("Not enough memory; --batch-size or fewer --inducing points need less.", 1)
    except BrokenPipeError as error:
        silence(sys.stdout)
        raise typer.Exit(BROKEN_PIPE) from error
    except OSError as error:
        silence(sys.stdout)
        _exit(f"{error.filename or 'Standard output'}: {error.strerror or error}.", 1)
    except KeyboardInterrupt:
        _exit("Stopped.", 130)
    except Exception as error:
        _exit_for_usage(error)


def _exit_for_usage(error: Exception) -> None:
    """End the command for an error of the options, in one line; other errors are raised again."""
    # Known by what it has: Typer has had its own copy of click's classes since some version.
    context, words = getattr(error, "ctx", None), getattr(error, "format_message", None)
    if words is None:
        raise error
    if type(error).__name__ == "NoArgsIsHelpError":
        raise typer.Exit(2) from error  # the help has been printed
    command = getattr(context, "command_path", "dagp")
    _exit(f"{words().rstrip('.')}. For help: {command} --help", 2)


def _exit(message: str, code: int) -> None:
    print_message(message if code == 130 else f"Error: {message}")
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
