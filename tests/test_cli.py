"""The command line."""

import re

from typer.testing import CliRunner

from dagp import __version__
from dagp.cli import app, demo


def run(*arguments):
    return CliRunner().invoke(app, [*arguments])


def test_version_and_help():
    assert run("--version").output.strip() == f"dagp {__version__}"
    assert "demo" in run("--help").output


def test_demo_separates_the_example_and_writes_the_picture(tmp_path):
    result = run("demo", "--out", str(tmp_path / "here"), "--seed", "0")
    assert result.exit_code == 0, result.output
    assert "3 of 4 processes in use" in re.sub(r"\s+", " ", result.output)
    assert (tmp_path / "here" / "overview.png").stat().st_size > 10_000


def test_demo_from_python_gives_the_model(tmp_path):
    model = demo(out=tmp_path, seed=1)
    assert model.active_.sum() == 3
    assert model.predict([[0.0]]).shape == (1,)
