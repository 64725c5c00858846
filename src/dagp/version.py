"""The version of this library."""

__all__ = ["__version__"]

__version__ = "0.1.0"
