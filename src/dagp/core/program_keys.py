"""Names of compiled programs: everything that a program depends on, hashed.

Two programs that differ must differ in their names. What a user has written can change from one
process to the next without any change of its name, so a program that depends on it has none.
"""

import enum
import functools
import hashlib
import os
import platform
import sys
import time
from pathlib import Path
from types import BuiltinFunctionType, FunctionType
from typing import Any

import jax
import jaxlib
import numpy as np

_TRUSTED = ("builtins", "dagp", "equinox", "jax", "jaxlib", "numpy", "optax")
"""Packages whose code the name of a program covers, by their version or the text of their files."""
_PLAIN = (bool, int, float, complex, str, bytes, type(None))
_PROCESSOR = ("vendor_id", "cpu family", "model", "stepping", "flags", "CPU ", "Features", "isa")
"""How lines of /proc/cpuinfo begin that tell types of processors apart."""
_VARIABLES = ("XLA_", "TF_XLA_", "NPROC", "PJRT_NPROC", "LIBTPU_")
"""How environment variables begin that the compiler reads."""

_WITHOUT_EFFECT = (
    "jax_compilation_cache",
    "jax_debug_log",
    "jax_enable_compilation_cache",
    "jax_log",
    "jax_persistent_cache",
    "jax_traceback",
)
"""How settings of JAX begin that do not change a program."""


def _process_start() -> float:
    """Time at which this process began; 0 if unknown."""
    try:
        # After the name of the program, which is in parentheses, the 20th entry: clock ticks.
        ticks = Path("/proc/self/stat").read_text().rpartition(")")[2].split()[19]
        age = time.clock_gettime(time.CLOCK_BOOTTIME) - int(ticks) / os.sysconf("SC_CLK_TCK")
        return time.time() - age
    except (AttributeError, OSError, ValueError, IndexError):
        return 0.0


_STARTED = _process_start()
"""Sources that are newer may not be the ones that this process has imported."""


class UnknownCodeError(Exception):
    """A program depends on code or values that its name would not cover."""


def program_key(program: Any, tree: Any, types: Any, settings: Any) -> str:
    """Hash of a program, the tree and types of its arguments, and all that it is compiled with.

    Raises UnknownCodeError where code from outside of the trusted packages takes part.
    """
    flags = [f for f in sorted(jax.config.values.items()) if not f[0].startswith(_WITHOUT_EFFECT)]
    parts = (
        _installation(),
        _global_name(program),
        describe_tree(tree),
        describe((types, settings, flags)),
    )
    return _hash("\n".join(parts).encode())


def describe_tree(tree: Any) -> str:
    """Text that two tree structures share only if they are equal."""
    data = tree.node_data()
    if data is None:
        return "*"
    kind, static = data
    children = ",".join(map(describe_tree, tree.children()))
    return f"{_global_name(kind)}[{describe(static)}]({children})"


def describe(value: Any) -> str:
    """Text that two static values share only if they are equal."""
    kind = type(value)
    if kind in _PLAIN:
        return f"{kind.__name__}:{value!r}"
    if kind in (tuple, list):
        return f"{kind.__name__}({','.join(map(describe, value))})"
    if kind in (set, frozenset):
        return f"{kind.__name__}({','.join(sorted(map(describe, value)))})"
    if kind is dict:
        return f"dict({','.join(map(describe, value.items()))})"
    if isinstance(value, np.dtype):
        return f"dtype:{value.name}:{value.str}"
    if isinstance(value, enum.Enum):
        return f"{_global_name(kind)}.{value.name}"
    if isinstance(value, type | FunctionType | BuiltinFunctionType):
        return _global_name(value)
    if _is_empty(value):
        return f"{_global_name(kind)}()"
    raise UnknownCodeError(kind.__qualname__)


def _is_empty(value: Any) -> bool:
    """Whether an object has no fields, or is one of JAX's whose fields are all empty, such as a
    mesh of no devices."""
    kind = type(value)
    slots, fields = getattr(kind, "__slots__", ()), getattr(value, "__dict__", None)
    if kind.__module__.split(".")[0] != "jax":
        return kind.__base__ is object and fields == {} and not slots
    # Underscored ones are derived, such as a hash.
    names = [name for name in (*slots, *(fields or ())) if not name.startswith("_")]
    return bool(names) and not any(getattr(value, name) for name in names)


def _global_name(defined: Any) -> str:
    """Module and name of a class or function of a trusted package."""
    if defined is type(None):
        return "None"  # the one built-in class without a name
    module, name = str(defined.__module__), defined.__qualname__
    found: Any = sys.modules.get(module)
    for part in name.split("."):
        found = getattr(found, part, None)
    if module.split(".")[0] not in _TRUSTED or found is not defined:
        raise UnknownCodeError(f"{module}.{name}")
    return f"{module}.{name}"


@functools.cache
def _installation() -> str:
    """What does not change during a process: sources, versions, processor, devices."""
    import equinox as eqx
    import optax

    package = Path(__file__).parents[1]
    sources = hashlib.blake2b()
    for path in sorted(package.rglob("*.py")):
        text = path.read_bytes()
        if path.stat().st_mtime > _STARTED:
            raise UnknownCodeError(str(path))
        sources.update(f"{path.relative_to(package)} {len(text)}\n".encode() + text)
    client = jax.devices()[0].client
    parts = (
        sources.hexdigest(),
        *(package.__version__ for package in (jax, jaxlib, eqx, optax, np)),
        sys.version,
        sys.flags.optimize,
        platform.machine(),
        _processor(),
        (os.cpu_count(), len(os.sched_getaffinity(0))),
        (client.platform, client.platform_version, jax.device_count()),
        sorted(item for item in os.environ.items() if item[0].startswith(_VARIABLES)),
    )
    return "\n".join(map(repr, parts))


def _processor() -> list[str]:
    """Type of the processor: a program compiled for another type may not run on this one."""
    try:
        first = Path("/proc/cpuinfo").read_text().split("\n\n")[0]
        found = [line for line in first.splitlines() if line.startswith(_PROCESSOR)]
    except OSError:
        found = []
    return found or [platform.processor()]


def _hash(content: bytes) -> str:
    return hashlib.blake2b(content, digest_size=20).hexdigest()
