"""Streaming updates of a fitted model with new rows, in chunks."""

from typing import Any, NamedTuple

import jax
import numpy as np

from dagp.core.errors import FitError
from dagp.core.tags import storable
from dagp.inference.concrete import with_natural_q
from dagp.inference.minibatch import (
    DECAY,
    FIRST_LEARNING_RATE,
    init_opt_state,
    noise_levels,
    streaming_update,
)
from dagp.inference.standardize import Sample, to_batch
from dagp.inference.train import Result, State
from dagp.model.association import DataAssociation

STREAM_CHUNK = 1024
"""Rows per streaming update if no batch size is given."""
STREAM_PATIENCE = 10
"""Updates after which the learning rate of the noise levels starts to fall."""


@storable("inference/Stream")
class Stream(NamedTuple):
    """State of streaming updates. Holds NumPy arrays only."""

    model: DataAssociation
    opt_state: Any
    """Of Adam; None before its first step."""
    seen: float
    """Total weight of the data so far."""
    steps: int

    @staticmethod
    def after(model: DataAssociation, seen: float) -> "Stream":
        return Stream(model, None, seen, 0)


def _check_absorbed(state: State) -> None:
    """Raise FitError if an update has left a model that is not finite."""
    if not all(np.all(np.isfinite(leaf)) for leaf in jax.tree.leaves(state.model)):
        dtype = state.responsibilities.dtype.name
        raise _beyond("its parameters would not be finite", dtype)


def _check_distributions(model: DataAssociation, dtype: str) -> None:
    """Raise FitError if rounding has left a q that is not a distribution."""
    try:
        model.gate.check(model.n_processes, dtype)
        for k in range(model.n_processes):
            model.process(k).check(dtype)
    except ValueError as error:
        raise _beyond(str(error), dtype) from error


def _beyond(why: str, dtype: str) -> FitError:
    advice = ["Check for extreme values or weights", "fit all rows at once"]
    if dtype != "float64":
        advice.append('use dtype="float64"')
    return FitError(
        f"These rows are beyond what the model can take in: {why}. {', or '.join(advice)}."
    )


def update_stream(stream: Stream, sample: Sample, batch_size: int | None) -> tuple[Stream, Result]:
    """Update with a standardised sample, in chunks."""
    size, K = batch_size or STREAM_CHUNK, stream.model.n_processes
    model, opt_state, seen, steps = stream
    if opt_state is None:
        model = with_natural_q(model)
        opt_state = init_opt_state(model, noise_levels(model))
    found, bounds = [], []
    for first in range(0, len(sample.X), size):
        part = sample.take(slice(first, first + size))
        rate = FIRST_LEARNING_RATE * (1 + steps / STREAM_PATIENCE) ** -DECAY
        state, bound = streaming_update(
            model, opt_state, to_batch(part, K), np.asarray(seen), np.asarray(rate)
        )
        _check_absorbed(state)
        model, opt_state = state.model, state.opt_state
        found.append(np.asarray(state.responsibilities)[: len(part.X)])
        bounds.append(float(bound))
        seen, steps = seen + float(part.weight.sum()), steps + 1
    model, opt_state = jax.tree.map(np.asarray, (model, opt_state))
    _check_distributions(model, found[0].dtype.name)
    state = State(model, np.concatenate(found), opt_state)
    result = Result(state, bounds[-1], np.array(bounds), "converged", 0.0)
    return Stream(model, opt_state, seen, steps), result
