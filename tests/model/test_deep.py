"""Deep processes against plain ones, brute-force sampling and their own bound."""

import warnings

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from reference import (
    batch,
    build,
    curve,
    evaluate,
    gaussian_kl,
    posterior,
    setting,
    smooth,
    stepped,
)

from dagp import DAGP, GP, DeepGP, Noise, SearchWarning, datasets
from dagp.model.association import DataAssociation, NaturalRates
from dagp.model.deep_stack import DeepStack, normal_points
from dagp.model.process import over_samples, per_sample
from dagp.model.sparse_gp import Marginals
from dagp.model.variational import DiagonalGaussian, MeanFactorGaussian

INDUCING = np.linspace(0, 3, 7)[:, None]
X, Y = curve(0, n=15)


def deep_process(layers=2, seed=0, inducing=INDUCING, **settings):
    """A deep process whose inner layers bend the input visibly."""
    here = setting(inducing)
    prior = DeepGP(layers, noise_std=0.2, **settings)
    process = prior.deepened(prior.build(here), here)
    rng = np.random.default_rng(seed)

    def bent(layer):
        shape = layer.q.mean.raw.shape
        mean = 0.5 * rng.standard_normal(shape)
        # As in files of version 0.2 and before, where values of inner layers were correlated.
        factor = np.tril(0.3 * rng.standard_normal((*shape, shape[-1])))
        return eqx.tree_at(lambda gp: gp.q, layer, MeanFactorGaussian.of(mean, factor))

    inner = tuple(bent(layer) for layer in process.latent.inner)
    return eqx.tree_at(lambda p: p.latent.inner, process, inner)


@pytest.mark.parametrize(("dimensions", "count", "least"), [(3, 20, 20), (5, 6, 6), (5, 2, 6)])
def test_points_have_the_moments_of_a_standard_normal(dimensions, count, least):
    points = normal_points(dimensions, count)
    assert len(points) == least
    np.testing.assert_allclose(points.mean(axis=0), 0, atol=1e-12)
    covariance = points.T @ points / len(points)
    np.testing.assert_allclose(covariance, np.eye(dimensions), atol=1e-12)


def test_samples_are_laid_out_point_by_point():
    values = np.arange(6.0).reshape(3, 2)
    np.testing.assert_array_equal(per_sample(values, 2), np.vstack([values, values]))
    np.testing.assert_array_equal(over_samples(per_sample(jnp.asarray(values), 4), 4), values)


def test_kl_of_moments(float64):
    rng = np.random.default_rng(1)
    mean, factor = rng.standard_normal((2, 4)), np.tril(rng.standard_normal((2, 4, 4)))
    expected = sum(gaussian_kl(m, f @ f.T, np.eye(4)) for m, f in zip(mean, factor, strict=True))
    np.testing.assert_allclose(MeanFactorGaussian.of(mean, factor).kl(), expected, rtol=1e-9)


def test_independent_values_are_a_diagonal_factor(float64):
    rng = np.random.default_rng(2)
    mean, std = rng.standard_normal((2, 4)), rng.uniform(0.1, 2, (2, 4))
    q = DiagonalGaussian.isotropic(2, 4, 0.5)
    q = eqx.tree_at(lambda q: (q.mean.raw, q.std.raw), q, (mean, np.log(std)))
    full = MeanFactorGaussian.of(mean, np.stack([np.diag(row) for row in std]))
    np.testing.assert_allclose(q.kl(), full.kl(), rtol=1e-9)
    basis = rng.standard_normal((4, 6))
    for moments, same in ((q.moments, full.moments), (q.as_natural().moments, full.moments)):
        for found, expected in zip(moments(basis), same(basis), strict=True):
            np.testing.assert_allclose(found, expected, rtol=1e-9)


def test_one_layer_is_a_plain_gp_to_the_last_digit(float64):
    plain = build([smooth()], INDUCING)
    process = plain.process(0)
    stack = DeepStack((), process.latent, np.zeros((1, 0)))
    stacked = DataAssociation.assemble(
        [eqx.tree_at(lambda p: p.latent, process, stack)], plain.gate
    )
    data = batch(X, Y, 1)
    shares = jnp.ones((len(X), 1))
    for _ in range(2):
        plain, stacked = stepped(plain, data, shares), stepped(stacked, data, shares)
        assert float(evaluate(plain, data)[0].value) == float(evaluate(stacked, data)[0].value)


