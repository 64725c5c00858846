"""Functions of a fitted model, prepared for many evaluations, and whole functions drawn from it.

A roll-out evaluates the same functions at every step. `prepared` computes what does not depend on
the input once. With ``b = L⁻¹ k_Z(x)`` and ``q(v) = N(m, S)``, mean and variance of a value are ::

    μ(x) + mᵀ b,    k(x, x) − bᵀ (I − S) b,

and with a root of I − S times L⁻¹ one product of matrices takes the place of two.

`drawn` fixes a function for a whole trajectory, by Matheron's rule (pathwise sampling, Wilson et
al. 2020): with inducing values ``v`` drawn from q and a draw ``g`` from the prior, ::

    f(x) = μ(x) + g(x) + bᵀ (v − L⁻¹ g(Z)).

The prior is drawn as a sum of random Fourier features, for kernels with a known spectral density.
"""

import math
from collections.abc import Collection
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from dagp.core.linalg import whitener
from dagp.core.programs import program
from dagp.core.typing import Array, Float, Inputs
from dagp.model.association import DataAssociation
from dagp.model.kernel import Constant, Kernel, Product, Sum
from dagp.model.kernels import Linear, Matern12, Matern32, Matern52, SquaredExponential
from dagp.model.means import Mean
from dagp.model.sparse_gp import Marginals, Projection, SparseGP

FEATURES = 256
"""Random Fourier features per stationary kernel: the covariance of two values of a drawn function
is off by about its variance over the root of this number."""
_STATIONARY = (SquaredExponential, Matern12, Matern32, Matern52)
_SMOOTHNESS = {Matern12: 0.5, Matern32: 1.5, Matern52: 2.5}
"""The ν of Matérn kernels."""


class PreparedGP(eqx.Module):
    """A sparse GP with everything precomputed that does not depend on the input."""

    kernel: Kernel
    mean: Mean
    inducing: Float[Array, "*K M D"]
    whitener: Float[Array, "*K M M"]
    q_mean: Float[Array, "*K P M"]
    q_root: Float[Array, "*K P M M"]
    weights: Float[Array, "*K P M"]
    """Of the covariances with the inducing points, in the mean."""
    known: Float[Array, "*K P M M"]
    """The same in the directions of which data reduce the variance, scaled by how much."""
    signs: Float[Array, "*K P M"]
    """Minus one for directions whose variance is above that of the prior, which may happen."""

    @property
    def samples(self) -> int:
        return 1

    def project(self, X: Inputs) -> Projection:
        """Covariances with the inducing points, instead of a basis, and the prior variance."""
        return Projection(self.kernel(self.inducing, X), self.kernel.diagonal(X), self.mean(X))

    def marginals(self, projection: Projection) -> Marginals:
        mean = projection.mean + (self.weights @ projection.basis).T
        reduced = jnp.einsum("pr,prn->np", self.signs, (self.known @ projection.basis) ** 2)
        return Marginals(mean, jnp.maximum(projection.residual[:, None] - reduced, 0.0))

    def whitened(self, X: Inputs) -> Projection:
        """As that of the sparse GP itself."""
        basis = self.whitener @ self.kernel(self.inducing, X)
        residual = jnp.maximum(self.kernel.diagonal(X) - jnp.sum(basis**2, axis=0), 0.0)
        return Projection(basis, residual, self.mean(X))


_HALF_ANGLE = [(-1.0) ** n * math.pi ** (2 * n) / math.factorial(2 * n) for n in range(10)]
"""Coefficients of cos(πu) in powers of u². For u up to a half the rest is below rounding."""


def cosine(turns: Float[Array, "..."]) -> Float[Array, "..."]:
    """cos(2π · turns), in a fraction of the time of the compiler's own.

    Whole turns are taken off, and what is left comes from the half angle, cos 2a = 2 cos² a − 1.
    """
    square = (turns - jnp.round(turns)) ** 2
    half = jnp.full_like(square, _HALF_ANGLE[-1])
    for coefficient in _HALF_ANGLE[-2::-1]:
        half = half * square + coefficient
    return 2 * half**2 - 1


class Features(eqx.Module):
    """Basis functions whose sum with standard normal weights is a draw from a GP prior."""

    frequencies: Float[Array, "*K F D"]
    """In turns, as the phases."""
    phases: Float[Array, "*K F"]
    sizes: Float[Array, "*K F"]
    """Size of each cosine."""
    slopes: Float[Array, "*K D"]
    """Size of the linear function of each input, of linear kernels."""

    def __call__(self, X: Inputs) -> Float[Array, "N FD"]:
        waves = self.sizes * cosine(X @ self.frequencies.T + self.phases)
        return jnp.concatenate([waves, X * self.slopes], axis=1)


