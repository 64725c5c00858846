"""Benchmarks of speed and memory: the measurements of `dagp bench`."""
