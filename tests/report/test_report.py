"""The report: one page, offline, escaped, bounded, and with the right numbers in it."""

import html as html_module
import itertools
import json
import os
import re
from collections.abc import Iterator
from typing import Any

import numpy as np
import pandas as pd
import pytest
from chromium import CHROMIUM, SETTLED, Browser, assert_quiet, picture

from dagp import DAGP, GP, Mixture, Noise, datasets, report
from dagp.errors import StorageError
from dagp.plot import processes
from dagp.report import calibration, case, relevance, slices

DARK = {"name": "prefers-color-scheme", "value": "dark"}
NASTY = "<script>alert(1)</script>"
QUICK: dict[str, Any] = {
    "n_init": 1,
    "max_iter": 150,
    "tol": 1e-1,
    "inducing": 10,
    "random_state": 0,
}


@pytest.fixture(scope="module")
def separated():
    data = datasets.noise_separation(outliers=0.3, n=200, random_state=0)
    return DAGP(processes=[GP(), Noise()], **QUICK).fit(data.X, data.y), data.X, data.y


@pytest.fixture(scope="module")
def named():
    """Three inputs and two outputs, with names that would like to be code."""
    rng = np.random.default_rng(0)
    X = pd.DataFrame(rng.uniform(size=(60, 3)), columns=[NASTY, 'Größe "m" & co', "gear\u2028x"])
    X["gear\u2028x"] = np.arange(60) % 2
    y = pd.DataFrame({"Länge": np.sin(5 * X[NASTY]), "b</script>": X["gear\u2028x"] + 0.5})
    y += 0.1 * rng.standard_normal(y.shape)
    return DAGP(processes=[GP(), Noise()], **QUICK).fit(X, y), X, y


@pytest.fixture(scope="module")
def named_page(named):
    model, X, y = named
    return report.html(model, X, y, title=f"{NASTY} & Ü", settings={NASTY: NASTY})


def payload(page: str) -> dict[str, Any]:
    return json.loads(page.split('id="data">')[1].split("</script>")[0])


def without_scripts(page: str) -> str:
    return re.sub(r"<script.*?</script>|<style.*?</style>", "", page, flags=re.DOTALL)


# --------------------------------------------------------------------------------------- one page


def test_nothing_is_fetched(separated):
    page = report.html(*separated)
    assert re.findall(r'(?:src|href)="(?!#|data:)', without_scripts(page)) == []
    assert "://" not in page and "@import" not in page and "url(" not in page
    assert "default-src 'none'" in page


def test_names_are_text_everywhere(named_page):
    page = named_page
    assert (
        NASTY not in page and "b</script>" not in page and "\u2028" not in page.split("</main>")[1]
    )
    # The script that runs and the data: nothing else may open a script element.
    assert page.count("<script") == 2
    text = html_module.unescape(without_scripts(page))
    for name in (NASTY, 'Größe "m" & co', "Länge", "b</script>"):
        assert name in text
    found = payload(page)
    assert found["inputs"] == [NASTY, 'Größe "m" & co', "gear\u2028x"]
    assert found["outputs"] == ["Länge", "b</script>"]


def test_headings_are_in_order_and_controls_have_labels(named_page):
    levels = [int(level) for level in re.findall(r"<h(\d)", named_page)]
    assert levels[0] == 1 and levels.count(1) == 1
    assert all(after <= before + 1 for before, after in itertools.pairwise(levels))
    assert named_page.count("<select") == named_page.count('<label class="choice">')
    assert named_page.index('class="skip"') < named_page.index("<h1>")
    anchors = re.findall(r'href="#([\w-]+)"', named_page)
    assert all(f'id="{anchor}"' in named_page for anchor in anchors)


def test_same_model_same_bytes(separated):
    model, X, y = separated
    odd = DAGP(**model.get_params(deep=False))
    odd.__dict__.update(model.__dict__)
    pages = []
    for _ in range(2):
        # Both print with a memory address of their own.
        odd.set_params(callbacks=(lambda _: False,), random_state=np.random.default_rng(0))
        pages.append(report.html(odd, X, y))
    assert pages[0] == pages[1]
    assert "0x" not in without_scripts(pages[0])


