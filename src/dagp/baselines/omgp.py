"""Overlapping mixtures of Gaussian processes (Lázaro-Gredilla, Van Vaerenbergh, Lawrence 2012).

Dense GPs and one set of mixing weights for all inputs. With responsibilities r and noise
variances v, every GP is integrated out of the variational bound:

    Σ_k [log N(y | 0, K_k + B_k⁻¹) + ½ Σ_n (log(2π v_k / r_nk) − r_nk log 2π v_k)] − KL(q(Z) | p(Z))

with B_k = diag(r_nk / v_k). The terms that blow up where r vanishes cancel: in
A_k = I + B_k^½ K_k B_k^½ process k contributes −½ (B_k^½ y)ᵀ A_k⁻¹ (B_k^½ y) − ½ log |A_k|
− ½ Σ_n r_nk log 2π v_k, and nothing is ever divided by a responsibility.
"""

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.linalg import solve_triangular
from jax.scipy.special import xlogy

from dagp.baselines.base import DensityBaseline, Predicted
from dagp.baselines.descent import Heights, whole
from dagp.capabilities import Capabilities
from dagp.kernels import Kernel, SquaredExponential
from dagp.linalg import cholesky, inverse_factor, log_det
from dagp.model import Batch
from dagp.parameters import Parameter, is_parameter, log_prior, parameter, trainable
from dagp.processes import LOG_2PI, NOISE_FLOOR, check_columns
from dagp.train import ADAM, BLOCK, apply, train
from dagp.typing import Array, Float, Inputs, Int, PerPoint, PerProcess, RandomState, Scalar

__all__ = ["OMGP"]

RATE = 0.1
"""A step costs O(K N³), so there are few and they are long."""
BEGINNINGS = ((1.0, 0.3), (0.3, 1.0), (1.0, 1.0))
"""Length scale (for one input) and noise to begin with, in standardised units; starts take turns.
Little noise is quick to tell a signal from background noise, much noise is better at telling one
curve from another."""
LEAST_WEIGHT = 1e-12
"""A process that has lost all its points keeps a finite log weight."""


class Overlap(eqx.Module):
    """The priors of the K processes, in standardised units."""

    kernels: tuple[Kernel, ...]
    noise_stds: tuple[Parameter, ...]

    def covariances(self, X: Inputs) -> Float[Array, "K N N"]:
        """Of each function at the data."""
        return jnp.stack([kernel(X, X) for kernel in self.kernels])

    def noise_variances(self) -> Float[Array, " K"]:
        """Of an observation around each function."""
        return jnp.stack([std.value**2 + NOISE_FLOOR**2 for std in self.noise_stds])


class Mixing(NamedTuple):
    """Everything a step reads and writes."""

    model: Overlap
    shares: PerProcess
    """Responsibilities."""
    weights: Float[Array, " K"]
    moments: Any


class Answer(NamedTuple):
    """GPs that have seen the data, each point as much as its share; the first axis counts GPs."""

    value: Float[Array, "*K"]
    """Part of the bound."""
    mean: Float[Array, "*K N"]
    variance: Float[Array, "*K N"]
    """Of the function at the data."""
    coefficients: Float[Array, "*K N"]
    """(K + B⁻¹)⁻¹ y."""
    root: Float[Array, "*K N N"]
    """R with RᵀR = (K + B⁻¹)⁻¹."""
    remaining: Float[Array, "*K N"]
    """Diagonal of A⁻¹: one where a point tells the GP nothing, zero where it tells everything."""


class Slopes(NamedTuple):
    """Derivatives of a GP's part of the bound."""

    covariance: Float[Array, "*K N N"]
    noise_variance: Float[Array, "*K"]


def answer(
    covariance: Float[Array, "N N"], y: PerPoint, share: PerPoint, noise_variance: Scalar
) -> Answer:
    """The exact posterior of one GP, and its part of the bound."""
    b = jnp.sqrt(share / noise_variance)
    lower = cholesky(jnp.eye(len(y)) + b[:, None] * covariance * b)
    inverse = inverse_factor(lower)
    root = inverse * b
    white = root @ y
    coefficients = white @ root
    explained = solve_triangular(lower, b[:, None] * covariance, lower=True)
    value = -0.5 * (white @ white + log_det(lower))
    value -= 0.5 * jnp.sum(share) * (LOG_2PI + jnp.log(noise_variance))
    return Answer(
        value,
        covariance @ coefficients,
        jnp.maximum(jnp.diagonal(covariance) - jnp.sum(explained**2, axis=0), 0.0),
        coefficients,
        root,
        jnp.sum(inverse**2, axis=0),
    )


