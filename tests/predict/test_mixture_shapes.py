"""The predictive mixture of several outputs and points: shapes, selections, and what is refused."""

import numpy as np
import pytest

from dagp.predict.mixture import Mixture


@pytest.fixture
def several():
    """Five points, three components, two outputs."""
    rng = np.random.default_rng(3)
    means, variances = rng.normal(size=(5, 3, 2)), rng.gamma(2, 1, (5, 3, 2))
    return Mixture(rng.dirichlet(np.ones(3), 5), means, variances, [False, False, True])


def output(mixture, p):
    return Mixture(
        mixture.weights, mixture.means[..., p], mixture.variances[..., p], mixture.uniform
    )


def test_outputs_share_the_component_and_are_independent_given_it(several):
    y = several.sample(random_state=0)[0]
    parts = [several.marginal(k) for k in range(3)]
    expected = sum(
        several.weights[:, k] * np.exp(sum(output(parts[k], p).log_prob(y[:, p]) for p in (0, 1)))
        for k in range(3)
    )
    np.testing.assert_allclose(np.exp(several.log_prob(y)), expected)
    joint = [several.weights[:, k] * np.exp(parts[k].log_prob(y)) for k in range(3)]
    np.testing.assert_allclose(several.responsibilities(y).T, joint / np.sum(joint, axis=0))


def test_everything_else_is_per_output(several):
    for p in (0, 1):
        single = output(several, p)
        np.testing.assert_allclose(several.mean()[:, p], single.mean())
        np.testing.assert_allclose(several.variance()[:, p], single.variance())
        np.testing.assert_allclose(several.cdf(0.3)[:, p], single.cdf(0.3))
        np.testing.assert_allclose(
            several.quantile([0.2, 0.7])[..., p], single.quantile([0.2, 0.7])
        )
        np.testing.assert_allclose(several.interval()[1][:, p], single.interval()[1])


def test_shapes(several):
    y = several.sample(4, random_state=np.random.default_rng(0))
    assert y.shape == (4, 5, 2)
    assert several.log_prob(y).shape == (4, 5)
    assert several.responsibilities(y).shape == (4, 5, 3)
    assert several.cdf(y).shape == (4, 5, 2)
    assert several.quantile(0.5).shape == (5, 2) and several.quantile([0.5]).shape == (1, 5, 2)
    assert several.quantile([]).shape == (0, 5, 2)
    np.testing.assert_array_equal(several.log_prob(y)[2], several.log_prob(y[2]))


def test_samples_of_outputs_share_the_component():
    mixture = Mixture([[0.5, 0.5]], [[[-9.0, -9.0], [9.0, 9.0]]], [[[1.0, 1.0], [1.0, 1.0]]])
    signs = np.sign(mixture.sample(200, random_state=0)[:, 0])
    assert np.all(signs[:, 0] == signs[:, 1]) and 60 < np.sum(signs[:, 0] > 0) < 140


def test_samples_repeat_with_the_seed_and_differ_between_points():
    mixture = Mixture(np.ones((3, 1)), np.zeros((3, 1)), np.ones((3, 1)))
    first, again = mixture.sample(2, random_state=7), mixture.sample(2, random_state=7)
    np.testing.assert_array_equal(first, again)
    assert len(np.unique(first)) == 6


def test_one_output_in_a_column_is_one_output():
    column = Mixture([[0.5, 0.5]], [[[-5.0], [5.0]]], [[[1.0], [1.0]]])
    flat = Mixture([[0.5, 0.5]], [[-5.0, 5.0]], [[1.0, 1.0]])
    assert column.hdr() == flat.hdr()
    np.testing.assert_array_equal(column.modes(), flat.modes())


def test_marginal_is_one_component(several):
    part = several.marginal(2)
    np.testing.assert_array_equal(part.weights, np.ones((5, 1)))
    np.testing.assert_array_equal(part.means[:, 0], several.means[:, 2])
    np.testing.assert_array_equal(part.variances[:, 0], several.variances[:, 2])
    assert part.uniform == (True,)
    with pytest.raises(IndexError):
        several.marginal(3)


