"""What must not break: strange names, cells, files and streams are answered in one short line."""

import ast
import csv
import io
import json
import os
import random
import subprocess
import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from pyarrow import parquet
from typer.testing import CliRunner

import dagp
from dagp import DAGP, plot
from dagp.cli.app import app
from dagp.core.text import LONGEST, one_line, quoted, shown

QUICK = {"n_init": 1, "max_iter": 200, "tol": 1e3, "inducing": 6, "random_state": 0}
DIGITS = "1" * 100_000
LINES = "many\n" * 1000
SOURCE = Path(dagp.__file__).parent


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    """A folder with a table and a model of it, which has a line break in the name of its input."""
    folder = tmp_path_factory.mktemp("words")
    x = np.linspace(0, 1, 24)
    y = np.sin(6 * x)
    model = DAGP(1, **QUICK).fit(pd.DataFrame({"wind\nspeed\x1b": x}), pd.Series(y, name="power"))
    model.save(folder / "model.dagp", data=(pd.DataFrame({"wind\nspeed\x1b": x}), y))
    table(folder / "data.csv", ["wind\nspeed\x1b", "power"], zip(x.tolist(), y, strict=True))
    return folder


def table(path, header, rows):
    with path.open("w", newline="", encoding="utf-8") as file:
        csv.writer(file).writerows([header, *rows])
    return path


def run(*words):
    return CliRunner().invoke(app, [str(word) for word in words])


def refused(*words, said=()):
    """One line on stderr that is not too long, and nothing else."""
    answer = run(*words)
    assert isinstance(answer.exception, SystemExit), answer.exception
    assert answer.exit_code == 2
    errors = [line for line in answer.stderr.splitlines() if line.startswith("Error: ")]
    assert len(errors) == 1
    assert answer.stderr.splitlines()[-1] == errors[0]
    assert len(errors[0]) < 700
    assert errors[0].isprintable()
    assert all(word in errors[0] for word in said), errors[0]
    assert answer.stdout == ""


@pytest.mark.parametrize("cell", [DIGITS + "x", LINES, "a" * 1_000_000])
def test_cells_of_any_length_are_quoted_in_one_line(place, tmp_path, cell):
    path = tmp_path / "bad.csv"
    # Not read by the csv module, whose longest cell is shorter.
    rows = "".join(f"{i},{i}\n" for i in range(9))
    path.write_text(f'"wind\nspeed\x1b",power\n"{cell}",1\n{rows}')
    place_of_it = () if len(cell) > 131_072 else ("column 'wind\\nspeed\\x1b'",)
    refused("predict", place / "model.dagp", path, said=["bad.csv, row", *place_of_it])


@pytest.mark.parametrize("word", [DIGITS, LINES])
@pytest.mark.parametrize(
    "option",
    [
        "--features",
        "--kernel",
        "--gate",
        "--missing",
        "--role",
        "--config",
        "--processes",
        "--seed",
    ],
)
def test_options_of_any_length_are_quoted_in_one_line(place, tmp_path, word, option):
    out = tmp_path / "out.dagp"
    refused("fit", place / "data.csv", "-t", "power", option, word, "-o", out)
    assert not out.exists()


def test_config_values_of_any_length_are_quoted_in_one_line(place, tmp_path):
    config = tmp_path / "c.toml"
    for text in (
        f'[data]\n"{DIGITS}" = 1',
        f'[model]\nkernel = """{LINES}"""',
        f"[search]\nseed = {DIGITS}",
    ):
        config.write_text(text)
        words = (place / "data.csv", "-t", "power", "--config", config, "-o", tmp_path / "o.dagp")
        refused("fit", *words, said=["c.toml"])


def test_settings_of_any_size_are_refused_in_one_line():
    X, y = np.zeros((9, 1)), np.zeros(9)
    for settings in (
        {"max_iter": 10**5000},
        {"tol": -(10**5000)},
        {"dtype": DIGITS},
        {"n_init": 10**9},
    ):
        with pytest.raises(ValueError, match="must be") as caught:
            DAGP(1, **QUICK | settings).fit(X, y)
        assert len(str(caught.value)) < LONGEST
    row = pd.Index([LINES, *range(8)], dtype=object)
    with pytest.raises(ValueError, match="in row many\\?many") as caught:
        DAGP(1).fit(pd.DataFrame({"a": [np.nan, *range(8)]}, index=row), y)
    assert len(str(caught.value)) < 2 * LONGEST
    with pytest.raises(ValueError, match="row 0: int too large"):
        DAGP(1).fit(np.array([[10**5000]] + [[1.0]] * 8, dtype=object), y)


