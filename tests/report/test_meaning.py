"""The report in plain words: what it means, rows by their names, downloads, dark mode."""

import html as html_module
import json
import re
import shutil
import subprocess
from importlib import resources
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pytest

from dagp import DAGP, GP, Noise, datasets, report
from dagp.predict.associations import Association, AveragedPosterior
from dagp.report import calibration, case, meaning, payload

NODE = shutil.which("node")
QUICK: dict[str, Any] = {
    "n_init": 1,
    "max_iter": 100,
    "tol": 1e-1,
    "inducing": 9,
    "random_state": 0,
}


@pytest.fixture(scope="module")
def separated():
    data = datasets.noise_separation(outliers=0.3, n=60, random_state=0)
    return DAGP(processes=[GP(), Noise()], **QUICK).fit(data.X, data.y), data.X, data.y


@pytest.fixture(scope="module")
def paired():
    """Two outputs and rows with names; the model takes rows with gaps."""
    rng = np.random.default_rng(0)
    index = [f"=run{i}" for i in range(60)]
    X = pd.DataFrame({"speed": rng.uniform(-2, 2, 60)}, index=index)
    gear = np.where(np.arange(60) % 2, 3, -3)
    y = pd.DataFrame({"-power": np.sin(X["speed"]) + gear, "torque": gear - X["speed"]})
    y += 0.1 * rng.standard_normal(y.shape)
    return DAGP(n_processes=2, missing="drop", **QUICK).fit(X, y), X, y


@pytest.fixture
def holed(paired):
    """The same rows; 3 lacks the input, 4 all outputs, 5 one output and 6 the other."""
    model, X, y = paired
    X, y = X.copy(), y.copy()
    X.iloc[3, 0] = np.nan
    y.iloc[4] = np.nan
    y.iloc[5, 0] = np.nan
    y.iloc[6, 1] = np.nan
    return model, X, y


def changed(model, **attributes):
    other = DAGP(**model.get_params(deep=False))
    other.__dict__.update({**model.__dict__, **attributes})
    return other


def data_of(page: str) -> dict[str, Any]:
    return json.loads(page.split('id="data">')[1].split("</script>")[0])


def text_of(page: str, anchor: str) -> str:
    begin = page.index(f'<section id="{anchor}"')
    section = page[begin : page.index("</section>", begin)]
    return html_module.unescape(re.sub("<[^>]+>", " ", section)).replace("\xa0", " ")


def said(model, X, y) -> str:
    return text_of(report.html(model, X, y), "meaning")


# ------------------------------------------------------------------------------------ what it means


def test_every_finding_has_a_next_step(separated, holed):
    for model, X, y in (separated, holed):
        shown = case.read(model, X, y)
        found = meaning.findings(shown, calibration.calibration(shown.mixture, shown.y))
        assert len(found) >= 4
        assert all(one.what.endswith(".") and one.next.rstrip(".?") != one.next for one in found)
        page = report.html(model, X, y)
        assert text_of(page, "meaning").count("Next:") == len(found)
        assert page.index('id="meaning"') < page.index('id="processes"')


def test_regimes_outliers_and_ambiguous_rows_are_counted(separated):
    model, X, y = separated
    text, shares = said(model, X, y), model.responsibilities(X, y)
    outliers = np.flatnonzero(shares.argmax(axis=1) == 1)
    assert "There is one regime, process 0" in text
    assert f"{len(outliers)} rows" in text and "set aside as outliers" in text
    surest = outliers[np.argsort(-shares[outliers, 1], kind="stable")][:5]
    assert f"rows {', '.join(map(str, surest))} and {len(outliers) - 5} more" in text
    unclear = np.sum(shares.max(axis=1) < 0.9)
    assert f"{unclear} row" in text and "could belong to more than one" in text


def test_two_regimes_are_named_with_their_shares(paired):
    model, X, y = paired
    text = said(model, X, y)
    assert "The rows come from 2 regimes: process 0 (50 %) and process 1 (50 %)." in text
    assert "-power and torque depend on speed" in text
    assert "For every row it is clear" in text


def test_doubts_of_the_search_are_said_with_the_rows_that_decide(paired):
    model, X, y = paired
    assert "The search was made only once" in said(model, X, y)
    assert "--starts 8" in said(model, X, y)
    assert "came to the same division" in said(changed(model, confidence_=0.97), X, y)
    doubted = changed(model, confidence_=0.6, n_init=8)
    assert "Another division of the rows may be as good" in said(doubted, X, y)
    assert "n_init=16" in said(doubted, X, y)
    rival = model.responsibilities_.copy()
    rival[[10, 20, 30]] = rival[[10, 20, 30]][:, ::-1]
    rival[[21, 20, 10]] *= 0.9  # row 30 is the surest of the even ones
    rival = changed(model, responsibilities_=rival)
    text = said(changed(doubted, alternatives_=[rival], index_=X.index.to_numpy()), X, y)
    assert "Find out which process produced row =run30 of the fitted data" in text


