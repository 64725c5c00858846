"""Do the tests notice when the code is wrong? Break it in one place at a time and see.

    python tests/mutants.py --module mixture --sample 40 --seed 0 --out result.json

Every mutant is a copy of the package with one change: another operator, another constant, a
condition turned round, a minus dropped. It is killed if the tests of its module fail; survivors
are printed with their line, to be read: some change nothing that anybody could see.
"""

import argparse
import ast
import copy
import json
import os
import random
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

ROOT = Path(__file__).parents[1]
TESTS = {
    "model/sparse_gp": ["model/test_sparse_gp.py", "inference/test_elbo.py"],
    "model/variational": ["model/test_sparse_gp.py", "inference/test_elbo.py"],
    "inference/elbo": [
        "inference/test_elbo.py",
        "inference/test_train.py",
        "inference/test_concrete.py",
    ],
    "predict/mixture": ["predict/test_mixture.py"],
    "files/format": ["files/test_modelfile.py", "files/test_filefuzz.py"],
}
"""The tests of each module; those of the estimator would notice more, and take long."""
_ARITHMETIC: dict[type[ast.operator], type[ast.operator]] = {
    ast.Add: ast.Sub,
    ast.Sub: ast.Add,
    ast.Mult: ast.Div,
    ast.Div: ast.Mult,
    ast.Pow: ast.Mult,
    ast.MatMult: ast.Add,
    ast.FloorDiv: ast.Mult,
}
_COMPARISONS: dict[type[ast.cmpop], type[ast.cmpop]] = {
    ast.Lt: ast.GtE,
    ast.LtE: ast.Gt,
    ast.Gt: ast.LtE,
    ast.GtE: ast.Lt,
    ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq,
    ast.Is: ast.IsNot,
    ast.IsNot: ast.Is,
    ast.In: ast.NotIn,
    ast.NotIn: ast.In,
}


class Mutant(NamedTuple):
    """One change: where, and what becomes of the source."""

    line: int
    change: str
    source: str


def mutants(source: str) -> Iterator[Mutant]:
    """Every change to a module that is known here."""
    tree = ast.parse(source)
    quiet = _said(tree)
    for index, node in enumerate(ast.walk(tree)):
        if id(node) in quiet:
            continue
        for name, change in _changes(node):
            broken = copy.deepcopy(tree)
            twin = next(n for i, n in enumerate(ast.walk(broken)) if i == index)
            before = ast.unparse(twin)
            change(twin)
            words = " -> ".join(text.splitlines()[0] for text in (before, ast.unparse(twin)))
            words = f"{name}: {words}"
            yield Mutant(getattr(node, "lineno", 0), words, ast.unparse(broken))


def _said(tree: ast.AST) -> set[int]:
    """Nodes that nothing is computed from: annotations, docstrings, messages of errors."""
    roots: list[ast.AST] = []
    for node in ast.walk(tree):
        if isinstance(node, ast.AnnAssign | ast.arg) and node.annotation:
            roots.append(node.annotation)
        if isinstance(node, ast.FunctionDef) and node.returns:
            roots.append(node.returns)
        if isinstance(node, ast.Raise | ast.JoinedStr):
            roots.append(node)
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "__all__":
            roots.append(node)
    return {id(part) for root in roots for part in ast.walk(root)}


def _changes(node: ast.AST) -> Iterator[tuple[str, Callable[[Any], None]]]:
    if isinstance(node, ast.BinOp) and type(node.op) in _ARITHMETIC:
        yield "operator", lambda n: setattr(n, "op", _ARITHMETIC[type(n.op)]())
    if isinstance(node, ast.Compare) and len(node.ops) == 1 and type(node.ops[0]) in _COMPARISONS:
        yield "comparison", lambda n: setattr(n, "ops", [_COMPARISONS[type(n.ops[0])]()])
    if isinstance(node, ast.BoolOp):
        other = ast.Or if isinstance(node.op, ast.And) else ast.And
        yield "and/or", lambda n: setattr(n, "op", other())
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
        yield "minus", lambda n: setattr(n, "op", ast.UAdd())
    if isinstance(node, ast.If | ast.IfExp):
        turned = lambda n: setattr(n, "test", ast.UnaryOp(ast.Not(), n.test))  # noqa: E731
        yield "condition", turned
    if isinstance(node, ast.Constant) and type(node.value) in (int, float):
        yield "constant", lambda n: setattr(n, "value", n.value + 1)


def judged(module: str, mutant: Mutant, limit: float, cache: str) -> str:
    """ "killed", "survived" or "late" (killed by the clock)."""
    with tempfile.TemporaryDirectory() as folder:
        package = Path(folder) / "dagp"
        shutil.copytree(ROOT / "src" / "dagp", package)
        (package / f"{module}.py").write_text(mutant.source)
        command = [sys.executable, "-m", "pytest", "-x", "-q", "-n", "0", "-p", "no:cacheprovider"]
        tests = [str(ROOT / "tests" / name) for name in TESTS[module]]
        try:
            done = subprocess.run(
                [*command, "-m", "not slow", *tests],
                cwd=ROOT,
                env={**os.environ, "PYTHONPATH": folder, "DAGP_TEST_CACHE": cache},
                capture_output=True,
                timeout=limit,
            )
        except subprocess.TimeoutExpired:
            return "late"
    return "survived" if done.returncode == 0 else "killed"


def main() -> int:
    """Judge a sample of the mutants of a module."""
    parser = argparse.ArgumentParser(prog="python tests/mutants.py", description=__doc__)
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument("--module", choices=TESTS, required=True)
    parser.add_argument("--sample", type=int, help="how many; all if left out")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--limit", type=float, default=600.0, help="seconds for one")
    parser.add_argument("--out", type=Path)
    asked = parser.parse_args()
    found = list(mutants((ROOT / "src" / "dagp" / f"{asked.module}.py").read_text()))
    known = len(found)
    if asked.sample:
        found = random.Random(asked.seed).sample(found, min(asked.sample, known))
    verdicts: dict[str, list[str]] = {"killed": [], "survived": [], "late": []}
    # Most programs are those of another mutant, and compiled already.
    cache = tempfile.TemporaryDirectory()
    for number, mutant in enumerate(sorted(found), 1):
        verdict = judged(asked.module, mutant, asked.limit, cache.name)
        words = f"line {mutant.line}, {mutant.change}"
        verdicts[verdict].append(words)
        print(f"{number}/{len(found)} {verdict} {words}"[:200], flush=True)
    killed = len(found) - len(verdicts["survived"])
    result = {"module": asked.module, "known": known, "tried": len(found), "killed": killed}
    print(json.dumps(result))
    if asked.out:
        asked.out.write_text(json.dumps(result | verdicts, indent=1) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
