"""Keeps a long test run within what the operating system allows one process."""

import gc
import os
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path

# Programs read back from the cache of a test run are said to be for another machine, at length;
# the log level is read when JAX is imported.
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

# The models of the tests are tiny and the programs many: most of the time goes into compilation,
# and without XLA's fusion emitters that takes half as long. A program cut into parts, which several
# threads could compile, is more work in all. In the processes that tests start too.
# A flag that a version of XLA does not know ends the process: only where it has been tried.
if version("jax").startswith(("0.8.", "0.9.")):
    flags = os.environ.get("XLA_FLAGS", "")
    quick = "--xla_cpu_use_fusion_emitters=false --xla_cpu_parallel_codegen_split_count=1"
    os.environ["XLA_FLAGS"] = f"{flags} {quick}".strip()

# The matrices are small: threads of BLAS would wait for each other, and a worker has one core. The
# library sees to that in its own calls, but tests compute in NumPy and SciPy along other paths.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
os.environ.setdefault("OMP_NUM_THREADS", "1")

import jax
from threadpoolctl import threadpool_limits

# Faces towards packages that are not there have nothing to show.
_FACES = {"skpro": "src/dagp/skpro.py", "gymnasium": "src/dagp/dynamics/gym.py"}
collect_ignore = [path for package, path in _FACES.items() if not find_spec(package)]
MAPS = Path("/proc/self/maps")
MOST = 20_000
"""Every compiled program holds several memory maps, and Linux allows a process 65530 of them: the
compiler crashes on the next one."""


def pytest_collection_finish() -> None:
    """Spare the garbage collector what was imported, which stays, and much of its work."""
    gc.freeze()
    # Tracing allocates many objects and frees few.
    gc.set_threshold(50_000, 20, 20)
    # Without workers, NumPy has been imported before it could read the environment.
    threadpool_limits(1)


def pytest_runtest_teardown() -> None:
    """Forget compiled programs before there are too many."""
    if MAPS.exists() and len(MAPS.read_bytes().splitlines()) > MOST:
        jax.clear_caches()
