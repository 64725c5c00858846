"""Tables on the command line: what is understood, and what is said about the rest."""

import os
import threading

import numpy as np
import pyarrow as pa
import pyarrow.parquet
import pytest
from typer.testing import CliRunner

from dagp.cli import app, tables
from dagp.cli.app import InputError
from dagp.cli.cells import Kind, Request

PLAIN = "x,y\n1,2\n3,4.5\n"


@pytest.fixture(params=["pyarrow", "cell by cell"])
def table(request, tmp_path, monkeypatch):
    """Write a file and read columns of it, with and without pyarrow."""
    if request.param != "pyarrow":
        monkeypatch.setattr("dagp.cli.arrowcsv.available", lambda: False)

    def read(content, *columns, name="data.csv", kinds=None, **options):
        path = tmp_path / name
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
        with tables.open_table(str(path), **options) as found:
            wanted = tables.require_columns(found, columns or found.columns)
            kinds = {c: found.kind(c) for c in wanted} if kinds == "guess" else kinds
            return tables.read_columns(found, wanted, kinds)

    return read


@pytest.mark.parametrize(
    "text",
    [
        PLAIN,
        "x;y\n1;2\n3;4,5\n",
        "x\ty\r\n1\t2\r\n3\t4.5\r\n",
        "x|y\n1|2\n\n3|4.5\n\n",
        "x y\n1  2\n3  4.5\n",
        '"x","y"\n"1","2"\n"3","4,5"\n',
        "\ufeffx,y\n1,2\n3,4.5\n",
        "x, y\n+1, 2e0\n3, .45e1\n",
    ],
)
def test_delimiter_and_decimal_are_found_out(table, text):
    np.testing.assert_array_equal(table(text, "x", "y").values, [[1, 2], [3, 4.5]])


def test_commas_in_names_do_not_hide_the_delimiter(table):
    found = table("Wind, m/s;Leistung, kW\n1,5;2,5\n1.003,5;4,5\n", "Leistung, kW", "Wind, m/s")
    np.testing.assert_array_equal(found.values, [[2.5, 1.5], [4.5, 1003.5]])


@pytest.mark.parametrize(
    "text",
    [
        "x,y\r1,2\r3,4.5\r",
        "x,y\r1,2\r3,4.5",
        "x,y\r\n1,2\n3,4.5\r",
        "x,y\n1,2\r3,4.5\r\n",
        "x;y\r1;2\r3;4,5\r\r\r",
        "\ufeffx,y\r\n1,2\r\n3,4.5\r\n\r\n",
    ],
)
def test_all_ends_of_lines(table, text):
    found = table(text, "x", "y")
    np.testing.assert_array_equal(found.values, [[1, 2], [3, 4.5]])
    np.testing.assert_array_equal(found.rows, [2, 3])
    wide = table(text.removeprefix("\ufeff").encode("utf-16"), "x", "y")
    np.testing.assert_array_equal(wide.values, found.values)


@pytest.mark.parametrize("end", ["\n", "\r\n", "\r"])
def test_line_breaks_in_quotes_count_as_lines(table, end):
    text = end.join(["x,note,y", '1,"two', 'lines",2', "", '3,"one",x4', ""])
    with pytest.raises(InputError, match=r"row 5, column 'y': 'x4'"):
        table(text, "x", "y")
    found = table(text.replace("x4", "4"), "x", "note", "y", kinds="guess")
    np.testing.assert_array_equal(found.rows, [3, 5])
    assert found.columns["note"].tolist() == [f"two{end}lines", "one"]


@pytest.mark.parametrize("end", ["\n", "\r\n", "\r"])
@pytest.mark.parametrize(("quote", "delimiter", "one"), [('"', ",", "1.5"), ("", ";", "1,5")])
def test_plain_files_are_read_by_pyarrow(tmp_path, monkeypatch, end, quote, delimiter, one):
    monkeypatch.setattr("dagp.cli.csvfile.CsvTable._slow_parts", None)
    path = tmp_path / "plain.csv"
    line = delimiter.join([f"{quote}{one}{quote}"] * 2) + end
    path.write_bytes((f"x{delimiter}y{end}" + line * 20_000).encode())
    with tables.open_table(str(path)) as found:
        part = tables.read_columns(found, ["y"])
    assert part.values.sum() == 30_000
    np.testing.assert_array_equal(part.rows, np.arange(2, 20_002))


def test_an_unusual_cell_far_down_is_read_all_the_same(table, monkeypatch):
    monkeypatch.setattr("dagp.cli.csvfile.CHUNK", 7)
    text = "x,y\n" + "1,2\n" * 40 + " +3, NA\n" + "4,5\n" * 3
    found = table(text)
    np.testing.assert_array_equal(found.rows, np.arange(2, 46))
    np.testing.assert_array_equal(found.values[39:42], [[1, 2], [3, np.nan], [4, 5]])


