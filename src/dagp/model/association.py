"""The DAGP model: K processes and a gate, as one immutable tree of arrays."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from dagp.core.tags import storable
from dagp.core.typing import Array, Float, Inputs, Outputs, PerPoint, PerProcess, Scalar
from dagp.model.gates import Gate, GateMarginals
from dagp.model.parameters import log_prior, tied
from dagp.model.process import Process
from dagp.model.sparse_gp import Marginals, Projection


class Batch(NamedTuple):
    """Standardised data for the ELBO, possibly padded with rows of zero weight."""

    X: Inputs
    y: Outputs
    weight: PerPoint
    label_log_mask: PerProcess
    """Zero where a process may have produced the point, hugely negative where it may not."""


def apply_labels(log_joint: PerProcess, batch: Batch) -> PerProcess:
    """The log joint with the processes masked out that labels exclude, also for points outside the
    range of a uniform process."""
    ruled_out = batch.label_log_mask < 0
    stated = jnp.max(jnp.where(ruled_out, -jnp.inf, log_joint), axis=1, keepdims=True)
    lower = jnp.minimum(batch.label_log_mask, 2 * jax.lax.stop_gradient(stated))
    return jnp.where(ruled_out, lower, log_joint)


class ModelProjection(NamedTuple):
    """Projections of a batch: one entry per group of processes, and the gate's."""

    groups: tuple[Any, ...]
    gate: Any


class ModelMarginals(NamedTuple):
    """Marginals at a batch: one entry per group of processes, and the gate's."""

    groups: tuple[Marginals, ...]
    gate: GateMarginals


class NaturalRates(NamedTuple):
    """Step sizes of natural-gradient steps: 1 for processes, which are conjugate, and less for the
    gate, where full steps overshoot."""

    process: Scalar | float = 1.0
    gate: Scalar | float = 0.3


