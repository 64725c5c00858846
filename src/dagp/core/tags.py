"""Tags: the stable names under which classes stand in model files.

A file names the class of every object it holds. It does so by a tag that the class declares, so
that a module can move and a class can be renamed without orphaning the files that users have.
"""

import dataclasses
from collections.abc import Callable
from typing import TypeVar

from dagp.core.text import quoted

Class = TypeVar("Class", bound=type)

_classes: dict[str, type] = {}
_tags: dict[type, str] = {}


def storable(tag: str) -> Callable[[Class], Class]:
    """Declare the tag of a class of this library, as a decorator.

    A tag has the form ``kind/Name`` and never changes. The slash keeps it apart from the names
    of users' classes. A field that is renamed needs a migration (`dagp.files.migrations`).
    """

    def declare(cls: Class) -> Class:
        return _declare(cls, tag)

    return declare


def register(cls: Class, tag: str | None = None) -> Class:
    """Let a class of your own be stored in model files.

    It must be an Equinox module, a dataclass or a NamedTuple, and it must be registered again,
    under the same tag, before such a file is loaded. Returns the class, as a decorator does.

    Parameters
    ----------
    cls : type
        The class.
    tag : str, default=None
        How the class is called in files; its module and qualified name if None.

    Examples
    --------
    >>> import equinox as eqx
    >>> class Mine(eqx.Module):
    ...     value: float
    >>> register(Mine, "Mine").__name__
    'Mine'
    """
    if tag is not None and "/" in tag:
        raise ValueError(f"tag must not contain a slash, got {quoted(tag)}.")
    return _declare(cls, tag or f"{cls.__module__}.{cls.__qualname__}")


def _declare(cls: Class, tag: str) -> Class:
    if fields_of(cls) is None:
        raise TypeError(f"{cls.__name__} is neither a dataclass nor a NamedTuple.")
    # The same class may be defined again: in a notebook, or when a module is reloaded.
    _classes[tag] = cls
    _tags[cls] = tag
    return cls


def tag_of(cls: type) -> str | None:
    """The tag of a class; None if it may not be stored."""
    tag = _tags.get(cls)
    return tag if tag is not None and _classes[tag] is cls else None


def class_of(tag: str) -> type | None:
    """The class that declared a tag; None if there is none."""
    return _classes.get(tag)


def fields_of(cls: type) -> tuple[str, ...] | None:
    """Names of the fields of a dataclass or NamedTuple; None for other classes."""
    if dataclasses.is_dataclass(cls):
        return tuple(field.name for field in dataclasses.fields(cls))
    if issubclass(cls, tuple):
        return getattr(cls, "_fields", None)
    return None
