"""Overlapping mixtures of GPs (OMGP, Lázaro-Gredilla, Van Vaerenbergh, Lawrence 2012).

Dense GPs and one set of mixing weights for all inputs. With responsibilities r, noise variances v,
B_k = diag(r_nk / v_k) and A_k = I + B_k^½ K_k B_k^½, the GPs are integrated out of the ELBO:

    Σ_k −½ [(B_k^½ y)ᵀ A_k⁻¹ (B_k^½ y) + log |A_k| + Σ_n r_nk log 2π v_k] − KL(q(Z) | p(Z)),

the form of the paper's ELBO without division by a responsibility, which may vanish.
"""

from collections.abc import Sequence
from dataclasses import KW_ONLY, dataclass
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.linalg import solve_triangular
from jax.scipy.special import xlogy

from dagp.baselines.base import DensityBaseline, Predicted, setting
from dagp.baselines.capabilities import EVERYTHING
from dagp.baselines.optimise import ObjectiveTrace, full_batch, initial_gp
from dagp.core.linalg import cholesky, inverse_factor, log_det
from dagp.core.text import quoted
from dagp.core.typing import Array, Float, Inputs, Int, PerPoint, PerProcess, RandomState, Scalar
from dagp.inference.train import ADAM, BLOCK, adam_step, train
from dagp.model.association import Batch
from dagp.model.gp import NOISE_FLOOR
from dagp.model.kernel import Kernel, check_columns
from dagp.model.kernels import SquaredExponential
from dagp.model.parameters import Parameter, log_prior, parameters_of, trainable
from dagp.model.process import LOG_2PI

RATE = 0.1
"""Learning rate: a step costs O(K N³), so few large steps are taken."""
INITIAL_SCALES = ((1.0, 0.3), (0.3, 1.0), (1.0, 1.0))
"""Initial length scale (for one input) and noise in standardised units, cycled over the starts.
Small initial noise separates a signal from background noise, large noise overlapping curves."""
MIN_WEIGHT = 1e-12
"""Keeps the log weight of a process without points finite."""


class MixturePrior(eqx.Module):
    """Priors of the K processes, in standardised units."""

    kernels: tuple[Kernel, ...]
    noise_stds: tuple[Parameter, ...]

    def covariances(self, X: Inputs) -> Float[Array, "K N N"]:
        """Prior covariance of each function at the data."""
        return jnp.stack([kernel(X, X) for kernel in self.kernels])

    def noise_variances(self) -> Float[Array, " K"]:
        """Noise variance of each process."""
        return jnp.stack([std.value**2 + NOISE_FLOOR**2 for std in self.noise_stds])


class MixtureState(NamedTuple):
    """Parameters, responsibilities, mixing weights and optimiser state."""

    model: MixturePrior
    responsibilities: PerProcess
    weights: Float[Array, " K"]
    opt_state: Any


class GPPosterior(NamedTuple):
    """GPs conditioned on the data weighted by responsibilities; a first axis *K if stacked."""

    value: Float[Array, "*K"]
    """Contribution to the ELBO."""
    mean: Float[Array, "*K N"]
    variance: Float[Array, "*K N"]
    """Posterior variance of the function at the data."""
    coefficients: Float[Array, "*K N"]
    """(K + B⁻¹)⁻¹ y."""
    root: Float[Array, "*K N N"]
    """R with RᵀR = (K + B⁻¹)⁻¹."""
    inverse_diagonal: Float[Array, "*K N"]
    """Diagonal of A⁻¹: one for a point without influence on the GP, zero for full influence."""


class Gradients(NamedTuple):
    """Derivatives of a GP's contribution to the ELBO."""

    covariance: Float[Array, "*K N N"]
    noise_variance: Float[Array, "*K"]


def condition(
    covariance: Float[Array, "N N"], y: PerPoint, r: PerPoint, noise_variance: Scalar
) -> GPPosterior:
    """Exact posterior of one GP, and its contribution to the ELBO."""
    b = jnp.sqrt(r / noise_variance)
    lower = cholesky(jnp.eye(len(y)) + b[:, None] * covariance * b)
    inverse = inverse_factor(lower)
    root = inverse * b
    white = root @ y
    coefficients = white @ root
    explained = solve_triangular(lower, b[:, None] * covariance, lower=True)
    value = -0.5 * (white @ white + log_det(lower))
    value -= 0.5 * jnp.sum(r) * (LOG_2PI + jnp.log(noise_variance))
    return GPPosterior(
        value,
        covariance @ coefficients,
        jnp.maximum(jnp.diagonal(covariance) - jnp.sum(explained**2, axis=0), 0.0),
        coefficients,
        root,
        jnp.sum(inverse**2, axis=0),
    )


def gradients(found: GPPosterior, y: PerPoint, r: PerPoint, noise_variance: Scalar) -> Gradients:
    """Gradients in closed form: differentiating the factorisation would cost several times more."""
    outer = found.coefficients[:, None] * found.coefficients
    squares = r * (y - found.mean) ** 2 / noise_variance
    noise = 0.5 * jnp.sum(squares + 1 - found.inverse_diagonal - r) / noise_variance
    return Gradients(0.5 * (outer - found.root.T @ found.root), noise)


