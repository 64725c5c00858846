"""Independent computations in several threads, with results as if one came after the other.

A training step of a small model uses one core, however many there are: its matrices are too small
to be divided. Two of them in two threads take hardly longer than one where cores are free.
"""

import itertools
import os
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextvars import copy_context
from typing import Any, TypeVar

import jax

from dagp.core.precision import calls_in_progress, jax_settings
from dagp.core.sharding import has_mesh

MOST = 8
"""Most threads of one fit: there are about as many independent computations at a time."""
_flags: Any = jax.config
Item = TypeVar("Item")
Found = TypeVar("Found")


def free_cores() -> int:
    """Number of threads for one call of the library: cores of this process, no more than
    ``OMP_NUM_THREADS``, divided among the calls that run in other threads.

    One on accelerators, where programs run one after the other, and on several devices, whose
    workers must compute in the same order.
    """
    if jax.default_backend() != "cpu" or has_mesh() or _flags.jax_default_device is not None:
        return 1
    affinity = getattr(os, "sched_getaffinity", None)
    cores = len(affinity(0)) if affinity is not None else os.cpu_count() or 1
    stated = os.environ.get("OMP_NUM_THREADS", "")
    # It may be a list, one number for each level of nesting.
    first = stated.split(",")[0].strip()
    cores = min(cores, int(first)) if first.isdecimal() else cores
    return max(1, min(cores, MOST) // calls_in_progress())


def concurrently(
    function: Callable[[Item], Found], items: Iterable[Item], width: int
) -> Iterator[Found]:
    """``map(function, items)`` with up to `width` calls at once, in threads.

    Results come in the order of the items. Where the iteration ends early, calls that have begun
    are completed and their results discarded. The function must wait for what JAX computes.

    >>> list(concurrently(abs, [-1, 2, -3], width=2))
    [1, 2, 3]
    """
    if width <= 1:
        yield from map(function, items)
        return
    dtype = "float64" if _flags.jax_enable_x64 else "float32"

    def call(item: Item) -> Found:
        # JAX's settings belong to a thread.
        with jax_settings(dtype):
            return function(item)

    following = iter(items)
    pool = ThreadPoolExecutor(width, thread_name_prefix="dagp")

    def submit(count: int) -> Iterator[Future[Found]]:
        for item in itertools.islice(following, count):
            # With context variables of the caller, such as NumPy's handling of errors.
            yield pool.submit(copy_context().run, call, item)

    try:
        # One more than can run: its item is made, by the calling thread, while these are computed.
        ahead = deque(submit(width + 1))
        while ahead:
            found = ahead.popleft().result()
            ahead.extend(submit(1))
            yield found
    finally:
        pool.shutdown(wait=True, cancel_futures=True)
