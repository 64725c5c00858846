"""Experiments of the paper: data, models and scores behind every table and figure."""
