"""Files of our own: a JSON description and arrays, checked before they are believed.

    magic | format version | length of the description | its digest | description | arrays

The description is a tree of plain values. Arrays stand in it by number; their type, shape, place
and digest are declared beside it. Objects are written as the name of one of our classes and its
fields, and are read by filling in fields: no constructor runs, and nothing in a file can name code.
"""

import dataclasses
import functools
import hashlib
import importlib
import json
import os
import struct
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

import jax
import numpy as np
import optax

from dagp.errors import StorageError

__all__ = [
    "FORMAT",
    "MIGRATIONS",
    "Header",
    "describe",
    "fingerprint",
    "load",
    "register",
    "replace",
    "save",
]

MAGIC = b"\x89DAGP\r\n\x1a"
"""Eight bytes that no text file has, and that a transfer as text would damage."""
FORMAT = 1
MIGRATIONS: dict[int, Callable[[Any], Any]] = {}
"""From a format version, how a description becomes one of the next version."""

_PREFIX = struct.Struct("<8sIQ32s")
_ALIGNED = 64
_LONGEST_HEADER = 1 << 28
_DEEPEST = 64
_TYPES = ("float64", "float32", "int64", "int32", "uint64", "uint32", "uint8", "bool")
_MODULES = (
    "clutter",
    "concrete",
    "data",
    "deep",
    "fitting",
    "gate",
    "kernels",
    "means",
    "model",
    "parameters",
    "posterior",
    "processes",
    "sparse",
    "stack",
    "stochastic",
    "train",
)
_MARK = "!"
_theirs: dict[str, type] = {}
"""Classes that users have made known."""


class Header(NamedTuple):
    """What a file says about itself."""

    version: int
    kind: str
    about: dict[str, Any]
    """A few words for people: what `dagp info` shows."""
    tree: Any
    arrays: list[dict[str, Any]]
    begin: int
    """Where the arrays begin."""


def register(cls: type) -> type:
    """Let a class of your own be kept in model files: an Equinox module, dataclass or NamedTuple.

    It must be registered again, under the same name, before such a file is loaded. Works as a
    decorator.

    >>> import equinox as eqx
    >>> class Mine(eqx.Module):
    ...     value: float
    >>> register(Mine).__name__
    'Mine'
    """
    if _fields(cls) is None:
        raise TypeError(f"{cls.__name__} is neither a dataclass nor a NamedTuple.")
    _theirs[f"{cls.__module__}.{cls.__qualname__}"] = cls
    return cls


@functools.cache
def _ours() -> dict[str, type]:
    """Classes of this library that may stand in a file, by name; and the optimiser's state."""
    found: dict[str, type] = {"optax.ScaleByAdamState": optax.ScaleByAdamState}
    for module in _MODULES:
        for cls in vars(importlib.import_module(f"dagp.{module}")).values():
            own = isinstance(cls, type) and cls.__module__ == f"dagp.{module}"
            if own and _fields(cls) is not None:
                found[f"{module}.{cls.__qualname__}"] = cls
    return found


@functools.cache
def _our_names() -> dict[type, str]:
    return {cls: name for name, cls in _ours().items()}


def _name(cls: type) -> str | None:
    """How a class is called in a file; None where it may not stand there."""
    theirs = f"{cls.__module__}.{cls.__qualname__}"
    return _our_names().get(cls) or (theirs if _theirs.get(theirs) is cls else None)


def _fields(cls: type) -> tuple[str, ...] | None:
    if dataclasses.is_dataclass(cls):
        return tuple(field.name for field in dataclasses.fields(cls))
    if issubclass(cls, tuple):
        return getattr(cls, "_fields", None)
    return None


# ------------------------------------------------------------------------------------- writing


def save(path: str | Path, kind: str, about: Mapping[str, Any], tree: Any) -> Path:
    """Write a tree of values, arrays and objects of ours; the old file stays until it is done."""
    arrays: list[np.ndarray] = []
    encoded = _encode(tree, arrays, 0)
    declared, place = [], 0
    for array in arrays:
        declared.append(
            {
                "dtype": str(array.dtype),
                "shape": list(array.shape),
                "place": place,
                "digest": hashlib.blake2b(array.data, digest_size=16).hexdigest(),
            }
        )
        place += _rounded(array.nbytes)
    description = {"kind": kind, "about": dict(about), "tree": encoded, "arrays": declared}
    text = json.dumps(description, ensure_ascii=False, allow_nan=False).encode()

    def fill(file: BinaryIO) -> None:
        digest = hashlib.blake2b(text, digest_size=32).digest()
        file.write(_PREFIX.pack(MAGIC, FORMAT, len(text), digest))
        file.write(text)
        file.write(b"\0" * (_begin(len(text)) - _PREFIX.size - len(text)))
        for array in arrays:
            file.write(array.data)
            file.write(b"\0" * (_rounded(array.nbytes) - array.nbytes))

    return replace(path, fill)


