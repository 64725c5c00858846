"""Files gone wrong, by accident or on purpose.

Used by ``test_filefuzz.py`` and, for many more, by ``benchmarks/filefuzz.py``.
"""

import copy
import hashlib
import io
import json
import pickle
import random
import tempfile
import warnings
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from dagp.core import tags
from dagp.files import format as storage

UNPICKLED = Path(tempfile.gettempdir()) / "dagp-unpickled"
"""There only if somebody has unpickled a file."""


class Parts(NamedTuple):
    """A file taken apart by somebody who knows the format."""

    described: dict[str, Any]
    arrays: list[np.ndarray]


def apart(content: bytes) -> Parts:
    _, _, length, _ = storage._PREFIX.unpack(content[: storage._PREFIX.size])
    begin = storage._begin(length)
    described = json.loads(content[storage._PREFIX.size :][:length])
    arrays = []
    for declared in described["arrays"]:
        dtype, at = np.dtype(declared["dtype"]), begin + declared["place"]
        count = int(np.prod(declared["shape"]))
        arrays.append(np.frombuffer(content, dtype, count, at).reshape(declared["shape"]).copy())
    return Parts(described, arrays)


def together(described: dict[str, Any], arrays: list[np.ndarray]) -> bytes:
    """A file with right digests, sizes and places."""
    blobs, place = b"", 0
    for declared, array in zip(described["arrays"], arrays, strict=True):
        raw = array.tobytes()
        blobs += raw.ljust(storage._rounded(len(raw)), b"\0")
        declared.update(
            dtype=str(array.dtype),
            shape=list(array.shape),
            place=place,
            digest=hashlib.blake2b(raw, digest_size=16).hexdigest(),
        )
        place = len(blobs)
    return sealed(json.dumps(described).encode(), blobs)


def sealed(text: bytes, blobs: bytes, version: int = storage.FORMAT) -> bytes:
    """A file with this description, whatever it says, and the right digest for it."""
    digest = hashlib.blake2b(text, digest_size=32).digest()
    head = storage._PREFIX.pack(storage.MAGIC, version, len(text), digest) + text
    return head.ljust(storage._begin(len(text)), b"\0") + blobs


def blobs_of(content: bytes) -> bytes:
    _, _, length, _ = storage._PREFIX.unpack(content[: storage._PREFIX.size])
    return content[storage._begin(length) :]


# ------------------------------------------------------------------------------------ accidents


def flipped(content: bytes, rng: random.Random) -> bytes:
    broken = bytearray(content)
    for _ in range(rng.choice([1, 1, 1, 2, 8])):
        broken[rng.randrange(len(broken))] ^= 1 << rng.randrange(8)
    return bytes(broken)


def substituted(content: bytes, rng: random.Random) -> bytes:
    broken = bytearray(content)
    begin = rng.randrange(len(broken))
    end = min(begin + rng.choice([1, 2, 4, 8, 64]), len(broken))
    broken[begin:end] = rng.choice([rng.randbytes, bytes])(end - begin)
    return bytes(broken)


def truncated(content: bytes, rng: random.Random) -> bytes:
    return content[: rng.randrange(len(content))]


def extended(content: bytes, rng: random.Random) -> bytes:
    more = rng.choice([1, 8, 63, 64, 4096])
    return content + rng.choice([rng.randbytes, bytes])(more)


