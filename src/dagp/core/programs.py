"""Compiled programs: ``jax.jit``, with the compiled code kept on disk for later processes.

A process that finds a program on disk neither traces nor compiles it. This concerns one CPU device
outside of other transformations; everywhere else, `program` is ``jax.jit``. The same machine code
runs either way, so results do not depend on what is on disk.
"""

import collections
import functools
import importlib
import io
import os
import pickle
import threading
import time
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import jax
import numpy as np

from dagp.core.program_files import cache_folder, read, remove, write
from dagp.core.program_keys import UnknownCodeError, program_key

_TRIED = ("0.8.", "0.9.", "0.11.", "0.12.")
"""Versions of JAX with which reading programs has been tried."""
_WITH_OTHER_EMITTERS = ("0.8.", "0.9.")
_OPTIONS = (
    {"xla_cpu_use_fusion_emitters": False}
    if jax.__version__.startswith(_WITH_OTHER_EMITTERS)
    else None
)
"""Compiles most programs in two thirds to four fifths of the time; they run equally fast. Later
versions of JAX have no such option."""
_SCALARS = (bool, int, float, complex)
_PACKAGES = ("dagp", "equinox", "jax", "jaxlib", "numpy", "optax")
"""Packages whose classes a file may name."""


MAPS = Path("/proc/self/maps")
MOST_MAPS = 20_000
"""Memory maps of a process above which compiled programs are forgotten: each has several, Linux
allows 65530, and XLA crashes when it asks for one more."""
_LOOK_EVERY = 1.0
_looked = -_LOOK_EVERY
_programs: "weakref.WeakSet[Program]" = weakref.WeakSet()


def forget_programs_if_many() -> None:
    """Forget all compiled programs if they take too many memory maps; called between fits."""
    global _looked
    # A program takes longer to compile than this, and looking takes milliseconds.
    if time.monotonic() - _looked < _LOOK_EVERY:
        return
    _looked = time.monotonic()
    if MAPS.exists() and MAPS.read_bytes().count(b"\n") > MOST_MAPS:
        for one in _programs:
            one.forget()
        jax.clear_caches()


class Program:
    """A function that is compiled once for each structure and type of its arguments."""

    def __init__(self, function: Callable[..., Any], options: Any) -> None:
        functools.update_wrapper(self, function)
        self._options = options
        self._lock = threading.RLock()
        self._inside: Any = jax.jit(function)
        """Inside of other transformations, and everywhere but on one CPU device."""
        self._chosen: dict[Any, Callable[..., Any] | None] = {}
        self._compiled: dict[Any, Callable[..., Any]] = {}
        """Programs of the leaves of the arguments: these are taken apart once, to find one."""
        _programs.add(self)

    def forget(self) -> None:
        """Forget what has been compiled."""
        self._chosen.clear()
        self._compiled.clear()

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        leaves, tree = jax.tree.flatten((args, kwargs))
        try:
            key = (tree, _context(), *map(_signature, leaves))
            if key not in self._chosen:
                # Threads that need the same program wait for one of them to compile it.
                with self._lock:
                    if key not in self._chosen:
                        self._chosen[key] = self._choose(leaves, tree)
            chosen = self._chosen[key]
        except (AttributeError, TypeError):
            # Not the arguments of a program: JAX says why.
            chosen = None
        return self._inside(*args, **kwargs) if chosen is None else chosen(*leaves)

    def __getattr__(self, name: str) -> Any:
        # `lower`, `trace`, `eval_shape`: as of ``jax.jit``.
        if name.startswith("_"):
            raise AttributeError(name)
        return getattr(self._inside, name)

    def __reduce__(self) -> str:
        return self.__qualname__

    def _cache_size(self) -> int:
        """Number of programs, as the method of this name of ``jax.jit``."""
        return len(self._compiled) + self._inside._cache_size()

    def _choose(self, leaves: list[Any], tree: Any) -> Callable[..., Any] | None:
        """The program for arguments of this structure and these types; None for plain ``jit``."""
        if not (_tried() and all(map(_is_local, leaves)) and _is_plain_setting()):
            return None
        # NumPy and JAX arrays of one type need one program.
        known = map(jax.typeof, leaves)
        types = tuple((leaf.shape, leaf.dtype, leaf.weak_type) for leaf in known)
        key = (tree, _context(), types)
        if key not in self._compiled:
            self._compiled[key] = self._prepare(leaves, tree, types)
        return self._compiled[key]

    def _prepare(self, leaves: list[Any], tree: Any, types: Any) -> Callable[..., Any]:
        """The program from disk, or compiled and written there if it may be kept."""

        @functools.wraps(self.__wrapped__)
        def of_leaves(*leaves: Any) -> Any:
            args, kwargs = jax.tree.unflatten(tree, leaves)
            return self.__wrapped__(*args, **kwargs)

        # Without the signature of the function: its arguments are others.
        del of_leaves.__wrapped__
        jitted = jax.jit(of_leaves, compiler_options=self._options)
        if cache_folder() is None or _jax_keeps_programs():
            return jitted
        try:
            key = program_key(self, tree, types, (_context(), self._options))
        except (UnknownCodeError, AttributeError, OSError):
            return jitted
        found = _load(key, len(leaves))
        if found is None:
            found = jitted.lower(*leaves).compile()
            _save(key, found)
        return found


def program(function: Callable[..., Any], *, emitters: bool = False) -> Any:
    """As ``jax.jit``, for the library's own functions: keeps the compiled program on disk.

    The function stands at the top of a module of this library and depends on nothing but its
    arguments and the sources of the library. Arguments and results are trees of arrays; where their
    static parts hold classes or functions from elsewhere, such as a user's kernel, the program is
    compiled in every process. `emitters`: by XLA's fusion emitters, which compile long programs
    without matrix products faster.
    """
    return Program(function, None if emitters else _OPTIONS)


