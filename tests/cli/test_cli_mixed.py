"""From a table with text and dates to a config, a model and predictions that keep columns."""

import csv
import io
import json
import subprocess
import sys
import tomllib

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet
import pytest
from typer.testing import CliRunner

from dagp import DAGP
from dagp.cli import app, frames
from dagp.cli.app import InputError
from dagp.cli.cells import Part
from dagp.cli.writing import Digits, Field, parse_digits, significant_digits, write_csv
from dagp.describe.progress import Pace

QUICK = ("--processes", "1", "--starts", "1", "--inducing", "9", "--tol", "0.1")
N = 60


def run(*arguments, input=None):
    return CliRunner().invoke(app, [str(a) for a in arguments], input=input)


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    """A folder with a table of all kinds of columns, the config of `dagp init`, and its model."""
    folder = tmp_path_factory.mktemp("mixed")
    rng = np.random.default_rng(0)
    x, site = np.round(rng.uniform(0, 10, N), 3), rng.choice(["north", "south"], N)
    y = np.round(np.sin(x) + 2.0 * (site == "south") + 0.05 * rng.normal(size=N), 4)
    lines = ["id,wind,site,day,const,note,sparse,code,power"]
    for i in range(N):
        power = "" if i == 4 else y[i]
        day = f"2024-{1 + i // 28:02d}-{1 + i % 28:02d}"
        sparse = i if i % 9 == 0 else ""
        lines.append(f"{i + 1},{x[i]},{site[i]},{day},5,see {i},{sparse},{i % 3},{power}")
    (folder / "data.csv").write_bytes("\r\n".join(lines).encode())
    answer = run("init", folder / "data.csv", "-o", folder / "c.toml")
    assert answer.exit_code == 0, answer.output
    words = ("fit", folder / "data.csv", "--config", folder / "c.toml", *QUICK)
    answer = run(*words, "-o", folder / "m.dagp", "--json")
    assert answer.exit_code == 0, answer.output
    (folder / "answer.json").write_text(answer.stdout)
    return folder


def rows_of(text):
    return list(csv.DictReader(io.StringIO(text)))


def test_init_describes_every_column(place):
    text = (place / "c.toml").read_text()
    found = tomllib.loads(text)
    assert found["data"] == {
        "target": "power",
        "features": ["wind", "site", "day", "code"],
        "missing": "drop",
    }
    assert found["columns"] == {"site": "category", "day": "time"}
    for said in (
        '"site",  # category of 2: north, south',
        '"day",  # dates from 2024-01-01 to 2024-03-04',
        '3 whole numbers, as codes of a category: role "category"',
        '#   "id": numbers the rows, from 1 to 60',
        '#   "const": is 5 in every row',
        '#   "note": text with 60 different values in 60 rows',
        '#   "sparse": is empty in 88% of the rows',
        "leaves out rows with empty cells, here 1",
    ):
        assert said in text, said


def test_the_model_knows_its_columns(place):
    model = DAGP.load(place / "m.dagp")
    assert model.feature_names_in_.tolist() == ["wind", "site", "day", "code"]
    assert model.columns_.names[1:3] == ("site=north", "site=south")
    assert model.target_names_ == ["power"]
    answer = json.loads((place / "answer.json").read_text())
    assert answer["features"] == ["wind", "site", "day", "code"]


def test_the_model_knows_the_lines_of_its_rows(place):
    model = DAGP.load(place / "m.dagp")
    np.testing.assert_array_equal(model.index_, np.arange(2, N + 2))
    assert np.flatnonzero(~model.used_mask_).tolist() == [4]
    assert model.assignment_[3:6].tolist() == [0, -1, 0]


def test_errors_about_rows_name_lines(tmp_path):
    rows = "".join(f"{i},{1e300 if i == 7 else i}\n" for i in range(20))
    (tmp_path / "d.csv").write_text("x,y\n\n" + rows)
    answer = run("fit", tmp_path / "d.csv", "-t", "y", *QUICK, "-o", tmp_path / "m.dagp")
    assert answer.exit_code == 2
    assert "y is 1e+300 in row 10, but" in answer.stderr


def test_predictions_of_categories_and_dates_are_those_of_the_library(place):
    answer = run("predict", place / "m.dagp", place / "data.csv", "--digits", "full")
    assert answer.exit_code == 0, answer.output
    rows = rows_of(answer.stdout)
    frame = pa.csv.read_csv(place / "data.csv")
    model = DAGP.load(place / "m.dagp")
    mean = model.predict(frame.select(["wind", "site", "day", "code"]))
    np.testing.assert_allclose([float(row["mean"]) for row in rows], mean, rtol=1e-9)
    assert [row["row"] for row in rows] == [str(i) for i in range(2, N + 2)]
    assert (rows[4]["assignment"], rows[5]["assignment"]) == ("", "0")


