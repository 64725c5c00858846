"""Pictures: drawn without error, with the right things in them."""

import matplotlib as mpl

mpl.use("agg")

import matplotlib.pyplot as plt
import numpy as np
import pytest
from matplotlib.colors import to_hex

from dagp import DAGP, datasets, plot
from dagp.plot import processes


@pytest.fixture(scope="module")
def example():
    data = datasets.multimodal(n=40, random_state=0)
    model = DAGP(n_processes=2, n_init=1, max_iter=300, tol=1e-2, inducing=10, random_state=0)
    return model.fit(data.X, data.y), data


@pytest.fixture(autouse=True)
def fresh_figure():
    yield
    plt.close("all")


def test_every_plot_returns_the_axes_it_was_given(example):
    model, data = example
    _, ax = plt.subplots()
    assert plot.data(data.X, data.y, data.process, ax=ax) is ax
    assert plot.posterior(model, data.X, data.y, ax=ax) is ax
    assert plot.assignment(model, data.X, data.y, ax=ax) is ax
    assert plot.gate(model, ax=ax) is ax
    assert plot.bound(model, ax=ax) is ax
    assert plot.restarts(model, ax=plt.figure().gca()).get_xlabel() == "rung"


def test_a_process_has_one_colour_everywhere(example):
    model, data = example
    used = np.flatnonzero(model.active_)
    ax = plot.posterior(model, ax=plt.figure().gca())
    lines = {to_hex(line.get_color()).upper() for line in ax.lines}
    assert lines == {plot.colour(k) for k in used}
    ax = plot.assignment(model, data.X, data.y, ax=plt.figure().gca())
    points = {to_hex(c).upper() for c in ax.collections[0].get_facecolors()}
    assert points <= {plot.colour(k) for k in used}
    ax = plot.gate(model, ax=plt.figure().gca())
    assert [to_hex(line.get_color()).upper() for line in ax.lines] == [
        plot.colour(k) for k in range(2)
    ]


def test_posterior_is_as_opaque_as_the_process_is_likely(example):
    model, _ = example
    ax = plot.posterior(model, margin=0.0, ax=plt.figure().gca())
    k = int(np.flatnonzero(model.active_)[0])
    opacity = ax.collections[0].get_colors()[:, 3]
    grid = np.linspace(*[e[0] for e in model.extent_], len(opacity) + 1)
    weight = model.predict_assignment(grid[:, None])[:, k]
    assert np.corrcoef(opacity, weight[1:])[0, 1] > 0.95 or np.ptp(weight) < 1e-3


def test_overview_has_three_parts_and_names(example):
    model, data = example
    axes = plot.overview(model, data.X, data.y)
    assert [ax.get_title(loc="left") for ax in axes] == ["joint posterior", "assignment", "gate"]


def test_lines_are_stronger_than_bands_and_rare_processes_stay_visible():
    _, ax = plt.subplots()
    x, weight = np.linspace(0, 1, 5), np.array([1.0, 1.0, 0.05, 0.05, 0.0])
    processes._faded(ax, x, x, np.ones(5), weight, plot.colour(0))
    line, band = ax.collections
    np.testing.assert_allclose(line.get_colors()[[0, 2], 3], [1.0, 0.05**0.5])
    np.testing.assert_allclose(band.get_facecolor()[0, 3], 0.3)
    assert np.all(line.get_colors()[:, 3] > 2 * band.get_facecolor()[:, 3])
    plt.close()


def test_several_inputs_are_swept_one_at_a_time():
    data = datasets.cartpole(n=30, n_test=1, random_state=0)
    model = DAGP(n_init=1, max_iter=200, tol=1.0, inducing=10, random_state=0)
    model.fit(data.X, data.y)
    ax = plot.gate(model, column=2, margin=0.0)
    low, high = model.extent_
    np.testing.assert_allclose(ax.lines[0].get_xdata()[[0, -1]], [low[2], high[2]])
