"""Infinite mixture of Gaussian process experts."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar, NamedTuple

import numpy as np
from scipy.special import gammaln, logsumexp

from dagp.baselines.base import DensityBaseline, Predicted
from dagp.baselines.experts import (
    TINY,
    Expert,
    Vague,
    closeness,
    covariance,
    evaluate,
    hamiltonian,
    log_normal,
    noise_variance,
    pseudo_likelihood,
)
from dagp.capabilities import Capabilities
from dagp.typing import Float, Inputs, Int, PerPoint, PerProcess, RandomState, Table

__all__ = [
    "MOVES",
    "RGPR",
    "Chain",
    "Kept",
    "move_alpha",
    "move_experts",
    "move_points",
    "move_widths",
    "run",
]

LOG_WIDTH = (np.log(0.5), 1.0)
"""Mean and standard deviation of the logarithm of a gate's width, in standardised units."""
LOG_ALPHAS = np.linspace(-8.0, 8.0, 801)
"""Where the density of the logarithm of the concentration is tabulated."""


class Chain:
    """The state of the sampler: who belongs to which expert, and every parameter.

    >>> chain = Chain(np.zeros((3, 1)), np.ones(3), Vague.of(1), alpha=1.0)
    >>> chain.assignment.tolist(), len(chain.experts)
    ([0, 0, 0], 1)
    """

    def __init__(self, X: Inputs, y: PerPoint, prior: Vague, *, alpha: float, n_auxiliary: int = 3):
        self.X, self.y, self.prior = np.asarray(X), np.asarray(y), prior
        self.alpha, self.n_auxiliary = float(alpha), n_auxiliary
        self.assignment = np.zeros(len(self.X), np.int64)
        self.experts = [Expert(self.X, self.y, prior.centre.copy(), range(len(self.X)))]
        self.widen(np.full(self.X.shape[1], np.exp(LOG_WIDTH[0])))

    def widen(self, widths: Float[np.ndarray, " D"]) -> None:
        """Take on widths of the gate."""
        self.widths, self.near = widths, closeness(widths, self.X)

    def occupation(self, i: int) -> Float[np.ndarray, " K"]:
        """How many of the other points each expert holds, as point `i` counts them."""
        held = np.bincount(self.assignment, self.near[i], minlength=len(self.experts))
        return (len(self.X) - 1) * held

    def transfer(self, i: int, j: int) -> None:
        """Give point `i` to expert `j`; an expert left without points is gone."""
        old = int(self.assignment[i])
        self.experts[old].remove(i)
        self.experts[j].add(i)
        self.assignment[i] = j
        if len(self.experts[old]) == 0:
            del self.experts[old]
            self.assignment[self.assignment > old] -= 1


def move_points(chain: Chain, rng: np.random.Generator, tune: bool = False) -> None:
    """Draw each point's expert given all others (Neal 2000, algorithm 8).

    Beside the experts there are some fresh ones, with parameters from the prior, among which the
    weight of a new expert is divided. A point that is alone brings its own as one of them.

    >>> chain = Chain(np.arange(5.0)[:, None], np.arange(5.0), Vague.of(1), alpha=1.0)
    >>> move_points(chain, np.random.default_rng(0))
    >>> sum(len(expert) for expert in chain.experts)
    5
    """
    for i in rng.permutation(len(chain.X)):
        _move_point(chain, int(i), rng)


def _move_point(chain: Chain, i: int, rng: np.random.Generator) -> None:
    own, K = int(chain.assignment[i]), len(chain.experts)
    alone = len(chain.experts[own]) == 1
    fresh = chain.prior.draw(rng, chain.n_auxiliary - alone)
    counts = np.append(chain.occupation(i), np.full(len(fresh), chain.alpha / chain.n_auxiliary))
    if alone:
        counts[own] = chain.alpha / chain.n_auxiliary
    forecasts = [
        expert.leave_out(i) if j == own else expert.predict(i)
        for j, expert in enumerate(chain.experts)
    ]
    forecasts += [(0.0, np.exp(logs[1]) + noise_variance(logs)) for logs in fresh]
    means, variances = np.array(forecasts).T
    heights = np.log(np.maximum(counts, TINY)) + log_normal(chain.y[i], means, variances)
    # The largest of the heights plus Gumbel noise is a draw from their softmax.
    chosen = int(np.argmax(heights + rng.gumbel(size=len(heights))))
    if chosen == own:
        return
    if chosen >= K:
        chain.experts.append(Expert(chain.X, chain.y, fresh[chosen - K]))
        chosen = K
    chain.transfer(i, chosen)