class FunctionDraw(NamedTuple):
    """What fixes one function of every output."""

    inducing: Float[Array, "*K P M"]
    """Whitened inducing values, less those of the draw from the prior; with features, weights of
    the covariances with the inducing points, which takes M instead of M² operations per value."""
    weights: Float[Array, "*K P FD"] | None
    """Weights of the features; None for kernels without features."""


class DrawnGP(eqx.Module):
    """One function drawn from a sparse GP: its marginals have no variance.

    Kernels without features keep the variance that the inducing points do not explain, so that
    this part of the function is drawn anew at every step.
    """

    gp: PreparedGP
    features: Features | None
    draw: FunctionDraw

    @property
    def samples(self) -> int:
        return 1

    def project(self, X: Inputs) -> Projection:
        if self.features is None or self.draw.weights is None:
            return self.gp.whitened(X)
        covariance = self.gp.kernel(self.gp.inducing, X)
        prior = self.features(X) @ self.draw.weights.T
        return Projection(covariance, jnp.zeros_like(X[:, 0]), self.gp.mean(X) + prior)

    def marginals(self, projection: Projection) -> Marginals:
        mean = projection.mean + (self.draw.inducing @ projection.basis).T
        return Marginals(mean, jnp.broadcast_to(projection.residual[:, None], mean.shape))


def _is_gp(node: Any) -> bool:
    return isinstance(node, SparseGP | PreparedGP)


@program
def prepared(model: DataAssociation) -> DataAssociation:
    """The model with all of its sparse GPs prepared, and the quadrature of predictions."""

    def prepare(node: Any) -> Any:
        if not isinstance(node, SparseGP):
            return node
        Z = jnp.asarray(node.inducing.value)
        mean, root = node.q.mean_and_root()
        white = whitener(node.kernel(Z, Z))
        values, axes = jnp.linalg.eigh(jnp.eye(len(Z)) - jnp.swapaxes(root, -1, -2) @ root)
        known = jnp.sqrt(jnp.abs(values))[..., None] * jnp.swapaxes(axes, -1, -2)
        return PreparedGP(
            node.kernel,
            node.mean,
            Z,
            white,
            mean,
            root,
            mean @ white,
            known @ white,
            jnp.sign(values),
        )

    def all_of(part: Any) -> Any:
        return jax.tree.map(prepare, part, is_leaf=_is_gp)

    groups = tuple(jax.vmap(all_of)(group) for group in model.groups)
    return DataAssociation(groups, all_of(model.gate.refined()), model.members)


def without_processes(model: DataAssociation, dropped: Collection[int]) -> DataAssociation:
    """The model without the functions of these processes; its gate still weighs all of them."""
    groups, members = [], []
    for group, own in zip(model.groups, model.members, strict=True):
        kept = np.array([i for i, k in enumerate(own) if k not in dropped], int)
        if len(kept):
            groups.append(jax.tree.map(lambda leaf, at=kept: leaf[at], group))
            members.append(tuple(own[i] for i in kept))
    return DataAssociation(tuple(groups), model.gate, tuple(members))


def draw_features(model: DataAssociation, key: Array) -> list[Features | None]:
    """Features of every sparse GP of a prepared model, in the order of its leaves.

    All trajectories share them, and differ by the weights: a draw of a function then costs little.
    """
    found = []
    for gp, stacked in _gps(model):
        key, own = jax.random.split(key)

        def of_one(kernel: Kernel, key: Array, columns: int = gp.inducing.shape[-1]) -> Any:
            return prior_features(kernel, columns, key)

        keys = jax.random.split(own, len(gp.inducing)) if stacked else own
        found.append((jax.vmap(of_one) if stacked else of_one)(gp.kernel, keys))
    return found


def draw_functions(
    model: DataAssociation, features: list[Features | None], key: Array
) -> list[FunctionDraw]:
    """One function of every sparse GP of a prepared model, in the order of its leaves."""
    draws = []
    for (gp, stacked), own_features in zip(_gps(model), features, strict=True):
        key, own = jax.random.split(key)
        keys = jax.random.split(own, len(gp.inducing)) if stacked else own
        draw = jax.vmap(_draw_function) if stacked else _draw_function
        draws.append(draw(gp, own_features, keys))
    return draws


