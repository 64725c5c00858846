"""What must not break: everything that can be wrong on a command line is said in one line."""

import importlib
import json
import os
import subprocess
import sys
import tempfile

import numpy as np
import pyarrow as pa
import pytest
from typer.testing import CliRunner

from dagp import DAGP
from dagp.cli import arrowcsv
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


@pytest.mark.parametrize(
    ("command", "out"),
    [
        (["fit", "data.csv", "-t", "power"], "data.csv"),
        (["fit", "data.csv", "-t", "power", "-c", "fit.toml"], "fit.toml"),
        (["init", "data.csv"], "data.csv"),
        (["predict", "model.dagp", "data.csv"], "data.csv"),
        (["predict", "model.dagp", "data.csv"], "model.dagp"),
        (["report", "model.dagp", "--data", "data.csv"], "data.csv"),
        (["plot", "model.dagp"], "model.dagp"),
    ],
)
def test_an_input_is_not_overwritten_even_by_force(place, monkeypatch, command, out):
    monkeypatch.chdir(place)
    (place / "fit.toml").write_text("[fit]\nseed = 0\n")
    before = (place / out).read_bytes()
    refused([*command, "--force", "-o", f"./{out}"], out, "is read by this command")
    assert (place / out).read_bytes() == before


@pytest.mark.parametrize("command", ["fit", "predict", "plot", "report"])
@pytest.mark.parametrize(
    "out",
    [
        pytest.param("/proc/out", marks=pytest.mark.skipif("sys.platform != 'linux'")),
        "n" * 300,
    ],
)
def test_an_output_that_cannot_be_written_is_refused_at_first(place, command, out):
    # The table does not exist, which would be said if it were read.
    arguments = words(command, place, data="none.csv")
    refused([*arguments, "-o", out], "Cannot write", out[:6])


def test_a_checkpoint_beside_a_long_name_is_refused_at_first(place):
    arguments = words("fit", place, data="none.csv")
    refused([*arguments, "-o", str(place / ("n" * 250))], "Cannot write", "name too long")


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"x = " + b"[" * 5000, "nested too deeply"),
        (b"#" * (1 << 21), "not a config file"),
        (b"x = \xff", "not valid TOML"),
    ],
)
def test_config_files_that_are_none(place, content, said):
    (place / "odd.toml").write_bytes(content)
    refused([*words("fit", place), "-c", str(place / "odd.toml"), "-o", "m"], "odd.toml", said)


def test_a_model_is_read_from_a_file_and_not_from_a_pipe(place):
    pipe = place / "pipe"
    os.mkfifo(pipe)
    # There is no writer: to open it would wait for ever.
    for command in ("info", "report", "predict"):
        refused([*words(command, place, model="pipe")], str(pipe), "is a pipe")


def test_weights_and_roles_name_their_column(place):
    table = place / "weights.csv"
    for weights, said in (("1,1e300,1", "row 3"), ("0,0,0", "zero in every row")):
        rows = zip("123", "456", weights.split(","), strict=True)
        table.write_text("x,y,w\n" + "".join(",".join(row) + "\n" for row in rows))
        refused(["fit", str(table), "-t", "y", "--weights", "w"], "weights.csv", "'w'", said)
    refused(["fit", str(table), "-t", "y", "--role", "y=category"], "'y'", "has no role")


def test_letters_that_the_terminal_lacks_are_escaped(place):
    (place / "letters.csv").write_text("speed,läng\n0.5,1\n")
    found = subprocess.run(
        [sys.executable, "-m", "dagp", *words("predict", place, data="letters.csv"), "--keep=läng"],
        env={**os.environ, "PYTHONIOENCODING": "ascii"},
        capture_output=True,
        text=True,
        timeout=90,
    )
    assert found.returncode == 0, found.stderr
    assert found.stdout.startswith("row,l\\xe4ng,")


def test_a_table_that_pyarrow_gives_up_is_not_read_through_python(tmp_path, monkeypatch):
    """A thread of pyarrow that calls Python while the interpreter ends would abort the process."""
    opened = []
    monkeypatch.setattr(pa, "PythonFile", lambda *given, **more: opened.append(given))
    table = tmp_path / "table.csv"
    table.write_text("speed,power\n" + "".join(f"{i},{i}\n" for i in range(99)) + "--,1\n")
    refused(["fit", str(table), "-t", "power", "-o", str(tmp_path / "m")], "row 101", "'--'")
    with table.open("rb") as file, tempfile.TemporaryFile() as copy:
        copy.write(file.read())
        copy.flush()
        for one in (file, copy):
            assert arrowcsv._opened_again(one).read() == table.read_bytes()
    assert not opened
