"""Self-contained HTML report of a fitted model, readable offline.

The page makes no network requests. The same model and data give the same bytes.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

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
) -> str:
    """The HTML report as a string.

    Parameters
    ----------
    model : fitted DAGP
    X, y : table of shape (N, D), array of shape (N,) or (N, P)
        Data to show.
    title : str, default="Which process produced which point"
        Heading of the page.
    settings : mapping of str, default=None
        Further entries to list, such as the name of the data file or the date.

    Examples
    --------
    >>> from dagp import DAGP, datasets
    >>> data = datasets.noise_separation(outliers=0.0, n=60, random_state=0)
    >>> model = DAGP(n_processes=1, n_init=1, tol=1e-2).fit(data.X, data.y)
    >>> html(model, data.X, data.y, title="Noise").splitlines()[7]
    '<title>Noise</title>'
    """
    return render(read(model, X, y), title, settings)


def write(
    model: "DAGP",
    X: Table,
    y: Table,
    path: str | Path,
    *,
    title: str = _TITLE,
    settings: Mapping[str, Any] | None = None,
) -> Path:
    """Write the HTML report to a file, replacing an older one only when it is complete.

    Parameters
    ----------
    model, X, y, title, settings
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
    page = html(model, X, y, title=title, settings=settings).encode("utf-8", "replace")
    return replace(path, lambda file: file.write(page))
