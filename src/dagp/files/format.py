"""The file format: a JSON description and arrays, checked before they are used.

    magic | format version | length of the description | its digest | description | arrays

The description is a tree of plain values. It refers to arrays by number and declares their type,
shape, offset and digest. Objects are written as the tag of their class and their fields, and read
by setting fields: no constructor runs, and a file cannot name code.
"""

import functools
import hashlib
import importlib
import json
import math
import os
import struct
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

import jax
import numpy as np

from dagp.core.errors import StorageError
from dagp.core.tags import class_of, fields_of, tag_of
from dagp.core.text import quoted, shown
from dagp.files.atomic import replace
from dagp.files.migrations import MIGRATIONS

MAGIC = b"\x89DAGP\r\n\x1a"
"""Eight bytes that no text file starts with, and that a transfer as text would change."""
FORMAT = 6
"""Version 2 names classes by tags, version 1 (dagp 0.1) by module paths; version 4 has columns that
are not numbers, version 5 shapes of the noise, version 6 averaged posteriors; see `migrations`."""

_PREFIX = struct.Struct("<8sIQ32s")
_ALIGNED = 64
_LONGEST_HEADER = 1 << 26
"""Bytes; a parsed description takes up to thirty times as much memory."""
_DEEPEST = 64
_FLOATS = {repr(value): value for value in (math.inf, -math.inf, math.nan)}
"""Numbers that JSON cannot represent."""
_TYPES = ("float64", "float32", "int64", "int32", "uint64", "uint32", "uint8", "bool")
_DECLARED = ("dtype", "shape", "place", "digest")
_MARK = "!"


class Header(NamedTuple):
    """Header of a file: its description and offsets."""

    version: int
    kind: str
    about: dict[str, Any]
    """Human-readable facts, shown by `dagp info`."""
    tree: Any
    arrays: list[dict[str, Any]]
    end: int
    """Offset of the end of the description."""
    begin: int
    """Offset of the arrays."""


_STORABLE = (
    "dagp.inference.concrete",
    "dagp.model.clutter",
    "dagp.model.deep",
    "dagp.predict.associations",
    "dagp.predict.posterior",
    "dagp.inference.stream",
    "dagp.tables.columns",
)
"""Modules whose import registers the tags of all storable classes."""


@functools.cache
def _import_storable() -> None:
    for module in _STORABLE:
        importlib.import_module(module)


def _tag_of(cls: type) -> str | None:
    _import_storable()
    return tag_of(cls)


# ------------------------------------------------------------------------------------- writing


def save(path: str | Path, kind: str, about: Mapping[str, Any], tree: Any) -> Path:
    """Write a tree of values, arrays and registered objects, atomically."""
    arrays: list[np.ndarray] = []
    encoded = _encode(tree, arrays, 0)
    declared, place = [], 0
    for array in arrays:
        digest = hashlib.blake2b(array.data, digest_size=16).hexdigest()
        values = (str(array.dtype), list(array.shape), place, digest)
        declared.append(dict(zip(_DECLARED, values, strict=True)))
        place += _rounded(array.nbytes)
    description = {"kind": kind, "about": dict(about), "tree": encoded, "arrays": declared}
    text = json.dumps(description, ensure_ascii=False, allow_nan=False).encode()
    if len(text) > _LONGEST_HEADER:
        raise StorageError(f"Cannot save {path}: description of {len(text)} bytes is too long.")

    def fill(file: BinaryIO) -> None:
        digest = hashlib.blake2b(text, digest_size=32).digest()
        file.write(_PREFIX.pack(MAGIC, FORMAT, len(text), digest))
        file.write(text)
        file.write(b"\0" * (_begin(len(text)) - _PREFIX.size - len(text)))
        for array in arrays:
            file.write(array.data)
            file.write(b"\0" * (_rounded(array.nbytes) - array.nbytes))

    return replace(path, fill)


def fingerprint(tree: Any, written: Callable[[Any], Any] = lambda encoded: encoded) -> str:
    """Digest of a tree; `written` may convert its encoding first, such as to an older format."""
    arrays: list[np.ndarray] = []
    text = json.dumps(written(_encode(tree, arrays, 0)), allow_nan=False).encode()
    digest = hashlib.blake2b(text, digest_size=16)
    for array in arrays:
        digest.update(array.data)
    return digest.hexdigest()


