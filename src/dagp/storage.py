"""Files of our own: a JSON description and arrays, checked before they are believed.

    magic | format version | length of the description | its digest | description | arrays

The description is a tree of plain values. Arrays stand in it by number; their type, shape, place
and digest are declared beside it. Objects are written as the name of one of our classes and its
fields, and are read by filling in fields: no constructor runs, and nothing in a file can name code.
"""

import hashlib
import json
import math
import os
import struct
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

import jax
import numpy as np

from dagp.errors import StorageError
from dagp.registry import class_of, fields_of, name_of, register
from dagp.wholefile import replace

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
    "shown",
]

MAGIC = b"\x89DAGP\r\n\x1a"
"""Eight bytes that no text file has, and that a transfer as text would damage."""
FORMAT = 1
MIGRATIONS: dict[int, Callable[[Any], Any]] = {}
"""From a format version, how a description becomes one of the next version."""

_PREFIX = struct.Struct("<8sIQ32s")
_ALIGNED = 64
_LONGEST_HEADER = 1 << 26
"""Bytes. Read into Python a description takes up to thirty times as much memory."""
_DEEPEST = 64
_FLOATS = {repr(value): value for value in (math.inf, -math.inf, math.nan)}
"""The numbers that JSON has no words for."""
_TYPES = ("float64", "float32", "int64", "int32", "uint64", "uint32", "uint8", "bool")
_DECLARED = ("dtype", "shape", "place", "digest")
_MARK = "!"
_LONGEST_WORD = 200


class Header(NamedTuple):
    """What a file says about itself."""

    version: int
    kind: str
    about: dict[str, Any]
    """A few words for people: what `dagp info` shows."""
    tree: Any
    arrays: list[dict[str, Any]]
    end: int
    """Where the description ends."""
    begin: int
    """Where the arrays begin."""


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
    if len(text) > _LONGEST_HEADER:
        raise StorageError(f"This is too much for {path}: it takes {len(text)} bytes to describe.")

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
    name, fields = name_of(type(value)), fields_of(type(value))
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
            raise StorageError(f"{path} holds a {shown(header.kind)}, not a {kind}.")
        arrays = _arrays(file, header, Path(path))
    left = enumerate(arrays)
    try:
        tree = _decode(header.tree, left, 0)
    except StorageError as error:
        raise StorageError(f"{path} cannot be read: {error}") from error
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise StorageError(f"{path} is damaged: {error!r}."[:_LONGEST_WORD]) from error
    if next(left, None) is not None:
        raise StorageError(f"{path} is damaged: it holds arrays that belong to nothing.")
    return tree


def shown(word: Any) -> str:
    """Something from a file for a message: short, and nothing that a terminal would obey."""
    text = str(word)[:_LONGEST_WORD]
    return "".join(c if c.isprintable() else "?" for c in text)


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
        raise StorageError(f"{path} is damaged: its description makes no sense.") from error
    return Header(version, kind, about, tree, arrays, _PREFIX.size + length, _begin(length))


def _distinct(pairs: Sequence[Any]) -> dict[Any, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise ValueError("a name that stands twice")
    return found


def _check_shallow(node: Any, depth: int) -> None:
    """A few words for people are no tree."""
    if depth > _DEEPEST // 8:
        raise ValueError("too deep")
    if isinstance(node, dict | list):
        for child in node.values() if isinstance(node, dict) else node:
            _check_shallow(child, depth + 1)


def _refused(word: str) -> float:
    raise ValueError(f"{word} is no JSON")


def _finite(word: str) -> float:
    value = float(word)
    return value if math.isfinite(value) else _refused(shown(word))


def _arrays(file: BinaryIO, header: Header, path: Path) -> list[np.ndarray]:
    """Every array; sizes are checked against the file before anything is allocated."""
    size = file.seek(0, os.SEEK_END)
    _check_empty(file, header.end, header.begin, path)
    found, end = [], header.begin
    for number, declared in enumerate(header.arrays):
        try:
            dtype, shape, place, digest = (declared[name] for name in _DECLARED)
            right = len(declared) == len(_DECLARED) and dtype in _TYPES and isinstance(shape, list)
            right = right and len(shape) <= 16 and all(type(n) is int for n in (*shape, place))
        except (KeyError, TypeError) as error:
            raise StorageError(f"{path} is damaged: array {number} is not described.") from error
        # Without the zeros: an empty array of a huge shape is no more possible than a full one.
        count = math.prod(n or 1 for n in shape) if right and min(shape, default=0) >= 0 else -1
        if not 0 <= count <= size:
            raise StorageError(f"{path} is damaged: array {number} has an impossible shape.")
        nbytes = math.prod(shape) * np.dtype(dtype).itemsize
        if place != end - header.begin or end + nbytes > size:
            raise StorageError(f"{path} is damaged or cut short: array {number} is not in place.")
        file.seek(end)
        raw = file.read(nbytes)
        if hashlib.blake2b(raw, digest_size=16).hexdigest() != digest:
            raise StorageError(f"{path} is damaged: array {number} has changed since it was saved.")
        values = np.frombuffer(raw, np.dtype(dtype).newbyteorder("<")).astype(dtype)
        found.append(values.reshape(shape))
        end += _rounded(nbytes)
        _check_empty(file, end - _rounded(nbytes) + nbytes, end, path)
    if end != size:
        raise StorageError(f"{path} is damaged: it should have {end} bytes and has {size}.")
    return found


def _check_empty(file: BinaryIO, begin: int, end: int, path: Path) -> None:
    """Nothing stands between the parts, so that no byte of a file can change unnoticed."""
    file.seek(begin)
    if file.read(end - begin) != bytes(end - begin):
        raise StorageError(f"{path} is damaged or cut short: something stands between its parts.")


def _decode(node: Any, arrays: Iterator[tuple[int, np.ndarray]], depth: int) -> Any:
    """A value from JSON; it takes its arrays in the order in which they were written."""
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
            raise TypeError("strings that are none")
        return np.array(node["items"], dtype=object)
    if kind in ("array", "scalar"):
        number, array = next(arrays, (None, np.zeros(0)))
        # A single number is declared as an array of one.
        if (number, list(array.shape)) != (node["number"], node["shape"] or [1]):
            raise ValueError("an array that is not there, or of another shape")
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
    cls = class_of(name)
    if cls is None:
        raise StorageError(
            f"A {shown(name)} is in it, which this dagp does not know; classes of your own are "
            "made known by dagp.storage.register."
        )
    values = {field: _decode(value, arrays, depth + 1) for field, value in fields.items()}
    if set(values) != set(fields_of(cls) or ()):
        raise ValueError(f"wrong fields of {shown(name)}")
    if issubclass(cls, tuple):
        return cls(**values)
    built = object.__new__(cls)
    for field, value in values.items():
        object.__setattr__(built, field, value)  # the way past a frozen class's own lock
    return built
