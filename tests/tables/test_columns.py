"""Columns as they are: categories, dates and times, roles."""

import datetime

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from mixed_table import MACHINE, QUICK, ROLES, SHIFT, WHEN, N, X, Y, fit, frame, mixed, one_hot

from dagp import DAGP, GP, fixed, kernels
from dagp.tables.columns import Columns, parse_role
from dagp.tables.kinds import Category, Number
from dagp.tables.times import Time


@pytest.fixture(scope="module")
def model():
    return fit(mixed(), columns=ROLES)


# --------------------------------------------------------------------------------- what is read


def kinds_of(table, roles=None):
    return [type(column).__name__ for column in Columns.of(table, roles).columns]


def tables():
    pandas = mixed()
    yield "pandas", pandas
    yield "categorical", pandas.assign(machine=pd.Categorical(MACHINE, ["right", "left", "middle"]))
    yield "nullable", pandas.convert_dtypes()
    yield "objects", pandas.astype(object)
    yield "polars", pl.from_pandas(pandas)
    text = pl.from_pandas(pandas)
    yield "polars categorical", text.with_columns(pl.col("machine").cast(pl.Categorical))
    yield "pyarrow", pa.Table.from_pandas(pandas)


@pytest.mark.parametrize(("name", "table"), list(tables()), ids=[name for name, _ in tables()])
def test_every_kind_of_frame_is_read_alike(name, table, model):
    found = Columns.of(table, ROLES)
    assert found == model.columns_
    assert kinds_of(table, ROLES) == ["Number", "Category", "Category", "Number", "Time", "Ignored"]
    np.testing.assert_array_equal(found.encode(table), model.columns_.encode(mixed()))


def test_arrays_and_lists_of_rows_are_read_as_frames_are():
    array = mixed().astype({"when": object}).to_numpy(dtype=object)
    expected = Columns.of(mixed(), ROLES).encode(mixed())
    for table in (array, array.tolist()):
        found = Columns.of(table, {5: "ignore"})
        assert [column.name for column in found.columns] == list(range(6))
        np.testing.assert_array_equal(found.encode(table), expected)
    text = np.column_stack([X, MACHINE])
    assert text.dtype.kind == "U" and kinds_of(text) == ["Number", "Category"]
    np.testing.assert_array_equal(Columns.of(text).encode(text)[:, 0], X)


def test_numbers_are_not_touched():
    whole = np.arange(2 * N).reshape(N, 2)
    for table in (whole, whole > 30, pd.DataFrame(whole, columns=["a", "b"]), whole.astype(object)):
        found = Columns.of(table)
        assert found.plain and found.known_units is None and found.groups is None
        np.testing.assert_array_equal(found.encode(table), np.asarray(table, float))
    plain = fit(X[:, None])
    same = fit(pd.DataFrame({"x": X.astype(object)}))
    np.testing.assert_array_equal(plain.responsibilities_, same.responsibilities_)
    assert plain.lower_bound_ == same.lower_bound_
    assert plain.posterior_.model.process(0).latent.kernel.lengthscale.entries is None


def test_missing_cells_are_missing_numbers():
    gaps = mixed().astype(object)
    gaps.iloc[3, 1] = None
    gaps.iloc[4, 2] = pd.NA
    gaps.iloc[5, 4] = pd.NaT
    gaps.iloc[6, 5] = None  # ignored
    encoded = Columns.of(gaps, ROLES).encode(gaps)
    assert np.flatnonzero(np.isnan(encoded).any(axis=1)).tolist() == [3, 4, 5]
    assert np.isnan(encoded[3, 1:4]).all() and not np.isnan(encoded[3, 0])
    with pytest.raises(
        ValueError, match=r"NaN: 3 value\(s\), the first in row 3, column 'machine'"
    ):
        fit(gaps, columns=ROLES)
    dropped = fit(gaps, columns=ROLES, missing="drop")
    assert len(dropped.predict(mixed())) == N


