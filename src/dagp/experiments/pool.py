"""Calls of one function in parallel: in this process, in processes of this machine, or on Dask."""

import importlib
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from joblib import Parallel, delayed

from dagp.distributed import DaskError, on_dask


def parallel_map(
    function: Callable[[Any], Any],
    items: Iterable[Any],
    jobs: int = 1,
    *,
    dask: str | None = None,
    in_order: bool = False,
) -> Iterator[Any]:
    """Results of a function for all items, as they come or `in_order`.

    Parameters
    ----------
    function : callable
        Of one item. Other processes import it by its name.
    items : iterable
        What it is called with.
    jobs : int, default=1
        Number of processes of this machine.
    dask : str, default=None
        Address of a Dask scheduler whose workers are used instead, such as
        ``"tcp://host:8786"``. Calls of a worker that is lost are repeated by another.
    in_order : bool, default=False
        Whether results have the order of the items.

    Examples
    --------
    >>> list(parallel_map(abs, [-1, 2]))
    [1, 2]
    """
    items = list(items)
    if dask is not None:
        yield from _on_dask(function, items, dask, in_order)
    elif jobs == 1 or len(items) < 2:
        yield from map(function, items)
    else:
        # loky starts fresh interpreters: a process forked after JAX has started hangs.
        order = "generator" if in_order else "generator_unordered"
        pool: Any = Parallel(n_jobs=jobs, backend="loky", return_as=order)
        yield from pool(delayed(function)(item) for item in items)


def _on_dask(
    function: Callable[[Any], Any], items: list[Any], address: str, in_order: bool
) -> Iterator[Any]:
    with on_dask(address) as client:
        # By name: type checkers take `distributed` for a module of ours.
        dask: Any = importlib.import_module("distributed")
        # Not pure: the same call twice is two calls.
        futures = client.map(function, items, pure=False)
        try:
            for future in futures if in_order else dask.as_completed(futures, loop=client.loop):
                yield future.result()
        except (dask.CancelledError, OSError) as error:
            raise DaskError(f"Lost the Dask scheduler at {address}.") from error
        except dask.KilledWorker as error:
            raise DaskError(f"A fit has ended several Dask workers: {error}") from error
