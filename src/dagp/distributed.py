"""Fits that are spread over many devices, of one process or of many on many machines.

Every process runs the same program on the same data and holds its own part of the rows on its
devices; the models are the same everywhere, and so is what comes out. From the command line
``dagp launch`` starts the processes of one machine; on many, the launcher of the cluster does
(see the page on large data)::

    from dagp import DAGP, distributed

    distributed.initialize()            # before anything computes; who we are says the environment
    with distributed.together():
        model.fit(X, y)                 # in all processes
    if distributed.leading():
        model.save("model.dagp")
"""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import NamedTuple

import jax
from jax.sharding import AxisType

from dagp.placement import ROWS, spread

__all__ = ["Place", "initialize", "leading", "place_of", "together"]

AUTO = "auto"
HEARTBEAT = 20
"""Seconds after which a process that does not answer is taken for dead, and the others end too."""


class Place(NamedTuple):
    """One of several processes that fit together."""

    coordinator: str
    """Address of the first of them, host:port; "auto" asks the launcher of the cluster."""
    processes: int | None = None
    process: int | None = None

    def environment(self) -> dict[str, str]:
        """How a process is told its place."""
        return {
            "DAGP_COORDINATOR": self.coordinator,
            "DAGP_PROCESSES": str(self.processes),
            "DAGP_PROCESS": str(self.process),
        }


def place_of(environment: "os._Environ[str] | dict[str, str]" = os.environ) -> Place | None:
    """The place that an environment gives a process; None where it is on its own.

    >>> place_of({"DAGP_COORDINATOR": "node1:1234", "DAGP_PROCESSES": "4", "DAGP_PROCESS": "2"})
    Place(coordinator='node1:1234', processes=4, process=2)
    >>> place_of({}) is None
    True
    """
    coordinator = environment.get("DAGP_COORDINATOR")
    if not coordinator:
        return None
    if coordinator == AUTO:
        return Place(AUTO)
    numbers = []
    for name in ("DAGP_PROCESSES", "DAGP_PROCESS"):
        if not environment.get(name, "").isdecimal():
            raise ValueError(f"DAGP_COORDINATOR is set, but {name} is not a number.")
        numbers.append(int(environment[name]))
    if numbers[1] >= numbers[0]:
        raise ValueError(
            f"DAGP_PROCESS counts from 0: {numbers[1]} is not one of {numbers[0]} processes."
        )
    return Place(coordinator, *numbers)


def initialize(place: Place | None = None) -> None:
    """Meet the other processes. Call it before anything is computed, once in each of them.

    Without a `place` the environment says it: ``DAGP_COORDINATOR``, ``DAGP_PROCESSES`` and
    ``DAGP_PROCESS``, or ``DAGP_COORDINATOR=auto`` under Slurm, Open MPI and Kubernetes. A process
    that is on its own has nobody to meet, and nothing happens.
    """
    place = place or place_of()
    if place is None:
        return
    if place.coordinator == AUTO:
        jax.distributed.initialize(heartbeat_timeout_seconds=HEARTBEAT)
        return
    # Nobody from outside has business with processes that all are on this machine.
    local = place.coordinator.startswith(("127.", "localhost:"))
    jax.distributed.initialize(
        place.coordinator,
        place.processes,
        place.process,
        coordinator_bind_address=place.coordinator if local else None,
        heartbeat_timeout_seconds=HEARTBEAT,
    )


@contextmanager
def together() -> Iterator[None]:
    """Spread the fits inside the ``with`` block over all devices of all processes.

    Every process must do the same there, in the same order, with the same data.

    >>> from dagp import DAGP, datasets
    >>> data = datasets.noise_separation(0.0, n=50, random_state=0)
    >>> with together():
    ...     model = DAGP(1, n_init=1, tol=1e-1, random_state=0).fit(data.X, data.y)
    >>> model.responsibilities_.shape
    (50, 1)
    """
    # Auto: the compiler decides what else is divided, from how the rows are.
    mesh = jax.make_mesh((jax.device_count(),), (ROWS,), axis_types=(AxisType.Auto,))
    with spread(mesh):
        yield


def leading() -> bool:
    """Whether this process is the one that writes files.

    >>> leading()
    True
    """
    return jax.process_index() == 0
