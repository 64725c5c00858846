"""Workers that fit together and do not agree, are killed, or find their port in use."""

import os
import signal
import socket
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from dagp import DAGP, datasets, distributed
from dagp.cli import launch
from dagp.cli.worker import PORT_TAKEN, WORKER_LOST

LIMIT = 900
"""Seconds: many times what a launch takes alone on two cores."""
ENVIRONMENT = {"JAX_DISABLE_MOST_OPTIMIZATIONS": "1", "DAGP_CACHE": "off"}


def start(program, *words, cwd=None, **environment):
    return subprocess.Popen(
        [sys.executable, "-c", program, *words],
        cwd=cwd,
        env=os.environ | ENVIRONMENT | environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def side_by_side(programs, *words, folders=(None, None)):
    """What two workers print, each with its program and folder."""
    coordinator = f"127.0.0.1:{launch._free_port()}"
    workers = [
        start(
            program,
            *words,
            cwd=folder,
            **distributed.Place(coordinator, 2, rank).environment(),
        )
        for rank, (program, folder) in enumerate(zip(programs, folders, strict=True))
    ]
    told = [worker.communicate(timeout=LIMIT) for worker in workers]
    return [(w.returncode, *output) for w, output in zip(workers, told, strict=True)]


DIFFERENT = """
import numpy as np
from dagp import DAGP, distributed

distributed.initialize()
rank = 0 if distributed.leading() else 1
X, y, ones, unknown = np.arange(20.0)[:, None], np.arange(20.0), np.ones(20), np.full(20, -1)
more = {"sample_weight": ones, "labels": unknown}
# The last of 20 rows, the smallest difference, one worker.
last = np.r_[np.zeros(19), rank]
cases = [
    (X[: 20 - rank], y[: 20 - rank], {}, {}),
    (np.column_stack([X] * (1 + rank)), y, {}, {}),
    (X + 1e-14 * last[:, None], y, {}, {}),
    (X, y + 1e-14 * last, {}, {}),
    (X, y, more | {"sample_weight": ones + last}, {}),
    (X, y, more | {"labels": unknown + last.astype(int)}, {}),
    (X + last[:, None], y - last, {}, {}),
    (X, y, {}, {"n_init": 2 + rank, "tol": 0.1 + rank}),
]
with distributed.together():
    for X, y, more, settings in cases:
        try:
            DAGP(2, **{"random_state": 0} | settings).fit(X, y, **more)
        except ValueError as error:
            print(error)
"""


def test_workers_with_different_data_or_settings_refuse_in_words():
    found = side_by_side([DIFFERENT] * 2)
    assert [code for code, _, _ in found] == [0, 0], found
    words = "All workers must fit the same; worker 1 differs from worker 0 in"
    expected = [
        "the number of rows (19, not 20), X, y, sample_weight, labels.",
        "the number of columns of X (2, not 1), X.",
        "X.",
        "y.",
        "sample_weight.",
        "labels.",
        "X, y.",
        "n_init (3, not 2), tol.",
    ]
    for _, out, _ in found:
        told = [line for line in out.splitlines() if "Gloo" not in line]
        assert told == [f"{words} {line}" for line in expected]


FIT = "from dagp.cli import main; main()"
WORDS = "fit data.csv -t y --processes 1 --starts 1 --inducing 8 --max-iter 50 --checkpoint-every 0"


def write_table(folder, n=60, name="y", seed=1):
    folder.mkdir(exist_ok=True)
    data = datasets.noise_separation(0.3, n=n, random_state=seed)
    table, header = np.column_stack([data.X, data.y]), f"x,{name}"
    np.savetxt(folder / "data.csv", table, delimiter=",", header=header, comments="")
    return folder


@pytest.mark.slow
def test_a_worker_that_alone_finds_a_mistake_tells_it_and_the_others_end(tmp_path):
    folders = write_table(tmp_path / "0"), write_table(tmp_path / "1", name="z")
    found = side_by_side([FIT] * 2, *WORDS.split(), folders=folders)
    (first, _, _), (second, _, told) = found
    assert second == 2 and "no column 'y'" in told
    assert first in (WORKER_LOST, -signal.SIGABRT), found
    assert "Traceback" not in told and not (folders[0] / "model.dagp").exists()


@pytest.mark.slow
def test_the_command_line_refuses_different_tables_and_checkpoints(tmp_path):
    folders = write_table(tmp_path / "0"), write_table(tmp_path / "1", n=59)
    found = side_by_side([FIT] * 2, *WORDS.split(), folders=folders)
    assert [code for code, _, _ in found] == [2, 2]
    assert "worker 1 differs from worker 0 in the number of rows (59, not 60)" in found[0][2]
    # The same data, and a checkpoint that one of them does not see.
    write_table(tmp_path / "1")
    with start(FIT, *WORDS.split(), cwd=folders[0]) as process:
        while not (folders[0] / "model.dagp.checkpoint").exists():
            assert process.poll() is None
        process.kill()
    found = side_by_side([FIT] * 2, *WORDS.split(), "--resume", folders=folders)
    assert [code for code, _, _ in found] == [2, 2]
    assert "worker 1 differs from worker 0 in the checkpoint" in found[0][2]
    assert "file system that all workers share" in found[0][2]


AFTER_0 = "while kill -0 $WORKER_0; do sleep .05; done 2>/dev/null;"
"""Wait until the end of worker 0 has been noticed: until then it can be signalled."""


@pytest.mark.parametrize(
    ("ends", "code", "reason"),
    [
        (["sleep 60", "kill -9 $$"], WORKER_LOST, "Worker 1 ended with signal 9"),
        # The cause is not the one that JAX aborts, nor the one that says it has lost the other.
        (["kill -6 $$", f"{AFTER_0} kill -9 $$"], WORKER_LOST, "Worker 1 ended with signal 9"),
        (["exit 75", "kill -9 $$"], WORKER_LOST, "Worker 1 ended with signal 9"),
        (["exit 75", "sleep 60"], WORKER_LOST, "Worker 0 lost the others"),
        (["kill -6 $$", f"{AFTER_0} kill -6 $$"], WORKER_LOST, "Worker 0 ended with signal 6"),
        ([f"exit {PORT_TAKEN}", "sleep 60"], PORT_TAKEN, "Another program has taken the port"),
        # A mistake is not repeated, whatever it does to the other.
        (["kill -6 $$", "exit 2"], 2, ""),
        (["exit 75", "exit 2"], 2, ""),
        (["exit 2", "exit 75"], 2, ""),
    ],
)
def test_the_cause_of_a_failure(ends, code, reason, tmp_path, monkeypatch, capsys):
    # A worker that stays is waited for in vain; the others may be slow to end on a busy machine.
    monkeypatch.setattr(launch, "GRACE", 0.5 if "sleep 60" in ends else 60.0)
    workers: list[subprocess.Popen[bytes]] = []
    for end in ends:
        first = {"WORKER_0": str(workers[0].pid)} if workers else {}
        workers.append(subprocess.Popen(["sh", "-c", end], env={**os.environ, **first}))
    (tmp_path / "1.log").write_text("noise\nError: no such column.\n")
    try:
        outcome = launch._WorkerGroup(workers, tmp_path).wait(60)
    finally:
        launch._kill_all(workers)
    assert outcome.code == code and outcome.reason.startswith(reason)
    told = "Worker 1: Error: no such column." in capsys.readouterr().err
    assert told == (ends[1] == "exit 2")


@pytest.fixture
def taken():
    """A port on which another program listens."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        yield listener.getsockname()[1]


def test_a_port_that_is_in_use_is_refused_in_words(taken, monkeypatch):
    place = distributed.Place(f"127.0.0.1:{taken}", 2, 0)
    with pytest.raises(OSError, match=rf"127\.0\.0\.1:{taken}.*in use.*DAGP_COORDINATOR sets"):
        distributed.initialize(place)
    monkeypatch.setenv("DAGP_LISTEN", "all")
    with pytest.raises(OSError, match="in use"):
        distributed.initialize(place)


@pytest.mark.parametrize("coordinator", ["node", ":1234", "node:", "node:http", "node:70000"])
def test_an_address_that_is_none(coordinator):
    with pytest.raises(ValueError, match="must be auto or host:port"):
        distributed.initialize(distributed.Place(coordinator, 2, 0))


def test_a_host_that_does_not_exist():
    with pytest.raises(OSError, match=r"there is no host 'nowhere\.invalid'"):
        distributed.initialize(distributed.Place("nowhere.invalid:1234", 2, 0))


def test_no_cluster_to_detect(monkeypatch):
    for name in [name for name in os.environ if name.startswith(("SLURM_", "OMPI_"))]:
        monkeypatch.delenv(name)
    with pytest.raises(ValueError, match="found no job step"):
        distributed.initialize(distributed.Place("auto"))


OTHER_PORT = """
import sys
from dagp.cli import launch, main

free, ports = launch._free_port, [int(sys.argv.pop())]
launch._free_port = lambda: ports.pop() if ports else free()
main()
"""


@pytest.mark.slow
def test_launch_takes_another_port_where_one_is_in_use(taken, tmp_path):
    write_table(tmp_path)
    words = ["launch", "--", *WORDS.split(), str(taken)]
    with start(OTHER_PORT, *words, cwd=tmp_path) as process:
        out, told = process.communicate(timeout=LIMIT)
    assert process.returncode == 0, told
    assert "Another program has taken the port of the workers; restarting" in told
    assert "Model: model.dagp" in out and (tmp_path / "model.dagp").exists()


STAGES = {
    "start": ("dagp/distributed.py", "initialize"),
    "race": ("dagp/search/race.py", "race"),
    "moves": ("dagp/search/improve.py", "improve"),
    "training": ("dagp/search/improve.py", "level_off"),
    "reading off": ("dagp/fitting.py", "_read_off"),
    "saving": ("dagp/files/modelfile.py", "save"),
    "end": ("dagp/cli/fit.py", "_name"),
}
DYING = """
import os, signal, sys
stage, rank, mark = {stage!r}, {rank!r}, {mark!r}

def look(frame, event, _):
    code = frame.f_code
    if event == "call" and code.co_name == stage[1] and code.co_filename.endswith(stage[0]):
        open(mark, "w").close()
        os.kill(os.getpid(), signal.SIGKILL)

if os.environ.get("DAGP_PROCESS") == rank and not os.path.exists(mark):
    sys.setprofile(look)
"""
"""Ends a worker when it first calls a function; the worker that replaces it is spared."""
TWO = "fit data.csv -t y --processes 2 --starts 2 --inducing 8 --max-iter 50 --checkpoint-every 0"


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory):
    """The model of two workers of which none is killed."""
    folder = write_table(tmp_path_factory.mktemp("undisturbed"))
    with start(FIT, "launch", "--", *TWO.split(), cwd=folder) as process:
        told = process.communicate(timeout=LIMIT)
    assert process.returncode == 0, told
    return DAGP.load(folder / "model.dagp")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("stage", "rank"),
    [
        ("start", 0),
        ("start", 1),
        ("race", 0),
        ("moves", 1),
        ("training", 0),
        ("reading off", 1),
        ("saving", 0),
        ("end", 1),
    ],
)
def test_a_worker_killed_at_any_stage_changes_nothing(stage, rank, undisturbed, tmp_path):
    folder, hook, temporary = (tmp_path / name for name in ("fit", "hook", "temporary"))
    write_table(folder)
    hook.mkdir()
    temporary.mkdir()
    mark = tmp_path / "killed"
    program = DYING.format(stage=STAGES[stage], rank=str(rank), mark=str(mark))
    (hook / "sitecustomize.py").write_text(program)
    where = {"PYTHONPATH": f"{hook}:{os.environ.get('PYTHONPATH', '')}", "TMPDIR": str(temporary)}
    words = ["launch", "--", *TWO.split()]
    with start(FIT, *words, cwd=folder, **where) as process:
        _, told = process.communicate(timeout=LIMIT)
    assert mark.exists() and process.returncode == 0, told
    assert f"Worker {rank} ended with signal 9; restarting all workers" in told
    found = DAGP.load(folder / "model.dagp")
    np.testing.assert_array_equal(found.lower_bounds_, undisturbed.lower_bounds_)
    np.testing.assert_array_equal(found.responsibilities_, undisturbed.responsibilities_)
    assert sorted(path.name for path in folder.iterdir()) == ["data.csv", "model.dagp"]
    assert not list(temporary.iterdir())
    assert not [pid for pid in Path("/proc").iterdir() if mentions(pid / "environ", temporary)]


def mentions(path, word):
    try:
        return os.fsencode(f"TMPDIR={word}\0") in path.read_bytes()
    except OSError:
        return False


@pytest.mark.slow
def test_a_worker_that_dies_again_and_again_ends_the_launch_in_words(tmp_path):
    write_table(tmp_path)
    mark = tmp_path / "never" / "made"  # so that no worker is spared
    program = DYING.format(stage=STAGES["start"], rank="1", mark=str(mark))
    program = program.replace('open(mark, "w").close()', "pass")
    (tmp_path / "sitecustomize.py").write_text(program)
    path = f"{tmp_path}:{os.environ.get('PYTHONPATH', '')}"
    words = ["launch", "--restarts", "1", "--", *WORDS.split()]
    with start(FIT, *words, cwd=tmp_path, PYTHONPATH=path) as process:
        _, told = process.communicate(timeout=LIMIT)
    assert process.returncode == WORKER_LOST
    assert told.count("Worker 1 ended with signal 9") == 2
    assert "Traceback" not in told
