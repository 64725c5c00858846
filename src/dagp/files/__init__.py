"""Model files and checkpoints: written atomically, checked when read, migrated from older formats.
Imports `core`, `model`, `inference`, `search`, `tables` and `predict`."""
