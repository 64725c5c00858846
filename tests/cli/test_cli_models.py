"""The command line from a table to a model, predictions, pictures and pages."""

import csv
import io
import json
import sys

import numpy as np
import pyarrow as pa
import pyarrow.parquet
import pytest
from jax.errors import JaxRuntimeError
from typer.testing import CliRunner

from dagp import DAGP, datasets
from dagp.cli import app
from dagp.errors import FitError, StorageError
from dagp.files import format as storage
from dagp.files import modelfile

X_NAME, Y_NAME = "Wind <b>&</b> größe", "Leistung (kW)"
FIT = ("-t", Y_NAME, "--features", X_NAME, "--processes", "1", "--noise-process", "--starts", "1")


def run(*arguments, input=None):
    return CliRunner().invoke(app, [str(a) for a in arguments], input=input)


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    """A folder with a table, and a model that was fitted to it on the command line."""
    folder = tmp_path_factory.mktemp("models")
    data = datasets.noise_separation(outliers=0.3, n=80, random_state=0)
    rows = zip(data.X[:, 0].tolist(), np.asarray(data.y).tolist(), strict=True)
    lines = [f"{x!r};{y!r};9".replace(".", ",") for x, y in rows]
    header = f"{X_NAME};{Y_NAME};Nummer"
    (folder / "data.csv").write_text("\n".join([header, *lines]))
    answer = run("fit", folder / "data.csv", *FIT, "-o", folder / "m.dagp", "--json")
    assert answer.exit_code == 0, answer.output
    (folder / "answer.json").write_text(answer.stdout)
    return folder, data.X, np.asarray(data.y)


def rows_of(text):
    rows = list(csv.DictReader(io.StringIO(text)))
    return {name: np.array([float(row[name] or "nan") for row in rows]) for name in rows[0]}


def test_the_answer_to_machines_is_one_object(place):
    answer = json.loads((place[0] / "answer.json").read_text())
    assert answer["target"] == Y_NAME
    assert answer["features"] == [X_NAME]
    assert [process["kind"] for process in answer["processes"]] == ["GP", "Noise"]
    assert answer["rows"] == 80


def test_the_model_is_the_one_the_library_fits(place):
    folder, X, y = place
    model = DAGP.load(folder / "m.dagp")
    assert model.feature_names_in_.tolist() == [X_NAME]
    again = DAGP(**model.get_params(deep=False)).fit(X, y)
    np.testing.assert_array_equal(model.posterior_.gate(X), again.posterior_.gate(X))
    np.testing.assert_array_equal(modelfile.training_data(folder / "m.dagp")[0], X)
    assert not (folder / "m.dagp.checkpoint").exists()


def test_ctrl_c_keeps_what_was_done(place, tmp_path, monkeypatch):
    folder, X, _ = place
    model = tmp_path / "m.dagp"
    calls = []

    def interrupt(*_):
        calls.append(None)
        if len(calls) == 3:
            raise KeyboardInterrupt
        return ""

    # No note is due for an hour: the one that is there was written because of the signal.
    command = ("fit", folder / "data.csv", *FIT, "-o", model, "--checkpoint-every", "3600")
    with monkeypatch.context() as patch:
        patch.setattr("dagp.describe.progress.Pace.left", interrupt)
        patch.setattr("sys.argv", ["dagp", *map(str, command)])
        answer = run(*command)
    assert answer.exit_code == 130
    assert "continue with: dagp fit" in answer.stderr
    assert answer.stderr.rstrip().endswith("--resume")
    assert not model.exists()
    note = tmp_path / "m.dagp.checkpoint"
    assert storage.describe(note).kind == "checkpoint"
    assert "checkpoint" in run("info", note).stdout
    # Progress is not thrown away unasked.
    answer = run(*command)
    assert answer.exit_code == 2
    assert "--resume continues it, --force discards it" in answer.stderr
    assert note.exists()
    answer = run(*command, "--resume", "--seed", "1")
    assert answer.exit_code == 2
    assert "other data or settings" in answer.stderr
    assert run(*command, "--resume").exit_code == 0
    expected = DAGP.load(folder / "m.dagp").posterior_.mixture(X)
    np.testing.assert_array_equal(DAGP.load(model).posterior_.mixture(X).means, expected.means)
    assert not note.exists()


