"""Exceptions and warnings of this library."""

import inspect
import warnings
from pathlib import Path

_PACKAGE = str(Path(__file__).parents[1])


def warn(message: str, category: type[Warning] = UserWarning) -> None:
    """Warn at the line of the user's program that has called the library."""
    frame, level = inspect.currentframe(), 1
    while frame is not None and frame.f_code.co_filename.startswith(_PACKAGE):
        frame, level = frame.f_back, level + 1
    warnings.warn(message, category, stacklevel=level)


class FitError(RuntimeError):
    """No start of the fit gave a usable model; the message lists the reason for each start.

    >>> issubclass(FitError, RuntimeError)
    True
    """


class SearchWarning(UserWarning):
    """The fit may not be the only good solution: see `DAGP.alternatives_`.

    >>> issubclass(SearchWarning, UserWarning)
    True
    """


class StorageError(ValueError):
    """A file cannot be written, is damaged, or is not a model file.

    >>> issubclass(StorageError, ValueError)
    True
    """