def test_many_rows_do_not_make_a_large_page(separated):
    model, X, y = separated
    rng = np.random.default_rng(0)
    rows = rng.integers(0, len(X), 20_000)
    page = report.html(model, X[rows], y[rows])
    assert len(page.encode()) < 1_500_000
    found = payload(page)
    assert len(found["points"]["row"]) == 5000
    assert "5000 of the 20000 points" in page
    listed = np.array(found["outliers"]["columns"][0])
    outliers = int(np.sum(model.responsibilities(X, y).argmax(axis=1)[rows] == 1))
    assert f"{outliers} points" in page
    assert len(listed) == min(outliers, 60_000 // 5)


# ---------------------------------------------------------------------------------- right numbers


def test_points_and_responsibilities_are_the_models(separated):
    model, X, y = separated
    points = payload(report.html(model, X, y))["points"]
    shares = model.responsibilities(X, y)
    np.testing.assert_allclose(np.array(points["share"]).T / 1000, shares, atol=6e-4)
    np.testing.assert_array_equal(points["owner"], shares.argmax(axis=1))
    np.testing.assert_allclose(points["y"][0], y, atol=1e-3 * np.ptp(y))


def test_calibration_is_that_of_the_mixture(separated):
    model, X, y = separated
    found = payload(report.html(model, X, y))
    mixture = model.predict_mixture(X)
    for level, coverage in zip(found["levels"], found["coverage"][0], strict=True):
        low, high = mixture.interval(level)
        assert coverage == pytest.approx(np.mean((y >= low) & (y <= high)), abs=1e-4)
    expected, _ = np.histogram(mixture.cdf(y), np.linspace(0, 1, 21))
    np.testing.assert_allclose(found["pit"][0], expected / len(y), atol=1e-4)


def test_calibration_notices_wrong_noise():
    rng = np.random.default_rng(0)
    y = rng.standard_normal((2000, 1))
    words = []
    for variance in (0.3, 1.0, 3.0):
        shape = np.ones((2000, 1, 1))
        mixture = Mixture(shape[..., 0], 0 * shape, variance * shape)
        words.append(calibration.words(calibration.calibration(mixture, y), 0))
    assert [found.split(" (")[0] for found in words] == [
        "too narrow",
        "as wide as they should be",
        "too wide",
    ]


def test_calibration_looks_at_all_levels():
    levels = np.array(calibration.LEVELS)

    def found(changes: dict[float, float], count: int) -> str:
        coverage = [changes.get(level, level) for level in calibration.LEVELS]
        pit = np.full((1, 20), 0.05)
        data = calibration.Calibration(np.array([coverage]), pit, np.array([count]))
        return calibration.words(data, 0)

    assert found({0.5: 0.635, 0.45: 0.5}, 200) == (
        "too wide (50 % intervals hold 63.5 % of the values)"
    )
    assert found({0.99: 0.9}, 200) == "too narrow (99 % intervals hold 90.0 % of the values)"
    both = found({0.5: 0.635, 0.99: 0.9}, 200)
    assert both.startswith("too wide (50 %") and "and too narrow (99 %" in both
    # The same difference can be chance with few values, and the words say so.
    assert found({0.5: 0.635}, 40) == (
        "as wide as they should be as far as 40 values can tell "
        "(largest difference: 50 % intervals hold 63.5 % of the values)"
    )
    assert found({0.5: 0.52}, 10**6).startswith("as wide as they should be (largest")
    rng = np.random.default_rng(0)
    alarms = 0
    for _ in range(500):
        inside = (rng.uniform(size=(100, 1)) <= levels).mean(axis=0)
        alarms += "too" in found(dict(zip(calibration.LEVELS, inside, strict=True)), 100)
    assert alarms < 0.06 * 500


def test_outliers_are_the_points_of_the_noise_process(separated):
    model, X, y = separated
    page = report.html(model, X, y)
    found = payload(page)["outliers"]
    expected = np.flatnonzero(model.responsibilities(X, y).argmax(axis=1) == 1)
    assert len(expected) > 10
    assert found["header"] == ["row", "x", "y", "process", "responsibility"]
    np.testing.assert_array_equal(found["columns"][0], expected)
    np.testing.assert_array_equal(found["columns"][1], X[expected, 0])
    np.testing.assert_array_equal(found["columns"][2], y[expected])
    assert 'id="download"' in page


def test_curves_are_the_models(separated):
    model, X, y = separated
    (one,) = payload(report.html(model, X, y))["slices"]
    grid = np.array(one["grid"])
    first = model.predict_mixture(grid[:, None]).marginal(0)
    low, high = first.interval(0.95)
    size = 2e-3 * np.ptp(y)
    for name, expected in (("mean", first.mean()), ("low", low), ("high", high)):
        np.testing.assert_allclose(one[name][0][: len(grid)], expected, atol=size)
    gate = model.predict_assignment(grid[:, None])
    np.testing.assert_allclose(one["weight"], gate.T.ravel(), atol=1e-2)


def test_slices_through_several_inputs(named, named_page):
    model, X, _ = named
    found = payload(named_page)
    assert [one["axis"] for one in found["slices"]] == [0, 1, 2]
    one = found["slices"][0]
    assert [slider["input"] for slider in one["sliders"]] == [1, 2]
    assert one["sliders"][1]["stops"] == [0.0, 1.0]
    stops = [len(slider["stops"]) for slider in one["sliders"]]
    K, G = int(np.sum(model.active_)), len(one["grid"])
    assert len(one["mean"]) == 2 and len(one["mean"][0]) == np.prod(stops) * K * G
    # The last combination of the sliders, the first process in use, the second output.
    rows = np.column_stack([one["grid"], *[[s["stops"][-1]] * G for s in one["sliders"]]])
    k = int(np.flatnonzero(model.active_)[0])
    expected = model.predict_mixture(pd.DataFrame(rows, columns=X.columns)).marginal(k).mean()[:, 1]
    begin = (int(np.prod(stops)) - 1) * K * G
    np.testing.assert_allclose(one["mean"][1][begin : begin + G], expected, atol=2e-3)


def test_slices_stay_within_their_budget():
    for D, K, P in ((2, 3, 1), (5, 12, 1), (9, 4, 3), (60, 8, 2)):
        each = K * (1 + 3 * P)
        found = slices.plan(D, each, np.arange(D, dtype=float))
        numbers = len(found.axes) * found.stops**found.sliders * found.grid * each
        assert numbers <= 200_000
        assert D - 1 in found.axes


def test_the_inputs_that_matter_are_the_relevant_ones(named, named_page):
    found = relevance.relevance(case.read(*named))
    assert found.processes[0, 1] < 0.2
    assert found.processes[0, 0] > 0.4 and found.processes[0, 2] > 0.4
    assert np.isnan(found.processes[1]).all()
    assert payload(named_page)["first"] == found.overall().argmax()


def test_sentences_name_share_and_noise(separated):
    model, X, y = separated
    text = html_module.unescape(without_scripts(report.html(model, X, y))).replace("\xa0", " ")
    share = np.mean(model.responsibilities(X, y).argmax(axis=1) == 0)
    noise = model.processes_[0].noise_std_[0]
    assert (
        f"Process 0 produced {100 * share:.0f} % of the points; its noise is ±{noise:.3g}." in text
    )


def test_colours_are_those_of_the_plots():
    assert case.PALETTE == processes.PALETTE


def test_rows_with_gaps_are_left_out_where_the_model_does_so(separated):
    model, X, y = separated
    lenient = DAGP(**{**model.get_params(deep=False), "missing": "drop"})
    lenient.__dict__.update({k: v for k, v in model.__dict__.items() if k.endswith("_")})
    holed = y.copy()
    holed[[3, 5]] = np.nan
    page = report.html(lenient, X, holed)
    assert "2 rows with missing values left out" in page
    assert 3 not in payload(page)["points"]["row"]
    with pytest.raises(ValueError, match="row 3"):
        report.html(model, X, holed)


def test_wrong_number_of_outputs(separated):
    model, X, y = separated
    with pytest.raises(ValueError, match="y has 2 outputs, the model was fitted to 1"):
        report.html(model, X, np.column_stack([y, y]))


def test_far_away_and_tiny_numbers(separated):
    model, X, y = separated
    X, y = 1.7e9 + X, 1e-12 * y
    found = payload(report.html(DAGP(**model.get_params(deep=False)).fit(X, y), X, y))
    np.testing.assert_allclose(found["points"]["x"][0], X[:, 0], atol=2e-3, rtol=0)
    np.testing.assert_allclose(found["points"]["y"][0], y, atol=1e-15)


# ----------------------------------------------------------------------------------------- writing


def test_write_is_all_or_nothing(separated, tmp_path, monkeypatch):
    model, X, y = separated
    path = report.write(model, X, y, tmp_path / "report.html", title="first")
    before = path.read_bytes()
    assert path == tmp_path / "report.html" and os.listdir(tmp_path) == ["report.html"]

    def full(*_: Any) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "replace", full)
    with pytest.raises(StorageError, match="No space left"):
        report.write(model, X, y, path, title="second")
    assert path.read_bytes() == before and os.listdir(tmp_path) == ["report.html"]


