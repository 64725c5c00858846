"""Fits in several processes: the same as in one, whatever happens to the processes."""

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from dagp import DAGP, GP, Noise, datasets, distributed
from dagp.cli import launch
from dagp.cli.app import InputError
from dagp.core.sharding import (
    any_worker,
    device_count,
    from_leader,
    round_up_rows,
    shard_rows,
    to_host,
)
from dagp.distributed import leading
from dagp.inference.standardize import Sample, padded_length, to_batch

ONE = ["fit", "data.csv", "-t", "y", "--processes", "1", "--starts", "1"]
FIT = [*ONE, "--noise-process"]
SMALL = ["--inducing", "8", "--max-iter", "50", "--checkpoint-every", "0", "--json"]
LIMIT = 300


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Data."""
    path = tmp_path_factory.mktemp("together")
    data = datasets.noise_separation(0.3, n=150, random_state=1)
    table = np.column_stack([data.X, data.y])
    np.savetxt(path / "data.csv", table, delimiter=",", header="x,y", comments="")
    return path


@pytest.fixture(scope="module")
def alone(folder):
    """The model that a single process makes of the data."""
    run(folder, *FIT, *SMALL, "-o", "alone.dagp")
    return "alone.dagp"


def begun(folder, *words):
    # Small models and many programs: quick compilation is worth more than quick code.
    quick = {"JAX_DISABLE_MOST_OPTIMIZATIONS": "1", "XDG_CACHE_HOME": str(folder / "cache")}
    return subprocess.Popen(
        [sys.executable, "-c", "from dagp.cli import main; main()", *words],
        cwd=folder,
        env={**os.environ, **quick},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def run(folder, *words):
    with begun(folder, *words) as process:
        out, err = process.communicate(timeout=LIMIT)
    assert process.returncode == 0, err
    return json.loads(out), err


def peers(process):
    """The processes that another one has started."""
    threads = Path(f"/proc/{process.pid}/task").iterdir()
    return [int(pid) for thread in threads for pid in (thread / "children").read_text().split()]


def is_same(folder, model, alone):
    one, other = (DAGP.load(folder / name) for name in (model, alone))
    np.testing.assert_allclose(one.lower_bound_, other.lower_bound_, rtol=1e-6)
    np.testing.assert_allclose(one.responsibilities_, other.responsibilities_, atol=1e-4)
    grid = pd.DataFrame({"x": np.linspace(-3, 3, 20)})
    np.testing.assert_allclose(one.predict(grid), other.predict(grid), rtol=1e-4, atol=1e-4)


def disturbed(folder, model, signal_, fit):
    """A fit in which one of two processes gets a signal as soon as there is a checkpoint."""
    words = ["launch", "--workers", "2", "--", *fit, *SMALL, "-o", model]
    checkpoint, until = folder / f"{model}.checkpoint", time.monotonic() + LIMIT
    with begun(folder, *words) as process:
        while not checkpoint.exists() and time.monotonic() < until and process.poll() is None:
            time.sleep(0.05)
        assert checkpoint.exists(), process.communicate()
        os.kill(peers(process)[-1], signal_)
        out, err = process.communicate(timeout=LIMIT)
    assert process.returncode == 0, err
    assert not checkpoint.exists()
    return json.loads(out), err


# Seven processes begin here, and what several compile together no cache keeps: a model of one
# Gaussian process, which takes them half as long as one with clutter.
@pytest.mark.parametrize(
    "fit", [ONE, pytest.param(FIT, marks=pytest.mark.slow)], ids=["signal", "clutter"]
)
def test_two_processes_of_which_one_is_killed_give_the_same(folder, fit):
    run(folder, *fit, *SMALL, "--force", "-o", "undisturbed.dagp")
    answer, told = disturbed(folder, "killed.dagp", signal.SIGKILL, [*fit, "--force"])
    assert "Worker 1 ended with signal 9; restarting all workers" in told
    assert answer["model"] == "killed.dagp"
    is_same(folder, "killed.dagp", "undisturbed.dagp")


@pytest.mark.slow
def test_four_processes_give_the_same(folder, alone):
    answer, told = run(folder, "launch", "--workers", "4", "--", *FIT, *SMALL, "-o", "four.dagp")
    assert "restarting" not in told and answer["rows"] == 150
    is_same(folder, "four.dagp", alone)


@pytest.mark.slow
def test_rows_that_cannot_be_shared_evenly(folder):
    batches = ["--batch-size", "50", "-o"]
    run(folder, *FIT, *SMALL, *batches, "batches.dagp")
    run(folder, "launch", "--workers", "3", "--", *FIT, *SMALL, *batches, "three.dagp")
    one, other = (DAGP.load(folder / f"{name}.dagp") for name in ("batches", "three"))
    np.testing.assert_allclose(one.lower_bound_, other.lower_bound_, rtol=1e-5)


@pytest.mark.slow
def test_a_process_that_is_stuck_is_restarted(folder, alone):
    _, told = disturbed(folder, "stuck.dagp", signal.SIGSTOP, FIT)
    assert "restarting all workers" in told
    is_same(folder, "stuck.dagp", alone)


def test_nothing_moves(tmp_path):
    """Seen by the watchdog, whatever the processes say to each other."""
    sleeper = subprocess.Popen(["sleep", "60"])
    group = launch._WorkerGroup([sleeper], tmp_path)
    (tmp_path / "0.beat").touch()
    outcome = group.wait(patience=0.5)
    sleeper.kill()
    sleeper.wait()
    assert outcome.reason and "No progress for" in outcome.reason


def test_a_mistake_is_told_once_and_not_repeated(folder):
    with begun(folder, "launch", "--", "fit", "data.csv", "-t", "z") as process:
        _, err = process.communicate(timeout=LIMIT)
    assert process.returncode == 2
    assert err.count("no column 'z'") == 1 and "restarting" not in err


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        (["launch", "--", "report", "m.dagp"], "launch can only run fit, got 'report'"),
        (["launch", "--", "fit", "-", "-t", "y"], "cannot share standard input"),
    ],
)
def test_what_launch_refuses(words, reason, tmp_path):
    with begun(tmp_path, *words) as process:
        _, err = process.communicate(timeout=LIMIT)
    assert process.returncode == 2 and reason in err


def test_more_processes_than_gpus_are_refused(monkeypatch):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0")
    monkeypatch.delenv("JAX_PLATFORMS", raising=False)
    with pytest.raises(InputError, match="only 1 GPU"):
        launch.launch(["fit", "data.csv"], workers=2)


def test_cores_are_shared_out():
    if not hasattr(os, "sched_getaffinity"):
        pytest.skip("The system does not say which cores there are.")
    cores = os.sched_getaffinity(0)
    parts = [launch._cores(index, 2) for index in range(2)]
    assert set.union(*parts) == cores
    assert all(launch._cores(index, 64) for index in range(64))


@pytest.mark.parametrize(
    ("environment", "reason"),
    [
        ({"DAGP_PROCESSES": "2"}, "DAGP_PROCESS must be a whole number"),
        ({"DAGP_PROCESSES": "two", "DAGP_PROCESS": "0"}, "DAGP_PROCESSES must be a whole number"),
        ({"DAGP_PROCESSES": "2", "DAGP_PROCESS": "2"}, "counts from 0"),
    ],
)
def test_a_place_that_makes_no_sense(environment, reason):
    with pytest.raises(ValueError, match=reason):
        distributed.place_of({"DAGP_COORDINATOR": "node:1", **environment})


def test_the_cluster_may_know_the_place():
    assert distributed.place_of({"DAGP_COORDINATOR": "auto"}) == distributed.Place("auto")


def test_on_ones_own_there_is_nobody_to_meet(monkeypatch):
    monkeypatch.delenv("DAGP_COORDINATOR", raising=False)
    distributed.initialize()
    assert any_worker(True) and not any_worker(False) and leading() and from_leader(7) == 7


def test_rows_on_a_mesh_of_one_device():
    sample = Sample(np.ones((5, 2)), np.ones((5, 1)), np.ones(5), np.full(5, -1))
    with distributed.together():
        placed = shard_rows(to_batch(sample, 2))
        assert device_count() == 1 and round_up_rows(5) == 5 and len(placed.X) == padded_length(5)
        np.testing.assert_array_equal(to_host(placed.X)[:5], sample.X)
        assert placed.X.dtype == np.float32  # as wide as the rest of the program computes


def test_together_alone_is_the_same():
    data = datasets.noise_separation(0.3, n=60, random_state=0)
    settings = {"inducing": 5, "n_init": 1, "tol": 1e-1, "random_state": 0}
    models = []
    for company in (contextlib.nullcontext(), distributed.together()):
        with company:
            models.append(DAGP(processes=[GP(), Noise()], **settings).fit(data.X, data.y))
    np.testing.assert_allclose(models[0].responsibilities_, models[1].responsibilities_, atol=1e-6)


LISTENING = """
import sys
from pathlib import Path
import jax, jax.numpy as jnp
from jax.sharding import NamedSharding, PartitionSpec
from dagp import distributed