def test_a_certain_identity_below_changes_nothing(float64):
    here = setting(INDUCING)
    plain = smooth().build(here)
    stack = DeepGP(3).stacked(plain.latent, here)
    certain = tuple(
        eqx.tree_at(lambda gp: gp.q, layer, MeanFactorGaussian.isotropic(1, len(INDUCING), 1e-9))
        for layer in stack.inner
    )
    # A prior of no variance leaves nothing between the inducing points either.
    certain = eqx.tree_at(
        lambda layers: [gp.kernel.variance.raw for gp in layers], certain, [np.asarray(-60.0)] * 2
    )
    stack = eqx.tree_at(lambda s: s.inner, stack, certain)
    found, expected = posterior(stack, X), posterior(plain.latent, X)
    samples = stack.samples
    np.testing.assert_allclose(found.mean, per_sample(expected.mean, samples), atol=1e-5)
    np.testing.assert_allclose(found.variance, per_sample(expected.variance, samples), atol=1e-4)


@pytest.mark.parametrize("layers", [2, 3])
def test_expected_log_density_by_brute_force(layers, float64):
    process = deep_process(layers, samples=256)
    found = process.expected_log_density(posterior(process, X), Y)
    rng = np.random.default_rng(3)
    draws = 4000
    rows = np.tile(X, (draws, 1))
    for layer in process.latent.inner:
        mean, variance = posterior(layer, rows)
        rows = mean + np.sqrt(variance) * rng.standard_normal(mean.shape)
    mean, variance = posterior(process.latent.last, rows)
    noise = 0.2**2 + float(process.floor) ** 2
    y = np.tile(Y, (draws, 1))
    each = -0.5 * (((y - mean) ** 2 + variance) / noise + np.log(2 * np.pi * noise))
    each = np.asarray(each).reshape(draws, len(X))
    error = each.std(axis=0) / np.sqrt(draws)
    assert np.all(abs(np.asarray(found) - each.mean(axis=0)) < 5 * error + 0.02 * abs(found))


def test_a_full_natural_step_is_the_best_last_layer(float64):
    process = deep_process()
    share = jnp.asarray(np.random.default_rng(4).uniform(0.1, 1, len(X)))

    @jax.jit
    def bound(process):
        density = process.expected_log_density(process.marginals(process.project(X)), Y)
        return share @ density - process.kl()

    projection = process.project(X)
    best = process.natural_step(projection, process.marginals(projection), Y, share, 1.0)
    again = best.natural_step(projection, best.marginals(projection), Y, share, 1.0)
    np.testing.assert_allclose(again.latent.last.q.shift, best.latent.last.q.shift, rtol=1e-8)
    slope = jax.grad(lambda shift: bound(eqx.tree_at(lambda p: p.latent.last.q.shift, best, shift)))
    np.testing.assert_allclose(slope(best.latent.last.q.shift), 0, atol=1e-7)
    assert bound(best) > bound(process)


def test_width_projects_or_pads():
    inducing = np.random.default_rng(0).standard_normal((9, 3))
    here = setting(inducing)
    for width in (1, 2, 5):
        prior = DeepGP(3, width=width)
        process = prior.deepened(prior.build(here), here)
        mean, variance = posterior(process, inducing[:4])
        assert mean.shape == variance.shape == (4 * process.latent.samples, 1)
        assert process.latent.last.inducing.raw.shape == (9, width)
        assert np.all(np.isfinite(mean))


def test_a_deep_gate_takes_natural_steps(float64):
    here = setting(INDUCING)
    plain = build([smooth(), smooth()], INDUCING)
    gate = DeepGP(2).deepened_gate(plain.gate, here)
    model = DataAssociation.assemble([plain.process(0), plain.process(1)], gate)
    left = np.asarray(X[:, 0] < 1.5, float)
    shares = jnp.asarray(np.stack([left, 1 - left], axis=1))
    data = batch(X, Y, 2)
    for _ in range(30):
        model = stepped(model, data, shares, NaturalRates(1.0, 0.5))
    weights = np.asarray(posterior(model.gate, X).weights)
    np.testing.assert_allclose(weights.sum(axis=1), 1)
    np.testing.assert_array_equal(weights[:, 0] > 0.5, left > 0)


def test_marginals_of_a_deep_process_have_a_row_per_sample():
    process = deep_process()
    marginals = posterior(process, X)
    assert isinstance(marginals, Marginals)
    components = process.components(marginals)
    assert components.mean.shape == (process.latent.samples, len(X), 1)
    np.testing.assert_allclose(np.sum(components.masses), 1)


# ------------------------------------------------------------------ as a user sees it

STEP_X = np.linspace(-1, 1, 80)[:, None]
STEP_Y = (STEP_X[:, 0] > 0.1) + 0.05 * np.random.default_rng(0).standard_normal(80)
QUICK = {"n_init": 1, "tol": 1e-3, "inducing": 16, "random_state": 0}


