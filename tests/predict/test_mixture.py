"""The predictive mixture against integrals, samples and answers known in closed form."""

import warnings
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import integrate, stats

from dagp.predict.mixture import Mixture

SQRT3 = np.sqrt(3.0)


def one(weights, means, variances, uniform=()):
    """A mixture at a single point."""
    return Mixture([weights], [means], [variances], uniform)


CASES = {
    "normal": one([1.0], [0.7], [2.0]),
    "overlapping": one([0.3, 0.7], [0.0, 1.0], [1.0, 0.5]),
    "bimodal": one([0.4, 0.6], [-3.0, 3.0], [0.25, 1.0]),
    "tiny beside wide": one([0.5, 0.5], [0.3, -2.0], [1e-6, 100.0]),
    "tiny on wide": one([0.01, 0.99], [0.0, 0.0], [1e-6, 100.0]),
    "uniform": one([1.0], [2.0], [3.0], [True]),
    "normal on uniform": one([0.6, 0.4], [0.0, 0.5], [0.01, 4.0], [False, True]),
    "normal beside uniform": one([0.5, 0.5], [-6.0, 2.0], [1.0, 1.0], [False, True]),
    "two uniforms": one([0.5, 0.5], [0.0, 1.0], [1.0, 1 / 3], [True, True]),
    "needle, box, plain": one(
        [0.64, 0.32, 0.04], [-3.07, -3.07, 0.93], [8e-6, 0.01, 794.0], [0, 1, 0]
    ),
    "zero weight": one([0.0, 0.5, 0.5], [100.0, -1.0, 1.0], [1e4, 0.04, 0.09]),
    "zero-weight uniform": one([0.0, 1.0], [5.0, -1.0], [1.0, 0.25], [True, False]),
}
each_case = pytest.mark.parametrize("mixture", CASES.values(), ids=CASES.keys())


def pdf(mixture, y):
    """The density of the only point, from SciPy's distributions."""
    total = 0.0
    arrays = mixture.weights[0], mixture.means[0], mixture.variances[0]
    for weight, mean, variance, uniform in zip(*arrays, mixture.uniform, strict=True):
        std = np.sqrt(variance)
        box = stats.uniform(mean - SQRT3 * std, 2 * SQRT3 * std)
        total = total + weight * (box if uniform else stats.norm(mean, std)).pdf(y)
    return total


def cuts(mixture):
    """Points between which every component is smooth and, for quadrature, no narrow surprise."""
    means, stds = mixture.means[0], np.sqrt(mixture.variances[0])
    z = np.array([-12, -5, -SQRT3, 0, SQRT3, 5, 12])
    return np.unique(means[:, None] + stds[:, None] * z)


def integral(mixture, f, upper=np.inf):
    """Integral of ``f`` up to a bound, piece by piece."""
    points = cuts(mixture)
    points = np.append(points[points < upper], min(upper, points[-1]))
    return sum(integrate.quad(f, a, b, epsabs=1e-13, limit=200)[0] for a, b in pairwise(points))


def density(mixture):
    return lambda y: np.exp(mixture.log_prob([y])[0])


@st.composite
def recipes(draw, uniform=True):
    """Arguments of `one`: up to four components, widths over five orders of magnitude."""
    size = draw(st.integers(1, 4))
    numbers = st.floats(-5, 5).map(lambda x: round(x, 3))
    lists = [draw(st.lists(numbers, min_size=size, max_size=size)) for _ in range(3)]
    weights = np.exp(lists[0]) * np.array(
        draw(st.lists(st.booleans(), min_size=size, max_size=size))
    )
    weights = weights if weights.sum() > 0 else np.ones(size)
    flags = draw(st.lists(st.booleans(), min_size=size, max_size=size)) if uniform else ()
    return weights / weights.sum(), lists[1], 10 ** np.array(lists[2]), flags


