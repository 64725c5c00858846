"""Evidence bounds: a batch in, a value with its named terms out."""

from typing import NamedTuple

import jax
import jax.numpy as jnp

from dagp.model import Batch, DataAssociation, ModelMarginals, ModelProjection, NaturalRates
from dagp.typing import Array, Int, PerProcess, Scalar

__all__ = ["Bound", "collapsed", "responsibilities", "settle"]


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
    log_joint = model.log_joint(model.marginals(projection), batch)
    data = scale * jnp.sum(batch.weight * jax.nn.logsumexp(log_joint, axis=1))
    kl, prior = model.kl(), model.log_prior()
    return Bound(data - kl + prior, data, kl, prior)


def responsibilities(log_joint: PerProcess) -> PerProcess:
    """The optimal q(a): which process produced each point."""
    return jax.nn.softmax(log_joint, axis=1)


def settle(
    model: DataAssociation,
    projection: ModelProjection,
    batch: Batch,
    shares: PerProcess,
    steps: int | Int[Array, ""],
    rates: NaturalRates,
) -> tuple[DataAssociation, PerProcess]:
    """Let q(a), every q(u) and the gate agree, with the hyperparameters held still.

    It begins with the functions, given the responsibilities of before: after the hyperparameters
    have moved, the functions fit badly for a moment, and points reassigned in that moment would
    never find back. The projections do not depend on q, so all steps share one set of them and
    need no gradients.
    """

    def step(
        _: Int[Array, ""], carry: tuple[DataAssociation, ModelMarginals, PerProcess]
    ) -> tuple[DataAssociation, ModelMarginals, PerProcess]:
        model, marginals, shares = carry
        model = model.natural_step(projection, marginals, batch, shares, rates)
        marginals = model.marginals(projection)
        return model, marginals, responsibilities(model.log_joint(marginals, batch))

    start = (model, model.marginals(projection), shares)
    model, _, shares = jax.lax.fori_loop(0, steps, step, start)
    return model, shares