def test_rows_have_the_numbers_of_the_file(table):
    np.testing.assert_array_equal(table("x,y\n1,2\n\n3,4\n").rows, [2, 4])


def test_a_table_without_header_gets_one(table, capsys):
    found = table("1,2\n3,4\n", "column_2")
    np.testing.assert_array_equal(found.values, [[2], [4]])
    np.testing.assert_array_equal(found.rows, [1, 2])
    assert "no header; its columns are called column_1 to column_2" in capsys.readouterr().err


def test_kinds_of_columns(table):
    text = (
        "n,site,day,when,odd\n"
        "1,A,31.01.2024,2024-01-31 12:00,1\n"
        "NA,,,,2\n"
        "3,B,1.2.2024,2024-02-01T00:30+01:00,x\n"
    )
    found = table(text, "n", "site", "day", "when", kinds="guess")
    np.testing.assert_array_equal(found.columns["n"], [1, np.nan, 3])
    assert found.columns["site"].tolist() == ["A", None, "B"]
    days = np.array(["2024-01-31", "NaT", "2024-02-01"], "datetime64[us]")
    np.testing.assert_array_equal(found.columns["day"], days)
    moments = np.array(["2024-01-31T12:00", "NaT", "2024-01-31T23:30"], "datetime64[us]")
    np.testing.assert_array_equal(found.columns["when"], moments)
    with pytest.raises(InputError, match=r"row 4, column 'odd': 'x' is not a number"):
        table(text, "odd", kinds="guess")
    with pytest.raises(InputError, match=r"row 2, column 'site': 'A' is not a date such as"):
        table(text, "site", kinds={"site": Kind.date})


def test_dates_that_have_two_readings_are_text(table):
    found = table("x,d\n1,01/02/2024\n2,03/04/2024\n", "d", kinds="guess")
    assert found.columns["d"].tolist() == ["01/02/2024", "03/04/2024"]


def test_copies_are_as_written(tmp_path):
    path = tmp_path / "data.csv"
    path.write_text("id;x;s\n007;1.234,5; a b\n008;;\n")
    with tables.open_table(str(path)) as found:
        (part,) = found.parts(Request({"x": Kind.number}, ["s", "id", "x"]))
    np.testing.assert_array_equal(part.columns["x"], [1234.5, np.nan])
    assert [c.tolist() for c in part.copies.values()] == [
        ["a b", ""],
        ["007", "008"],
        ["1234.5", ""],
    ]


def test_encodings(table, capsys):
    text = "Höhe,y\n1,2\n"
    for encoding in ("utf-8", "utf-8-sig", "utf-16"):
        assert table(text.encode(encoding), "Höhe").values[0, 0] == 1
    assert capsys.readouterr().err == ""
    assert table(text.encode("latin-1"), "Höhe").values[0, 0] == 1
    assert "read as Latin-1" in capsys.readouterr().err


def test_empty_cells_are_missing(table):
    found = table("x,y\n1,NA\n,nan\n2,3\n")
    np.testing.assert_array_equal(found.values, [[1, np.nan], [np.nan, np.nan], [2, 3]])


def test_parts_of_a_long_table_join(table, monkeypatch):
    monkeypatch.setattr("dagp.cli.csvfile.CHUNK", 7)
    values = np.random.default_rng(0).normal(size=(40, 2))
    text = "a,b\n" + "".join(f"{a!r},{b!r}\n" for a, b in values.tolist())
    np.testing.assert_array_equal(table(text).values, values)


