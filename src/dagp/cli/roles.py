"""Roles of columns on the command line: numbers, categories and times, and advice about text."""

import shlex
from collections.abc import Sequence
from typing import Any

from dagp.cli.app import InputError
from dagp.cli.cells import Kind, Part, are_unclear_dates
from dagp.cli.spelling import listed, suggestion
from dagp.cli.tables import Table
from dagp.core.text import quoted, shown
from dagp.tables.columns import LEAST_ROWS, MOST_LEVELS, ROLES, parse_role
from dagp.tables.kinds import Category
from dagp.tables.times import Time


def parse_roles(options: Sequence[str]) -> dict[str, str]:
    """The values of --role, each NAME=ROLE."""
    found = {}
    for option in options:
        name, separator, role = option.rpartition("=")
        if not separator or not name:
            raise InputError(
                f"--role must be NAME=ROLE, such as site=category, got {quoted(option)}."
            )
        found[name] = role
        check_role(role, f"--role {shown(option)}")
    return found


def check_role(role: str, where: str) -> None:
    """Raise InputError for an unknown role."""
    if parse_role(role) is None:
        wrong = next((part for part in role.split("+") if part not in ROLES), role)
        near = suggestion(wrong, ROLES)
        raise InputError(
            f"{where}: there is no role {quoted(wrong)}.{near} Roles: {listed(ROLES)}."
        )


def kind_of_role(table: Table, name: str, role: str | None) -> Kind:
    """How the cells of a column are read, by its role, or by what they look like without one."""
    if role is None:
        return table.kind(name)
    return {"number": Kind.number, "category": Kind.text}.get(role, Kind.date)


def role_of_kind(kind: Kind) -> str:
    """The role of a column without a stated one, by what its cells look like."""
    return {Kind.text: "category", Kind.date: "time"}.get(kind, "number")


def kind_of_column(column: Any) -> Kind:
    """How the cells of a column are read for a model that was fitted to it."""
    if isinstance(column, Time):
        return Kind.date
    if isinstance(column, Category) and any(isinstance(level, str) for level in column.levels):
        return Kind.text
    return Kind.number


def is_category(levels: int, rows: int) -> bool:
    """Whether text with so many different values in so many rows is taken as a category."""
    return levels <= MOST_LEVELS and levels * LEAST_ROWS <= rows


def check_categories(table: Table, part: Part, names: Sequence[str]) -> None:
    """Raise InputError with advice for a column of text that has too many different values."""
    for name in names:
        known = [cell for cell in part.columns[name] if cell is not None]
        levels = set(known)
        values = len(levels)
        if are_unclear_dates(levels):
            raise InputError(
                f"{table.name}, column {quoted(name)} holds dates such as {quoted(known[0])}, in "
                "which day and month can be mistaken; write them as 2024-01-31. "
                f"{role_advice(name)}."
            )
        if is_category(values, len(known)):
            continue
        example = quoted(known[0]) if known else "nothing"
        found = f"{values} different values in {len(known)} rows, such as {example}"
        raise InputError(
            f"{table.name}, column {quoted(name)} holds text ({found}); {role_advice(name)}."
        )


def role_advice(name: str) -> str:
    """How a column that holds text can be used or left out."""
    name = name if name.isprintable() and len(name) <= 60 else "NAME"
    ignore, category = (shlex.quote(f"{name}={role}") for role in ("ignore", "category"))
    return f"--features or --role {ignore} leaves it out, --role {category} takes it as a category"
