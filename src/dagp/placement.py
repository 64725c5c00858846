"""Where the rows of the data live: on this device, or spread over the devices of many processes.

Inside `spread` every process runs the same program on the same models, and holds its own part of
the rows. XLA divides each compiled step accordingly and adds up what the parts say, so nothing
that computes needs to know. What must know is here: how rows get to their devices, how what was
computed for them comes back, and how processes that only talk to each other through such programs
agree on what only one of them knows, such as the time.
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

__all__ = [
    "ROWS",
    "agreed",
    "devices",
    "fetched",
    "leading",
    "place",
    "rounded",
    "same_everywhere",
    "spread",
]

ROWS = "rows"
_mesh: ContextVar[Mesh | None] = ContextVar("devices that share the rows", default=None)


@contextmanager
def spread(mesh: Mesh | None) -> Iterator[None]:
    """Spread rows over the devices of a mesh with one axis, inside the ``with`` block."""
    token = _mesh.set(mesh)
    try:
        yield
    finally:
        _mesh.reset(token)


def devices() -> int:
    """How many devices share the rows."""
    mesh = _mesh.get()
    return 1 if mesh is None else mesh.size


def rounded(rows: int) -> int:
    """The next number of rows that can be shared evenly."""
    return -(-rows // devices()) * devices()


def place(tree: Any, axis: int = 0) -> Any:
    """Arrays of this process on their devices; `axis` is the one that counts rows."""
    mesh = _mesh.get()
    if mesh is None:
        return jax.tree.map(jnp.asarray, tree)
    sharding = NamedSharding(mesh, PartitionSpec(*[None] * axis, ROWS))

    def put(array: np.ndarray) -> jax.Array:
        # Narrowed here: nothing else turns the host's numbers into the width that is computed in.
        array = np.asarray(array).astype(jax.dtypes.canonicalize_dtype(array.dtype), copy=False)
        return jax.make_array_from_callback(array.shape, sharding, array.__getitem__)

    return jax.tree.map(put, tree)


def fetched(array: Any) -> np.ndarray:
    """An array from wherever its parts are. All processes must ask for it."""
    if isinstance(array, jax.Array) and not array.is_fully_addressable:
        array = _replicated(_mesh_of(array))(array)
    return np.asarray(array)


def agreed(wish: bool) -> bool:
    """Whether any process wishes so. All processes must ask."""
    if not _several():
        return wish
    return bool(np.any(multihost_utils.process_allgather(np.asarray(wish))))


def same_everywhere(number: int) -> int:
    """The number that the first process has. All processes must ask."""
    if not _several():
        return number
    return int(multihost_utils.broadcast_one_to_all(np.asarray(number, np.int32)))


def leading() -> bool:
    """Whether this process is the one that writes files."""
    return not _several() or jax.process_index() == 0


def _several() -> bool:
    mesh = _mesh.get()
    return mesh is not None and mesh.is_multi_process


def _mesh_of(array: jax.Array) -> Mesh:
    assert isinstance(array.sharding, NamedSharding)
    return array.sharding.mesh  # pyright: ignore[reportReturnType]


@functools.cache
def _replicated(mesh: Mesh) -> Any:
    return jax.jit(lambda array: array, out_shardings=NamedSharding(mesh, PartitionSpec()))