def test_parquet_is_read_by_name_and_in_parts(table, monkeypatch):
    monkeypatch.setattr("dagp.cli.parquetfile.CHUNK", 3)
    content = pa.BufferOutputStream()
    frame = pa.table({"s": ["a"] * 8, "n": pa.array([1, None, *range(6)]), "x": np.arange(8.0)})
    pyarrow.parquet.write_table(frame, content)
    found = table(content.getvalue().to_pybytes(), "x", "n", name="data.parquet")
    np.testing.assert_array_equal(found.values[:, 0], np.arange(8))
    np.testing.assert_array_equal(found.values[:3, 1], [1, np.nan, 0])
    np.testing.assert_array_equal(found.rows, np.arange(1, 9))
    with pytest.raises(InputError, match=r"column 's' holds string, not numbers"):
        table(content.getvalue().to_pybytes(), "s", name="data.parquet")
    text = table(content.getvalue().to_pybytes(), "s", name="data.parquet", kinds="guess")
    assert text.columns["s"].tolist() == ["a"] * 8
    with pytest.raises(InputError, match="not a complete Parquet file"):
        table(b"PAR1 and nothing more", name="data.parquet")


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ("", r"data\.csv is empty"),
        ("\n\n", r"data\.csv is empty"),
        ("x,y\n", "has a header and no rows"),
        ("x,y\n1,2\n3,oops\n", r"data\.csv, row 3, column 'y': 'oops' is not a number"),
        ("x,y\n1,2\n1_0,3\n", r"row 3, column 'x': '1_0' is not a number"),
        ("x,y\n1,2\ninf,3\n", r"row 3, column 'x': 'inf' is infinite"),
        ("x,y\r1,2\r3,oops\r", r"data\.csv, row 3, column 'y': 'oops' is not a number"),
        ("x,y\r", "has a header and no rows"),
        ("x,y\n1,2\n3,4,5\n", r"row 3 has 3 cells, the first row has 2"),
        ("x,y\n1,2\n3\n", r"row 3 has 1 cells, the first row has 2"),
        ("x,y\n1,5,2,5\n1,5,2,6\n", r"row 2 has 4 cells.*decimal commas\?"),
        ('x,y\n1,2\n3,"1,5"\n4.5,2\n5.5,2\n', r"'1,5' is not a number \(--decimal ,"),
        (b"PK\x03\x04rest", "spreadsheet or a zip archive; export it as CSV"),
        (b"\x1f\x8brest", "compressed"),
        (b"x,y\n1,2\n\0\0\n", "binary data"),
        ('x,y\n1,"' + "2" * 200_000, "row 2 cannot be read: field larger"),
    ],
)
def test_what_cannot_be_read_is_named(table, content, said):
    with pytest.raises(InputError, match=said):
        table(content)


def test_a_wrong_delimiter_is_suspected(table):
    with pytest.raises(InputError, match=r"only one called 'x;y'.*--delimiter"):
        table("x;y\n1;2\n", "y", delimiter=",")
    with pytest.raises(InputError, match="--delimiter must be one character"):
        table(PLAIN, delimiter=";;")
    with pytest.raises(InputError, match="--decimal must be"):
        table(PLAIN, decimal=";")


def test_the_nearest_name_is_suggested(table):
    with pytest.raises(InputError, match=r"no column 'powr'\. Did you mean 'Power'\?"):
        table("Wind,Power\n1,2\n", "powr")
    with pytest.raises(InputError, match="has 2 columns called 'x'"):
        table("x,x\n1,2\n", "x")


FIT = ("--processes", "1", "--starts", "1")


@pytest.mark.parametrize(
    ("content", "options", "said"),
    [
        (None, (), "There is no file"),
        (PLAIN, ("--target", "z"), "no column 'z'"),
        (PLAIN, ("--target", "y", "--features", "X"), "Did you mean 'x'?"),
        (PLAIN, ("--target", "y", "--features", "y"), "--features: 'y' is the target"),
        ("y\n1\n2\n", ("--target", "y"), "no input column is left"),
        ("x,y\n1,a\n2,b\n", ("--target", "y"), "row 2, column 'y': 'a' is not a number"),
        ("x,y\n1,2\n,3\n", ("--target", "y"), "1 empty cell(s), the first in row 3, column 'x'"),
        ("x,y\n,2\n,3\n", ("--target", "y", "--missing", "drop"), "has no values in column"),
        ("x,y,w\n1,2,1\n2,3,-1\n", ("--target", "y", "--weights", "w"), "row 3, column 'w'"),
        ("x,y,l\n1,2,\n2,3,.5\n", ("--target", "y", "--labels", "l"), "row 3, column 'l'"),
        ("x,y,l\n1,2,\n2,3,4\n", ("--target", "y", "--labels", "l"), "a label must be"),
        ("x,y,l\n1,2,\n2,3,1\n", ("--target", "y", "--labels", "l"), "from 0 to 0, empty or -1"),
        (PLAIN, ("--target", "y", "--processes", "none"), "--processes must be"),
        (PLAIN, ("--target", "y", "--processes", "5"), "5 processes need at least as many rows"),
    ],
)
def test_fit_says_in_one_line_what_is_wrong(tmp_path, content, options, said):
    data, model = tmp_path / "data.csv", tmp_path / "m.dagp"
    if content is not None:
        data.write_text(content)
    options = options or ("--target", "y")
    answer = CliRunner().invoke(app, ["fit", str(data), *FIT, *options, "-o", str(model)])
    assert answer.exit_code == 2, answer.output
    lines = [line for line in answer.stderr.splitlines() if line.startswith("Error: ")]
    assert len(lines) == 1
    assert said in lines[0]
    assert answer.stdout == ""
    assert not model.exists()


