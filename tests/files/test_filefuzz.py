"""Files from anybody: refused with one kind of error, or a whole model; nothing else happens."""

import ast
import json
import random
import re
import subprocess
import sys
import textwrap
import tomllib
import tracemalloc
from html.parser import HTMLParser
from importlib.metadata import packages_distributions
from pathlib import Path

import numpy as np
import pytest
from filejudge import Checkpoint, Model, watched
from filemutations import (
    ACCIDENTS,
    MALICE,
    UNPICKLED,
    apart,
    blobs_of,
    impostors,
    nested,
    sealed,
    together,
)
from typer.testing import CliRunner

from dagp import DAGP, report
from dagp.cli import app
from dagp.errors import StorageError
from dagp.files import format as storage

ROOT = Path(__file__).parents[2]
SOURCES = sorted((ROOT / "src" / "dagp").rglob("*.py"))
MOST_MEMORY = 64 * 2**20


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    return Model(tmp_path_factory.mktemp("model"))


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory):
    return Checkpoint(tmp_path_factory.mktemp("checkpoint"))


def test_the_judges_know_what_is_whole(model, checkpoint):
    for whole in (model, checkpoint):
        assert whole.judged(whole.content) == "same"
        assert whole.judged(together(*apart(whole.content))) == "same"


@pytest.mark.parametrize("way", ACCIDENTS, ids=lambda way: way.__name__)
def test_accidents_are_noticed(model, checkpoint, way):
    rng = random.Random(way.__name__)
    for whole in (model, checkpoint):
        for _ in range(12):
            content = way(whole.content, rng)
            assert whole.judged(content) == ("same" if content == whole.content else "refused")


@pytest.mark.parametrize("way", MALICE, ids=lambda way: way.__name__)
def test_malice_is_refused_or_harmless(model, checkpoint, way):
    rng = random.Random(way.__name__)
    verdicts = [model.judged(way(model.content, rng)) for _ in range(12)]
    verdicts += [checkpoint.judged(way(checkpoint.content, rng)) for _ in range(8)]
    assert "refused" in verdicts


def test_impostors_are_refused_and_nothing_runs(model, checkpoint):
    UNPICKLED.unlink(missing_ok=True)
    for whole in (model, checkpoint):
        for name, content in impostors(whole.content).items():
            tracemalloc.start()
            assert whole.judged(content) == "refused", name
            peak = tracemalloc.get_traced_memory()[1]
            tracemalloc.stop()
            assert peak < MOST_MEMORY, name
    assert not UNPICKLED.exists()


# ------------------------------------------------------------------ wrong behind right digests


def fitted(described):
    """The attributes of the estimator in a description, by name."""
    tree = dict(described["tree"]["items"])
    parts = dict(tree["estimator"]["items"])
    return {name: dict(part["items"]) for name, part in parts.items() if isinstance(part, dict)}


def changed(model, name, change):
    """The file with the array of a fitted attribute changed, and every digest right."""
    described, arrays = apart(model.content)
    node = fitted(described)["fitted"][name]
    arrays[node["number"]] = np.ascontiguousarray(change(arrays[node["number"]]))
    node["shape"] = list(arrays[node["number"]].shape)
    return together(described, arrays)


@pytest.mark.parametrize(
    ("name", "change"),
    [
        ("responsibilities_", lambda a: a[:, :1]),
        ("responsibilities_", lambda a: a * np.nan),
        ("responsibilities_", lambda a: -a),
        ("responsibilities_", lambda a: np.hstack([a, a]) / 2),
        ("assignment_", lambda a: 1 - a),
        ("assignment_", lambda a: a[:-1]),
        ("assignment_", lambda a: a.astype("float64")),
        ("active_", lambda a: a[:1]),
        ("lower_bounds_", lambda a: a[None]),
    ],
)
def test_attributes_that_do_not_fit_are_refused_at_loading(model, name, change):
    model.path.write_bytes(changed(model, name, change))
    with pytest.raises(StorageError, match="whole model"):
        DAGP.load(model.path)


def test_parameters_that_are_no_numbers_are_refused_at_loading(model):
    whole = apart(model.content)
    numbers = [n for n, array in enumerate(whole.arrays) if array.dtype.kind == "f" and array.size]
    refused = 0
    for number in numbers:
        described, arrays = apart(model.content)
        arrays[number].reshape(-1)[0] = np.nan
        refused += model.judged(together(described, arrays)) == "refused"
    # The history of the bound and the rows that were fitted may hold one, nothing else.
    assert len(numbers) - refused <= 3


def test_a_checkpoint_of_what_is_no_number_is_refused(checkpoint):
    described, arrays = apart(checkpoint.content)
    for array in arrays:
        array[...] = np.nan if array.dtype.kind == "f" else array
    assert checkpoint.judged(together(described, arrays)) == "refused"


def test_a_file_cannot_say_where_the_next_fit_writes(model, tmp_path):
    """Settings of one run of the program are refused: a checkpoint is overwritten and removed."""
    described = apart(model.content).described
    tree = dict(described["tree"]["items"])
    parts = dict(tree["estimator"]["items"])
    parts["settings"]["items"].append(["checkpoint", str(tmp_path / "precious")])
    blobs = model.content[storage.describe(model_file(model)).begin :]
    model.path.write_bytes(sealed(json.dumps(described).encode(), blobs))
    with pytest.raises(StorageError, match="other settings"):
        DAGP.load(model.path)


