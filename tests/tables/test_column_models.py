"""Models of columns as they are: kernels, words, pictures and files."""

import numpy as np
import pytest
from mixed_table import MACHINE, QUICK, ROLES, WHEN, N, Y, fit, frame, mixed, one_hot

from dagp import DAGP, kernels
from dagp.errors import StorageError
from dagp.files import modelfile
from dagp.model.kernel import over_groups
from dagp.model.process import BuildContext
from dagp.tables.columns import Columns
from dagp.tables.kinds import Category, Number
from dagp.tables.reading import is_missing
from dagp.tables.times import Time


@pytest.fixture(scope="module")
def model():
    return fit(mixed(), columns=ROLES)


# ---------------------------------------------------------------------------------------- kernels


def context(groups):
    D = len(groups)
    return BuildContext(
        np.zeros(D),
        np.full(D, 0.5),
        np.zeros(1),
        np.ones(1),
        np.zeros(1),
        np.ones(1),
        inducing=np.zeros((2, D)),
        lengthscale=0.7,
        noise_std=0.1,
        groups=groups,
    )


def test_the_columns_of_an_input_share_the_parameters_of_any_kernel():
    groups = (0, 1, 1, 1, 2)
    A = np.random.default_rng(0).standard_normal((6, 5))
    per = np.array([0.5, 2.0, 3.0])
    for kind in (kernels.Matern32, kernels.RationalQuadratic):
        grouped = over_groups(kind(lengthscale=per), groups)
        expected = kind(lengthscale=per[list(groups)])
        np.testing.assert_allclose(grouped(A, A), expected(A, A), rtol=1e-5)
    linear = over_groups(kernels.Linear(variance=per), groups)
    np.testing.assert_allclose(linear(A, A), kernels.Linear(per[list(groups)])(A, A), rtol=1e-5)
    some = over_groups(
        kernels.Matern52([2.0, 3.0], active=[1, -1]) + kernels.SquaredExponential(0.5, active=[0]),
        groups,
    )
    expected = kernels.Matern52(
        [2.0, 2.0, 2.0, 3.0], active=[1, 2, 3, 4]
    ) + kernels.SquaredExponential(0.5, active=[0])
    np.testing.assert_allclose(some(A, A), expected(A, A), rtol=1e-5)


def test_kernels_are_built_with_one_length_scale_per_input():
    here = context((0, 1, 1, 1))
    assert here.n_inputs == 2
    kernel = here.kernel(kernels.SquaredExponential())
    assert kernel.lengthscale.raw.shape == (2,) and kernel.lengthscale.value.shape == (4,)
    np.testing.assert_allclose(kernel.lengthscale.value, 0.7, rtol=1e-6)
    with pytest.raises(ValueError, match="a parameter for each of 4 columns, and sees 2"):
        here.kernel(kernels.SquaredExponential(lengthscale=[1.0, 1.0, 1.0, 1.0]))
    alone = here.kernel(kernels.SquaredExponential(lengthscale=2.0))
    np.testing.assert_allclose(alone.lengthscale.value, np.full(4, 4.0), rtol=1e-6)


# ------------------------------------------------------------------------------- what is told


def test_summary_and_explanation_speak_of_the_users_columns(model):
    text = model.summary()
    assert "machine: category of 3 (left, middle, right)" in text
    assert "when: dates: days since 2026-03-01" in text and "note: ignored" in text
    assert "(machine)" in text and "(machine=left)" not in text
    assert "category of 3" in model._repr_html_()
    row = mixed().iloc[[4]]
    ways = [row, dict(row.iloc[0]), row.iloc[0], row.iloc[0].tolist(), row.to_numpy(dtype=object)]
    found = [model.explain(x, Y[4]) for x in ways]
    assert len({one.log_density for one in found}) == 1
    assert MACHINE[4] in str(found[0]) and "2026-03-01" in str(found[0])
    assert found[0].log_density == model.score_samples(row, Y[[4]])[0]
    with pytest.raises(ValueError, match="x has no entry 'machine'"):
        model.explain({"x": 1.0}, 0.0)
    with pytest.raises(ValueError, match="x must be one row, got 60"):
        model.explain(mixed(), 0.0)


def test_plots_report_and_dataset_show_encoded_columns(model, tmp_path):
    plt = pytest.importorskip("matplotlib.pyplot")
    pytest.importorskip("xarray")
    from dagp import plot, report

    data = model.to_xarray((mixed(), Y))
    assert data["feature"].values.tolist() == list(model.columns_.names)
    for column, name in enumerate(model.columns_.names):
        axes = plot.overview(model, mixed(), Y, column=column)
        assert axes[-1].get_xlabel() == name
        plt.close(axes[0].figure)
    page = report.write(model, mixed(), Y, tmp_path / "report.html").read_text()
    assert "machine=left" in page and '<th scope="row">machine</th>' in page