@each_case
def test_log_prob_is_the_density(mixture):
    y = np.append(cuts(mixture), mixture.means[0]) + 0.01
    # SciPy's own tails underflow; there the logarithm is checked against single components below.
    expected = pdf(mixture, y)
    seen = np.exp(mixture.log_prob(y[:, None])[:, 0])
    np.testing.assert_allclose(seen, expected, rtol=1e-10, atol=1e-300)


@each_case
def test_density_integrates_to_one_and_to_the_cdf(mixture):
    assert integral(mixture, density(mixture)) == pytest.approx(1.0, abs=1e-9)
    for y in np.quantile(cuts(mixture), [0.3, 0.55, 0.75]):
        assert mixture.cdf([y])[0] == pytest.approx(
            integral(mixture, density(mixture), y), abs=1e-9
        )


@each_case
def test_moments_match_integrals(mixture):
    mean = integral(mixture, lambda y: y * density(mixture)(y))
    variance = integral(mixture, lambda y: (y - mean) ** 2 * density(mixture)(y))
    assert mixture.mean()[0] == pytest.approx(mean, abs=1e-8)
    assert mixture.variance()[0] == pytest.approx(variance, rel=1e-7)


@each_case
def test_samples_follow_the_cdf(mixture):
    draws = mixture.sample(4000, random_state=1)
    assert draws.shape == (4000, 1)
    assert stats.kstest(draws[:, 0], lambda y: mixture.cdf(y[:, None])[:, 0]).pvalue > 1e-3


def test_variance_survives_a_large_mean():
    mixture = one([0.5, 0.5], [1e9 - 1, 1e9 + 1], [1.0, 1.0])
    assert mixture.variance()[0] == 2.0


def test_log_prob_far_out_is_finite():
    mixture = one([0.5, 0.5], [0.0, 1.0], [1.0, 1.0])
    expected = -0.5 * (1e6 - 1) ** 2 - 0.5 * np.log(2 * np.pi) + np.log(0.5)
    assert mixture.log_prob([1e6])[0] == pytest.approx(expected, rel=1e-14)


def test_log_prob_is_minus_infinity_only_without_density():
    mixture = one([0.0, 1.0], [9.0, 0.0], [1.0, 1.0], [False, True])
    np.testing.assert_array_equal(mixture.log_prob([[9.0], [1.8], [-1.8]]), -np.inf)
    assert mixture.log_prob([1.7])[0] == pytest.approx(-np.log(2 * SQRT3))


@settings(max_examples=40)
@given(recipes(), st.floats(1e-9, 1 - 1e-9))
def test_quantile_inverts_the_cdf(recipe, q):
    mixture = one(*recipe)
    y = mixture.quantile(q)
    step = 8 * np.spacing(np.abs(y))
    # Exact to rounding of y: a few floats to either side, the cdf is past q.
    assert mixture.cdf(y - step)[0] <= q * (1 + 1e-13) + 1e-15
    assert mixture.cdf(y + step)[0] >= q * (1 - 1e-13) - 1e-15


def test_quantile_keeps_its_digits_in_both_tails():
    mixture = one([0.5, 0.5], [-2.0, 2.0], [1.0, 1.0])
    tails = 2.0 ** -np.arange(20, 53)
    np.testing.assert_allclose(mixture.cdf(mixture.quantile(tails))[:, 0], tails, rtol=1e-12)
    np.testing.assert_allclose(mixture.cdf(-mixture.quantile(1 - tails))[:, 0], tails, rtol=1e-12)


def test_cdf_never_exceeds_one():
    weights = np.random.default_rng(0).dirichlet(np.ones(5), 200)
    assert weights.sum(axis=1).max() > 1.0
    assert Mixture(weights, np.zeros((200, 5)), np.ones((200, 5))).cdf(99.0).max() == 1.0


def test_quantile_of_one_normal_and_one_uniform_component():
    mixture = Mixture(np.ones((2, 1)), [[1.0], [-4.0]], [[4.0], [9.0]])
    q = np.array([0.01, 0.5, 0.9])
    expected = stats.norm.ppf(q)[:, None] * [2.0, 3.0] + [1.0, -4.0]
    np.testing.assert_allclose(mixture.quantile(q), expected, rtol=1e-13)
    assert one([1.0], [1.0], [3.0], [True]).quantile(0.25)[0] == pytest.approx(-0.5, rel=1e-14)