def model_file(model):
    model.path.write_bytes(model.content)
    return model.path


def test_huge_claims_take_no_memory(model, tmp_path):
    """In a process that may not have more: a description at most as long as is allowed."""
    path = tmp_path / "huge.dagp"
    path.write_bytes(impostors(model.content)["huge arrays"])
    code = textwrap.dedent(f"""
        import resource
        from pathlib import Path
        from dagp import DAGP, StorageError
        from dagp.files import format as storage
        taken = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
        resource.setrlimit(resource.RLIMIT_AS, (taken + 2**27, taken + 2**27))
        try:
            DAGP.load({str(path)!r})
        except StorageError as error:
            print(error)
    """)
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert "impossible shape" in done.stdout


@pytest.mark.parametrize(
    "about",
    [
        {"target": "\x1b[2J", "\x1b]0;x\x07": ["\x9b31m", "\r"]},
        {"processes": [{"kind": 1, "share": "all", "used": {}}], "target": []},
        {"processes": [{"share": 0.5, "used": 1}], "features": {"a": None}},
        {"rows": nested(100)},
    ],
)
def test_what_a_file_says_about_itself_is_only_shown(model, about):
    described = apart(model.content).described | {"about": about}
    model.path.write_bytes(sealed(json.dumps(described).encode(), blobs_of(model.content)))
    for words in (
        ["info", str(model.path)],
        ["report", str(model.path), "-o", f"{model.path}.html"],
    ):
        answer = CliRunner().invoke(app, words)
        assert answer.exit_code in (0, 2)
        assert isinstance(answer.exception, SystemExit | None)
        assert all(c.isprintable() or c == "\n" for c in answer.output)
        Path(f"{model.path}.html").unlink(missing_ok=True)


# ------------------------------------------------------------------------- network, dependencies


NETWORK = {
    "aiohttp", "asyncio", "ftplib", "http", "httpx", "imaplib", "poplib", "requests", "smtplib",
    "socket", "socketserver", "ssl", "telnetlib", "urllib", "urllib3", "webbrowser", "xmlrpc",
}  # fmt: skip
LOOPBACK = {"launch.py": {"socket"}, "distributed.py": {"socket"}}
"""Ask the system for a free port, where workers meet, and whether one is in use."""
CACHED = {"programs.py": {"pickle"}}
"""Reads compiled programs from the user's own cache, with the classes restricted to known ones: JAX
writes them as pickles. Model files are read without."""
DANGEROUS = {"pickle", "cPickle", "dill", "cloudpickle", "marshal", "shelve"}


def imported(path):
    """First names of all that a source file imports, wherever in it."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from (alias.name.split(".")[0] for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.level == 0 and node.module:
            yield node.module.split(".")[0]


@pytest.mark.parametrize("path", SOURCES, ids=lambda path: str(path.relative_to(ROOT)))
def test_no_source_reaches_for_the_network_or_for_pickles(path):
    known = LOOPBACK.get(path.name, set()) | CACHED.get(path.name, set())
    assert not (set(imported(path)) - known) & (NETWORK | DANGEROUS)


class Addresses(HTMLParser):
    """Collects whatever a browser would fetch or follow."""

    def __init__(self):
        super().__init__()
        self.found = []

    def handle_starttag(self, tag, attrs):
        wanted = {"src", "srcset", "href", "action", "data", "poster", "xlink:href"}
        self.found += [value for name, value in attrs if name in wanted]


def test_the_report_asks_nobody_for_anything(model):
    page = report.html(DAGP.load(model_file(model)), model.data.X, model.data.y)
    parser = Addresses()
    parser.feed(page)
    assert all(address.startswith(("data:", "#")) for address in parser.found), parser.found
    # Names of formats look like addresses, and nobody goes there.
    text = re.sub(r"http://www\.w3\.org/[\w/.]+", "", page)
    assert not re.findall(r"(?:https?:)?//[\w-]+\.[\w.]+", text)
    for word in ("@import", "url(", "fetch(", "XMLHttpRequest", "WebSocket", "sendBeacon"):
        assert word not in text, word


def requirements(lines):
    return {re.match(r"[\w.-]+", line)[0].lower() for line in lines} - {"dagp"}


def test_every_dependency_is_used_and_explained():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    page = (ROOT / "docs" / "dependencies.md").read_text().lower()
    needed = requirements(project["dependencies"])
    optional = {
        name: requirements(lines) for name, lines in project["optional-dependencies"].items()
    }
    for name in set().union(needed, *optional.values()):
        assert f"`{name}`" in page, name
    for extra in optional:
        assert f"`{extra}`" in page, extra
    used = {module for path in SOURCES for module in imported(path)}
    homes = packages_distributions()
    distributions = {d.lower() for module in used for d in homes.get(module, ())}
    assert needed | optional["plot"] | optional["cli"] <= distributions


def test_the_watch_sees_files_written(tmp_path, monkeypatch):
    kept = tmp_path / "compiled"
    kept.mkdir()
    monkeypatch.setenv("DAGP_TEST_CACHE", str(kept))
    with watched() as seen:
        (tmp_path / "written").write_text("x")
        (tmp_path / "written").read_text()
        (kept / "program").write_text("x")
    assert len(seen) == 1 and "written" in seen[0]