distributed.initialize()
with distributed.together():
    mesh = jax.make_mesh((2,), ("all",))
    rows = jax.make_array_from_callback(
        (2,), NamedSharding(mesh, PartitionSpec("all")), lambda _: jnp.ones(1)
    )
    assert float(jax.jit(jnp.sum)(rows)) == 2.0
from jax._src.lib import xla_client
print("bound to", xla_client._xla.make_gloo_tcp_collectives.keywords["hostname"])
mine = {link.readlink().name for link in Path("/proc/self/fd").iterdir() if link.is_symlink()}
for table in ("tcp", "tcp6"):
    for line in Path("/proc/self/net", table).read_text().splitlines()[1:]:
        cells = line.split()
        if f"socket:[{cells[9]}]" in mine:
            print("socket", cells[1].split(":")[0])
"""


def test_workers_of_one_machine_listen_to_this_machine_alone(tmp_path):
    coordinator = f"127.0.0.1:{launch._free_port()}"
    workers = [
        subprocess.Popen(
            [sys.executable, "-c", LISTENING],
            env={**os.environ, **distributed.Place(coordinator, 2, rank).environment()},
            stdout=subprocess.PIPE,
            text=True,
        )
        for rank in range(2)
    ]
    found = [worker.communicate(timeout=LIMIT)[0] for worker in workers]
    assert [worker.returncode for worker in workers] == [0, 0]
    # The name of this machine may be one of loopback anyway.
    assert all("bound to 127.0.0.1" in out for out in found)
    addresses = {line.split()[1] for out in found for line in out.splitlines() if "socket" in line}
    # 127.0.0.1, or the same as an address of IPv6, in the order of the machine's bytes.
    assert addresses and addresses <= {"0100007F", "0000000000000000FFFF00000100007F"}


def test_a_launch_that_is_terminated_leaves_nothing_behind(folder, tmp_path):
    words = ["launch", "--workers", "2", "--", *ONE, *SMALL, "--max-iter", "100000", "--force"]
    quick = {"JAX_DISABLE_MOST_OPTIMIZATIONS": "1", "TMPDIR": str(tmp_path), "DAGP_CACHE": "off"}
    process = subprocess.Popen(
        [sys.executable, "-c", "from dagp.cli import main; main()", *words, "-o", "ended.dagp"],
        cwd=folder,
        env={**os.environ, **quick},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    until = time.monotonic() + LIMIT
    while len(workers := peers(process)) < 2 and time.monotonic() < until:
        time.sleep(0.05)
    assert list(tmp_path.iterdir())
    process.terminate()
    assert process.wait(timeout=30) == 128 + signal.SIGTERM
    assert not list(tmp_path.iterdir())
    assert not any(Path(f"/proc/{pid}").exists() for pid in workers)


@pytest.mark.parametrize(
    ("end", "raised"), [("SIGTERM", SystemExit), ("SIGINT", KeyboardInterrupt)]
)
def test_a_launch_that_is_ended_while_a_worker_starts_does_not_forget_it(end, raised, monkeypatch):
    """The signal comes after the worker has begun, and before it is known to have."""
    begun = []

    def popen(*_, **__):
        sleeper = [sys.executable, "-c", "import time; time.sleep(600)"]
        begun.append(given(sleeper, stdout=subprocess.PIPE))
        os.kill(os.getpid(), getattr(signal, end))
        return begun[-1]

    given = subprocess.Popen
    monkeypatch.setattr(launch.subprocess, "Popen", popen)
    before = signal.signal(signal.SIGTERM, launch._end)
    try:
        with pytest.raises(raised), launch._WorkerGroup.started(["fit"], 2, ()):
            pass
    finally:
        signal.signal(signal.SIGTERM, before)
        ends = [worker.poll() for worker in begun]
        for worker in begun:
            worker.kill()
            worker.communicate()
    assert ends == [-signal.SIGKILL]
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
