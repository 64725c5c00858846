"""A fit that fails leaves the model as it was; a warm start says what it cannot carry over."""

import numpy as np
import pytest

from dagp import DAGP, GP, Noise, StorageError, kernels
from dagp.files import modelfile

QUICK = {"inducing": 9, "n_init": 1, "tol": 1e-1, "random_state": 0}


def line(n=40, seed=0):
    rng = np.random.default_rng(seed)
    x = np.sort(rng.uniform(-1, 1, n))
    return x[:, None], 2 * x + 0.05 * rng.standard_normal(n)


@pytest.fixture
def fitted():
    return DAGP(1, **QUICK).fit(*line())


def refused(model, X, y):
    with pytest.raises(ValueError, match="y"):
        model.fit(X, y)


def interrupted(model, X, y):
    def stop(_):
        raise KeyboardInterrupt

    model.set_params(callbacks=[stop])
    with pytest.raises(KeyboardInterrupt):
        model.fit(np.hstack([X, X]), np.stack([y, y], axis=1))


def updated(model, X, y):
    with pytest.raises(ValueError, match="as many columns as in the first call"):
        model.partial_fit(X, np.stack([y, y], axis=1))


@pytest.mark.parametrize(
    ("break_it", "change"),
    [(refused, lambda X, y: (np.hstack([X, X]), y[:3])), (interrupted, None), (updated, None)],
)
def test_a_fit_that_fails_leaves_the_model_as_it_was(fitted, break_it, change):
    X, y = line()
    before = {name: value for name, value in vars(fitted).items() if name.endswith("_")}
    predicted = fitted.predict(X)
    break_it(fitted, *((X, y) if change is None else change(X, y)))
    after = {name: value for name, value in vars(fitted).items() if name.endswith("_")}
    assert after.keys() == before.keys()
    assert all(after[name] is before[name] for name in before)
    np.testing.assert_array_equal(fitted.predict(X), predicted)


def test_a_first_fit_that_fails_leaves_no_attributes():
    model = DAGP(1, **QUICK)
    refused(model, line()[0], line()[1][:3])
    assert not any(name.endswith("_") for name in vars(model))


@pytest.mark.parametrize("output", [np.zeros((5, 1)), np.zeros((5, 3)), np.zeros(5)])
def test_updates_need_the_outputs_of_the_fit(output):
    X, y = line()
    model = DAGP(1, **QUICK).fit(X, np.stack([y, -y], axis=1))
    with pytest.raises(ValueError, match="as in the first call, 2"):
        model.partial_fit(X[:5], output)


def test_a_warm_start_keeps_what_it_can():
    X, y = line()
    model = DAGP(processes=[GP(), Noise()], warm_start=True, **QUICK).fit(X, y)
    scale = model.processes_[0].kernel_
    model.set_params(processes=[GP(), GP(kernels.Matern32())])
    with pytest.warns(UserWarning, match="process 1 had other priors before"):
        model.fit(X, y)
    assert model.restarts_[0]["kind"] == "warm"
    assert type(model.processes_[0].kernel_) is type(scale)
    assert model.score(X, y) > 0.9
    model.set_params(gate="constant")
    with pytest.warns(UserWarning, match="the gate had other priors before"):
        model.fit(X, y)
    assert model.score(X, y) > 0.9


def test_a_warm_start_takes_another_number_of_inducing_points():
    X, y = line()
    model = DAGP(1, warm_start=True, **QUICK).fit(X, y)
    model.set_params(inducing=5).fit(X, y)
    assert model.restarts_[0]["kind"] == "warm"
    assert model.score(X, y) > 0.99


def test_a_warm_start_from_exact_inference_keeps_the_association():
    """It begins with fewer inducing inputs, whose q is not known."""
    X, y = line(60)
    y[::6] += np.linspace(1, 3, 10)
    settings = QUICK | {"inducing": "all", "warm_start": True}
    model = DAGP(processes=[GP(), Noise()], **settings).fit(X, y)
    found, bound = model.responsibilities_, model.lower_bound_
    model.fit(X, y)
    assert model.restarts_[0]["kind"] == "warm"
    np.testing.assert_allclose(model.responsibilities_, found, atol=0.1)
    assert model.lower_bound_ > bound - 0.1


@pytest.mark.parametrize(
    ("settings", "shift", "reason"),
    [
        ({"n_processes": 2}, 0.0, "there were 1 processes, now 2"),
        ({}, 1e6, "the data lie elsewhere"),
        ({"standardize": False}, 1e6, "the data lie elsewhere"),
    ],
)
def test_a_warm_start_that_cannot_be_is_a_new_fit(settings, shift, reason):
    X, y = line()
    model = DAGP(1, warm_start=True, **QUICK).fit(X + shift, 100 * y + shift)
    model.set_params(**settings)
    with pytest.warns(UserWarning, match=reason):
        model.fit(X, y)
    assert model.restarts_[0]["kind"] != "warm"
    assert model.score(X, y) > 0.9


def logged(model, path, X, y):
    """The identity of the checkpoint of a fit."""
    model.set_params(checkpoint=path, checkpoint_every=0.0)
    sample = modelfile.Sample(X, y[:, None], np.ones(len(X)), np.full(len(X), -1))
    modelfile.checkpoint_log(model, sample).save_progress(None)
    model.set_params(resume=True)
    return lambda: modelfile.checkpoint_log(model, sample)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (np.int64(1), np.int64(2)),
        (1, np.int32(2)),
        (np.random.default_rng(1), np.random.default_rng(2)),
        (np.random.RandomState(1), np.random.RandomState(2)),
    ],
)
def test_a_checkpoint_of_another_seed_is_refused(tmp_path, one, other):
    X, y = line(10)
    model = DAGP(1, random_state=one)
    again = logged(model, tmp_path / "fit.checkpoint", X, y)
    again()
    model.set_params(random_state=other)
    with pytest.raises(StorageError, match="other data or settings"):
        again()
    model.set_params(random_state=None)
    with pytest.raises(StorageError, match="without a seed"):
        again()


def test_files_keep_seeds_of_numpy(fitted, tmp_path):
    fitted.set_params(random_state=np.int64(7), tol=np.float64(0.5))
    again = DAGP.load(fitted.save(tmp_path / "model.dagp"))
    assert (again.random_state, again.tol) == (7, 0.5)
    assert type(again.random_state) is int