def fingerprint(tree: Any) -> str:
    """The same for the same values and arrays, and for no others.

    >>> fingerprint([1, np.zeros(2)]) == fingerprint([1, np.zeros(2)])
    True
    """
    arrays: list[np.ndarray] = []
    text = json.dumps(_encode(tree, arrays, 0), allow_nan=False).encode()
    digest = hashlib.blake2b(text, digest_size=16)
    for array in arrays:
        digest.update(array.data)
    return digest.hexdigest()


def replace(path: str | Path, fill: Callable[[BinaryIO], None]) -> Path:
    """Write a file so that at every moment the path holds the old one or the new one, whole."""
    path = Path(path)
    try:
        handle, draft = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
    except OSError as error:
        raise StorageError(f"Cannot write {path}: {error.strerror}.") from error
    try:
        with os.fdopen(handle, "wb") as file:
            fill(file)
            file.flush()
            os.fsync(file.fileno())
        mask = os.umask(0)
        os.umask(mask)
        os.chmod(draft, 0o666 & ~mask)
        os.replace(draft, path)
    except BaseException as error:
        Path(draft).unlink(missing_ok=True)
        if isinstance(error, OSError):
            raise StorageError(f"Cannot write {path}: {error.strerror}.") from error
        raise
    _sync_folder(path.parent)
    return path


def _sync_folder(folder: Path) -> None:
    """Make the new name itself last; not every file system can."""
    try:
        handle = os.open(folder, os.O_RDONLY)
    except OSError:  # pragma: no cover
        return
    try:
        os.fsync(handle)
    except OSError:  # pragma: no cover
        pass
    finally:
        os.close(handle)


