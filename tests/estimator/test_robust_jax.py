"""What must not break: a user's own settings of JAX, many shapes in one process, wide tables."""

import jax
import numpy as np
import pytest

from dagp import DAGP
from dagp.core import programs
from dagp.core.precision import numerics
from dagp.inference.parallel import stacked

QUICK = {"n_init": 1, "max_iter": 200, "tol": 1e3, "inducing": 6, "random_state": 0}
X = np.linspace(0, 1, 24)[:, None]
Y = np.sin(6 * X[:, 0])
FLAGS = {
    "jax_debug_nans": True,
    "jax_debug_infs": True,
    "jax_disable_jit": True,
    "jax_check_tracer_leaks": True,
    "jax_numpy_dtype_promotion": "strict",
    "jax_numpy_rank_promotion": "raise",
    "jax_default_matmul_precision": "bfloat16",
}


@pytest.fixture
def flags():
    """All flags set as few users set them."""
    before = {name: getattr(jax.config, name) for name in FLAGS}
    for name, value in FLAGS.items():
        jax.config.update(name, value)
    yield
    for name, value in before.items():
        jax.config.update(name, value)


def answers(model):
    mixture = model.predict_mixture(X)
    return np.concatenate([mixture.weights, mixture.means, mixture.variances], axis=1)


@pytest.fixture(scope="module")
def expected():
    return answers(DAGP(1, **QUICK).fit(X, Y))


def test_the_users_flags_change_nothing_and_are_untouched(expected, flags):
    found = answers(DAGP(1, **QUICK).fit(X, Y))
    assert {name: getattr(jax.config, name) for name in FLAGS} == FLAGS
    np.testing.assert_array_equal(found, expected)


def test_the_users_device_is_used_and_stays(expected):
    device = jax.devices()[-1]
    with jax.default_device(device):
        found = answers(DAGP(1, **QUICK).fit(X, Y))
        assert jax.config.jax_default_device == device
    np.testing.assert_allclose(found, expected, rtol=1e-9)


def test_programs_are_forgotten_before_they_are_too_many(expected, monkeypatch):
    """XLA crashes when a process has as many memory maps as Linux allows."""
    with numerics():
        stacked((np.ones(3), np.ones(3)))
    assert stacked._cache_size()
    monkeypatch.setattr(programs, "_looked", -np.inf)
    programs.forget_programs_if_many()
    assert stacked._cache_size()
    monkeypatch.setattr(programs, "_looked", -np.inf)
    monkeypatch.setattr(programs, "MOST_MAPS", 10)
    programs.forget_programs_if_many()
    assert not stacked._cache_size()


@pytest.mark.slow
def test_many_shapes_in_one_process_take_bounded_maps(monkeypatch):
    """The bound is low here, so that it is reached soon; `benchmarks/many_shapes.py` does more."""
    monkeypatch.setattr(programs, "MOST_MAPS", 2500)
    counts = []
    for rows in range(20, 60, 2):
        x = np.linspace(0, 1, rows)
        DAGP(1, **QUICK | {"inducing": 4 + rows % 7}).fit(x[:, None], np.sin(6 * x))
        counts.append(programs.MAPS.read_bytes().count(b"\n"))
    assert max(counts) < 2 * 2500
    assert min(counts[len(counts) // 2 :]) < max(counts)


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
@pytest.mark.parametrize(("D", "P"), [(40, 5), pytest.param(200, 20, marks=pytest.mark.slow)])
def test_two_hundred_inputs_and_twenty_outputs(D, P):
    rng = np.random.default_rng(0)
    wide = rng.normal(size=(40, D))
    y = wide[:, :P] + 0.1 * rng.normal(size=(40, P))
    model = DAGP(2, **QUICK | {"max_iter": 5}).fit(wide, y)
    mean, std = model.predict(wide, return_std=True)
    assert mean.shape == std.shape == (40, P)
    assert np.isfinite(mean).all()
    assert np.all(std > 0)
    assert model.score_samples(wide, y).shape == (40,)