def test_typed_columns_of_every_library_with_a_missing_cell_each():
    day, hour = datetime.timedelta(days=1), datetime.timedelta(hours=1)
    cells = {
        "day": [datetime.date(2026, 1, 1) + i * day for i in range(12)],
        "stamp": [datetime.datetime(2026, 1, 1, 5) + i * hour for i in range(12)],
        "span": [i * hour for i in range(12)],
        "clock": [datetime.time(i, 15) for i in range(12)],
        "side": ["left", "right"] * 6,
        "on": [True, False] * 6,
        "count": list(range(12)),
    }
    for row, column in enumerate(cells.values()):
        column[row] = None
    polars = pl.DataFrame(cells).with_columns(pl.col("side").cast(pl.Enum(["right", "left", "up"])))
    expected = Columns.of(polars)
    A = expected.encode(polars)
    assert np.argwhere(np.isnan(A))[:, 0].tolist() == [0, 1, 2, 3, 3, 4, 4, 5, 6]
    assert [type(c) for c in expected.columns] == [Time] * 4 + [Category] * 2 + [Number]
    arrow = pa.table(cells)
    arrow = arrow.set_column(4, "side", arrow["side"].dictionary_encode())
    as_arrow = polars.to_pandas(use_pyarrow_extension_array=True)
    for table in (arrow, pd.DataFrame(cells), polars.to_pandas(), as_arrow):
        assert Columns.of(table) == expected
        np.testing.assert_array_equal(expected.encode(table), A)


# ------------------------------------------------------------------------------------ categories


def test_a_category_is_one_hot_under_one_length_scale():
    setting = kernels.SquaredExponential(lengthscale=[0.7, 1.3], variance=2.0)
    model = fit(frame(), processes=[GP(setting)])
    assert model.posterior_.model.process(0).latent.kernel.lengthscale.raw.shape == (2,)
    A = model.columns_.encode(frame())
    np.testing.assert_array_equal(A, one_hot())
    kernel = model.processes_[0].kernel_
    a, b = np.exp(np.asarray(kernel.lengthscale.raw))
    expected = kernels.SquaredExponential([a, b, b, b], np.exp(kernel.variance.raw))
    np.testing.assert_allclose(kernel(A, A), expected(A, A), rtol=1e-5)


def test_predictions_are_those_of_columns_made_by_hand():
    places = [[x, m] for x, m in zip(X[:9], MACHINE[:9], strict=True)]
    cases = (frame(), [0.7, 1.3], places), (one_hot(), [0.7, 1.3, 1.3, 1.3], one_hot()[:9])
    models = []
    for table, lengths, inducing in cases:
        # Held, so that the training of length scales, which differs, takes no part.
        kernel = fixed(kernels.SquaredExponential(lengthscale=lengths, variance=2.0))
        prior = GP(kernel, noise_std=fixed(0.05))
        models.append(fit(table, processes=[prior], inducing=inducing, standardize=False))
    model, by_hand = models
    found = model.predict(frame(), return_std=True)
    expected = by_hand.predict(one_hot(), return_std=True)
    np.testing.assert_allclose(found, expected, rtol=1e-6, atol=1e-8)
    assert model.lower_bound_ == pytest.approx(by_hand.lower_bound_)


def test_neither_rows_nor_names_nor_declared_levels_have_an_order():
    order = np.random.default_rng(1).permutation(N)
    declared = frame(machine=pd.Categorical(MACHINE, ["right", "unused", "middle", "left"]))
    model = fit(frame())
    for table, y in ((frame().iloc[order], Y[order]), (declared, Y)):
        other = fit(table, y)
        assert other.lower_bound_ == model.lower_bound_
        np.testing.assert_array_equal(other.predict(frame()), model.predict(frame()))


