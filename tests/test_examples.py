"""The gallery: every example is listed, and its code is valid. `make docs` runs them."""

import ast
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
EXAMPLES = sorted((ROOT / "examples").glob("*.py"))


def test_every_example_is_in_the_gallery():
    tree = ast.parse((ROOT / "docs" / "conf.py").read_text())
    (listed,) = (
        ast.literal_eval(node.value)
        for node in tree.body
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "GALLERY"
    )
    assert sorted(listed) == [path.name for path in EXAMPLES]


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_an_example_has_a_title_and_shows_a_figure(path):
    tree = ast.parse(path.read_text())
    title, line, *_ = (ast.get_docstring(tree) or "").splitlines()
    assert line == "=" * len(title)
    assert "plt." in path.read_text()
