"""Exact inference for processes without inducing points, for as many rows as that is affordable.

Given the responsibilities, q(f) of a GP observed with Gaussian noise has a closed form, and so has
its part of the ELBO. With ``w_n = r_n / σ²`` and ``B = I + √W K √W``, whose eigenvalues are not
below one,

    −½ yᵀ√W B⁻¹ √W y − ½ log |B| − ½ Σ_n r_n log 2πσ².

It equals the ELBO of `elbo` with all inputs as inducing inputs, at a fraction of the cost: one
Cholesky factor per evaluation. Hyperparameters follow L-BFGS on it, responsibilities and gate are
updated in between, and L-BFGS keeps the curvature it knows: begun anew after each update, it needs
several times as many evaluations.
"""

import functools
import math
from collections.abc import Callable
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from dagp.core.gc import gc_paused
from dagp.core.linalg import (
    cholesky_positive_definite,
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
from dagp.model.parameters import log_prior, trainable
from dagp.model.process import LOG_2PI, Process, observed
from dagp.model.sparse_gp import Marginals, SparseGP

ROUNDS = 20
"""Most times that hyperparameters and responsibilities are updated in turn."""
EVALUATIONS = 10
"""Of the ELBO, for the hyperparameters, between two updates of the responsibilities."""
REACH = 0.25
"""How far the logarithm of a hyperparameter may move in a step. The first steps of L-BFGS know no
curvature and overshoot: a length scale far beyond the data, or far below their distances, has no
derivative any more, and the function has lost this input for good. With twice as much, the ELBO of
functions with fine details ends lower."""
_MEMORY = 20
"""Steps that L-BFGS remembers."""
_LEAST_GAIN = 1e-4
_SHORTER = 0.3
"""Share of the gain that the slope promises with which a step is taken, and otherwise the share of
it that is tried next."""
_BLOCK = 64
"""Rows of a covariance that are computed at a time: their arrays fit into a core's cache."""
_GATE_STEPS = 8
_GATE_RATE = 0.5
"""Natural-gradient steps of the gate in an update of the responsibilities, and their size."""


Curvature = tuple[tuple[np.ndarray, np.ndarray], ...]
"""The last steps of hyperparameters, and how much the slope fell along them."""


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
    curvature: Curvature = ()
    """Where the hyperparameters came from."""


def applies(model: DataAssociation) -> bool:
    """Whether all functions are single-layer GPs with Gaussian noise that is constant."""

    def is_plain(process: Process) -> bool:
        gaussian = isinstance(process, GPProcess) and isinstance(process.shape, GaussianShape)
        return gaussian and isinstance(process.function, SparseGP)

    return all(group.function is None or is_plain(group) for group in model.groups)


@jax.custom_vjp
def log_evidence(K: Float[Array, "N N"], root: PerPoint, residual: PerPoint) -> Scalar:
    """``−½ tᵀ B⁻¹ t − ½ log |B|``, where t is ``√W y``."""
    return _log_evidence(K, root, residual)[0]


def _log_evidence(K: Float[Array, "N N"], root: PerPoint, residual: PerPoint) -> tuple[Scalar, Any]:
    lower = cholesky_positive_definite(_weighted_covariance(K, root))
    upper, inverse = inverse_from(lower)
    white = (root * residual) @ upper
    value = -0.5 * jnp.sum(white**2) - jnp.sum(jnp.log(jnp.diagonal(lower)))
    return value, (inverse, upper @ white, root, residual)


def _log_evidence_gradient(
    known: Any, slope: Scalar
) -> tuple[Float[Array, "N N"], PerPoint, PerPoint]:
    inverse, solved, root, residual = known
    outer = jnp.outer(root * solved, root * solved)
    of_covariance = 0.5 * slope * (outer - root[:, None] * root * inverse)
    # From B⁻¹ B = I and B B⁻¹ t = t: the covariance need not be kept.
    of_scale = solved * (root * residual - solved) - 1 + jnp.diagonal(inverse)
    of_root = jnp.where(root > 0, of_scale / root, 0.0) - solved * residual
    return of_covariance, slope * of_root, -slope * root * solved


log_evidence.defvjp(_log_evidence, _log_evidence_gradient)


def _weighted_covariance(K: Float[Array, "N N"], root: PerPoint) -> Float[Array, "N N"]:
    """``B``."""
    return jnp.eye(len(K), dtype=K.dtype) + root[:, None] * root * K


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

    @jax.checkpoint
    def some(rows: Float[Array, "n D"]) -> Float[Array, "n N"]:
        return process.latent.kernel(rows, batch.X)

    # By blocks, derivatives as well: the temporary arrays of all rows are more memory than
    # allocators keep, and to get new pages takes longer than to fill them.
    size, columns = batch.X.shape
    blocks = batch.X.reshape(-1, math.gcd(size, _BLOCK), columns)
    K = jax.lax.map(some, blocks).reshape(size, size)
    level = smallest_jitter(K.dtype) * jnp.mean(jnp.diagonal(K))
    return K + level * jnp.eye(size)


def function_elbo(process: Any, batch: Batch, counts: PerPoint) -> Scalar:
    """The part of the ELBO of one function, with q(f) at its optimum; `counts` are
    responsibilities times weights."""
    root, residual, counted = _weighted(process, batch, counts)
    K = _covariance(process, batch)
    evidence = jax.vmap(log_evidence, in_axes=(None, 1, 1))(K, root, residual)
    noise = jnp.sum(counted * (jnp.log(process.noise_variance()) + LOG_2PI))
    return jnp.sum(evidence) - 0.5 * noise


def function_marginals(process: Any, batch: Batch, counts: PerPoint) -> Marginals:
    """Mean and variance of the exact q(f) at the points of the batch."""
    root, residual, _ = _weighted(process, batch, counts)
    K = _covariance(process, batch)
    prior = jnp.diagonal(K)

    def one(root: Array, residual: Array) -> tuple[Array, Array]:
        upper, _ = inverse_from(cholesky_positive_definite(_weighted_covariance(K, root)))
        explained = (K * root) @ upper
        mean = explained @ ((root * residual) @ upper)
        return mean, jnp.maximum(prior - jnp.sum(explained**2, axis=1), 0.0)

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


@functools.partial(program, emitters=True)
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
    function: Callable[[Any], tuple[Any, Any]], start: Any, enough: float, curvature: Curvature = ()
) -> tuple[Any, Curvature]:
    """The tree of arrays that L-BFGS reaches, and the curvature it has met, beginning with that of
    a function that was almost the same; `function` returns value and gradient. It ends early where
    as many steps as the next one would gain less than `enough`."""
    leaves, tree = jax.tree.flatten(start)
    edges = np.cumsum([np.size(leaf) for leaf in leaves])[:-1]

    def shaped(x: np.ndarray) -> Any:
        parts = zip(leaves, np.split(x, edges), strict=True)
        return tree.unflatten(part.reshape(leaf.shape).astype(leaf.dtype) for leaf, part in parts)

    def at(x: np.ndarray) -> tuple[float, np.ndarray]:
        value, gradient = function(shaped(x))
        slope = _flat(gradient)
        return float(value) if np.all(np.isfinite(slope)) else np.nan, slope

    here = _flat(start)
    value, slope = at(here)
    step = _step(slope, curvature)
    for _ in range(EVALUATIONS):
        promised = slope @ step
        if not promised > enough / EVALUATIONS:
            break
        reached, there = at(here + step)
        if not reached > value + _LEAST_GAIN * promised:
            step = _SHORTER * step
            continue
        if (slope - there) @ step > 0:
            curvature = (*curvature, (step, slope - there))[-_MEMORY:]
        here, value, slope = here + step, reached, there
        step = _step(slope, curvature)
    return shaped(here), curvature


