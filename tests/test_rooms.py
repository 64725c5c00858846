"""The architecture: rooms in order, names imported from where they are defined, all documented."""

import ast
import itertools
import re
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
SOURCE = ROOT / "src" / "dagp"
ROOMS = (
    "deploy",
    "core",
    "model",
    "inference",
    "search",
    "tables",
    "predict",
    "files",
    "describe",
    "fitting",
    "predictions",
    "estimator",
    "robust",
    "dynamics",
    "datasets",
    "scoring",
    "distributed",
    "baselines",
    "skpro",
    "plot",
    "report",
    "experiments",
    "bench",
    "cli",
)
"""From the bottom to the top: a room imports itself and the rooms before it."""
FACADES = ("kernels", "means", "errors", "storage", "extend")
"""Import paths of users, which only re-export: nothing inside imports them."""
SHAPES = {("dagp.core.typing", name) for name in ("Bool", "Float", "Int")}
"""jaxtyping's own words, which stand beside the aliases that are made of them."""
FILES = sorted(SOURCE.rglob("*.py"))


def module_of(path):
    parts = path.relative_to(SOURCE.parent).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def room_of(module):
    return module.split(".")[1] if "." in module else ""


@cache
def modules():
    """Every module, and the names that its own statements define."""
    return {module_of(path): defined(ast.parse(path.read_text())) for path in FILES}


def defined(tree):
    names = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            names.add(node.name)
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            names.add(node.id)
    return names


def imports(source):
    """Pairs of a module of this library and a name in it (None: the module itself)."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] == "dagp":
            for alias in node.names:
                whole = f"{node.module}.{alias.name}"
                yield (whole, None) if whole in modules() else (node.module, alias.name)
        elif isinstance(node, ast.Import):
            yield from ((a.name, None) for a in node.names if a.name.split(".")[0] == "dagp")


def faults(module, source):
    """What is wrong with the imports of a module."""
    here = room_of(module)
    for target, name in imports(source):
        there = room_of(target)
        if here and there in FACADES:
            yield f"{module} imports the facade {target}"
        elif here in ROOMS and points_up(here, there) and not only_for_types(source, target):
            yield f"{module} imports {target}, which is above it"
        if name is None or not here or (target, name) in SHAPES:
            continue
        if name not in modules().get(target, ()):
            yield f"{module} imports {name} from {target}, which does not define it"


def points_up(here, there):
    """Whether one room is above another; the package itself is above all."""
    return there == "" or ROOMS.index(there) > ROOMS.index(here)


def only_for_types(source, target):
    """Whether a module is imported under ``if TYPE_CHECKING`` and nowhere else.

    Annotations may point up: nothing is imported when the code runs.
    """
    tree = ast.parse(source)
    guarded = {
        id(part)
        for node in ast.walk(tree)
        if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING"
        for part in ast.walk(node)
    }
    found = [
        node
        for node in ast.walk(tree)
        if (isinstance(node, ast.ImportFrom) and node.module == target)
        or (isinstance(node, ast.Import) and target in [alias.name for alias in node.names])
    ]
    return bool(found) and all(id(node) in guarded for node in found)


@pytest.mark.parametrize("path", FILES, ids=module_of)
def test_imports_point_down_and_to_where_a_name_is_defined(path):
    assert list(faults(module_of(path), path.read_text())) == []


@pytest.mark.parametrize(
    ("module", "line", "words"),
    [
        ("dagp.model.gp", "from dagp.inference.elbo import ELBO", "above"),
        ("dagp.core.linalg", "import dagp.model.gp", "above"),
        ("dagp.model.deep", "from dagp import DAGP", "above"),
        ("dagp.search.race", "from dagp.search.trial import Batch", "does not define"),
        ("dagp.baselines.gpr", "from dagp.kernels import Matern52", "facade"),
        ("dagp.core.random", "def late():\n    from dagp.estimator import DAGP", "above"),
    ],
)
def test_an_import_that_is_wrong_is_found(module, line, words):
    assert any(words in fault for fault in faults(module, line))


def test_every_entry_of_the_package_is_a_room_or_a_facade():
    entries = {p.stem for p in SOURCE.iterdir() if p.name != "__pycache__"}
    assert entries - {"__init__", "__main__", "py"} == {*ROOMS, *FACADES}


def test_every_room_is_in_the_guide_and_says_what_it_holds():
    guide = (ROOT / "CONTRIBUTING.md").read_text()
    for room in (*ROOMS, *FACADES):
        assert f"`{room}`" in guide, f"CONTRIBUTING.md does not name {room}"
        file = SOURCE / room / "__init__.py" if (SOURCE / room).is_dir() else SOURCE / f"{room}.py"
        assert ast.get_docstring(ast.parse(file.read_text())), f"{room} has no docstring"


def test_the_guide_lists_the_rooms_in_their_order():
    guide = (ROOT / "CONTRIBUTING.md").read_text()
    places = [guide.index(f"| `{room}`") for room in ROOMS]
    assert places == sorted(places)


def test_every_room_keeps_its_budget():
    """Of lines, in CONTRIBUTING: what is added somewhere makes something else superfluous."""
    text = (ROOT / "CONTRIBUTING.md").read_text()
    table = re.findall(r"^\| ((?:`[a-z_]+`(?:, )?)+) \| ([0-9 ]+) \|$", text, re.M)
    budgets = {names: int(most.replace(" ", "")) for names, most in table}
    rooms = [re.findall(r"`([a-z_]+)`", names) for names in budgets]
    assert sorted(itertools.chain.from_iterable(rooms)) == sorted((*ROOMS, *FACADES))
    for group, most in zip(rooms, budgets.values(), strict=True):
        lines = sum(
            len(path.read_text().splitlines())
            for path in FILES
            if module_of(path).removeprefix("dagp.").split(".")[0] in group
        )
        assert lines <= most, f"{group}: {lines} lines, {most} at most"