def _context() -> tuple[Any, ...]:
    """Settings of JAX that tracing depends on."""
    flags: Any = jax.config
    unusual = flags.jax_disable_jit, flags.jax_debug_nans, flags.jax_debug_infs
    return _trace_context(), *unusual


def _trace_context() -> Any:
    return None


try:
    # Not a public function; without it no program is kept.
    from jax._src.config import trace_context as _trace_context
except ImportError:
    _TRIED = ()


@functools.cache
def _tried() -> bool:
    return jax.__version__.startswith(_TRIED)


def _is_plain_setting() -> bool:
    """Whether programs run on a single CPU device, compiled."""
    return jax.default_backend() == "cpu" and jax.device_count() == 1 and not any(_context()[1:])


def _jax_keeps_programs() -> bool:
    """Whether the user has set JAX's own cache: a program that was read from there can be written
    again, but lacks some of its functions when it is read back."""
    flags: Any = jax.config
    return bool(flags.jax_enable_compilation_cache and flags.jax_compilation_cache_dir)


def _signature(leaf: Any) -> Any:
    """What selects a program, of one argument."""
    kind = type(leaf)
    if kind is np.ndarray:
        return leaf.shape, leaf.dtype
    if kind in _SCALARS:
        return kind
    if isinstance(leaf, np.generic):
        return (), leaf.dtype
    committed = getattr(leaf, "committed", True)
    return kind, leaf.shape, leaf.dtype, leaf.weak_type, committed


def _is_local(leaf: Any) -> bool:
    """Whether an argument is on the host, or on the device that JAX chose."""
    if isinstance(leaf, (np.ndarray, np.generic, *_SCALARS)):
        return True
    # Neither a tracer nor an array that was put on a device explicitly.
    return isinstance(leaf, jax.Array) and not getattr(leaf, "committed", True)


def _load(key: str, count: int) -> Callable[..., Any] | None:
    """The program of a file, of this number of arrays; None if there is none."""
    content = read(key)
    if content is None:
        return None
    try:
        start = 8 + int.from_bytes(content[:8], "little")
        returned = jax.tree.structure(_Reader(io.BytesIO(content[8:start])).load())
        given = jax.tree.structure((tuple(range(count)), {}))
        return _executable(content[start:], given, returned)
    except Exception:
        # Whatever is wrong with it: the program can be compiled.
        remove(key)
        return None


def _save(key: str, compiled: Any) -> None:
    """Write a program to its file, unless it calls back into this process."""
    try:
        from jax.experimental.serialize_executable import serialize

        parts = compiled._executable._unloaded_executable
        if parts.keepalive or parts.host_callbacks or parts.ordered_effects:
            return
        executable, _, returned = serialize(compiled)
        # The structure of the results, as a tree with numbers for leaves.
        example = pickle.dumps(returned.unflatten(range(returned.num_leaves)))
        if jax.tree.structure(_Reader(io.BytesIO(example)).load()) != returned:
            return
    except Exception:
        # JAX cannot write all programs; this one is compiled in every process.
        return
    write(key, len(example).to_bytes(8, "little") + example + executable)


def _find_class(module: str, name: str) -> Any:
    """A class that a file names, or one of the functions by which JAX restores its own."""
    if (module, name) == ("collections", "OrderedDict"):
        return collections.OrderedDict
    if module.split(".")[0] in _PACKAGES:
        found = functools.reduce(getattr, name.split("."), importlib.import_module(module))
        if isinstance(found, type) or name.lstrip("_").startswith("unpickle"):
            return found
    raise pickle.UnpicklingError(f"{module}.{name}")


class _Reader(pickle.Unpickler):
    """Restores classes of this library and those below it, and nothing else."""

    def find_class(self, module_name: str, global_name: str, /) -> Any:
        return _find_class(module_name, global_name)


def _executable(content: bytes, given: Any, returned: Any) -> Callable[..., Any]:
    """As JAX's `deserialize_and_load`, restricted to classes that are expected there."""
    from jax.experimental.serialize_executable import _JaxPjrtUnpickler

    class Reader(_JaxPjrtUnpickler):
        def find_class(self, module_name: str, global_name: str, /) -> Any:
            return _find_class(module_name, global_name)

    client = jax.devices()[0].client
    _prepare_lapack()
    with _without_messages():
        unloaded, info, no_kwargs = Reader(io.BytesIO(content), client).load()
        executable = unloaded.load()
    return jax.stages.Compiled(executable, [], given.unflatten(info), returned, no_kwargs=no_kwargs)


@functools.cache
def _prepare_lapack() -> None:
    """Let JAX find the LAPACK functions of SciPy, which it does when it compiles."""
    # A program that calls one of them crashes otherwise.
    from jaxlib.lapack import prepare_lapack_call

    prepare_lapack_call("potrf_ffi", np.dtype(np.float64))


@contextmanager
def _without_messages() -> Iterator[None]:
    """Suppress messages of XLA below fatal ones.

    It lists its own tuning flags as features that the processor lacks, for every program it reads.
    """
    from jaxlib.utils import absl_set_min_log_level

    levels = {"DEBUG": 0, "INFO": 0, "WARNING": 1, "WARN": 1, "ERROR": 2}
    named = levels.get(str(jax.config.values.get("jax_logging_level")))
    before = os.environ.get("TF_CPP_MIN_LOG_LEVEL", "1")
    absl_set_min_log_level(3)
    try:
        yield
    finally:
        absl_set_min_log_level(int(before) if named is None and before.isdigit() else named or 1)