def test_what_is_quoted_is_short():
    for value in (DIGITS, LINES, 10**5000, [DIGITS] * 1000, np.zeros((1000, 3)), {DIGITS: LINES}):
        for text in (quoted(value), shown(value), one_line(f"{quoted(value)} is wrong.")):
            assert text.isprintable()
            assert len(text) < 800
    assert quoted("a\nb") == "'a\\nb'"
    assert one_line(f"{DIGITS} is\nwrong.").endswith("… is wrong.")


@pytest.mark.parametrize("room", ["cli", "tables"])
def test_messages_quote_by_the_one_function(room):
    """`!r` in a message would quote text of any length."""
    for path in (SOURCE / room).glob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            bare = isinstance(node, ast.FormattedValue) and node.conversion == ord("r")
            assert not bare or path.name == "launch.py", f"{path}:{node.lineno}"


def test_usage_errors_are_one_line():
    refused("fit", said=["Missing argument 'data'", "dagp fit --help"])
    refused("fit", "x.csv", "--max-iter", "1.5", said=["'--max-iter'"])
    refused("nothing\nat all", said=["No such command 'nothing\\nat all'"])


def test_names_with_line_breaks_stay_on_one_line(place, tmp_path):
    model = DAGP.load(place / "model.dagp")
    data, out = place / "data.csv", tmp_path / "out.csv"
    assert run("predict", place / "model.dagp", data, "--keep", "all", "-o", out).exit_code == 0
    with out.open(newline="") as file:
        header, *rows = csv.reader(file)
    assert header[:3] == ["row", "wind\nspeed\x1b", "power"]
    assert len(rows) == 24
    assert plot.gate(model).get_xlabel() == "wind?speed?"
    table(tmp_path / "other.csv", ["speed", "power"], [(1, 2)])
    refused(
        "predict",
        place / "model.dagp",
        tmp_path / "other.csv",
        said=["no column 'wind\\nspeed\\x1b'"],
    )
    told = run("info", place / "model.dagp").stdout
    assert "wind?speed?" in told
    config = tmp_path / "c.toml"
    assert run("init", data, "-o", config).exit_code == 0
    assert '"wind\\nspeed\\u001b",  # numbers' in config.read_text()


def test_names_that_are_not_unicode_are_refused_before_the_fit():
    y = np.arange(4.0)
    names = pd.Index(["a\udcff", "b"], dtype=object)
    with pytest.raises(ValueError, match=r"name 'a\\udcff', which is not Unicode"):
        DAGP(1).fit(pd.DataFrame(np.zeros((4, 2)), columns=names), y)
    with pytest.raises(ValueError, match=r"name 'y\\ud800', which is not Unicode"):
        DAGP(1, **QUICK).fit(np.arange(4.0)[:, None], pd.Series(y, name="y\ud800"))
    levels = np.array([["a\udcff"], ["b"]] * 2, dtype=object)
    with pytest.raises(ValueError, match=r"column 0 of X holds 'a\\udcff'"):
        DAGP(1, columns={0: "category"}).fit(levels, y)


@pytest.mark.parametrize("cell", ["-nan", "+NaN", "nan(ind)", "-NaN(0x7f)", "-1.#IND", "1.#QNAN"])
def test_nan_with_a_sign_is_an_empty_cell(place, tmp_path, cell):
    path = table(tmp_path / "t.csv", ["wind\nspeed\x1b", "power"], [(1, 2), (cell, 3), (2, cell)])
    answer = run("predict", place / "model.dagp", path, "--target", "power")
    assert answer.exit_code == 0, answer.stderr
    assert "1 of 3 rows have empty inputs" in answer.stderr
    rows = list(csv.DictReader(io.StringIO(answer.stdout)))
    assert [row["mean"] != "" for row in rows] == [True, False, True]
    assert [row["log_density"] != "" for row in rows] == [True, False, False]


@pytest.mark.parametrize("missing", ["raise", "drop"])
def test_columns_without_values_are_named(tmp_path, missing):
    path = table(tmp_path / "t.csv", ["a", "gap", "y"], [(i, "", i) for i in range(6)])
    out = tmp_path / "o.dagp"
    refused("fit", path, "-t", "y", "--missing", missing, "-o", out, said=["t.csv", "'gap'"])
    refused("fit", path, "-t", "gap", "--missing", missing, "-o", out, said=["t.csv", "'gap'"])
    refused("init", path, "-t", "gap", "-o", tmp_path / "c.toml", said=["t.csv", "'gap'"])
    y = np.arange(6.0)
    for gap in ([np.nan] * 6, [None] * 6, pd.Categorical([None] * 6), [pd.NaT] * 6):
        with pytest.raises(ValueError, match=r"contains NaN only: .*no values") as caught:
            DAGP(1, missing=missing).fit(pd.DataFrame({"a": y, "gap": gap}), y)
        assert "'gap'" in str(caught.value)
    with pytest.raises(ValueError, match="y contains NaN only"):
        DAGP(1, missing=missing).fit(y[:, None], np.full(6, np.nan))