def test_rows_along_a_level_end_in_that_level(model):
    columns = model.columns_
    rows = columns.along(np.zeros(len(columns.names)), 2, np.array([0.0, 1.0]))
    np.testing.assert_array_equal(rows[:, 1:4], [[0.5, 0.0, 0.5], [0.0, 1.0, 0.0]])
    clock = Columns((Time("t", "times of day", "", "hours", False, ("daily",)),))
    rows = clock.along(np.zeros(2), 0, np.array([-1.0, 0.6]))
    np.testing.assert_allclose(rows, [[-1.0, 0.0], [0.6, 0.8]])


# ----------------------------------------------------------------------------------------- files


def test_files_hold_the_columns(model, tmp_path):
    path = model.save(tmp_path / "model.dagp", data=(mixed(), Y))
    again = DAGP.load(path)
    assert again.columns_ == model.columns_ and again.columns == ROLES
    np.testing.assert_array_equal(again.predict(mixed()), model.predict(mixed()))
    rows, y = modelfile.training_data(path)
    np.testing.assert_allclose(
        model.columns_.encode(rows), model.columns_.encode(mixed()), atol=1e-9
    )
    np.testing.assert_array_equal(rows[:, 1], MACHINE)
    # The column that is ignored is not kept, and no cell is empty for that.
    assert not any(is_missing(cell) for cell in rows.ravel())
    np.testing.assert_array_equal(y, Y)


@pytest.mark.parametrize(
    "columns",
    [
        Columns((Number("x"),)),
        Columns(()),
        Columns((Number("x"), Category("machine", ("left", "left", "right"), 0))),
        Columns((Number("x"), Category("machine", ("left", "middle", "right"), 9))),
        Columns((Number("x"), Category("machine", ("left", "middle"), 0))),
        Columns((Number("x"), Time("t", "dates", "soon", "days", True, ("daily",)))),
        Columns((Number("x"), Time("t", "dates", "2026-03-01", "ages", True, ("daily",)))),
    ],
)
def test_columns_that_do_not_fit_are_not_saved(columns, tmp_path):
    simple = DAGP(1, **QUICK).fit(frame(), Y)
    simple.columns_ = columns
    with pytest.raises(StorageError, match="Cannot save this model"):
        simple.save(tmp_path / "model.dagp")


def test_entries_that_a_parameter_does_not_have_are_not_saved(tmp_path):
    model = fit(frame())
    length = model.posterior_.model.groups[0].latent.kernel.lengthscale
    assert length.entries == (0, 1, 1, 1)
    object.__setattr__(length, "entries", (0, 1, 1, 2))
    with pytest.raises(StorageError, match="entries of a parameter must be below 2"):
        model.save(tmp_path / "model.dagp")


def test_a_checkpoint_is_of_these_columns(tmp_path, monkeypatch):
    monkeypatch.setattr("dagp.estimator.discard_checkpoint", lambda _: None)
    path = tmp_path / "checkpoint"
    model = fit(frame(), checkpoint=path, checkpoint_every=0)
    again = fit(frame(), checkpoint=path, resume=True)
    assert again.lower_bound_ == model.lower_bound_
    # The same numbers, but a length scale for each.
    with pytest.raises(StorageError, match="of a fit with other data or settings"):
        fit(one_hot(), checkpoint=path, resume=True)


def test_a_fit_goes_on_with_the_columns_that_it_has():
    table = frame(when=WHEN)
    model = fit(table, warm_start=True)
    before, some = model.columns_, MACHINE != "left"
    # Neither the level that is absent nor another first day changes the encoding.
    model.fit(table[some][10:], Y[some][10:])
    assert model.columns_ == before
    with pytest.warns(UserWarning, match="holds new"):
        model.partial_fit(table.assign(machine="new"), Y)
    assert model.columns_ == before
    with pytest.warns(UserWarning, match="other levels, or are of other kinds, so the fit starts"):
        model.fit(table.assign(machine=np.where(some, MACHINE, "new")), Y)
    assert model.columns_.columns[1].levels == ("middle", "new", "right")


def test_a_fit_that_fails_leaves_the_columns_as_they_were():
    model = fit(frame())
    before = model.columns_
    with pytest.raises(ValueError, match="y contains NaN"):
        model.fit(frame(on=True), np.full(N, np.nan))
    assert model.columns_ == before
    model.predict(frame())