def move_experts(chain: Chain, rng: np.random.Generator, tune: bool = False) -> None:
    """Move the parameters of each expert by Hamiltonian Monte Carlo.

    >>> chain = Chain(np.arange(5.0)[:, None], np.arange(5.0), Vague.of(1), alpha=1.0)
    >>> move_experts(chain, np.random.default_rng(0))
    >>> bool(np.all(chain.experts[0].logs == chain.prior.centre))
    False
    """
    for expert in chain.experts:
        hamiltonian(expert, chain.prior, rng, tune)


def move_alpha(chain: Chain, rng: np.random.Generator, tune: bool = False) -> None:
    """Draw the concentration given the number of experts, from a table of its density.

    Its inverse has a gamma prior of shape 1/2 and mean one, as in Rasmussen (2000).

    >>> chain = Chain(np.arange(5.0)[:, None], np.arange(5.0), Vague.of(1), alpha=1.0)
    >>> move_alpha(chain, np.random.default_rng(0))
    >>> 0 < chain.alpha != 1.0
    True
    """
    alphas, n = np.exp(LOG_ALPHAS), len(chain.X)
    logs = (len(chain.experts) - 0.5) * LOG_ALPHAS - 0.5 / alphas
    logs += gammaln(alphas) - gammaln(n + alphas)
    cell = np.argmax(logs + rng.gumbel(size=len(logs)))
    width = LOG_ALPHAS[1] - LOG_ALPHAS[0]
    chain.alpha = float(np.exp(LOG_ALPHAS[cell] + width * rng.uniform(-0.5, 0.5)))


def move_widths(chain: Chain, rng: np.random.Generator, tune: bool = False) -> None:
    """Propose each width of the gate anew, and accept by the pseudo-likelihood (Metropolis).

    >>> chain = Chain(np.arange(5.0)[:, None], np.arange(5.0), Vague.of(1), alpha=1.0)
    >>> move_widths(chain, np.random.default_rng(0))
    >>> chain.widths.shape
    (1,)
    """
    if len(chain.X) == 1:
        return
    for d in range(len(chain.widths)):
        widths = chain.widths.copy()
        widths[d] *= np.exp(0.5 * rng.standard_normal())
        near = closeness(widths, chain.X)
        gain = _gate_height(widths, near, chain) - _gate_height(chain.widths, chain.near, chain)
        if np.log(rng.uniform()) < gain:
            chain.widths, chain.near = widths, near


def _gate_height(widths: np.ndarray, near: np.ndarray, chain: Chain) -> float:
    prior = np.sum(log_normal(np.log(widths), LOG_WIDTH[0], LOG_WIDTH[1] ** 2))
    return pseudo_likelihood(near, chain.assignment, chain.alpha) + float(prior)


Move = Callable[[Chain, np.random.Generator, bool], None]
MOVES: tuple[Move, ...] = (move_points, move_experts, move_alpha, move_widths)
"""One sweep."""


class Kept(NamedTuple):
    """A state of the chain. Factors are not kept: they would fill memory, and are quick to make.

    >>> chain = Chain(np.arange(5.0)[:, None], np.arange(5.0), Vague.of(1), alpha=1.0)
    >>> Kept.of(chain, np.random.default_rng(0)).gate(closeness(np.ones(1), chain.X))[0]
    array([1.])
    """

    assignment: Int[np.ndarray, " N"]
    logs: Float[np.ndarray, "K D+2"]
    """Logarithms of each expert's parameters."""
    newcomer: Float[np.ndarray, " D+2"]
    """Those of an expert that no point has joined yet."""
    alpha: float
    widths: Float[np.ndarray, " D"]
    log_joint: float
    """Log density of the state with the data; the pseudo-likelihood stands for the gate's."""

    @staticmethod
    def of(chain: Chain, rng: np.random.Generator) -> "Kept":
        """The state of a chain, with the experts in the order of their sizes."""
        order = sorted(range(len(chain.experts)), key=lambda j: -len(chain.experts[j]))
        rank = np.argsort(order)
        logs = np.array([chain.experts[j].logs for j in order])
        evidence = sum(
            evaluate(e.logs, chain.X[e.members], chain.y[e.members]).log_evidence
            + chain.prior.log_density(e.logs)
            for e in chain.experts
        )
        log_joint = evidence + _gate_height(chain.widths, chain.near, chain)
        newcomer = chain.prior.draw(rng, 1)[0]
        return Kept(
            rank[chain.assignment], logs, newcomer, chain.alpha, chain.widths, float(log_joint)
        )

    def members(self) -> list[Int[np.ndarray, " n"]]:
        """The points of each expert."""
        return [np.flatnonzero(self.assignment == j) for j in range(len(self.logs))]

    def gate(self, near: Float[np.ndarray, "N N2"]) -> PerProcess:
        """Weight of each expert where training points count as in `near`."""
        return near @ np.eye(len(self.logs))[self.assignment]


