"""The final fit: enough inducing inputs, and rows that clutter should not have."""

import equinox as eqx
import numpy as np
import pytest

from dagp import DAGP, GP, Noise
from dagp.core.precision import numerics
from dagp.inference import train
from dagp.inference.standardize import Sample, Units, padded, to_device_batch
from dagp.inference.train import begin
from dagp.model.kernels import Matern52
from dagp.search import refine
from dagp.search.factory import Problem, Start, build, with_inducing
from dagp.search.inducing import choose_inducing
from dagp.search.race import Contender
from dagp.search.trainer import Trainer

RNG = np.random.default_rng(0)
X = RNG.uniform(-1, 1, (60, 2))
WAVY = np.sin(6 * X[:, :1]) + np.cos(5 * X[:, 1:]) + 0.02 * RNG.standard_normal((60, 1))


@pytest.fixture(autouse=True)
def precision():
    with numerics("float64"):
        yield


def begun(priors, shares, inducing, steps=48):
    sample = Sample(X, WAVY, np.ones(60), np.full(60, -1))
    units = Units.of(sample, standardize=False)
    places = choose_inducing(X, inducing, np.random.default_rng(0))
    problem = Problem(sample, units, priors, "constant", places)
    start = Start("given", shares, 0.5, 0.1)
    batch = to_device_batch(sample, len(priors))
    state, bound = begin(build(problem, start), batch, padded(shares, len(batch.X)), 6)
    contender = Contender(start, state, float(bound.value))
    trainer = Trainer(batch, 1e-3)
    if steps:
        contender.advance(trainer, steps)
    return problem, contender, trainer


def test_more_inducing_inputs_where_the_data_need_them():
    problem, contender, trainer = begun((GP(),), np.ones((60, 1)), 8)
    before, bound = refine.unexplained(problem, contender, trainer.batch), contender.bound
    assert before > refine.NEEDED
    refine.use_more_inducing(problem, contender, trainer, np.random.default_rng(0), 48)
    count = contender.state.model.groups[0].latent.inducing.raw.shape[-2]
    assert count in (16, 32)
    assert contender.bound > bound + 1
    more = problem._replace(inducing=np.zeros((count, 2)))
    assert refine.unexplained(more, contender, trainer.batch) < before


def test_more_inducing_inputs_that_end_lower_are_left(monkeypatch):
    problem, contender, trainer = begun((GP(),), np.ones((60, 1)), 8)
    state, bound, steps = contender.state, contender.bound, contender.steps

    def damage(problem, contender, trainer):
        model = with_inducing(problem, contender.start, contender.state.model)
        scales = model.groups[0].latent.kernel.lengthscale.raw
        rough = eqx.tree_at(
            lambda m: m.groups[0].latent.kernel.lengthscale.raw, model, np.full_like(scales, -6.0)
        )
        contender.state, _ = begin(rough, trainer.batch, contender.state.responsibilities, 0)

    monkeypatch.setattr(refine, "use_inducing", damage)
    refine.use_more_inducing(problem, contender, trainer, np.random.default_rng(0), 12)
    assert contender.state is state
    assert (contender.bound, contender.steps) == (bound, steps)
    stopped = trainer._replace(callback=lambda progress: True)
    refine.use_more_inducing(problem, contender, stopped, np.random.default_rng(0), 12)
    assert contender.state is state and contender.status == "stopped"


@pytest.mark.parametrize("lost", [1e6, np.nan])
def test_last_steps_of_q_that_diverge_are_left(monkeypatch, lost):
    _, contender, trainer = begun((GP(),), np.ones((60, 1)), 8)
    result = contender.result()
    assert train.settled(result, trainer.batch).state is not result.state
    sound = train.refine_q

    def diverging(*given):
        state, bound, evaluation = sound(*given)
        return state, bound._replace(value=bound.value - lost), evaluation

    monkeypatch.setattr(train, "refine_q", diverging)
    assert train.settled(result, trainer.batch) is result


def test_time_limits_the_inducing_inputs(monkeypatch):
    monkeypatch.setattr(refine, "MOST_COST", 60 * 15**2)
    problem, contender, trainer = begun((GP(),), np.ones((60, 1)), 8)
    refine.use_more_inducing(problem, contender, trainer, np.random.default_rng(0), 12)
    assert contender.state.model.groups[0].latent.inducing.raw.shape[-2] == 8


def test_nothing_is_unexplained_with_all_inputs():
    problem, contender, trainer = begun((GP(),), np.ones((60, 1)), 60, steps=0)
    assert refine.unexplained(problem, contender, trainer.batch) < 1e-4


def test_rows_are_reclaimed_from_clutter():
    """Half of the rows of a function begin as clutter, which keeps some of them."""
    shares = np.where(WAVY > 0.3, [[0.02, 0.98]], [[0.98, 0.02]])
    problem, contender, trainer = begun((GP(), Noise()), shares, 16)
    taken = np.asarray(contender.state.responsibilities)[:60, 1].sum()
    assert taken > 5
    bound = contender.bound
    refine.reclaim(problem, contender, trainer)
    assert contender.bound > bound
    assert np.asarray(contender.state.responsibilities)[:60, 1].sum() < taken / 2
    assert contender.moves[-1][0] == "reclaim from clutter"


def test_wrong_rows_are_not_reclaimed():
    wrong = np.arange(60) % 6 == 0
    y = WAVY + 8.0 * wrong[:, None] * RNG.choice([-1, 1], (60, 1))
    model = DAGP(processes=[GP(), Noise()], inducing=16, n_init=2, tol=1e-2, random_state=0)
    model.fit(X, y)
    assert np.mean(model.responsibilities_[wrong, 1]) > 0.9


def test_candidates_of_the_exact_fit_find_the_outliers():
    wrong = np.array([4, 20, 33])
    y = WAVY.copy()
    y[wrong] += 6.0
    sample = Sample(X, y, np.ones(60), np.full(60, -1))
    problem = Problem(sample, Units.of(sample, False), (GP(), Noise()), "constant", X)
    model = build(problem, Start("given", np.full((60, 2), 0.5), 1.0, 0.2))
    shares = refine._little_clutter(problem, model, np.full((60, 2), 0.5))
    assert set(wrong) <= set(np.flatnonzero(shares[:, 1] > 0.5))
    assert np.allclose(shares.sum(axis=1), 1)


def test_details_are_found_that_much_noise_would_explain():
    """Begun with much noise only, the second input is taken for noise (bound 57)."""
    inputs = np.random.default_rng(0).uniform(-1.7, 1.7, (60, 2))
    y = inputs[:, :1] + 0.1 * np.sin(9 * inputs[:, 1:])
    sample = Sample(inputs, y / y.std(), np.ones(60), np.full(60, -1))
    places = inputs[:4]
    problem = Problem(sample, Units.of(sample, False), (GP(Matern52()),), "constant", places)
    start, batch = Start("given", np.ones((60, 1)), 1.4, 0.2), to_device_batch(sample, 1)
    state, bound = begin(build(problem, start), batch, padded(np.ones((60, 1)), len(batch.X)), 6)
    contender = Contender(start, state, float(bound.value))
    refine.use_all(problem, contender, Trainer(batch, 1e-4))
    assert contender.bound > 140
    noise = np.sqrt(np.asarray(contender.state.model.process(0).noise_variance()))
    assert noise < 0.01


@pytest.mark.parametrize("inducing", ["some", "none"])
def test_other_words_for_inducing_are_refused(inducing):
    with pytest.raises(ValueError, match='inducing must be "auto", "all"'):
        DAGP(1, inducing=inducing, n_init=1).fit(X, WAVY[:, 0])
