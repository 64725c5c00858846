"""What must hold of every fit: an answer in which everything is sound, or a refusal in words."""

import tempfile
import traceback
import warnings
from pathlib import Path

import numpy as np
from sklearn.exceptions import ConvergenceWarning

import dagp
from dagp import DAGP, FitError, SearchWarning

from .cases import Case, Data, make_data, make_model

__all__ = ["check"]

SPEAKS = (Path(dagp.__file__).parent, "sklearn/utils/validation.py")
"""Who may refuse data."""
WORDS = ("inducing=", "needed a jitter", "warm_start: ", "does not apply, because")
"""Of the plain warnings that a fit may give."""
FAR = (1e3, 1e9)
"""How far from the data, in units of their extent, predictions are asked for."""


def check(case: Case) -> str:
    """Fit and ask everything; ``"fitted"``, or ``"refused: …"`` in the words of the refusal.

    Whatever is wrong is raised.
    """
    data = make_data(case)
    before = data.X.copy(), data.y.copy()
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            model = _fitted(case, data)
        except (ValueError, FitError) as error:
            _in_words(error)
            answer = f"refused: {type(error).__name__}: {error}"
        else:
            given = data.part(_rows_of_last_fit(case))
            _attributes(case, model, given)
            _sound(case, model, given.part(_complete(given)))
            answer = "fitted"
    for warning in caught:
        _allowed(warning)
    np.testing.assert_array_equal(data.X, before[0])
    np.testing.assert_array_equal(data.y, before[1])
    return answer


