"""What a fit must not depend on: the order of rows, units, names, copies, columns that say nothing.

Exact where the order of operations is the same, otherwise as close as rounding, amplified by a
short training run, allows; where the search may take another way, the answer has to be the same.
"""

import numpy as np
import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from dagp import DAGP, GP, Noise, kernels

QUICK = {"n_init": 1, "max_iter": 50, "tol": 1e-3, "inducing": 8, "random_state": 0}
pytestmark = pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")


def examples(count):
    """Every example is a fit: what fails is not fitted again and again to make it smaller."""
    return settings(max_examples=count, phases=[Phase.generate])


def two_lines(n=48, outputs=1):
    rng = np.random.default_rng(0)
    x = np.sort(rng.uniform(-2, 2, n))
    process = rng.integers(2, size=n)
    level = np.stack([np.sin(2 * x), 3 + x], axis=1)[np.arange(n), process]
    y = level[:, None] + 0.1 * rng.standard_normal((n, outputs))
    return x[:, None], y[:, 0] if outputs == 1 else y, process


X, Y, PROCESS = two_lines()
ASKED = np.linspace(-3, 3, 25)[:, None]


@pytest.fixture(scope="module")
def model():
    return DAGP(**QUICK).fit(X, Y)


def same_mixtures(first, second, **tolerance):
    """Equal bit for bit where no tolerance is given."""
    for name in ("weights", "means", "variances"):
        pair = getattr(first, name), getattr(second, name)
        if tolerance:
            np.testing.assert_allclose(*pair, **tolerance)
        else:
            np.testing.assert_array_equal(*pair)


def agreement(first, second):
    """Share of the points that two solutions assign alike, whatever they call two processes."""
    same = np.mean(np.asarray(first) == second)
    return max(same, 1 - same)


# ---------------------------------------------------------------------------------- rows


@examples(4)
@given(order=st.permutations(range(len(X))))
def test_rows_may_come_in_any_order(model, order):
    shuffled = DAGP(**QUICK).fit(X[order], Y[order])
    np.testing.assert_array_equal(shuffled.responsibilities_, model.responsibilities_[order])
    same_mixtures(shuffled.predict_mixture(ASKED), model.predict_mixture(ASKED))
    assert shuffled.lower_bound_ == model.lower_bound_


@examples(4)
@given(counts=st.lists(st.integers(0, 3), min_size=len(X), max_size=len(X)))
def test_weights_are_repetitions(counts):
    counts = np.maximum(counts, np.arange(len(X)) % 4 == 0)  # enough distinct rows are left
    weighted = DAGP(**QUICK).fit(X, Y, sample_weight=counts)
    repeated = DAGP(**QUICK).fit(np.repeat(X, counts, axis=0), np.repeat(Y, counts))
    same_mixtures(weighted.predict_mixture(ASKED), repeated.predict_mixture(ASKED))
    kept = np.repeat(weighted.responsibilities_, counts, axis=0)
    np.testing.assert_array_equal(kept, repeated.responsibilities_)


def test_rows_without_weight_are_absent(model):
    more = np.concatenate([X, X + 1.0]), np.concatenate([Y, 100 - Y])
    weight = np.repeat([1.0, 0.0], len(X))
    other = DAGP(**QUICK).fit(*more, sample_weight=weight)
    same_mixtures(other.predict_mixture(ASKED), model.predict_mixture(ASKED))


# --------------------------------------------------------------------------------- units

POWERS = st.integers(-12, 12).map(lambda power: 10.0**power)
OFFSETS = st.sampled_from([0.0, 1.0, -1e3])
"""In units of the scale: a larger one leaves the data fewer digits."""


@examples(8)
@given(x_scale=POWERS, y_scale=POWERS, x_offset=OFFSETS, y_offset=OFFSETS)
def test_units_do_not_matter(model, x_scale, y_scale, x_offset, y_offset):
    def x_map(x):
        return x_scale * (x + x_offset)

    def y_map(y):
        return y_scale * (y + y_offset)

    other = DAGP(**QUICK).fit(x_map(X), y_map(Y))
    np.testing.assert_allclose(other.responsibilities_, model.responsibilities_, atol=1e-6)
    here, there = model.predict_mixture(ASKED), other.predict_mixture(x_map(ASKED))
    np.testing.assert_allclose(there.weights, here.weights, atol=1e-6)
    np.testing.assert_allclose(there.means / y_scale - y_offset, here.means, atol=1e-5)
    np.testing.assert_allclose(there.variances / y_scale**2, here.variances, rtol=1e-5)
    levels = [0.05, 0.5, 0.95]
    np.testing.assert_allclose(
        there.quantile(levels) / y_scale - y_offset, here.quantile(levels), atol=1e-5
    )
    density = other.score_samples(x_map(X), y_map(Y)) + np.log(y_scale)
    np.testing.assert_allclose(density, model.score_samples(X, Y), atol=1e-4)


@pytest.mark.slow
def test_every_output_has_its_own_unit():
    inputs, outputs, _ = two_lines(outputs=2)
    scale, offset = np.array([1e6, 1e-9]), np.array([0.0, 7.0])
    one = DAGP(**QUICK).fit(inputs, outputs)
    other = DAGP(**QUICK).fit(inputs, outputs * scale + offset * scale)
    back = other.predict(ASKED) / scale - offset
    np.testing.assert_allclose(back, one.predict(ASKED), atol=1e-5)
    density = other.score_samples(inputs, outputs * scale + offset * scale) + np.log(scale).sum()
    np.testing.assert_allclose(density, one.score_samples(inputs, outputs), atol=1e-4)