def _flat(tree: Any) -> np.ndarray:
    """All numbers of a tree of arrays."""
    return np.concatenate([np.ravel(leaf) for leaf in jax.tree.leaves(tree)], dtype=np.float64)


def _step(slope: np.ndarray, curvature: Curvature) -> np.ndarray:
    """The step of L-BFGS, no number further than `REACH`."""
    step, shares = slope, []
    for moved, bent in reversed(curvature):
        shares.append((moved @ step) / (moved @ bent))
        step = step - shares[-1] * bent
    if curvature:
        moved, bent = curvature[-1]
        step = step * (moved @ bent) / (bent @ bent)
    for (moved, bent), share in zip(curvature, reversed(shares), strict=True):
        step = step + (share - (bent @ step) / (moved @ bent)) * moved
    # Cut, all of them move, also those whose slope is small; but the whole may then lead downwards.
    scaled = step * min(1.0, REACH / np.max(np.abs(step), initial=REACH))
    return max((np.clip(step, -REACH, REACH), scaled), key=lambda step: slope @ step)


def fit_exact(
    begun: Exact,
    batch: Batch,
    tol: float,
    rounds: int = ROUNDS,
    report: Callable[[float], None] = lambda _: None,
) -> Exact:
    """Hyperparameters by L-BFGS and responsibilities in turn, until a round gains less than `tol`
    per data point; `report` is told the ELBO after every round."""
    enough, best = tol * float(np.sum(to_host(batch.weight))), begun
    for _ in range(rounds):
        moving, rest = eqx.partition(best.model, trainable(best.model))
        given = best.responsibilities

        def value(now: Any, rest: Any = rest, given: Any = given) -> Any:
            return _slope(eqx.combine(now, rest), batch, given)

        moving, curvature = maximise(value, moving, enough, best.curvature)
        model, found, bound, decisive = _update(eqx.combine(moving, rest), batch, given)
        gain = float(bound) - best.bound
        if not gain > 0:
            break
        best = Exact(model, found, float(bound), decisive, curvature)
        report(best.bound)
        if gain < enough:
            break
    return best
