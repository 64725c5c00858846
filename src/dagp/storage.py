"""Model files: read the description of a file, and register classes of your own for storage."""

from dagp.core.tags import register
from dagp.files.format import describe

__all__ = ["describe", "register"]
