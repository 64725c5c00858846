"""Tables on the command line: what is understood, and what is said about the rest."""

import numpy as np
import pyarrow as pa
import pyarrow.parquet
import pytest
from typer.testing import CliRunner

from dagp.cli import app, tables
from dagp.cli.app import InputError

PLAIN = "x,y\n1,2\n3,4.5\n"


@pytest.fixture
def table(tmp_path):
    """Write a file and read columns of it."""

    def read(content, *columns, name="data.csv", **options):
        path = tmp_path / name
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
        with tables.open_table(str(path), **options) as found:
            wanted = tables.require_columns(found, columns or found.columns)
            return tables.read_columns(found, wanted)

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


def test_rows_have_the_numbers_of_the_file(table):
    np.testing.assert_array_equal(table("x,y\n1,2\n\n3,4\n").rows, [2, 4])


def test_a_table_without_header_gets_one(table, capsys):
    found = table("1,2\n3,4\n", "column_2")
    np.testing.assert_array_equal(found.values, [[2], [4]])
    np.testing.assert_array_equal(found.rows, [1, 2])
    assert "no header; its columns are called column_1 to column_2" in capsys.readouterr().err


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
    monkeypatch.setattr("dagp.cli.tables.CHUNK", 3)
    content = pa.BufferOutputStream()
    frame = pa.table({"s": ["a"] * 8, "n": pa.array([1, None, *range(6)]), "x": np.arange(8.0)})
    pyarrow.parquet.write_table(frame, content)
    found = table(content.getvalue().to_pybytes(), "x", "n", name="data.parquet")
    np.testing.assert_array_equal(found.values[:, 0], np.arange(8))
    np.testing.assert_array_equal(found.values[:3, 1], [1, np.nan, 0])
    np.testing.assert_array_equal(found.rows, np.arange(1, 9))
    with pytest.raises(InputError, match=r"column 's' holds string, not numbers"):
        table(content.getvalue().to_pybytes(), "s", name="data.parquet")
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
        ("x,y\n,2\n,3\n", ("--target", "y", "--missing", "drop"), "every row has an empty cell"),
        ("x,y,w\n1,2,1\n2,3,-1\n", ("--target", "y", "--weights", "w"), "row 3, column 'w'"),
        ("x,y,l\n1,2,\n2,3,.5\n", ("--target", "y", "--labels", "l"), "row 3, column 'l'"),
        ("x,y,l\n1,2,\n2,3,4\n", ("--target", "y", "--labels", "l"), "labels must be"),
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
