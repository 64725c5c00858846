"""MCMC sampler of the infinite mixture of GP experts (Rasmussen & Ghahramani 2002).

The state is an assignment of points to experts, the parameters of each expert, the concentration
of the Dirichlet process and the widths of the gating kernel.
"""

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
from scipy.special import gammaln, softmax

from dagp.baselines.base import Predicted
from dagp.baselines.experts import (
    TINY,
    Expert,
    LogNormalPrior,
    covariance,
    evaluate,
    gate_kernel,
    hmc_step,
    log_normal,
    noise_variance,
    pseudo_likelihood,
)
from dagp.core.typing import Float, Inputs, Int, PerPoint, PerProcess

Points = Float[np.ndarray, "N D"]
Outputs = Float[np.ndarray, " N"]
LOG_WIDTH = (np.log(0.5), 1.0)
"""Prior mean and standard deviation of a gate's log width, in standardised units."""
LOG_ALPHAS = np.linspace(-8.0, 8.0, 801)
"""Grid on which the density of the log concentration is tabulated."""


class Chain:
    """State of the sampler: assignment, experts, concentration and gate widths."""

    def __init__(
        self, X: Inputs, y: PerPoint, prior: LogNormalPrior, *, alpha: float, n_auxiliary: int = 3
    ):
        self.X, self.y, self.prior = np.asarray(X), np.asarray(y), prior
        self.alpha, self.n_auxiliary = float(alpha), n_auxiliary
        self.assignment = np.zeros(len(self.X), np.int64)
        self.experts = [Expert(self.X, self.y, prior.centre.copy(), range(len(self.X)))]
        self.set_widths(np.full(self.X.shape[1], np.exp(LOG_WIDTH[0])))

    def set_widths(self, widths: Float[np.ndarray, " D"]) -> None:
        """Set the widths of the gate and update its kernel."""
        self.widths, self.kernel = widths, gate_kernel(widths, self.X)

    def occupation(self, i: int) -> Float[np.ndarray, " K"]:
        """Occupation numbers: points other than `i` in each expert, weighted by the gate kernel."""
        held = np.bincount(self.assignment, self.kernel[i], minlength=len(self.experts))
        return (len(self.X) - 1) * held

    def transfer(self, i: int, j: int) -> None:
        """Move point `i` to expert `j`; an expert left without points is deleted."""
        old = int(self.assignment[i])
        self.experts[old].remove(i)
        self.experts[j].add(i)
        self.assignment[i] = j
        if len(self.experts[old]) == 0:
            del self.experts[old]
            self.assignment[self.assignment > old] -= 1


def move_points(chain: Chain, rng: np.random.Generator, tune: bool = False) -> None:
    """Gibbs step: draw each point's expert given all others (Neal 2000, algorithm 8).

    The weight of a new expert is divided among auxiliary experts with parameters from the prior.
    Where a point is the only member of its expert, that expert is one of the auxiliary ones.
    """
    for i in rng.permutation(len(chain.X)):
        _move_point(chain, int(i), rng)


def _move_point(chain: Chain, i: int, rng: np.random.Generator) -> None:
    """Draw the expert of point `i` given all others."""
    own, K = int(chain.assignment[i]), len(chain.experts)
    singleton = len(chain.experts[own]) == 1
    auxiliary = chain.prior.draw(rng, chain.n_auxiliary - singleton)
    new = chain.alpha / chain.n_auxiliary
    counts = np.append(chain.occupation(i), np.full(len(auxiliary), new))
    if singleton:
        counts[own] = new
    predictions = [
        expert.leave_out(i) if j == own else expert.predict(i)
        for j, expert in enumerate(chain.experts)
    ]
    predictions += [(0.0, np.exp(logs[1]) + noise_variance(logs)) for logs in auxiliary]
    means, variances = np.array(predictions).T
    log_weights = np.log(np.maximum(counts, TINY)) + log_normal(chain.y[i], means, variances)
    # Gumbel-max trick: the argmax is a draw from the softmax of the log weights.
    chosen = int(np.argmax(log_weights + rng.gumbel(size=len(log_weights))))
    if chosen == own:
        return
    if chosen >= K:
        chain.experts.append(Expert(chain.X, chain.y, auxiliary[chosen - K]))
        chosen = K
    chain.transfer(i, chosen)


def move_experts(chain: Chain, rng: np.random.Generator, tune: bool = False) -> None:
    """One Hamiltonian Monte Carlo step on the parameters of each expert."""
    for expert in chain.experts:
        hmc_step(expert, chain.prior, rng, tune)


def move_alpha(chain: Chain, rng: np.random.Generator, tune: bool = False) -> None:
    """Draw the concentration given the number of experts, from its tabulated density.

    The inverse concentration has a gamma prior of shape 1/2 and mean one, as in Rasmussen (2000).
    """
    alphas, n = np.exp(LOG_ALPHAS), len(chain.X)
    logs = (len(chain.experts) - 0.5) * LOG_ALPHAS - 0.5 / alphas
    logs += gammaln(alphas) - gammaln(n + alphas)
    cell = np.argmax(logs + rng.gumbel(size=len(logs)))
    width = LOG_ALPHAS[1] - LOG_ALPHAS[0]
    chain.alpha = float(np.exp(LOG_ALPHAS[cell] + width * rng.uniform(-0.5, 0.5)))