def _rounded(size: int) -> int:
    return -(-size // _ALIGNED) * _ALIGNED


def _begin(header: int) -> int:
    return _rounded(_PREFIX.size + header)


def _encode(value: Any, arrays: list[np.ndarray], depth: int) -> Any:
    """A value as JSON; arrays go into the list and leave their number."""
    if depth > _DEEPEST:
        raise StorageError("This is nested too deeply to be saved.")
    if value is None or isinstance(value, bool | str):
        return value
    if isinstance(value, int):
        return value
    if isinstance(value, float) and not isinstance(value, np.floating):
        return value if np.isfinite(value) else {_MARK: "float", "text": repr(value)}
    if isinstance(value, np.ndarray | np.generic | jax.Array):
        return _encode_array(value, arrays)
    if isinstance(value, list):
        return [_encode(item, arrays, depth + 1) for item in value]
    if isinstance(value, dict):
        pairs = [[_encode(part, arrays, depth + 1) for part in pair] for pair in value.items()]
        return {_MARK: "dict", "items": pairs}
    if type(value) is tuple:
        return {_MARK: "tuple", "items": [_encode(item, arrays, depth + 1) for item in value]}
    name, fields = _name(type(value)), _fields(type(value))
    if name is None or fields is None:
        raise StorageError(
            f"{type(value).__qualname__} cannot be saved: it is not part of dagp. "
            "dagp.storage.register makes a class known."
        )
    return {
        _MARK: name,
        "fields": {field: _encode(getattr(value, field), arrays, depth + 1) for field in fields},
    }


def _encode_array(value: Any, arrays: list[np.ndarray]) -> dict[str, Any]:
    array = np.asarray(value)
    if array.dtype.kind in "OU" and all(isinstance(item, str) for item in array.ravel()):
        return {_MARK: "strings", "items": array.ravel().tolist()}
    if str(array.dtype) not in _TYPES:
        raise StorageError(f"An array of {array.dtype} cannot be saved.")
    arrays.append(np.ascontiguousarray(array.astype(array.dtype.newbyteorder("<"), copy=False)))
    kind = "scalar" if isinstance(value, np.generic) else "array"
    return {_MARK: kind, "number": len(arrays) - 1, "shape": list(array.shape)}


# ------------------------------------------------------------------------------------- reading


def describe(path: str | Path) -> Header:
    """What a file says about itself; no array is read."""
    with _opened(path) as file:
        return _header(file, Path(path))


def load(path: str | Path, kind: str) -> Any:
    """The tree in a file of this kind, every byte checked."""
    with _opened(path) as file:
        header = _header(file, Path(path))
        if header.kind != kind:
            raise StorageError(f"{path} holds a {header.kind}, not a {kind}.")
        size = file.seek(0, os.SEEK_END)
        arrays = _arrays(file, header, size, Path(path))
    try:
        return _decode(header.tree, arrays, 0)
    except (KeyError, TypeError, ValueError, IndexError, AttributeError, RecursionError) as error:
        raise StorageError(f"{path} is damaged: {error!r}.") from error


def _opened(path: str | Path) -> BinaryIO:
    try:
        return Path(path).open("rb")
    except OSError as error:
        raise StorageError(f"Cannot read {path}: {error.strerror}.") from error


def _header(file: BinaryIO, path: Path) -> Header:
    size = file.seek(0, os.SEEK_END)
    file.seek(0)
    prefix = file.read(_PREFIX.size)
    if len(prefix) < _PREFIX.size or not prefix.startswith(MAGIC):
        raise StorageError(f"{path} is not a dagp file.")
    _, version, length, digest = _PREFIX.unpack(prefix)
    if version > FORMAT:
        raise StorageError(
            f"{path} has format version {version}; this dagp reads up to {FORMAT}. Update dagp."
        )
    if length > min(_LONGEST_HEADER, size):
        raise StorageError(f"{path} is damaged or cut short: its description should be longer.")
    text = file.read(length)
    if len(text) < length or hashlib.blake2b(text, digest_size=32).digest() != digest:
        raise StorageError(f"{path} is damaged: its description has changed since it was written.")
    try:
        described = json.loads(text)
        for old in range(version, FORMAT):
            described = MIGRATIONS[old](described)
        kind, about = described["kind"], described["about"]
        tree, arrays = described["tree"], described["arrays"]
        if not (isinstance(kind, str) and isinstance(about, dict) and isinstance(arrays, list)):
            raise TypeError("wrong types")
    except (KeyError, TypeError, ValueError, RecursionError) as error:
        raise StorageError(f"{path} is damaged: its description makes no sense.") from error
    return Header(version, kind, about, tree, arrays, _begin(length))


def _arrays(file: BinaryIO, header: Header, size: int, path: Path) -> list[np.ndarray]:
    """Every array; sizes are checked against the file before anything is allocated."""
    found, end = [], header.begin
    for number, declared in enumerate(header.arrays):
        try:
            dtype, shape = str(declared["dtype"]), tuple(declared["shape"])
            place, digest = declared["place"], declared["digest"]
            right = dtype in _TYPES and all(type(n) is int and n >= 0 for n in (*shape, place))
        except (KeyError, TypeError) as error:
            raise StorageError(f"{path} is damaged: array {number} is not described.") from error
        count = int(np.prod([float(n) for n in shape])) if right else -1
        nbytes = count * np.dtype(dtype).itemsize if right else -1
        if not right or len(shape) > 16 or not 0 <= nbytes <= size:
            raise StorageError(f"{path} is damaged: array {number} has an impossible shape.")
        begin = header.begin + place
        if begin + nbytes > size:
            raise StorageError(f"{path} is cut short: array {number} should be longer.")
        file.seek(begin)
        raw = file.read(nbytes)
        if hashlib.blake2b(raw, digest_size=16).hexdigest() != digest:
            raise StorageError(f"{path} is damaged: array {number} has changed since it was saved.")
        found.append(np.frombuffer(raw, np.dtype(dtype).newbyteorder("<")).astype(dtype))
        end = max(end, begin + _rounded(nbytes))
    if end != size:
        raise StorageError(f"{path} is damaged: it should have {end} bytes and has {size}.")
    return found


def _decode(node: Any, arrays: list[np.ndarray], depth: int) -> Any:
    if depth > 2 * _DEEPEST:
        raise ValueError("too deep")
    if isinstance(node, list):
        return [_decode(item, arrays, depth + 1) for item in node]
    if not isinstance(node, dict):
        return node
    kind = node[_MARK]
    if kind == "float":
        return float(node["text"])
    if kind == "strings":
        return np.array([str(item) for item in node["items"]], dtype=object)
    if kind in ("array", "scalar"):
        array = arrays[node["number"]].reshape(node["shape"])
        return array[()] if kind == "scalar" else array
    if kind == "tuple":
        return tuple(_decode(item, arrays, depth + 1) for item in node["items"])
    if kind == "dict":
        pairs = ([_decode(part, arrays, depth + 1) for part in pair] for pair in node["items"])
        return dict(pairs)
    return _rebuilt(kind, node["fields"], arrays, depth)


def _rebuilt(name: str, fields: dict[str, Any], arrays: list[np.ndarray], depth: int) -> Any:
    cls = _ours().get(name) or _theirs.get(name)
    if cls is None:
        raise StorageError(
            f"A {name} is in the file, which this dagp does not know; classes of your own are made "
            "known by dagp.storage.register."
        )
    values = {field: _decode(value, arrays, depth + 1) for field, value in fields.items()}
    if set(values) != set(_fields(cls) or ()):
        raise ValueError(f"wrong fields of {name}")
    if issubclass(cls, tuple):
        return cls(**values)
    built = object.__new__(cls)
    for field, value in values.items():
        object.__setattr__(built, field, value)  # the way past a frozen class's own lock
    return built