@pytest.mark.parametrize(("x_sign", "y_sign"), [(-1, 1), (1, -1)])
def test_a_mirror_image_has_the_same_answer(model, x_sign, y_sign):
    # The search goes through the rows in sorted order, so it may come another way.
    other = DAGP(**QUICK).fit(x_sign * X, y_sign * Y)
    assert agreement(other.assignment_, model.assignment_) == 1.0
    inside = np.linspace(-1.9, 1.9, 25)[:, None]
    back = y_sign * other.predict(x_sign * inside)
    np.testing.assert_allclose(back, model.predict(inside), atol=0.2)


# ----------------------------------------------------------------------------- processes


@pytest.mark.slow
def test_processes_may_be_listed_in_any_order():
    one = DAGP(processes=[GP(), Noise()], **QUICK).fit(X, Y)
    other = DAGP(processes=[Noise(), GP()], **QUICK).fit(X, Y)
    assert [p.kind for p in other.processes_] == [p.kind for p in one.processes_][::-1]
    swapped = other.responsibilities_[:, ::-1]
    np.testing.assert_allclose(swapped, one.responsibilities_, atol=1e-6)
    np.testing.assert_allclose(other.predict(ASKED), one.predict(ASKED), atol=1e-6)
    assert other.lower_bound_ == pytest.approx(one.lower_bound_, abs=1e-5)


def test_labels_are_only_names():
    one = DAGP(**QUICK).fit(X, Y, labels=PROCESS)
    other = DAGP(**QUICK).fit(X, Y, labels=1 - PROCESS)
    here, there = one.predict_mixture(ASKED), other.predict_mixture(ASKED)
    for name in ("weights", "means", "variances"):
        swapped = getattr(there, name)[:, ::-1]
        np.testing.assert_allclose(swapped, getattr(here, name), atol=1e-6)


# ------------------------------------------------------------------------------- columns


def with_column(inputs, values):
    return np.hstack([inputs, np.broadcast_to(values, inputs.shape)])


@pytest.mark.slow
@pytest.mark.parametrize("column", ["constant", "random"])
def test_a_column_nothing_looks_at_changes_nothing(column):
    """Kernels that look at the first column, and a start that is stated: only rounding is left."""
    kernel = kernels.SquaredExponential(lengthscale=0.7, active=[0])
    stated = {**QUICK, "processes": GP(kernel, noise_std=0.2), "gate": GP(kernel)}
    places = np.linspace(-2, 2, 8)[:, None]
    rng = np.random.default_rng(1)
    extra, asked = (
        (5.0, 5.0)
        if column == "constant"
        else (rng.standard_normal(X.shape), rng.standard_normal(ASKED.shape))
    )
    one = DAGP(**{**stated, "inducing": places}).fit(X, Y, labels=PROCESS)
    wide = DAGP(**{**stated, "inducing": with_column(places, 5.0)})
    wide.fit(with_column(X, extra), Y, labels=PROCESS)
    there = wide.predict_mixture(with_column(ASKED, asked))
    same_mixtures(there, one.predict_mixture(ASKED), rtol=1e-5, atol=1e-7)


@pytest.mark.slow
@pytest.mark.parametrize("column", ["constant", "random"])
def test_a_column_that_says_nothing_costs_little(model, column):
    """The search knows other ways with two inputs than with one, but finds the same answer.

    A constant column leaves the functions alone. A random one has to be seen through: of 48
    points, one may change hands, and the density per point falls by less than half a nat.
    """
    random = np.random.default_rng(1).standard_normal(X.shape)
    wide = with_column(X, 5.0 if column == "constant" else random)
    other = DAGP(**{**QUICK, "n_init": 3, "max_iter": 150, "inducing": 24}).fit(wide, Y)
    assert agreement(other.assignment_, PROCESS) >= 1 - 1 / len(X)
    loss = model.log_score(X, Y) - other.log_score(wide, Y)
    assert loss < (0.1 if column == "constant" else 0.5)


# --------------------------------------------------------------------------------- calls


@examples(10)
@given(cuts=st.lists(st.integers(0, 2500), min_size=1, max_size=6))
def test_predictions_do_not_depend_on_how_a_call_is_split(model, cuts):
    asked = np.linspace(-2, 2, 2500)[:, None]
    whole = model.predict_mixture(asked)
    parts = [p for p in np.split(asked, sorted(cuts)) if len(p)]
    mixtures = [model.predict_mixture(part) for part in parts]
    for name in ("weights", "means", "variances"):
        joined = np.concatenate([getattr(mixture, name) for mixture in mixtures])
        np.testing.assert_array_equal(joined, getattr(whole, name))


def test_views_do_not_depend_on_how_a_call_is_split(model):
    one_by_one = [model.predict_mixture(row[None]) for row in ASKED]
    whole = model.predict_mixture(ASKED)
    for ask in (lambda m: m.mean(), lambda m: m.quantile(0.1), lambda m: m.log_prob(0.3)):
        joined = np.concatenate([ask(mixture) for mixture in one_by_one])
        np.testing.assert_allclose(joined, ask(whole), rtol=1e-12)
