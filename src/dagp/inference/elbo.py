"""Evidence lower bounds (ELBO) of a model on a batch, with their terms.

Training uses the collapsed ELBO, ``Σ_n logsumexp_k(ℓ_nk + c_nk) − KL``: q(a) is summed out, and its
optimum, the responsibilities, is a softmax.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp

from dagp.core.typing import Array, PerProcess, Scalar
from dagp.model.association import (
    Batch,
    DataAssociation,
    ModelMarginals,
    ModelProjection,
    NaturalRates,
    apply_labels,
)
from dagp.model.gates import GateMarginals
from dagp.model.sparse_gp import draw_marginals
from dagp.model.variational import factorise


class ELBO(NamedTuple):
    """A lower bound on the log evidence, and its terms."""

    value: Scalar
    data: Scalar
    """Expected log likelihood of the data, with the assignments summed out."""
    kl: Scalar
    """KL divergence of every q from its prior."""
    prior: Scalar
    """Log priors of the hyperparameters that have one."""


def collapsed_elbo(
    model: DataAssociation, projection: ModelProjection, batch: Batch, scale: Scalar | float = 1.0
) -> ELBO:
    """The ELBO with q(a) at its optimum; `scale` is N over the size of a minibatch."""
    return elbo_and_responsibilities(model, projection, batch, scale)[0]


def elbo_and_responsibilities(
    model: DataAssociation, projection: ModelProjection, batch: Batch, scale: Scalar | float = 1.0
) -> tuple[ELBO, PerProcess, GateMarginals]:
    """The collapsed ELBO, the responsibilities q(a) at its optimum, and the gate's marginals."""
    model = factorise(model)
    marginals = model.marginals(projection)
    log_joint = model.log_joint(marginals, batch)
    bound = elbo_from_log_joint(model, log_joint, batch, scale)
    return bound, responsibilities(log_joint), marginals.gate


def elbo_from_log_joint(
    model: DataAssociation, log_joint: PerProcess, batch: Batch, scale: Scalar | float = 1.0
) -> ELBO:
    """The collapsed ELBO of a model, given its log joint."""
    data = scale * jnp.sum(batch.weight * jax.nn.logsumexp(log_joint, axis=1))
    kl, prior = model.kl(), model.log_prior()
    return ELBO(data - kl + prior, data, kl, prior)


def sampled_log_joint(
    model: DataAssociation, projection: ModelProjection, batch: Batch, key: Array
) -> tuple[PerProcess, PerProcess]:
    """Log densities of the outputs and log weights of the processes, for functions drawn from q."""
    functions, gate = jax.random.split(key)
    marginals = model.marginals(projection)
    drawn = draw_marginals(marginals.groups, functions)
    density = jax.vmap(lambda p, m: p.expected_log_density(m, batch.y))
    log_density = model.in_order(tuple(map(density, model.groups, drawn))).T
    return log_density, model.gate.sampled_log_weights(marginals.gate, gate)


def marginal_elbo(
    model: DataAssociation, projection: ModelProjection, batch: Batch, key: Array
) -> ELBO:
    """One sample of ``Σ_n E_q[log Σ_k softmax_k(α_n) p(y_n | f_k)] − KL``.

    By Jensen's inequality its expectation is not below the collapsed ELBO; it has no closed form.
    """
    log_density, log_weights = sampled_log_joint(model, projection, batch, key)
    joint = apply_labels(log_density + log_weights, batch)
    return elbo_from_log_joint(model, joint, batch)


def responsibilities(log_joint: PerProcess) -> PerProcess:
    """The optimal q(a): probability that each process produced each point."""
    return jax.nn.softmax(log_joint, axis=1)


def settle(
    model: DataAssociation,
    projection: ModelProjection,
    batch: Batch,
    given: PerProcess,
    gate: GateMarginals,
    rates: NaturalRates,
) -> DataAssociation:
    """Coordinate ascent on q(a), every q(u) and the gate, with hyperparameters held fixed.

    The first of two steps uses the `given` responsibilities, those of the last evaluation: right
    after a change of hyperparameters the functions fit badly, and points reassigned then would not
    come back. The gate, as costly as all processes together, moves once, and from its marginals at
    the last evaluation.
    """
    marginals = ModelMarginals(model.process_marginals(projection), gate)
    # One process: responsibilities are constant, one step suffices.
    if model.n_processes > 1:
        model = model.process_step(projection, marginals, batch, given, rates.process)
        marginals = ModelMarginals(model.process_marginals(projection), gate)
        given = responsibilities(model.log_joint(marginals, batch))
    return model.natural_step(projection, marginals, batch, given, rates)