def test_all_levels_are_equally_far_apart_also_from_one_not_seen():
    column = Category("a", tuple("pqrst"), 0)
    gaps = column.corners[:, None] - column.corners
    distance = np.sum(gaps**2, axis=2)
    np.testing.assert_allclose(distance[~np.eye(6, dtype=bool)], 2.0)
    # In standardised units as far as the two values of a boolean.
    centre, unit = column.units[0]
    low, high = (np.array([0.0, 1.0]) - 0.5) / 0.5
    np.testing.assert_allclose(np.sqrt(2) / unit, high - low)
    assert centre == 0.0


def test_a_level_that_was_not_seen_is_told_and_widens_the_prediction(model):
    simple = fit(frame())
    rows = pd.DataFrame({"x": [0.0] * 4, "machine": ["left", "middle", "right", "new"]})
    with pytest.warns(
        UserWarning, match="column 'machine' of X holds new, which the fit has not seen"
    ) as told:
        mean, std = simple.predict(rows, return_std=True)
    assert len(told) == 1
    assert mean[:3].min() < mean[3] < mean[:3].max()
    assert std[3] > 2.5 * std[:3].max()
    with pytest.raises(
        ValueError, match="column 'on' of X holds maybe, and true or false in the fit"
    ):
        model.predict(mixed().assign(on="maybe"))


def test_a_category_explains_what_depends_on_it():
    rng = np.random.default_rng(3)
    x, machine = rng.uniform(-2, 2, 120), rng.integers(3, size=120)
    y = np.sin(2 * x) + np.array([0.0, 2.0, -1.5])[machine] + 0.05 * rng.standard_normal(120)
    table = pd.DataFrame({"x": x, "machine": np.array(["p", "q", "r"])[machine]})
    train, test = table[:80], table[80:]
    settings = {"inducing": 24, "tol": 1e-2}
    found = fit(train, y[:80], **settings).predict(test)
    blind = fit(train[["x"]], y[:80], **settings).predict(test[["x"]])
    error, without = (np.sqrt(np.mean((mean - y[80:]) ** 2)) for mean in (found, blind))
    assert error < 0.12 and without > 1.0


def test_processes_are_told_apart_in_a_table_with_a_category():
    rng = np.random.default_rng(5)
    process = rng.integers(2, size=N)
    y = Y + 6.0 * process + 0.01 * rng.standard_normal(N)
    model = DAGP(2, **{**QUICK, "n_init": 2, "inducing": 24, "tol": 1e-2}).fit(frame(), y)
    for level in SHIFT:
        # Which of them is the upper one may differ between levels: the data say little about it.
        agree = np.mean((model.assignment_ == process)[level == MACHINE])
        assert max(agree, 1 - agree) == 1.0
    assert model.predict_assignment(frame()).shape == (N, 2)


def test_a_single_category_is_enough():
    table = pd.DataFrame({"machine": MACHINE})
    model = fit(table, inducing=3)
    means = [Y[level == MACHINE].mean() for level in SHIFT]
    rows = pd.DataFrame({"machine": list(SHIFT)})
    np.testing.assert_allclose(model.predict(rows), means, atol=0.15)
    assert "everywhere" in model.summary()
    two = DAGP(2, **{**QUICK, "inducing": 2}).fit((MACHINE == "left")[:, None], Y)
    assert np.isfinite(two.predict([[True], [False]])).all()


def test_free_text_is_refused_with_advice():
    words = [f"word {i}" for i in range(N)]
    with pytest.raises(
        ValueError, match="column 'word' of X holds text with 60 different values"
    ) as error:
        fit(frame(word=words))
    assert "\n" not in str(error.value)
    assert all(part in str(error.value) for part in ("Leave it out", '"category"', "'word'"))
    assert kinds_of(frame(word=words), {"word": "category"})[-1] == "Category"
    seldom = [f"word {i % 21}" for i in range(N)]
    with pytest.raises(ValueError, match="21 different values in 60 rows"):
        fit(frame(word=seldom))
    assert kinds_of(frame(word=[f"word {i % 20}" for i in range(N)]))[-1] == "Category"
    many = pd.DataFrame({"word": [f"word {i % 51}" for i in range(51 * 4)]})
    with pytest.raises(ValueError, match="51 different values"):
        Columns.of(many)


