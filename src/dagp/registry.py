"""Classes that may stand in files, by name: ours, and those that users have made known."""

import dataclasses
import functools
import importlib

import optax

__all__ = ["class_of", "fields_of", "name_of", "register"]

_MODULES = (
    "clutter",
    "concrete",
    "data",
    "deep",
    "fitting",
    "gate",
    "kernels",
    "means",
    "model",
    "parameters",
    "posterior",
    "processes",
    "sparse",
    "stack",
    "stochastic",
    "train",
)
_theirs: dict[str, type] = {}
"""Classes that users have made known."""


def register(cls: type) -> type:
    """Let a class of your own be kept in model files: an Equinox module, dataclass or NamedTuple.

    It must be registered again, under the same name, before such a file is loaded. Works as a
    decorator.

    >>> import equinox as eqx
    >>> class Mine(eqx.Module):
    ...     value: float
    >>> register(Mine).__name__
    'Mine'
    """
    if fields_of(cls) is None:
        raise TypeError(f"{cls.__name__} is neither a dataclass nor a NamedTuple.")
    _theirs[f"{cls.__module__}.{cls.__qualname__}"] = cls
    return cls


@functools.cache
def _ours() -> dict[str, type]:
    """Classes of this library that may stand in a file, by name; and the optimiser's state."""
    found: dict[str, type] = {"optax.ScaleByAdamState": optax.ScaleByAdamState}
    for module in _MODULES:
        for cls in vars(importlib.import_module(f"dagp.{module}")).values():
            own = isinstance(cls, type) and cls.__module__ == f"dagp.{module}"
            if own and fields_of(cls) is not None:
                found[f"{module}.{cls.__qualname__}"] = cls
    return found


@functools.cache
def _our_names() -> dict[type, str]:
    return {cls: name for name, cls in _ours().items()}


def name_of(cls: type) -> str | None:
    """How a class is called in a file; None where it may not stand there."""
    theirs = f"{cls.__module__}.{cls.__qualname__}"
    return _our_names().get(cls) or (theirs if _theirs.get(theirs) is cls else None)


def fields_of(cls: type) -> tuple[str, ...] | None:
    """Names of the fields of a dataclass or NamedTuple; None for other classes."""
    if dataclasses.is_dataclass(cls):
        return tuple(field.name for field in dataclasses.fields(cls))
    if issubclass(cls, tuple):
        return getattr(cls, "_fields", None)
    return None


def class_of(name: str) -> type | None:
    """The class of this name; None where it may not stand in a file."""
    return _ours().get(name) or _theirs.get(name)