def test_an_interrupted_fit_of_categories_goes_on(place, tmp_path, monkeypatch):
    def interrupt(*_):
        raise KeyboardInterrupt

    words = ("fit", place / "data.csv", "--config", place / "c.toml", *QUICK)
    words = (*words, "-o", tmp_path / "m.dagp", "--checkpoint-every", "3600")
    with monkeypatch.context() as patch:
        patch.setattr("dagp.cli.fit.heartbeat", lambda: patch.setattr(Pace, "left", interrupt))
        answer = run(*words)
    assert answer.exit_code == 130, answer.output
    assert (tmp_path / "m.dagp.checkpoint").exists()
    answer = run(*words, "--resume")
    assert answer.exit_code == 0, answer.output
    one, two = (DAGP.load(folder / "m.dagp") for folder in (place, tmp_path))
    np.testing.assert_array_equal(one.responsibilities_, two.responsibilities_)
    np.testing.assert_array_equal(one.lower_bounds_, two.lower_bounds_)


def test_pictures_and_pages_of_mixed_tables(place, tmp_path):
    model, data = place / "m.dagp", place / "data.csv"
    for words in (
        ("plot", model, "--feature", "site", "-o", tmp_path / "a.png"),
        ("plot", model, "--feature", "day", "--data", data, "-o", tmp_path / "b.png"),
        ("report", model, "-o", tmp_path / "a.html"),
        ("report", model, "--data", data, "-o", tmp_path / "b.html"),
    ):
        answer = run(*words)
        assert answer.exit_code == 0, answer.output
    answer = run("plot", model, "--feature", "sit", "-o", tmp_path / "c.png")
    assert "has no input 'sit'. Did you mean 'site'?" in answer.stderr


def test_a_level_that_the_fit_has_not_seen_is_a_note(place):
    text = "wind,site,day,code\n1,west,2024-01-01,1\n"
    answer = run("predict", place / "m.dagp", "-", input=text)
    assert answer.exit_code == 0, answer.output
    assert "west, which the fit has not seen" in answer.stderr
    answer = run("predict", place / "m.dagp", "-", input=text.replace("2024-01-01", "soon"))
    assert answer.exit_code == 2
    assert "row 2, column 'day': 'soon' is not a date such as 2024-01-31" in answer.stderr


@pytest.mark.parametrize(
    ("keep", "names"),
    [
        (["id"], ["id"]),
        (["note, id"], ["note", "id"]),
        (["site", "--keep", "wind"], ["site", "wind"]),
        (["all"], ["id", "wind", "site", "day", "const", "note", "sparse", "code", "power"]),
    ],
)
def test_kept_columns_come_first_and_are_as_written(place, keep, names):
    answer = run("predict", place / "m.dagp", place / "data.csv", "--keep", *keep)
    assert answer.exit_code == 0, answer.output
    found, given = rows_of(answer.stdout), rows_of((place / "data.csv").read_text())
    assert list(found[0])[: len(names) + 2] == ["row", *names, "mean"]
    assert [{n: row[n] for n in names} for row in found] == [
        {n: row[n] for n in names} for row in given
    ]


def test_kept_columns_in_json_and_parquet(place, tmp_path):
    words = ("predict", place / "m.dagp", place / "data.csv", "--keep", "id,note,sparse")
    answer = json.loads(run(*words, "--json").stdout)
    assert answer["columns"][:5] == ["row", "id", "note", "sparse", "mean"]
    assert answer["rows"][1][:4] == [3, 2, "see 1", None]
    assert run(*words, "-o", tmp_path / "p.parquet").exit_code == 0
    frame = pyarrow.parquet.read_table(tmp_path / "p.parquet")
    assert frame["note"].to_pylist()[:2] == ["see 0", "see 1"]
    assert frame["sparse"].to_pylist()[:2] == [0.0, None]
    words = ("predict", place / "m.dagp", tmp_path / "in.parquet", "--keep", "all")
    days = pa.array([19723, None], pa.int32()).cast(pa.date32())
    columns = {"wind": [1.0, 2.0], "site": ["north", "south"], "day": days, "code": [1, None]}
    pyarrow.parquet.write_table(pa.table(columns), tmp_path / "in.parquet")
    assert run(*words, "-o", tmp_path / "q.parquet").exit_code == 0
    frame = pyarrow.parquet.read_table(tmp_path / "q.parquet")
    assert [str(frame.schema.field(n).type) for n in columns] == [
        "double",
        "string",
        "date32[day]",
        "int64",
    ]
    assert frame["code"].to_pylist() == [1, None]
    assert np.isnan(frame["mean"].to_numpy()).tolist() == [False, True]


def test_kept_columns_that_are_called_like_a_prediction(place):
    text = "row,mean,wind,site,day,code\n7,8,1,north,2024-01-01,1\n"
    answer = run("predict", place / "m.dagp", "-", "--keep", "row,mean", input=text)
    assert list(rows_of(answer.stdout)[0])[:4] == ["row", "input_row", "input_mean", "mean"]
    assert "The column 'mean' of standard input is written as 'input_mean'." in answer.stderr
    answer = run("predict", place / "m.dagp", "-", "--keep", "men", input=text)
    assert answer.exit_code == 2
    assert "no column 'men'. Did you mean 'mean'?" in answer.stderr


