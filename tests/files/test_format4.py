"""Files of format 4, in which all noise was Gaussian: they load and predict as they did."""

from pathlib import Path

import numpy as np

from dagp import DAGP, GP
from dagp.files import format as storage

FOLDER = Path(__file__).parent / "format4"


def test_it_predicts_as_it_did(tmp_path):
    assert storage.describe(FOLDER / "noise.dagp").version == 4
    with np.load(FOLDER / "noise.npz") as arrays:
        expected = dict(arrays)
    X, y = expected["X"], expected["y"]
    model = DAGP.load(FOLDER / "noise.dagp")
    mean, std = model.predict(X, return_std=True)
    np.testing.assert_allclose(mean, expected["mean"], rtol=1e-8, atol=1e-10)
    np.testing.assert_allclose(std, expected["std"], rtol=1e-8, atol=1e-10)
    np.testing.assert_allclose(
        model.responsibilities(X, y), expected["shares"], rtol=1e-6, atol=1e-10
    )
    assert [process.noise_ for process in model.processes_] == ["gaussian"] * 3
    first, _, deep = model.processes
    assert first == GP(noise_gp=GP()) and (deep.noise, deep.degrees) == ("gaussian", None)
    again = DAGP.load(model.save(tmp_path / "again.dagp"))
    np.testing.assert_array_equal(again.predict(X), model.predict(X))
    assert storage.describe(tmp_path / "again.dagp").version == storage.FORMAT