def test_quantiles_zero_and_one_are_the_ends_of_the_support():
    boxes = one([0.5, 0.5, 0.0], [0.0, 9.0, 99.0], [3.0, 3.0, 3.0], [True, True, False])
    np.testing.assert_allclose(boxes.quantile([0.0, 1.0]), [[-3.0], [12.0]], rtol=1e-15)
    normal = one([0.5, 0.5], [0.0, 9.0], [3.0, 3.0], [True, False])
    np.testing.assert_array_equal(normal.quantile([0.0, 1.0]), [[-np.inf], [np.inf]])


def test_interval_is_central():
    mixture = CASES["bimodal"]
    lower, upper = mixture.interval(0.8)
    assert mixture.cdf(lower)[0] == pytest.approx(0.1)
    assert mixture.cdf(upper)[0] == pytest.approx(0.9)


def check_hdr(mixture, level):
    """Mass, order, and that densities inside are no smaller than those outside."""
    (region,) = mixture.hdr(level)
    ends = np.array(region)
    assert np.all(np.diff(ends.ravel()) > 0)
    mass = np.sum(np.diff(mixture.cdf(ends[..., None])[..., 0], axis=1))
    assert mass == pytest.approx(level, abs=1e-9)
    means, stds = mixture.means[0], np.sqrt(mixture.variances[0])
    y = np.unique(means[:, None] + stds[:, None] * np.linspace(-9, 9, 801))
    y = np.union1d(y, (ends + [[1e-7], [-1e-7]][0]).ravel())
    # On the very edge of a region or of a uniform component, rounding decides.
    edges = np.append(ends.ravel(), (means[:, None] + stds[:, None] * [-SQRT3, SQRT3]).ravel())
    y = y[np.min(np.abs(y[:, None] - edges), axis=1) > 1e-9 * (1 + np.abs(y))]
    inside = np.any((y[:, None] > ends[:, 0]) & (y[:, None] < ends[:, 1]), axis=1)
    values = pdf(mixture, y)
    assert values[inside].min(initial=np.inf) >= values[~inside].max(initial=0.0) * (1 - 1e-6)
    return ends


@each_case
@pytest.mark.parametrize("level", [0.1, 0.5, 0.95, 0.999])
def test_hdr_holds_its_mass_and_the_highest_densities(mixture, level):
    check_hdr(mixture, level)


@settings(max_examples=40)
@given(recipes(), st.sampled_from([0.05, 0.4, 0.8, 0.95]))
def test_hdr_of_any_mixture(recipe, level):
    check_hdr(one(*recipe), level)


def test_hdr_of_a_normal_is_its_central_interval():
    mixture = Mixture(np.ones((2, 1)), [[1.0], [-4.0]], [[4.0], [9.0]])
    expected = np.stack(mixture.interval(0.9), axis=1)[:, None]
    np.testing.assert_allclose(mixture.hdr(0.9), expected, rtol=1e-9)


def test_hdr_splits_between_separated_components():
    ((left, right),) = one([0.5, 0.5], [-5.0, 5.0], [1.0, 1.0]).hdr(0.9)
    half = stats.norm.ppf(0.95)
    np.testing.assert_allclose([left, right], [(-5 - half, -5 + half), (5 - half, 5 + half)], 1e-6)


def test_hdr_of_a_uniform_component_is_central_and_leaves_out_what_is_lower():
    np.testing.assert_allclose(one([1.0], [2.0], [3.0], [True]).hdr(0.9), [[[-0.7, 4.7]]])
    # Heights 0.25 on (0, 2) and 0.05 on (10, 20): half the mass each.
    boxes = one([0.5, 0.5], [1.0, 15.0], [1 / 3, 25 / 3], [True, True])
    ((low, high),) = boxes.hdr(0.5)[0]
    assert (low, high) == (pytest.approx(0.0, abs=1e-6), pytest.approx(2.0, abs=1e-6))


