"""Closed forms along another path: dense NumPy/SciPy algebra, no whitening, no natural parameters.

The second half builds small models in which standardised and user's units are the same.
"""

from collections.abc import Callable, Sequence
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from scipy.spatial.distance import cdist
from scipy.special import logsumexp
from scipy.stats import multivariate_normal

from dagp.inference.elbo import collapsed_elbo
from dagp.inference.problem import build_gate
from dagp.kernels import SquaredExponential
from dagp.model.association import Batch, DataAssociation, NaturalRates
from dagp.model.gates import Gate
from dagp.model.gp import GP
from dagp.model.process import BuildContext, ProcessPrior

FORBIDDEN = -1e30


# ------------------------------------------------------------------ closed forms


def squared_exponential(A, B, lengthscale, variance):
    return variance * np.exp(-0.5 * cdist(A / lengthscale, B / lengthscale, "sqeuclidean"))


class Regression(NamedTuple):
    """Posterior mean and variance at the data, and the log evidence or a bound on it."""

    mean: np.ndarray
    variance: np.ndarray
    evidence: float


def exact_gp(K, y, noise_variance, K_new=None, k_new_diagonal=None):
    """GP regression by dense inversion; `noise_variance` per point or common. y is (N,).

    The posterior is at the data, or at the points whose covariance with the data is `K_new`.
    """
    covariance = K + np.diag(np.broadcast_to(noise_variance, y.shape))
    K_new, k_new_diagonal = (K, np.diag(K)) if K_new is None else (K_new, k_new_diagonal)
    gain = np.linalg.solve(covariance, K_new.T).T
    return Regression(
        gain @ y,
        k_new_diagonal - np.sum(gain * K_new, axis=1),
        multivariate_normal(np.zeros(len(y)), covariance).logpdf(y),
    )


def sparse_gp(Kzz, Kzf, kff_diagonal, y, noise_variance):
    """Titsias (2009): the optimal q and its collapsed bound, noise per point or common."""
    noise = np.broadcast_to(noise_variance, y.shape)
    inner = np.linalg.inv(Kzz + (Kzf / noise) @ Kzf.T)
    mean_u = Kzz @ inner @ Kzf @ (y / noise)
    covariance_u = Kzz @ inner @ Kzz
    A = np.linalg.solve(Kzz, Kzf)
    Qff = Kzf.T @ A
    trace = np.sum((kff_diagonal - np.diag(Qff)) / noise)
    evidence = multivariate_normal(np.zeros(len(y)), Qff + np.diag(noise)).logpdf(y) - trace / 2
    variance = kff_diagonal - np.diag(Qff) + np.sum(A * (covariance_u @ A), axis=0)
    return Regression(A.T @ mean_u, variance, evidence)


def gaussian_kl(mean, covariance, prior_covariance):
    """KL(N(mean, covariance) || N(0, prior_covariance)), as in textbooks."""
    solve = np.linalg.solve
    return 0.5 * (
        np.trace(solve(prior_covariance, covariance))
        + mean @ solve(prior_covariance, mean)
        - len(mean)
        + np.linalg.slogdet(prior_covariance)[1]
        - np.linalg.slogdet(covariance)[1]
    )


def expectation(function: Callable, means, variances, nodes: int = 60):
    """Gauss-Hermite expectation under independent normals, all dimensions by a tensor grid."""
    x, w = np.polynomial.hermite_e.hermegauss(nodes)
    w = w / w.sum()
    grid = np.stack(np.meshgrid(*[x] * len(means), indexing="ij"), axis=-1)
    weight = np.prod(np.stack(np.meshgrid(*[w] * len(means), indexing="ij"), axis=-1), axis=-1)
    values = function(np.asarray(means) + np.sqrt(variances) * grid)
    return np.tensordot(weight, values, axes=(range(weight.ndim), range(weight.ndim)))


def uncollapsed(log_joint, shares, kl):
    """Σ r (ℓ + c) + H(r) − KL for any responsibilities r."""
    entropy = -np.sum(np.where(shares > 0, shares * np.log(np.maximum(shares, 1e-300)), 0.0))
    return np.sum(shares * log_joint) + entropy - kl


def normalised(log_joint):
    return np.exp(log_joint - logsumexp(log_joint, axis=1, keepdims=True))


