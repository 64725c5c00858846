"""Exact inference for processes without inducing points, for as many rows as that is affordable.

Given the responsibilities, q(f) of a GP observed with Gaussian noise has a closed form, and so has
its part of the ELBO. With ``w_n = r_n / σ²`` and ``B = I + √W K √W``, whose eigenvalues are not
below one,

    −½ yᵀ√W B⁻¹ √W y − ½ log |B| − ½ Σ_n r_n log 2πσ².

It equals the ELBO of `elbo` with all inputs as inducing inputs, at a fraction of the cost: one
Cholesky factor per evaluation. Hyperparameters follow L-BFGS on it, responsibilities and gate are
updated in between.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.flatten_util import ravel_pytree

from dagp.core.gc import gc_paused
from dagp.core.linalg import (
    cholesky_positive_definite,
    inverse_factor,
    inverse_from,
    smallest_jitter,
)
from dagp.core.programs import program
from dagp.core.sharding import to_host
from dagp.core.typing import Array, Float, PerPoint, PerProcess, Scalar
from dagp.inference.elbo import responsibilities
from dagp.model.association import Batch, DataAssociation, apply_labels
from dagp.model.gp import GPProcess
from dagp.model.noise_shapes import GaussianShape
from dagp.model.parameters import log_prior, parameters_of, trainable
from dagp.model.process import LOG_2PI, Process, observed
from dagp.model.sparse_gp import Marginals, SparseGP

ROUNDS = 20
"""Most times that hyperparameters and responsibilities are updated in turn."""
EVALUATIONS = 15
"""Of the ELBO, for the hyperparameters, between two updates of the responsibilities."""
_FARTHEST = 100.0
"""How far the logarithm of a hyperparameter may move in between. The line search of L-BFGS may
overshoot where a length scale no longer matters, and what is so large overflows when squared."""
_GATE_STEPS = 8
_GATE_RATE = 0.5
"""Natural-gradient steps of the gate in an update of the responsibilities, and their size."""


class Given(NamedTuple):
    """What decides on the responsibilities, at the points of the batch."""

    functions: tuple[Marginals, ...]
    density: PerProcess
    """Expected log density of each process."""
    precisions: tuple[Float[Array, "N P"], ...]
    """Of the observations of each function, as it knows them: 1/σ², times responsibilities."""


class Exact(NamedTuple):
    """A model whose functions are not sparse; the q of its processes is not used."""

    model: DataAssociation
    responsibilities: PerProcess
    bound: float = -np.inf
    given: "Given | None" = None
    """What the last update of the responsibilities was made from."""


def applies(model: DataAssociation) -> bool:
    """Whether all functions are single-layer GPs with Gaussian noise that is constant."""

    def is_plain(process: Process) -> bool:
        gaussian = isinstance(process, GPProcess) and isinstance(process.shape, GaussianShape)
        return gaussian and isinstance(process.function, SparseGP)

    return all(group.function is None or is_plain(group) for group in model.groups)


@jax.custom_vjp
def log_evidence(B: Float[Array, "N N"], target: PerPoint) -> Scalar:
    """``−½ tᵀ B⁻¹ t − ½ log |B|``."""
    return _log_evidence(B, target)[0]


def _log_evidence(B: Float[Array, "N N"], target: PerPoint) -> tuple[Scalar, Any]:
    lower = cholesky_positive_definite(B)
    inverse = inverse_factor(lower)
    white = inverse @ target
    value = -0.5 * jnp.sum(white**2) - jnp.sum(jnp.log(jnp.diagonal(lower)))
    return value, (inverse, inverse.T @ white)


def _log_evidence_gradient(known: Any, slope: Scalar) -> tuple[Float[Array, "N N"], PerPoint]:
    inverse, solved = known
    return 0.5 * slope * (jnp.outer(solved, solved) - inverse_from(inverse)), -slope * solved


log_evidence.defvjp(_log_evidence, _log_evidence_gradient)


def _weighted(
    process: Any, batch: Batch, counts: PerPoint
) -> tuple[Float[Array, "N P"], Float[Array, "N P"], Float[Array, "N P"]]:
    """√W and the residuals from the prior mean, per output, and how much every cell counts."""
    y, there = observed(batch.y)
    counted = counts[:, None] * there
    # The root of the quotient would have no derivative where a row has no weight.
    root = jnp.sqrt(counted) / jnp.sqrt(process.noise_variance())
    return root, y - process.latent.mean(batch.X), counted


def _covariance(process: Any, batch: Batch) -> Float[Array, "N N"]:
    """Prior covariance of the function at the points of the batch.

    With the jitter that inducing covariances have: where the noise is smaller than the rounding of
    the covariance, the ELBO would be arbitrary, and the sparse model that follows would be another.
    """
    K = process.latent.kernel(batch.X, batch.X)
    level = smallest_jitter(K.dtype) * jnp.mean(jnp.diagonal(K))
    return K + level * jnp.eye(len(K))


def function_elbo(process: Any, batch: Batch, counts: PerPoint) -> Scalar:
    """The part of the ELBO of one function, with q(f) at its optimum; `counts` are
    responsibilities times weights."""
    root, residual, counted = _weighted(process, batch, counts)
    K, eye = _covariance(process, batch), jnp.eye(len(batch.X))

    def one(root: Array, residual: Array) -> Scalar:
        return log_evidence(eye + root[:, None] * root * K, root * residual)

    evidence = jax.vmap(one, in_axes=1)(root, residual)
    noise = jnp.sum(counted * (jnp.log(process.noise_variance()) + LOG_2PI))
    return jnp.sum(evidence) - 0.5 * noise


def function_marginals(process: Any, batch: Batch, counts: PerPoint) -> Marginals:
    """Mean and variance of the exact q(f) at the points of the batch."""
    root, residual, _ = _weighted(process, batch, counts)
    K = _covariance(process, batch)
    prior = jnp.diagonal(K)

    def one(root: Array, residual: Array) -> tuple[Array, Array]:
        B = jnp.eye(len(K)) + root[:, None] * root * K
        inverse = inverse_factor(cholesky_positive_definite(B))
        explained = inverse @ (root[:, None] * K)
        mean = explained.T @ (inverse @ (root * residual))
        return mean, jnp.maximum(prior - jnp.sum(explained**2, axis=0), 0.0)

    mean, variance = jax.vmap(one, in_axes=1, out_axes=1)(root, residual)
    return Marginals(process.latent.mean(batch.X) + mean, variance)


def _clutter_density(process: Process, batch: Batch) -> PerPoint:
    return process.expected_log_density(process.marginals(process.project(batch.X)), batch.y)


def _processes_elbo(model: DataAssociation, batch: Batch, given: PerProcess) -> Scalar:
    """The part of the ELBO that depends on the hyperparameters of the processes."""
    counts = (batch.weight[:, None] * given).T
    total = jnp.asarray(0.0)
    for k in range(model.n_processes):
        process = model.process(k)
        if process.function is None:
            total += counts[k] @ _clutter_density(process, batch)
        else:
            total += function_elbo(process, batch, counts[k])
        total += log_prior(process)
    return total


@program
@gc_paused()
def _slope(
    model: DataAssociation, batch: Batch, given: PerProcess
) -> tuple[Scalar, DataAssociation]:
    """That part and its derivatives."""
    moving, rest = eqx.partition(model, trainable(model))

    def value(moving: Any) -> Scalar:
        return _processes_elbo(eqx.combine(moving, rest), batch, given)

    bound, gradient = jax.value_and_grad(value)(moving)
    return bound, gradient.tied()


@program
@gc_paused()
def _update(
    model: DataAssociation, batch: Batch, given: PerProcess
) -> tuple[DataAssociation, PerProcess, Scalar, Given]:
    """Responsibilities and gate after an update from given ones, the ELBO, and what they are from.

    The ELBO is that of the functions before the update: a lower bound on the one after it.
    """
    counts = (batch.weight[:, None] * given).T
    densities, functions, precisions = [], [], []
    for k in range(model.n_processes):
        process = model.process(k)
        if process.function is None:
            densities.append(_clutter_density(process, batch))
        else:
            marginals = function_marginals(process, batch, counts[k])
            densities.append(process.expected_log_density(marginals, batch.y))
            functions.append(marginals)
            precisions.append(_weighted(process, batch, counts[k])[0] ** 2)
    density = jnp.stack(densities, axis=1)
    projection = model.gate.project(batch.X)

    def one(_: Any, gate: Any) -> Any:
        marginals = gate.marginals(projection)
        found = responsibilities(apply_labels(density + marginals.log_weights, batch))
        return gate.natural_step(projection, marginals, found, batch.weight, _GATE_RATE)

    gate = jax.lax.fori_loop(0, _GATE_STEPS, one, model.gate)
    log_weights = gate.marginals(projection).log_weights
    found = responsibilities(apply_labels(density + log_weights, batch))
    model = model.with_gate(gate)
    weight = batch.weight[:, None] * found
    entropy = -jnp.sum(jnp.where(found > 0, weight * jnp.log(jnp.maximum(found, 1e-300)), 0.0))
    rest = jnp.sum(weight * log_weights) + entropy - gate.kl() + log_prior(gate)
    decisive = Given(tuple(functions), density, tuple(precisions))
    return model, found, _processes_elbo(model, batch, found) + rest, decisive


def maximise(
    function: Callable[[Any], tuple[Any, Any]], start: Any, evaluations: int, reach: float
) -> Any:
    """The best tree of arrays that L-BFGS finds, no number further than `reach` from its start;
    `function` returns value and gradient."""
    # Imported here, because it takes long and most fits do without.
    from scipy.optimize import minimize

    flat, unravel = ravel_pytree(start)
    best: list[Any] = [-np.inf, np.asarray(flat)]
    lowest = -1e10

    def negative(x: np.ndarray) -> tuple[float, np.ndarray]:
        nonlocal lowest
        value, gradient = function(unravel(jnp.asarray(x)))
        slope = np.asarray(ravel_pytree(gradient)[0], np.float64)
        if not (np.isfinite(value) and np.all(np.isfinite(slope))):
            # Worse than anything before: the line search shortens its step.
            return -2 * lowest, np.zeros_like(slope)
        lowest = min(lowest, float(value))
        if value > best[0]:
            best[:] = [float(value), np.array(x)]
        return -float(value), -slope

    limits = {"maxfun": evaluations, "maxcor": 20}
    first = np.asarray(flat, np.float64)
    box = np.stack([first - reach, first + reach], axis=1)
    minimize(negative, first, jac=True, method="L-BFGS-B", bounds=box, options=limits)
    return unravel(jnp.asarray(best[1]))


def _strayed(moving: Any, start: Any) -> bool:
    """Whether a positive hyperparameter is too far from where it began."""
    pairs = zip(parameters_of(moving), parameters_of(start), strict=True)
    return any(
        np.max(np.abs(np.asarray(now.raw) - np.asarray(before.raw)), initial=0.0) > _FARTHEST
        for now, before in pairs
        if now.support == "positive" and now.raw is not None
    )


def fit_exact(
    begun: Exact,
    batch: Batch,
    tol: float,
    rounds: int = ROUNDS,
    stop: Callable[[float], bool] = lambda _: False,
    reach: float = np.inf,
) -> Exact:
    """Hyperparameters by L-BFGS and responsibilities in turn, until a round gains less than `tol`
    per data point, or the ELBO after it lets `stop` return true. In a round, the logarithm of no
    hyperparameter moves further than `reach`."""
    total, best = float(np.sum(to_host(batch.weight))), begun
    for _ in range(rounds):
        moving, rest = eqx.partition(best.model, trainable(best.model))
        given = best.responsibilities

        def value(now: Any, start: Any = moving, rest: Any = rest, given: Any = given) -> Any:
            if _strayed(now, start):
                return np.nan, now
            return _slope(eqx.combine(now, rest), batch, given)

        model = eqx.combine(maximise(value, moving, EVALUATIONS, reach), rest)
        model, found, bound, decisive = _update(model, batch, given)
        gain = float(bound) - best.bound
        if not gain > 0:
            break
        best = Exact(model, found, float(bound), decisive)
        if stop(best.bound) or gain < tol * total:
            break
    return best
