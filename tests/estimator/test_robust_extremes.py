"""What random fits found: data, weights and labels at the edge of what numbers can hold."""

import warnings

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from dagp import DAGP, GP, FitError, Mixture, Uniform, kernels
from dagp.core.linalg import cholesky_positive_definite
from dagp.core.precision import numerics
from dagp.inference import stream
from dagp.inference.concrete import with_mean_factor_q
from dagp.inference.elbo import responsibilities
from dagp.inference.minibatch import streaming_update
from dagp.model.association import Batch, apply_labels
from dagp.model.gp import Heteroscedastic, HeteroscedasticProcess
from dagp.model.sparse_gp import Marginals
from dagp.model.variational import NaturalGaussian

RNG = np.random.default_rng(0)
X = np.linspace(-1, 1, 24)[:, None]
Y = np.sin(3 * X[:, 0]) + 0.1 * RNG.standard_normal(24)
QUICK = {"n_init": 1, "max_iter": 1, "tol": 1e3, "inducing": 6, "random_state": 0}


def fitted(model, *data):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return model.fit(*data)


@pytest.mark.parametrize("unlikely", [-1e30, -1e36, -1e200])
def test_a_label_outweighs_any_density(unlikely):
    joint = np.array([[0.0, unlikely], [unlikely, unlikely], [0.0, 1.0]])
    label_log_mask = np.array([[-1e30, 0.0], [0.0, -1e30], [0.0, 0.0]])
    with numerics("float64"):
        batch = Batch(np.zeros((3, 1)), np.zeros((3, 1)), np.ones(3), jnp.asarray(label_log_mask))
        shares = np.asarray(responsibilities(apply_labels(jnp.asarray(joint), batch)))
    np.testing.assert_array_equal(shares[:2], [[0, 1], [1, 0]])
    np.testing.assert_allclose(shares[2], [1 / (1 + np.e), np.e / (1 + np.e)])


def test_a_row_without_weight_keeps_its_label_outside_the_range():
    y, weight, labels = Y.copy(), np.ones(24), np.full(24, -1)
    y[3], weight[3], labels[3] = 50.0, 0.0, 1
    model = fitted(DAGP(processes=[GP(), Uniform()], **QUICK), X, y, weight, labels)
    assert model.assignment_[3] == 1


def test_a_precision_that_rounding_undid_has_a_factor():
    with numerics("float32"):
        basis = jnp.ones((6, 1), jnp.float32) * jnp.asarray(1e6, jnp.float32)
        lost = basis @ basis.T + jnp.eye(6, dtype=jnp.float32)
        assert not np.isfinite(np.asarray(jnp.linalg.cholesky(lost))).all()
        assert np.isfinite(np.asarray(cholesky_positive_definite(lost))).all()


def test_a_sound_precision_is_left_as_it_is():
    with numerics("float64"):
        sound = jnp.asarray(np.eye(5) + np.ones((5, 5)))
        np.testing.assert_array_equal(cholesky_positive_definite(sound), jnp.linalg.cholesky(sound))


def test_distances_do_not_depend_on_where_zero_is():
    points = RNG.uniform(-3, 3, (9, 2))
    with numerics("float64"):
        kernel = kernels.SquaredExponential(lengthscale=[1.0, 1.0], variance=1.0)
        near = np.asarray(kernel(jnp.asarray(points), jnp.asarray(points)))
        # 2e9 is a multiple of the spacing of numbers there: nothing but the place changes.
        shifted = np.round(points * 2**20) / 2**20
        far = np.asarray(kernel(jnp.asarray(shifted + 2.0**30), jnp.asarray(shifted + 2.0**30)))
    np.testing.assert_allclose(far, near, atol=1e-5)


def test_uneven_noise_stays_a_number():
    with numerics("float64"):
        process = fitted(DAGP(processes=[GP(noise_gp=GP())], **QUICK), X, Y)
        process = process.posterior_.model.process(0)
        assert isinstance(process, HeteroscedasticProcess)
        flat = Marginals(jnp.zeros((2, 1)), jnp.ones((2, 1)))
        wild = Marginals(jnp.array([[0.0], [4e4]]), jnp.ones((2, 1)))
        noise = np.asarray(process.components(Heteroscedastic(flat, wild)).noise)
    assert np.isfinite(noise).all()
    assert (noise[:, 1] > noise[:, 0]).all()


def test_modes_of_a_mixture_without_plains():
    unused = Mixture(
        np.array([[1.0, 0.0]]), np.array([[0.3, 0.0]]), np.ones((1, 2)), uniform=(False, True)
    )
    np.testing.assert_allclose(unused.modes()[0], [0.3], atol=1e-9)


def test_rows_that_a_stream_cannot_take_in_are_refused_and_forgotten(monkeypatch):
    model = fitted(DAGP(1, **QUICK), X, Y)
    before = model.predict(X)

    def overflowing(*given):
        state, bound = streaming_update(*given)
        return state._replace(model=jax.tree.map(lambda leaf: leaf * np.nan, state.model)), bound

    monkeypatch.setattr(stream, "streaming_update", overflowing)
    with pytest.raises(FitError, match="beyond what the model can take in"):
        model.partial_fit(X, Y)
    np.testing.assert_array_equal(model.predict(X), before)
    monkeypatch.undo()
    assert np.isfinite(model.partial_fit(X, Y).predict(X)).all()


def test_the_papers_scheme_begins_from_great_weights():
    model = fitted(DAGP(1, dtype="float32", **{**QUICK, "inducing": 20}), X, Y).stream_.model
    great = np.where(np.arange(20) < 10, 1e7, 1.0)
    for seed in range(20):
        turned = np.linalg.qr(np.random.default_rng(seed).standard_normal((20, 20)))[0]
        precision = ((turned * great) @ turned.T).astype(np.float32)
        q = NaturalGaussian(precision[None, None], np.zeros((1, 1, 20), np.float32))
        with numerics("float32"):
            moved = with_mean_factor_q(eqx.tree_at(lambda m: m.groups[0].latent.q, model, q))
            factor = np.asarray(moved.groups[0].latent.q.factor.raw, np.float64)[0, 0]
        # Where the data say a lot, the variance is what they leave; elsewhere it is the prior's.
        spread = np.linalg.eigvalsh(factor @ factor.T)
        assert ((spread[10:] > 0.1) & (spread[10:] < 10)).all()
        assert (spread[:10] < 1e-4).all()


def test_regions_of_densities_as_tall_as_numbers_allow():
    narrow = Mixture([[0.5, 0.5]], [[0.0, 1e-10]], [[1e-40, 1e-40]])
    (low, high), (other_low, other_high) = narrow.hdr(0.9)[0]
    assert low < 0.0 < high < 1e-12 < other_low < 1e-10 < other_high


@pytest.mark.parametrize(
    ("prior", "words"),
    [
        (GP(noise_std=0.1), "noise_std is 1e-01, but y spreads over about .e-2."),
        (GP(kernels.SquaredExponential(variance=4.0)), "variance is 4e[+]00, but y spreads"),
    ],
)
def test_variances_that_single_precision_cannot_hold_are_refused(prior, words):
    X = np.linspace(0, 1, 12)[:, None]
    y = 1e-21 * np.sin(9 * X[:, 0])
    with pytest.raises(ValueError, match=f"{words}.*exceeds float32"):
        DAGP(processes=[prior], dtype="float32", random_state=0).fit(X, y)
