"""Exceptions and warnings of this library."""


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
