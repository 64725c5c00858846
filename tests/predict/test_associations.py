"""Posteriors averaged over several associations."""

import dataclasses

import numpy as np
import pytest

from dagp import DAGP, GP, Noise, StorageError
from dagp.predict.associations import (
    Attribution,
    AveragedPosterior,
    log_relabellings,
    over_associations,
    probabilities,
)

QUICK = {"n_init": 2, "tol": 1e-3, "inducing": 16, "random_state": 0}


def two_levels(gap):
    """Two wiggly functions far apart, on both sides of a gap of their inputs."""
    rng = np.random.default_rng(0)
    x = np.sort(rng.uniform(-3, 3, 160))
    x = x[(x < -gap / 2) | (x > gap / 2)]
    upper = rng.integers(0, 2, len(x)) == 0
    f = np.where(upper, 1.2 + 0.5 * np.sin(3 * x), -1.2 + 0.5 * np.cos(3.3 * x))
    return x[:, None], f + 0.15 * rng.normal(size=len(x)), upper


@pytest.fixture(scope="module")
def undecided():
    """Nothing says which function on the left of the gap goes on as which on the right."""
    X, y, upper = two_levels(1.8)
    return DAGP(2, posterior="averaged", **QUICK).fit(X, y), X, y, upper


def test_equally_good_associations_have_almost_equal_probabilities(undecided):
    model, X, _, upper = undecided
    weights = model.association_weights_
    assert weights[:2].min() > 0.2
    assert weights.sum() == pytest.approx(1.0)
    assert len(weights) == 1 + len(model.alternatives_)
    # Processes are matched by the side with more points; the other is as sure as its association.
    sure = model.responsibilities_.max(axis=1)
    left, right = sure[X[:, 0] < 0], sure[X[:, 0] > 0]
    few, many = sorted((left, right), key=np.median)
    assert np.median(many) > 0.99
    np.testing.assert_allclose(np.median(few), weights.max(), atol=0.01)
    # On each side the two functions are told apart without doubt.
    for side in (X[:, 0] < 0, X[:, 0] > 0):
        alike = model.assignment_[side] == upper[side]
        assert alike.all() or not alike.any()


def test_the_best_association_alone_is_sure_of_itself(undecided):
    model, X, y, _ = undecided
    best = DAGP(**model.get_params()).set_params(posterior="best").fit(X, y)
    assert best.association_weights_[0] == 1.0
    assert np.median(best.responsibilities_.max(axis=1)) > 0.99
    assert "averaged with" not in best.summary()
    assert "averaged with 1 other" in model.summary()


def test_predictions_are_those_of_all_associations(undecided):
    model, _, _, _ = undecided
    X_new = np.linspace(-3, 3, 7)[:, None]
    parts = [
        (weight, posterior.mixture(X_new), order)
        for weight, posterior, order in model.posterior_.associations()
    ]
    mixture = model.predict_mixture(X_new)
    mean = sum(weight * part.mean() for weight, part, _ in parts)
    np.testing.assert_allclose(mixture.mean(), mean)
    level = np.zeros(7)
    density = sum(weight * np.exp(part.log_prob(level)) for weight, part, _ in parts)
    np.testing.assert_allclose(mixture.log_prob(level), np.log(density))
    gates = sum(
        weight * posterior.gate(X_new)[:, order]
        for weight, posterior, order in model.posterior_.associations()
    )
    np.testing.assert_allclose(model.predict_assignment(X_new), gates)
    # A process is, on one side, the one or the other function, with the probability of each.
    for k, process in enumerate(model.processes_):
        found = [
            (weight, posterior.function(X_new, order[k]))
            for weight, posterior, order in model.posterior_.associations()
        ]
        first = sum(weight * one.mean() for weight, one in found)
        second = sum(weight * (one.variance() + one.mean() ** 2) for weight, one in found)
        mean, std = process.predict(X_new, return_std=True)
        np.testing.assert_allclose(mean, first)
        np.testing.assert_allclose(std**2, second - first**2, atol=1e-12)
        np.testing.assert_allclose(np.diag(process.covariance(X_new)), std**2, rtol=1e-4)
        assert process.noise_std(X_new) == pytest.approx(0.15, abs=0.04)


def test_draws_of_functions_follow_one_association_each(undecided):
    model = undecided[0]
    ends = np.array([[-2.5], [2.5]])
    draws = model.processes_[0].sample_y(ends, 400, random_state=0)
    sides = np.sign(draws)
    # At the certain end all are on one side; at the other, as many as the association is probable.
    changing, certain = np.argsort(np.abs(sides.mean(axis=0)))
    assert abs(sides[:, certain].mean()) == 1
    share = np.mean(sides[:, changing] == sides[:, certain])
    assert min(abs(share - w) for w in model.association_weights_[:2]) < 0.08


