"""Errors and warnings with a name of their own."""

__all__ = ["FitError", "SearchWarning"]


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