def test_folders_are_no_files(tmp_path):
    answer = CliRunner().invoke(app, ["fit", str(tmp_path), "-t", "y", "-o", str(tmp_path / "m")])
    assert answer.exit_code == 2
    assert "is a folder, not a file" in answer.stderr
    for out in (tmp_path, tmp_path / "nowhere" / "m.dagp"):
        answer = CliRunner().invoke(app, ["fit", "data.csv", "-t", "y", "-o", str(out)])
        assert answer.exit_code == 2
        assert "folder" in answer.stderr


def outcome(path, fast, monkeypatch):
    """Everything that a reader finds in a file, or what it says."""
    with monkeypatch.context() as patch:
        patch.setattr("dagp.cli.csvfile.CHUNK", 3)
        patch.setattr("dagp.cli.arrowcsv.available", lambda: fast)
        try:
            with tables.open_table(str(path)) as found:
                kinds = {name: found.kind(name) for name in found.columns}
                parts = list(found.parts(Request(kinds, found.columns[:1])))
        except InputError as error:
            return str(error)
        return [
            [p.rows.tolist(), {n: list(map(str, c)) for n, c in {**p.columns, **p.copies}.items()}]
            for p in parts
        ]


def test_both_readers_find_the_same(tmp_path, monkeypatch):
    rng = np.random.default_rng(0)
    cells = ["1", "2.5", "-3e2", "", "NA", " 4", '"5"', '"6"', "x", '"a b"', "2024-01-31", "inf"]
    rare = ['"a\nb"', '"1,5"', ' "7"', "+8", "1_0", "1,5", 'q"', '""', " ", "nan", "1e999"]
    path, found = tmp_path / "data.csv", []
    for _ in range(400):
        usual = rng.choice(cells[: rng.integers(2, len(cells))], (rng.integers(1, 12), 2))
        usual = usual.astype(object)
        if rng.random() < 0.5:
            usual[rng.integers(len(usual)), rng.integers(2)] = rng.choice(rare)
        ends = ["\n", "\r\n", "\r"] if rng.random() < 0.3 else [str(rng.choice(["\n", "\r"]))]
        ends = [*ends, "\n\n"] if rng.random() < 0.2 else ends
        rows = [",".join(row) + str(rng.choice(ends)) for row in usual]
        path.write_bytes(("x,y\n" + "".join(rows)).encode())
        fast, slow = (outcome(path, way, monkeypatch) for way in (True, False))
        assert fast == slow, path.read_bytes()
        found.append(isinstance(fast, list))
    assert 100 < sum(found) < 390  # some are read, some are refused


def run(*arguments):
    return CliRunner().invoke(app, [str(a) for a in arguments])


def test_utf_16_that_is_cut_short_is_refused(tmp_path):
    path = tmp_path / "cut.csv"
    path.write_bytes("x,y\n1,2\n3,4\n".encode("utf-16")[:-3])
    answer = run("fit", path, "-t", "y", "-o", tmp_path / "m.dagp")
    assert answer.exit_code == 2
    assert "UTF-16 that is cut short or damaged" in answer.stderr


@pytest.mark.parametrize("count", ["1e30", "100000000", "9" * 5000, "0"])
def test_numbers_of_processes_that_cannot_be_are_refused_at_once(tmp_path, count):
    path = tmp_path / "data.csv"
    path.write_text("x,y\n1,2\n3,4\n")
    answer = run("fit", path, "-t", "y", "--processes", count, "-o", tmp_path / "m.dagp")
    assert answer.exit_code == 2
    assert "--processes must be auto or a number from 1 to 1000" in answer.stderr
    assert len(answer.stderr) < 300


def test_a_pipe_is_read_as_a_file_is(tmp_path):
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    text = "x,y\n1,2\n3,not a number\n5,6\n7,8\n"
    writer = threading.Thread(target=lambda: pipe.write_text(text), daemon=True)
    writer.start()
    answer = run("fit", pipe, "-t", "y", "-o", tmp_path / "m.dagp")
    writer.join(timeout=20)
    assert answer.exit_code == 2
    assert "row 3, column 'y'" in answer.stderr


@pytest.mark.parametrize("name", ["a" * 300, "nul\0name"])
def test_names_that_no_file_can_have_are_refused(tmp_path, name):
    answer = run("fit", name, "-t", "y", "-o", tmp_path / "m.dagp")
    assert answer.exit_code == 2
    assert len(answer.stderr) < 250
