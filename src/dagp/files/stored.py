"""Methods of an estimator that write it to files and read it again."""

from pathlib import Path
from typing import Any, Self, cast

from dagp.files import arrays, modelfile


class Stored:
    """Base class of an estimator that can be saved, loaded and exported."""

    def save(self: Any, path: str | Path, data: tuple[Any, Any] | None = None) -> Path:
        """Write the fitted model to a file.

        Parameters
        ----------
        path : str or Path
        data : tuple (X, y), default=None
            Training rows to save with it, for a report.

        Examples
        --------
        >>> import tempfile
        >>> from dagp import DAGP, datasets
        >>> data = datasets.noise_separation(0.0, n=50, random_state=0)
        >>> model = DAGP(1, n_init=1, tol=1e-1).fit(data.X, data.y)
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     again = DAGP.load(model.save(f"{folder}/model.dagp"))
        >>> bool((again.predict(data.X) == model.predict(data.X)).all())
        True
        """
        return modelfile.save(self, path, data)

    @classmethod
    def load(cls, path: str | Path) -> Self:
        """Read a model; its predictions equal those of the saved one bit for bit.

        Parameters
        ----------
        path : str or Path
        """
        found: Any = modelfile.load(cast(Any, cls), path)
        return found

    def export(self: Any, path: str | Path) -> Path:
        """Write the fitted model as arrays that predict with NumPy alone, without JAX and dagp.

        The folder holds ``model.npz`` and ``predictor.py``, whose class is `dagp.deploy.Predictor`.

        Parameters
        ----------
        path : str or Path
            Folder to write; it is made if it does not exist.

        Examples
        --------
        >>> import tempfile
        >>> from dagp import DAGP, datasets
        >>> data = datasets.noise_separation(0.0, n=50, random_state=0)
        >>> model = DAGP(1, n_init=1, tol=1e-1).fit(data.X, data.y)
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     sorted(file.name for file in model.export(folder).iterdir())
        ['model.npz', 'predictor.py']
        """
        return arrays.export(self, path)
