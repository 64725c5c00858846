"""The search for the association: starts and their race, proposals and their trials, the verdict.
Begin with `algorithm`. Imports `core`, `model` and `inference`."""
