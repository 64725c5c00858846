"""Fits and predictions in several threads at once."""

import threading

import numpy as np
from threadpoolctl import threadpool_info

from dagp import DAGP
from dagp.fitting import fit_estimator
from dagp.inference.run_log import RunLog


def blas_threads():
    return [pool["num_threads"] for pool in threadpool_info() if pool["user_api"] == "blas"]


def fitted(seed):
    rng = np.random.default_rng(seed)
    X = rng.uniform(-1, 1, (40, 1))
    y = np.sin(3 * X[:, 0]) + 0.1 * rng.standard_normal(40)
    model = DAGP(1, inducing=9, n_init=1, tol=1e-1, random_state=seed).fit(X, y)
    return model.lower_bound_, model.predict(X)


def test_fits_in_threads_equal_serial_ones_and_leave_the_process_as_it_was():
    before = blas_threads()
    serial = [fitted(seed) for seed in range(4)]
    found = {}

    def run(seed):
        found[seed] = fitted(seed)

    threads = [threading.Thread(target=run, args=(seed,), daemon=True) for seed in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(timeout=300)
    assert sorted(found) == [0, 1, 2, 3]
    for seed, (bound, mean) in enumerate(serial):
        assert found[seed][0] == bound
        np.testing.assert_array_equal(found[seed][1], mean)
    assert blas_threads() == before


def searched(threads, monkeypatch, finished=()):
    """A search with this many threads: its model and the results of its runs."""
    monkeypatch.setenv("OMP_NUM_THREADS", str(threads))
    monkeypatch.setattr("os.sched_getaffinity", lambda _: set(range(threads)), raising=False)
    rng = np.random.default_rng(0)
    X = rng.uniform(-1, 1, (40, 1))
    y = np.where(np.arange(40) % 2, X[:, 0], 0.5 - X[:, 0] ** 2) + 0.03 * rng.standard_normal(40)
    told, log = [], RunLog(finished)
    model = DAGP(2, inducing=9, n_init=4, tol=1e-1, random_state=0, posterior="averaged")
    model.set_params(callbacks=[told.append])
    fit_estimator(model, X, y, log=log)
    return model, log.finished, told


def test_a_search_in_threads_takes_the_same_way_as_in_one(monkeypatch):
    one, runs, told = searched(1, monkeypatch)
    two, same_runs, told_as_well = searched(3, monkeypatch)
    assert one.restarts_ == two.restarts_
    assert told == told_as_well
    np.testing.assert_array_equal(one.responsibilities_, two.responsibilities_)
    assert [run.bound for run in runs] == [run.bound for run in same_runs]
    bands = (model.processes_[0].predict([[0.3], [2.0]], True)[1] for model in (one, two))
    np.testing.assert_array_equal(*bands)
    # What one has logged, the other continues, wherever it was interrupted.
    for known in (runs[:2], runs[: len(runs) // 2]):
        resumed, _, _ = searched(3, monkeypatch, known)
        np.testing.assert_array_equal(one.responsibilities_, resumed.responsibilities_)
