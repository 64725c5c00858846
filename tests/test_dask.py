"""Sweeps on a Dask scheduler with two workers, one of which is killed."""

import contextlib
import json
import os
import signal
import subprocess
import sys
import threading
import time
from importlib.util import find_spec

import joblib
import numpy as np
import pytest
from sklearn.model_selection import GridSearchCV, cross_val_score
from typer.testing import CliRunner

from dagp import DAGP, datasets, distributed
from dagp.cli import app
from dagp.distributed import DaskError, on_dask
from dagp.experiments.pool import parallel_map
from dagp.scoring import log_score

needs_dask = pytest.mark.skipif(not find_spec("distributed"), reason="distributed is not installed")
ENVIRONMENT = {"DAGP_CACHE": "off", "DASK_DISTRIBUTED__COMM__TIMEOUTS__CONNECT": "10s"}
LIMIT = 120
pytestmark = pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")


class Cluster:
    """A scheduler and its workers: processes with their logs in a folder."""

    def __init__(self, folder):
        self.folder, self._processes = folder, {}
        file = folder / "scheduler.json"
        self.start("scheduler", "--port", "0", "--no-dashboard", "--scheduler-file", str(file))
        wait_until(file.exists)
        self.address = json.loads(file.read_text())["address"]

    def start(self, kind, *words, name=None):
        with (self.folder / f"{name or kind}.log").open("wb") as log:
            self._processes[name or kind] = subprocess.Popen(
                [sys.executable, "-m", "dask", kind, "--host", "127.0.0.1", *words],
                env=os.environ | ENVIRONMENT,
                stdout=log,
                stderr=log,
                cwd=self.folder,
            )

    def start_worker(self, name):
        more = ("--nthreads", "1", "--no-nanny", "--no-dashboard", "--name", name)
        self.start("worker", self.address, *more, name=name)

    def kill(self, name):
        process = self._processes.pop(name)
        process.send_signal(signal.SIGKILL)
        process.wait()

    def end(self):
        for name in list(self._processes):
            self.kill(name)

    def busy(self):
        """Names of the workers that compute, with what they compute."""
        from distributed import Client

        with Client(self.address, set_as_default=False) as client:
            facts, running = client.scheduler_info()["workers"], client.processing()
        return {facts[place]["name"]: keys for place, keys in running.items() if keys}


def wait_until(condition):
    until = time.monotonic() + LIMIT
    while not condition():
        assert time.monotonic() < until
        time.sleep(0.05)


@pytest.fixture
def cluster(tmp_path):
    """A scheduler with two workers."""
    running = None
    try:
        running = Cluster(tmp_path)
        for name in ("one", "two"):
            running.start_worker(name)
        yield running
    finally:
        if running is not None:
            running.end()


@contextlib.contextmanager
def one_killed(cluster):
    """Inside the ``with`` block, a worker is killed as soon as both compute."""
    lost = []

    def watch():
        wait_until(lambda: len(cluster.busy()) == 2)
        lost.extend(cluster.busy()["one"])
        cluster.kill("one")

    watcher = threading.Thread(target=watch)
    watcher.start()
    yield
    watcher.join()
    assert lost, "the worker had nothing to do"


def problem(n):
    data = datasets.noise_separation(0.2, n=n, random_state=3)
    return data.X, data.y


MODEL = DAGP(2, n_init=1, max_iter=50, tol=1.0, inducing=8, random_state=0)


@needs_dask
@pytest.mark.slow
@pytest.mark.parametrize("n", [40, 600])
def test_cross_validation_survives_a_killed_worker(cluster, n):
    X, y = problem(n)
    expected = cross_val_score(MODEL, X, y, scoring=log_score, cv=4)
    with on_dask(cluster.address), one_killed(cluster):
        found = cross_val_score(MODEL, X, y, scoring=log_score, cv=4)
    np.testing.assert_array_equal(found, expected)


@needs_dask
@pytest.mark.slow
def test_a_grid_search_survives_a_killed_worker(cluster):
    X, y = problem(60)
    searches = [GridSearchCV(MODEL, {"n_processes": [1, 2]}, scoring=log_score, cv=2) for _ in "ab"]
    searches[0].fit(X, y)
    with on_dask(cluster.address), one_killed(cluster):
        searches[1].fit(X, y)
    results = [search.cv_results_["mean_test_score"] for search in searches]
    np.testing.assert_array_equal(*results)
    np.testing.assert_array_equal(*(search.predict(X) for search in searches))