def move_widths(chain: Chain, rng: np.random.Generator, tune: bool = False) -> None:
    """Metropolis step on each width of the gate, under the pseudo-likelihood."""
    if len(chain.X) == 1:
        return
    for d in range(len(chain.widths)):
        widths = chain.widths.copy()
        widths[d] *= np.exp(0.5 * rng.standard_normal())
        kernel = gate_kernel(widths, chain.X)
        proposed = _gate_log_joint(widths, kernel, chain)
        current = _gate_log_joint(chain.widths, chain.kernel, chain)
        if np.log(rng.uniform()) < proposed - current:
            chain.widths, chain.kernel = widths, kernel


def _gate_log_joint(widths: np.ndarray, kernel: np.ndarray, chain: Chain) -> float:
    """Log pseudo-likelihood of the assignment plus the log prior of the widths."""
    prior = np.sum(log_normal(np.log(widths), LOG_WIDTH[0], LOG_WIDTH[1] ** 2))
    return pseudo_likelihood(kernel, chain.assignment, chain.alpha) + float(prior)


Move = Callable[[Chain, np.random.Generator, bool], None]
MOVES: tuple[Move, ...] = (move_points, move_experts, move_alpha, move_widths)
"""The moves of one sweep."""


class ChainSample(NamedTuple):
    """A sample of the chain, without Cholesky factors: they are large and cheap to recompute."""

    assignment: Int[np.ndarray, " N"]
    logs: Float[np.ndarray, "K D+2"]
    """Log parameters of each expert."""
    new_expert: Float[np.ndarray, " D+2"]
    """Log parameters of an expert without points, drawn from the prior."""
    alpha: float
    widths: Float[np.ndarray, " D"]
    log_joint: float
    """Log joint density of state and data, with the pseudo-likelihood in place of the gate's."""

    @staticmethod
    def of(chain: Chain, rng: np.random.Generator) -> "ChainSample":
        """The state of a chain, with the experts ordered by size."""
        order = sorted(range(len(chain.experts)), key=lambda j: -len(chain.experts[j]))
        rank = np.argsort(order)
        logs = np.array([chain.experts[j].logs for j in order])
        evidence = sum(
            evaluate(e.logs, chain.X[e.members], chain.y[e.members]).log_evidence
            + chain.prior.log_density(e.logs)
            for e in chain.experts
        )
        log_joint = evidence + _gate_log_joint(chain.widths, chain.kernel, chain)
        new_expert = chain.prior.draw(rng, 1)[0]
        return ChainSample(
            rank[chain.assignment], logs, new_expert, chain.alpha, chain.widths, float(log_joint)
        )

    def members(self) -> list[Int[np.ndarray, " n"]]:
        """Rows of each expert."""
        return [np.flatnonzero(self.assignment == j) for j in range(len(self.logs))]

    def gate(self, X: Points, X_new: Points | None = None) -> PerProcess:
        """Gate weights at new inputs or, without these, at each training point given the others."""
        A, B = (X, None) if X_new is None else (X_new, X)
        return gate_kernel(self.widths, A, B) @ np.eye(len(self.logs))[self.assignment]

    def responsibilities(self, X: Points, y: Outputs) -> PerProcess:
        """Probability of each expert for each training point, given all others."""
        counts, groups = self.gate(X), zip(self.logs, self.members(), strict=True)
        experts = [Expert(X, y, logs, members) for logs, members in groups]
        singleton = np.array([len(expert) == 1 for expert in experts])[self.assignment]
        # Without its only member an expert has no points, and the weight of a new one.
        counts[singleton, self.assignment[singleton]] = self.alpha / max(len(X) - 1, 1)
        log_weights = np.column_stack([expert.log_densities() for expert in experts])
        return softmax(log_weights + np.log(np.maximum(counts, TINY)), axis=1)

    def components(self, X: Points, y: Outputs, X_new: Points) -> Predicted:
        """Components of the predictive mixture at new inputs; the last one is a new expert."""
        n, logs = len(X), np.array([*self.logs, self.new_expert])
        means, explained = [], []
        for own, members in zip(logs, [*self.members(), np.empty(0, int)], strict=True):
            found = evaluate(own, X[members], y[members])
            mean, part = found.predict(covariance(own, X_new, X[members]))
            means.append(mean)
            explained.append(part)
        new = np.full(len(X_new), self.alpha)
        weights = np.column_stack([n * self.gate(X, X_new), new]) / (n + self.alpha)
        variances = np.maximum(np.exp(logs[:, 1]) - np.column_stack(explained), 0.0)
        noise = np.broadcast_to([noise_variance(own) for own in logs], variances.shape)
        return Predicted(weights, np.column_stack(means), variances, noise)


def run_chain(
    chain: Chain,
    rng: np.random.Generator,
    *,
    n_sweeps: int,
    burn_in: int,
    n_samples: int,
    moves: Sequence[Move] = MOVES,
) -> list[ChainSample]:
    """Run the chain; returns evenly spaced samples after the burn-in."""
    keep = np.linspace(burn_in, n_sweeps, n_samples + 1).astype(int)[1:] - 1
    samples = []
    for sweep in range(n_sweeps):
        for move in moves:
            move(chain, rng, sweep < burn_in)
        if sweep in keep:
            samples.append(ChainSample.of(chain, rng))
    return samples