def test_predictions_are_those_of_the_library(place):
    folder, X, y = place
    words = ("predict", folder / "m.dagp", folder / "data.csv", "--level", 0.8, "--digits", "full")
    found = rows_of(run(*words).stdout)
    np.testing.assert_array_equal(found["row"], np.arange(2, len(X) + 2))
    model = DAGP.load(folder / "m.dagp")
    mixture = model.posterior_.mixture(X)
    np.testing.assert_array_equal(found["mean"], mixture.mean())
    np.testing.assert_array_equal(found["sd"], np.sqrt(mixture.variance()))
    np.testing.assert_array_equal([found["lower"], found["upper"]], mixture.interval(0.8))
    np.testing.assert_array_equal(found["log_density"], mixture.log_prob(y))
    shares = mixture.responsibilities(y)
    np.testing.assert_array_equal(found["assignment"], shares.argmax(axis=1))
    for k in (0, 1):
        gate = model.posterior_.gate(X)[:, k]
        np.testing.assert_allclose(found[f"weight_{k}"], gate, rtol=1e-12)
        np.testing.assert_array_equal(found[f"mean_{k}"], mixture.marginal(k).mean())
        np.testing.assert_array_equal(found[f"responsibility_{k}"], shares[:, k])


def test_columns_are_matched_by_name_and_gaps_stay_gaps(place, monkeypatch):
    monkeypatch.setattr("dagp.cli.csvfile.CHUNK", 2)
    text = f"other;{X_NAME};Leistung\na;0,5;1\nb;;2\nc;-1;3\n"
    answer = run("predict", place[0] / "m.dagp", "-", "--digits", "full", input=text)
    assert answer.exit_code == 0, answer.output
    found = rows_of(answer.stdout)
    expected = DAGP.load(place[0] / "m.dagp").posterior_.mixture(np.array([[0.5], [-1.0]])).mean()
    # The place of a row among others shows in the last digit.
    np.testing.assert_allclose(found["mean"], [expected[0], np.nan, expected[1]], rtol=1e-12)
    assert "assignment" not in found
    assert "1 of 3 rows have empty inputs and no prediction" in answer.stderr


def test_predictions_in_other_forms(place, tmp_path):
    folder, X, _ = place
    model, data = folder / "m.dagp", folder / "data.csv"
    answer = json.loads(run("predict", model, data, "--json", "--digits", "full").stdout)
    plain = rows_of(run("predict", model, data, "--digits", "full").stdout)
    means = [row[answer["columns"].index("mean")] for row in answer["rows"]]
    np.testing.assert_array_equal(means, plain["mean"])
    told = json.loads(run("predict", model, data, "--json", "-o", tmp_path / "p.parquet").stdout)
    assert told["rows"] == len(X)
    frame = pyarrow.parquet.read_table(tmp_path / "p.parquet")
    np.testing.assert_array_equal(frame["sd_1"].to_numpy(), plain["sd_1"])
    source = tmp_path / "in.parquet"
    pyarrow.parquet.write_table(pa.table({X_NAME: X[:, 0]}), source)
    words = ("predict", model, source, "--digits", "full", "-o", tmp_path / "p.csv")
    assert run(*words).exit_code == 0
    text = (tmp_path / "p.csv").read_text()
    np.testing.assert_array_equal(rows_of(text)["mean"], plain["mean"])


def test_rows_without_an_output_are_predicted_all_the_same(place, tmp_path):
    text = f"{X_NAME},{Y_NAME}\n0.5,1\n0.5,\n"
    for out in ("-", tmp_path / "p.parquet"):
        answer = run("predict", place[0] / "m.dagp", "-", "-o", out, input=text)
        assert answer.exit_code == 0, answer.output
        if out == "-":
            found = rows_of(answer.stdout)
        else:
            found = {c: pyarrow.parquet.read_table(out)[c].to_numpy() for c in found}
        assert np.isfinite(found["mean"]).all()
        assert np.isnan(found["assignment"]).tolist() == [False, True]
        assert np.isnan(found["log_density"]).tolist() == [False, True]


