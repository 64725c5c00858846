"""Compiled programs on disk: never a wrong one, never an error, the same results."""

import dataclasses
import json
import os
import stat
import subprocess
import sys
import time
from pathlib import Path

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import dagp
from dagp.core import program_files, program_keys, programs
from dagp.core.precision import numerics
from dagp.core.program_files import cache_folder, clear_cache, read, write
from dagp.core.program_keys import UnknownCodeError, describe, describe_tree
from dagp.inference.parallel import stacked
from dagp.kernels import Kernel, SquaredExponential

NUMBERS = np.arange(3.0)
FIT = """
import sys, json, warnings
import jax, numpy as np
from dagp import DAGP
warnings.simplefilter("ignore")
X = np.linspace(0, 1, 40)[:, None]
y = np.sin(6 * X[:, 0]) + np.tile([0.1, -0.1, 0.02, 0.05], 10)
model = DAGP(2, inducing=8, n_init=1, max_iter=25, tol=1.0, random_state=0).fit(X, y)
print(json.dumps([model.lower_bound_, model.responsibilities_.tolist(), model.predict(X).tolist()]))
"""
STACK = """
import numpy as np
from dagp.inference.parallel import stacked
print(float(stacked((np.ones(3), np.full(3, 2.0))).sum()))
"""


class Mine(Kernel):
    """A kernel of a user."""

    active: tuple[int, ...] | None = eqx.field(static=True, default=None)

    def evaluate(self, a, b):
        return jnp.exp(-jnp.sum((a - b) ** 2))

    def in_units(self, x_unit, y_unit):
        return self


class Holder(eqx.Module):
    value: np.ndarray
    static: object = eqx.field(static=True)


@pytest.fixture
def home(tmp_path, monkeypatch):
    """An empty cache folder, and a program that this process has not seen."""
    monkeypatch.setattr("sys.platform", "linux")
    monkeypatch.setenv("DAGP_CACHE", "")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    forget()
    yield tmp_path / "dagp" / "programs"
    forget()


def forget():
    """As in a new process."""
    stacked._chosen.clear()
    stacked._compiled.clear()


def files(folder):
    return sorted(folder.iterdir()) if folder.exists() else []


def refuse(*_):
    raise AssertionError("compiled")


def test_a_program_is_written_and_read(home, monkeypatch, capfd):
    first = stacked((NUMBERS, 2 * NUMBERS))
    (file,) = files(home)
    assert stat.S_IMODE(home.stat().st_mode) == 0o700
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    forget()
    monkeypatch.setattr(programs, "_save", refuse)
    second = stacked((NUMBERS, 2 * NUMBERS))
    np.testing.assert_array_equal(first, second)
    assert not second.committed
    assert capfd.readouterr().err == ""  # XLA's own messages


def test_numpy_and_jax_arrays_share_a_program(home):
    stacked((NUMBERS.astype(np.float32),))
    stacked((jnp.asarray(NUMBERS, np.float32),))
    assert len(files(home)) == stacked._cache_size() == 1


KERNEL = SquaredExponential(1.0, 1.0)


@pytest.mark.parametrize(
    ("tree", "context"),
    [
        ((KERNEL, np.arange(4.0)), numerics("float32")),
        ((KERNEL, NUMBERS[None]), numerics("float32")),
        ((KERNEL, NUMBERS.astype(np.int32)), numerics("float32")),
        ((SquaredExponential(1.0, 1.0, active=[0]), NUMBERS), numerics("float32")),
        ((SquaredExponential(dagp.fixed(1.0), 1.0), NUMBERS), numerics("float32")),
        ([KERNEL, NUMBERS], numerics("float32")),
        ((KERNEL, NUMBERS), numerics("float64")),
        ((KERNEL, NUMBERS), jax.default_matmul_precision("float32")),
    ],
    ids=["length", "rank", "dtype", "static", "frozen", "structure", "x64", "precision"],
)
def test_whatever_changes_a_program_changes_its_name(home, tree, context):
    with numerics("float32"):
        stacked(((KERNEL, NUMBERS),))
    assert len(files(home)) == 1
    with context:
        stacked((tree,))
    assert len(files(home)) == 2


def test_weak_types_are_told_apart(home):
    stacked((1.0,))
    stacked((np.float32(1.0),))
    assert len(files(home)) == 2