def _rounded(size: int) -> int:
    return -(-size // _ALIGNED) * _ALIGNED


def _begin(header: int) -> int:
    return _rounded(_PREFIX.size + header)


def _encode(value: Any, arrays: list[np.ndarray], depth: int) -> Any:
    """A value as JSON; arrays are appended to the list and referred to by number."""
    if depth > _DEEPEST:
        limit = f"the limit is {_DEEPEST} levels"
        raise StorageError(f"Cannot save objects nested too deeply: {limit}.")
    if value is None or isinstance(value, bool | int | str):
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
    tag, fields = _tag_of(type(value)), fields_of(type(value))
    if tag is None or fields is None:
        raise StorageError(
            f"{type(value).__qualname__} cannot be saved: the class is not registered. "
            "Register it with dagp.storage.register."
        )
    parts = {field: _encode(getattr(value, field), arrays, depth + 1) for field in fields}
    return {_MARK: tag, "fields": parts}


def _encode_array(value: Any, arrays: list[np.ndarray]) -> dict[str, Any]:
    array = np.asarray(value)
    if array.dtype.kind in "OU" and all(isinstance(item, str) for item in array.ravel()):
        return {_MARK: "strings", "items": array.ravel().tolist()}
    if str(array.dtype) not in _TYPES:
        raise StorageError(f"Arrays of dtype {array.dtype} cannot be saved.")
    arrays.append(np.ascontiguousarray(array.astype(array.dtype.newbyteorder("<"), copy=False)))
    kind = "scalar" if isinstance(value, np.generic) else "array"
    return {_MARK: kind, "number": len(arrays) - 1, "shape": list(array.shape)}


# ------------------------------------------------------------------------------------- reading


def describe(path: str | Path) -> Header:
    """The header of a file; no array is read."""
    with _opened(path) as file:
        return _header(file, Path(path))


def load(path: str | Path, kind: str) -> Any:
    """The tree in a file of this kind, with all digests verified."""
    with _opened(path) as file:
        header = _header(file, Path(path))
        if header.kind != kind:
            raise StorageError(f"{path} holds a {shown(header.kind)}, not a {kind}.")
        arrays = _arrays(file, header, Path(path))
    left = enumerate(arrays)
    try:
        tree = _decode(header.tree, left, 0)
    except StorageError as error:
        raise StorageError(f"{path} cannot be read: {error}") from error
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise StorageError(f"{path} is damaged: {quoted(error)}.") from error
    if next(left, None) is not None:
        raise StorageError(f"{path} is damaged: it holds arrays without a reference.")
    return tree


def _opened(path: str | Path) -> BinaryIO:
    try:
        # Arrays are looked up, which a pipe does not allow; to open one may wait for its writer.
        file = None if Path(path).is_fifo() else Path(path).open("rb")  # noqa: SIM115
    except OSError as error:
        raise StorageError(f"Cannot read {path}: {error.strerror}.") from error
    except ValueError as error:
        raise StorageError(f"{quoted(str(path))} cannot be a file name: {error}.") from error
    if file is None:
        raise StorageError(f"{path} is a pipe; a model is read from a file.")
    return file


def _header(file: BinaryIO, path: Path) -> Header:
    size = file.seek(0, os.SEEK_END)
    file.seek(0)
    prefix = file.read(_PREFIX.size)
    if len(prefix) < _PREFIX.size or not prefix.startswith(MAGIC):
        raise StorageError(f"{path} is not a dagp file.")
    _, version, length, digest = _PREFIX.unpack(prefix)
    if version > FORMAT:
        readable = f"this dagp reads up to {FORMAT}. Update dagp."
        raise StorageError(f"{path} has format version {version}; {readable}")
    if length > min(_LONGEST_HEADER, size):
        raise StorageError(f"{path} is damaged or cut short: its description needs {length} bytes.")
    text = file.read(length)
    if len(text) < length or hashlib.blake2b(text, digest_size=32).digest() != digest:
        raise StorageError(f"{path} is damaged: the digest of its description does not match.")
    try:
        described = json.loads(
            text.decode(), object_pairs_hook=_distinct, parse_constant=_refused, parse_float=_finite
        )
        for old in range(version, FORMAT):
            described = MIGRATIONS[old](described)
        kind, about = described["kind"], described["about"]
        tree, arrays = described["tree"], described["arrays"]
        if len(described) != 4 or not isinstance(kind, str):
            raise TypeError("wrong parts")
        if not (isinstance(about, dict) and isinstance(arrays, list)):
            raise TypeError("wrong types")
        _check_shallow(about, 0)
    except (KeyError, TypeError, ValueError, RecursionError) as error:
        raise StorageError(f"{path} is damaged: its description is invalid.") from error
    return Header(version, kind, about, tree, arrays, _PREFIX.size + length, _begin(length))


def _distinct(pairs: Sequence[Any]) -> dict[Any, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise ValueError("duplicate name")
    return found


def _check_shallow(node: Any, depth: int) -> None:
    if depth > _DEEPEST // 8:
        raise ValueError("too deep")
    if isinstance(node, dict | list):
        for child in node.values() if isinstance(node, dict) else node:
            _check_shallow(child, depth + 1)


def _refused(word: str) -> float:
    raise ValueError(f"{word} is not valid JSON")


def _finite(word: str) -> float:
    value = float(word)
    return value if math.isfinite(value) else _refused(shown(word))


def _arrays(file: BinaryIO, header: Header, path: Path) -> list[np.ndarray]:
    """All arrays; sizes are checked against the file before allocation."""
    size = file.seek(0, os.SEEK_END)
    _check_empty(file, header.end, header.begin, path)
    found, end = [], header.begin
    for number, declared in enumerate(header.arrays):
        try:
            dtype, shape, place, digest = (declared[name] for name in _DECLARED)
            right = len(declared) == len(_DECLARED) and dtype in _TYPES and isinstance(shape, list)
            right = right and len(shape) <= 16 and all(type(n) is int for n in (*shape, place))
        except (KeyError, TypeError) as error:
            raise StorageError(f"{path} is damaged: array {number} has no description.") from error
        # Zeros count as ones: an empty array of a huge shape is invalid too.
        count = math.prod(n or 1 for n in shape) if right and min(shape, default=0) >= 0 else -1
        if not 0 <= count <= size:
            raise StorageError(f"{path} is damaged: array {number} has an impossible shape.")
        nbytes = math.prod(shape) * np.dtype(dtype).itemsize
        if place != end - header.begin or end + nbytes > size:
            raise StorageError(f"{path} is damaged or cut short: array {number} is out of place.")
        file.seek(end)
        raw = file.read(nbytes)
        if hashlib.blake2b(raw, digest_size=16).hexdigest() != digest:
            raise StorageError(f"{path} is damaged: the digest of array {number} does not match.")
        values = np.frombuffer(raw, np.dtype(dtype).newbyteorder("<")).astype(dtype)
        found.append(values.reshape(shape))
        end += _rounded(nbytes)
        _check_empty(file, end - _rounded(nbytes) + nbytes, end, path)
    if end != size:
        raise StorageError(f"{path} is damaged: {end} bytes expected, {size} found.")
    return found


def _check_empty(file: BinaryIO, begin: int, end: int, path: Path) -> None:
    """Padding must be zero, so that every changed byte is detected."""
    file.seek(begin)
    if file.read(end - begin) != bytes(end - begin):
        raise StorageError(f"{path} is damaged or cut short: its padding is not zero.")


def _decode(node: Any, arrays: Iterator[tuple[int, np.ndarray]], depth: int) -> Any:
    """A value from JSON; arrays are taken in the order in which they were written."""
    if depth > 2 * _DEEPEST:
        raise ValueError("too deep")
    if isinstance(node, list):
        return [_decode(item, arrays, depth + 1) for item in node]
    if not isinstance(node, dict):
        return node
    kind = node[_MARK]
    if kind == "float":
        return _FLOATS[node["text"]]
    if kind == "strings":
        if not all(isinstance(item, str) for item in node["items"]):
            raise TypeError("strings expected")
        return np.array(node["items"], dtype=object)
    if kind in ("array", "scalar"):
        number, array = next(arrays, (None, np.zeros(0)))
        # Scalars are stored as arrays of shape (1,).
        if (number, list(array.shape)) != (node["number"], node["shape"] or [1]):
            raise ValueError("missing array, or an array of another shape")
        return array[0] if kind == "scalar" else array.reshape(node["shape"])
    if kind == "tuple":
        return tuple(_decode(item, arrays, depth + 1) for item in node["items"])
    if kind == "dict":
        pairs = [[_decode(part, arrays, depth + 1) for part in pair] for pair in node["items"]]
        return _distinct(pairs)
    return _rebuilt(kind, node["fields"], arrays, depth)


def _rebuilt(
    name: str, fields: dict[str, Any], arrays: Iterator[tuple[int, np.ndarray]], depth: int
) -> Any:
    _import_storable()
    cls = class_of(name)
    if cls is None:
        raise StorageError(
            f"class {shown(name)} is unknown to this version of dagp; register your own classes "
            "with dagp.storage.register."
        )
    values = {field: _decode(value, arrays, depth + 1) for field, value in fields.items()}
    if set(values) != set(fields_of(cls) or ()):
        raise ValueError(f"wrong fields of {shown(name)}")
    if issubclass(cls, tuple):
        return cls(**values)
    built = object.__new__(cls)
    for field, value in values.items():
        object.__setattr__(built, field, value)  # the class may be frozen
    return built
