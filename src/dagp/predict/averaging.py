"""Averages q(f) over uncertain hyperparameters: wider bands where these are not determined.

The Laplace approximation gives independent directions in the space of the hyperparameters. To
either side of each, functions are settled again; how far their means move, and how much their
variances grow, is added to the covariance of q(f). The kernel of the best hyperparameters
interpolates between the data, so the result is a model like any other: predictions cost what they
did, and files, exports and roll-outs need no change.
"""

from collections.abc import Iterator
from typing import Any, NamedTuple

import jax
import numpy as np

from dagp.core.precision import numerics
from dagp.core.programs import program
from dagp.core.sharding import to_host
from dagp.core.threads import concurrently
from dagp.core.typing import Array, Float, Inputs
from dagp.inference.laplace import Laplace, Layout, laplace, settled_at
from dagp.inference.parallel import width
from dagp.inference.standardize import Sample
from dagp.inference.train import Result, State
from dagp.model.association import Batch, DataAssociation
from dagp.model.parameters import Parameter
from dagp.model.process import Process
from dagp.model.variational import NaturalGaussian
from dagp.predict.posterior import Posterior
from dagp.predict.widening import widened

REACH = np.sqrt(3.0)
"""Standard deviations from the best hyperparameters to either side: with a weight of 1/6 each and
2/3 in between, three points integrate polynomials of degree five (Gauss-Hermite)."""
MOST_RATIO = 2.0
"""Most that a setting counts in place of its weight, where the posterior has heavier tails than its
approximation."""
RIDGE = 1e-6
"""Relative to the largest eigenvalue, where changes of functions are expressed in the basis of
their inducing points, which may be nearly redundant."""


class Averaged(NamedTuple):
    """A posterior that is averaged over hyperparameters, and their approximation."""

    posterior: Posterior
    trained: Posterior
    """The same before it is widened."""
    responsibilities: Float[np.ndarray, "N K"]
    log_stds: list[dict[str, np.ndarray]]
    """For each process, standard deviations of the logarithms of its hyperparameters."""
    log_evidence: float
    """Of the association, with the hyperparameters integrated out."""


class Functions(NamedTuple):
    """Functions of a group of processes at the training inputs."""

    mean: Float[Array, "G N P"]
    basis: Float[Array, "G M N"]
    spread: Float[Array, "G P M N"]
    """Root of the covariance that the inducing values explain."""


def nothing_to_average(model: DataAssociation) -> bool:
    """Whether there are no functions, or all hyperparameters are known."""
    return all(group.function is None for group in model.groups) or not Layout.of(model).values.size


def averaged(posterior: Posterior, result: Result, sample: Sample, batch: Batch) -> Averaged | None:
    """The posterior averaged over hyperparameters; None where that fails.

    `posterior` holds the trained model of the `result`, before it is widened.
    """
    units, dtype = posterior.units, posterior.dtype
    with numerics(dtype):
        found = laplace(result.state, result.bound, batch)
        if found is None:
            return None
        more = _variance_between(found, batch)
        trained = Posterior(jax.tree.map(np.asarray, found.best.state.model), units, dtype)
        shares = to_host(found.best.state.responsibilities).astype(np.float64)
        stds = jax.tree.map(np.asarray, found.stds())
    wider, usual = widened(trained, sample, batch), _infinite_numbers(posterior.model)
    if _infinite_numbers((wider.model, more)) > usual:
        # Too few points, or too far apart, to settle functions at other hyperparameters.
        return None
    groups = tuple(
        group if add is None else _with(group, add)
        for group, add in zip(wider.model.groups, more, strict=True)
    )
    model = DataAssociation(groups, wider.model.gate, wider.model.members)
    if _infinite_numbers(model) > usual:
        return None
    log_stds = [_log_stds(stds.process(k)) for k in range(stds.n_processes)]
    shares = shares[: len(sample.X)]
    return Averaged(Posterior(model, units, dtype), trained, shares, log_stds, found.log_evidence())


def _infinite_numbers(tree: Any) -> int:
    return sum(np.sum(~np.isfinite(leaf)) for leaf in jax.tree.leaves(tree))


def _log_stds(process: Process) -> dict[str, np.ndarray]:
    """The standard deviations of one process, by the names of its hyperparameters."""
    if process.function is None:
        return {}
    kernel = process.function.layers[-1].kernel
    places = {"noise_std": process, "lengthscale": kernel, "variance": kernel}
    found = {name: getattr(place, name, None) for name, place in places.items()}
    return {
        name: np.atleast_1d(np.asarray(p.raw, np.float64))
        for name, p in found.items()
        if isinstance(p, Parameter) and not p.frozen
    }


