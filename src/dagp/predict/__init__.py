"""Predictions of a trained model: the posterior, its predictive mixture, single processes, widened
functions. Imports `core`, `model`, `inference` and `tables`."""
