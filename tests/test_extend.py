"""A process and a gate of a user's own, through every part of the library, unchanged."""

import dataclasses
import warnings
from dataclasses import dataclass

import equinox as eqx
import jax
import jax.numpy as jnp
import matplotlib as mpl
import matplotlib.pyplot as plt
import numpy as np
import pytest
from jax.scipy.special import erf
from scipy.stats import laplace

from dagp import DAGP, GP, Noise, parameter, plot, report
from dagp.extend import (
    BuildContext,
    Components,
    Gate,
    GateMarginals,
    GatePrior,
    Marginals,
    NoisyFunction,
    ProcessPrior,
)
from dagp.model.parameters import Parameter
from dagp.storage import register

mpl.use("agg")

SCALES, MASSES = np.array([0.25, 1.0, 3.0]), np.array([0.35, 0.45, 0.2])
"""A normal scale mixture close to a Laplace density of variance one."""
VARIANCES = SCALES / (SCALES @ MASSES)


@register
class LaplaceProcess(NoisyFunction):
    """A function with a GP prior, observed with Laplace noise of standard deviation `noise_std`."""

    @property
    def kind(self):
        return "Laplace"

    def project(self, X):
        return self.latent.project(X)

    def marginals(self, projection):
        return self.latent.marginals(projection)

    def expected_log_density(self, marginals, y):
        scale = jnp.sqrt(self.noise_variance() / 2)
        gap, std = y - marginals.mean, jnp.sqrt(marginals.variance + 1e-12)
        # E|y − f| of a normal f.
        far = gap * erf(gap / (np.sqrt(2) * std))
        near = std * np.sqrt(2 / np.pi) * jnp.exp(-0.5 * (gap / std) ** 2)
        return -jnp.sum((far + near) / scale + jnp.log(2 * scale), axis=-1)

    def natural_step(self, projection, marginals, y, responsibility, rate):
        def total(m):
            return jnp.sum(responsibility * self.expected_log_density(m, y))

        slope = jax.grad(total)(marginals)
        weight = jnp.maximum(-2 * slope.variance, 0.0)
        target = slope.mean + weight * (marginals.mean - projection.mean)
        latent = self.latent.natural_step(projection, target, weight, 0.5 * rate)
        return eqx.tree_at(lambda process: process.latent, self, latent)

    def kl(self):
        return self.latent.kl()

    def components(self, marginals):
        mean, variance = (jnp.broadcast_to(part, (3, *part.shape)) for part in marginals)
        noise = VARIANCES[:, None, None] * self.noise_variance()
        return Components(jnp.asarray(MASSES), mean, variance, jnp.broadcast_to(noise, mean.shape))


@register
@dataclass(frozen=True)
class LaplaceGP(ProcessPrior):
    """The prior a user states."""

    function: GP = dataclasses.field(default_factory=GP)

    def build(self, context: BuildContext) -> LaplaceProcess:
        plain = self.function.build(context)
        return LaplaceProcess(plain.latent, plain.noise_std, plain.floor)


@register
class LinearGate(Gate):
    """Log odds that are linear in the inputs, with weights trained by Adam."""

    slope: Parameter
    offset: Parameter

    def project(self, X):
        return X

    def marginals(self, projection):
        logits = projection @ self.slope.value + self.offset.value
        log_weights = jax.nn.log_softmax(logits, axis=-1)
        weights = jnp.exp(log_weights)
        latent = Marginals(logits, jnp.zeros_like(logits))
        return GateMarginals(latent, log_weights, weights, weights, weights * (1 - weights))

    def natural_step(self, projection, marginals, responsibilities, weight, rate):
        return self

    def kl(self):
        return jnp.asarray(0.0)


@register
@dataclass(frozen=True)
class LinearGating(GatePrior):
    """The prior a user states."""

    def build_gate(self, context, n_processes):
        slope = np.zeros((context.inducing.shape[1], n_processes))
        return LinearGate(
            parameter(slope, support="real"), parameter(np.zeros(n_processes), support="real")
        )