def test_unused_processes_training_and_ranges_are_explained(separated):
    model, X, y = separated
    text = said(changed(model, active_=np.array([True, False]), converged_=False), X, y)
    assert "Process 1 is not used: the data can be explained without." in text
    assert "a fit with 1 process gives the same picture" in text
    assert "max_iter=200 in Python, --max-iter 200" in text
    middle = np.median(y)
    assert "too wide: the range that should hold" in said(model, X, model.predict(X))
    narrow = said(model, X, np.where(np.arange(60) % 2, middle + 30, middle - 30))
    assert "too narrow: the range that should hold" in narrow and "Do not rely on" in narrow


def test_a_process_that_is_not_used_is_in_the_legend_and_in_the_gate(separated):
    model, X, y = separated
    page = report.html(changed(model, active_=np.array([True, False])), X, y)
    bar = page[page.index('<div class="bar">') : page.index("<main")]
    assert re.search(r'data-process="1" checked>.*?1 \(unused\)', bar)
    assert "Dotted lines are processes that are not used." in page
    (one,) = data_of(page)["slices"]
    gate = model.predict_assignment(np.array(one["grid"])[:, None])
    np.testing.assert_allclose(one["weight"], gate.T.ravel(), atol=1e-2)
    assert len(one["mean"][0]) == len(one["grid"])


# --------------------------------------------------------------------------------- rows with gaps


def test_rows_are_named_and_gaps_are_kept_apart(holed):
    model, X, y = holed
    page = report.html(model, X, y)
    assert "2 rows with missing values left out" in page
    text = text_of(page, "meaning")
    assert "left out: rows =run3 and =run4." in text
    assert "1 of -power and 1 of torque" in text
    points = data_of(page)["points"]
    assert points["row"] == [f"=run{i}" for i in range(60) if i not in (3, 4)]
    assert points["y"][0][3] is None and points["y"][1][4] is None
    assert None not in points["y"][0][:3] + points["x"][0]
    assert "Rows have the names of the index of the data frame." in page


def test_coverage_counts_the_values_that_are_there(holed):
    model, X, y = holed
    found = data_of(report.html(model, X, y))
    mixture = model.predict_mixture(X.fillna(0))
    low, high = mixture.interval(0.8)
    for p, column in enumerate(y):
        known = (y[column].notna() & X["speed"].notna()).to_numpy()
        inside = (y[column] >= low[:, p]) & (y[column] <= high[:, p])
        coverage = found["coverage"][p][found["levels"].index(0.8)]
        assert coverage == pytest.approx(inside[known].mean(), abs=1e-4)
        assert sum(found["pit"][p]) == pytest.approx(1, abs=1e-3)
    assert [round((0.05 * 0.95) / (c / 2) ** 2) for c in found["chance"]] == [57, 57]


def test_rows_without_an_output_are_judged_by_the_other(holed):
    model, X, y = holed
    shown = case.read(model, X, y)
    # Without rows 3 and 4, rows 5 to 8 are at places 3 to 6; every other row is of one process.
    assert shown.owner[3] == shown.owner[5] != shown.owner[4] == shown.owner[6]
    assert shown.responsibilities.min(axis=1)[[3, 4]].max() < 1e-3


def test_rows_of_the_fit_keep_their_names_in_a_table_without_index(holed):
    model, X, y = holed
    model = DAGP(**model.get_params(deep=False)).fit(X, y)
    page = report.html(model, pl.DataFrame(X.to_dict("list")), pl.DataFrame(y.to_dict("list")))
    assert data_of(page)["points"]["row"] == [f"=run{i}" for i in range(60) if i not in (3, 4)]
    assert "Rows have the names they had in the fit." in page
    # The target keeps its name where the table has none.
    shown = case.read(model, X, y.to_numpy())
    assert shown.outputs == ["-power", "torque"] and shown.origin == "index"


def test_names_given_by_the_caller_come_first(separated):
    model, X, y = separated
    page = report.html(model, X, y, outputs=["power"], rows=np.arange(60) + 2)
    found = data_of(page)
    assert found["outputs"] == ["power"] and found["points"]["row"] == list(range(2, 62))
    assert found["assignments"]["row"] == list(range(2, 62))
    with pytest.raises(ValueError, match="outputs names 2 outputs, y has 1"):
        report.html(model, X, y, outputs=["a", "b"])