def test_rows_can_be_selected(several):
    assert len(several) == 5 and len(several[1]) == 1 and len(several[-2:]) == 2
    mask = np.array([True, False, False, True, False])
    for rows in (mask, [0, 3]):
        np.testing.assert_array_equal(several[rows].means, several.means[[0, 3]])
        np.testing.assert_array_equal(several[rows].weights, several.weights[[0, 3]])
        assert several[rows].uniform == several.uniform
    assert len(list(several)) == 5


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (([1.0], [[0.0]], [[1.0]]), "weights must be of shape"),
        ((1.0, [[0.0]], [[1.0]]), "weights must be of shape"),
        (([[1.0]], [0.0], [[1.0]]), "means must be of shape"),
        (([[1.0]], [[0.0, 1.0]], [[1.0, 1.0]]), "means must be of shape"),
        (([[1.0]], [[0.0]], [[[1.0]]]), "variances must be of shape"),
        (([[1.0]], [[0.0]], [[1.0]], [True, False]), "one flag per component"),
        (([[0.6, 0.6]], [[0.0, 0.0]], [[1.0, 1.0]]), "sum to one"),
        (([[1.5, -0.5]], [[0.0, 0.0]], [[1.0, 1.0]]), "not be negative"),
        (([[np.nan]], [[0.0]], [[1.0]]), "weights must"),
        (([[1.0]], [[np.inf]], [[1.0]]), "means must be finite"),
        (([[1.0]], [[0.0]], [[-1.0]]), "variances must be finite and not negative"),
    ],
)
def test_bad_arrays_are_refused(arguments, message):
    with pytest.raises(ValueError, match=message):
        Mixture(*arguments)


def test_bad_arguments_are_refused(several):
    mixture = Mixture([[0.4, 0.6]], [[-3.0, 3.0]], [[0.25, 1.0]])
    for q in (-0.1, 1.1, [0.5, np.nan], [[0.5]]):
        with pytest.raises(ValueError, match="q must be"):
            mixture.quantile(q)
    for level in (0.0, 1.0, 95):
        with pytest.raises(ValueError, match="level must be"):
            mixture.hdr(level)
        with pytest.raises(ValueError, match="level must be"):
            mixture.interval(level)
    for y in ([[0.0, 1.0]], [0.0, 1.0]):
        with pytest.raises(ValueError, match="y must be a number or an array of shape"):
            mixture.log_prob(y)
    with pytest.raises(ValueError, match="not only NaN"):
        mixture.log_prob([np.nan])
    with pytest.raises(ValueError, match="not only NaN"):
        several.responsibilities(np.full((5, 2), np.nan))
    with pytest.raises(ValueError, match="hdr is for one output, got 2"):
        several.hdr()
    with pytest.raises(ValueError, match="modes is for one output, got 2"):
        several.modes()


def test_missing_outputs_are_integrated_out(several):
    y = np.linspace(-1, 1, 10).reshape(5, 2)
    known = y.copy()
    known[:, 1] = np.nan
    alone = Mixture(
        several.weights, several.means[..., 0], several.variances[..., 0], several.uniform
    )
    np.testing.assert_allclose(several.log_prob(known), alone.log_prob(y[:, 0]))
    np.testing.assert_allclose(several.responsibilities(known), alone.responsibilities(y[:, 0]))
    assert np.isnan(several.cdf(known)).tolist() == [[False, True]] * 5


def test_repr(several):
    assert repr(several) == "Mixture(5 points, 3 components, 2 outputs, 1 uniform)"
    normal = Mixture([[1.0]], [[0.7]], [[2.0]])
    assert repr(normal) == "Mixture(1 point, 1 component)"
    assert normal[:0].hdr() == [] and normal[:0].modes() == []
