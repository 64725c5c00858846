"""Computations in several threads: order, early ends, errors, settings, and how many."""

import os
import threading
import time

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import Mesh

from dagp.core import threads
from dagp.core.precision import numerics
from dagp.core.sharding import use_mesh
from dagp.core.threads import concurrently, free_cores


@pytest.mark.parametrize("width", [1, 2, 5])
def test_results_come_in_order_and_at_most_so_many_at_once(width):
    lock, running, most = threading.Lock(), 0, 0

    def slow_first(item):
        nonlocal running, most
        with lock:
            running += 1
            most = max(most, running)
        time.sleep(0.01 * (8 - item))
        with lock:
            running -= 1
        return item

    assert list(concurrently(slow_first, iter(range(8)), width)) == list(range(8))
    assert most == width


def test_an_early_end_computes_little_more_and_leaves_no_thread():
    before, called = threading.active_count(), []

    def call(item):
        called.append(item)
        return item

    for found in concurrently(call, range(100), 2):
        if found == 3:
            break
    assert len(called) <= 3 + 1 + 2 + 1
    assert threading.active_count() == before


def test_items_are_made_while_earlier_ones_are_computed():
    made = threading.Event()

    def items():
        yield from range(2)
        made.set()
        yield 2

    assert all(concurrently(lambda _: made.wait(10), items(), 2))


@pytest.mark.parametrize("width", [1, 3])
def test_an_error_is_raised_where_its_result_would_come(width):
    def call(item):
        if item == 2:
            raise FloatingPointError("two")
        return item

    results = concurrently(call, range(5), width)
    assert [next(results), next(results)] == [0, 1]
    with pytest.raises(FloatingPointError, match="two"):
        next(results)


@pytest.mark.parametrize("dtype", ["float64", "float32"])
def test_threads_compute_in_the_precision_of_their_caller(dtype):
    with numerics(dtype):
        found = concurrently(lambda _: str(jnp.asarray(np.ones(1)).dtype), range(4), 2)
        assert set(found) == {dtype}
    # As the thread that asked had it before.
    assert jnp.asarray(np.ones(1)).dtype == np.float32


def test_threads_handle_errors_as_their_caller():
    with np.errstate(divide="ignore"):
        found = concurrently(lambda one: np.ones(1) / (one - one), [1.0, 2.0], 2)
        assert [float(value[0]) for value in found] == [np.inf, np.inf]


@pytest.fixture
def eight_cores(monkeypatch):
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(8)), raising=False)
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)


@pytest.mark.parametrize(
    ("stated", "cores"), [("", 8), ("3", 3), ("2,4", 2), ("100", 8), ("0", 1), ("many", 8)]
)
def test_openmp_setting_limits_threads(eight_cores, monkeypatch, stated, cores):
    monkeypatch.setenv("OMP_NUM_THREADS", stated)
    assert free_cores() == cores


def test_calls_in_several_threads_share_the_cores(eight_cores, monkeypatch):
    monkeypatch.setattr(threads, "calls_in_progress", lambda: 3)
    assert free_cores() == 2


def test_several_devices_compute_one_after_the_other(eight_cores):
    with use_mesh(Mesh(np.array(jax.devices()[:1]), ("rows",))):
        assert free_cores() == 1
    with jax.default_device(jax.devices()[0]):
        assert free_cores() == 1
    assert free_cores() == 8
