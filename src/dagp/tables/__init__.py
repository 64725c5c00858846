"""Input tables and settings, read and checked. Imports `core`, `model` and `inference`."""