def test_the_same_rows_give_the_same_bytes(holed):
    assert report.html(*holed) == report.html(*holed)


# ------------------------------------------------------------------------------------- downloads


def test_assignments_of_all_rows_are_in_the_page(separated, holed):
    model, X, y = separated
    found = data_of(report.html(model, X, y))["assignments"]
    shares = model.responsibilities(X, y)
    assert found["row"] is None
    assert found["owner"] == shares.argmax(axis=1).tolist()
    np.testing.assert_allclose(np.array(found["share"]).T / found["parts"], shares, atol=6e-5)
    found = data_of(report.html(*holed))["assignments"]
    assert found["row"] == [f"=run{i}" for i in range(60)]
    assert [i for i, owner in enumerate(found["owner"]) if owner is None] == [3, 4]
    assert found["share"][0][3] is None and found["share"][0][5] is not None


def test_a_long_download_is_cut_and_says_so(separated, monkeypatch):
    model, X, y = separated
    assert "gives all" not in text_of(report.html(model, X, y), "assignments")
    rows = np.random.default_rng(0).integers(0, 60, 20_000)
    page = report.html(model, X[rows], y[rows])
    assert len(data_of(page)["assignments"]["owner"]) == 20_000
    assert len(data_of(page)["points"]["row"]) == 5000
    monkeypatch.setattr(payload, "_CHARACTERS", 1000)
    page = report.html(model, X, y)
    count = len(data_of(page)["assignments"]["owner"])
    text = text_of(page, "assignments")
    assert 30 < count < 60
    assert f"the first {count} of 60 rows; all are given by dagp predict MODEL TABLE" in text


def staged(path: Path, mode: str = "light", ask: str = "null") -> dict[str, Any]:
    """What the scripts of a page draw, and their answer to a question."""
    if NODE is None:
        pytest.skip("no Node on this machine")
    stage = Path(__file__).with_name("stage.js")
    command = [NODE, str(stage), str(path), mode, "900", ask]
    answer = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert answer.returncode == 0, answer.stderr
    return json.loads(answer.stdout)


@pytest.fixture
def holed_path(holed, tmp_path) -> Path:
    return report.write(*holed, tmp_path / "report.html")


def test_cells_are_safe_for_spreadsheets(holed_path):
    texts = ["=1+1", "+1", "-1", "@SUM(A1)", "\t=1", "\r=1", " =1", "\u0000x", "＝1"]
    texts += ["a=b", "5", ""]
    cells = staged(holed_path, ask=f"{json.dumps(texts)}.map(cell)")["asked"]
    bare = [re.sub(r'^"(.*)"$', r"\1", one, flags=re.DOTALL) for one in cells]
    assert bare[:9] == ["'" + text for text in texts[:9]]
    assert bare[9:] == texts[9:]
    asked = '[-1.5, 1e-7, null, \'say "a", b\', "a;b"].map(cell)'
    assert staged(holed_path, ask=asked)["asked"] == [
        "-1.5",
        "1e-7",
        "",
        '"say ""a"", b"',
        '"a;b"',
    ]


def test_download_of_the_assignments(holed, holed_path):
    ask = "stage.nodes.get('download-assignments').handlers.click()"
    (saved,) = staged(holed_path, ask=ask)["saved"]
    assert saved.startswith("\ufeffrow,assignment,responsibility_0,responsibility_1\r\n")
    lines = [line.split(",") for line in saved.removeprefix("\ufeff").split("\r\n")[1:-1]]
    assert [line[0] for line in lines] == [f"'=run{i}" for i in range(60)]
    assert lines[3][1:] == lines[4][1:] == ["", "", ""]
    shown = case.read(*holed)
    rows = np.delete(np.arange(60), [3, 4])
    numbers = np.array([lines[i][1:] for i in rows], float)
    np.testing.assert_array_equal(numbers[:, 0], shown.owner)
    np.testing.assert_allclose(numbers[:, 1:], shown.responsibilities, atol=6e-5)


def test_download_of_the_outliers_is_safe_too(separated, tmp_path):
    model, X, y = separated
    names = [f"@row{i}" for i in range(60)]
    path = report.write(model, X, y, tmp_path / "r.html", outputs=["=y"], rows=names)
    (saved,) = staged(path, ask="stage.nodes.get('download').handlers.click()")["saved"]
    header, first, *_ = saved.removeprefix("\ufeff").split("\r\n")
    assert header == "row,x,'=y,process,responsibility"
    row = int(np.flatnonzero(model.responsibilities(X, y).argmax(axis=1) == 1)[0])
    assert first.split(",")[0] == f"'@row{row}"
    assert float(first.split(",")[2]) == y[row]


