"""Data-parallel sharding of the rows over the devices of one or several worker processes.

Inside `use_mesh` every worker runs the same program on its own part of the rows. XLA partitions
each compiled step and inserts the reductions: the numerical code is independent of the sharding.
"""

import functools
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.experimental import multihost_utils
from jax.sharding import Mesh, NamedSharding, PartitionSpec

ROWS = "rows"
_mesh: ContextVar[Mesh | None] = ContextVar("mesh of the row sharding", default=None)
"""Owned by `dagp.distributed`: only `distributed.together` sets it, through `use_mesh`."""


@contextmanager
def use_mesh(mesh: Mesh | None) -> Iterator[None]:
    """Shard rows over the devices of a one-axis mesh inside the ``with`` block."""
    token = _mesh.set(mesh)
    try:
        yield
    finally:
        _mesh.reset(token)


def has_mesh() -> bool:
    """Whether rows are sharded, over however many devices."""
    return _mesh.get() is not None


def device_count() -> int:
    """Number of devices that the rows are sharded over."""
    mesh = _mesh.get()
    return 1 if mesh is None else mesh.size


def round_up_rows(rows: int) -> int:
    """`rows` rounded up to a multiple of the number of devices."""
    return -(-rows // device_count()) * device_count()


def shard_rows(tree: Any, axis: int = 0) -> Any:
    """Put a tree of host arrays on the devices, sharded along `axis`."""
    mesh = _mesh.get()
    if mesh is None:
        return jax.tree.map(jnp.asarray, tree)
    sharding = NamedSharding(mesh, PartitionSpec(*[None] * axis, ROWS))

    def put(array: np.ndarray) -> jax.Array:
        # make_array_from_callback does not convert to the precision in use, as jnp.asarray does.
        array = np.asarray(array).astype(jax.dtypes.canonicalize_dtype(array.dtype), copy=False)
        return jax.make_array_from_callback(array.shape, sharding, array.__getitem__)

    return jax.tree.map(put, tree)


def to_host(array: Any) -> np.ndarray:
    """The whole array on the host. Collective: all workers must call it."""
    if isinstance(array, jax.Array) and not array.is_fully_addressable:
        array = _replicated(array.sharding.mesh)(array)  # pyright: ignore[reportAttributeAccessIssue]
    return np.asarray(array)


def from_all_workers(tree: Any) -> Any:
    """Host arrays of all workers, stacked along a new first axis. Collective, same shapes."""
    return jax.tree.map(np.asarray, multihost_utils.process_allgather(tree))


def any_worker(flag: bool) -> bool:
    """Whether the flag is set in any worker. Collective: all workers must call it."""
    if not several_workers():
        return flag
    return bool(np.any(multihost_utils.process_allgather(np.asarray(flag))))


def from_leader(number: int) -> int:
    """The number held by the first worker. Collective: all workers must call it."""
    if not several_workers():
        return number
    return int(multihost_utils.broadcast_one_to_all(np.asarray(number, np.int32)))


def is_leader() -> bool:
    """Whether this is the worker that writes files."""
    return not several_workers() or jax.process_index() == 0


def several_workers() -> bool:
    """Whether the mesh spans several processes."""
    mesh = _mesh.get()
    return mesh is not None and mesh.is_multi_process


@functools.cache
def _replicated(mesh: Mesh) -> Any:
    return jax.jit(lambda array: array, out_shardings=NamedSharding(mesh, PartitionSpec()))