@storable("model/DataAssociation")
class DataAssociation(eqx.Module):
    """K processes and a gate.

    Processes of the same structure are stacked along a leading axis and computed together:
    `groups` holds the stacks, `members` the index of each process in the user's order.
    """

    groups: tuple[Process, ...]
    gate: Gate
    members: tuple[tuple[int, ...], ...] = eqx.field(static=True)

    @staticmethod
    def assemble(processes: Sequence[Process], gate: Gate) -> "DataAssociation":
        makes: dict[Any, list[int]] = {}
        for k, process in enumerate(processes):
            shapes = tuple(jnp.shape(leaf) for leaf in jax.tree.leaves(process))
            makes.setdefault((jax.tree.structure(process), shapes), []).append(k)
        groups = tuple(
            jax.tree.map(lambda *leaves: np.stack(leaves), *(processes[k] for k in members))
            for members in makes.values()
        )
        gate = jax.tree.map(np.asarray, gate)
        return DataAssociation(groups, gate, tuple(tuple(m) for m in makes.values()))

    @property
    def n_processes(self) -> int:
        return sum(len(members) for members in self.members)

    @property
    def is_uniform(self) -> tuple[bool, ...]:
        """Which processes have uniform rather than normal observations."""
        return tuple(self.process(k).is_uniform for k in range(self.n_processes))

    def process(self, k: int) -> Process:
        """Process k on its own."""
        for group, members in zip(self.groups, self.members, strict=True):
            if k in members:
                at = members.index(k)
                # The ellipsis keeps leaves without further axes arrays, also in NumPy.
                return jax.tree.map(lambda leaf: leaf[at, ...], group)  # noqa: B023
        raise IndexError(f"There is no process {k}; this model has {self.n_processes}.")

    def project(self, X: Inputs) -> ModelProjection:
        groups = tuple(jax.vmap(lambda p: p.project(X))(group) for group in self.groups)
        return ModelProjection(groups, self.gate.project(X))

    def marginals(self, projection: ModelProjection) -> ModelMarginals:
        groups = self.process_marginals(projection)
        return ModelMarginals(groups, self.gate.marginals(projection.gate))

    def process_marginals(self, projection: ModelProjection) -> tuple[Any, ...]:
        """The part of `marginals` that concerns the processes."""
        marginals = jax.vmap(lambda p, j: p.marginals(j))
        return tuple(map(marginals, self.groups, projection.groups))

    def log_joint(self, marginals: ModelMarginals, batch: Batch) -> PerProcess:
        """ℓ_nk + c_nk: expected log of ``p(y_n | f_k) p(a_n = k | α)``."""
        density = jax.vmap(lambda p, m: p.expected_log_density(m, batch.y))
        per_process = self.in_order(tuple(map(density, self.groups, marginals.groups)))
        return apply_labels(per_process.T + marginals.gate.log_weights, batch)

    def natural_step(
        self,
        projection: ModelProjection,
        marginals: ModelMarginals,
        batch: Batch,
        responsibilities: PerProcess,
        rates: NaturalRates,
    ) -> "DataAssociation":
        """One natural-gradient step of every q, given the responsibilities."""
        moved = self.process_step(projection, marginals, batch, responsibilities, rates.process)
        return moved.gate_step(projection, marginals.gate, batch, responsibilities, rates.gate)

    def gate_step(
        self,
        projection: ModelProjection,
        marginals: GateMarginals,
        batch: Batch,
        responsibilities: PerProcess,
        rate: Scalar | float,
    ) -> "DataAssociation":
        """As `natural_step`, of the gate alone."""
        gate = self.gate.natural_step(
            projection.gate, marginals, responsibilities, batch.weight, rate
        )
        return self.with_gate(gate)

    def process_step(
        self,
        projection: ModelProjection,
        marginals: ModelMarginals,
        batch: Batch,
        responsibilities: PerProcess,
        rate: Scalar | float,
    ) -> "DataAssociation":
        """As `natural_step`, of the processes alone."""
        weights = (batch.weight[:, None] * responsibilities).T
        move = jax.vmap(lambda p, j, m, weight: p.natural_step(j, m, batch.y, weight, rate))
        groups = tuple(
            move(group, proj, part, weights[jnp.asarray(members)])
            for group, proj, part, members in zip(
                self.groups, projection.groups, marginals.groups, self.members, strict=True
            )
        )
        return DataAssociation(groups, self.gate, self.members)

    def with_gate(self, gate: Gate) -> "DataAssociation":
        return DataAssociation(self.groups, gate, self.members)

    def tied(self) -> "DataAssociation":
        """For a tree of gradients: tied parameters have the sum of their gradients."""
        return DataAssociation(tied(self.groups), self.gate, self.members)

    def kl(self) -> Scalar:
        groups = (jnp.sum(jax.vmap(lambda p: p.kl())(group)) for group in self.groups)
        return sum(groups, start=self.gate.kl())

    def log_prior(self) -> Scalar:
        """Log priors of all hyperparameters that carry one."""
        groups = (jnp.sum(jax.vmap(log_prior)(group)) for group in self.groups)
        return sum(groups, start=log_prior(self.gate))

    def moments(
        self, marginals: ModelMarginals
    ) -> tuple[Float[Array, "K N P"], Float[Array, "K N P"]]:
        """Mean and variance of the function of each process at the points of the marginals."""

        def of_one(process: Process, part: Any) -> tuple[Outputs, Outputs]:
            masses, mean, variance, _ = process.components(part)
            first = jnp.tensordot(masses, mean, axes=1)
            return first, jnp.tensordot(masses, variance + (mean - first) ** 2, axes=1)

        groups = tuple(map(jax.vmap(of_one), self.groups, marginals.groups))
        means, variances = (self.in_order(parts) for parts in zip(*groups, strict=True))
        return means, variances

    def noise_variances(self) -> Float[Array, "K P"]:
        return self.in_order(
            tuple(jax.vmap(lambda p: p.noise_variance())(group) for group in self.groups)
        )

    def residuals(self, projection: ModelProjection, X: Inputs) -> Float[Array, "K N"]:
        """Prior variance of each function that its inducing inputs do not explain; zero for clutter
        and deep functions."""

        def of_group(group: Process, at: Any) -> Float[Array, "G N"]:
            if group.function is None or len(group.function.layers) > 1:
                return jnp.zeros((len(jax.tree.leaves(group)[0]), len(X)))
            return jax.vmap(lambda p, j: p.function_projection(j).residual)(group, at)

        return self.in_order(tuple(map(of_group, self.groups, projection.groups)))

    def function_projections(self, projection: ModelProjection) -> tuple[Projection | None, ...]:
        """Projections of the functions of each group; None for clutter and deep functions."""

        def of_group(group: Process, at: Any) -> Projection | None:
            if group.function is None or len(group.function.layers) > 1:
                return None
            return jax.vmap(lambda p, j: p.function_projection(j))(group, at)

        return tuple(map(of_group, self.groups, projection.groups))

    def jitters(self) -> dict[str, Scalar]:
        """Relative jitter of every inducing covariance, by the name of its process or gate."""
        found = {}
        for group, members in zip(self.groups, self.members, strict=True):
            if group.function is not None:
                each = jax.vmap(lambda process: process.function.jitter())(group)
                found |= {f"process {k}": each[i] for i, k in enumerate(members)}
        if (jitter := self.gate.jitter()) is not None:
            found["the gate"] = jitter
        return found

    def in_order(self, parts: tuple[Float[Array, "..."], ...]) -> Float[Array, "..."]:
        """Join one array per group into one array whose first axis is the user's order."""
        if len(parts) == 1:
            return parts[0]
        flat = [k for members in self.members for k in members]
        positions = sorted(range(len(flat)), key=flat.__getitem__)
        joined = jnp.concatenate(parts)
        # Not by an array of indices: the gradient would be a scatter, which is a slow loop on CPUs.
        return jnp.stack([joined[i] for i in positions])