def slopes(found: Answer, y: PerPoint, share: PerPoint, noise_variance: Scalar) -> Slopes:
    """The derivatives in closed form, from the factor that is there already.

    Differentiating the factorisation itself would cost several times as much.
    """
    outer = found.coefficients[:, None] * found.coefficients
    squares = share * (y - found.mean) ** 2 / noise_variance
    noise = 0.5 * jnp.sum(squares + 1 - found.remaining - share) / noise_variance
    return Slopes(0.5 * (outer - found.root.T @ found.root), noise)


def bound(values: Float[Array, " K"], shares: PerProcess, weights: Float[Array, " K"]) -> Scalar:
    """The marginalised lower bound on the log evidence, from the parts of the processes."""
    divergence = jnp.sum(xlogy(shares, shares) - shares * jnp.log(weights))
    return jnp.sum(values) - divergence


def reassigned(
    found: Answer, y: PerPoint, noise_variances: Float[Array, " K"], weights: Float[Array, " K"]
) -> tuple[PerProcess, Float[Array, " K"]]:
    """The responsibilities that are best for the GPs as they are, and the weights best for them."""
    square = (y[:, None] - found.mean.T) ** 2 + found.variance.T
    log_joint = jnp.log(weights) - 0.5 * (square / noise_variances + jnp.log(noise_variances))
    shares = jax.nn.softmax(log_joint, axis=1)
    return shares, jnp.maximum(jnp.mean(shares, axis=0), LEAST_WEIGHT)


def _step(state: Mixing, batch: Batch, rate: Scalar) -> tuple[Mixing, Scalar]:
    """Responsibilities to their optimum, hyperparameters up the bound, from one factorisation."""
    y, mask = batch.y[:, 0], trainable(state.model)
    moving, rest = eqx.partition(state.model, mask)

    def priors(moving: Any) -> tuple[Array, Array, Scalar]:
        model = eqx.combine(moving, rest)
        return model.covariances(batch.X), model.noise_variances(), log_prior(model)

    def one(process: tuple[Array, PerPoint, Scalar]) -> tuple[Answer, Slopes]:
        covariance, share, noise_variance = process
        found = answer(covariance, y, share, noise_variance)
        # The factor is the largest thing there is, and nobody asks for it again.
        return found._replace(root=jnp.zeros((0, 0))), slopes(found, y, share, noise_variance)

    (covariances, noise, log_density), pull = jax.vjp(priors, moving)
    found, uphill = jax.lax.map(one, (covariances, state.shares.T, noise))
    (gradient,) = pull((*uphill, jnp.ones_like(log_density)))
    moving, moments = apply(moving, jax.tree.map(jnp.negative, gradient), state.moments, rate)
    value = bound(found.value, state.shares, state.weights) + log_density
    shares, weights = reassigned(found, y, noise, state.weights)
    return Mixing(eqx.combine(moving, rest), shares, weights, moments), value


@jax.jit
def block(state: Mixing, batch: Batch, rate: Scalar) -> tuple[Mixing, Heights]:
    """`BLOCK` steps; with a rate of zero only responsibilities and weights move."""
    state, values = jax.lax.scan(lambda s, _: _step(s, batch, rate), state, length=BLOCK)
    return state, Heights(values)


class Conclusion(NamedTuple):
    """A trained mixture, ready to be asked."""

    state: Mixing
    X: Inputs
    bound: Scalar
    coefficients: Float[Array, "K N"]
    roots: Float[Array, "K N N"]


@jax.jit
def conclude(state: Mixing, batch: Batch) -> Conclusion:
    """Condition every GP on the data a last time."""
    model, y = state.model, batch.y[:, 0]
    processes = (model.covariances(batch.X), state.shares.T, model.noise_variances())
    found = jax.lax.map(lambda process: answer(process[0], y, *process[1:]), processes)
    value = bound(found.value, state.shares, state.weights) + log_prior(model)
    return Conclusion(state, batch.X, value, found.coefficients, found.root)


@jax.jit
def _ask(conclusion: Conclusion, X: Inputs) -> Predicted:
    state, seen, _, coefficients, roots = conclusion
    kernels = state.model.kernels
    cross = [kernel(X, seen) for kernel in kernels]
    means = [one @ alpha for one, alpha in zip(cross, coefficients, strict=True)]
    explained = [
        jnp.sum((one @ root.T) ** 2, axis=1) for one, root in zip(cross, roots, strict=True)
    ]
    prior = jnp.stack([kernel.diagonal(X) for kernel in kernels], axis=1)
    return Predicted(
        jnp.broadcast_to(state.weights, prior.shape),
        jnp.stack(means, axis=1),
        jnp.maximum(prior - jnp.stack(explained, axis=1), 0.0),
        jnp.broadcast_to(state.model.noise_variances(), prior.shape),
    )


