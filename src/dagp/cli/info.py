"""`dagp info`: the header of a model or checkpoint file."""

import json
from pathlib import Path
from typing import Annotated, Any

from rich.table import Table
from typer import Argument, Option, echo

from dagp.cli.app import check_stdout, console
from dagp.cli.models import read_header
from dagp.core.text import shown


def info(
    model: Annotated[Path, Argument(help="Model or checkpoint file.")],
    as_json: Annotated[bool, Option("--json", help="Print JSON on stdout.")] = False,
) -> None:
    """Describe a model or checkpoint file without loading the model."""
    check_stdout()
    header = read_header(model)
    entries = {
        "file": str(model),
        "kind": header.kind,
        "format": header.version,
        "bytes": model.stat().st_size,
        "arrays": len(header.arrays),
        **header.about,
    }
    if as_json:
        echo(json.dumps(entries))
        return
    table = Table(show_header=False, box=None)
    for name, value in entries.items():
        for i, line in enumerate(_lines(value)):
            table.add_row("" if i else shown(name).replace("_", " "), line)
    console.print(table, markup=False, highlight=False)


def _lines(value: Any) -> list[str]:
    """A value as text, one line per list item."""
    if isinstance(value, list):
        return [line for item in value for line in _lines(item)] or ["-"]
    if isinstance(value, bool):
        return ["yes" if value else "no"]
    if isinstance(value, dict) and isinstance(value.get("share"), float) and "used" in value:
        unused = "" if value["used"] else ", unused"
        return [f"{shown(value.get('kind'))}, {value['share']:.1%} of the rows{unused}"]
    return [f"{value:.6g}" if isinstance(value, float) else shown(value)]