def test_numbers_have_the_digits_they_deserve(place):
    file = io.StringIO()
    fields = [Field("mean", error="sd"), Field("sd"), Field("s", "string")]
    columns = [np.array([1234567.891234, 1 / 3, np.nan]), np.array([0.01234567, 2 / 3, np.nan])]
    columns.append(np.array(["a", None, "b"], dtype=object))
    write_csv(file, fields, [columns], Digits())
    assert file.getvalue() == "mean,sd,s\n1234567.89123,0.0123457,a\n0.333333,0.666667,\n,,b\n"
    assert significant_digits(np.array([0.0, 1.0]), np.array([1.0, 0.0]), 6).tolist() == [6, 6]
    rows = rows_of(run("predict", place / "m.dagp", place / "data.csv", "--digits", "3").stdout)
    assert all(len(row["sd"].replace(".", "").lstrip("0")) <= 3 for row in rows)
    assert parse_digits("full").least is None
    for wrong in ("0", "18", "many"):
        answer = run("predict", place / "m.dagp", place / "data.csv", "--digits", wrong)
        assert answer.exit_code == 2
        assert f"--digits must be auto, full or a number from 1 to 17, got {wrong!r}" in (
            answer.stderr
        )


def test_init_takes_the_target_and_overwrites_only_on_request(place, tmp_path):
    out = tmp_path / "c.toml"
    answer = run("init", place / "data.csv", "-t", "wind", "-o", out)
    assert answer.exit_code == 0, answer.output
    found = tomllib.loads(out.read_text())
    assert found["data"]["target"] == "wind"
    assert "power" in found["data"]["features"]
    answer = run("init", place / "data.csv", "-o", out)
    assert answer.exit_code == 2
    assert "exists already; --force" in answer.stderr
    assert run("init", place / "data.csv", "-o", out, "--force").exit_code == 0


@pytest.mark.parametrize(
    ("content", "options", "said"),
    [
        ("", (), "is empty"),
        ("x,y\n", (), "has a header and no rows"),
        ("x,y\n1,2\n3\n", (), "row 3 has 1 cells"),
        ("a,b\nx,1\ny,1\nz,1\n", (), "has no column of numbers that could be the target"),
        ("a,b\n1,1\n2,5\n3,1\n", (), "no column besides the target 'b' can be an input"),
        ("x,y\n1,2\n2,5\n", ("-t", "z"), "no column 'z'"),
        ("x,y\na,2\na,5\nb,5\n", ("-t", "x"), "the target 'x' must hold numbers"),
    ],
)
def test_init_says_what_is_wrong(tmp_path, content, options, said):
    (tmp_path / "d.csv").write_text(content)
    answer = run("init", tmp_path / "d.csv", "-o", tmp_path / "c.toml", *options)
    assert answer.exit_code == 2, answer.output
    assert said in answer.stderr
    assert not (tmp_path / "c.toml").exists()


def test_init_leaves_out_a_column_with_a_wrong_cell(tmp_path):
    (tmp_path / "d.csv").write_text(
        '"a ""q""",odd,b,b,us,y\n1,1,1,1,1/2/24,3\n2,5,2,1,1/3/24,4\n'
        "4,oops,7,2,1/2/24,9\n5,7,7,8,1/2/24,1\n"
    )
    answer = run("init", tmp_path / "d.csv", "-o", tmp_path / "c.toml")
    assert answer.exit_code == 0, answer.output
    text = (tmp_path / "c.toml").read_text()
    assert tomllib.loads(text)["data"]["features"] == ['a "q"']
    assert "row 4, column 'odd': 'oops' is not a number" in text
    assert '"us": dates such as 1/2/24, in which day and month can be mistaken' in text


def test_text_needs_some_library_of_frames(monkeypatch):
    columns = {"x": np.array([1.0]), "s": np.array(["a"], dtype=object)}
    part = Part(np.array([2]), columns)
    for missing, library in (("nothing", "pyarrow"), ("pyarrow", "pandas"), ("pandas", "polars")):
        monkeypatch.setitem(sys.modules, missing, None)
        frame = frames.inputs_of(part, ["x", "s"])
        assert type(frame).__module__.startswith(library)
    monkeypatch.setitem(sys.modules, "polars", None)
    with pytest.raises(InputError, match="text or dates need pyarrow"):
        frames.inputs_of(part, ["x", "s"])
    assert frames.inputs_of(part, ["x"]).tolist() == [[1.0]]


def test_the_package_is_the_command():
    done = subprocess.run(
        [sys.executable, "-m", "dagp", "--version"], capture_output=True, text=True, check=True
    )
    assert done.stdout.startswith("dagp ")
    done = subprocess.run(
        [sys.executable, "-m", "dagp", "fit"], capture_output=True, text=True, check=False
    )
    assert done.returncode == 2
    assert "Traceback" not in done.stderr
