"""Parallel training: several runs at once, in threads or in one vmapped program.

On a CPU independent runs go to threads (`dagp.core.threads`), as many as `width` says.

On an accelerator a step of one small model leaves most of the device idle, and a step of 32 takes
hardly longer. Each run has its own learning rate and end; one that has ended keeps its slot until
all have, because another number of runs would need another compilation.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from dagp.core.gc import gc_paused
from dagp.core.programs import program
from dagp.core.sharding import to_host
from dagp.core.threads import free_cores
from dagp.core.typing import Array, Float, Int
from dagp.inference.elbo import ELBO
from dagp.inference.run_log import NO_LOG, RunLog
from dagp.inference.train import (
    LoopState,
    Result,
    State,
    TrainingSchedule,
    initial_state,
    run_block,
    training_schedule,
)
from dagp.model.association import Batch

LARGE = 3_000_000
"""Points times processes times inducing points above which runs come one after the other: arrays of
a step then take about half a gigabyte, and its products are large enough to be divided."""
_WORKING_ARRAYS = 24
"""Arrays over points, inducing points and processes that a step and its gradient hold at once."""
_SHARE = 0.5
"""Largest part of the device's memory for the runs."""


def is_faster() -> bool:
    """Whether parallel runs are faster on this backend: one run occupies a CPU."""
    return jax.default_backend() != "cpu"


def width(state: State) -> int:
    """Number of runs from such states that are worth computing at once, in threads."""
    shapes = map(np.shape, jax.tree.leaves(state.model))
    inducing = max((shape[-2] for shape in shapes if len(shape) > 1), default=1)
    return 1 if state.responsibilities.size * inducing > LARGE else free_cores()


class Slot(NamedTuple):
    """Position of a run among stacked states; unstacking 32 states costs a third of their steps."""

    states: State
    """Of all runs, stacked."""
    place: int


@program
@gc_paused()
def run_blocks(states: State, batch: Batch, rates: Float[Array, " R"]) -> tuple[State, ELBO]:
    """A block of steps of every run, from stacked states, each at its own rate."""
    return jax.vmap(run_block, in_axes=(0, None, 0))(states, batch, rates)


@program
def stacked(states: tuple[State, ...]) -> State:
    """Several states as one."""
    return jax.tree.map(lambda *leaves: jnp.stack(leaves), *states)


@program
def _chosen(sources: tuple[State, ...], index: Int[Array, " *R"]) -> State:
    """Runs selected by index from concatenated stacks; a single run for a scalar index."""
    return jax.tree.map(lambda *leaves: jnp.concatenate(leaves)[index], *sources)


def _gathered(slots: list[Slot]) -> State:
    """The states at these slots, stacked; without a copy if they are one stack in order."""
    sources = list({id(slot.states): slot.states for slot in slots}.values())
    if len(sources) == 1 and [slot.place for slot in slots] == list(range(len(slots))):
        return sources[0]
    order = {id(source): number * len(slots) for number, source in enumerate(sources)}
    index = np.array([order[id(slot.states)] + slot.place for slot in slots])
    return _chosen(tuple(sources), index)


def train_in_parallel(
    states: Sequence[State],
    batch: Batch,
    *,
    max_iter: int,
    tol: float,
    rates: Sequence[float],
    log: RunLog = NO_LOG,
) -> list[Result]:
    """As `dagp.inference.train.train` for each state, in one program."""
    known = [log.replay(Result, LoopState, state)[0] for state in states]
    total = float(np.sum(to_host(batch.weight)))
    unknown = [i for i, result in enumerate(known) if result is None]
    width = _width(len(states), batch, states[0])
    found: dict[int, Result] = {}
    for group in (unknown[i : i + width] for i in range(0, len(unknown), width)):
        # A short group repeats its first run: another width would be another compilation.
        runs = group + group[:1] * (width - len(group))
        together = stacked(tuple(states[i] for i in runs))
        schedules = [
            training_schedule(initial_state(Slot(together, place), rates[i]), total, max_iter, tol)
            for place, i in enumerate(runs)
        ]
        found |= zip(runs, _finished(schedules, batch), strict=True)
    for i in unknown:
        log.append(found[i])
    return [found[i] if result is None else result for i, result in enumerate(known)]


def _finished(schedules: list[TrainingSchedule], batch: Batch) -> list[Result]:
    """Run blocks for all runs until the last one has ended."""
    found: dict[int, Result] = {}
    waiting: dict[int, LoopState] = {}

    def send(i: int, reply: Any) -> None:
        try:
            waiting[i] = schedules[i].send(reply)
        except StopIteration as end:
            slot = end.value.state
            found[i] = end.value._replace(state=_chosen((slot.states,), slot.place))

    for i in range(len(schedules)):
        send(i, None)
    while len(found) < len(schedules):
        slots = [waiting[i] for i in range(len(schedules))]
        rates = jnp.asarray([run.rate for run in slots])
        states, bounds = run_blocks(_gathered([run.state for run in slots]), batch, rates)
        values = np.asarray(bounds.value, np.float64)
        for i, run in enumerate(slots):
            if i in found:
                # It keeps its slot; the results there are ignored.
                waiting[i] = run._replace(state=Slot(states, i))
            else:
                send(i, (Slot(states, i), values[i]))
    return [found[i] for i in range(len(schedules))]


def _width(runs: int, batch: Batch, state: State) -> int:
    """Number of runs that fit into the device's memory at once."""
    limit = (jax.local_devices()[0].memory_stats() or {}).get("bytes_limit")
    if limit is None:
        return runs
    inducing = max(leaf.shape[-2] for leaf in jax.tree.leaves(state.model) if jnp.ndim(leaf) > 1)
    each = _WORKING_ARRAYS * batch.X.dtype.itemsize * state.responsibilities.size * inducing
    return int(np.clip(_SHARE * limit // each, 1, runs))
