"""Files: what comes back is what went in, also of a fit that was cut off."""

import os
import subprocess
import sys
import textwrap
import warnings

import numpy as np
import pytest

from dagp import DAGP, GP, DeepGP, Noise, Uniform, datasets, kernels, means
from dagp.errors import StorageError
from dagp.files import format as storage
from dagp.files import modelfile

SHORT = {"n_init": 2, "max_iter": 25, "inducing": 8, "random_state": 0}
SIMPLE = [GP(kernels.Matern32() + kernels.Linear(), means.Linear()), Noise(), Uniform(-1.0, 3.0)]
ALL = [*SIMPLE, DeepGP(2), GP(noise_gp=GP())]
"""Of every kind. They take long to compile: the fast set has the deep process and the noise that
varies alone, in the tests of the model and of old files."""


@pytest.fixture(scope="module")
def data():
    return datasets.noise_separation(0.2, n=60, random_state=0)


@pytest.fixture(
    scope="module",
    params=[
        pytest.param(SIMPLE, id="simple"),
        pytest.param(ALL, id="all", marks=pytest.mark.slow),
    ],
)
def model(data, request):
    with warnings.catch_warnings():
        # So short a fit may or may not doubt itself.
        warnings.simplefilter("ignore", UserWarning)
        return DAGP(processes=request.param, **SHORT).fit(data.X, data.y)


@pytest.fixture
def saved(model, data, tmp_path):
    return model.save(tmp_path / "model.dagp", (data.X, data.y))


def same(a, b):
    return all(
        np.array_equal(getattr(a, name), getattr(b, name))
        for name in ("weights", "means", "variances")
    )


def test_a_loaded_model_predicts_bit_for_bit(model, saved, data):
    again = DAGP.load(saved)
    assert same(again.predict_mixture(data.X_test), model.predict_mixture(data.X_test))
    assert again.summary(verbose=True) == model.summary(verbose=True)
    np.testing.assert_array_equal(again.responsibilities_, model.responsibilities_)
    assert again.restarts_ == model.restarts_
    assert [p.weight_ for p in again.processes_] == [p.weight_ for p in model.processes_]
    assert repr(again.processes_[0].kernel_) == repr(model.processes_[0].kernel_)
    assert len(again.alternatives_) == len(model.alternatives_)


def test_in_a_new_process_too(model, saved, data):
    code = textwrap.dedent(f"""
        import sys, numpy as np
        from dagp import DAGP
        X = np.frombuffer(sys.stdin.buffer.read()).reshape(-1, 1)
        sys.stdout.buffer.write(DAGP.load({str(saved)!r}).predict(X).tobytes())
    """)
    asked = np.ascontiguousarray(data.X_test[:50])
    answer = subprocess.run(
        [sys.executable, "-c", code], input=asked.tobytes(), capture_output=True, check=True
    ).stdout
    np.testing.assert_array_equal(np.frombuffer(answer), model.predict(asked))


def test_a_loaded_model_goes_on_learning(model, saved, data):
    one, two = DAGP.load(saved), DAGP.load(saved)
    one.partial_fit(data.X, data.y)
    again = one.save(saved.with_name("later.dagp"))
    one.partial_fit(data.X[:10], data.y[:10])
    two = DAGP.load(again).partial_fit(data.X[:10], data.y[:10])
    np.testing.assert_array_equal(one.predict(data.X), two.predict(data.X))


def test_column_names_and_settings_survive(tmp_path, data):
    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame({"Drehzahl <b>ä</b>": data.X[:, 0]})
    model = DAGP(1, n_init=1, tol=0.1, inducing=7).fit(frame, data.y)
    again = DAGP.load(model.save(tmp_path / "m.dagp"))
    assert list(again.feature_names_in_) == list(frame.columns)
    assert again.inducing == 7
    np.testing.assert_array_equal(again.predict(frame), model.predict(frame))


def test_info_reads_no_array(model, saved):
    size = saved.stat().st_size
    header = storage.describe(saved)
    assert header.about["rows"] == 60
    kinds = [type(prior).__name__ for prior in model.processes]
    assert [p["kind"] for p in header.about["processes"]] == kinds
    os.truncate(saved, header.begin)
    assert storage.describe(saved).about == header.about
    assert size > header.begin
    with pytest.raises(StorageError, match="cut short"):
        DAGP.load(saved)


def test_training_data_come_back(saved, data, model):
    X, y = modelfile.training_data(saved)
    np.testing.assert_array_equal(X, data.X)
    np.testing.assert_array_equal(y, data.y)
    assert modelfile.training_data(model.save(saved)) is None


def test_unfitted_models_are_not_saved(tmp_path):
    from sklearn.exceptions import NotFittedError

    with pytest.raises(NotFittedError):
        DAGP().save(tmp_path / "no.dagp")
    assert not list(tmp_path.iterdir())


# --------------------------------------------------------------------------------- checkpoints


class CutOffError(Exception):
    """Stands for a kill."""


def cut_off_after(count):
    calls = iter(range(count))

    def callback(progress):
        if next(calls, None) is None:
            raise CutOffError

    return callback


@pytest.mark.parametrize(
    "settings",
    [
        {"n_init": 3, "max_iter": 100},
        {"batch_size": 32, "n_init": 2, "max_iter": 100},
        {"inference": "concrete", "n_init": 2, "max_iter": 300},
    ],
    ids=["collapsed", "batches", "concrete"],
)
@pytest.mark.filterwarnings("ignore")
def test_a_fit_that_was_cut_off_ends_as_if_it_had_not_been(tmp_path, settings):
    data = datasets.noise_separation(0.4, n=60, random_state=0)
    settings = {**settings, "n_processes": 2, "inducing": 8, "random_state": 0}
    whole = DAGP(**settings).fit(data.X, data.y)
    path = tmp_path / "fit.checkpoint"
    kept = {"checkpoint": path, "checkpoint_every": 0.0}
    for count in (1, 4, 1000):
        begun = DAGP(**settings, **kept, resume=True, callbacks=(cut_off_after(count),))
        try:
            begun.fit(data.X, data.y)
            break
        except CutOffError:
            assert path.exists()
    assert begun.lower_bound_ == whole.lower_bound_
    assert same(begun.predict_mixture(data.X), whole.predict_mixture(data.X))
    np.testing.assert_array_equal(begun.lower_bounds_, whole.lower_bounds_)
    assert begun.restarts_ == whole.restarts_
    assert not path.exists()


@pytest.mark.filterwarnings("ignore")
def test_a_checkpoint_of_another_fit_is_refused(tmp_path, data):
    path = tmp_path / "fit.checkpoint"
    settings = {**SHORT, "n_processes": 2, "checkpoint": path, "checkpoint_every": 0.0}
    with pytest.raises(CutOffError):
        DAGP(**settings, callbacks=(cut_off_after(1),)).fit(data.X, data.y)
    with pytest.raises(StorageError, match="other data or settings"):
        DAGP(**settings, resume=True).fit(data.X, data.y + 1)
    with pytest.raises(StorageError, match="other data or settings"):
        DAGP(**{**settings, "random_state": 1}, resume=True).fit(data.X, data.y)
    # Without asking for it, nobody goes on from an old file.
    DAGP(**settings).fit(data.X, data.y + 1)