def reproduce(folder, *words):
    """The results of the command, without the time that they took."""
    fits = ["noise", "--quick", "--models", "Oracle,MLP,DAGP", "--no-figures", "-o", str(folder)]
    done = subprocess.run(
        [sys.executable, "-m", "dagp", "reproduce", *fits, *words],
        env=os.environ | ENVIRONMENT,
        capture_output=True,
        text=True,
        timeout=4 * LIMIT,
    )
    assert done.returncode == 0, done.stderr
    rows = (folder / "reproduce-quick" / "noise.csv").read_text().splitlines()
    place = rows[0].split(",").index("seconds")
    return [[cell for i, cell in enumerate(row.split(",")) if i != place] for row in rows]


@needs_dask
@pytest.mark.slow
def test_reproduce_survives_a_killed_worker(cluster, tmp_path):
    expected = reproduce(tmp_path / "serial")
    with one_killed(cluster):
        found = reproduce(tmp_path / "dask", "--dask", cluster.address)
    assert len(found) > 3 and found == expected


@needs_dask
def test_calls_of_a_killed_worker_are_repeated(cluster):
    large = [np.arange(1000.0) + i for i in range(4)]
    with on_dask(cluster.address) as client:
        client.wait_for_workers(2, timeout=LIMIT)
        found = joblib.Parallel()(joblib.delayed(np.cumsum)(array) for array in large)
        np.testing.assert_array_equal(found, np.cumsum(large, axis=1))
    with one_killed(cluster):
        assert list(parallel_map(time.sleep, [1.0] * 6, dask=cluster.address)) == [None] * 6
    assert list(parallel_map(abs, [-1, 2, -3], dask=cluster.address, in_order=True)) == [1, 2, 3]


@needs_dask
def test_a_worker_of_other_versions_is_refused(cluster, monkeypatch):
    monkeypatch.setattr(distributed, "__version__", "0.0.1")
    with (
        pytest.raises(DaskError, match=r"The Dask worker \S+ has dagp \S+ \(here 0\.0\.1\)"),
        on_dask(cluster.address),
    ):
        pass


@needs_dask
@pytest.mark.slow
def test_a_scheduler_that_is_lost_is_told(cluster, tmp_path):
    found = parallel_map(time.sleep, [0.1, 60.0, 60.0], dask=cluster.address)
    next(found)
    cluster.kill("scheduler")
    with pytest.raises(DaskError, match="Lost the Dask scheduler at tcp:"):
        list(found)


@needs_dask
@pytest.mark.slow
def test_no_scheduler_and_no_worker_are_told(tmp_path, monkeypatch):
    monkeypatch.setattr(distributed, "DASK", 1)
    words = ["reproduce", "noise", "--quick", "--dask", "tcp://127.0.0.1:9", "-o", str(tmp_path)]
    answer = CliRunner().invoke(app, words)
    assert answer.exit_code == 1
    assert "There is no Dask scheduler at tcp://127.0.0.1:9" in answer.output
    assert "the same command continues" in answer.output
    empty = Cluster(tmp_path)
    try:
        with pytest.raises(DaskError, match="has no workers"), on_dask(empty.address):
            pass
    finally:
        empty.end()


def test_dask_that_is_not_installed_is_told(monkeypatch):
    monkeypatch.setattr(distributed, "find_spec", lambda _: None)
    with pytest.raises(DaskError, match=r"pip install 'dagp\[dask\]'"):
        list(parallel_map(abs, [1, 2], dask="tcp://127.0.0.1:9"))


def test_processes_and_dask_at_once_are_refused(tmp_path):
    words = ["reproduce", "noise", "--dask", "tcp://host:1", "--jobs", "2", "-o", str(tmp_path)]
    answer = CliRunner().invoke(app, words)
    assert answer.exit_code == 2 and "The workers of --dask run the fits" in answer.output
    assert not list(tmp_path.iterdir())
