"""Options of `dagp fit`, in the groups in which the help shows them."""

from enum import StrEnum
from functools import partial
from pathlib import Path
from typing import Annotated, TypeAlias

from typer import Option

from dagp.cli.priors import KERNELS
from dagp.fitting import BATCH_ROWS, MANY_ROWS

_of_table = partial(Option, rich_help_panel="Table")
_of_model = partial(Option, rich_help_panel="Model")
_of_search = partial(Option, rich_help_panel="Search")


class MissingCells(StrEnum):
    """Treatment of rows with empty cells."""

    refuse = "raise"
    drop = "drop"


class SimpleGate(StrEnum):
    """Gates that need no settings."""

    gp = "gp"
    constant = "constant"


class NoiseKind(StrEnum):
    """Shapes of the noise."""

    gaussian = "gaussian"
    student = "student"
    laplace = "laplace"


Target: TypeAlias = Annotated[
    str | None, _of_table("--target", "-t", help="Output column; needed here or in --config.")
]
Features: TypeAlias = Annotated[
    str | None,
    _of_table(
        help="Input columns, separated by commas; all others if omitted. "
        "Quote a name that contains a comma: '\"a,b\",c'."
    ),
]
Role: TypeAlias = Annotated[
    list[str] | None,
    _of_table(help="NAME=ROLE: number, category, time, daily, ignore, …; can be repeated."),
]
Missing: TypeAlias = Annotated[
    MissingCells | None,
    _of_table(help="Rows with empty cells: stop with an error (default), or drop them."),
]
Weights: TypeAlias = Annotated[str | None, _of_table(help="Column with the weights of rows.")]
Labels: TypeAlias = Annotated[
    str | None,
    _of_table(help="Column with known process numbers, from 0; empty or -1 where unknown."),
]
Delimiter: TypeAlias = Annotated[
    str | None, _of_table(help="Character between cells, or tab; detected if omitted.")
]
Decimal: TypeAlias = Annotated[
    str | None, _of_table(help="Decimal mark, . or ,; detected if omitted.")
]
Processes: TypeAlias = Annotated[
    str | None, _of_model(help="Number of processes (default 2), or auto to determine it.")
]
NoiseProcess: TypeAlias = Annotated[
    bool | None,
    _of_model("--noise-process/--no-noise-process", help="Add a process for outliers."),
]
Kernel: TypeAlias = Annotated[
    str | None,
    _of_model(
        help=f"Kernel of each process: {', '.join(KERNELS)}.",
        autocompletion=lambda: list(KERNELS),
    ),
]
Noise: TypeAlias = Annotated[
    NoiseKind | None,
    _of_model(help="Shape of the noise; student and laplace have heavy tails (default gaussian)."),
]
VaryingNoise: TypeAlias = Annotated[
    bool | None,
    _of_model("--varying-noise/--constant-noise", help="Noise that depends on the inputs."),
]
Depth: TypeAlias = Annotated[
    int | None, _of_model(min=1, help="Number of GP layers of each process (default 1).")
]
Gate: TypeAlias = Annotated[
    SimpleGate | None, _of_model(help="Weights that depend on the inputs (gp, default) or not.")
]
Inducing: TypeAlias = Annotated[int | None, _of_model(min=1, help="Number of inducing points.")]
Starts: TypeAlias = Annotated[
    int | None, _of_search(min=1, help="Number of initialisations compared (default 8).")
]
MaxIter: TypeAlias = Annotated[
    int | None, _of_search(min=1, help="Most steps of the final training (default 1000).")
]
Tol: TypeAlias = Annotated[
    float | None, _of_search(min=0, help="Gain per row below which training ends (default 1e-4).")
]
Seed: TypeAlias = Annotated[
    int | None, _of_search(min=0, help="Random seed (default 0); the same seed, the same model.")
]
BatchSize: TypeAlias = Annotated[
    int | None,
    _of_search(
        min=1, help=f"Rows per minibatch; if omitted, all rows, or {BATCH_ROWS} above {MANY_ROWS}."
    ),
]
Config: TypeAlias = Annotated[
    Path | None, Option("--config", "-c", help="TOML file with settings, as dagp init writes it.")
]
CheckpointEvery: TypeAlias = Annotated[float, Option(min=0, help="Seconds between checkpoints.")]
Resume: TypeAlias = Annotated[
    bool, Option("--resume", help="Continue an interrupted fit from its checkpoint.")
]
AsJson: TypeAlias = Annotated[bool, Option("--json", help="Print results as JSON on stdout.")]
Out: TypeAlias = Annotated[Path, Option("--out", "-o", help="Model file to write.")]