@pytest.fixture(scope="module")
def step_models():
    """A step, by one layer and by two."""
    priors = {"plain": GP(), "one": DeepGP(1), "two": DeepGP(2)}
    return {
        name: DAGP(1, processes=prior, **QUICK).fit(STEP_X, STEP_Y)
        for name, prior in priors.items()
    }


def test_one_layer_gives_the_same_fit(step_models):
    plain, one = step_models["plain"], step_models["one"]
    assert plain.lower_bound_ == one.lower_bound_
    np.testing.assert_array_equal(plain.predict(STEP_X), one.predict(STEP_X))


def test_depth_helps_with_a_step(step_models):
    plain, deep = step_models["plain"], step_models["two"]
    assert deep.lower_bound_ > plain.lower_bound_ + 10
    x = np.linspace(-1, 1, 500)[:, None]
    y = (x[:, 0] > 0.1) + 0.05 * np.random.default_rng(1).standard_normal(500)
    assert deep.log_score(x, y) > plain.log_score(x, y) + 0.1


def test_a_deep_model_comes_back_from_its_file(step_models, tmp_path):
    deep = step_models["two"]
    again = DAGP.load(deep.save(tmp_path / "deep.dagp"))
    one, other = (model.predict_mixture(STEP_X[:3]) for model in (again, deep))
    for name in ("weights", "means", "variances"):
        np.testing.assert_array_equal(getattr(one, name), getattr(other, name))
    assert again.summary(verbose=True) == deep.summary(verbose=True)


def test_a_deep_prediction_is_a_mixture_over_samples(step_models):
    deep = step_models["two"]
    mixture = deep.predict_mixture(STEP_X[:3])
    assert len(mixture.owner) > 1 and set(mixture.owner) == {0}
    np.testing.assert_allclose(mixture.responsibilities([0.0, 0.5, 1.0]), 1)
    process = deep.processes_[0]
    assert process.kind == "DeepGP"
    draws = process.sample_y(STEP_X, 20, random_state=0)
    assert draws.shape == (20, 80)
    mean, std = process.predict(STEP_X, return_std=True)
    assert np.mean(abs(draws.mean(axis=0) - mean) < 5 * std) > 0.95


@pytest.mark.parametrize(
    "clutter", [(), pytest.param((Noise(),), marks=pytest.mark.slow)], ids=["functions", "clutter"]
)
def test_mixed_stacks_and_a_deep_gate(clutter):
    rng = np.random.default_rng(0)
    n = 120 if clutter else 60
    x = np.sort(rng.uniform(-1, 1, n))
    y = np.where(np.arange(n) % 2 == 0, (x > 0) * 1.0, 3 + x) + 0.05 * rng.standard_normal(n)
    wild = np.s_[::10] if clutter else np.s_[:0]
    y[wild] = rng.uniform(-2, 5, 12)[: 12 * len(clutter)]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", SearchWarning)
        model = DAGP(
            processes=[DeepGP(2), GP(), *clutter], gate=DeepGP(2), **{**QUICK, "n_init": 2}
        ).fit(x[:, None], y)
    assert np.isfinite(model.lower_bound_)
    assert [p.kind for p in model.processes_] == ["DeepGP", "GP", *["Noise"] * len(clutter)]
    np.testing.assert_allclose(model.predict_assignment(x[:5, None]).sum(axis=1), 1)
    functions = np.delete(np.arange(n), wild)
    two = functions[model.responsibilities_[functions, :2].sum(axis=1) > 0.5]
    right = np.mean((model.responsibilities_[two, 0] < 0.5) == (two % 2 == 1))
    assert max(right, 1 - right) > 0.95


@pytest.mark.parametrize("wrong", [{"layers": 0}, {"width": 1.5}, {"samples": 0}])
def test_impossible_depths_are_refused(wrong):
    with pytest.raises(ValueError, match=next(iter(wrong))):
        DAGP(1, processes=DeepGP(**wrong), **QUICK).fit(STEP_X, STEP_Y)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
def test_deep_in_batches_is_as_good_as_with_all_data():
    data = datasets.steps(random_state=1)
    settings = {"max_iter": 200, "n_init": 1, "random_state": 0}
    whole = DAGP(1, DeepGP(2), **settings).fit(data.X, data.y)
    batches = DAGP(1, DeepGP(2), batch_size=64, **settings).fit(data.X, data.y)
    assert batches.lower_bound_ > whole.lower_bound_ - 0.05 * len(data.X)
    assert abs(batches.log_score(data.X, data.y) - whole.log_score(data.X, data.y)) < 0.1
