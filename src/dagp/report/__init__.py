"""Self-contained HTML report of a fitted model, readable offline.

The page makes no network requests. The same model and data give the same bytes.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from dagp.core.typing import Table
from dagp.files.atomic import replace
from dagp.report.case import read
from dagp.report.page import render

if TYPE_CHECKING:
    from dagp.estimator import DAGP

__all__ = ["html", "write"]

_TITLE = "Which process produced which point"


def html(
    model: "DAGP",
    X: Table,
    y: Table,
    *,
    title: str = _TITLE,
    settings: Mapping[str, Any] | None = None,
    outputs: Sequence[str] | None = None,
    rows: Sequence[Any] | np.ndarray | None = None,
) -> str:
    """The HTML report as a string.

    Parameters
    ----------
    model : fitted DAGP
    X, y : table of shape (N, D), array of shape (N,) or (N, P)
        Data to show. Rows with missing values are left out if the model has ``missing="drop"``; a
        row that lacks some of several outputs is judged by the others.
    title : str, default="Which process produced which point"
        Heading of the page.
    settings : mapping of str, default=None
        Further entries to list, such as the name of the data file or the date.
    outputs : sequence of str of length P, default=None
        Names of the outputs; None takes those of `y`.
    rows : sequence of length N, default=None
        Names of the rows, such as the lines of a file; None takes the index of a data frame, those
        of the fit if these are its rows, or counts from 0.

    Examples
    --------
    >>> from dagp import DAGP, datasets
    >>> data = datasets.noise_separation(outliers=0.0, n=60, random_state=0)
    >>> model = DAGP(n_processes=1, n_init=1, tol=1e-2).fit(data.X, data.y)
    >>> html(model, data.X, data.y, title="Noise").splitlines()[7]
    '<title>Noise</title>'
    """
    return render(read(model, X, y, outputs, rows), title, settings)


def write(
    model: "DAGP",
    X: Table,
    y: Table,
    path: str | Path,
    *,
    title: str = _TITLE,
    settings: Mapping[str, Any] | None = None,
    outputs: Sequence[str] | None = None,
    rows: Sequence[Any] | np.ndarray | None = None,
) -> Path:
    """Write the HTML report to a file, replacing an older one only when it is complete.

    Parameters
    ----------
    model, X, y, title, settings, outputs, rows
        As for `html`.
    path : str or Path
        File to write.

    Examples
    --------
    >>> import tempfile
    >>> from dagp import DAGP, datasets
    >>> data = datasets.noise_separation(outliers=0.0, n=60, random_state=0)
    >>> model = DAGP(n_processes=1, n_init=1, tol=1e-2).fit(data.X, data.y)
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     write(model, data.X, data.y, Path(folder) / "report.html").name
    'report.html'
    """
    named = {"outputs": outputs, "rows": rows}
    page = html(model, X, y, title=title, settings=settings, **named)
    return replace(path, lambda file: file.write(page.encode("utf-8", "replace")))