def _variance_between(found: Laplace, batch: Batch) -> list[Float[np.ndarray, "G P M M"] | None]:
    """What uncertain hyperparameters add to the covariance of every q, rounding aside."""
    best = found.best
    here = _functions(best.state.model, batch.X)
    inverses = [None if at is None else _inverse(to_host(at.basis)) for at in here]
    total: list[Any] = [None] * len(here)
    for weight, model in _settings(found, batch):
        there = _functions(model, batch.X)
        for g, (inverse, at, moved) in enumerate(zip(inverses, here, there, strict=True)):
            if inverse is None:
                continue
            change = weight * _change(inverse, at, moved)
            total[g] = change if total[g] is None else total[g] + change
    return total


def _settings(found: Laplace, batch: Batch) -> Iterator[tuple[float, DataAssociation]]:
    """Models to either side of the best in every direction, and their weights."""
    best, given = found.best, found.best.state.responsibilities

    def settled(step: Float[np.ndarray, " H"]) -> tuple[State, float]:
        return settled_at(found.layout, best.state.model, batch, given, best.values + step)

    steps = [sign * step for step in REACH * found.directions().T for sign in (1, -1)]
    for state, value in concurrently(settled, steps, width(best.state)):
        if np.isfinite(value):
            # Importance weights: the approximation falls by half the square of the distance.
            ratio = np.exp(min(0.5 * REACH**2 - best.value + value, np.log(MOST_RATIO)))
            yield 0.5 / REACH**2 * ratio, state.model


@program
def _functions(model: DataAssociation, X: Inputs) -> tuple[Functions | None, ...]:
    def of(process: Process) -> Functions:
        projection = process.function_projection(process.project(X))
        function: Any = process.function
        root = function.layers[-1].q.mean_and_root()[1]
        mean = function.marginals(projection).mean
        return Functions(mean, projection.basis, root @ projection.basis)

    return tuple(None if group.function is None else jax.vmap(of)(group) for group in model.groups)


def _inverse(basis: Float[np.ndarray, "G M N"]) -> Float[np.ndarray, "G M N"]:
    """From values at the training inputs to inducing values, by least squares."""
    basis = np.asarray(basis, np.float64)
    gram = basis @ np.swapaxes(basis, -1, -2)
    values, vectors = np.linalg.eigh(gram)
    values = values + RIDGE * values[..., -1:]
    # A function that is zero everywhere has no basis.
    inverses = np.divide(1.0, values, out=np.zeros_like(values), where=values > 0)
    scaled = vectors * inverses[..., None, :]
    return scaled @ (np.swapaxes(vectors, -1, -2) @ basis)


def _change(
    inverse: Float[np.ndarray, "G M N"], here: Functions, there: Functions
) -> Float[np.ndarray, "G P M M"]:
    """Square of the change of the mean, and change of the covariance, of inducing values."""
    step = to_host(there.mean).astype(np.float64) - to_host(here.mean).astype(np.float64)
    moved = np.swapaxes(inverse @ step, -1, -2)
    change = moved[..., :, None] * moved[..., None, :]
    back = np.swapaxes(inverse, -1, -2)[:, None]
    for sign, functions in ((1.0, there), (-1.0, here)):
        root = to_host(functions.spread).astype(np.float64) @ back
        change = change + sign * np.swapaxes(root, -1, -2) @ root
    return change


def _root(change: Float[np.ndarray, "G P M M"]) -> Float[np.ndarray, "G P M M"]:
    """Root D of the part ``D Dᵀ`` that adds to a covariance: averages are not narrower than the
    best setting."""
    values, vectors = np.linalg.eigh((change + np.swapaxes(change, -1, -2)) / 2)
    return vectors * np.sqrt(np.maximum(values, 0.0))[..., None, :]


def _with(group: Process, more: Float[np.ndarray, "G P M M"]) -> Process:
    """A group of processes with the covariance of q enlarged and its mean unchanged."""
    assert group.function is not None
    q = group.function.layers[-1].q.as_natural()
    before, shift = np.asarray(q.precision, np.float64), np.asarray(q.shift, np.float64)
    values, vectors = np.linalg.eigh(before)
    # Rounding may have left less than the precision of the prior.
    values = np.maximum(values, 1.0)[..., None, :]
    mean = vectors @ (np.swapaxes(vectors / values, -1, -2) @ shift[..., None])
    # (Λ⁻¹ + D Dᵀ)⁻¹ = R (I + FᵀF)⁻¹ Rᵀ for Λ = R Rᵀ and F = DᵀR. Precisions of functions almost
    # without noise are ill-conditioned: products are factored by QR, before they are formed.
    root = vectors * np.sqrt(values)
    eye = np.broadcast_to(np.eye(shift.shape[-1]), root.shape)
    upper = np.linalg.qr(np.concatenate([eye, np.swapaxes(_root(more), -1, -2) @ root], -2), "r")
    half = np.linalg.solve(np.swapaxes(upper, -1, -2), np.swapaxes(root, -1, -2))
    after = np.swapaxes(half, -1, -2) @ half
    shift = (after @ mean)[..., 0].astype(q.shift.dtype)
    return group.with_function_q(NaturalGaussian(after.astype(q.precision.dtype), shift))
