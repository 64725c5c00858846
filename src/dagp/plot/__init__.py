"""Matplotlib plots of data, processes, assignments, gate and search.

Every function draws on the axes ``ax`` (None: the current axes) and returns them. ``column`` and
``output`` are the input on the x axis and the output on the y axis; curves hold the other inputs at
the middle of their range and extend by ``margin`` of the range beyond the training data. Where a
model has categories or times, columns are those of ``model.columns_.names``. A process has the same
colour in every plot, from a colour-blind safe palette. Rows with missing cells are left out where
the model leaves them out (``missing="drop"``).

>>> import matplotlib; matplotlib.use("agg")
>>> from dagp import datasets
>>> sample = datasets.multimodal(n=20, random_state=0)
>>> data(sample.X, sample.y, sample.process).get_xlabel()
'x'
"""

# First, because it says what to do where matplotlib is missing.
from dagp.plot.processes import (  # isort: skip
    assignment,
    bound,
    colour,
    data,
    gate,
    overview,
    posterior,
    restarts,
)
from dagp.plot.paths import fan, hazard

__all__ = [
    "assignment",
    "bound",
    "colour",
    "data",
    "fan",
    "gate",
    "hazard",
    "overview",
    "posterior",
    "restarts",
]
