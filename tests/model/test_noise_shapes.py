"""Heavy-tailed noise against densities of SciPy, quadrature and numeric maximisation."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.stats
from reference import NOISE, curve, posterior, setting, smooth
from scipy.integrate import quad
from scipy.optimize import minimize
from scipy.special import digamma, gammaln

from dagp import GP, DeepGP, LogNormal, fixed, parameter
from dagp.model.gp import HeteroscedasticProcess
from dagp.model.noise_shapes import DEGREES, DEGREES_PRIOR, noise_shape
from dagp.model.sparse_gp import Marginals
from dagp.model.variational import NaturalGaussian
from dagp.predict.mixture import Mixture

pytestmark = pytest.mark.usefixtures("float64")

INDUCING = np.linspace(0, 3, 6)[:, None]
X, Y = curve(0, n=14, outputs=2)
Y[::5] += 1.5
Y[2, 1], Y[5, 0] = np.nan, np.nan
HEAVY = [("student", fixed(3.0)), ("laplace", None)]
KERNEL = smooth().kernel


def process_of(noise, degrees=None, outputs=1, **more):
    here = setting(INDUCING, outputs=outputs)
    prior = GP(KERNEL, noise_std=NOISE, noise=noise, degrees=degrees, **more)
    return prior.deepened(prior.build(here), here)


def at(gap, variance=0.0):
    """Marginals of functions at zero, and outputs this far from them."""
    gap = np.atleast_2d(np.asarray(gap, float).T).T
    return Marginals(np.zeros_like(gap), np.full_like(gap, variance)), gap


def std_of(process):
    return float(np.sqrt(process.noise_variance()[0]))


@pytest.mark.parametrize("degrees", [1.0, 2.5, 30.0])
def test_student_noise_around_a_known_function(degrees):
    process = process_of("student", fixed(degrees))
    found = process.expected_log_density(*at([0.0, 0.1, -1.0, 40.0]))
    exact = scipy.stats.t(degrees, 0, std_of(process)).logpdf([0.0, 0.1, -1.0, 40.0])
    np.testing.assert_allclose(found, exact, rtol=1e-10)


def test_laplace_noise_around_a_known_function_has_its_standard_deviation():
    process = process_of("laplace")
    exact = scipy.stats.laplace(0, std_of(process) / np.sqrt(2))
    found = process.expected_log_density(*at([0.1, -1.0, 40.0]))
    np.testing.assert_allclose(found, exact.logpdf([0.1, -1.0, 40.0]), rtol=1e-10)


def test_outputs_of_a_row_share_the_size_of_their_error():
    """Student-t of several outputs, and the same without those that are missing."""
    process = process_of("student", fixed(4.0), outputs=3)
    y = np.array([[0.3, -0.2, 1.0], [0.3, np.nan, 1.0], [np.nan, np.nan, 2.0]])
    found = process.expected_log_density(Marginals(np.zeros((3, 3)), np.zeros((3, 3))), y)
    for row, value in zip(y, found, strict=True):
        seen = row[~np.isnan(row)]
        shape = np.eye(len(seen)) * std_of(process) ** 2
        exact = scipy.stats.multivariate_t(np.zeros(len(seen)), shape, df=4).logpdf(seen)
        np.testing.assert_allclose(value, exact, rtol=1e-10)


@pytest.mark.parametrize("outputs", [2, 3])
def test_laplace_noise_of_several_outputs_is_an_exponential_mixture(outputs):
    process, gap = process_of("laplace", outputs=outputs), np.linspace(0.1, 0.9, outputs)
    zero = Marginals(np.zeros((1, outputs)), np.zeros((1, outputs)))
    square = np.sum(gap**2) / std_of(process) ** 2

    def density(u):
        return np.exp(u - np.exp(u) - outputs / 2 * u - square / 2 * np.exp(-u))

    norm = outputs * np.log(np.sqrt(2 * np.pi) * std_of(process))
    exact = np.log(quad(density, -20, 5)[0]) - norm
    np.testing.assert_allclose(process.expected_log_density(zero, gap[None])[0], exact, atol=3e-3)


def test_the_profile_is_the_maximum_over_q_of_the_sizes():
    """E[log p(y | f, λ)] − KL(q(λ) ‖ p(λ)), maximised over gamma densities q(λ)."""
    process, nu = process_of("student", fixed(3.0)), 3.0
    gap, variance, noise = 0.7, 0.05, std_of(process) ** 2
    square = (gap**2 + variance) / noise

    def negative(logs):
        a, b = np.exp(logs)
        log_mean, mean = digamma(a) - np.log(b), a / b
        fit = 0.5 * log_mean - 0.5 * np.log(2 * np.pi * noise) - 0.5 * mean * square
        prior = nu / 2 * np.log(nu / 2) - gammaln(nu / 2) + (nu / 2 - 1) * log_mean - nu / 2 * mean
        entropy = a - np.log(b) + gammaln(a) + (1 - a) * digamma(a)
        return -(fit + prior + entropy)

    best = minimize(negative, np.zeros(2), method="BFGS", options={"gtol": 1e-10})
    found = process.expected_log_density(*at([gap], variance))
    np.testing.assert_allclose(found, [-best.fun], rtol=1e-9)
    a, b = np.exp(best.x)
    there, squares = np.ones((1, 1)), np.array([[square]])
    np.testing.assert_allclose(process.shape.weight(squares, there), [[a / b]], rtol=1e-5)
    np.testing.assert_allclose(process.shape.spread(squares, there), [[a / b**2]], rtol=1e-5)


@pytest.mark.parametrize(("noise", "degrees"), HEAVY)
@pytest.mark.parametrize("outputs", [1, 2])
def test_moments_of_the_sizes_are_slopes_of_the_density(noise, degrees, outputs):
    """With ℓ(s) the log density at squared error s: E[λ] = −2ℓ′ and Var[λ] = 4ℓ″."""
    shape, there = noise_shape(noise, degrees), jnp.ones((1, outputs))

    def density(total):
        return shape.log_density(total * there / outputs, 0.0, there)[0]

    for total in (0.3, 2.0, 20.0):
        square = total * there / outputs
        slope, bend = jax.grad(density)(total), jax.grad(jax.grad(density))(total)
        np.testing.assert_allclose(shape.weight(square, there), [[-2 * slope]], rtol=1e-8)
        np.testing.assert_allclose(shape.spread(square, there), [[4 * bend]], rtol=1e-6)


def test_many_degrees_of_freedom_are_gaussian_noise():
    many, plain = process_of("student", fixed(1000.0), 2), process_of("gaussian", outputs=2)
    marginals = Marginals(np.nan_to_num(Y) - 0.2, np.full_like(Y, 0.01))
    # ν = 1000 is off by about s²/(4ν), in squared errors s.
    expected = plain.expected_log_density(marginals, Y)
    np.testing.assert_allclose(many.expected_log_density(marginals, Y), expected, atol=3e-3)
    few, whole = many.components(marginals), plain.components(marginals)
    np.testing.assert_allclose(few.masses @ few.noise[:, 0], whole.noise[0, 0], rtol=3e-3)


def rest(process, outputs, share):
    projection = process.project(X)

    @jax.jit
    def step(_, process):
        marginals = process.marginals(projection)
        return process.natural_step(projection, marginals, Y[:, :outputs], share, 1.0)

    return jax.lax.fori_loop(0, 300, step, process), projection


@pytest.mark.parametrize(
    ("noise", "degrees", "outputs", "vary"),
    [(*HEAVY[0], 1, False), (*HEAVY[0], 2, True), (*HEAVY[1], 1, True), (*HEAVY[1], 2, False)],
)
def test_natural_steps_come_to_rest_at_a_maximum(noise, degrees, outputs, vary):
    process = process_of(noise, degrees, outputs, noise_gp=GP() if vary else None)
    assert isinstance(process, HeteroscedasticProcess) == vary
    share = jnp.linspace(0.2, 1.0, len(X))
    process, projection = rest(process, outputs, share)

    @jax.jit
    def bound(moved):
        density = moved.expected_log_density(moved.marginals(projection), Y[:, :outputs])
        return jnp.sum(share * density) - moved.kl()

    slopes = jax.grad(bound)(process)
    np.testing.assert_allclose(slopes.latent.q.shift, 0, atol=1e-5)
    np.testing.assert_allclose(slopes.latent.q.precision, 0, atol=1e-5)
    if vary:
        np.testing.assert_allclose(slopes.log_noise.q.shift, 0, atol=1e-5)


@pytest.mark.parametrize(("noise", "degrees"), HEAVY)
def test_steps_never_lower_the_bound(noise, degrees):
    process, values = process_of(noise, degrees), []
    projection, share = process.project(X), jnp.ones(len(X))

    @jax.jit
    def step(process):
        marginals = process.marginals(projection)
        density = process.expected_log_density(marginals, Y[:, 1:])
        moved = process.natural_step(projection, marginals, Y[:, 1:], share, 1.0)
        return moved, jnp.sum(density) - process.kl()

    for _ in range(8):
        process, value = step(process)
        values.append(float(value))
    assert np.all(np.diff(values) > -1e-9) and values[-1] > values[0] + 1


def test_deep_functions_average_the_squared_error_over_their_samples():
    here = setting(INDUCING)
    prior = DeepGP(kernel=KERNEL, noise_std=NOISE, noise="student", degrees=fixed(3.0))
    process, y = prior.deepened(prior.build(here), here), Y[:, 1:]
    marginals = jax.jit(lambda p: p.marginals(p.project(X)))(process)
    samples = process.latent.samples
    mean, variance = (np.reshape(part, (samples, len(X))) for part in marginals)
    square = np.mean((y[:, 0] - mean) ** 2 + variance, axis=0)
    exact = scipy.stats.t(3.0, 0, std_of(process)).logpdf(np.sqrt(square))
    there = ~np.isnan(y[:, 0])
    found = process.expected_log_density(marginals, y)
    np.testing.assert_allclose(found[there], exact[there], rtol=1e-8)
    parts = process.components(marginals)
    np.testing.assert_allclose(parts.masses.sum(), 1)
    assert len(parts.masses) == len(parts.mean) == len(parts.noise) == 20 * samples


LEVELS = np.array([0.001, 0.01, 0.1, 0.5, 0.9, 0.99, 0.999])


@pytest.mark.parametrize("degrees", [1.0, 2.0, 3.0, 8.0, 1000.0])
def test_predictions_have_the_quantiles_and_densities_of_student_noise(degrees):
    masses, factors = noise_shape("student", fixed(degrees)).nodes()
    mixture = Mixture(masses[None], np.zeros((1, len(masses))), factors[None])
    exact = scipy.stats.t(degrees)
    quantiles = mixture.quantile(LEVELS)[:, 0]
    np.testing.assert_allclose(quantiles, exact.ppf(LEVELS), rtol=6e-3, atol=1e-9)
    y = exact.ppf(np.linspace(0.001, 0.999, 201))
    error = np.abs(mixture.log_prob(y[:, None])[:, 0] - exact.logpdf(y))
    assert error.max() < (0.06 if degrees < 2 else 0.005)
    if degrees > 2:
        np.testing.assert_allclose(mixture.variance(), degrees / (degrees - 2), rtol=3e-3)


def test_predictions_have_the_quantiles_and_densities_of_laplace_noise():
    masses, factors = noise_shape("laplace", None).nodes()
    mixture = Mixture(masses[None], np.zeros((1, len(masses))), factors[None])
    exact = scipy.stats.laplace(0, np.sqrt(0.5))
    np.testing.assert_allclose(
        mixture.quantile(LEVELS)[:, 0], exact.ppf(LEVELS), rtol=1e-3, atol=1e-9
    )
    y = exact.ppf(np.linspace(0.001, 0.999, 201))
    assert np.abs(mixture.log_prob(y[:, None])[:, 0] - exact.logpdf(y)).max() < 0.02
    np.testing.assert_allclose(mixture.variance(), 1, rtol=1e-3)


def test_predictions_include_the_variance_of_the_function():
    process, variance = process_of("student", fixed(3.0)), 0.09
    parts = process.components(at([0.0], variance)[0])
    mixture = Mixture(parts.masses[None], parts.mean[None, :, 0, 0], parts.variance[None, :, 0, 0])
    assert mixture.variance() == pytest.approx(variance)
    total = (parts.variance + parts.noise)[None, :, 0, 0]
    mixture = Mixture(parts.masses[None], parts.mean[None, :, 0, 0], total)
    noise = scipy.stats.t(3.0, 0, std_of(process))
    for y in (0.0, 0.4, 3.0):
        exact = quad(
            lambda f, y=y: noise.pdf(y - f) * scipy.stats.norm.pdf(f, 0, np.sqrt(variance)), -3, 3
        )[0]
        assert mixture.log_prob([y])[0] == pytest.approx(np.log(exact), abs=1e-3)


def test_degrees_of_freedom_have_a_range_and_a_prior():
    shape = noise_shape("student", None)
    assert float(shape.freedom) == pytest.approx(DEGREES) and shape.degrees.prior is DEGREES_PRIOR
    assert noise_shape("student", 7.0).degrees.prior is DEGREES_PRIOR
    own = LogNormal(5.0)
    assert noise_shape("student", parameter(5.0, prior=own)).degrees.prior is own
    for raw, value in ((-9.0, 1.0), (99.0, 1000.0)):
        far = eqx.tree_at(lambda s: s.degrees.raw, shape, np.asarray(raw))
        assert float(far.freedom) == value


@pytest.mark.parametrize("prior", [GP, DeepGP])
def test_wrong_noise_is_refused_in_words(prior):
    with pytest.raises(ValueError, match='noise must be one of "gaussian", "student", "laplace"'):
        noise_shape("cauchy", None)
    with pytest.raises(ValueError, match='degrees are those of noise="student"'):
        prior(degrees=3.0)
    for wrong in (0.5, 1e4, [3.0, 4.0]):
        with pytest.raises(ValueError, match="degrees must be one number from 1 to 1000"):
            prior(noise="student", degrees=wrong)


def test_q_is_kept_where_noise_starts_to_vary():
    plain = process_of("student", fixed(3.0))
    vary = process_of("student", fixed(3.0), noise_gp=GP())
    assert vary.shape == plain.shape
    silent = NaturalGaussian(1e12 * np.eye(6)[None], np.zeros((1, 6)))
    vary = eqx.tree_at(
        lambda p: (p.log_noise.q, p.log_noise.kernel.variance.raw),
        vary,
        (silent, np.asarray(-60.0)),
    )
    y = Y[:, 1:]
    np.testing.assert_allclose(
        vary.expected_log_density(posterior(vary, X), y),
        plain.expected_log_density(posterior(plain, X), y),
        rtol=1e-6,
    )