def with_functions(
    model: DataAssociation, features: list[Features | None], draws: list[FunctionDraw]
) -> DataAssociation:
    """A prepared model whose functions are these."""
    remaining = iter(zip(features, draws, strict=True))

    def place(part: Any) -> Any:
        return jax.tree.map(
            lambda node: DrawnGP(node, *next(remaining)) if _is_gp(node) else node,
            part,
            is_leaf=_is_gp,
        )

    groups = tuple(map(place, model.groups))
    return DataAssociation(groups, place(model.gate), model.members)


def _gps(model: DataAssociation) -> list[tuple[PreparedGP, bool]]:
    """Sparse GPs in the order of leaves, and whether they are stacked over processes."""
    parts = [(group, True) for group in model.groups] + [(model.gate, False)]
    return [
        (node, stacked)
        for part, stacked in parts
        for node in jax.tree.leaves(part, is_leaf=_is_gp)
        if _is_gp(node)
    ]


def _draw_function(gp: PreparedGP, features: Features | None, key: Array) -> FunctionDraw:
    value_key, weight_key = jax.random.split(key)
    white = jax.random.normal(value_key, gp.q_mean.shape, gp.q_mean.dtype)
    # A root R of the covariance S = RᵀR.
    values = gp.q_mean + jnp.einsum("pij,pi->pj", gp.q_root, white)
    if features is None:
        return FunctionDraw(values, None)
    at_inducing = gp.whitener @ features(gp.inducing)
    shape = gp.q_mean.shape[0], at_inducing.shape[1]
    weights = jax.random.normal(weight_key, shape, values.dtype)
    return FunctionDraw((values - weights @ at_inducing.T) @ gp.whitener, weights)


def prior_features(kernel: Kernel, columns: int, key: Array) -> Features | None:
    """Features of a GP prior with this kernel; None if its spectral density is not known here."""
    if isinstance(kernel, Sum):
        first_key, second_key = jax.random.split(key)
        first = prior_features(kernel.first, columns, first_key)
        second = prior_features(kernel.second, columns, second_key)
        if first is None or second is None:
            return None
        return Features(
            jnp.concatenate([first.frequencies, second.frequencies]),
            jnp.concatenate([first.phases, second.phases]),
            jnp.concatenate([first.sizes, second.sizes]),
            jnp.sqrt(first.slopes**2 + second.slopes**2),
        )
    if isinstance(kernel, Product) and isinstance(kernel.first, Constant):
        scaled = prior_features(kernel.second, columns, key)
        if scaled is None:
            return None
        factor = jnp.sqrt(kernel.first.variance.value)
        scaling = (factor * scaled.sizes, factor * scaled.slopes)
        return eqx.tree_at(lambda f: (f.sizes, f.slopes), scaled, scaling)
    return _single_features(kernel, columns, key)


def _single_features(kernel: Kernel, columns: int, key: Array) -> Features | None:
    seen = np.arange(columns) if kernel.active is None else np.asarray(kernel.active) % columns
    nothing, none = jnp.zeros(columns), jnp.zeros(0)
    if isinstance(kernel, Linear):
        slopes = nothing.at[seen].set(jnp.sqrt(kernel.variance.value))
        return Features(jnp.zeros((0, columns)), none, none, slopes)
    if isinstance(kernel, Constant):
        size = jnp.sqrt(kernel.variance.value)[None]
        return Features(jnp.zeros((1, columns)), jnp.zeros(1), size, nothing)
    if not isinstance(kernel, _STATIONARY):
        return None
    smoothness = _SMOOTHNESS.get(type(kernel))
    frequency_key, heavy_key, phase_key = jax.random.split(key, 3)
    scaled = jax.random.normal(frequency_key, (FEATURES, len(seen)))
    if smoothness is not None:
        # The spectral density of a Matérn kernel is a Student t with 2ν degrees of freedom.
        chi = 2 * jax.random.gamma(heavy_key, smoothness, (FEATURES, 1))
        scaled = scaled * jnp.sqrt(2 * smoothness / chi)
    scaled = scaled / (2 * np.pi * kernel.lengthscale.value)
    frequencies = jnp.zeros((FEATURES, columns)).at[:, seen].set(scaled)
    phases = jax.random.uniform(phase_key, (FEATURES,))
    size = jnp.sqrt(2 * kernel.variance.value / FEATURES)
    return Features(frequencies, phases, jnp.broadcast_to(size, (FEATURES,)), nothing)
