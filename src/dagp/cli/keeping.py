"""Columns of the input that `dagp predict --keep` copies to the output."""

from collections.abc import Sequence
from typing import Any

from dagp.cli.app import print_message
from dagp.cli.cells import Kind
from dagp.cli.spelling import split_names
from dagp.cli.tables import Table, require_columns
from dagp.cli.writing import Field
from dagp.core.text import quoted

ALL = "all"


def kept_columns(table: Table, options: Sequence[str]) -> list[str]:
    """The columns that the values of --keep name, each once."""
    names: list[str] = []
    for option in options:
        if option == ALL and ALL not in table.columns:
            names += table.columns
        elif option in table.columns:
            names.append(option)
        else:
            names += split_names(option)
    return require_columns(table, dict.fromkeys(names))


def kept_fields(table: Table, names: Sequence[str], predicted: Sequence[str]) -> list[Field]:
    """Output columns of copies; one that is called like a prediction gets another name."""
    taken, fields = {"row", *predicted}, []
    for name in names:
        written = name
        while written in taken:
            written = f"input_{written}"
        if written != name:
            print_message(
                f"The column {quoted(name)} of {table.name} is written as {quoted(written)}."
            )
        taken.add(written)
        fields.append(Field(written, _arrow_type(table, name)))
    return fields


def _arrow_type(table: Table, name: str) -> Any:
    """The type of a copied column in a Parquet file."""
    found = getattr(table, "arrow_type", None)
    if found is not None:
        return found(name)
    return "double" if table.kind(name) is Kind.number else "string"
