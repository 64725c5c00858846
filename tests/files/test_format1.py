"""Files of dagp 0.1 (format 1): what users have saved still loads and predicts as it did."""

import json
import shutil
import struct
from pathlib import Path

import jax
import numpy as np
import pytest

from dagp import DAGP
from dagp.core.tags import class_of
from dagp.errors import StorageError
from dagp.files import format as storage
from dagp.files import migrations
from dagp.files.modelfile import CHECKPOINT
from dagp.inference.train import Result

FOLDER = Path(__file__).parent / "format1"
KINDS = ("plain", "heteroscedastic", "deep", "clutter", "concrete")
SETTINGS = {
    "n_processes": 2,
    "n_init": 2,
    "tol": 1e-2,
    "max_iter": 100,
    "inducing": 12,
    "random_state": 0,
}


def arrays_in(path):
    """Every array of a file, read without this library."""
    content = path.read_bytes()
    _, version, length, _ = struct.unpack("<8sIQ32s", content[:52])
    assert version == 1
    described = json.loads(content[52 : 52 + length])
    begin = -(-(52 + length) // 64) * 64
    for array in described["arrays"]:
        count = int(np.prod(array["shape"]))
        raw = content[begin + array["place"] :][: count * np.dtype(array["dtype"]).itemsize]
        yield np.frombuffer(raw, array["dtype"]).reshape(array["shape"])


def answers(model, X, y):
    """As in `make_format1.py`."""
    mixture = model.predict_mixture(X)
    return {
        "weights": mixture.weights,
        "means": mixture.means,
        "variances": mixture.variances,
        "gate": model.predict_assignment(X),
        "responsibilities": model.responsibilities(X, y),
        "shares": np.array([process.share_ for process in model.processes_]),
        "noise_std": np.stack([process.noise_std(X) for process in model.processes_]),
    }


@pytest.mark.parametrize("kind", KINDS)
def test_every_array_is_the_one_that_was_written(kind):
    model = DAGP.load(FOLDER / f"{kind}.dagp")
    written = {a.tobytes() for a in arrays_in(FOLDER / f"{kind}.dagp")}
    for leaf in jax.tree.leaves((model.posterior_.model, model.stream_.model)):
        assert np.asarray(leaf).tobytes() in written


@pytest.mark.parametrize("kind", KINDS)
def test_it_predicts_as_it_did(kind):
    model, expected = DAGP.load(FOLDER / f"{kind}.dagp"), np.load(FOLDER / f"{kind}.npz")
    for name, found in answers(model, expected["X"], expected["y"]).items():
        # Bit for bit where programs are compiled alike; the compiler of the tests is another one.
        np.testing.assert_allclose(found, expected[name], rtol=1e-8, atol=1e-10, err_msg=name)


@pytest.mark.parametrize("kind", KINDS)
def test_saved_again_it_is_the_same_model(kind, tmp_path):
    old = DAGP.load(FOLDER / f"{kind}.dagp")
    new = DAGP.load(old.save(tmp_path / "new.dagp"))
    assert storage.describe(tmp_path / "new.dagp").version == storage.FORMAT
    X = np.load(FOLDER / f"{kind}.npz")["X"]
    for one, other in ((old.predict_mixture(X), new.predict_mixture(X)),):
        np.testing.assert_array_equal(one.means, other.means)
        np.testing.assert_array_equal(one.variances, other.variances)
    trees = [jax.tree.leaves(model.posterior_.model) for model in (old, new)]
    assert all(np.array_equal(a, b) for a, b in zip(*trees, strict=True))


def test_a_stream_goes_on_with_its_optimiser():
    model, data = DAGP.load(FOLDER / "plain.dagp"), np.load(FOLDER / "plain.npz")
    assert model.stream_.opt_state is not None
    before = model.stream_.steps
    model.partial_fit(data["X"][:40], data["y"][:40])
    assert model.stream_.steps == before + 1


def test_a_stream_counts_the_points_of_a_constant_gate():
    model, data = DAGP.load(FOLDER / "clutter.dagp"), np.load(FOLDER / "clutter.npz")
    few = model.assignment_ == 0
    before = model.predict_assignment([[0.0]])[0, 0]
    for _ in range(5):
        model.partial_fit(data["X"][few], data["y"][few])
    after = model.predict_assignment([[0.0]])[0]
    assert after[0] > before and after.sum() == pytest.approx(1.0)


def test_a_checkpoint_of_an_older_search_is_read_and_refused(tmp_path):
    data = np.load(FOLDER / "checkpoint.npz")
    path = Path(shutil.copy(FOLDER / "checkpoint.dagp", tmp_path))
    tree = storage.load(path, CHECKPOINT)
    assert all(isinstance(run, Result) for run in tree["finished"])
    assert len(tree["finished"]) > 1
    # Its runs are not those that the search would make now.
    with pytest.raises(StorageError, match="of another version; remove it"):
        DAGP(**SETTINGS, checkpoint=path, resume=True).fit(data["X"], data["y"])
    assert path.exists()


@pytest.mark.parametrize("changed", [{"random_state": 1}, {"inducing": 11}])
def test_a_checkpoint_of_another_fit_is_still_refused(changed, tmp_path):
    data = np.load(FOLDER / "checkpoint.npz")
    path = Path(shutil.copy(FOLDER / "checkpoint.dagp", tmp_path))
    settings = SETTINGS | changed
    with pytest.raises(StorageError, match="other data or settings"):
        DAGP(**settings, checkpoint=path, resume=True).fit(data["X"], data["y"])


def test_every_class_of_format_1_has_a_tag_that_is_known():
    storage._import_storable()
    for name, tag in migrations._FORMAT_1_CLASSES.items():
        assert class_of(tag) is not None, f"{name} is now {tag}, which no class declares"


def test_names_can_be_brought_back_to_format_1():
    old = {"!": "train.State", "fields": {"model": None, "moments": 1}}
    described = {"kind": "thing", "about": {}, "tree": [old], "arrays": []}
    new = migrations.MIGRATIONS[1](described)["tree"]
    assert new == [{"!": "inference/State", "fields": {"model": None, "opt_state": 1}}]
    assert migrations.as_format_1(new) == [old]
