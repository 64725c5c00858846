"""Whether several workers fit the same: data, settings and checkpoint, compared by digests."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from dagp.core.errors import StorageError
from dagp.core.sharding import from_all_workers, several_workers
from dagp.files.format import fingerprint

_MOST = 64
"""Number of things compared at once: workers of other versions may name more or fewer, and arrays
that are exchanged must have one shape."""
_BYTES = 16


def check_workers_agree(things: Mapping[str, Any], advice: str = "") -> None:
    """Raise ValueError in all workers if something differs between them.

    Collective: all workers must call it, with the same names in the same order.

    >>> check_workers_agree({"X": np.ones(3)})  # a single worker agrees with itself
    """
    if not several_workers():
        return
    digests = np.zeros((_MOST, _BYTES), np.uint8)
    counts = np.full(_MOST, -1, np.int32)
    for place, thing in enumerate(things.values()):
        digests[place] = _digest(thing)
        counts[place] = thing if isinstance(thing, int) and 0 <= thing < 2**31 else -1
    all_digests, all_counts = from_all_workers((digests, counts))
    differs = np.any(all_digests != all_digests[0], axis=2)
    if not differs.any():
        return
    worker = int(np.argmax(differs.any(axis=1)))
    told = [
        f"{name} ({found}, not {expected})" if found != expected else name
        for name, differ, found, expected in zip(
            things, differs[worker], all_counts[worker], all_counts[0], strict=False
        )
        if differ
    ]
    raise ValueError(
        f"All workers must fit the same; worker {worker} differs from worker 0 in "
        f"{', '.join(told)}.{advice}"
    )


def _digest(thing: Any) -> np.ndarray:
    """The digest of an object; objects that files cannot hold are not compared."""
    try:
        return np.frombuffer(bytes.fromhex(fingerprint([thing])), np.uint8)
    except StorageError:
        return np.zeros(_BYTES, np.uint8)
