"""Pictures of processes with several components, of rows with gaps, and of any kind of table."""

import matplotlib as mpl

mpl.use("agg")

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from matplotlib.axes import Axes
from matplotlib.colors import to_hex

from dagp import DAGP, GP, DeepGP, Noise, datasets, plot
from dagp.describe.observations import observations
from dagp.plot import processes

KINDS = {
    "heteroscedastic": [GP(noise_gp=GP()), GP()],
    "noise": [Noise(shape="uniform"), GP()],
    "deep": [DeepGP(), GP()],
}
QUICK = {"n_init": 1, "max_iter": 150, "tol": 1e-1, "inducing": 9, "random_state": 0}


@pytest.fixture(scope="module")
def rows():
    data = datasets.noise_separation(outliers=0.3, n=60, random_state=0)
    return data.X, data.y


@pytest.fixture(scope="module", params=list(KINDS))
def model(request, rows):
    fitted = DAGP(processes=KINDS[request.param], **QUICK).fit(*rows)
    assert len(fitted.predict_mixture(rows[0]).owner) > 2 and fitted.active_.all()
    return fitted


@pytest.fixture(scope="module")
def two_outputs():
    """A model of two outputs that takes rows with gaps."""
    rng = np.random.default_rng(0)
    X = rng.uniform(-2, 2, (60, 1))
    y = np.column_stack([np.sin(3 * X[:, 0]), np.where(np.arange(60) % 2, 2, -2)])
    y[:, 0] += np.where(np.arange(60) % 2, 3, -3)
    return DAGP(missing="drop", **QUICK).fit(X, y + 0.1 * rng.standard_normal(y.shape)), X, y


@pytest.fixture(autouse=True)
def fresh_figure():
    yield
    plt.close("all")


def copied(model, **attributes):
    """The same model with other settings or fitted attributes."""
    other = DAGP(**model.get_params(deep=False))
    other.__dict__.update({**model.__dict__, **attributes})
    return other


def axes() -> Axes:
    return plt.figure().gca()


def swept(model):
    return np.linspace(*[end[0] for end in model.extent_], processes._GRID)


# --------------------------------------------------------------------- components are no processes


def test_opacity_of_the_posterior_is_the_weight_of_the_process(model):
    ax = plot.posterior(model, margin=0.0, ax=axes())
    gate = model.predict_assignment(swept(model)[:, None])
    middle = (gate[1:] + gate[:-1]) / 2
    for k in range(2):
        line, band = ax.collections[2 * k], ax.collections[2 * k + 1]
        np.testing.assert_allclose(line.get_colors()[:, 3], middle[:, k] ** 0.5, atol=1e-6)
        opacity = np.broadcast_to(band.get_facecolor()[:, 3], middle[:, k].shape)
        np.testing.assert_allclose(opacity, 0.3 * middle[:, k] ** 0.7, atol=1e-6)


def test_curve_and_band_of_the_posterior_are_those_of_the_process(model):
    ax = plot.posterior(model, margin=0.0, ax=axes())
    grid = swept(model)
    draws = model.predict_mixture(grid[:, None])
    for k, process in enumerate(model.processes_):
        line = np.array([segment[0] for segment in ax.collections[2 * k].get_segments()])
        np.testing.assert_allclose(line[:, 0], grid[:-1])
        size = np.abs(line[:, 1]).max() + 1
        if process.kernel_ is not None:
            # That of the latent function, which is computed without the noise.
            function = process.predict(grid[:-1, None])
            np.testing.assert_allclose(line[:, 1], function, atol=1e-6 * size)
        own = np.array(draws.owner) == k
        weight = draws.weights[:, own] / draws.weights[:, own].sum(axis=1, keepdims=True)
        mean = np.sum(weight * draws.means[:, own], axis=1)
        second = np.sum(weight * (draws.variances + draws.means**2)[:, own], axis=1)
        low = np.array([path.vertices[0] for path in ax.collections[2 * k + 1].get_paths()])
        expected = mean - 2 * np.sqrt(second - mean**2)
        np.testing.assert_allclose(low[:, 1], expected[:-1], atol=1e-6 * size)
        np.testing.assert_allclose(line[:, 1], mean[:-1], atol=1e-6 * size)


def test_gate_shows_one_line_per_process(model):
    ax = plot.gate(model, margin=0.0, ax=axes())
    gate = model.predict_assignment(swept(model)[:, None])
    drawn = np.array([line.get_ydata() for line in ax.lines])
    np.testing.assert_allclose(drawn, gate.T)
    assert [text.get_text() for text in ax.get_legend().get_texts()] == [
        f"process {k} ({p.kind}, {p.share_:.0%})" for k, p in enumerate(model.processes_)
    ]


def test_assignment_has_the_colour_and_opacity_of_the_responsibilities(model, rows):
    ax = plot.assignment(model, *rows, ax=axes())
    found = model.responsibilities(*rows)
    shades = ax.collections[0].get_facecolors()
    expected = [plot.colour(int(k)) for k in found.argmax(axis=1)]
    assert [to_hex(shade).upper() for shade in shades] == expected
    np.testing.assert_allclose(shades[:, 3], np.clip(found.max(axis=1), 0.25, 1.0), atol=1e-6)


