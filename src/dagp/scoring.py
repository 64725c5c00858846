"""Log predictive density as a scorer for scikit-learn's ``scoring=``."""

from typing import Any, Self

from sklearn.compose import TransformedTargetRegressor
from sklearn.pipeline import Pipeline
from sklearn.utils.metadata_routing import MetadataRequest

from dagp.core.typing import Table
from dagp.predict.density import Density

__all__ = ["LogScore", "log_score"]


class LogScore:
    """Scorer: mean log predictive density of held-out pairs; higher is better.

    Works on `DAGP`, on baselines with ``predict_mixture``, on pipelines that end in one and on
    searches over them. With metadata routing, ``set_score_request(sample_weight=True)`` requests
    the weights of the held-out rows. `log_score` is an instance.

    Examples
    --------
    >>> from sklearn.model_selection import cross_val_score
    >>> from sklearn.pipeline import make_pipeline
    >>> from sklearn.preprocessing import StandardScaler
    >>> from dagp import datasets
    >>> from dagp.baselines import MDN
    >>> data = datasets.noise_separation(outliers=0.0, n=60, random_state=0)
    >>> pipeline = make_pipeline(StandardScaler(), MDN(steps=10)).fit(data.X, data.y)
    >>> model, X = pipeline[-1], pipeline[:-1].transform(data.X)
    >>> LogScore()(pipeline, data.X, data.y) == model.log_score(X, data.y)
    True
    >>> cross_val_score(pipeline, data.X, data.y, cv=3, scoring=log_score).shape
    (3,)
    """

    def __init__(self) -> None:
        self._request = MetadataRequest(owner=type(self).__name__)

    def __call__(self, estimator: Any, X: Table, y: Table, sample_weight: Any = None) -> float:
        """Score a fitted estimator.

        Parameters
        ----------
        estimator : fitted estimator that predicts a density
        X, y : table of shape (N, D), array of shape (N,) or (N, P)
        sample_weight : array of shape (N,), default=None
        """
        model, rows = _innermost(estimator, X)
        return model.log_score(rows, y, sample_weight)

    def __repr__(self) -> str:
        return "log_score"

    def set_score_request(self, *, sample_weight: bool | str | None) -> Self:
        """A scorer with this metadata request.

        Parameters
        ----------
        sample_weight : bool, str or None
            Whether weights are passed to the scorer, or the name they are passed under.
        """
        scorer = type(self)()
        scorer._request.score.add_request(param="sample_weight", alias=sample_weight)
        return scorer

    def get_metadata_routing(self) -> MetadataRequest:
        """The metadata request, for scikit-learn's routing."""
        return self._request


log_score: LogScore = LogScore()


def _innermost(estimator: Any, X: Table) -> tuple[Density, Table]:
    """The model inside pipelines and searches, and the inputs transformed for it."""
    if hasattr(estimator, "best_estimator_"):
        return _innermost(estimator.best_estimator_, X)
    if isinstance(estimator, Pipeline):
        return _innermost(estimator[-1], estimator[:-1].transform(X) if len(estimator) > 1 else X)
    if isinstance(estimator, TransformedTargetRegressor):
        raise TypeError(
            "log_score does not support TransformedTargetRegressor: its density is that of the "
            "transformed outputs. Transform y first, and score the inner estimator."
        )
    if not isinstance(estimator, Density):
        found = f"{type(estimator).__name__} does not predict one"
        expected = "an estimator that predicts a density, such as DAGP"
        raise TypeError(f"log_score needs {expected}; {found}.")
    return estimator, X