class OMGP(DensityBaseline):
    """Overlapping mixture of Gaussian processes.

    Each process is a dense GP with noise of its own; the probability of a process is the same at
    every input. From random responsibilities, every step sets the responsibilities to their
    optimum given the GPs, and moves the hyperparameters up the marginalised variational bound.
    Most starts end in a poor optimum when two curves are to be told apart: the best of several
    is kept.

    Parameters
    ----------
    n_processes
        Number of processes.
    kernels
        One kernel per process, squared exponentials if left out. ``[SquaredExponential(),
        White()]`` is a signal in background noise.
    n_init
        Number of starts.
    max_iter
        Most steps of a start. A step takes O(K N³) operations.
    tol
        Least gain of the bound per data point in 25 steps.
    random_state
        Seed of the responsibilities that starts begin with.

    Attributes
    ----------
    responsibilities_ : probability of each process for each training point, (N, K)
    assignment_ : the most probable process of each training point
    weights_ : mixing weights
    lower_bound_ : the bound, for standardised outputs
    kernels_, noise_std_ : what was learnt about each process, in the units of the data

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

    capabilities: ClassVar[Capabilities] = Capabilities(
        bayesian=True,
        predictive_posterior=True,
        data_association=True,
        multimodal=True,
        separate_models=True,
        interpretable_priors=True,
    )

    def __init__(
        self,
        n_processes: int = 2,
        kernels: Sequence[Kernel] | None = None,
        *,
        n_init: int = 3,
        max_iter: int = 100,
        tol: float = 1e-3,
        random_state: RandomState = None,
    ) -> None:
        """Only store."""
        self.n_processes = n_processes
        self.kernels = kernels
        self.n_init = n_init
        self.max_iter = max_iter
        self.tol = tol
        self.random_state = random_state

    def _settings(self) -> Mapping[str, tuple[Any, type, float]]:
        return {
            "n_processes": (self.n_processes, int, 1),
            "n_init": (self.n_init, int, 1),
            "max_iter": (self.max_iter, int, 1),
            "tol": (self.tol, float, 0.0),
        }

    def _learn(self, X: Inputs, y: PerPoint, rng: np.random.Generator) -> None:
        kernels = _checked(self.kernels, self.n_processes, X.shape[1])
        batch, best = whole(X, y), None
        for index in range(self.n_init):
            state = self._start(kernels, len(X), index, rng)
            found = train(
                state, batch, max_iter=self.max_iter, tol=self.tol, rate=RATE, block=block
            )
            ended = conclude(found.state, batch)
            if best is None or ended.bound > best.bound:
                best = ended
        assert best is not None
        self._conclusion = best
        state = best.state
        self.lower_bound_: float = float(best.bound)
        self.responsibilities_: Float[np.ndarray, "N K"] = np.asarray(state.shares)
        self.assignment_: Int[np.ndarray, " N"] = self.responsibilities_.argmax(axis=1)
        self.weights_: Float[np.ndarray, " K"] = np.asarray(state.weights)
        self.kernels_: tuple[Kernel, ...] = state.model.kernels
        noise_std = np.sqrt(np.asarray(state.model.noise_variances()))
        self.noise_std_: Float[np.ndarray, " K"] = noise_std * self.units_.y_unit[0]

    def _start(
        self, kernels: Sequence[Kernel], n: int, index: int, rng: np.random.Generator
    ) -> Mixing:
        """A state with random responsibilities."""
        units = self.units_
        lengthscale, noise_std = BEGINNINGS[index % len(BEGINNINGS)]
        lengthscale *= float(np.sqrt(len(units.x_unit)))
        log_unit = 2 * float(np.log(units.y_unit[0]))
        noise = parameter(None).in_units(units.y_unit[0]).starting_at(noise_std)
        model = Overlap(
            tuple(kernel.in_units(units.x_unit, log_unit, lengthscale) for kernel in kernels),
            (noise,) * len(kernels),
        )
        model = jax.tree.map(jnp.asarray, model)
        shares = jnp.asarray(rng.dirichlet(np.ones(len(kernels)), size=n))
        weights = jnp.mean(shares, axis=0)
        return Mixing(model, shares, weights, ADAM.init(eqx.filter(model, trainable(model))))

    def _components(self, X: Inputs) -> Predicted:
        return _ask(self._conclusion, jnp.asarray(X))


def _checked(kernels: Any, count: int, columns: int) -> list[Kernel]:
    """One kernel per process, all of which these inputs can serve."""
    if kernels is None:
        return [SquaredExponential() for _ in range(count)]
    if not isinstance(kernels, Sequence) or len(kernels) != count:
        raise ValueError(f"kernels must be a list of n_processes={count}, got {kernels!r}.")
    for k, kernel in enumerate(kernels):
        if not isinstance(kernel, Kernel):
            raise ValueError(f"kernels[{k}] must be a kernel, got {kernel!r}.")
        check_columns(kernel, columns)
        parameters = filter(is_parameter, jax.tree.leaves(kernel, is_leaf=is_parameter))
        if any(p.share is not None for p in parameters):
            raise ValueError(f"kernels[{k}] shares a parameter, which OMGP cannot do.")
    return list(kernels)
