"""Files gone wrong: one clear error, and the old file stays until the new one is whole."""

import json
import resource
import subprocess
import sys
import textwrap
from pathlib import Path

import equinox as eqx
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dagp import DAGP
from dagp.core import tags
from dagp.errors import StorageError
from dagp.files import atomic, migrations, modelfile
from dagp.files import format as storage

OLD = Path(__file__).parent / "format1" / "clutter.dagp"


@pytest.fixture(scope="module")
def model():
    """A model that need not be trained: an old file, which becomes a new one when saved."""
    return DAGP.load(OLD)


@pytest.fixture
def saved(model, tmp_path):
    return model.save(tmp_path / "model.dagp", modelfile.training_data(OLD))


# -------------------------------------------------------------------------------------- reading


def test_every_single_damaged_byte_is_noticed(saved):
    whole = saved.read_bytes()
    rng = np.random.default_rng(0)
    header = storage.describe(saved)
    # Bytes between the arrays are padding and mean nothing; all others do.
    places = np.unique([*rng.integers(0, 60, 10), *rng.integers(0, len(whole), 150)])
    unnoticed = 0
    for place in places:
        broken = bytearray(whole)
        broken[place] ^= 1 << int(rng.integers(8))
        saved.write_bytes(broken)
        try:
            storage.load(saved, "model")
            unnoticed += place >= header.begin - 64 and whole[place] == 0
            assert whole[place] == 0, f"byte {place}"
        except StorageError:
            pass
    assert unnoticed < 20


@pytest.mark.parametrize("share", [0.0, 0.001, 0.1, 0.5, 0.99, 0.9999])
def test_truncated_files_are_refused(saved, share):
    whole = saved.read_bytes()
    saved.write_bytes(whole[: int(share * len(whole))])
    with pytest.raises(StorageError):
        DAGP.load(saved)


def test_something_appended_is_noticed(saved):
    saved.write_bytes(saved.read_bytes() + b"x")
    with pytest.raises(StorageError, match="bytes"):
        DAGP.load(saved)


@pytest.mark.parametrize(
    "content", [b"", b"PK\x03\x04", b"\x80\x04\x95", b"a,b\n1,2\n", b"\x89DAGP\r\n\x1a"]
)
def test_other_files_are_refused_unread(tmp_path, content):
    path = tmp_path / "other.dagp"
    path.write_bytes(content)
    with pytest.raises(StorageError, match="not a dagp file"):
        DAGP.load(path)


def test_a_newer_format_names_both_versions(saved, monkeypatch):
    monkeypatch.setattr(storage, "FORMAT", 7)
    storage.save(saved, "model", {}, {})
    monkeypatch.undo()
    with pytest.raises(StorageError, match=rf"version 7.*up to {storage.FORMAT}"):
        DAGP.load(saved)


def test_an_older_format_is_migrated(tmp_path, monkeypatch):
    path = storage.save(tmp_path / "old.dagp", "thing", {"old": 1}, {"a": 1})
    monkeypatch.setattr(storage, "FORMAT", storage.FORMAT + 1)
    monkeypatch.setitem(
        migrations.MIGRATIONS,
        storage.FORMAT - 1,
        lambda d: {**d, "about": {"new": d["about"]["old"]}},
    )
    assert storage.describe(path).about == {"new": 1}
    assert storage.load(path, "thing") == {"a": 1}


def forged(path, **changes):
    """A file whose description was changed by somebody who knows how to compute digests."""
    storage.save(path, "thing", {}, [np.arange(6.0)])
    header = storage.describe(path)
    described = {"kind": "thing", "about": {}, "tree": header.tree, "arrays": header.arrays}
    described["arrays"][0].update(changes.pop("array", {}))
    described.update(changes)
    rest = path.read_bytes()[header.begin :]
    text = json.dumps(described).encode()
    digest = storage.hashlib.blake2b(text, digest_size=32).digest()
    prefix = storage._PREFIX.pack(storage.MAGIC, storage.FORMAT, len(text), digest)
    path.write_bytes((prefix + text).ljust(storage._begin(len(text)), b"\0") + rest)
    return path


@pytest.mark.parametrize(
    "changes",
    [
        {"array": {"shape": [10**12]}},
        {"array": {"shape": [10**9, 10**9, 10**9]}},
        {"array": {"shape": [-6]}},
        {"array": {"shape": [6.0]}},
        {"array": {"shape": "six"}},
        {"array": {"dtype": "object"}},
        {"array": {"place": -64}},
        {"array": {"place": 10**15}},
        {"arrays": [{}]},
        {"arrays": {}},
        {"tree": {"!": "os.system", "fields": {"command": "true"}}},
        {"tree": {"!": "prior/GP", "fields": {"kernel": None}}},
        {"tree": {"!": "array", "number": 7, "shape": [1]}},
        {"tree": {"no": "mark"}},
        {"tree": [[]] * 3 + [{"!": "float", "text": "one"}]},
        {"kind": 3},
        {"about": []},
    ],
)
def test_crafted_files_are_refused(tmp_path, changes):
    path = forged(tmp_path / "forged.dagp", **changes)
    with pytest.raises(StorageError):
        storage.load(path, "thing")


