"""The world goes wrong: kills, full disks, folders that cannot be written, too little memory."""

import os
import random
import re
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import numpy as np
import pytest
from faults import Fit, Save, drafts, small, unmeasured

from dagp.errors import StorageError
from dagp.files import atomic
from dagp.files import format as storage

LONGEST = 240


def run(code, *words, **more):
    """A new process, since limits cannot be taken back."""
    return subprocess.run(
        [sys.executable, "-c", textwrap.dedent(code), *map(str, words)],
        capture_output=True,
        text=True,
        timeout=LONGEST,
        # Every thread of the compiler may set addresses aside, and there are as many as cores.
        env=unmeasured() | {"MALLOC_ARENA_MAX": "1"},
        **more,
    )


@pytest.fixture(scope="module")
def model():
    return small()


@pytest.fixture(scope="module")
def fit(tmp_path_factory):
    fit = Fit(tmp_path_factory.mktemp("fit"), processes=1)
    yield fit
    fit.parent.end()


def test_disk_full_keeps_the_old_file(model, tmp_path):
    path = model.save(tmp_path / "model.dagp")
    before = path.read_bytes()
    done = run(
        """
        import resource, signal, sys
        from dagp import DAGP
        model = DAGP.load(sys.argv[1])
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (4096, 4096))
        try:
            model.save(sys.argv[1])
        except ValueError as error:
            print(type(error).__name__, error, sep=": ")
        """,
        path,
        check=True,
    )
    assert done.stdout == f"StorageError: Cannot write {path}: File too large.\n"
    assert path.read_bytes() == before
    assert list(tmp_path.iterdir()) == [path]


def test_read_only_folder_is_said(model, tmp_path):
    """Permissions do not bind everybody: the super-user is kept out by other means."""
    path = tmp_path / "closed" / "model.dagp"
    path.parent.mkdir()
    path.parent.chmod(0o500)
    if os.access(path.parent, os.W_OK):
        # Nobody writes to the kernel's own list of processes, nor below what is a file.
        places = [Path("/proc/model.dagp"), Path(__file__) / "model.dagp"]
    else:
        places = [path]
    for place in places:
        with pytest.raises(StorageError, match=rf"^Cannot write {place}: [\w ]+\.$"):
            model.save(place)


def test_kill_during_save_keeps_a_whole_file(model, tmp_path):
    save = Save(tmp_path, model)
    counts = save.killed(6, random.Random(0))
    save.parent.end()
    assert counts["kills"] == counts["whole"] == 6
    assert counts["left behind"] == 0


def test_what_the_killed_left_is_cleared_away(model, tmp_path):
    path = tmp_path / "model.dagp"
    left = tmp_path / ".model.dagp.abcd1234.draft"
    other = tmp_path / ".other.dagp.abcd1234.draft"
    for draft in (left, other):
        draft.write_bytes(b"half")
    model.save(path)
    assert sorted(tmp_path.iterdir()) == sorted([path, other])
    atomic.discard(other.with_name("other.dagp"))
    assert list(tmp_path.iterdir()) == [path]


def test_what_somebody_is_writing_is_left_alone(tmp_path):
    path = tmp_path / "file"

    def slowly(file):
        atomic.replace(path, lambda other: other.write(b"quick"))
        assert len(drafts(path)) == 1
        file.write(b"slow")

    atomic.replace(path, slowly)
    assert path.read_bytes() == b"slow"
    assert list(tmp_path.iterdir()) == [path]


def test_kill_during_fit_resumes_to_the_same_model(fit):
    counts = fit.killed(2, random.Random(1))
    assert counts["kills"] == 2
    assert counts["identical"] == counts["fits"] >= 1
    assert counts["broken"] == counts["left behind"] == 0


@pytest.mark.slow
def test_many_kills_during_fit_resume_to_the_same_model(tmp_path):
    fit = Fit(tmp_path, processes=2)
    counts = fit.killed(20, random.Random(2))
    fit.parent.end()
    assert counts["identical"] == counts["fits"]
    assert counts["broken"] == 0


def test_a_model_that_cannot_be_saved_leaves_the_checkpoint(fit):
    """The work of hours is not thrown away because the last write failed."""
    out = fit.folder / "full.dagp"
    note = out.with_name("full.dagp.checkpoint")
    victim = fit.start(out)
    fit._wait(victim, note)
    victim.kill()
    before = note.read_bytes()
    assert fit.start(out, limit=2048).code() == 1
    told = fit.parent.log.read_text()
    assert re.search(r"Error: Cannot write \S+: File too large\.", told)
    assert "Traceback" not in told
    assert not out.exists()
    assert note.read_bytes() == before


MEMORY = """
    import resource, sys
    from pathlib import Path
    import jax.numpy, numpy as np

    jax.numpy.zeros(1).block_until_ready()
    from dagp import DAGP
    from dagp.cli.app import app

    taken = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (taken + 2**30, taken + 2**30))
    x, y = np.loadtxt(sys.argv[2], delimiter=",", skiprows=1).T
    try:
        DAGP(1, n_init=1, max_iter=25, inducing=100, batch_size=len(x)).fit(x[:, None], y)
    except MemoryError as error:
        print(error, flush=True)
    app(sys.argv[1:])
"""


def test_memory_limit_is_said(tmp_path):
    """Ample for the programs, far too little for arrays of rows times inducing points."""
    table, out = tmp_path / "data.csv", tmp_path / "model.dagp"
    x = np.linspace(0, 1, 400_000)
    np.savetxt(table, np.c_[x, np.sin(9 * x)], delimiter=",", header="x,y", comments="")
    words = f"fit {table} -t y --processes 1 --inducing 100 --starts 1 --max-iter 25 -o {out}"
    done = run(MEMORY, *words.split(), "--batch-size", len(x))
    assert done.returncode == 1, done.stderr[-2000:]
    assert done.stdout.startswith("Not enough memory; a smaller batch_size")
    assert "Error: Not enough memory; --batch-size" in done.stderr
    assert "Traceback" not in done.stderr
    assert not out.exists()


def test_two_writers_leave_one_whole_file(tmp_path):
    path = tmp_path / "file.dagp"
    code = """
        import sys, time
        import numpy as np
        from dagp.files import format as storage
        print(flush=True)
        sys.stdin.readline()
        for _ in range(60):
            storage.save(sys.argv[1], "thing", {}, np.full(50_000, float(sys.argv[2])))
    """
    words = [sys.executable, "-c", textwrap.dedent(code), str(path)]
    writers = [
        subprocess.Popen([*words, str(n)], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        for n in (1, 2)
    ]
    for writer in writers:
        writer.stdout.readline()
    for writer in writers:
        writer.stdin.write(b"\n")
        writer.stdin.flush()
    seen = set()
    end = time.monotonic() + LONGEST
    while any(writer.poll() is None for writer in writers) and time.monotonic() < end:
        if path.exists():
            values = storage.load(path, "thing")
            assert values.shape == (50_000,)
            assert np.all(values == values[0])
            seen.add(values[0])
    for writer in writers:
        writer.communicate()
        assert writer.returncode == 0
    assert seen <= {1.0, 2.0}
    assert seen
    assert list(tmp_path.iterdir()) == [path]