def test_a_program_with_code_of_a_user_is_not_kept(home):
    for tree in (Mine(), Holder(NUMBERS, "text"), SquaredExponential() + Mine()):
        stacked((tree, tree))
        assert files(home) == []
    stacked((SquaredExponential(), SquaredExponential()))
    assert len(files(home)) == 1


def test_sources_that_have_changed_meanwhile_are_not_trusted(home, monkeypatch):
    age = time.time() - program_keys._STARTED
    assert 0 < age < 24 * 3600
    program_keys._installation.cache_clear()
    newest = max(path.stat().st_mtime for path in Path(dagp.__file__).parent.rglob("*.py"))
    monkeypatch.setattr(program_keys, "_STARTED", newest - 1)
    stacked((NUMBERS,))
    assert files(home) == []


def test_a_mesh_has_a_name_only_without_devices():
    # Part of the settings that tracing depends on, from version 0.11 of JAX.
    AbstractMesh = jax.sharding.AbstractMesh
    assert describe(AbstractMesh((), ())).endswith("AbstractMesh()")
    with pytest.raises(UnknownCodeError):
        describe(AbstractMesh((2,), ("rows",)))


@pytest.mark.parametrize("value", [lambda x: x, Mine, Mine(), NUMBERS, object(), slice(1)])
def test_code_and_values_that_a_name_does_not_cover_are_refused(value):
    with pytest.raises(UnknownCodeError):
        describe((1, {"a": [value]}))


def test_a_class_that_pretends_to_be_ours_is_refused():
    pretender = dataclasses.make_dataclass("SquaredExponential", [])
    pretender.__module__ = "dagp.model.kernels"
    with pytest.raises(UnknownCodeError):
        describe(pretender)
    assert describe(SquaredExponential) == "dagp.model.kernels.SquaredExponential"


def test_descriptions_differ_where_values_do():
    values = [1, 1.0, True, "1", None, (1,), [1], ((1,),), ("a", "b"), ("a,str:'b'",), b"1", {1: 2}]
    assert len({describe(value) for value in values}) == len(values)
    trees = [1, (1,), [1], (1, 2), ((1, 2),), {"a": 1}, {"b": 1}, None, (None, 1)]
    assert len({describe_tree(jax.tree.structure(tree)) for tree in trees}) == len(trees)


def damaged(file):
    content = bytearray(file.read_bytes())
    content[-100] ^= 1
    file.write_bytes(content)


def truncated(file):
    file.write_bytes(file.read_bytes()[:-7])


def foreign(file):
    file.write_bytes(b"something else")


def empty(file):
    file.write_bytes(b"")


def forged(file):
    # Its checksum is right: it names a function that is not expected.
    evil = b"cos\nsystem\n(S'exit 1'\ntR."
    write(file.name, len(evil).to_bytes(8, "little") + evil)


def from_elsewhere(file):
    write(file.name, (0).to_bytes(8, "little") + b"not an executable")


@pytest.mark.parametrize("harm", [damaged, truncated, foreign, empty, forged, from_elsewhere])
def test_a_file_that_is_not_right_is_replaced(home, harm):
    wanted = stacked((NUMBERS,))
    (file,) = files(home)
    before = file.read_bytes()
    harm(file)
    assert file.read_bytes() != before
    forget()
    np.testing.assert_array_equal(stacked((NUMBERS,)), wanted)
    assert programs._load(file.name, 1) is not None


@pytest.mark.parametrize("mode", [0o620, 0o602, 0o666])
def test_a_file_that_others_can_write_is_not_read(home, mode):
    write("a", b"content")
    assert read("a") == b"content"
    (home / "a").chmod(mode)
    assert read("a") is None


def test_a_folder_that_others_can_write_to_is_not_used(home):
    write("a", b"content")
    home.chmod(0o777)
    write("b", b"content")
    assert read("a") is read("b") is None
    assert clear_cache() == 0
    assert [file.name for file in files(home)] == ["a"]


def test_files_and_folders_of_others_are_not_used(home, monkeypatch):
    write("a", b"content")
    monkeypatch.setattr("os.getuid", lambda: os.geteuid() + 1)
    write("b", b"content")
    assert read("a") is read("b") is None
    assert [file.name for file in files(home)] == ["a"]


def test_links_and_pipes_are_not_followed(home, tmp_path):
    write("a", b"content")
    (home / "b").symlink_to(home / "a")
    os.mkfifo(home / "c")
    assert read("b") is read("c") is None


