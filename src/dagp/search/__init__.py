"""The search for the association: starts, successive halving, split–merge moves, diagnostics, and
the fit as a whole. Imports `core`, `model` and `inference`."""
