"""What must not break: settings, training that goes wrong, precision, compilation, factors."""

import logging
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from reference import batch
from sklearn.base import clone
from sklearn.exceptions import ConvergenceWarning

from dagp import DAGP, GP, Concrete, FitError, fixed, kernels
from dagp.core import linalg
from dagp.core.precision import numerics
from dagp.inference import train
from dagp.predict import posterior

N = 24
X = np.linspace(0, 1, N)[:, None]
Y = np.sin(6 * X[:, 0]) + 0.1 * np.cos(50 * X[:, 0])
QUICK = {"n_init": 1, "max_iter": 200, "tol": 1e3, "inducing": 6, "random_state": 0}


@pytest.fixture(scope="module")
def fitted():
    return DAGP(1, **QUICK).fit(X, Y)


# ---------------------------------------------------------------------------------- parameters


def refused_at_fit(message, **settings):
    model = DAGP(**{**QUICK, **settings})
    assert clone(model).get_params().keys() == model.get_params().keys()
    with pytest.raises(ValueError, match=message):
        model.fit(X, Y)
    assert not hasattr(model, "posterior_")


@pytest.mark.parametrize("count", [0, -1, 2.5, None, "many", True])
def test_number_of_processes_is_checked_at_fit(count):
    refused_at_fit("n_processes must be a whole number from 1 to", n_processes=count)


@pytest.mark.parametrize("settings", [{"learning_rate": -0.1}, {"temperature": (1.0, -1.0)}])
def test_negative_rates_are_refused_at_fit(settings):
    refused_at_fit("Concrete needs two positive temperatures", inference=Concrete(**settings))


def test_negative_tolerances_and_sizes_are_refused_at_fit():
    refused_at_fit("tol must be a non-negative number", tol=-1e-3)
    refused_at_fit("tol must be a non-negative number", tol=np.nan)
    refused_at_fit("max_iter must be a whole number", max_iter=-5)
    refused_at_fit("batch_size must be a whole number", batch_size=-5)
    refused_at_fit("batch_size of at least 1", inference=Concrete(batch_size=0))
    refused_at_fit("inducing must be at least 1", inducing=-5)
    refused_at_fit("inducing must be .* a number", inducing="many")


def test_unknown_kernel_is_refused_at_fit():
    message = "kernel must be one of dagp.kernels.* got 'rbf'"
    prior = GP()
    # While testing, annotations are checked, and the constructor would not have it.
    object.__setattr__(prior, "kernel", "rbf")
    refused_at_fit(message, processes=[prior, GP()])
    refused_at_fit(message, gate=prior)


def test_kernel_for_other_columns_is_refused_at_fit():
    asked = kernels.SquaredExponential(active=[3])
    refused_at_fit("asks for a column that X, with 1 columns, lacks", processes=[GP(asked)])
    several = kernels.SquaredExponential(lengthscale=[1.0, 2.0])
    refused_at_fit("parameter for each of 2 columns, and sees 1", processes=[GP(several)])


def test_checkpoint_that_cannot_be_written_is_refused_at_fit(tmp_path):
    refused_at_fit("it is a folder", checkpoint=tmp_path)
    refused_at_fit("there is no folder", checkpoint=tmp_path / "nowhere" / "note")
    refused_at_fit("checkpoint must name a file", checkpoint=3)
    refused_at_fit("checkpoint_every must be", checkpoint_every=-1.0)


def test_callbacks_that_cannot_be_called_are_refused_at_fit():
    refused_at_fit("callbacks must be a list of functions", callbacks=[3])
    refused_at_fit("callbacks must be a list of functions", callbacks=print)


# ------------------------------------------------------------------------ training that goes wrong


class Bounds(NamedTuple):
    value: np.ndarray


class Blocks:
    """Blocks of steps that count, and end in NaN when it is their turn."""

    def __init__(self, *broken):
        self.broken, self.seen = broken, []

    def __call__(self, state, _, rate):
        self.seen.append((state, float(rate)))
        bound = np.nan if len(self.seen) in self.broken else 10.0 * state
        return state + 1, Bounds(np.full(train.BLOCK, bound))


def run(blocks, most=8):
    data = batch(X, Y[:, None], 1)
    return train.train(1, data, max_iter=most * train.BLOCK, tol=0.0, block=blocks)


def test_a_nan_midway_is_undone_with_smaller_steps():
    blocks = Blocks(3)
    result = run(blocks, most=4)
    assert [state for state, _ in blocks.seen] == [1, 2, 3, 3]
    rates = [rate for _, rate in blocks.seen]
    np.testing.assert_allclose(rates, train.LEARNING_RATE * np.array([1, 1, 1, 1 / 3]))
    assert result.status == "budget"
    assert (result.state, result.bound) == (4, 30.0)
    assert np.all(np.isfinite(result.trace))