def test_predict_says_what_is_missing(place, tmp_path):
    model = place[0] / "m.dagp"
    for text, said in (
        ("Wind b größe,z\n1,2\n", "has no column"),
        (f"{X_NAME},z\n", "has a header and no rows"),
        ("", "standard input is empty"),
    ):
        answer = run("predict", model, "-", "-o", tmp_path / "out.csv", input=text)
        assert answer.exit_code == 2
        assert said in answer.stderr
        assert list(tmp_path.iterdir()) == []
    assert "Did you mean" in run("predict", model, "-", input="Wind <b>,z\n1,2\n").stderr
    assert run("predict", model, "-", "--level", "1.5", input="x\n1\n").exit_code == 2
    assert "no file" in run("predict", tmp_path / "no.dagp", "-", input="x\n1\n").stderr


def test_an_error_half_way_leaves_the_old_file(place, tmp_path, monkeypatch):
    monkeypatch.setattr("dagp.cli.csvfile.CHUNK", 2)
    out = tmp_path / "out.csv"
    out.write_text("old")
    text = f"{X_NAME}\n1\n2\n3\nx\n"
    answer = run("predict", place[0] / "m.dagp", "-", "-o", out, "--force", input=text)
    assert answer.exit_code == 2
    assert "row 5" in answer.stderr
    assert out.read_text() == "old"
    assert list(tmp_path.iterdir()) == [out]


def test_an_existing_output_stays_as_it_is(place, tmp_path):
    folder = place[0]
    model, data = folder / "m.dagp", folder / "data.csv"
    out = tmp_path / "here"
    out.write_text("old")
    for command in (
        ("fit", data, "-t", Y_NAME),
        ("predict", model, data),
        ("plot", model),
        ("report", model),
    ):
        answer = run(*command, "-o", out)
        assert answer.exit_code == 2
        assert "exists already; --force" in answer.stderr
        assert out.read_text() == "old"


def test_picture_and_page(place, tmp_path):
    folder = place[0]
    model, data = folder / "m.dagp", folder / "data.csv"
    answer = run("plot", model, "-o", tmp_path / "f.png", "--data", data)
    assert answer.exit_code == 0, answer.output
    assert (tmp_path / "f.png").stat().st_size > 10_000
    answer = run("report", model, "-o", tmp_path / "r.html", "--title", "<i>Mine</i>")
    assert answer.exit_code == 0, answer.output
    page = (tmp_path / "r.html").read_text()
    assert "&lt;i&gt;Mine" in page
    assert "<b>&</b>" not in page
    assert Y_NAME in page
    answer = run("plot", model, "-o", tmp_path / "g.png", "--feature", "z")
    assert "has no input 'z'" in answer.stderr
    answer = run("plot", model, "-o", tmp_path / "g.xyz")
    assert answer.exit_code == 2
    assert "g.xyz" in answer.stderr


def test_the_page_names_target_and_lines_without_pyarrow(place, tmp_path, monkeypatch):
    folder, X, _ = place
    lines = (folder / "data.csv").read_text().splitlines()
    lines[2] = ";1,5;9"
    (tmp_path / "gap.csv").write_text("\n".join(lines))
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    answer = run("report", folder / "m.dagp", "--data", tmp_path / "gap.csv", "-o", tmp_path / "r")
    assert answer.exit_code == 0, answer.output
    page = (tmp_path / "r").read_text()
    found = json.loads(page.split('id="data">')[1].split("</script>")[0])
    assert found["outputs"] == [Y_NAME] and found["inputs"] == [X_NAME]
    # The header is line 1, and the row of line 3 has no input.
    assert found["points"]["row"] == [2, *range(4, len(X) + 2)]
    assert "1 with empty cells" in page


def test_a_model_from_python_knows_less_and_still_works(place, tmp_path):
    model = DAGP.load(place[0] / "m.dagp")
    del model.feature_names_in_
    model.save(tmp_path / "m.dagp")
    answer = run("predict", tmp_path / "m.dagp", "-", "--target", "y", input="x,y\n1,2\n3,4\n")
    assert answer.exit_code == 0, answer.output
    assert "responsibility_0" in rows_of(answer.stdout)
    answer = run("predict", tmp_path / "m.dagp", "-", input="x,y\n1,2\n3,4\n")
    assert "expects 1 input column(s); standard input has 2" in answer.stderr
    answer = run("report", tmp_path / "m.dagp", "-o", tmp_path / "r.html")
    assert answer.exit_code == 2
    assert "saved without its data; --data" in answer.stderr