def elbo(values: Float[Array, " K"], r: PerProcess, weights: Float[Array, " K"]) -> Scalar:
    """ELBO with the GPs marginalised, from the contributions of the processes."""
    divergence = jnp.sum(xlogy(r, r) - r * jnp.log(weights))
    return jnp.sum(values) - divergence


def update_responsibilities(
    gps: GPPosterior, y: PerPoint, noise_variances: Float[Array, " K"], weights: Float[Array, " K"]
) -> tuple[PerProcess, Float[Array, " K"]]:
    """Optimal responsibilities given the GPs, and optimal mixing weights given these."""
    square = (y[:, None] - gps.mean.T) ** 2 + gps.variance.T
    log_joint = jnp.log(weights) - 0.5 * (square / noise_variances + jnp.log(noise_variances))
    responsibilities = jax.nn.softmax(log_joint, axis=1)
    return responsibilities, jnp.maximum(jnp.mean(responsibilities, axis=0), MIN_WEIGHT)


def _step(state: MixtureState, batch: Batch, rate: Scalar) -> tuple[MixtureState, Scalar]:
    """Optimal responsibilities and an Adam step on hyperparameters, from one factorisation."""
    y, mask = batch.y[:, 0], trainable(state.model)
    moving, rest = eqx.partition(state.model, mask)

    def priors(moving: Any) -> tuple[Array, Array, Scalar]:
        model = eqx.combine(moving, rest)
        return model.covariances(batch.X), model.noise_variances(), log_prior(model)

    def one(process: tuple[Array, PerPoint, Scalar]) -> tuple[GPPosterior, Gradients]:
        covariance, r, noise_variance = process
        found = condition(covariance, y, r, noise_variance)
        # The factor is the largest array, and is not needed after this.
        return found._replace(root=jnp.zeros((0, 0))), gradients(found, y, r, noise_variance)

    (covariances, noise, log_density), vjp = jax.vjp(priors, moving)
    found, cotangents = jax.lax.map(one, (covariances, state.responsibilities.T, noise))
    (gradient,) = vjp((*cotangents, jnp.ones_like(log_density)))
    gradient = jax.tree.map(jnp.negative, gradient)
    moving, opt_state = adam_step(moving, gradient, state.opt_state, rate)
    value = elbo(found.value, state.responsibilities, state.weights) + log_density
    responsibilities, weights = update_responsibilities(found, y, noise, state.weights)
    return MixtureState(eqx.combine(moving, rest), responsibilities, weights, opt_state), value


@jax.jit
def block(state: MixtureState, batch: Batch, rate: Scalar) -> tuple[MixtureState, ObjectiveTrace]:
    """`BLOCK` steps; at learning rate zero only responsibilities and weights are updated."""
    state, values = jax.lax.scan(lambda s, _: _step(s, batch, rate), state, length=BLOCK)
    return state, ObjectiveTrace(values)


class FittedMixture(NamedTuple):
    """A trained mixture conditioned on the data."""

    state: MixtureState
    X: Inputs
    elbo: Scalar
    coefficients: Float[Array, "K N"]
    roots: Float[Array, "K N N"]


@jax.jit
def finalise(state: MixtureState, batch: Batch) -> FittedMixture:
    """Condition every GP on the data under the final hyperparameters."""
    model, y = state.model, batch.y[:, 0]
    processes = (model.covariances(batch.X), state.responsibilities.T, model.noise_variances())
    found = jax.lax.map(lambda process: condition(process[0], y, *process[1:]), processes)
    value = elbo(found.value, state.responsibilities, state.weights) + log_prior(model)
    return FittedMixture(state, batch.X, value, found.coefficients, found.root)


@jax.jit
def _predict(fitted: FittedMixture, X: Inputs) -> Predicted:
    """Components of the predictive mixture at new inputs."""
    state, X_train, _, coefficients, roots = fitted
    means, variances = [], []
    for kernel, alpha, root in zip(state.model.kernels, coefficients, roots, strict=True):
        cross = kernel(X, X_train)
        means.append(cross @ alpha)
        explained = jnp.sum((cross @ root.T) ** 2, axis=1)
        variances.append(jnp.maximum(kernel.diagonal(X) - explained, 0.0))
    shape = (len(X), len(means))
    weights = jnp.broadcast_to(state.weights, shape)
    noise = jnp.broadcast_to(state.model.noise_variances(), shape)
    return Predicted(weights, jnp.stack(means, axis=1), jnp.stack(variances, axis=1), noise)