def run(
    chain: Chain,
    rng: np.random.Generator,
    *,
    n_sweeps: int,
    burn_in: int,
    n_samples: int,
    moves: Sequence[Move] = MOVES,
) -> list[Kept]:
    """Sweep, and keep states at equal distances after the burn-in.

    >>> chain = Chain(np.arange(5.0)[:, None], np.arange(5.0), Vague.of(1), alpha=1.0)
    >>> kept = run(chain, np.random.default_rng(0), n_sweeps=6, burn_in=2, n_samples=2)
    >>> [state.assignment.shape for state in kept]
    [(5,), (5,)]
    """
    keep = np.linspace(burn_in, n_sweeps, n_samples + 1).astype(int)[1:] - 1
    kept = []
    for sweep in range(n_sweeps):
        for move in moves:
            move(chain, rng, sweep < burn_in)
        if sweep in keep:
            kept.append(Kept.of(chain, rng))
    return kept


class RGPR(DensityBaseline):
    """Infinite mixture of Gaussian process experts (Rasmussen & Ghahramani 2002).

    Each point belongs to one of any number of experts: Gaussian processes with a squared
    exponential kernel, one length scale per input and noise of their own. The gate is a Dirichlet
    process that counts nearby points more: at x expert j holds Σ k(x, x_i) / Σ k(x, x_i') of the
    points, the sum above over its own, and a new expert stands for α points. A sweep draws

    - each point's expert given all others, with fresh experts from the prior at hand (Neal 2000,
      algorithm 8);
    - each expert's parameters by one Hamiltonian Monte Carlo proposal of five leapfrog steps under
      vague log-normal priors;
    - α by inversion of its tabulated density, under a vague inverse gamma prior;
    - the widths of the gate's kernel by Metropolis steps on the pseudo-likelihood: the conditional
      probabilities define the gate, a joint density it does not have.

    All points begin in one expert. The prediction is the average over the kept states, each with
    one component per expert and one for an expert not met yet.

    Parameters
    ----------
    n_sweeps : sweeps in all
    burn_in : sweeps at the beginning from which nothing is kept
    n_samples : states kept, at equal distances, after the burn-in
    alpha : concentration to start with
    n_auxiliary : fresh experts offered to each point
    random_state : seed

    Attributes
    ----------
    samples_ : the kept states
    best_ : the one of highest joint density; experts in the order of their sizes
    assignment_ : (N,) the expert of each point in that state
    responsibilities_ : (N, K) probability of each of its experts given all other points
    n_processes_ : number of its experts

    >>> import numpy as np
    >>> X = np.linspace(-1, 1, 60)[:, None]
    >>> y = np.where(X[:, 0] < 0, np.sin(20 * X[:, 0]), 3.0)
    >>> model = RGPR(n_sweeps=40, burn_in=20, n_samples=5, random_state=0).fit(X, y)
    >>> model.predict([[-0.5], [0.5]]).round(1)
    array([0.5, 3. ])
    """

    capabilities: ClassVar[Capabilities] = Capabilities(
        bayesian=True,
        predictive_posterior=True,
        data_association=True,
        predictive_associations=True,
        multimodal=True,
        separate_models=True,
    )

    def __init__(
        self,
        n_sweeps: int = 100,
        burn_in: int = 50,
        n_samples: int = 10,
        *,
        alpha: float = 1.0,
        n_auxiliary: int = 3,
        random_state: RandomState = None,
    ):
        self.n_sweeps = n_sweeps
        self.burn_in = burn_in
        self.n_samples = n_samples
        self.alpha = alpha
        self.n_auxiliary = n_auxiliary
        self.random_state = random_state

    def _settings(self) -> Mapping[str, tuple[Any, type, float]]:
        return {
            "n_sweeps": (self.n_sweeps, int, 1),
            "burn_in": (self.burn_in, int, 0),
            "n_samples": (self.n_samples, int, 1),
            "alpha": (self.alpha, float, 1e-6),
            "n_auxiliary": (self.n_auxiliary, int, 1),
        }

    def _learn(self, X: Inputs, y: PerPoint, rng: np.random.Generator) -> None:
        if self.n_samples > self.n_sweeps - self.burn_in:
            raise ValueError(
                f"n_samples must not exceed the {self.n_sweeps - self.burn_in} sweeps that "
                f"follow the burn-in, got {self.n_samples}."
            )
        prior = Vague.of(X.shape[1])
        chain = Chain(X, y, prior, alpha=self.alpha, n_auxiliary=self.n_auxiliary)
        self.samples_: list[Kept] = run(
            chain, rng, n_sweeps=self.n_sweeps, burn_in=self.burn_in, n_samples=self.n_samples
        )
        self.best_: Kept = max(self.samples_, key=lambda kept: kept.log_joint)
        self._X, self._y = chain.X, chain.y
        self.assignment_: Int[np.ndarray, " N"] = self.best_.assignment
        self.n_processes_: int = len(self.best_.logs)
        self.responsibilities_: PerProcess = self._given_others()

    def _given_others(self) -> PerProcess:
        counts = self.best_.gate(closeness(self.best_.widths, self._X))
        experts = [
            Expert(self._X, self._y, logs, members)
            for logs, members in zip(self.best_.logs, self.best_.members(), strict=True)
        ]
        alone = np.array([len(expert) == 1 for expert in experts])[self.assignment_]
        # A point that is alone with an expert has none of the others to speak for it.
        counts[alone, self.assignment_[alone]] = self.best_.alpha / max(len(self._X) - 1, 1)
        heights = np.column_stack([expert.log_densities() for expert in experts])
        heights += np.log(np.maximum(counts, TINY))
        return np.exp(heights - logsumexp(heights, axis=1, keepdims=True))

    def predict_assignment(self, X: Table) -> Float[np.ndarray, "N K"]:
        """How likely each expert of `best_` is at each row of `X`. Rows sum to one."""
        return self._ask(lambda X: self.best_.gate(closeness(self.best_.widths, X, self._X)), X)

    def predict_heaviest(self, X: Table) -> Float[np.ndarray, " N"]:
        """Mean of the heaviest expert of `best_` at each row: what outliers do not pull."""

        def heaviest(X: Inputs) -> PerPoint:
            found = self._of_sample(self.best_, np.asarray(X))
            known = np.asarray(found.weights)[:, : self.n_processes_]
            return np.asarray(found.means)[np.arange(len(known)), known.argmax(axis=1)]

        return self._ask(heaviest, X) * self.units_.y_unit[0] + self.units_.y_centre[0]

    def _components(self, X: Inputs) -> Predicted:
        parts = [self._of_sample(kept, np.asarray(X)) for kept in self.samples_]
        found = Predicted(
            *(np.concatenate(columns, axis=1) for columns in zip(*parts, strict=True))
        )
        return found._replace(weights=found.weights / len(parts))

    def _of_sample(self, kept: Kept, X: Float[np.ndarray, "N D"]) -> Predicted:
        """The components of one state; the last is an expert that no point has joined."""
        n, logs = len(self._X), np.array([*kept.logs, kept.newcomer])
        means, explained = [], []
        for mine, members in zip(logs, [*kept.members(), np.empty(0, int)], strict=True):
            inputs = self._X[members]
            found = evaluate(mine, inputs, self._y[members])
            mean, part = found.predict(covariance(mine, X, inputs))
            means.append(mean)
            explained.append(part)
        gate = kept.gate(closeness(kept.widths, X, self._X))
        weights = np.column_stack([n * gate, np.full(len(X), kept.alpha)]) / (n + kept.alpha)
        variances = np.maximum(np.exp(logs[:, 1]) - np.column_stack(explained), 0.0)
        noise = np.broadcast_to([noise_variance(mine) for mine in logs], variances.shape)
        return Predicted(weights, np.column_stack(means), variances, noise)
