"""The command line application, the terminal it speaks to, and how it says that it cannot."""

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

from dagp.errors import FitError, StorageError
from dagp.version import __version__

__all__ = [
    "COMMANDS",
    "CommandError",
    "Decimal",
    "Delimiter",
    "Force",
    "InputError",
    "ModelFile",
    "Shown",
    "Target",
    "app",
    "check_output",
    "console",
    "messages",
    "say",
]

COMMANDS = {
    "demo": "Separate the multimodal example into its processes.",
    "fit": "Separate a table into processes and keep the model.",
    "predict": "Predict every row: the mixture, its interval, and each process.",
    "report": "Write one self-contained page: pictures, tables, settings.",
    "plot": "Draw the joint posterior, the assignments and the gate.",
    "info": "Describe a file without loading the model.",
    "reproduce": "Compute the paper's tables and figures, beside the published numbers.",
    "launch": "Fit in several processes that share the rows.",
    "bench": "Measure how fast it is on this machine.",
}
"""What `dagp --help` lists: the modules are imported only when their command is called."""

console = Console()
"""Results: what somebody might want to pipe on."""
messages = Console(stderr=True)
"""Progress, notes and errors."""


_NO_MEMORY = "Not enough memory; --batch-size or fewer --inducing points need less."


class CommandError(Exception):
    """An end with a reason; `code` is the exit code."""

    code = 1

    def __init__(self, message: str, code: int | None = None):
        super().__init__(message)
        self.code = type(self).code if code is None else code


class InputError(CommandError):
    """Something that the user can put right: a file, a column, a cell, an option."""

    code = 2


def say(text: str) -> None:
    """One line on stderr, never wrapped, so that it can be searched and copied."""
    # Names come from files of others, and a terminal obeys what is not printable.
    text = "".join(c if c.isprintable() else "?" for c in text)
    messages.print(text, markup=False, highlight=False, soft_wrap=True)


def check_output(path: Path, force: bool) -> None:
    """Refuse a path that cannot be written, before anything is computed for it."""
    if path.is_dir():
        raise InputError(f"{path} is a folder; name a file in it.")
    if path.exists() and not force:
        raise InputError(f"{path} exists already; --force writes over it.")
    if not path.parent.is_dir():
        raise InputError(f"Cannot write {path}: there is no folder {path.parent}.")
    if not os.access(path.parent, os.W_OK):
        raise InputError(f"Cannot write {path}: the folder {path.parent} is read-only.")


def _fetched(name: str) -> Any:
    """The command itself, from the module of its name."""
    alone = typer.Typer(add_completion=False, pretty_exceptions_enable=False)
    alone.command(name)(getattr(importlib.import_module(f"dagp.cli.{name}"), name))
    return get_command(alone)


Force = Annotated[bool, typer.Option("--force", help="Write over an existing file.")]
ModelFile = Annotated[Path, typer.Argument(help="Model file.")]
Delimiter = Annotated[str | None, typer.Option(help="Between cells; found out if left out.")]
Decimal = Annotated[str | None, typer.Option(help=". or , in numbers; found out if left out.")]
Shown = Annotated[
    str | None, typer.Option(help="Table to show; what the model was fitted to if left out.")
]
Target = Annotated[str | None, typer.Option(help="Column with outputs; as in the fit if left out.")]


class _Careful(TyperGroup):
    """Fetches commands when called; ends with one line where a traceback would help nobody."""

    def list_commands(self, ctx: Any) -> list[str]:
        return list(COMMANDS)

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        if args and args[0] in COMMANDS:
            self.add_command(_fetched(args[0]), args[0])
        return super().resolve_command(ctx, args)

    def invoke(self, ctx: Any) -> Any:
        try:
            return super().invoke(ctx)
        except CommandError as error:
            self._end(str(error), error.code)
        except StorageError as error:
            # Caused by the system: no space left. Otherwise a file that is not what it should be.
            self._end(str(error), 1 if isinstance(error.__cause__, OSError) else 2)
        except FitError as error:
            self._end(f"The fit failed: {error}", 1)
        except MemoryError:
            self._end(_NO_MEMORY, 1)
        except RuntimeError as error:
            # JAX's word for no memory; its error type would cost its import.
            if "RESOURCE_EXHAUSTED" not in str(error):
                raise
            self._end(_NO_MEMORY, 1)
        except OSError as error:
            if isinstance(error, BrokenPipeError):
                raise  # whoever reads our output has enough of it
            self._end(f"{error.filename or 'The system'}: {error.strerror or error}.", 1)
        except KeyboardInterrupt:
            self._end("Stopped.", 130)

    @staticmethod
    def _end(message: str, code: int) -> None:
        say(message if code == 130 else f"Error: {' '.join(message.split())}")
        raise typer.Exit(code)


app = typer.Typer(
    name="dagp",
    help="Data association with Gaussian processes.",
    cls=_Careful,
    no_args_is_help=True,
    add_completion=True,
    pretty_exceptions_enable=False,
)


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


def _listed() -> None:
    """Takes the place of a command in the list until somebody calls it."""


for _name, _help in COMMANDS.items():
    app.command(_name, help=_help)(_listed)