# ----------------------------------------------------------------------------------------- browser


@pytest.fixture
def browser(tmp_path) -> Iterator[Browser]:
    if CHROMIUM is None:
        pytest.skip("no Chromium on this machine")
    opened = Browser(tmp_path / "profile")
    yield opened
    opened.close()


def test_browser_switches_processes_and_tells_points(separated, browser, tmp_path):
    model, X, y = separated
    path = report.write(model, X, y, tmp_path / "report.html")
    browser.open(path)
    before = picture(browser, "posterior"), picture(browser, "gate")
    box = "document.querySelector('[data-process=\"1\"]')"
    browser.ask(f"{box}.click()")
    assert picture(browser, "posterior") != before[0] and picture(browser, "gate") != before[1]
    browser.ask(f"{box}.click()")
    assert (picture(browser, "posterior"), picture(browser, "gate")) == before

    browser.ask("document.getElementById('posterior').focus()")
    browser.key("ArrowRight")
    browser.ask(SETTLED)  # what focus scrolled must not have hidden it
    assert not browser.ask("document.getElementById('tip').hidden")
    tip = browser.ask("document.getElementById('tip').innerText")
    first = int(X[:, 0].argmin())
    shares = model.responsibilities(X[[first]], y[[first]])[0]
    assert tip.startswith(f"Row {first}")
    for k, share in enumerate(shares):
        assert re.search(rf"Process {k}\s+{100 * share:.1f} %", tip)
    browser.key("+")
    assert browser.ask("!document.querySelector('.reset').hidden")

    saved = browser.ask(
        "new Promise(done => { const make = URL.createObjectURL; URL.createObjectURL = blob => "
        "{ blob.text().then(done); return make.call(URL, blob); }; "
        "document.getElementById('download').click(); })"
    )
    browser("Emulation.setEmulatedMedia", features=[DARK])
    browser.ask(SETTLED)
    assert picture(browser, "gate") != before[1]
    ground = browser.ask("getComputedStyle(document.body).backgroundColor")
    assert sum(map(int, re.findall(r"\d+", ground))) < 120
    lines = saved.split("\r\n")
    assert lines[0].removeprefix("\ufeff") == "row,x,y,process,responsibility"
    assert len(lines) - 2 == np.sum(model.responsibilities(X, y).argmax(axis=1) == 1)
    assert_quiet(browser, path)


def test_browser_on_a_phone_with_slices(named_page, browser, tmp_path):
    path = tmp_path / "report.html"
    path.write_text(named_page, "utf-8")
    browser.open(path, 390, 844)
    assert browser.ask("document.documentElement.scrollWidth") == 390
    assert browser.ask("document.title") == f"{NASTY} & Ü"
    steps = (
        "move(document.querySelector('#sliders input'), () => 0, 'input')",
        "move(document.getElementById('axis'), () => 1, 'change')",
        "move(document.getElementById('output'), () => 1, 'change')",
    )
    browser.ask(
        "move = (node, to, event) => "
        "{ node.value = to(node.value); node.dispatchEvent(new Event(event)); }; 0"
    )
    # Points fade with the sliders; here it is the curves that must move.
    browser.ask("document.getElementById('show-points').click()")
    for step in steps:
        before = picture(browser, "posterior")
        browser.ask(step)
        assert picture(browser, "posterior") != before
    before = picture(browser, "pair")
    browser.ask("document.querySelector('#thumbs button').click()")
    assert picture(browser, "pair") != before
    assert_quiet(browser, path)
