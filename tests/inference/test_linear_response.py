"""What doubt about the assignments adds to the variances: by differentiation, and by counting."""

import dataclasses
import itertools

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from reference import (
    NOISE,
    PROCESSES_ONLY,
    batch,
    build,
    curve,
    exact_gp,
    random_shares,
    setting,
    smooth,
    smooth_covariance,
)

from dagp import DAGP, GP, DeepGP, Uniform
from dagp.inference.elbo import collapsed_elbo, responsibilities
from dagp.inference.standardize import Prepared, Sample, Units
from dagp.kernels import SquaredExponential
from dagp.model.association import DataAssociation
from dagp.model.gates import ConstantGate
from dagp.model.variational import NaturalGaussian
from dagp.predict.posterior import Posterior
from dagp.predict.widening import widened

pytestmark = pytest.mark.usefixtures("float64")

INDUCING = np.linspace(0.1, 2.9, 7)[:, None]
CLUTTER = Uniform(-3.0, 3.0)
GATE = ConstantGate(np.log([0.6, 0.4]))
ALONE = ConstantGate(np.zeros(1))


def settled(priors, X, y, inducing=INDUCING):
    """A model at its optimum, the hyperparameters and the gate given."""
    gate = GATE if len(priors) > 1 else ALONE
    model = build(priors, inducing, outputs=y.shape[1], gate=gate)
    data = batch(X, y, len(priors))
    shares = jnp.asarray(random_shares(0, len(X), len(priors)))

    return jax.tree.map(np.asarray, finish(model, data, shares))


@jax.jit
def finish(model, data, shares):
    projection = model.project(data.X)

    def again(_, model):
        marginals = model.marginals(projection)
        found = responsibilities(model.log_joint(marginals, data))
        return model.natural_step(projection, marginals, data, found, PROCESSES_ONLY)

    marginals = model.marginals(projection)
    model = model.natural_step(projection, marginals, data, shares, PROCESSES_ONLY)
    return jax.lax.fori_loop(0, 300, again, model)


def widened_model(model, X, y, labels=None):
    D, P = X.shape[1], y.shape[1]
    units = Units(np.zeros(D), np.ones(D), np.zeros(P), np.ones(P))
    labels = np.full(len(X), -1) if labels is None else labels
    rows = Sample(X, y, np.ones(len(X)), labels)
    return widened(Posterior(model, units), Prepared.of(rows, units).sample).model


