"""The infinite mixture of Gaussian process experts, as a user meets it."""

import numpy as np
import pytest
from sklearn.metrics import adjusted_rand_score

from dagp.baselines.rgpr import RGPR


@pytest.fixture(scope="module")
def two_regimes():
    rng = np.random.default_rng(3)
    x = np.sort(rng.uniform(-3, 3, 160))
    left = 0.5 * np.sin(9 * x) + 0.03 * rng.standard_normal(160)
    right = 2 + 0.5 * x + 0.15 * rng.standard_normal(160)
    X, y = 10 * x[:, None], 5 + 3 * np.where(x < 0, left, right)
    return X, y, x < 0, RGPR(random_state=1).fit(X, y)


def test_two_regimes_are_told_apart(two_regimes):
    _, _, left, model = two_regimes
    assert adjusted_rand_score(left, model.assignment_) >= 0.9
    expert_left = np.bincount(model.assignment_[left]).argmax()
    expert_right = np.bincount(model.assignment_[~left]).argmax()
    assert expert_left != expert_right
    gate = model.predict_assignment([[-20.0], [-10.0], [10.0], [20.0]])
    assert gate.shape == (4, model.n_processes_)
    assert gate[:2, expert_left].min() > 0.8
    assert gate[2:, expert_right].min() > 0.8
    shares = model.responsibilities_
    np.testing.assert_allclose(shares.sum(axis=1), 1)
    assert np.mean(shares.argmax(axis=1) == model.assignment_) > 0.95


def test_predictions_are_in_the_units_of_the_data(two_regimes):
    X, y, _, model = two_regimes
    x = np.array([-20.0, -12.0, 12.0, 20.0])
    truth = 5 + 3 * np.where(x < 0, 0.5 * np.sin(0.9 * x), 2 + 0.05 * x)
    np.testing.assert_allclose(model.predict(x[:, None]), truth, atol=0.4)
    mixture = model.predict_mixture(x[:, None])
    np.testing.assert_allclose(mixture.mean(), model.predict(x[:, None]))
    spread = np.subtract(*mixture.quantile([0.84, 0.16])) / 2
    np.testing.assert_allclose(spread[2:], 0.45, rtol=0.3)
    assert spread[:2].max() < 0.2
    bare = model.predict_mixture(x[:, None], noise=False)
    assert np.all(bare.variance() < mixture.variance())
    assert model.log_score(X, y) > -1.5
    np.testing.assert_allclose(model.predict_heaviest(x[:, None]), truth, atol=0.4)


def test_far_from_the_data(two_regimes):
    _, _, _, model = two_regimes
    X = np.array([[-1e6], [1e6], [1e9]])
    mixture = model.predict_mixture(X)
    assert np.all(np.isfinite(model.predict(X)))
    assert np.all(np.isfinite(mixture.log_prob(np.zeros(3))))
    np.testing.assert_allclose(mixture.weights.sum(axis=1), 1)
    np.testing.assert_allclose(model.predict_assignment(X).sum(axis=1), 1)


def test_experts_may_overlap():
    rng = np.random.default_rng(0)
    X = rng.uniform(-1, 1, (120, 1))
    upper = rng.uniform(size=120) < 0.5
    y = np.where(upper, 1.0, -1.0) + 0.1 * X[:, 0] + 0.05 * rng.standard_normal(120)
    model = RGPR(random_state=0).fit(X, y)
    assert adjusted_rand_score(upper, model.assignment_) > 0.9
    modes = model.predict_mixture([[0.0]]).modes()[0][:2]
    np.testing.assert_allclose(np.sort(modes), [-1, 1], atol=0.1)
    assert abs(model.predict([[0.0]])[0]) < 0.5
    # The heaviest expert is one of the two, not their average.
    heavier = 1 if model.predict_assignment([[0.0]]).argmax() == model.assignment_[upper][0] else -1
    np.testing.assert_allclose(model.predict_heaviest([[0.0]]), [heavier], atol=0.1)


def test_the_seed_decides():
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(30, 2)), rng.normal(size=30)
    first, same, other = (RGPR(6, 2, 3, random_state=s).fit(X, y) for s in (0, 0, 1))
    np.testing.assert_array_equal(first.predict(X), same.predict(X))
    np.testing.assert_array_equal(first.assignment_, same.assignment_)
    assert np.any(first.predict(X) != other.predict(X))
    # A row's prediction does not depend on its company.
    np.testing.assert_allclose(first.predict(X)[3:4], first.predict(X[3:4]))


def test_hardly_any_data():
    one = RGPR(4, 2, 2, random_state=0).fit([[1.0]], [2.0])
    assert one.n_processes_ == 1
    assert np.isfinite(one.predict([[1.0], [5.0]])).all()
    same = RGPR(4, 2, 2, random_state=0).fit(np.ones((6, 1)), np.ones(6))
    np.testing.assert_allclose(same.predict([[1.0]]), 1, atol=0.2)


@pytest.mark.parametrize(
    "settings",
    [
        {"n_sweeps": 0},
        {"burn_in": -1},
        {"n_samples": 0},
        {"n_samples": 2.5},
        {"alpha": 0.0},
        {"n_auxiliary": 0},
        {"n_sweeps": 10, "burn_in": 10, "n_samples": 1},
        {"n_sweeps": 10, "burn_in": 5, "n_samples": 6},
    ],
)
def test_bad_settings(settings):
    with pytest.raises(ValueError, match="must"):
        RGPR(**settings).fit(np.arange(4.0)[:, None], np.arange(4.0))