def test_damaged_parquet_files_are_refused_or_read(place, tmp_path):
    path, rng = tmp_path / "t.parquet", random.Random(0)
    x = np.linspace(0, 1, 200)
    parquet.write_table(pa.table({"wind\nspeed\x1b": x, "site": ["a", "b"] * 100}), path)
    whole, codes = path.read_bytes(), []
    for case in range(60):
        data = bytearray(whole)
        if case % 3 == 0:
            data = data[: rng.randrange(4, len(data))]
        else:
            data[rng.randrange(4, len(data) if case % 3 == 1 else 600)] ^= 1 << rng.randrange(8)
        path.write_bytes(data)
        answer = run(
            "predict",
            place / "model.dagp",
            path,
            "--keep",
            "all",
            "-o",
            tmp_path / "o.csv",
            "--force",
        )
        assert answer.exit_code in (0, 2), answer.exception
        assert answer.exit_code == 0 or "t.parquet" in answer.stderr
        assert len(answer.stderr.splitlines()) <= 1
        codes.append(answer.exit_code)
    assert codes.count(2) > 20


FORMULAS = ["=1+1", "+A1", "-A1", "@SUM(A1)", "\t=1", "a=b", "-1.5", "+2", "-", ""]


def test_text_that_looks_like_a_formula_is_not_one(place, tmp_path):
    rows = [(i, text) for i, text in enumerate(FORMULAS)]
    path = table(tmp_path / "t.csv", ["wind\nspeed\x1b", "=note"], rows)
    model, keep = place / "model.dagp", ("--keep", "=note")
    header, *found = csv.reader(io.StringIO(run("predict", model, path, *keep).stdout))
    assert header[:2] == ["row", "'=note"]
    # Cells are stripped as they are read.
    assert [row[1] for row in found] == [
        "'=1+1", "'+A1", "'-A1", "'@SUM(A1)", "'=1", "a=b", "-1.5", "+2", "-", "",
    ]  # fmt: skip
    assert all(float(row[2]) is not None for row in found)
    told = json.loads(run("predict", model, path, *keep, "--json").stdout)
    assert told["columns"][1] == "=note"
    assert [row[1] for row in told["rows"]][:4] == FORMULAS[:4]


def started(*words, **streams):
    """A command as a process of its own."""
    return subprocess.Popen(
        [sys.executable, "-m", "dagp", *map(str, words)],
        env={**os.environ, "PYTHONPATH": str(SOURCE.parent)},
        text=True,
        **streams,
    )


def test_a_reader_that_has_gone_ends_a_command_quietly(place, tmp_path):
    read, write = os.pipe()
    os.close(read)
    data = place / "data.csv"
    both = [
        started("predict", place / "model.dagp", data, stdout=write, stderr=subprocess.PIPE),
        # Notes are lost, not the work.
        started("init", data, "-o", tmp_path / "c.toml", stdout=subprocess.PIPE, stderr=write),
    ]
    os.close(write)
    (out, told), (printed, _) = (one.communicate(timeout=120) for one in both)
    assert [one.returncode for one in both] == [141, 0], (out, told, printed)
    assert told == ""
    assert "Config: " in printed


def test_closed_streams_lose_no_file(place, tmp_path):
    shell = ["sh", "-c", '"$@" >&- 2>&-', "sh", sys.executable, "-m", "dagp", "init"]
    environment = {**os.environ, "PYTHONPATH": str(SOURCE.parent)}
    config = tmp_path / "c.toml"
    words = [str(place / "data.csv"), "-o", str(config)]
    assert subprocess.run([*shell, *words], env=environment, timeout=120).returncode == 0
    assert run("init", place / "data.csv", "-o", tmp_path / "d.toml").exit_code == 0
    same = (tmp_path / "d.toml").read_text().replace("d.toml", "c.toml")
    assert config.read_text() == same
    shell[2], shell[-1] = '"$@" >&-', "info"
    ended = subprocess.run(
        [*shell, str(place / "model.dagp")], env=environment, timeout=120, stderr=subprocess.PIPE
    )
    assert ended.returncode == 2
    assert (
        ended.stderr
        == b"Error: Standard output is closed, and the result is to be printed there.\n"
    )
