"""The page about robustness speaks of tests that exist, and of every test that was made for it."""

import ast
import re
from pathlib import Path

import pytest

TESTS = Path(__file__).parent
PAGE = TESTS.parent / "docs" / "robustness.md"
ROW = re.compile(r"^\| (?P<case>.+) \| (?P<answer>.+) \| (?P<tests>`.+`) \|$")
NAMED = re.compile(r"`([\w/]*test_\w+\.py)::(test_\w+)`")


def rows():
    """Cases with the tests that check them."""
    found = [ROW.match(line) for line in PAGE.read_text().splitlines()]
    return [(row["case"], NAMED.findall(row["tests"])) for row in found if row]


def functions(path):
    """Tests in a file, by their names."""
    tree = ast.parse(path.read_text())
    return {node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)}


def test_every_row_of_a_table_is_a_case_with_a_test():
    lines = [line for line in PAGE.read_text().splitlines() if line.startswith("| ")]
    heads = sum(line.endswith("| checked by |") for line in lines)
    assert len(rows()) == len(lines) - heads > 90
    assert all(tests for _, tests in rows())


@pytest.mark.parametrize(("case", "tests"), rows(), ids=[case for case, _ in rows()])
def test_the_tests_of_a_case_exist(case, tests):
    for file, name in tests:
        path = TESTS / file
        assert path.exists(), f"{case}: there is no {file}"
        assert name in functions(path), f"{case}: {file} has no {name}"


ABOUT_ITSELF = {
    "test_every_command_is_watched",
    "test_every_command_has_a_line",
    "test_results_for_machines_stay_apart_from_words",
}
"""Tests of the tests, and of what a user need not know."""


@pytest.mark.parametrize(
    "file",
    [
        "tables/test_robust_input.py",
        "estimator/test_robust_numbers.py",
        "model/test_robust_processes.py",
        "cli/test_robust_cli.py",
        "cli/test_robust_words.py",
        "cli/test_robust_interrupts.py",
        "files/test_robust_files.py",
        "estimator/test_robust_jax.py",
    ],
)
def test_every_test_of_robustness_is_on_the_page(file):
    shown = {name for _, tests in rows() for where, name in tests if where == file}
    there = {name for name in functions(TESTS / file) if name.startswith("test_")}
    assert there - shown <= ABOUT_ITSELF
