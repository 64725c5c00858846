"""Types as users see them: pyright accepts a valid script and reports wrong arguments."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

import dagp

pytest.importorskip("pyright", reason="pyright is not installed")

SCRIPT = Path(__file__).parent / "usage" / "typed_script.py"
SOURCE = Path(dagp.__file__).parents[1]
CONFIG = {
    "typeCheckingMode": "strict",
    # Methods of matplotlib have arguments without types.
    "reportUnknownMemberType": False,
}


def complaints(folder, script, **config):
    """What pyright says about a script in an otherwise empty project, as (line, rule) pairs.

    The library is found on the path, as an installed one: its own annotations count, and nothing
    is inferred from its code.
    """
    (folder / "script.py").write_text(script)
    (folder / "pyrightconfig.json").write_text(json.dumps(CONFIG | config))
    command = [sys.executable, "-m", "pyright", "--outputjson", "--pythonpath", sys.executable]
    done = subprocess.run(
        command,
        cwd=folder,
        env=os.environ | {"PYTHONPATH": str(SOURCE)},
        capture_output=True,
        text=True,
    )
    assert done.stdout.startswith("{"), done.stdout + done.stderr
    found = json.loads(done.stdout)
    assert found["summary"]["filesAnalyzed"] == 1
    return [
        (entry["range"]["start"]["line"] + 1, entry.get("rule"), entry["message"])
        for entry in found["generalDiagnostics"]
    ]


def test_a_script_with_the_calls_of_the_documentation_has_no_type_errors(tmp_path):
    assert complaints(tmp_path, SCRIPT.read_text()) == []


WRONG = [
    'DAGP(missing="dorp")',
    'DAGP(dtype="float16")',
    'DAGP(inference="collapse")',
    'DAGP("many")',
    'DAGP(gate="fixed")',
    'kernels.Matern52(lengthscale="long")',
    "kernels.Matern52(lenghtscale=2.0)",
    "kernels.Linear(active=0)",
    'means.Constant("zero")',
    'Noise(shape="round")',
    "GP(kernel=2.0)",
    'GP(noise_std="low")',
    "pair: tuple[float, float] = DAGP().predict([[0.0]])",
    "DAGP().predict([[0.0]], return_std=True).shape",
]


def test_wrong_arguments_are_reported(tmp_path):
    lines = ["from dagp import DAGP, GP, Noise, kernels, means", *WRONG]
    found = complaints(tmp_path, "\n".join(lines) + "\n", typeCheckingMode="basic")
    reported = {lines[line - 1] for line, _, _ in found}
    assert set(WRONG) - reported == set()
    assert lines[0] not in reported


def test_the_package_declares_its_types():
    assert (Path(dagp.__file__).parent / "py.typed").exists()