def test_overview_is_made_of_the_three(model, rows):
    top, middle, bottom = plot.overview(model, *rows)
    # The first collection is the points behind the posterior.
    alone = plot.posterior(model, *rows, ax=axes())
    for mine, other in zip(top.collections, alone.collections, strict=True):
        np.testing.assert_array_equal(mine.get_facecolor(), other.get_facecolor())
    assert len(middle.collections[0].get_offsets()) == len(rows[0])
    weights = model.predict_assignment(bottom.lines[0].get_xdata()[:, None])
    for k, line in enumerate(bottom.lines):
        np.testing.assert_allclose(line.get_ydata(), weights[:, k])
    assert bottom.get_legend() is None


def test_search_plots_do_not_depend_on_components(model):
    ax = plot.restarts(model, ax=axes())
    assert len(ax.lines) == len(model.restarts_)
    trace = plot.bound(model, ax=axes()).lines[0].get_ydata()
    np.testing.assert_array_equal(trace, model.lower_bounds_)


def test_unused_processes_have_an_entry_in_the_legend(model, rows):
    unused = copied(model, active_=np.array([True, False]))
    for ax in (plot.posterior(unused, *rows, ax=axes()), plot.gate(unused, ax=axes())):
        entries = [text.get_text() for text in ax.get_legend().get_texts()]
        assert entries[1] == f"process 1 ({model.processes_[1].kind}, unused)"
        handle = ax.get_legend().get_lines()[1]
        assert to_hex(handle.get_color()).upper() == plot.colour(1)
        assert handle.get_linestyle() == ":"


# ------------------------------------------------------------------------------ rows and their gaps


@pytest.mark.parametrize("frame", [pd.DataFrame, pl.DataFrame, pa.table], ids=["pd", "pl", "pa"])
def test_frames_with_gaps_are_drawn_without_them(two_outputs, frame):
    model, X, y = two_outputs
    model = copied(model, feature_names_in_=np.array(["speed"], object))
    holed_x, holed_y = X[:, 0].tolist(), y.T.tolist()
    holed_x[3] = None
    holed_y[0][4] = holed_y[1][4] = None
    holed_y[0][5] = None
    table = frame({"speed": holed_x})
    targets = frame({"power": holed_y[0], "torque": holed_y[1]})
    for output, left_out in ((0, [3, 4, 5]), (1, [3, 4])):
        kept = np.delete(np.arange(60), left_out)
        for draw in (plot.assignment, plot.posterior):
            ax = draw(model, table, targets, output=output, ax=axes())
            points = np.ma.getdata(ax.collections[0].get_offsets())
            points = points[~np.isnan(points).any(axis=1)]
            np.testing.assert_allclose(points, np.column_stack([X[kept], y[kept, output]]))
            assert ax.get_xlabel() == "speed" and ax.get_ylabel() == ["power", "torque"][output]
    assert [ax.get_title(loc="left") for ax in plot.overview(model, table, targets)]
    ax = plot.data(table, targets, np.arange(60) % 2, ax=axes())
    points = np.ma.concatenate([part.get_offsets() for part in ax.collections])
    assert np.sum(~np.ma.getmaskarray(points).any(axis=1) & ~np.isnan(points).any(axis=1)) == 57


def test_gaps_are_an_error_where_the_fit_takes_none(two_outputs):
    model, X, y = two_outputs
    y = y.copy()
    y[7, 1] = np.nan
    with pytest.raises(ValueError, match="row 7"):
        plot.assignment(copied(model, missing="raise"), X, y)
    with pytest.raises(ValueError, match="Every row holds a NaN"):
        plot.assignment(model, np.full_like(X, np.nan), y)
    y[8, 0] = np.inf
    with pytest.raises(ValueError, match="y contains infinity, the first in row 8"):
        plot.assignment(model, X, y)


def test_rows_have_the_names_the_user_gave_them(two_outputs):
    model, X, y = two_outputs
    assert observations(model, X, y)[3:] == (list(range(60)), "position")
    assert observations(model, X, y, rows=range(2, 62))[3:] == (list(range(2, 62)), "caller")
    named = copied(model, feature_names_in_=np.array(["speed"], object))
    frame = pd.DataFrame({"speed": X[:, 0]})
    assert observations(named, frame, y)[3:] == (list(range(60)), "position")
    days = pd.date_range("2024-05-01", periods=60, freq="D")
    pairs = pd.MultiIndex.from_product([["a", "b"], range(30)])
    for index, second in ((days, "2024-05-02"), (pairs, "a, 1"), (range(7, 67), 8)):
        found = observations(named, frame.set_index(pd.Index(index)), y)
        assert found.origin == "index" and found.labels[1] == second
    with pytest.raises(ValueError, match="rows names 3 rows, X has 60"):
        observations(model, X, y, rows=[1, 2, 3])


def test_rows_of_the_fit_are_called_as_in_the_fit(two_outputs):
    model, X, y = two_outputs
    lines = np.array([f"line {i}" for i in range(62)], object)
    knowing = copied(model, index_=lines, used_mask_=np.arange(62) < 60)
    gaps = np.full((2, 1), np.nan), np.full((2, 2), np.nan)
    whole = observations(knowing, np.vstack([X, gaps[0]]), np.vstack([y, gaps[1]]))
    assert whole.origin == "fit" and whole.labels[61] == "line 61" and whole.used.sum() == 60
    used = observations(knowing, X, y)
    assert used.origin == "fit" and used.labels == whole.labels[:60]
    others = observations(knowing, X + 1, y)
    assert others.origin == "position" and others.labels == list(range(60))