def test_a_nan_that_stays_ends_after_bounded_retries_with_the_best_state():
    blocks = Blocks(*range(3, 100))
    result = run(blocks, most=50)
    assert len(blocks.seen) == 2 + 4
    assert result.status == "diverged"
    assert (result.state, result.bound) == (3, 20.0)


def test_a_run_without_a_finite_bound_has_diverged_even_if_short():
    assert run(Blocks(1, 2), most=1).status == "diverged"


class Broken(kernels.SquaredExponential):
    """A kernel that knows no numbers."""

    def correlation(self, squared_distance):
        return squared_distance * jnp.nan


def test_all_starts_failing_is_an_error_with_the_causes():
    model = DAGP(processes=[GP(Broken())], **{**QUICK, "n_init": 2})
    with pytest.raises(FitError, match=r"finite evidence bound \(\w+: diverged; \w+: diverged\)"):
        model.fit(X, Y)
    assert not hasattr(model, "posterior_")


def test_no_convergence_is_a_warning_and_is_remembered():
    with pytest.warns(ConvergenceWarning, match="increase max_iter or tol"):
        model = DAGP(1, **{**QUICK, "max_iter": 25, "tol": 0.0}).fit(X, Y)
    assert model.converged_ is False


# -------------------------------------------------------------------------------------- numerics


@pytest.mark.parametrize("far", [1e3, 1e150, 1.7e308, -1.7e308])
def test_predictions_far_away_are_the_prior(fitted, far):
    mixture = fitted.predict_mixture([[far]])
    process = fitted.processes_[0]
    expected = process.kernel_.variance.in_user_units + process.noise_std_[0] ** 2
    np.testing.assert_allclose(mixture.variances[0, 0], expected, rtol=1e-6)
    np.testing.assert_allclose(mixture.means[0, 0], fitted.posterior_.units.y_centre[0], rtol=1e-6)
    assert np.all(np.isfinite(fitted.score_samples([[far]], [0.0])))


@pytest.mark.parametrize("dtype", ["float64", "float32"])
@pytest.mark.parametrize("flag", [False, True])
def test_the_users_x64_flag_is_untouched(dtype, flag):
    before = jax.config.jax_enable_x64
    jax.config.update("jax_enable_x64", flag)
    try:
        seen = []
        model = DAGP(1, **QUICK, dtype=dtype, callbacks=[seen.append]).fit(X, Y)
        assert seen
        assert model.predict(X).dtype == np.float64
        assert jax.config.jax_enable_x64 == flag
        assert jnp.ones(1).dtype == (np.float64 if flag else np.float32)
    finally:
        jax.config.update("jax_enable_x64", before)


def test_an_error_leaves_the_users_x64_flag_alone():
    def fail(_):
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        DAGP(1, **QUICK, callbacks=[fail]).fit(X, Y)
    assert jnp.ones(1).dtype == np.float32


def test_float32_has_a_stronger_jitter():
    used = {}
    for dtype in ("float64", "float32"):
        with numerics(dtype):
            used[dtype] = float(linalg.jitter_used(jnp.eye(4, dtype=dtype)))
    assert used["float32"] >= 1e3 * used["float64"]


def test_large_predictions_go_in_chunks(fitted, monkeypatch):
    seen = []
    whole = posterior._predictive

    def watched(model, chunk):
        seen.append(chunk.shape)
        return whole(model, chunk)

    monkeypatch.setattr(posterior, "_predictive", watched)
    rows = 3 * posterior.CHUNK + 1
    assert fitted.predict(np.linspace(0, 1, rows)[:, None]).shape == (rows,)
    assert seen == [(posterior.CHUNK, 1)] * 4


def test_same_seed_twice_is_the_same_to_the_last_digit(fitted):
    again = DAGP(1, **QUICK).fit(X, Y)
    assert again.lower_bound_ == fitted.lower_bound_
    np.testing.assert_array_equal(again.predict(X), fitted.predict(X))


def test_a_second_fit_of_the_same_shape_compiles_nothing(fitted, caplog):
    fitted.predict(X)
    with jax.log_compiles(), caplog.at_level(logging.WARNING, logger="jax"):
        DAGP(1, **{**QUICK, "random_state": 1}).fit(2 * X[1:], Y[1:] ** 2).predict(X[:3])
        compiled = [r.getMessage() for r in caplog.records if "Compiling" in r.getMessage()]
        assert compiled == []
        jax.jit(lambda x: x + 12345)(1.0)
    assert any("Compiling" in r.getMessage() for r in caplog.records), "nothing would be noticed"


# -------------------------------------------------------------------------------------- Cholesky


class Bent(kernels.SquaredExponential):
    """Not a covariance: its matrices have an eigenvalue below zero."""

    def correlation(self, squared_distance):
        return 1 - 0.02 * squared_distance


def test_a_large_jitter_is_said():
    wrong = GP(Bent(lengthscale=fixed(1.0)))
    with pytest.warns(UserWarning, match=r"covariance of process 0 needed a jitter of 1e-0[23]"):
        DAGP(processes=[wrong], **QUICK).fit(X, Y)
