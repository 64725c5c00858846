"""JAX's settings and BLAS threads around the library's calls.

All are restored afterwards, so a user's program keeps its JAX flags and thread settings.
"""

import contextlib
import functools
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import jax
import scipy.linalg  # noqa: F401  (JAX's CPU LAPACK calls go through SciPy's BLAS; load it first)
from jax.errors import JaxRuntimeError
from threadpoolctl import ThreadpoolController

from dagp.core.programs import forget_programs_if_many

DTYPES = ("float64", "float32")
_NO_MEMORY = ("Out of memory", "RESOURCE_EXHAUSTED", "bad_alloc")


@functools.cache
def _thread_pools() -> ThreadpoolController:
    # Scanning the loaded libraries takes milliseconds, and the set does not change.
    return ThreadpoolController()


class _SingleThread:
    """One BLAS thread while any call of the library is running, in whichever Python thread.

    The number of BLAS threads belongs to the process. If every call saved and restored it, calls
    that overlap would restore each other's setting and leave the process changed.
    """

    def __init__(self) -> None:
        self._lock, self.calls = threading.Lock(), 0
        self._limit: Any = None

    def __enter__(self) -> None:
        with self._lock:
            if self.calls == 0:
                forget_programs_if_many()
                self._limit = _thread_pools().limit(limits=1, user_api="blas")
            self.calls += 1

    def __exit__(self, *_: object) -> None:
        with self._lock:
            self.calls -= 1
            if self.calls == 0:
                self._limit.restore_original_limits()


_one_thread = _SingleThread()


def calls_in_progress() -> int:
    """Number of calls of the library that are running, at least one."""
    return max(1, _one_thread.calls)


@contextmanager
def jax_settings(dtype: str) -> Iterator[None]:
    """JAX as the library needs it, in this thread, whatever flags the user has set.

    A matrix without a Cholesky factor is found by its NaN, so that `jax_debug_nans` would end a
    sound fit; without compilation a fit would take hours.
    """
    with contextlib.ExitStack() as stack:
        for setting in (
            jax.enable_x64(dtype == "float64"),
            jax.debug_nans(False),
            jax.debug_infs(False),
            jax.disable_jit(False),
            jax.check_tracer_leaks(False),
            jax.numpy_dtype_promotion("standard"),
            jax.numpy_rank_promotion("allow"),
            jax.default_matmul_precision(None),
        ):
            stack.enter_context(setting)
        yield


@contextmanager
def numerics(dtype: str = "float64") -> Iterator[None]:
    """Compute in `dtype`, with one BLAS thread, inside the ``with`` block.

    The matrices are small and many: OpenBLAS threads wait on each other longer than they compute,
    and XLA spreads the large products over the cores. Running out of memory raises MemoryError.
    """
    try:
        with jax_settings(dtype), _one_thread:
            yield
    except JaxRuntimeError as error:
        # JAX raises this type for every failure at run time.
        if not any(word in str(error) for word in _NO_MEMORY):
            raise
        less = "a smaller batch_size, or fewer inducing points, need less"
        raise MemoryError(f"Not enough memory; {less}.") from error