# ----------------------------------------------------------------------------------- dark mode


def variables(part: str) -> dict[str, str]:
    style = resources.files("dagp.report").joinpath("page.css").read_text("utf-8")
    rule = style[style.index(part) :]
    return dict(re.findall(r"--([\w-]+):\s*(#\w{6});", rule[: rule.index("}")]))


def contrast(one: str, other: str) -> float:
    """WCAG's contrast ratio."""
    levels = []
    for colour in (one, other):
        parts = np.array([int(colour[i : i + 2], 16) for i in (1, 3, 5)]) / 255
        linear = np.where(parts <= 0.04045, parts / 12.92, ((parts + 0.055) / 1.055) ** 2.4)
        levels.append(float(linear @ [0.2126, 0.7152, 0.0722]) + 0.05)
    return max(levels) / min(levels)


def test_text_and_charts_can_be_read_in_both_modes():
    for part in (":root {", ":root:not(.light) {"):
        found = variables(part)
        for name in ("ink", "soft", "focus"):
            assert contrast(found[name], found["ground"]) >= 4.5, name
            assert contrast(found[name], found["panel"]) >= 4.5, name
        for name in ("guide", "bars"):
            assert contrast(found[name], found["ground"]) >= 3, name
    night = variables(":root:not(.light) {")["ground"]
    assert min(contrast(colour, night) for colour in case.DARK) >= 4.5
    assert len(set(case.DARK)) == len(case.DARK) == len(case.PALETTE)


def strokes(drawn: list[dict[str, Any]]) -> set[str]:
    return {op["stroke"] for op in drawn if op["kind"] == "stroke"}


def test_charts_have_the_colours_of_the_mode(holed_path):
    day, night = staged(holed_path), staged(holed_path, "dark")
    assert {case.PALETTE[0], case.PALETTE[1]} <= strokes(day["drawn"]["gate"])
    assert {case.DARK[0], case.DARK[1]} <= strokes(night["drawn"]["gate"])
    # No colour that differs between the modes is drawn in the wrong one.
    light, dark = variables(":root {"), variables(":root:not(.light) {")
    wrong = {light[name] for name in dark} | (set(case.PALETTE) - set(case.DARK))
    for ops in night["drawn"].values():
        assert wrong.isdisjoint({op[side] for op in ops for side in ("stroke", "fill")})
    printed = staged(holed_path, "dark", "stage.listeners.beforeprint()")
    assert printed["drawn"]["gate"] == day["drawn"]["gate"]


def test_no_number_that_is_drawn_is_missing(holed_path):
    assert "NaN" not in json.dumps(staged(holed_path)["drawn"])


def test_missing_values_are_not_drawn_as_zero(holed_path):
    asked = staged(holed_path, ask="charts.posterior.seen.map((p) => points.row[p.i])")["asked"]
    assert "=run5" not in asked and "=run6" in asked and len(asked) == 57
    told = staged(holed_path, ask="written(null, 1)")["asked"]
    assert told == "missing"


def test_unused_processes_are_dotted_in_the_gate(separated, tmp_path):
    model, X, y = separated
    model = changed(model, active_=np.array([True, False]))
    drawn = staged(report.write(model, X, y, tmp_path / "r.html"))["drawn"]["gate"]
    lines = {op["stroke"]: op["dash"] for op in drawn if op["kind"] == "stroke"}
    assert lines[case.PALETTE[0]] == [] and lines[case.PALETTE[1]] == [1.5, 3]


def test_associations_that_are_almost_as_good_are_told(separated):
    model, X, y = separated
    assert "almost equally well" not in report.html(model, X, y)
    posterior, K = model.posterior_, len(model.processes_)
    other = Association(0.3, posterior.model, tuple(range(K)))
    averaged = AveragedPosterior(posterior.model, posterior.units, posterior.dtype, (other,))
    exchanged = model.responsibilities_.copy()
    exchanged[:20] = exchanged[:20, ::-1]
    alternatives = [changed(model, responsibilities_=exchanged)]
    several = changed(model, posterior_=averaged, alternatives_=alternatives, confidence_=0.99)
    page = report.html(several, X, y)
    assert "2 divisions of the rows explain them almost equally well" in page
    assert "probabilities of 70\N{NO-BREAK SPACE}% and 30\N{NO-BREAK SPACE}%" in page
    assert "decides between the first two" in page
    assert "came to the most probable division of the rows" in page
