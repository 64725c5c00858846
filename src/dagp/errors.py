"""Exceptions and warnings that this library raises."""

from dagp.core.errors import FitError, SearchWarning, StorageError

__all__ = ["FitError", "SearchWarning", "StorageError"]