def test_draws_of_assignments_change_sides_as_a_whole(undecided):
    model, X, y, upper = undecided
    draws = model.sample_assignments(X, y, 200, random_state=0)
    left, right = (
        np.array([np.mean(draw[side] == upper[side]) for draw in draws])
        for side in (X[:, 0] < 0, X[:, 0] > 0)
    )
    # In every draw a side is right or exchanged as a whole.
    assert np.all(np.minimum(left, 1 - left) < 0.05)
    assert np.all(np.minimum(right, 1 - right) < 0.05)
    together = np.mean((left > 0.5) == (right > 0.5))
    assert 0.2 < together < 0.8
    again = model.sample_assignments(X, y, 200, random_state=0)
    np.testing.assert_array_equal(again, draws)


def test_files_keep_associations_and_refuse_forged_ones(undecided, tmp_path):
    model, X, y, _ = undecided
    path = model.save(tmp_path / "model.dagp")
    again = DAGP.load(path)
    np.testing.assert_array_equal(again.association_weights_, model.association_weights_)
    np.testing.assert_array_equal(again.predict(X, True), model.predict(X, True))
    np.testing.assert_array_equal(again.responsibilities(X, y), model.responsibilities(X, y))
    posterior = model.posterior_
    assert isinstance(posterior, AveragedPosterior)
    (other,) = posterior.others
    for forged in (
        other._replace(weight=1.5),
        other._replace(weight=-0.1),
        other._replace(order=(0, 0)),
        other._replace(model=None),
    ):
        again.posterior_ = dataclasses.replace(posterior, others=(forged,))
        with pytest.raises(StorageError, match="Cannot save"):
            again.save(tmp_path / "forged.dagp")
    with pytest.raises(StorageError, match="several associations"):
        model.export(tmp_path / "exported")


def test_without_a_gap_there_is_one_association():
    X, y, upper = two_levels(0.0)
    model = DAGP(2, posterior="averaged", **QUICK).fit(X, y)
    np.testing.assert_array_equal(model.association_weights_[0], 1.0)
    assert np.mean(model.assignment_ == upper) in (0.0, 1.0)


def test_a_better_association_beside_the_best_one_takes_its_place():
    X, y, upper = two_levels(0.0)
    exchanged = np.where(X[:, 0] > 0.5, ~upper, upper).astype(int)
    model = DAGP(2, warm_start=True, **QUICK).fit(X, y, labels=exchanged)
    kept = DAGP(**model.get_params())
    for name in ("posterior_", "stream_", "columns_", "flat_"):
        setattr(kept, name, getattr(model, name))
    stuck = model.fit(X, y)
    assert np.mean(stuck.assignment_ == exchanged) > 0.95
    found = kept.set_params(posterior="averaged").fit(X, y)
    assert found.lower_bound_ > stuck.lower_bound_ + 5
    assert np.mean(found.assignment_ == upper) in (0.0, 1.0)


def test_labels_are_not_exchanged():
    X, y, upper = two_levels(1.8)
    labels = np.where(np.abs(X[:, 0]) > 2, upper.astype(int), -1)
    model = DAGP(2, posterior="averaged", **QUICK).fit(X, y, labels=labels)
    assert model.association_weights_[0] == 1.0
    np.testing.assert_array_equal(model.assignment_, upper)


def test_probabilities_leave_out_what_is_improbable():
    found = probabilities([0.0, -1.0, -6.0])
    np.testing.assert_allclose(found[:2], [np.e / (1 + np.e), 1 / (1 + np.e)])
    assert found[2] == 0.0
    # The best one stays, even where the evidence of another is much higher.
    assert probabilities([-9.0, 0.0])[0] > 0


def test_clutter_is_matched_with_clutter(undecided):
    """Also where the function of one association has the points that are clutter in the other."""
    posterior, rows = undecided[0].posterior_, np.eye(2)[np.arange(10) % 2]
    solutions = [
        Attribution(posterior, found, 0.0, 0.0, [{}] * 2) for found in (rows, rows[:, ::-1])
    ]
    best, shares = over_associations(solutions, np.ones(10), [GP(), Noise()])
    np.testing.assert_allclose(shares, [0.5, 0.5])
    assert isinstance(best.posterior, AveragedPosterior)
    assert best.posterior.others[0].order == (0, 1)
    np.testing.assert_allclose(best.responsibilities, 0.5)
    # Two functions have changed their numbers alone.
    best, _ = over_associations(solutions, np.ones(10), [GP(), GP()])
    np.testing.assert_allclose(best.responsibilities, rows)


def test_associations_count_once_for_every_exchange_of_equal_processes():
    two, one = np.array([True, True, False]), np.array([True, False, False])
    priors = ["GP", "GP", "GP"]
    # Three processes, of which two are used: 6 associations; of which one: 3.
    assert log_relabellings(priors, two) == pytest.approx(np.log(6))
    assert log_relabellings(priors, one) == pytest.approx(np.log(3))
    assert log_relabellings(["GP", "Noise", "GP"], np.ones(3, bool)) == pytest.approx(np.log(2))
