"""What all rivals have in common: scikit-learn's checks, the same answers to bad input."""

import functools
import io
import pickle

import jax
import numpy as np
import pytest
from sklearn.utils.estimator_checks import estimator_checks_generator

from dagp import baselines, datasets
from dagp.inference.train import BLOCK
from dagp.predict.density import Density

QUICK = {
    "BNNLV": {"hidden": (4,), "steps": 50, "samples": 3, "predictive_samples": 5},
    "ChoiceNet": {"hidden": (8,), "steps": 50, "n_init": 1},
    "GPR": {"max_iter": 25, "tol": 1e-1},
    "LGPR": {"max_iter": 25, "tol": 1e-1},
    "MDN": {"n_components": 2, "hidden": (8,), "steps": 50},
    "MLP": {"hidden": (16,), "steps": 400},
    "OMGP": {"n_init": 1, "max_iter": 25, "tol": 1e-1},
    "RGPR": {"n_sweeps": 4, "burn_in": 2, "n_samples": 1},
}
ONE_ARGUMENT = (
    "calls score_samples(X); here it is the log density of pairs and takes (X, y), as the "
    "density of y given x cannot be had without y"
)
EXPECTED = {
    "check_methods_sample_order_invariance": ONE_ARGUMENT,
    "check_methods_subset_invariance": ONE_ARGUMENT,
}
TOO_SHORT = {"check_regressors_train": "wants a good fit; these settings are made to be quick"}
FAST = ("check_estimators_nan_inf", "check_n_features_in_after_fitting")
"""Enough to notice a rival that has left the house; all checks are in the slow set."""
OF_ONE_KIND = {"MLP", "OMGP", "RGPR"}
"""One rival of each kind (networks, variational, sampled) goes through these as well. Each has data
of a shape of its own, for which a program is compiled."""
FAST_FOR_ONE = (
    "check_estimators_dtypes",
    "check_fit_check_is_fitted",
    "check_fit_idempotent",
    "check_supervised_y_2d",
)


def quick(name):
    return getattr(baselines, name)(**QUICK[name], random_state=0)


DATA = datasets.noise_separation(0.1, n=40, random_state=0)
# After a few steps of Adam even rounding shows; where they end it does not.
LONGER = {"GPR": {"max_iter": 500, "tol": 1e-5}}


@functools.cache
def fitted(name):
    return quick(name).set_params(**LONGER.get(name, {})).fit(DATA.X, DATA.y)


def checks():
    for name in baselines.__all__:
        expected = EXPECTED if issubclass(getattr(baselines, name), Density) else {}
        expected = expected | TOO_SHORT if name in ("BNNLV", "ChoiceNet", "MDN") else expected
        generated = estimator_checks_generator(
            quick(name), mark="xfail", expected_failed_checks=expected
        )
        for case in generated:
            values = getattr(case, "values", case)
            check = getattr(values[1], "func", values[1]).__name__
            marks = list(getattr(case, "marks", ()))
            fast = FAST + FAST_FOR_ONE if name in OF_ONE_KIND else FAST
            # GPR is DAGP underneath, whose checks are all in the fast set.
            marks += [] if check in fast and name != "GPR" else [pytest.mark.slow]
            yield pytest.param(*values, marks=marks, id=f"{name}-{check}")


@pytest.mark.parametrize(("estimator", "check"), list(checks()))
@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
def test_scikit_learn_compatible(estimator, check):
    check(estimator)


def test_all_rivals_of_the_paper_are_here():
    assert set(baselines.__all__) == set(QUICK)


@pytest.mark.parametrize("name", baselines.__all__)
@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
def test_a_density_is_a_mixture_in_the_units_of_the_data(name):
    model = getattr(baselines, name)
    assert issubclass(model, Density) == model.capabilities.predictive_posterior
    if not issubclass(model, Density):
        return
    data, here = DATA, fitted(name)
    there = quick(name).set_params(**LONGER.get(name, {}))
    there.fit(10 * data.X + 3, 1000 * data.y - 7)
    mixture, moved = here.predict_mixture(data.X), there.predict_mixture(10 * data.X + 3)
    np.testing.assert_allclose(moved.mean(), 1000 * mixture.mean() - 7, rtol=1e-4, atol=1)
    np.testing.assert_allclose(
        there.score_samples(10 * data.X + 3, 1000 * data.y - 7),
        here.score_samples(data.X, data.y) - np.log(1000),
        atol=0.05,
    )
    latent = here.predict_mixture(data.X, noise=False)
    assert np.all(latent.variances <= mixture.variances)


class WithoutJax(pickle.Pickler):
    """Refuses JAX's arrays: where the user's session is in float32, they are read back as that."""

    def reducer_override(self, obj):
        assert not isinstance(obj, jax.Array), f"a JAX array of shape {obj.shape}"
        return NotImplemented


@pytest.mark.parametrize("name", baselines.__all__)
@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
def test_a_pickle_predicts_bit_for_bit(name):
    assert not jax.config.jax_enable_x64  # as a user has it, and where it matters
    file = io.BytesIO()
    WithoutJax(file).dump(fitted(name))
    again = pickle.loads(file.getvalue())
    np.testing.assert_array_equal(again.predict(DATA.X), fitted(name).predict(DATA.X))


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
def test_who_has_a_limit_of_steps_tells_their_number():
    names = [name for name in baselines.__all__ if hasattr(quick(name), "max_iter")]
    found = {name: np.ravel(fitted(name).n_iter_).tolist() for name in names}
    # The quick settings allow a few blocks, in each of the three stages of LGPR.
    steps = len(fitted("GPR").model_.lower_bounds_)
    most = -(-QUICK["OMGP"]["max_iter"] // BLOCK) * BLOCK
    assert found == {"GPR": [steps], "LGPR": 3 * [most], "OMGP": [most]}
