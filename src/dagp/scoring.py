"""A scorer for estimators that predict a density, for scikit-learn's ``scoring=``.

>>> from sklearn.model_selection import cross_val_score
>>> from dagp import datasets
>>> from dagp.baselines import MDN
>>> data = datasets.noise_separation(outliers=0.0, n=60, random_state=0)
>>> cross_val_score(MDN(steps=10), data.X, data.y, cv=3, scoring=log_score).shape
(3,)
"""

from typing import Any, Self

from sklearn.compose import TransformedTargetRegressor
from sklearn.pipeline import Pipeline
from sklearn.utils.metadata_routing import MetadataRequest

from dagp.density import Density
from dagp.typing import Table

__all__ = ["LogScore", "log_score"]


class LogScore:
    """Mean log density of held-out pairs: how probable the estimator thought them.

    Works on `DAGP`, on baselines with ``predict_mixture``, on pipelines that end in one and on
    searches over them. With metadata routing, ``set_score_request(sample_weight=True)`` asks for
    the weights of the held-out rows.

    >>> from sklearn.pipeline import make_pipeline
    >>> from sklearn.preprocessing import StandardScaler
    >>> from dagp import datasets
    >>> from dagp.baselines import MDN
    >>> data = datasets.noise_separation(outliers=0.0, n=60, random_state=0)
    >>> pipeline = make_pipeline(StandardScaler(), MDN(steps=10)).fit(data.X, data.y)
    >>> model, X = pipeline[-1], pipeline[:-1].transform(data.X)
    >>> LogScore()(pipeline, data.X, data.y) == model.log_score(X, data.y)
    True
    """

    def __init__(self) -> None:
        self._request = MetadataRequest(owner=type(self).__name__)

    def __call__(self, estimator: Any, X: Table, y: Table, sample_weight: Any = None) -> float:
        """The score of a fitted estimator."""
        model, rows = _innermost(estimator, X)
        return model.log_score(rows, y, sample_weight)

    def __repr__(self) -> str:
        return "log_score"

    def set_score_request(self, *, sample_weight: bool | str | None) -> Self:
        """A scorer that asks for weights: true, or the name they are passed under."""
        scorer = type(self)()
        scorer._request.score.add_request(param="sample_weight", alias=sample_weight)
        return scorer

    def get_metadata_routing(self) -> MetadataRequest:
        """What scikit-learn is to pass on."""
        return self._request


log_score: LogScore = LogScore()


def _innermost(estimator: Any, X: Table) -> tuple[Density, Table]:
    """The model inside pipelines and searches, and the inputs as they reach it."""
    if hasattr(estimator, "best_estimator_"):
        return _innermost(estimator.best_estimator_, X)
    if isinstance(estimator, Pipeline):
        return _innermost(estimator[-1], estimator[:-1].transform(X) if len(estimator) > 1 else X)
    if isinstance(estimator, TransformedTargetRegressor):
        raise TypeError(
            "log_score cannot see through a TransformedTargetRegressor: a density of transformed "
            "outputs is none of the outputs themselves. Transform y before, and score that."
        )
    if not isinstance(estimator, Density):
        raise TypeError(
            "log_score needs an estimator that predicts a density, such as DAGP; "
            f"{type(estimator).__name__} does not."
        )
    return estimator, X