def _fitted(case: Case, data: Data) -> DAGP:
    model = make_model(case, data)
    halves = slice(0, -(-case.rows // 2)), slice(-(-case.rows // 2), None)
    if case.way == "stream" and case.rows > 1:
        for half in map(data.part, halves):
            model.partial_fit(half.X, half.y, half.weight)
        return model
    if case.way == "warm" and case.rows > 1:
        half = data.part(halves[0])
        model.fit(half.X, half.y, half.weight, half.labels)
    return model.fit(data.X, data.y, data.weight, data.labels)


def _rows_of_last_fit(case: Case) -> slice:
    return slice(-(-case.rows // 2) if case.way == "stream" and case.rows > 1 else 0, None)


def _complete(data: Data) -> np.ndarray:
    return ~np.isnan(np.column_stack([data.X, data.y])).any(axis=1)


def _in_words(error: Exception) -> None:
    """A refusal comes from us, not from deep inside a library, and is a sentence."""
    deepest = traceback.extract_tb(error.__traceback__)[-1].filename
    ours = SPEAKS[0] in Path(deepest).parents or deepest.endswith(SPEAKS[1])
    # What is shown as an array comes from within, not from the user's table.
    sentence = str(error).strip().endswith((".", ")")) and "array(" not in str(error)
    if not ours or not sentence or type(error) not in (ValueError, FitError):
        raise error


def _allowed(warning: warnings.WarningMessage) -> None:
    if issubclass(warning.category, ConvergenceWarning | SearchWarning):
        return
    plain = warning.category is UserWarning and any(w in str(warning.message) for w in WORDS)
    assert plain, f"{warning.filename}:{warning.lineno}: {warning.category}: {warning.message}"


def _sound(case: Case, model: DAGP, data: Data) -> None:
    X = np.concatenate([data.X, _places(data.X)])
    _predictions(model, X)
    _densities(case, model, data)
    _processes(model, data.X)
    _views(case, model, data)
    _reads_back(model, X)


def _places(X: np.ndarray) -> np.ndarray:
    """Between the data, and further and further away."""
    low, high = X.min(axis=0), X.max(axis=0)
    extent = np.maximum(high - low, np.abs(high))
    between = low + np.linspace(0, 1, 7)[:, None] * (high - low)
    away = [place for far in FAR for place in (low - far * extent, high + far * extent)]
    return np.concatenate([between, away])


def _distributions(rows: np.ndarray) -> None:
    assert np.all((rows >= 0) & (rows <= 1 + 1e-12)), "probabilities outside [0, 1]"
    np.testing.assert_allclose(rows.sum(axis=-1), 1.0, atol=1e-9)


def _finite(**named: object) -> None:
    for name, values in named.items():
        assert np.all(np.isfinite(np.asarray(values))), f"{name} is not finite: {values}"


def _attributes(case: Case, model: DAGP, data: Data) -> None:
    N, K = len(data.X), len(model.processes_)
    assert model.responsibilities_.shape == (N, K)
    assert model.assignment_.shape == (N,)
    assert model.active_.shape == (K,)
    used = ~np.isnan(data.X).any(axis=1) & ~np.isnan(data.y.reshape(N, -1)).all(axis=1)
    np.testing.assert_array_equal(model.used_mask_, used)
    assert np.isnan(model.responsibilities_[~used]).all()
    assert np.all(model.assignment_[~used] == -1)
    _distributions(model.responsibilities_[used])
    _finite(lower_bound_=model.lower_bound_, lower_bounds_=model.lower_bounds_)
    assert case.processes == () or len(case.processes) == K
    if data.labels is not None and case.way != "stream":
        known = np.flatnonzero((data.labels >= 0) & used)
        np.testing.assert_array_equal(model.assignment_[known], data.labels[known])


def _predictions(model: DAGP, X: np.ndarray) -> None:
    mixture = model.predict_mixture(X)
    _distributions(mixture.weights)
    _distributions(model.predict_assignment(X))
    assert np.all(mixture.variances > 0), "a variance is not positive"
    assert np.all(model.predict_mixture(X, noise=False).variances >= 0)
    mean, std = model.predict(X, return_std=True)
    _finite(means=mixture.means, variances=mixture.variances, mean=mean, std=std)
    assert np.all(std > 0), "a standard deviation is not positive"
    quantiles = mixture.quantile([0.01, 0.3, 0.5, 0.7, 0.99])
    _finite(quantiles=quantiles)
    assert np.all(np.diff(quantiles, axis=0) >= 0), "quantiles are out of order"


def _densities(case: Case, model: DAGP, data: Data) -> None:
    """Data that were fitted are possible, and so is what is predicted anywhere."""
    if case.way != "stream":  # a range learnt from the first part may leave out the second
        used = slice(None) if data.weight is None else data.weight > 0
        _finite(log_density=model.score_samples(data.X, data.y)[used])
        # Units of the user's choice may put the prior anywhere, and rows of weight 1e6 bend a
        # function that has few inducing points wherever others lie. Where inputs are a million
        # units away, steps of the paper's scheme, which are of one size, are too long for a line.
        slow_line = case.inference != "collapsed" and "mean" in case.processes
        if case.standardize and case.weights not in ("wild", "huge") and not slow_line:
            _in_range(model, data)
    _distributions(model.responsibilities(data.X, data.y))
    mixture = model.predict_mixture(_places(data.X))
    draws = mixture.sample(3, random_state=0)
    _finite(draws=draws, log_density_of_draws=mixture.log_prob(draws))


def _in_range(model: DAGP, data: Data) -> None:
    """Where data are, the mean does not leave them far behind, by what it knows of itself."""
    low, high = data.y.min(axis=0), data.y.max(axis=0)
    margin = 3 * (high - low + np.sqrt(model.predict_mixture(data.X).variance()))
    mean = model.predict(data.X)
    assert np.all((mean >= low - margin) & (mean <= high + margin)), "means far from the data"


def _processes(model: DAGP, X: np.ndarray) -> None:
    for process in model.processes_:
        mean, std = process.predict(X, return_std=True)
        _finite(mean=mean, std=std, noise=process.noise_std(X), weight=process.weight_)
        _finite(draws=process.sample_y(X[:8], 2, random_state=0))
        assert np.all(process.noise_std_ > 0), "a noise level is not positive"
        assert np.isfinite(process.noise_std_).all(), "a noise level is not finite"


def _views(case: Case, model: DAGP, data: Data) -> None:
    assert "processes in use" in model.summary(verbose=True)
    assert str(model.explain(data.X[0], data.y[0]))
    assert np.all(model.outliers() < len(model.index_))
    if case.outputs > 1:
        return
    mixture = model.predict_mixture(data.X[:5])
    for regions in mixture.hdr(0.9):
        ends = np.ravel(regions)
        _finite(regions=ends)
        assert len(ends) >= 2, "an empty region"
        assert np.all(np.diff(ends) >= 0), "regions are out of order"
    assert all(len(points) for points in mixture.modes())


def _reads_back(model: DAGP, X: np.ndarray) -> None:
    """A file gives the same predictions, bit for bit."""
    with tempfile.TemporaryDirectory() as folder:
        again = DAGP.load(model.save(f"{folder}/model.dagp"))
    first, second = model.predict_mixture(X), again.predict_mixture(X)
    for name in ("weights", "means", "variances"):
        np.testing.assert_array_equal(getattr(first, name), getattr(second, name))
    assert (first.uniform, first.owner) == (second.uniform, second.owner)