def test_hdr_resolves_a_tiny_component_beside_a_wide_one():
    (ends,) = [check_hdr(CASES["tiny beside wide"], 0.4)]
    half = stats.norm.ppf(0.9) * 1e-3
    np.testing.assert_allclose(ends, [[0.3 - half, 0.3 + half]], atol=1e-5)
    assert len(check_hdr(one([0.5, 0.5], [60.0, 0.0], [1e-6, 100.0]), 0.95)) == 2


def test_hdr_is_the_same_in_any_company(monkeypatch):
    rng = np.random.default_rng(0)
    weights = rng.dirichlet(np.ones(3), 15)
    mixture = Mixture(weights, rng.normal(0, 4, (15, 3)), rng.gamma(1, 1, (15, 3)), [0, 0, 1])
    together, modes = mixture.hdr(0.8), mixture.modes()
    monkeypatch.setattr("dagp.predict.mixture._ROWS", 7)
    assert [len(r) for r in mixture.hdr(0.8)] == [len(r) for r in together]
    for i in (0, 8, 14):
        np.testing.assert_allclose(mixture[i].hdr(0.8)[0], together[i], rtol=1e-8)
        np.testing.assert_allclose(mixture[i].modes()[0], modes[i])


def test_modes_of_separated_components_come_highest_first():
    mixture = one([0.2, 0.5, 0.3], [-50.0, 0.0, 50.0], [1.0, 1.0, 0.01])
    np.testing.assert_allclose(mixture.modes()[0], [50.0, 0.0, -50.0], atol=1e-12)


def test_modes_merge_when_components_are_close():
    # Two equal normals have one mode up to a distance of two standard deviations.
    near, apart = ([0.5, 0.5], [-0.99, 0.99], [1.0, 1.0]), ([0.5, 0.5], [-1.5, 1.5], [1.0, 1.0])
    np.testing.assert_allclose(one(*near).modes(), [[0.0]], atol=1e-7)
    modes = np.sort(one(*apart).modes()[0])
    # At a mode, m = 1.5 tanh(1.5 m).
    np.testing.assert_allclose(modes, 1.5 * np.tanh(1.5 * modes), rtol=1e-12)
    assert len(modes) == 2 and modes[1] > 1.0


@settings(max_examples=40)
@given(recipes(uniform=False))
def test_modes_are_local_maxima_in_order(recipe):
    mixture = one(*recipe)
    (modes,) = mixture.modes()
    heights = mixture.log_prob(modes[:, None])[:, 0]
    assert 1 <= len(modes) <= np.sum(mixture.weights > 0)
    assert np.all(np.diff(heights) <= 0)
    step = 1e-3 * np.sqrt(mixture.variances[0].min())
    for sign in (-1, 1):
        assert np.all(mixture.log_prob((modes + sign * step)[:, None])[:, 0] < heights + 1e-15)


def test_modes_with_uniform_components():
    # The plain under the second normal makes it the higher one.
    mixture = one([0.3, 0.29, 0.41], [-5.0, 5.0, 5.0], [1.0, 1.0, 1.0], [False, False, True])
    np.testing.assert_allclose(mixture.modes()[0], [5.0, -5.0], atol=1e-9)
    # Without normals: the middle of the highest stretch, here the overlap (1, 2).
    boxes = one([0.5, 0.5, 0.0, 0.0], [1.0, 2.0, 2.4, 9.0], [1 / 3] * 4, [True, True, True, False])
    np.testing.assert_allclose(boxes.modes(), [[1.5]])


def test_responsibilities_are_bayes_rule():
    mixture = one([0.2, 0.5, 0.3], [0.0, 1.0, 2.0], [1.0, 4.0, 9.0], [False, False, True])
    joint = [0.2 * stats.norm(0, 1).pdf(0.5), 0.5 * stats.norm(1, 2).pdf(0.5), 0.3 / (6 * SQRT3)]
    np.testing.assert_allclose(mixture.responsibilities([0.5]), [joint / np.sum(joint)])


