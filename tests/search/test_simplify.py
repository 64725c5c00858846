"""One process in place of two where functions coincide."""

import equinox as eqx
import jax
import numpy as np

from dagp import GP
from dagp.core.precision import numerics
from dagp.core.sharding import to_host
from dagp.inference.standardize import Sample, Units, canonical, padded, to_device_batch
from dagp.inference.train import BLOCK, begin
from dagp.model.parameters import trainable
from dagp.search.factory import Problem, Start, build
from dagp.search.improve import simplify, view
from dagp.search.inducing import choose_inducing
from dagp.search.race import Contender
from dagp.search.trainer import Trainer


def fork(shared):
    """Two curves that are one on the left, where every point has `shared` of process 0: problem,
    trainer, a trained contender, and what lies on the left."""
    x = np.repeat(np.linspace(-1.5, 1.5, 100), 2)
    apart = np.tile([1.0, -1.0], 100) * np.maximum(x, 0) ** 2
    y = apart + 0.03 * np.random.default_rng(0).standard_normal(200)
    sample, _ = canonical(Sample(x[:, None], y[:, None], np.ones(200), np.full(200, -1)))
    units = Units.of(sample)
    standard = units.apply(sample)
    inducing = choose_inducing(standard.X, 12, np.random.default_rng(0))
    problem = Problem(standard, units, (GP(), GP()), None, inducing)
    left, above = sample.X[:, 0] < 0, sample.y[:, 0] > 0
    given = np.where(left[:, None], [shared, 1 - shared], np.eye(2)[above.astype(int)])
    batch = to_device_batch(standard, 2)
    start = Start("given", padded(given, len(batch.X)), 0.6, 0.1)
    state, bound = begin(build(problem, start), batch, start.responsibilities, 10)
    contender, trainer = Contender(start, state, float(bound.value)), Trainer(batch, 1e-3)
    contender.advance(trainer, 4 * BLOCK)
    return problem, trainer, contender, left


def weights(contender, where):
    """Mean gate of the points at `where`, largest first."""
    return np.sort(to_host(contender.state.gate.weights)[: len(where)][where].mean(axis=0))[::-1]


def test_one_process_takes_what_two_share_and_training_ends():
    with numerics():
        problem, trainer, contender, left = fork(0.5)
        np.testing.assert_allclose(weights(contender, left), 0.5, atol=0.2)
        before = contender.bound
        simplify(problem, contender, trainer)
        assert weights(contender, left)[0] > 0.9
        np.testing.assert_allclose(weights(contender, ~left), 0.5, atol=0.1)
        assert contender.bound > before - 0.2 * left.sum() / 2
        # It is trained to its end: more steps neither gain much nor lead back.
        simple = contender.bound
        contender.advance(trainer, 2 * BLOCK)
        assert contender.bound < simple + 1.0
        assert weights(contender, left)[0] > 0.9


def test_what_one_process_has_is_not_handed_to_the_other():
    with numerics():
        problem, trainer, contender, left = fork(1.0)
        simplify(problem, contender, trainer)
        assert weights(contender, left)[0] > 0.9
        assert contender.plain is None or contender.bound > contender.plain[1]


def test_functions_are_settled_before_they_are_compared():
    with numerics():
        problem, trainer, contender, left = fork(0.5)
        model, mask = contender.state.model, trainable(contender.state.model)
        moving = jax.tree.map(lambda leaf: leaf + 0.05, eqx.filter(model, mask))
        after = eqx.combine(moving, eqx.filter(model, mask, inverse=True))
        contender.state = contender.state._replace(model=after)
        seen = view(problem, contender.state, trainer.batch)
        assert seen.agree(0, 1)[left].mean() < 0.9
        simplify(problem, contender, trainer)
        assert weights(contender, left)[0] > 0.9