def test_info_needs_no_arrays(place, tmp_path):
    file = tmp_path / "cut.dagp"
    content = (place[0] / "m.dagp").read_bytes()
    file.write_bytes(content[: storage.describe(place[0] / "m.dagp").begin])
    answer = run("info", file, "--json")
    assert answer.exit_code == 0, answer.output
    assert json.loads(answer.stdout)["target"] == Y_NAME
    assert X_NAME in run("info", file).stdout
    answer = run("predict", file, place[0] / "data.csv")
    assert answer.exit_code == 2
    assert "cut short" in answer.stderr
    file.write_bytes(b"something else")
    for command in ("info", "plot"):
        answer = run(command, file)
        assert answer.exit_code == 2
        assert "is not a dagp file" in answer.stderr


def full():
    raise StorageError("Cannot write m: No space left on device.") from OSError(28, "full")


@pytest.mark.parametrize(
    ("error", "code", "said"),
    [
        (FitError("no start"), 1, "The fit failed: no start"),
        (MemoryError(), 1, "Not enough memory"),
        (JaxRuntimeError("RESOURCE_EXHAUSTED: Out of memory"), 1, "Not enough memory"),
        (OSError(5, "Input/output error", "m.dagp"), 1, "m.dagp: Input/output error"),
        (full, 1, "No space left"),
        (StorageError("m belongs to a fit with other data"), 2, "other data"),
        (ValueError("of the data"), 2, "of the data"),
    ],
)
def test_a_fit_that_fails_says_why(place, tmp_path, monkeypatch, error, code, said):
    def fail(*_, **__):
        if callable(error):
            error()
        raise error

    monkeypatch.setattr("dagp.cli.progress.fit_estimator", fail)
    answer = run("fit", place[0] / "data.csv", "-t", Y_NAME, "-o", tmp_path / "m.dagp")
    assert answer.exit_code == code
    assert said in answer.stderr
    assert len(answer.stderr.splitlines()) == 2  # and that there are decimal commas


def test_settings_arrive(place, tmp_path, monkeypatch):
    seen = {}

    def fit(estimator, X, y, sample_weight=None, labels=None, log=None, index=None):
        seen.update(estimator.get_params(deep=False), X=X, y=y, w=sample_weight, labels=labels)
        seen["index"] = index
        raise FitError("seen")

    monkeypatch.setattr("dagp.cli.progress.fit_estimator", fit)
    file = tmp_path / "d.csv"
    file.write_text("x,y,w,l\n" + "1,2,1,\n" * 20_000 + "2,,1,1\n3,4,2,1\n")
    answer = run(
        "fit", file, "-t", "y", "--weights", "w", "--labels", "l", "--missing", "drop",
        "--processes", "3", "--noise-process", "--depth", "2", "--seed", "5", "--inducing", "7",
        "-o", tmp_path / "m.dagp",
    )  # fmt: skip
    assert answer.exit_code == 1
    assert "1 of 20002 rows have empty cells and are dropped" in answer.stderr
    # All rows of the file, those that are dropped without an output.
    assert seen["X"].shape == (20_002, 1)
    assert np.flatnonzero(np.isnan(seen["y"])).tolist() == [20_000]
    np.testing.assert_array_equal(seen["index"], np.arange(2, 20_004))
    assert seen["missing"] == "drop"
    assert (seen["batch_size"], seen["inducing"], seen["random_state"]) == (None, 7, 5)
    assert (seen["labels"][-1], seen["labels"][0], seen["w"][-1]) == (1, -1, 2)
    assert seen["n_processes"] == 3
    assert [type(p).__name__ for p in seen["processes"]] == ["DeepGP"] * 3 + ["Noise"]
    words = ("fit", file, "-t", "y", "--missing", "drop", "--processes", "auto", "--noise-process")
    assert run(*words, "--depth", 2, "-o", tmp_path / "m.dagp").exit_code == 1
    assert seen["n_processes"] == "auto"
    assert [type(p).__name__ for p in seen["processes"]] == ["DeepGP"] * 6 + ["Noise"]
    answer = run(*words, "--labels", "l", "-o", tmp_path / "m.dagp")
    assert answer.exit_code == 2
    assert 'labels name processes: --processes must be a number, got "auto"' in answer.stderr
