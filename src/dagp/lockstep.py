"""Several training runs side by side: one program steps them all.

On an accelerator a step of one small model leaves most of the machine idle, and a step of 32 takes
hardly longer. Each run decides for itself when to slow down and when to end; one that has ended
keeps its place until all have, because another number of runs would be another program.
"""

from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from dagp.bounds import Bound
from dagp.memory import current
from dagp.model import Batch
from dagp.train import Result, State, Stretch, climbing, first, run_block
from dagp.typing import Array, Float

__all__ = ["pays", "run_blocks", "train_together"]

_WORKING_ARRAYS = 24
"""Arrays over points, inducing points and processes that a step and its gradient hold at once."""
_SHARE = 0.5
"""How much of the device's memory the runs may fill."""


def pays() -> bool:
    """Whether runs side by side are faster here: a CPU is busy with one."""
    return jax.default_backend() != "cpu"


@jax.jit
def run_blocks(
    states: tuple[State, ...], batch: Batch, rates: Float[Array, " R"]
) -> tuple[tuple[State, ...], Bound]:
    """A block of steps of every run, each at its own rate."""
    stacked = jax.tree.map(lambda *leaves: jnp.stack(leaves), *states)
    stacked, bounds = jax.vmap(run_block, in_axes=(0, None, 0))(stacked, batch, rates)
    # Taken apart in here: outside, every leaf of every run would be a program of its own.
    runs = range(len(states))
    return tuple(jax.tree.map(lambda leaf, i=i: leaf[i], stacked) for i in runs), bounds


def train_together(
    states: Sequence[State],
    batch: Batch,
    *,
    max_iter: int,
    tol: float,
    rates: Sequence[float],
) -> list[Result]:
    """What `dagp.train.train` gives for each state, computed side by side."""
    memory = current()
    known = [memory.recall(Result, Stretch, state)[0] for state in states]
    total = float(np.sum(batch.weight))
    unknown = {
        i: climbing(first(states[i], rates[i]), total, max_iter, tol)
        for i, result in enumerate(known)
        if result is None
    }
    width = _width(len(states), batch, states[0])
    places = list(unknown)
    found: dict[int, Result] = {}
    for group in (places[i : i + width] for i in range(0, len(places), width)):
        found |= _finished({i: unknown[i] for i in group}, batch, width)
    for i in places:
        memory.finish(found[i])
    return [found[i] if result is None else result for i, result in enumerate(known)]


def _finished(climbs: dict[int, Any], batch: Batch, width: int) -> dict[int, Result]:
    """Blocks for everyone until the last one has ended."""
    found: dict[int, Result] = {}
    waiting: dict[int, Stretch] = {}

    def send(i: int, answer: Any) -> None:
        try:
            waiting[i] = climbs[i].send(answer)
        except StopIteration as end:
            found[i] = end.value
            waiting.pop(i, None)

    for i in climbs:
        send(i, None)
    while waiting:
        asked = list(waiting)
        seats = [waiting[i] for i in asked] + [waiting[asked[0]]] * (width - len(asked))
        rates = jnp.asarray([run.rate for run in seats])
        states, bounds = run_blocks(tuple(run.state for run in seats), batch, rates)
        values = np.asarray(bounds.value, np.float64)
        for seat, i in enumerate(asked):
            send(i, (states[seat], values[seat]))
    return found


def _width(runs: int, batch: Batch, state: State) -> int:
    """How many runs fit into the device's memory at once."""
    limit = (jax.local_devices()[0].memory_stats() or {}).get("bytes_limit")
    if limit is None:
        return runs
    inducing = max(leaf.shape[-2] for leaf in jax.tree.leaves(state.model) if jnp.ndim(leaf) > 1)
    each = _WORKING_ARRAYS * batch.X.dtype.itemsize * state.responsibilities.size * inducing
    return int(np.clip(_SHARE * limit // each, 1, runs))
