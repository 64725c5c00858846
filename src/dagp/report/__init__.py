"""One self-contained page about a fitted model, to be opened offline.

The page brings its own small script that draws on canvases; it asks the network for nothing.
The same model and data give the same bytes.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

from dagp.report.case import read
from dagp.report.page import render
from dagp.storage import replace
from dagp.typing import Table

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
    """The page as text.

    Parameters
    ----------
    model : a fitted `DAGP`
    X : (N, D) inputs, as for `DAGP.predict`
    y : (N,) or (N, P) outputs
    title : heading of the page
    settings : what else to put on record, such as the name of the data file or the date

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
    """Write the page to a file; an older one stays until the new one is complete.

    >>> import tempfile
    >>> from dagp import DAGP, datasets
    >>> data = datasets.noise_separation(outliers=0.0, n=60, random_state=0)
    >>> model = DAGP(n_processes=1, n_init=1, tol=1e-2).fit(data.X, data.y)
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     write(model, data.X, data.y, Path(folder) / "report.html").name
    'report.html'
    """
    page = html(model, X, y, title=title, settings=settings).encode("utf-8", "replace")

    def fill(file: BinaryIO) -> None:
        file.write(page)

    return replace(path, fill)