@pytest.mark.parametrize(
    "shell",
    [
        lambda tree: [tree],
        lambda tree: {storage._MARK: "tuple", "items": [tree]},
        lambda tree: {storage._MARK: "dict", "items": [["in", tree]]},
    ],
)
def test_deep_nesting_is_refused(tmp_path, shell):
    tree: object = []
    for _ in range(2 * storage._DEEPEST + 1):
        tree = shell(tree)
    with pytest.raises(StorageError, match="too deep"):
        storage.load(forged(tmp_path / "deep.dagp", tree=tree), "thing")


@pytest.mark.parametrize("shell", [list, lambda item: (item[0],), lambda item: {"in": item[0]}])
def test_deep_nesting_of_any_kind_is_not_saved(tmp_path, shell):
    tree: object = []
    for _ in range(200):
        tree = shell([tree])
    with pytest.raises(StorageError, match="deeply"):
        storage.save(tmp_path / "deep.dagp", "thing", {}, tree)


def test_a_model_whose_parts_do_not_fit_is_refused_at_loading(model, tmp_path):
    tree = {"estimator": modelfile._taken_apart(model), "data": None}
    tree["estimator"]["fitted"]["responsibilities_"] = np.ones((3, 2))
    path = storage.save(tmp_path / "odd.dagp", "model", {}, tree)
    with pytest.raises(StorageError, match="whole model"):
        DAGP.load(path)


def test_a_checkpoint_is_not_a_model(tmp_path):
    path = storage.save(tmp_path / "c", "checkpoint", {}, {})
    with pytest.raises(StorageError, match="holds a checkpoint, not a model"):
        DAGP.load(path)


# ------------------------------------------------------------------------------------- writing


def test_a_failed_write_leaves_the_old_file(saved, model):
    before = saved.read_bytes()

    def fill(file):
        file.write(b"half")
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        atomic.replace(saved, fill)
    assert saved.read_bytes() == before
    assert list(saved.parent.iterdir()) == [saved]


def test_a_full_disk_is_an_error_and_not_a_file(tmp_path):
    code = textwrap.dedent(f"""
        import resource, signal, numpy as np
        from dagp import StorageError
        from dagp.files import format as storage
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (10_000, 10_000))
        try:
            storage.save({str(tmp_path / "big.dagp")!r}, "thing", {{}}, np.zeros(100_000))
        except StorageError as error:
            print(error)
    """)
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert "Cannot write" in done.stdout
    assert "File too large" in done.stdout
    assert not list(tmp_path.iterdir())
    assert resource.getrlimit(resource.RLIMIT_FSIZE)[0] != 10_000


def test_a_folder_that_is_not_there(tmp_path):
    with pytest.raises(StorageError, match=r"Cannot write.*No such file"):
        storage.save(tmp_path / "nowhere" / "m.dagp", "thing", {}, 1)
    with pytest.raises(StorageError, match="Cannot read"):
        storage.load(tmp_path / "nothing.dagp", "thing")


def test_classes_of_the_user_must_be_made_known(tmp_path):
    class Mine(eqx.Module):
        number: float

    with pytest.raises(StorageError, match=r"Mine cannot be saved.*register"):
        storage.save(tmp_path / "m", "thing", {}, Mine(2.0))
    tags.register(Mine)
    storage.save(tmp_path / "m", "thing", {}, Mine(2.0))
    assert storage.load(tmp_path / "m", "thing").number == 2.0
    with pytest.raises(TypeError):
        tags.register(int)


leaves = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-(2**70), 2**70),
    st.floats(),
    st.text(max_size=5),
    st.sampled_from([np.float64(1.5), np.arange(3), np.zeros((0, 2)), np.array(True)]),
)
trees = st.recursive(
    leaves,
    lambda inner: st.one_of(
        st.lists(inner, max_size=3),
        st.tuples(inner, inner),
        st.dictionaries(st.text(max_size=3), inner, max_size=3),
    ),
    max_leaves=8,
)


@given(trees)
def test_any_tree_comes_back(tmp_path_factory, tree):
    path = storage.save(tmp_path_factory.mktemp("t") / "f", "thing", {}, tree)
    again = storage.load(path, "thing")
    assert storage.fingerprint(again) == storage.fingerprint(tree)
    assert repr(again) == repr(tree)