def test_a_word_among_numbers_is_a_mistake_and_not_a_level():
    cells = np.array([*map(str, range(N - 1)), "oops"], dtype=object)
    with pytest.raises(ValueError, match=r"column 'count' of X holds text \('oops' in row 59\)"):
        fit(frame(count=cells))
    assert kinds_of(frame(count=[str(i % 7) for i in range(N)]))[-1] == "Number"


# ------------------------------------------------------------------------------- dates and times


@pytest.mark.parametrize(
    ("step", "unit"),
    [("1s", "seconds"), ("1min", "minutes"), ("20min", "hours"), ("5h", "days"), ("30D", "years")],
)
def test_the_unit_of_a_date_comes_from_its_span(step, unit):
    when = pd.date_range("2026-03-01 05:00", periods=N, freq=step)
    columns = Columns.of(pd.DataFrame({"when": when}))
    assert columns.names == (f"when ({unit} since 2026-03-01)",)
    assert columns.describe() == [f"when: dates: {unit} since 2026-03-01"]
    per = {"seconds": 1, "minutes": 60, "hours": 3600, "days": 86400, "years": 365.25 * 86400}[unit]
    since = (when - pd.Timestamp("2026-03-01")).total_seconds() / per
    np.testing.assert_allclose(columns.encode(pd.DataFrame({"when": when}))[:, 0], since)


def test_times_in_other_words_are_the_same_times():
    times = pd.Series(pd.to_datetime(WHEN))
    expected = Columns.of(pd.DataFrame({"t": times})).encode(pd.DataFrame({"t": times}))
    others = {
        "text": times.dt.strftime("%Y-%m-%dT%H:%M:%S"),
        "objects": times.astype(object),
        "microseconds": times.astype("datetime64[us]"),
    }
    for cells in others.values():
        table = pd.DataFrame({"t": cells})
        np.testing.assert_array_equal(Columns.of(table).encode(table), expected)
    array = WHEN[:, None]
    np.testing.assert_array_equal(Columns.of(array).encode(array), expected)


def test_durations_and_times_of_day():
    spans = pd.DataFrame({"t": pd.to_timedelta(np.arange(N), unit="min")})
    assert Columns.of(spans).names == ("t (minutes)",)
    np.testing.assert_array_equal(Columns.of(spans).encode(spans)[:, 0], np.arange(N))
    clock = pd.DataFrame({"t": [datetime.time(i % 24, 30) for i in range(N)]})
    columns = Columns.of(clock)
    assert columns.names == ("t (daily, cos)", "t (daily, sin)")
    phase = 2 * np.pi * (np.arange(N) % 24 + 0.5) / 24
    np.testing.assert_allclose(
        columns.encode(clock), np.column_stack([np.cos(phase), np.sin(phase)])
    )
    assert Columns.of(pl.from_pandas(clock)) == columns
    assert Columns.of(clock, {"t": "hours"}).names == ("t (hours)",)


def test_time_zones_are_converted_and_must_agree():
    naive = pd.DataFrame({"t": pd.to_datetime(WHEN)})
    berlin = naive.assign(t=naive["t"].dt.tz_localize("Europe/Berlin"))
    columns = Columns.of(berlin)
    assert columns.names == ("t (days since 2026-03-01 UTC)",)
    utc = berlin.assign(t=berlin["t"].dt.tz_convert("UTC"))
    np.testing.assert_array_equal(columns.encode(utc), columns.encode(berlin))
    np.testing.assert_array_equal(columns.encode(berlin.astype(object)), columns.encode(berlin))
    np.testing.assert_array_equal(columns.encode(pl.from_pandas(berlin)), columns.encode(berlin))
    with pytest.raises(ValueError, match="without a time zone, and with a time zone in the fit"):
        columns.encode(naive)


