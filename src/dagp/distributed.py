"""Data-parallel fits over several devices, worker processes and machines.

Every worker runs the same program on the same data, holds its own part of the rows on its devices,
and gets the same model. ``dagp launch`` or the launcher of a cluster starts the workers::

    from dagp import DAGP, distributed

    distributed.initialize()            # before any computation; reads the environment
    with distributed.together():
        model.fit(X, y)                 # in all workers
    if distributed.leading():
        model.save("model.dagp")
"""

import contextlib
import errno
import functools
import importlib
import os
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.metadata import version
from importlib.util import find_spec
from typing import Any, NamedTuple

import jax
import joblib
from jax._src import clusters as jax_clusters
from jax._src import distributed as jax_distributed
from jax._src import lib as jax_library
from jax.errors import JaxRuntimeError
from jax.sharding import AxisType

from dagp.core.sharding import ROWS, use_mesh
from dagp.core.version import __version__

__all__ = ["DaskError", "Place", "initialize", "leading", "on_dask", "place_of", "together"]

AUTO = "auto"
LISTEN = "DAGP_LISTEN"
"""Environment variable; ``all`` lets the coordinator listen on every interface of its machine."""
HEARTBEAT = 20
"""Seconds without an answer after which a worker counts as lost and the others stop too."""
DASK = 30
"""Seconds in which a Dask scheduler must answer and have a worker."""


class Place(NamedTuple):
    """Address, number and rank of one of several workers that fit together.

    Parameters
    ----------
    coordinator : str
        Address of the first worker, ``host:port``; ``"auto"`` detects it from the cluster.
    processes, process : int, default=None
        Number of workers and rank of this one, from 0; None with ``"auto"``.
    """

    coordinator: str
    processes: int | None = None
    process: int | None = None

    def environment(self) -> dict[str, str]:
        """The environment variables, a dict of str, from which `place_of` reads this place."""
        return {
            "DAGP_COORDINATOR": self.coordinator,
            "DAGP_PROCESSES": str(self.processes),
            "DAGP_PROCESS": str(self.process),
        }


def place_of(environment: "os._Environ[str] | dict[str, str]" = os.environ) -> Place | None:
    """Read the place of this worker from environment variables.

    Parameters
    ----------
    environment : mapping of str, default=os.environ
        May hold ``DAGP_COORDINATOR``, ``DAGP_PROCESSES`` and ``DAGP_PROCESS``.

    Returns
    -------
    Place or None
        None if there is a single worker.

    Examples
    --------
    >>> place_of({"DAGP_COORDINATOR": "node1:1234", "DAGP_PROCESSES": "4", "DAGP_PROCESS": "2"})
    Place(coordinator='node1:1234', processes=4, process=2)
    >>> place_of({}) is None
    True
    """
    coordinator = environment.get("DAGP_COORDINATOR")
    if not coordinator or coordinator == AUTO:
        return Place(AUTO) if coordinator else None
    for name in ("DAGP_PROCESSES", "DAGP_PROCESS"):
        found = environment.get(name)
        if not (found or "").isdecimal():
            expected = "must be a whole number where DAGP_COORDINATOR is set"
            raise ValueError(f"{name} {expected}, got {found!r}.")
    count, rank = int(environment["DAGP_PROCESSES"]), int(environment["DAGP_PROCESS"])
    if rank >= count:
        expected = f"counts from 0 and must be below DAGP_PROCESSES={count}"
        raise ValueError(f"DAGP_PROCESS {expected}, got {rank}.")
    return Place(coordinator, count, rank)


def initialize(place: Place | None = None) -> None:
    """Connect to the other workers, if any. Call it once in each, before any computation.

    Parameters
    ----------
    place : Place, default=None
        None reads it from the environment: ``DAGP_COORDINATOR``, ``DAGP_PROCESSES`` and
        ``DAGP_PROCESS``, or ``DAGP_COORDINATOR=auto`` under Slurm, Open MPI and Kubernetes.

    Raises
    ------
    OSError
        In the first worker, if the port on which it should listen is in use.
    ValueError
        With ``auto`` where no cluster is found.

    Notes
    -----
    The coordinator listens on the address it is given, on loopback with workers of one machine, or
    on every interface with ``DAGP_LISTEN=all`` and with ``auto``. Nothing is encrypted or
    authenticated: use a private network.
    """
    place = place or place_of()
    if place is None:
        return
    options: dict[str, Any] = {"heartbeat_timeout_seconds": HEARTBEAT}
    everywhere = place.coordinator == AUTO or os.environ.get(LISTEN) == "all"
    if place.coordinator == AUTO:
        place, options["local_device_ids"] = _detected()
    if place.coordinator.startswith(("127.", "localhost:")):
        _collect_on_loopback()
    if not everywhere:
        # The default is every interface of the machine.
        options["coordinator_bind_address"] = place.coordinator
    if place.process == 0:
        _check_port(place.coordinator, everywhere)
    jax.distributed.initialize(*place, **options)


def _detected() -> tuple[Place, Any]:
    """The place that the cluster has for this worker, and its devices."""
    library: Any = jax_clusters
    detect = library.ClusterEnv.auto_detect_unset_distributed_params
    # In the order of its arguments: nothing is known, how to look, seconds to wait.
    *place, devices = detect(None, None, None, None, None, 300)
    if None in place:
        known = "Slurm, Open MPI or Kubernetes"
        raise ValueError(f"DAGP_COORDINATOR=auto: found no job step of {known} to read it from.")
    return Place(*place), devices