@pytest.mark.parametrize("word", ["off", "OFF", "0", "no", "false"])
def test_it_can_be_switched_off(home, monkeypatch, word):
    monkeypatch.setenv("DAGP_CACHE", word)
    assert cache_folder() is None
    stacked((NUMBERS,))
    assert files(home) == []
    assert clear_cache() == 0


def test_where_there_is_no_folder_programs_are_compiled(home, monkeypatch, tmp_path):
    (tmp_path / "file").write_text("")
    for place in (str(tmp_path / "file"), "/proc/none", "relative"):
        monkeypatch.setenv("XDG_CACHE_HOME", place)
        monkeypatch.setenv("HOME", str(tmp_path / "file"))
        forget()
        np.testing.assert_array_equal(stacked((NUMBERS,))[0], NUMBERS)


def test_a_full_disk_leaves_nothing_behind(home, monkeypatch):
    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.replace", full)
    np.testing.assert_array_equal(stacked((NUMBERS,))[0], NUMBERS)
    assert files(home) == []


def test_the_programs_used_longest_ago_make_room(home, monkeypatch):
    monkeypatch.setattr(program_files, "LIMIT", 1000)
    for age, name in enumerate("abc"):
        write(name, bytes(200))
        os.utime(home / name, (age, age))
    assert read("a") is not None  # used just now
    write("d", bytes(240))
    assert [file.name for file in files(home)] == ["a", "c", "d"]
    write("e", bytes(2000))
    assert [file.name for file in files(home)] == ["a", "c", "d"]


def test_clear_cache_says_what_it_freed(home):
    assert dagp.clear_cache() == 0
    stacked((NUMBERS,))
    stacked((NUMBERS, NUMBERS))
    size = sum(file.stat().st_size for file in files(home))
    assert dagp.clear_cache() == size > 0
    assert files(home) == []


def test_settings_of_the_user_stay(home):
    before = dict(jax.config.values), dict(os.environ)
    stacked((NUMBERS,))
    forget()
    stacked((NUMBERS,))
    assert (dict(jax.config.values), dict(os.environ)) == before


def test_inside_of_other_transformations_it_is_jit(home):
    pair = np.arange(6.0).reshape(2, 3).astype(np.float32)
    np.testing.assert_array_equal(jax.vmap(lambda x: stacked((x, x)))(pair)[:, 0], pair)
    np.testing.assert_array_equal(jax.jit(lambda x: stacked((x, x)))(pair)[1], pair)
    np.testing.assert_array_equal(jax.grad(lambda x: stacked((x, x)).sum())(pair), 0 * pair + 2)
    assert jax.eval_shape(stacked, (pair,)).shape == (1, 2, 3)
    with jax.disable_jit():
        np.testing.assert_array_equal(stacked((pair,))[0], pair)
    placed = jax.device_put(pair, jax.devices()[0])
    assert stacked((placed,)).committed
    assert files(home) == []


def run(code, home, **environment):
    return subprocess.Popen(
        [sys.executable, "-c", code],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=os.environ | {"XDG_CACHE_HOME": str(home.parents[1]), "DAGP_CACHE": ""} | environment,
    )


def test_two_processes_at_once_and_several_devices(home):
    two = [run(STACK, home) for _ in range(2)]
    for process in two:
        assert process.communicate(timeout=120) == ("9.0\n", "")
    assert len(files(home)) == 1
    several = run(STACK, home, XLA_FLAGS="--xla_force_host_platform_device_count=2")
    assert several.communicate(timeout=120)[0] == "9.0\n"
    assert len(files(home)) == 1


def test_results_do_not_depend_on_what_is_kept(home):
    found = []
    for environment in ({"DAGP_CACHE": "off"}, {}, {"JAX_LOG_COMPILES": "1"}):
        out, messages = run(FIT, home, **environment).communicate(timeout=300)
        found.append(json.loads(out))
        assert bool(files(home)) == (environment != {"DAGP_CACHE": "off"})
    assert found[0] == found[1] == found[2]
    # The last process has neither traced nor compiled anything of ours; from version 0.12, JAX
    # compiles a copy (`stage`) for every array that comes from NumPy.
    assert [line for line in messages.splitlines() if "stage" not in line] == []


def test_where_jax_keeps_programs_itself_we_do_not(home, tmp_path):
    own = {
        "JAX_COMPILATION_CACHE_DIR": str(tmp_path / "jax"),
        "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0",
    }
    for _ in range(3):
        assert run(STACK, home, **own).communicate(timeout=120)[0] == "9.0\n"
    assert files(tmp_path / "jax")
    assert files(home) == []
