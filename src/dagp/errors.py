"""Errors and warnings with a name of their own."""

__all__ = ["FitError", "SearchWarning", "StorageError"]


class FitError(RuntimeError):
    """A fit that could not be completed, with the reason of every start.

    >>> issubclass(FitError, RuntimeError)
    True
    """


class SearchWarning(UserWarning):
    """A fit that may not be the only answer: see `DAGP.alternatives_`.

    >>> issubclass(SearchWarning, UserWarning)
    True
    """


class StorageError(ValueError):
    """A file that cannot be written, or that is not what it should be.

    >>> issubclass(StorageError, ValueError)
    True
    """
