"""Files of format 5, in which hyperparameters were taken as known: they load and predict as they
did."""

from pathlib import Path

import numpy as np

from dagp import DAGP
from dagp.files import format as storage

FOLDER = Path(__file__).parent / "format5"


def test_it_predicts_as_it_did(tmp_path):
    assert storage.describe(FOLDER / "known.dagp").version == 5
    with np.load(FOLDER / "known.npz") as arrays:
        expected = dict(arrays)
    X, y = expected["X"], expected["y"]
    model = DAGP.load(FOLDER / "known.dagp")
    mean, std = model.predict(X, return_std=True)
    np.testing.assert_allclose(mean, expected["mean"], rtol=1e-8, atol=1e-10)
    np.testing.assert_allclose(std, expected["std"], rtol=1e-8, atol=1e-10)
    np.testing.assert_allclose(
        model.responsibilities(X, y), expected["shares"], rtol=1e-6, atol=1e-10
    )
    assert (model.posterior, model.log_stds_) == ("best", [{}, {}])
    assert "–" not in model.summary()
    again = DAGP.load(model.save(tmp_path / "again.dagp"))
    np.testing.assert_array_equal(again.predict(X), model.predict(X))
    assert storage.describe(tmp_path / "again.dagp").version == storage.FORMAT