def differences(function: Callable, x: np.ndarray, step: float = 1e-5) -> np.ndarray:
    """Gradient of a scalar function of an array by central differences."""
    gradient = np.zeros_like(x)
    for index in np.ndindex(x.shape):
        up, down = x.copy(), x.copy()
        up[index] += step
        down[index] -= step
        gradient[index] = (function(up) - function(down)) / (2 * step)
    return gradient


# ------------------------------------------------------------------ small models


def setting(inducing, outputs: int = 1, **changes) -> BuildContext:
    """A setting without standardisation."""
    columns = inducing.shape[1]
    plain = BuildContext(
        x_centre=np.zeros(columns),
        x_unit=np.ones(columns),
        y_centre=np.zeros(outputs),
        y_unit=np.ones(outputs),
        y_low=np.full(outputs, -3.0),
        y_high=np.full(outputs, 3.0),
        inducing=np.asarray(inducing),
        lengthscale=0.5,
        noise_std=0.3,
    )
    return plain._replace(**changes)


LENGTHSCALE, VARIANCE, NOISE = 0.7, 1.3, 0.2
"""Of `smooth`."""


def smooth(lengthscale=LENGTHSCALE, variance=VARIANCE, noise_std=NOISE) -> GP:
    return GP(kernel=SquaredExponential(lengthscale, variance), noise_std=noise_std)


def smooth_covariance(A, B):
    """Covariance of `smooth`."""
    return squared_exponential(A, B, LENGTHSCALE, VARIANCE)


def build(
    priors: Sequence[ProcessPrior],
    inducing,
    outputs: int = 1,
    gate: "GP | str | Gate | None" = None,
) -> DataAssociation:
    plain = setting(inducing, outputs)
    if not isinstance(gate, Gate):
        gate = build_gate(gate, plain, len(priors))
    return DataAssociation.assemble([prior.build(plain) for prior in priors], gate)


def batch(X, y, processes: int, weight=None, labels=None) -> Batch:
    """A batch; `labels` (−1 for unknown) forbid every other process."""
    label_log_mask = np.zeros((len(X), processes))
    if labels is not None:
        known = labels >= 0
        label_log_mask[known] = FORBIDDEN
        label_log_mask[known, labels[known]] = 0.0
    weight = np.ones(len(X)) if weight is None else weight
    return Batch(*map(jnp.asarray, (X, y, np.asarray(weight, float), label_log_mask)))


def curve(seed: int, n: int = 20, outputs: int = 1):
    """Inputs without near-duplicates on [0, 3], and noisy curves."""
    rng = np.random.default_rng(seed)
    X = (np.linspace(0, 3, n) + rng.uniform(-0.02, 0.02, n))[:, None]
    phase = np.arange(outputs)
    return X, np.sin(2 * X + phase) + 0.2 * rng.standard_normal((n, outputs))


def two_lines(seed: int, n: int = 30):
    """Points of two well separated lines, and which line each is from."""
    rng = np.random.default_rng(seed)
    X = np.linspace(-1, 1, n)[:, None]
    labels = rng.integers(0, 2, n)
    y = np.where(labels[:, None] == 0, X + 1.6, -X - 1.6) + 0.05 * rng.standard_normal((n, 1))
    return X, y, labels


def random_shares(seed: int, n: int, processes: int):
    return np.random.default_rng(seed).dirichlet(np.ones(processes), size=n)


# ------------------------------------------------------------------ compiled calls

PROCESSES_ONLY = NaturalRates(process=1.0, gate=0.0)


@jax.jit
def evaluate(model: DataAssociation, batch: Batch, scale: float = 1.0):
    """Bound, ℓ + c, and marginals."""
    projection = model.project(batch.X)
    marginals = model.marginals(projection)
    return (
        collapsed_elbo(model, projection, batch, scale),
        model.log_joint(marginals, batch),
        marginals,
    )


@jax.jit
def stepped(
    model: DataAssociation, batch: Batch, shares, rates: NaturalRates = PROCESSES_ONLY
) -> DataAssociation:
    """The model after one natural-gradient step; of the processes only, in full, if not told."""
    projection = model.project(batch.X)
    return model.natural_step(projection, model.marginals(projection), batch, shares, rates)


@jax.jit
def posterior(part, X):
    """Marginals of one process, gate or sparse GP."""
    return part.marginals(part.project(X))