def regimes(n=120, seed=0):
    """Two functions, one on either side of zero, with Laplace noise."""
    rng = np.random.default_rng(seed)
    X = np.sort(rng.uniform(-1, 1, (n, 1)), axis=0)
    right = X[:, 0] > 0
    y = np.where(right, 2 + np.sin(4 * X[:, 0]), -2 - X[:, 0]) + rng.laplace(0, 0.05, n)
    return X, y, right


@pytest.fixture(scope="module")
def data():
    return regimes()


@pytest.fixture(scope="module")
def model(data):
    X, y, _ = data
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return DAGP(
            processes=[LaplaceGP(), LaplaceGP()],
            gate=LinearGating(),
            n_init=3,
            inducing=10,
            tol=1e-2,
            random_state=0,
        ).fit(X, y)


def test_the_expected_log_density_is_that_of_laplace_noise(model):
    process = model.stream_.model.process(0)
    y, certain = np.array([[0.3], [-1.2]]), np.zeros((2, 1))
    with jax.enable_x64(True):
        found = process.expected_log_density(Marginals(certain, certain), y)
        scale = float(np.sqrt(process.noise_variance()[0] / 2))
    np.testing.assert_allclose(found, laplace.logpdf(y[:, 0], 0, scale), rtol=1e-4)


def test_both_regimes_and_their_gate_are_found(model, data):
    X, _, right = data
    one = model.assignment_ == model.assignment_[-1]
    np.testing.assert_array_equal(one, right)
    weights = model.predict_assignment(X)
    np.testing.assert_allclose(weights.sum(axis=1), 1)
    assert np.mean((weights[:, model.assignment_[-1]] > 0.5) == right) > 0.97
    assert [p.kind for p in model.processes_] == ["Laplace", "Laplace"]


def test_predictions_know_the_components_of_the_process(model, data):
    X, y, _ = data
    mixture = model.predict_mixture(X)
    assert mixture.weights.shape == (len(X), 6)
    np.testing.assert_allclose(model.responsibilities(X, y).sum(axis=1), 1)
    away = np.abs(X[:, 0]) > 0.4  # where the gate is certain
    assert np.sqrt(np.mean((model.predict(X) - y)[away] ** 2)) < 0.15
    assert np.all(np.isfinite(model.score_samples(X, y)))
    assert model.processes_[0].sample_y(X[:5], 2, random_state=0).shape == (2, 5)
    assert np.all(model.processes_[0].noise_std(X[:5]) > 0)


def test_linear_response_applies_to_it(model):
    trained, answers = model.stream_.model.process(0), model.posterior_.model.process(0)
    loss = trained.latent.q.precision - answers.latent.q.precision
    assert trained.can_widen and np.any(loss != 0)
    assert np.linalg.eigvalsh(loss).min() > -1e-6 * np.linalg.norm(trained.latent.q.precision)


def test_it_is_saved_loaded_and_described(model, data, tmp_path):
    X, y, _ = data
    again = DAGP.load(model.save(tmp_path / "own.dagp", (X, y)))
    np.testing.assert_array_equal(again.predict(X), model.predict(X))
    assert again.processes[0] == LaplaceGP()
    assert "Laplace" in again.summary()
    assert "Laplace" in again.explain(X[0], y[0]).opinions[0].kind
    page = report.write(again, X, y, tmp_path / "own.html").read_text()
    assert "Laplace" in page
    assert len(plot.overview(again, X, y)) == 3
    plt.close("all")


def test_it_goes_on_learning(model, data, tmp_path):
    again = DAGP.load(model.save(tmp_path / "own.dagp"))
    X, y, right = regimes(seed=1)
    again.partial_fit(X, y)
    assert again.stream_.seen == 240
    assert np.mean((again.assignment_ == again.assignment_[-1]) == right) > 0.97


def test_it_mixes_with_processes_of_the_library(data):
    X, y, _ = data
    y = np.where(np.arange(len(y)) % 15 == 0, 6.0, y)
    model = DAGP(
        processes=[LaplaceGP(), GP(), Noise()], n_init=2, inducing=10, tol=1e-1, random_state=0
    ).fit(X, y)
    assert {p.kind for p in model.processes_} == {"Laplace", "GP", "Noise"}
    assert np.all(np.isfinite(model.responsibilities_))
