"""Arguments and options that several commands share."""

from pathlib import Path
from typing import Annotated

import typer

Data = Annotated[str, typer.Argument(help="CSV or Parquet file; - is standard input.")]
Force = Annotated[bool, typer.Option("--force", help="Overwrite an existing file.")]
ModelFile = Annotated[Path, typer.Argument(help="Model file.")]
Delimiter = Annotated[
    str | None, typer.Option(help="Character between cells, or tab; detected if omitted.")
]
Decimal = Annotated[str | None, typer.Option(help="Decimal mark, . or ,; detected if omitted.")]
DataTable = Annotated[
    str | None, typer.Option(help="CSV or Parquet file to show; the training data if omitted.")
]
Target = Annotated[str | None, typer.Option(help="Output column; as in the fit if omitted.")]