def test_a_period_is_the_periodic_kernel():
    table = pd.DataFrame({"t": pd.to_datetime(WHEN)})
    A = Columns.of(table, {"t": "daily"}).encode(table)
    hours = (WHEN - WHEN[0]).astype("timedelta64[s]").astype(float)[:, None] / 3600
    periodic = kernels.Periodic(period=24.0, lengthscale=0.8, variance=1.0)
    np.testing.assert_allclose(
        kernels.SquaredExponential(0.8, 1.0)(A, A), periodic(hours, hours), rtol=1e-4, atol=1e-6
    )


def test_what_repeats_daily_is_predicted_for_another_week():
    hour = 2 * np.pi * ((WHEN - np.datetime64("2026-03-01")) / np.timedelta64(1, "D"))
    table = pd.DataFrame({"when": WHEN})
    model = fit(table, np.cos(hour), columns={"when": "daily"}, inducing=8)
    later = pd.DataFrame({"when": WHEN + np.timedelta64(70, "D")})
    np.testing.assert_allclose(model.predict(later), np.cos(hour), atol=0.05)
    assert "when: dates: daily" in model.summary()
    both = Columns.of(table, {"when": ["days", "daily", "weekly"]})
    assert both.inputs == ("when (days since 2026-03-01)", "when (daily)", "when (weekly)")
    assert both.groups == (0, 1, 1, 2, 2)
    assert Columns.of(table, {"when": "days+daily+weekly"}) == both


# ----------------------------------------------------------------------------------------- roles


def test_roles_are_checked():
    for columns in (
        {"machine": "cat"},
        {"machine": "category+daily"},
        {"machine": 3},
        ["machine"],
        {1.5: "number"},
    ):
        with pytest.raises(
            ValueError, match=r"columns must map names or positions .*category, ignore"
        ):
            fit(frame(), columns=columns)
    with pytest.raises(ValueError, match=r"names 'mashine', .* Did you mean 'machine'\?"):
        fit(frame(), columns={"mashine": "category"})
    with pytest.raises(ValueError, match="columns names 7, which X does not have"):
        fit(frame(), columns={7: "category"})
    with pytest.raises(ValueError, match="column 'x' of X holds no dates or times"):
        fit(frame(), columns={"x": "daily"})
    with pytest.raises(ValueError, match=r"column 'machine' of X holds text \('.*' in row 0\)"):
        fit(frame(), columns={"machine": "number"})
    with pytest.raises(ValueError, match="all are ignored"):
        fit(frame(), columns={"x": "ignore", "machine": "ignore"})
    with pytest.raises(ValueError, match="'middle' in row 0, which is not a date"):
        fit(frame(), columns={"machine": "days"})
    assert parse_role("days+hours") is None and parse_role("daily+daily") is None


def test_numbers_can_be_categories_and_text_numbers():
    table = frame(gear=np.arange(N) % 4, size=[str(i % 5) for i in range(N)])
    columns = Columns.of(table, {"gear": "category", -1: "category"})
    assert columns.columns[2] == Category("gear", (0, 1, 2, 3), 0)
    assert columns.columns[3].levels == ("0", "1", "2", "3", "4")
    assert Columns.of(table, {"size": "number"}).columns[3] == Number("size")
    floats = table.assign(gear=table["gear"].astype(float))
    assert Columns.of(floats, {"gear": "category"}).columns[2] == columns.columns[2]


def test_an_ignored_column_changes_nothing():
    with_it = fit(frame(note=[f"note {i}" for i in range(N)]), columns={"note": "ignore"})
    without = fit(frame())
    np.testing.assert_array_equal(with_it.predict(frame(note="other")), without.predict(frame()))
    assert with_it.n_features_in_ == 3 and list(with_it.feature_names_in_) == [
        "x",
        "machine",
        "note",
    ]
