"""Evidence bounds: a batch in, a value with its named terms out."""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from dagp.gate import GPGate
from dagp.model import (
    Batch,
    DataAssociation,
    ModelProjection,
    NaturalRates,
    permitted,
)
from dagp.processes import over_samples
from dagp.sparse import Marginals, rooted
from dagp.typing import Array, PerProcess, Scalar

__all__ = [
    "Bound",
    "associated",
    "collapsed",
    "marginal",
    "responsibilities",
    "sampled",
    "settle",
    "summed_out",
]


class Bound(NamedTuple):
    """A lower bound on the log evidence and what it is made of."""

    value: Scalar
    data: Scalar
    """Expected log likelihood of the data, with the assignments summed out."""
    kl: Scalar
    """How far the posterior functions are from their priors."""
    prior: Scalar
    """Log priors of the hyperparameters that carry one."""


def collapsed(
    model: DataAssociation, projection: ModelProjection, batch: Batch, scale: Scalar | float = 1.0
) -> Bound:
    """The bound with q(a) at its optimum, ``Σ_n logsumexp_k(ℓ_nk + c_nk) − KL``.

    It has no parameters per point. `scale` is N over the size of the batch, which makes the
    bound of a random batch unbiased for the bound of all data.
    """
    return associated(model, projection, batch, scale)[0]


def associated(
    model: DataAssociation, projection: ModelProjection, batch: Batch, scale: Scalar | float = 1.0
) -> tuple[Bound, PerProcess]:
    """The collapsed bound, and the responsibilities at which it is taken."""
    model = rooted(model)
    log_joint = model.log_joint(model.marginals(projection), batch)
    return summed_out(model, log_joint, batch, scale), responsibilities(log_joint)


def summed_out(
    model: DataAssociation, log_joint: PerProcess, batch: Batch, scale: Scalar | float = 1.0
) -> Bound:
    """The collapsed bound of a model whose log joint is known."""
    data = scale * jnp.sum(batch.weight * jax.nn.logsumexp(log_joint, axis=1))
    kl, prior = model.kl(), model.log_prior()
    return Bound(data - kl + prior, data, kl, prior)


def sampled(
    model: DataAssociation, projection: ModelProjection, batch: Batch, key: Array
) -> tuple[PerProcess, PerProcess]:
    """Log densities of the outputs and log weights of the processes, for drawn functions."""
    functions, gate = jax.random.split(key)
    marginals = model.marginals(projection)
    drawn = _drawn(marginals.groups, functions)
    density = jax.vmap(lambda p, m: p.expected_log_density(m, batch.y))
    log_density = model.in_order(tuple(map(density, model.groups, drawn))).T
    if not isinstance(model.gate, GPGate):
        return log_density, marginals.gate.log_weights
    alpha = _drawn(marginals.gate.latent, gate).mean
    return log_density, over_samples(jax.nn.log_softmax(alpha), model.gate.latent.samples)


def _drawn(tree: Any, key: Array) -> Any:
    """Every function in a tree of marginals drawn, point by point, and certain from then on."""
    nodes, structure = jax.tree.flatten(tree, is_leaf=lambda node: isinstance(node, Marginals))
    drawn = []
    for node, own in zip(nodes, jax.random.split(key, len(nodes)), strict=True):
        deviate = jax.random.normal(own, node.mean.shape, node.mean.dtype)
        std = jnp.sqrt(node.variance + 1e-12)
        drawn.append(Marginals(node.mean + std * deviate, jnp.zeros_like(node.variance)))
    return jax.tree.unflatten(structure, drawn)


def marginal(
    model: DataAssociation, projection: ModelProjection, batch: Batch, key: Array
) -> Bound:
    """One sample of the bound with the assignments summed out inside the expectation,

    ``Σ_n E_q[log Σ_k softmax_k(α_n) p(y_n | f_k)] − KL``. By Jensen's inequality it is never
    below the collapsed one; it needs samples, and has no closed-form steps.
    """
    log_density, log_weights = sampled(model, projection, batch, key)
    joint = permitted(log_density + log_weights, batch)
    return summed_out(model, joint, batch)


def responsibilities(log_joint: PerProcess) -> PerProcess:
    """The optimal q(a): which process produced each point."""
    return jax.nn.softmax(log_joint, axis=1)


def settle(
    model: DataAssociation,
    projection: ModelProjection,
    batch: Batch,
    shares: PerProcess,
    steps: int,
    rates: NaturalRates,
) -> DataAssociation:
    """Let q(a), every q(u) and the gate agree, with the hyperparameters held still.

    It begins with the functions, given the responsibilities of before: after the hyperparameters
    have moved, the functions fit badly for a moment, and points reassigned in that moment would
    never find back. The projections do not depend on q, so all steps share one set of them and
    need no gradients. The gate, which is as much work as all processes, waits for the last of
    them. Who produced the points after that is left to whoever looks at the bound there.
    """
    for i in range(steps):
        marginals = model.marginals(projection)
        # The first needs no responsibilities of its own, and so no variances.
        given = responsibilities(model.log_joint(marginals, batch)) if i else shares
        if i == steps - 1:
            model = model.natural_step(projection, marginals, batch, given, rates)
        else:
            model = model.process_step(projection, marginals, batch, given, rates.process)
    return model
