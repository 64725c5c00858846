"""Files of format 3, of tables of numbers only: they load and predict as they did."""

from pathlib import Path

import numpy as np
import pytest

from dagp import DAGP
from dagp.files import format as storage
from dagp.files import modelfile

FOLDER = Path(__file__).parent / "format3"


@pytest.fixture
def expected():
    with np.load(FOLDER / "plain.npz") as arrays:
        return dict(arrays)


def test_it_predicts_as_it_did(expected):
    assert storage.describe(FOLDER / "plain.dagp").version == 3
    model = DAGP.load(FOLDER / "plain.dagp")
    mean, std = model.predict(expected["X"], return_std=True)
    # Bit for bit where programs are compiled alike; the compiler of the tests is another one.
    np.testing.assert_allclose(mean, expected["mean"], rtol=1e-8, atol=1e-10)
    np.testing.assert_allclose(std, expected["std"], rtol=1e-8, atol=1e-10)
    np.testing.assert_allclose(model.predict_assignment(expected["X"]), expected["gate"], rtol=1e-8)


def test_its_columns_are_numbers(expected, tmp_path):
    model = DAGP.load(FOLDER / "plain.dagp")
    assert model.columns is None and model.columns_.plain
    assert model.columns_.names == ("x0", "x1")
    assert model.processes_[0].kernel_.lengthscale.entries is None
    for other in model.alternatives_:
        assert other.columns_ == model.columns_
    X, y = modelfile.training_data(FOLDER / "plain.dagp")
    np.testing.assert_array_equal(X, expected["X"])
    np.testing.assert_array_equal(y, expected["y"])
    again = DAGP.load(model.save(tmp_path / "again.dagp"))
    np.testing.assert_array_equal(again.predict(X), model.predict(X))
    assert storage.describe(tmp_path / "again.dagp").version == storage.FORMAT
    assert model.partial_fit(X, y).columns_.plain
