"""Config files of `dagp fit`: TOML with the tables data, columns, model and search."""

import tomllib
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from dagp.cli.app import InputError
from dagp.cli.priors import NOISES
from dagp.cli.roles import check_role
from dagp.cli.spelling import listed, suggestion
from dagp.core.text import quoted, shown


class Key(NamedTuple):
    """Condition on a value of a config file, with its wording for errors."""

    holds: Callable[[Any], bool]
    expected: str
    """Completes the sentence "<key> must be ..."."""


def _is_whole(value: Any, least: int = 1) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= least


def _is_tables(value: Any) -> bool:
    return isinstance(value, list) and value != [] and all(isinstance(v, dict) for v in value)


def _is_texts(value: Any) -> bool:
    return isinstance(value, list) and all(isinstance(v, str) for v in value)


def _one_of(*choices: str) -> Key:
    return Key(lambda v: v in choices, " or ".join(map(repr, choices)))


_TEXT = Key(lambda v: isinstance(v, str) and v != "", "the name of a column")
_YES_NO = Key(lambda v: isinstance(v, bool), "true or false")
_COUNT = Key(_is_whole, "a whole number of at least 1")
_NUMBER = Key(
    lambda v: isinstance(v, int | float) and not isinstance(v, bool) and v >= 0,
    "a number that is not negative",
)
_ANY = Key(lambda _: True, "a value")

TABLES: dict[str, dict[str, Key]] = {
    "data": {
        "target": _TEXT,
        "features": Key(_is_texts, "a list of column names"),
        "weights": _TEXT,
        "labels": _TEXT,
        "missing": _one_of("raise", "drop"),
        "delimiter": Key(lambda v: isinstance(v, str) and len(v) == 1, "one character"),
        "decimal": _one_of(".", ","),
    },
    "model": {
        "processes": Key(
            lambda v: v == "auto" or _is_whole(v) or _is_tables(v),
            "a whole number of at least 1, 'auto' or a list of tables [[model.processes]]",
        ),
        "noise_process": _YES_NO,
        "kernel": _ANY,
        "noise": _one_of(*NOISES),
        "varying_noise": _YES_NO,
        "depth": _COUNT,
        "gate": _ANY,
        "inducing": Key(
            lambda v: v in ("auto", "all") or _is_whole(v) or isinstance(v, list),
            "a whole number of at least 1, 'auto', 'all' or a list of positions",
        ),
        "posterior": _one_of("best", "averaged"),
        "inference": Key(
            lambda v: v in ("collapsed", "concrete") or isinstance(v, dict),
            "'collapsed', 'concrete' or a table of the settings of the latter",
        ),
        "standardize": _YES_NO,
        "dtype": _one_of("float64", "float32"),
    },
    "search": {
        "starts": _COUNT,
        "max_iter": _COUNT,
        "tol": _NUMBER,
        "seed": Key(lambda v: _is_whole(v, 0), "a whole number that is not negative"),
        "batch_size": _COUNT,
    },
}
"""Keys of each table; the table columns has the names of columns as keys, and roles as values."""


class Settings(dict[str, Any]):
    """Settings of a fit by their keys, which are unique over the tables."""

    def __init__(self, source: str = "the options"):
        super().__init__()
        self.source = source
        """File that they come from."""
        self.from_options: set[str] = set()
        """Keys that options have set."""

    def override(self, **options: Any) -> "Settings":
        """Replace what options state: those that are not None."""
        for key, value in options.items():
            if value is not None:
                self[key] = value
                self.from_options.add(key)
        return self

    def add_roles(self, roles: Mapping[str, str]) -> None:
        """Roles of columns that options state."""
        if roles:
            self["columns"] = {**self.get("columns", {}), **roles}

    def where(self, key: str) -> str:
        """The place of a setting, for errors."""
        if key in self.from_options or key not in self:
            return f"--{key.replace('_', '-')}"
        table = next(table for table, keys in TABLES.items() if key in keys)
        return f"{self.source}, [{table}] {key}"


def read_config(path: Path) -> Settings:
    """The settings in a config file; raises InputError for what is not understood."""
    found = Settings(str(path))
    for name, content in _parse(path).items():
        if name == "columns":
            found["columns"] = _roles(content, path)
        elif name in TABLES:
            found.update(_checked(content, name, path))
        else:
            known = [*TABLES, "columns"]
            near = suggestion(name, known)
            what = "table" if isinstance(content, dict) else "key outside of tables,"
            raise InputError(
                f"{path}: unknown {what} {quoted(name)}.{near} Tables: {listed(known)}."
            )
    return found


_LONGEST = 1 << 20
"""Bytes of a config file."""


def _parse(path: Path) -> dict[str, Any]:
    try:
        with path.open("rb") as file:
            content = file.read(_LONGEST + 1)
        if len(content) > _LONGEST:
            raise InputError(f"{path} is longer than {_LONGEST} bytes: it is not a config file.")
        return tomllib.loads(content.decode("utf-8-sig"))
    except FileNotFoundError as error:
        raise InputError(f"There is no file {shown(path)}; dagp init writes one.") from error
    except IsADirectoryError as error:
        raise InputError(f"{path} is a folder, not a config file.") from error
    except OSError as error:
        raise InputError(f"Cannot read {shown(path)}: {error.strerror}.") from error
    except RecursionError as error:
        raise InputError(f"{path} is not valid TOML: its values are nested too deeply.") from error
    except ValueError as error:  # also of numbers with thousands of digits
        raise InputError(f"{path} is not valid TOML: {error}.") from error


def _checked(content: Any, table: str, path: Path) -> dict[str, Any]:
    """The values of a table, each checked."""
    if not isinstance(content, Mapping):
        raise InputError(f"{path}: {table} must be a table [{table}], got {quoted(content)}.")
    keys = TABLES[table]
    for key, value in content.items():
        if key not in keys:
            near = _other_table(key) or suggestion(key, keys)
            raise InputError(
                f"{path}, [{table}]: unknown key {quoted(key)}.{near} Keys: {listed(keys)}."
            )
        if not keys[key].holds(value):
            expected = keys[key].expected
            raise InputError(f"{path}, [{table}]: {key} must be {expected}, got {quoted(value)}.")
    return dict(content)


def _other_table(key: str) -> str:
    """A hint where the key exists in another table."""
    owners = [table for table, keys in TABLES.items() if key in keys]
    return f" It belongs to [{owners[0]}]." if owners else ""


def _roles(content: Any, path: Path) -> dict[str, str]:
    if not isinstance(content, Mapping):
        raise InputError(f"{path}: columns must be a table [columns], got {quoted(content)}.")
    for name, role in content.items():
        if not isinstance(role, str):
            raise InputError(
                f"{path}, [columns]: {quoted(name)} must have a role, got {quoted(role)}."
            )
        check_role(role, f"{path}, [columns] {quoted(name)}")
    return dict(content)
