"""Fits and predictions in several threads at once."""

import threading

import numpy as np
from threadpoolctl import threadpool_info

from dagp import DAGP


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
