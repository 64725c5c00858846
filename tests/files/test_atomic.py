"""Files are written whole, and nothing of the user's is removed or widened."""

import os
import stat
import threading

import numpy as np
import pytest

from dagp import DAGP, StorageError
from dagp.files.atomic import Hold, replace
from dagp.files.modelfile import discard_checkpoint

QUICK = {"inducing": 9, "n_init": 1, "tol": 1e-1, "random_state": 0}
X = np.linspace(-1, 1, 20)[:, None]


def mode(path):
    return stat.S_IMODE(path.stat().st_mode)


def write(path, content=b"new"):
    return replace(path, lambda file: file.write(content))


@pytest.mark.parametrize("given", [0o600, 0o640, 0o444])
def test_a_file_keeps_its_permissions(tmp_path, given):
    path = tmp_path / "model"
    path.write_bytes(b"old")
    path.chmod(given)
    write(path)
    assert path.read_bytes() == b"new"
    assert mode(path) == given


def test_a_new_file_has_the_usual_permissions(tmp_path):
    plain = tmp_path / "plain"
    plain.write_bytes(b"")
    assert mode(write(tmp_path / "model")) == mode(plain)


@pytest.mark.parametrize("exists", [True, False])
def test_a_link_is_followed(tmp_path, exists):
    target, link = tmp_path / "folder" / "target", tmp_path / "link"
    target.parent.mkdir()
    if exists:
        target.write_bytes(b"old")
    link.symlink_to(target)
    assert write(link) == link
    assert link.is_symlink()
    assert target.read_bytes() == b"new"
    assert os.listdir(target.parent) == ["target"]


def test_a_pipe_is_written_to(tmp_path):
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    found = []
    reader = threading.Thread(target=lambda: found.append(pipe.read_bytes()), daemon=True)
    reader.start()
    write(pipe)
    reader.join(timeout=20)
    assert found == [b"new"]
    assert stat.S_ISFIFO(pipe.stat().st_mode)


def test_a_writer_that_fails_leaves_the_old_file(tmp_path):
    path = tmp_path / "model"
    path.write_bytes(b"old")

    def fail(file):
        file.write(b"half")
        raise OSError(28, "No space left on device")

    with pytest.raises(StorageError, match="No space left"):
        replace(path, fail)
    assert path.read_bytes() == b"old"
    assert os.listdir(tmp_path) == ["model"]


def test_a_file_that_is_no_checkpoint_is_not_touched(tmp_path):
    precious = tmp_path / "precious.csv"
    precious.write_text("a,b\n1,2\n")
    with pytest.raises(StorageError, match=r"precious\.csv exists and is not a whole checkpoint"):
        DAGP(1, checkpoint=precious, **QUICK).fit(X, X[:, 0])
    assert precious.read_text() == "a,b\n1,2\n"


def test_a_checkpoint_goes_when_the_fit_is_complete(tmp_path):
    path = tmp_path / "fit.checkpoint"
    DAGP(1, checkpoint=path, checkpoint_every=0.0, **QUICK).fit(X, X[:, 0])
    assert not path.exists()
    # A file that has taken its place meanwhile stays.
    path.write_text("mine")
    model = DAGP(1, **QUICK).fit(X, X[:, 0])
    model.set_params(checkpoint=path)
    discard_checkpoint(model)
    assert path.read_text() == "mine"


def test_names_as_long_as_the_file_system_allows(tmp_path):
    path = tmp_path / ("n" * 255)
    for content in (b"old", b"new"):
        write(path, content)
        assert path.read_bytes() == content
    assert os.listdir(tmp_path) == [path.name]
    held = Hold(path)
    with pytest.raises(StorageError, match="in use"):
        Hold(path)
    held.release()


def test_names_with_a_null_character_are_refused_in_words(tmp_path):
    model = DAGP(1, **QUICK).fit(X, X[:, 0])
    name = str(tmp_path / "a\0b")
    for call in (
        lambda: model.save(name),
        lambda: DAGP.load(name),
        lambda: DAGP(1, checkpoint=name, **QUICK).fit(X, X[:, 0]),
    ):
        with pytest.raises(StorageError, match=r"'.*a\\x00b' cannot be a file name"):
            call()