def _check_port(coordinator: str, everywhere: bool) -> None:
    """Raise OSError if the coordinator cannot listen there: JAX would end the process instead, or
    share the port with a coordinator of another fit."""
    host, _, port = coordinator.rpartition(":")
    if not (host and port.isdecimal() and 0 < int(port) < 2**16):
        raise ValueError(f"DAGP_COORDINATOR must be auto or host:port, got {coordinator!r}.")
    try:
        found = socket.getaddrinfo(host.strip("[]"), int(port), type=socket.SOCK_STREAM)
    except OSError as error:
        raise OSError(f"DAGP_COORDINATOR: there is no host {host!r} ({error.strerror}).") from error
    family, _, _, _, address = found[0]
    with socket.socket(family) as listener:
        # Connections that have ended do not count.
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            listener.bind(("", *address[1:]) if everywhere else address)
        except OSError as error:
            taken = error.errno == errno.EADDRINUSE
            reason = "the port is in use" if taken else f"{error.strerror}"
            said = f"Cannot listen on {coordinator}, the address of the first worker: {reason}"
            choice = "JAX_COORDINATOR_PORT" if everywhere else "DAGP_COORDINATOR"
            raise OSError(f"{said}. {choice} sets another.") from error


def leave_together(seconds: float) -> bool:
    """Wait for the other workers to call this too; False if one has not within so many seconds."""
    client: Any = jax_distributed.global_state.client
    if client is None:
        return True
    with contextlib.suppress(JaxRuntimeError):
        client.wait_at_barrier("dagp: leave together", int(1000 * seconds))
        return True
    return False


def _collect_on_loopback() -> None:
    """With all workers on this machine, do not listen to other machines.

    The sockets over which CPUs exchange sums are bound to what the name of the host resolves to,
    which may be reachable from the network; JAX has no setting for it.
    """
    library: Any = jax_library
    native = library.xla_client._xla
    if not isinstance(native.make_gloo_tcp_collectives, functools.partial):
        here = functools.partial(native.make_gloo_tcp_collectives, hostname="127.0.0.1")
        native.make_gloo_tcp_collectives = here


@contextmanager
def together() -> Iterator[None]:
    """Shard the rows of the fits inside the ``with`` block over all devices of all workers.

    Every worker must make the same calls there, in the same order, with the same data.

    Examples
    --------
    >>> from dagp import DAGP, datasets
    >>> data = datasets.noise_separation(0.0, n=50, random_state=0)
    >>> with together():
    ...     model = DAGP(1, n_init=1, tol=1e-1, random_state=0).fit(data.X, data.y)
    >>> model.responsibilities_.shape
    (50, 1)
    """
    # Auto: the compiler derives the sharding of everything else from that of the rows.
    mesh = jax.make_mesh((jax.device_count(),), (ROWS,), axis_types=(AxisType.Auto,))
    with use_mesh(mesh):
        yield


def leading() -> bool:
    """Whether this is the worker that writes files: the one of rank 0.

    Examples
    --------
    >>> leading()
    True
    """
    return jax.process_index() == 0


class DaskError(RuntimeError):
    """The workers of a Dask scheduler cannot be used, or were lost."""


@contextmanager
def on_dask(scheduler: str) -> Iterator[Any]:
    """Run independent fits on a Dask cluster: what joblib does in parallel in the ``with`` block.

    Searches and cross-validation of scikit-learn do, with any ``n_jobs``. Fits of a worker that is
    lost are repeated by another; results are those of a serial run, to the last bit.

    Parameters
    ----------
    scheduler : str
        Address, such as ``"tcp://host:8786"``.

    Yields
    ------
    distributed.Client
        The connection, for calls of your own.

    Raises
    ------
    DaskError
        If there is no scheduler, no worker, or one with other versions of dagp, JAX, NumPy, SciPy
        or scikit-learn, whose last digits may differ.

    Examples
    --------
    >>> from sklearn.model_selection import cross_val_score
    >>> with on_dask("tcp://10.0.0.1:8786"):  # doctest: +SKIP
    ...     scores = cross_val_score(model, X, y)
    """
    if find_spec("distributed") is None:
        raise DaskError("Dask is not installed: pip install 'dagp[dask]'.")
    # By name: type checkers take `distributed` for this module.
    dask: Any = importlib.import_module("distributed")
    from joblib import _dask as joblib_dask

    class Backend(joblib_dask.DaskDistributedBackend):
        """Sends arguments with every call. Joblib leaves those above a kilobyte with one worker,
        and all calls that need them fail when this worker is lost."""

        async def _to_func_args(self, func: Any) -> Any:
            return joblib_dask.Batch(func.items), [(f, list(a), k) for f, a, k in func.items]

    try:
        client = dask.Client(scheduler, timeout=DASK, set_as_default=False)
    except (OSError, ValueError) as error:
        raise DaskError(f"There is no Dask scheduler at {scheduler}: {error}") from error
    with client:
        try:
            client.wait_for_workers(1, timeout=DASK)
        except TimeoutError as error:
            raise DaskError(f"The Dask scheduler at {scheduler} has no workers.") from error
        _check_versions(client)
        with joblib.parallel_config(Backend(client=client), n_jobs=-1):
            yield client


def _check_versions(client: Any) -> None:
    """Raise DaskError for a worker whose results could differ from ours."""
    ours = _versions()
    for worker, found in client.run(_versions, on_error="return").items():
        if isinstance(found, BaseException):
            raise DaskError(f"The Dask worker {worker} cannot import dagp: {found}")
        other = [f"{n} {found[n]} (here {v})" for n, v in ours.items() if found[n] != v]
        if other:
            raise DaskError(f"The Dask worker {worker} has {', '.join(other)}.")


def _versions() -> dict[str, str]:
    """Versions of the packages that determine the last digits of a result."""
    packages = ("jax", "jaxlib", "numpy", "scipy", "scikit-learn")
    return {"dagp": __version__} | {name: version(name) for name in packages}
