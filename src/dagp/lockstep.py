"""Several training runs side by side: one program steps them all.

On an accelerator a step of one small model leaves most of the machine idle, and a step of 32 takes
hardly longer. Each run decides for itself when to slow down and when to end; one that has ended
keeps its place until all have, because another number of runs would be another program.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from dagp.bounds import Bound
from dagp.garbage import uncollected
from dagp.memory import current
from dagp.model import Batch
from dagp.placement import fetched
from dagp.train import Climb, Result, State, Stretch, climbing, first, run_block
from dagp.typing import Array, Float, Int

__all__ = ["pays", "run_blocks", "stacked", "train_together"]

_WORKING_ARRAYS = 24
"""Arrays over points, inducing points and processes that a step and its gradient hold at once."""
_SHARE = 0.5
"""How much of the device's memory the runs may fill."""


def pays() -> bool:
    """Whether runs side by side are faster here: a CPU is busy with one."""
    return jax.default_backend() != "cpu"


class Seat(NamedTuple):
    """Where a run sits among states that are kept together.

    Taking 32 states apart and putting them together again took as long as a third of their steps.
    """

    states: State
    """Of all runs, stacked."""
    place: int


@jax.jit
@uncollected()
def run_blocks(states: State, batch: Batch, rates: Float[Array, " R"]) -> tuple[State, Bound]:
    """A block of steps of every run, from stacked states, each at its own rate."""
    return jax.vmap(run_block, in_axes=(0, None, 0))(states, batch, rates)


@jax.jit
def stacked(states: tuple[State, ...]) -> State:
    """Several states as one."""
    return jax.tree.map(lambda *leaves: jnp.stack(leaves), *states)


@jax.jit
def _chosen(sources: tuple[State, ...], index: Int[Array, " *R"]) -> State:
    """Runs out of several stacks, counted through; for a single number, that run."""
    return jax.tree.map(lambda *leaves: jnp.concatenate(leaves)[index], *sources)


def _seated(seats: list[Seat]) -> State:
    """The states at these seats, stacked: nothing to do as long as nobody has moved."""
    sources = list({id(seat.states): seat.states for seat in seats}.values())
    if len(sources) == 1 and [seat.place for seat in seats] == list(range(len(seats))):
        return sources[0]
    order = {id(source): number * len(seats) for number, source in enumerate(sources)}
    index = np.array([order[id(seat.states)] + seat.place for seat in seats])
    return _chosen(tuple(sources), index)


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
    total = float(np.sum(fetched(batch.weight)))
    unknown = [i for i, result in enumerate(known) if result is None]
    width = _width(len(states), batch, states[0])
    found: dict[int, Result] = {}
    for group in (unknown[i : i + width] for i in range(0, len(unknown), width)):
        # A short group has its first run more than once: another width is another program.
        runs = group + group[:1] * (width - len(group))
        begun = stacked(tuple(states[i] for i in runs))
        climbs = [
            climbing(first(Seat(begun, place), rates[i]), total, max_iter, tol)
            for place, i in enumerate(runs)
        ]
        found |= zip(runs, _finished(climbs, batch), strict=True)
    for i in unknown:
        memory.finish(found[i])
    return [found[i] if result is None else result for i, result in enumerate(known)]


def _finished(climbs: list[Climb], batch: Batch) -> list[Result]:
    """Blocks for everyone until the last one has ended."""
    found: dict[int, Result] = {}
    waiting: dict[int, Stretch] = {}

    def send(i: int, answer: Any) -> None:
        try:
            waiting[i] = climbs[i].send(answer)
        except StopIteration as end:
            seat = end.value.state
            found[i] = end.value._replace(state=_chosen((seat.states,), seat.place))

    for i in range(len(climbs)):
        send(i, None)
    while len(found) < len(climbs):
        seats = [waiting[i] for i in range(len(climbs))]
        rates = jnp.asarray([run.rate for run in seats])
        states, bounds = run_blocks(_seated([run.state for run in seats]), batch, rates)
        values = np.asarray(bounds.value, np.float64)
        for i, run in enumerate(seats):
            if i in found:
                # It keeps its place, and computes for nobody.
                waiting[i] = run._replace(state=Seat(states, i))
            else:
                send(i, (Seat(states, i), values[i]))
    return [found[i] for i in range(len(climbs))]


def _width(runs: int, batch: Batch, state: State) -> int:
    """How many runs fit into the device's memory at once."""
    limit = (jax.local_devices()[0].memory_stats() or {}).get("bytes_limit")
    if limit is None:
        return runs
    inducing = max(leaf.shape[-2] for leaf in jax.tree.leaves(state.model) if jnp.ndim(leaf) > 1)
    each = _WORKING_ARRAYS * batch.X.dtype.itemsize * state.responsibilities.size * inducing
    return int(np.clip(_SHARE * limit // each, 1, runs))
