"""Errors with a name of their own."""

__all__ = ["FitError"]


class FitError(RuntimeError):
    """A fit that could not be completed, with the reason of every start.

    >>> issubclass(FitError, RuntimeError)
    True
    """