def polluted(seed, n=12):
    """A curve, some points of which are somewhere else."""
    X, y = curve(seed, n)
    away = np.random.default_rng(seed).permutation(n)[: n // 4]
    y[away] += 0.6
    return X, y


@pytest.mark.parametrize(
    ("noise", "clutter"), [("gaussian", (CLUTTER,)), ("student", (CLUTTER,)), ("laplace", ())]
)
def test_precision_is_how_the_bound_bends(noise, clutter):
    X, y = curve(0, 16, outputs=2)
    y[::4] += 0.7
    model = settled([dataclasses.replace(smooth(), noise=noise), *clutter], X, y)
    process, data = model.process(0), batch(X, y, 1 + len(clutter))
    precision = process.latent.q.precision

    def bound(means):
        shift = jnp.einsum("pij,pj->pi", precision, means)
        moved = eqx.tree_at(lambda m: m.groups[0].latent.q.shift, model, shift[None])
        return collapsed_elbo(moved, moved.project(X), data).value

    means = np.linalg.solve(precision, process.latent.q.shift[..., None])[..., 0]
    curvature = -np.asarray(jax.jit(jax.hessian(bound))(jnp.asarray(means)))
    found = widened_model(model, X, y).process(0).latent.q
    for p in range(2):
        np.testing.assert_allclose(found.precision[p], curvature[p, :, p], rtol=1e-5, atol=1e-5)
    after = np.linalg.solve(found.precision, found.shift[..., None])[..., 0]
    np.testing.assert_allclose(after, means, atol=1e-9)
    assert np.max(np.abs(found.precision - precision)) > 0.1


def counted(X, y):
    """Exact variance of the function at X, over all 2^N ways to assign the points."""
    K, odds, means, variances = smooth_covariance(X, X), [], [], []
    for choice in itertools.product([True, False], repeat=len(X)):
        own = np.array(choice)
        if not own.any():
            continue  # never, with these data
        some = exact_gp(K[np.ix_(own, own)], y[own, 0], NOISE**2, K[:, own], np.diag(K))
        clutter = np.sum(~own) * (np.log(0.4) - np.log(6.0))
        odds.append(some.evidence + np.sum(own) * np.log(0.6) + clutter)
        means.append(some.mean)
        variances.append(some.variance)
    weight = np.exp(np.array(odds) - max(odds))
    weight /= weight.sum()
    spread = np.array(means) - weight @ np.array(means)
    return weight @ (np.array(variances) + spread**2)


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_variances_come_closer_to_those_of_all_assignments(seed):
    rng = np.random.default_rng(seed)
    X = np.sort(rng.uniform(0, 1, 11))[:, None]
    y = np.sin(2 * X) + NOISE * rng.standard_normal(X.shape)
    y[rng.permutation(11)[:3]] += 0.7
    model = settled([smooth(), CLUTTER], X, y, inducing=np.linspace(0, 1, 5)[:, None])
    parts = [one.process(0) for one in (model, widened_model(model, X, y))]
    before, after = (p.marginals(p.project(X)).variance[:, 0] for p in parts)
    truth = counted(X, y)
    assert np.all(after >= before)
    # q leaves out a good part of the variance; most of that is back.
    short, left = np.abs(np.log(truth / before)), np.abs(np.log(truth / after))
    assert np.mean(short) > 0.4
    assert np.mean(left) < 0.5 * np.mean(short)


def test_certain_points_change_nothing():
    X, y = polluted(1)
    model = settled([smooth(), CLUTTER], X, y)
    known = widened_model(model, X, y, labels=np.arange(len(X)) % 2)
    np.testing.assert_allclose(
        known.process(0).latent.q.precision, model.process(0).latent.q.precision, rtol=1e-12
    )


def test_nobody_knows_less_than_the_prior():
    X, y = polluted(2)
    model = settled([smooth(), CLUTTER], X, y)
    # A q that is nowhere near an optimum: the bound may bend the wrong way there.
    nothing = eqx.tree_at(lambda m: m.groups[0].latent.q, model, _at_prior(model))
    precision = widened_model(nothing, X, y).process(0).latent.q.precision
    assert np.linalg.eigvalsh(precision).min() > 1 - 1e-9


def _at_prior(model):
    shape = model.groups[0].latent.q.precision.shape
    q = NaturalGaussian.prior(shape[1], shape[2])
    return NaturalGaussian(q.precision[None], q.shift[None])


def test_one_process_is_left_alone():
    X, y = curve(3)
    model = build([smooth()], INDUCING)
    assert widened_model(model, X, y) is model


def test_noise_that_varies():
    """Where the log of the noise is certain to be zero, it is noise that does not vary."""
    X, y = polluted(3)
    plain = settled([smooth(), CLUTTER], X, y)
    with_noise_gp = settled([smooth(), CLUTTER], X, y)
    here = setting(INDUCING)
    flat = GP(SquaredExponential(1.0, 1e-12))
    whole = jax.tree.map(jnp.asarray, with_noise_gp)
    process = GP(noise_gp=flat).deepened(whole.process(0), here)
    model = DataAssociation.assemble([process, with_noise_gp.process(1)], with_noise_gp.gate)
    found, expected = (widened_model(m, X, y).process(0).latent.q for m in (model, plain))
    np.testing.assert_allclose(found.precision, expected.precision, rtol=1e-6, atol=1e-6)


def test_deep_processes_are_left_alone():
    X, y = curve(4)
    here = setting(INDUCING)
    prior = DeepGP(2)
    deep = prior.deepened(prior.build(here), here)
    model = DataAssociation.assemble([deep, CLUTTER.build(here)], GATE)
    assert widened_model(model, X, y) is model


def test_fits_end_with_it_and_go_on_without():
    X, y = polluted(5, 40)
    model = DAGP(processes=[GP(), CLUTTER], n_init=1, tol=1e-1, random_state=0).fit(X, y[:, 0])
    trained, answers = model.stream_.model, model.posterior_
    rows = Prepared.of(Sample(X, y, np.ones(40), np.full(40, -1)), answers.units)
    expected = widened(Posterior(trained, answers.units), rows.sample).model.process(0).latent.q
    found = answers.model.process(0).latent.q
    np.testing.assert_allclose(found.precision, expected.precision, rtol=1e-9)
    assert np.any(found.precision != trained.process(0).latent.q.precision)