def test_responsibilities_far_out():
    near, far = one([0.5, 0.5], [0.0, 1.0], [1.0, 1.0]), one([0.5, 0.5], [0.0, 0.0], [1.0, 1.0])
    np.testing.assert_array_equal(near.responsibilities([1e6]), [[0.0, 1.0]])
    np.testing.assert_array_equal(far.responsibilities([1e6]), [[0.5, 0.5]])
    boxes = one([0.25, 0.75], [0.0, 5.0], [1.0, 1.0], [True, True])
    np.testing.assert_array_equal(boxes.responsibilities([99.0]), [[0.25, 0.75]])
    np.testing.assert_array_equal(boxes.responsibilities([1.0]), [[1.0, 0.0]])


def test_a_variance_of_zero_is_a_point():
    mixture = one([0.5, 0.5], [0.0, 4.0], [0.0, 1.0])
    np.testing.assert_allclose(mixture.cdf([[-1e-9], [1e-9]])[:, 0], [0.0, 0.5], atol=1e-4)
    assert mixture.quantile(0.3)[0] == pytest.approx(0.0, abs=1e-12)
    assert mixture.variance()[0] == 4.5
    ((low, high), _) = mixture.hdr(0.9)[0]
    assert -1e-12 < low < 0 < high < 1e-12
    assert one([1.0], [0.0], [0.0]).modes()[0].tolist() == [0.0]


def test_extreme_outputs_raise_no_warning():
    mixture = one([0.5, 0.5], [0.0, 1.0], [1e-300, 1.0])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert mixture.cdf([1e300])[0] == 1.0
        assert mixture.log_prob([np.inf])[0] == -np.inf
        assert mixture.cdf([-np.inf])[0] == 0.0
        np.testing.assert_array_equal(mixture.responsibilities([-1e300]), [[0.5, 0.5]])


def test_weights_nearly_one_are_brought_to_one():
    mixture = one(np.float32([0.1, 0.2, 0.7]), [0.0, 1.0, 2.0], [1.0, 1.0, 1.0])
    assert mixture.weights.dtype == np.float64
    assert mixture.weights.sum() == pytest.approx(1.0, abs=1e-15)


def test_components_of_one_process_speak_with_one_voice():
    parts = ([[0.2, 0.5, 0.3]], [[-1.0, 2.0, 0.0]], [[1.0, 0.5, 4.0]])
    alone, owned = Mixture(*parts), Mixture(*parts, owner=[0, 1, 0])
    y = np.array([0.7])
    np.testing.assert_array_equal(owned.log_prob(y), alone.log_prob(y))
    first, second, third = alone.responsibilities(y)[0]
    np.testing.assert_allclose(owned.responsibilities(y), [[first + third, second]])
    np.testing.assert_allclose(owned.marginal(0).weights, [[0.4, 0.6]])
    np.testing.assert_allclose(owned.marginal(0).mean(), [-0.4])
    assert owned[[0]].owner == (0, 1, 0)
    with pytest.raises(ValueError, match="owner"):
        Mixture(*parts, owner=[0, 2, 0])


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize("ends", [(0.1, 0.3), (1e6 + 0.1, 1e6 + 0.7), (-1e-9, 7e-9)])
def test_the_ends_of_a_flat_density_belong_to_it(ends, dtype):
    low, high = ends
    half, middle = dtype((high - low) / 2), (high + low) / 2
    mixture = Mixture([[1.0]], [[middle]], [[half**2 / dtype(3)]], uniform=[True])
    expected = -np.log(high - low)
    for y in ends:
        np.testing.assert_allclose(mixture.log_prob(y), expected, rtol=1e-6)
    width = high - low
    assert np.all(mixture.log_prob([[low - 1e-5 * width], [high + 1e-5 * width]]) == -np.inf)