def swapped(content: bytes, rng: random.Random) -> bytes:
    size = rng.choice([8, 64, 512])
    one, two = sorted(rng.sample(range(max(len(content) // size, 2)), 2))
    blocks = [content[i : i + size] for i in range(0, len(content), size)]
    blocks[one], blocks[two] = blocks[two], blocks[one]
    return b"".join(blocks)


def cut_out(content: bytes, rng: random.Random) -> bytes:
    begin = rng.randrange(len(content))
    return content[:begin] + content[begin + rng.choice([1, 64, 1000]) :]


def doubled(content: bytes, rng: random.Random) -> bytes:
    begin = rng.randrange(len(content))
    return content[:begin] + content[begin : begin + rng.choice([1, 64, 1000])] + content[begin:]


ACCIDENTS = (flipped, substituted, truncated, extended, swapped, cut_out, doubled)


# -------------------------------------------------------------------------------------- malice


def nested(depth: int) -> Any:
    tree: Any = 0
    for _ in range(depth):
        tree = [tree]
    return tree


HOSTILE: list[Any] = [
    None,
    True,
    -1,
    0,
    10**18,
    10**400,
    -(2**63) - 1,
    1e308,
    -0.5,
    "",
    "__class__",
    "os.system",
    "../../../etc/passwd",
    "\x1b[2J",
    [],
    [[]],
    [-1],
    [10**12],
    [0, 10**300],
    {},
    nested(150),
    {"!": "float", "text": "nan"},
    {"!": "float", "text": "inf"},
    {"!": "float", "text": "__import__('os')"},
    {"!": "dict", "items": []},
    {"!": "dict", "items": [[[], 1]]},
    {"!": "tuple", "items": []},
    {"!": "strings", "items": ["a"]},
    {"!": "strings", "items": [1]},
    {"!": "array", "number": 0, "shape": [1]},
    {"!": "array", "number": -1, "shape": []},
    {"!": "scalar", "number": 0, "shape": []},
    {"!": "os.system", "fields": {"command": "true"}},
    {"!": "builtins.eval", "fields": {}},
    {"!": "estimator.DAGP", "fields": {}},
    {"!": "kernels.Kernel", "fields": {"active": None}},
    {"!": "kernels._Stationary", "fields": {}},
    {"!": "kernels.White", "fields": {"variance": None, "active": [9]}},
    {"!": "processes.GP", "fields": {"__class__": 1}},
    {"!": "means.Zero", "fields": {}},
    {"!": "model.DataAssociation", "fields": {"groups": [], "gate": None, "members": []}},
    {"!": None},
    {"!": ["kernels.White"], "fields": {}},
    {"!": "__init__", "fields": {}},
]


def places(node: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Every place in a description."""
    if path:
        yield path
    if isinstance(node, dict | list):
        for key, child in node.items() if isinstance(node, dict) else enumerate(node):
            yield from places(child, (*path, key))


def parent_of(described: Any, path: tuple[Any, ...]) -> Any:
    for key in path[:-1]:
        described = described[key]
    return described


def replaced(content: bytes, rng: random.Random) -> bytes:
    """Something hostile in place of something in the description."""
    described = apart(content).described
    path = rng.choice(list(places(described)))
    parent_of(described, path)[path[-1]] = copy.deepcopy(rng.choice(HOSTILE))
    return sealed(json.dumps(described).encode(), blobs_of(content))


def removed(content: bytes, rng: random.Random) -> bytes:
    described = apart(content).described
    path = rng.choice(list(places(described)))
    del parent_of(described, path)[path[-1]]
    return sealed(json.dumps(described).encode(), blobs_of(content))


def renamed(content: bytes, rng: random.Random) -> bytes:
    """Another class of ours, or another field."""
    described = apart(content).described
    path = rng.choice([p for p in places(described) if p[-1] in ("!", "fields")])
    parent = parent_of(described, path)
    if path[-1] == "!":
        parent["!"] = rng.choice([*sorted(tags._classes), "dict", "tuple", "array", "strings"])
    elif fields := list(parent["fields"]):
        word = rng.choice(["__dict__", "__class__", "_", "raw", *fields])
        parent["fields"][word] = parent["fields"].pop(rng.choice(fields))
    return sealed(json.dumps(described).encode(), blobs_of(content))


def exchanged(content: bytes, rng: random.Random) -> bytes:
    """Two parts of the description in each other's place."""
    described = apart(content).described
    one, two = rng.sample(list(places(described)), 2)
    if one[: len(two)] == two or two[: len(one)] == one:
        return removed(content, rng)
    first, second = parent_of(described, one), parent_of(described, two)
    first[one[-1]], second[two[-1]] = second[two[-1]], first[one[-1]]
    return sealed(json.dumps(described).encode(), blobs_of(content))


def revalued(content: bytes, rng: random.Random) -> bytes:
    """A number of an array changed, its digest too."""
    described, arrays = apart(content)
    array = rng.choice([a for a in arrays if a.size]).reshape(-1)
    values = [np.nan, np.inf, -np.inf, 1e300, -1e300, -1, 0, 1e-320, 1e5]
    with np.errstate(all="ignore"), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        array[rng.randrange(array.size)] = np.array(rng.choice(values)).astype(array.dtype)
    return together(described, arrays)


def reshaped(content: bytes, rng: random.Random) -> bytes:
    """An array of another shape or type, declared as such everywhere."""
    described, arrays = apart(content)
    number = rng.randrange(len(arrays))
    array = arrays[number]
    ways: list[Callable[[np.ndarray], np.ndarray]] = [
        lambda a: a[..., None],
        lambda a: a[None],
        lambda a: a[:-1],
        lambda a: a[:0],
        lambda a: np.concatenate([a, a]),
        lambda a: a.T,
        lambda a: a.reshape(-1),
        lambda a: a.astype("int64"),
        lambda a: a.astype("float32"),
        lambda a: a.astype("bool"),
        lambda a: np.zeros((0, *a.shape)),
    ]
    with np.errstate(all="ignore"), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        arrays[number] = np.ascontiguousarray(rng.choice(ways)(array))
    for path in list(places(described["tree"])):
        node = parent_of(described["tree"], path)
        if path[-1] == "number" and node["number"] == number:
            node["shape"] = list(arrays[number].shape)
    return together(described, arrays)


MALICE = (replaced, removed, renamed, exchanged, revalued, reshaped)


class Bomb:
    """Runs code when it is unpickled."""

    def __reduce__(self) -> Any:
        return (Path.touch, (UNPICKLED,))


def impostors(content: bytes) -> dict[str, bytes]:
    """Other files under our name, and descriptions that no JSON library should be trusted with."""
    described, blobs = apart(content).described, blobs_of(content)
    text = json.dumps(described)
    archive, saved = io.BytesIO(), io.BytesIO()
    with zipfile.ZipFile(archive, "w", zipfile.ZIP_DEFLATED) as file:
        file.writestr("../../evil", bytes(10**6))
    np.savez_compressed(saved, zeros=np.zeros(10**6))
    objects = io.BytesIO()
    np.save(objects, np.array([Bomb()]), allow_pickle=True)
    huge = {**described, "arrays": [{**a, "shape": [2**40]} for a in described["arrays"]]}
    empty = {**described, "arrays": [{**a, "shape": [0, 10**400]} for a in described["arrays"]]}
    first = {**described["arrays"][0]}
    crafted = {
        "not JSON": "(lambda: 0)()",
        "a list": "[]",
        "a word": '"model"',
        "nothing": "",
        "NaN": text.replace('"tree": {', '"tree": NaN, "x": {', 1),
        "a number beyond all": text.replace('"kind": "', '"x": 1e999, "kind": "', 1),
        "a very long number": f'{{"kind": {"9" * 10_000}}}',
        "a name twice": text.replace('"kind": "', '"kind": "other", "kind": "', 1),
        "deep lists": "[" * 100_000 + "]" * 100_000,
        "deep objects": '{"a":' * 100_000 + "1" + "}" * 100_000,
        "many lists": "[" + "[]," * 300_000 + "[]]",
        "a part more": json.dumps({**described, "code": "import os"}),
        "huge arrays": json.dumps(huge),
        "huge empty arrays": json.dumps(empty),
        "an array over another": json.dumps(
            {**described, "arrays": [first] * len(apart(content)[1])}
        ),
    }
    for dtype in ("object", "O", "<U8", "S8", "float16", "complex128", "f8,i4", "V8", ">f8"):
        arrays = [{**a, "dtype": dtype} for a in described["arrays"]]
        crafted[f"arrays of {dtype}"] = json.dumps({**described, "arrays": arrays})
    for place in (-64, 1, 64, 10**15, 1e3, "0", None):
        arrays = [{**a, "place": place} for a in described["arrays"]]
        crafted[f"arrays at {place}"] = json.dumps({**described, "arrays": arrays})
    files = {name: sealed(text.encode(), blobs) for name, text in crafted.items()}
    files |= {
        "a pickle": pickle.dumps(Bomb()),
        "a pickle after our mark": storage.MAGIC + pickle.dumps(Bomb()),
        "a zip": archive.getvalue(),
        "an npz": saved.getvalue(),
        "objects in an npy": objects.getvalue(),
        "UTF-16": sealed(text.encode("utf-16"), blobs),
        "no text": sealed(b"\xff\xfe\xfa" * 99, blobs),
        "version 0": sealed(text.encode(), blobs, version=0),
        "a later version": sealed(text.encode(), blobs, version=storage.FORMAT + 1),
        "the mark alone": storage.MAGIC,
        "nothing at all": b"",
    }
    length = storage._PREFIX.pack(storage.MAGIC, 1, 2**63, bytes(32))
    return files | {"an endless description": length + content[storage._PREFIX.size :]}


def mutated(content: bytes, rng: random.Random) -> tuple[str, bytes]:
    """Anything at all, with the name of what was done."""
    way = rng.choice(ACCIDENTS + MALICE)
    return way.__name__, way(content, rng)
