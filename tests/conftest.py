"""Shared set-up: annotations are checked while testing, and the core is tested in float64."""

import functools
import inspect
import itertools
import os
import signal
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any

import jax
import jaxtyping
import pytest
from hypothesis import settings

# Must run before anything imports dagp: shapes and dtypes in annotations are then checked.
# Not in the modules a user calls directly: those answer wrong types with words of their own.
CHECKED = (
    "core.linalg inference.elbo inference.standardize inference.train model.association "
    "model.gates model.gp model.kernel model.kernels model.means model.noise_shapes model.noisy "
    "model.parameters model.process model.sparse_gp model.variational predict.posterior "
    "predict.process search.factory search.deepen search.improve search.inducing search.moves "
    "search.number search.search search.starts"
)
FIRST, SELDOM = 100, 20
"""How many calls of a function are checked one by one, and which of the later ones are."""
every_call = jaxtyping.jaxtyped


def jaxtyped(function: Any = None, *, typechecker: Any) -> Any:
    """`jaxtyping.jaxtyped`, which checks only some calls once a function has been called often.

    A check takes longer than what it checks: with all of them, tracing takes half as long again.
    """
    if function is None:
        return functools.partial(jaxtyped, typechecker=typechecker)
    checked: Callable = every_call(function, typechecker=typechecker)
    if not inspect.isfunction(function):
        return checked  # a class or a descriptor, whose functions have come here on their own
    calls = itertools.count()

    @functools.wraps(function)
    def wrapper(*args: Any, **kwargs: Any) -> Any:
        call = next(calls)
        return (function if call > FIRST and call % SELDOM else checked)(*args, **kwargs)

    return wrapper


# The import hook calls it by this name, and jaxtyping by the other for what is inside a class.
jaxtyping.jaxtyped = jaxtyping._decorator.jaxtyped = jaxtyped
# The numeric tower of PEP 484 lets an int stand where a float is asked for, as a user may.
jaxtyping.install_import_hook(
    [f"dagp.{module}" for module in CHECKED.split()],
    "beartype.beartype(conf=beartype.BeartypeConf(is_pep484_tower=True))",
)

from dagp.core import precision  # noqa: E402

# No programs of earlier runs or of the user, except in the tests of them.
os.environ["DAGP_CACHE"] = "off"

# Where tests run again and again, as for `mutants.py`, compiled programs are kept. In a single run
# the workers have little in common, and to hash and write every program takes longer than it saves.
if "DAGP_TEST_CACHE" in os.environ:
    jax.config.update("jax_compilation_cache_dir", os.environ["DAGP_TEST_CACHE"])
    jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.1)

# In the background of a shell Ctrl-C is ignored, also by processes that tests start and interrupt.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

# Compiled programs need not say which lines they come from: finding that out takes time.
jax.config.update("jax_traceback_in_locations_limit", 0)
os.environ["JAX_TRACEBACK_IN_LOCATIONS_LIMIT"] = "0"

# The models of the tests are tiny and the programs many: compilation is told to be quick rather
# than thorough, except where a test asks for `thorough`. The same in the processes they start,
# whose last digits are compared with ours.
os.environ["JAX_DISABLE_MOST_OPTIMIZATIONS"] = "1"
jax.config.update("jax_disable_most_optimizations", True)

# The same examples every time, no files written, no clock: the first example compiles.
settings.register_profile("dagp", derandomize=True, database=None, deadline=None)
settings.load_profile("dagp")

# Checked by pyright, not run: looking for doctests would run it.
collect_ignore = ["usage/typed_script.py"]

LONGEST = (
    "test_distributed.py",
    "model/test_robust_processes.py",
    "estimator/test_sklearn.py",
    "files/test_faults.py",
    "estimator/test_estimator.py",
    "files/test_modelfile.py",
    "inference/test_minibatch.py",
    "model/test_deep.py",
    "baselines/test_baselines.py",
    "inference/test_elbo.py",
    "cli/test_cli_stops.py",
    "experiments/test_reproduce.py",
    "tables/test_bad_input.py",
    "experiments/test_experiments.py",
)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Put the longest files first: at the end of a run no worker then waits for another."""
    places = {Path(__file__).parent / name: place for place, name in enumerate(LONGEST)}
    items.sort(key=lambda item: places.get(item.path, len(places)))


@pytest.fixture(scope="module")
def float64() -> Iterator[None]:
    """Double precision for a whole module: ``pytestmark = pytest.mark.usefixtures("float64")``.

    Not autouse, so that tests of the estimator see the climate a user has. Scope is the module,
    because hypothesis runs many examples inside one function-scoped fixture.
    """
    with precision.numerics("float64"):
        yield


@contextmanager
def thorough_compilation() -> Iterator[None]:
    """Programs as a user gets them: for what trains for long, or is compared to the last digit."""
    jax.config.update("jax_disable_most_optimizations", False)
    try:
        yield
    finally:
        jax.config.update("jax_disable_most_optimizations", True)


@pytest.fixture(scope="module")
def thorough() -> Iterator[None]:
    """Thorough compilation in a whole module."""
    with thorough_compilation():
        yield


@pytest.fixture
def thorough_here() -> Iterator[None]:
    """Thorough compilation in a single test."""
    with thorough_compilation():
        yield


@pytest.fixture(scope="session")
def thoroughly() -> Callable[[], AbstractContextManager[None]]:
    """Thorough compilation inside ``with thoroughly():``, for fixtures."""
    return thorough_compilation
