"""Arguments and options that several commands share."""

from pathlib import Path
from typing import Annotated

from typer import Argument, Option

Data = Annotated[str, Argument(help="CSV or Parquet file; - is standard input.")]
Force = Annotated[bool, Option("--force", help="Overwrite an existing file.")]
ModelFile = Annotated[Path, Argument(help="Model file.")]
Delimiter = Annotated[
    str | None, Option(help="Character between cells, or tab; detected if omitted.")
]
Decimal = Annotated[str | None, Option(help="Decimal mark, . or ,; detected if omitted.")]
DataTable = Annotated[
    str | None, Option(help="CSV or Parquet file to show; the training data if omitted.")
]
Target = Annotated[str | None, Option(help="Output column; as in the fit if omitted.")]
