"""What must not break: everything that can be wrong on a command line is said in one line."""

import importlib
import json

import numpy as np
import pytest
from typer.testing import CliRunner

from dagp import DAGP
from dagp.cli.app import COMMANDS, app

QUICK = {"n_init": 1, "max_iter": 200, "tol": 1e3, "inducing": 6, "random_state": 0}


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    """A folder with a table and a model of it."""
    folder = tmp_path_factory.mktemp("robust")
    x = np.linspace(0, 1, 24)
    y = np.sin(6 * x)
    rows = zip(x.tolist(), y.tolist(), strict=True)
    (folder / "data.csv").write_text("speed,power\n" + "".join(f"{a},{b}\n" for a, b in rows))
    model = DAGP(1, **QUICK).fit(x[:, None], y)
    model.feature_names_in_ = np.array(["speed"], dtype=object)
    model.save(folder / "model.dagp", data=(x[:, None], y))
    return folder


def words(command, place, *, data="data.csv", model="model.dagp"):
    """A command that reads a table or a model."""
    reads = {
        "fit": ("fit", place / data, "-t", "power"),
        "predict": ("predict", place / model, place / data),
        "plot": ("plot", place / model),
        "report": ("report", place / model),
        "info": ("info", place / model),
    }
    return [str(word) for word in reads[command]]


def refused(arguments, *said, code=2, input=None):
    """One line on stderr, nothing on stdout, no traceback."""
    answer = CliRunner().invoke(app, arguments, input=input)
    assert answer.exit_code == code, answer.output
    lines = [line for line in answer.stderr.splitlines() if line.startswith("Error: ")]
    assert len(lines) == 1, answer.stderr
    assert all(word in lines[0] for word in said), lines[0]
    assert answer.stdout == ""
    assert "Traceback" not in answer.output


@pytest.mark.parametrize("command", ["fit", "predict", "plot", "report", "info"])
def test_missing_file(place, tmp_path, command):
    arguments = words(command, place, data="no.csv", model="no.dagp")
    out = [] if command == "info" else ["-o", str(tmp_path / "out.png")]
    refused(arguments + out, "There is no file", "no.")


def test_missing_table(place, tmp_path):
    arguments = words("predict", place, data="no.csv")
    refused([*arguments, "-o", str(tmp_path / "out")], "There is no file", "no.csv")
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("command", ["fit", "predict"])
def test_wrong_delimiter(place, tmp_path, command):
    arguments = [*words(command, place), "--delimiter", ";", "-o", str(tmp_path / "out")]
    refused(arguments, "only one called 'speed,power'", "--delimiter")


def test_no_such_column_suggests_the_nearest(place, tmp_path):
    out = ["-o", str(tmp_path / "out")]
    fit = ["fit", str(place / "data.csv"), "-t"]
    refused([*fit, "powr", *out], "no column 'powr'", "Did you mean 'power'?")
    refused([*fit, "power", "--features", "sped", *out], "no column 'sped'", "mean 'speed'?")
    predict = ["predict", str(place / "model.dagp"), "-"]
    refused([*predict, *out], "no column 'speed'", "'spede'", input="spede,z\n1,2\n")


@pytest.mark.parametrize("command", ["fit", "predict"])
@pytest.mark.parametrize(("text", "said"), [("", "is empty"), ("speed,power\n", "no rows")])
def test_empty_file(place, tmp_path, command, text, said):
    (tmp_path / "empty.csv").write_text(text)
    arguments = words(command, place, data=tmp_path / "empty.csv")
    refused([*arguments, "-o", str(tmp_path / "out")], "empty.csv", said)
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("command", ["fit", "predict"])
def test_non_numeric_cell_names_row_and_column(place, tmp_path, command):
    (tmp_path / "bad.csv").write_text("speed,power\n1,2\nfast,3\n")
    arguments = words(command, place, data=tmp_path / "bad.csv")
    refused(
        [*arguments, "-o", str(tmp_path / "out")],
        "bad.csv, row 3, column 'speed': 'fast' is not a number",
    )
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("command", ["fit", "predict", "plot", "report", "bench"])
def test_output_exists(place, tmp_path, command):
    out = tmp_path / "out.png"
    out.write_text("old")
    arguments = ["bench"] if command == "bench" else words(command, place)
    refused([*arguments, "-o", str(out)], "out.png exists already; --force overwrites it")
    assert out.read_text() == "old"


def test_output_exists_and_may_go(place, tmp_path):
    out = tmp_path / "out.csv"
    out.write_text("old")
    answer = CliRunner().invoke(app, [*words("predict", place), "-o", str(out), "--force"])
    assert answer.exit_code == 0, answer.output
    assert out.read_text().startswith("row,mean,sd,lower,upper")


@pytest.mark.parametrize("command", ["predict", "plot", "report", "info"])
def test_a_file_that_is_no_model(place, tmp_path, command):
    arguments = words(command, place, model="data.csv")
    out = [] if command == "info" else ["-o", str(tmp_path / "out.png")]
    refused(arguments + out, "data.csv")


@pytest.mark.parametrize("command", ["predict", "plot", "report"])
def test_ctrl_c_ends_with_one_line(place, tmp_path, monkeypatch, command):
    def interrupt(*_, **__):
        raise KeyboardInterrupt

    monkeypatch.setattr(importlib.import_module(f"dagp.cli.{command}"), "load_model", interrupt)
    out = tmp_path / "out.png"
    answer = CliRunner().invoke(app, [*words(command, place), "-o", str(out)])
    assert answer.exit_code == 130
    assert answer.output.strip() == "Stopped."
    assert not out.exists()


@pytest.mark.parametrize("what", ["noise", "capabilities", "all"])
def test_a_model_nobody_knows_is_named_before_anything_runs(tmp_path, what):
    answer = CliRunner().invoke(app, ["reproduce", what, "--models", "GRP", "-o", str(tmp_path)])
    assert answer.exit_code == 2
    assert "no model 'GRP'" in answer.stderr
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("command", COMMANDS)
def test_unknown_options_are_bad_usage(command):
    answer = CliRunner().invoke(app, [command, "--no-such-option"])
    assert answer.exit_code == 2
    assert "no-such-option" in answer.stderr
    assert answer.stdout == ""


def test_results_for_machines_stay_apart_from_words(place):
    answer = CliRunner().invoke(app, [*words("info", place), "--json"])
    assert json.loads(answer.stdout)["kind"] == "model"
