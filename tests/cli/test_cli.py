"""The command line: what every command has in common, and the demo."""

import functools
import importlib
import re
import subprocess
import sys
import warnings

import pytest
from sklearn.exceptions import ConvergenceWarning
from typer.testing import CliRunner

from dagp import DAGP, __version__, datasets
from dagp.cli.app import COMMANDS, app
from dagp.cli.demo import demo
from dagp.cli.progress import fit_with_progress
from dagp.describe.progress import Pace
from dagp.inference.train import Progress


def run(*arguments):
    return CliRunner().invoke(app, [*arguments])


def test_version_and_help():
    assert run("--version").output.strip() == f"dagp {__version__}"
    answer = run("--help").output
    assert all(command in answer for command in COMMANDS)
    assert "--install-completion" in answer


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_explains_itself(command):
    answer = run(command, "--help")
    assert answer.exit_code == 0
    assert "Usage" in answer.output
    function = getattr(importlib.import_module(f"dagp.cli.{command}"), command)
    assert function.__doc__.splitlines()[0] == COMMANDS[command]


@pytest.mark.parametrize("flag", ["--workers", "-p", "--processes"])
def test_launch_reads_the_number_of_workers(flag, monkeypatch):
    """Also from the hidden former name; refused here before any worker is started."""
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0")
    monkeypatch.delenv("JAX_PLATFORMS", raising=False)
    answer = run("launch", flag, "3", "--", "fit", "data.csv")
    assert answer.exit_code == 2
    assert "--workers 3 needs one GPU each, found only 1 GPU(s)" in answer.stderr


def test_launch_help_shows_only_the_new_name():
    answer = run("launch", "--help").output
    assert "--workers" in answer
    assert "--processes" not in answer


def test_help_and_completion_wait_for_no_library():
    code = """
import sys
from typer.testing import CliRunner
from dagp.cli import app
assert CliRunner().invoke(app, ["--help"]).exit_code == 0
assert CliRunner().invoke(app, ["--version"]).exit_code == 0
print([name for name in ("jax", "sklearn", "scipy", "matplotlib", "numpy") if name in sys.modules])
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


@pytest.mark.parametrize("points", [60, pytest.param(350, marks=pytest.mark.slow)])
def test_demo_separates_the_example_and_writes_picture_and_report(
    points, tmp_path, capsys, monkeypatch
):
    # The example as it is has 350 points a function.
    example = functools.partial(datasets.multimodal, n=points)
    monkeypatch.setattr("dagp.cli.demo.datasets.multimodal", example)
    model = demo(out=tmp_path / "here", seed=0)
    assert model.active_.sum() == 3
    assert model.predict([[0.0]]).shape == (1,)
    assert "3 of 4 processes in use" in re.sub(r"\s+", " ", capsys.readouterr().out)
    assert (tmp_path / "here" / "overview.png").stat().st_size > 10_000
    assert "<!doctype html>" in (tmp_path / "here" / "report.html").read_text().lower()


def test_time_left_is_what_the_pace_allows(monkeypatch):
    clock = iter([10.0, 14.0, 15.0])
    monkeypatch.setattr("dagp.describe.progress.time.monotonic", lambda: next(clock))
    pace = Pace(1000)
    assert pace.left(Progress("train", 0, 100, 0.0)) == ""
    assert pace.left(Progress("train", 0, 140, 0.0)) == "at most 1:26 left"
    assert pace.left(Progress("race", 0, 140, 0.0)) == ""


def test_a_log_gets_a_line_now_and_then(monkeypatch, capsys):
    data = datasets.noise_separation(outliers=0.2, n=40, random_state=0)
    quick = {"n_init": 1, "max_iter": 25, "inducing": 8, "random_state": 0}
    monkeypatch.setattr("dagp.describe.progress.LOG_INTERVAL", 0.0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        fit_with_progress(DAGP(1, **quick), data.X, data.y)
        lines = capsys.readouterr().err.splitlines()
        assert any(re.fullmatch(r"train, start 1, step \d+, ELBO -?[\d.]+.*", s) for s in lines)
        monkeypatch.setattr("dagp.describe.progress.LOG_INTERVAL", 1e9)
        fit_with_progress(DAGP(1, **quick), data.X, data.y)
    assert not capsys.readouterr().err