@dataclass(eq=False, repr=False)
class OMGP(DensityBaseline):
    """Overlapping mixture of Gaussian processes.

    Each process is a dense GP with its own noise; the mixing weights are the same at every input.
    From random responsibilities, every step sets the responsibilities to their optimum given the
    GPs, and takes an Adam step on the hyperparameters along the gradient of the marginalised ELBO.
    The start with the highest ELBO is kept: most end in a poor local optimum if curves overlap.

    Parameters
    ----------
    n_processes : int, default=2
        Number of processes.
    kernels : sequence of Kernel or None, default=None
        One kernel per process, squared exponentials if None. ``[SquaredExponential(), White()]``
        is a signal in background noise.
    n_init : int, default=3
        Number of starts.
    max_iter : int, default=100
        Maximum number of steps per start. A step takes O(K N³) operations.
    tol : float, default=1e-3
        A start ends when 25 steps gain less ELBO than this per data point.
    random_state : int, RandomState, Generator or None, default=None
        Seed of the initial responsibilities.

    Attributes
    ----------
    responsibilities_ : ndarray of shape (N, K)
        Probability of each process for each training point.
    assignment_ : ndarray of shape (N,)
        Most probable process of each training point.
    weights_ : ndarray of shape (K,)
        Mixing weights.
    lower_bound_ : float
        ELBO of the standardised outputs.
    kernels_ : tuple of Kernel
        Fitted kernels, in the units of the data.
    noise_std_ : ndarray of shape (K,)
        Noise standard deviation of each process, in the units of the data.
    n_iter_ : int
        Number of steps of the start that was kept.

    Examples
    --------
    >>> import numpy as np
    >>> x = np.linspace(0, 6, 40)
    >>> y = np.where(np.arange(40) % 2, np.sin(x), 3 + np.cos(x))
    >>> model = OMGP(n_processes=2, n_init=6, random_state=0).fit(x[:, None], y)
    >>> sorted(np.bincount(model.assignment_).tolist())
    [20, 20]
    >>> model.predict_mixture([[2.0]])
    Mixture(1 point, 2 components)
    """

    n_processes: int = setting(2, least=1)
    kernels: Sequence[Kernel] | None = None
    _: KW_ONLY
    n_init: int = setting(3, least=1)
    max_iter: int = setting(100, least=1)
    tol: float = setting(1e-3, least=0.0)
    random_state: RandomState = None

    capabilities = EVERYTHING._replace(scalable=False, predictive_associations=False)

    def _learn(self, X: Inputs, y: PerPoint, rng: np.random.Generator) -> None:
        kernels = _check_kernels(self.kernels, self.n_processes, X.shape[1])
        batch = full_batch(X, y)
        starts = (self._start(kernels, len(X), index, rng) for index in range(self.n_init))
        settings: Any = {"max_iter": self.max_iter, "tol": self.tol, "rate": RATE, "block": block}
        runs = (train(start, batch, **settings) for start in starts)
        ends = ((finalise(run.state, batch), len(run.trace)) for run in runs)
        best, self.n_iter_ = max(ends, key=lambda end: float(end[0].elbo))
        # As NumPy arrays: from a pickle, JAX reads its own in the precision of the user's session.
        self._fitted: FittedMixture = jax.tree.map(np.asarray, best)
        state = self._fitted.state
        self.lower_bound_: float = float(self._fitted.elbo)
        self.responsibilities_: Float[np.ndarray, "N K"] = np.asarray(state.responsibilities)
        self.assignment_: Int[np.ndarray, " N"] = self.responsibilities_.argmax(axis=1)
        self.weights_: Float[np.ndarray, " K"] = np.asarray(state.weights)
        self.kernels_: tuple[Kernel, ...] = state.model.kernels
        noise_std = np.sqrt(np.asarray(state.model.noise_variances()))
        self.noise_std_: Float[np.ndarray, " K"] = noise_std * self.units_.y_unit[0]

    def _start(
        self, kernels: Sequence[Kernel], n: int, index: int, rng: np.random.Generator
    ) -> MixtureState:
        """Initial state with random responsibilities."""
        scales = INITIAL_SCALES[index % len(INITIAL_SCALES)]
        priors = [initial_gp(kernel, self.units_, *scales) for kernel in kernels]
        model = jax.tree.map(jnp.asarray, MixturePrior(*zip(*priors, strict=True)))
        responsibilities = jnp.asarray(rng.dirichlet(np.ones(len(kernels)), size=n))
        weights = jnp.mean(responsibilities, axis=0)
        opt_state = ADAM.init(eqx.filter(model, trainable(model)))
        return MixtureState(model, responsibilities, weights, opt_state)

    def _components(self, X: Inputs) -> Predicted:
        return _predict(self._fitted, jnp.asarray(X))


def _check_kernels(kernels: Any, count: int, columns: int) -> list[Kernel]:
    """One valid kernel per process; an error otherwise."""
    if kernels is None:
        return [SquaredExponential() for _ in range(count)]
    if not isinstance(kernels, Sequence) or len(kernels) != count:
        raise ValueError(
            f"kernels must be a list of n_processes={count} kernels, got {quoted(kernels)}."
        )
    for k, kernel in enumerate(kernels):
        if not isinstance(kernel, Kernel):
            raise ValueError(f"kernels[{k}] must be a Kernel, got {quoted(kernel)}.")
        check_columns(kernel, columns)
        if any(p.tie is not None for p in parameters_of(kernel)):
            raise ValueError(f"kernels[{k}] must not tie parameters: OMGP does not support it.")
    return list(kernels)
