"""Infinite mixture of Gaussian process experts (Rasmussen & Ghahramani 2002), by MCMC."""

from dataclasses import KW_ONLY, dataclass

import numpy as np

from dagp.baselines.base import DensityBaseline, Predicted, setting
from dagp.baselines.capabilities import EVERYTHING
from dagp.baselines.experts import LogNormalPrior
from dagp.baselines.rgpr_sampler import Chain, ChainSample, run_chain
from dagp.core.typing import Float, Inputs, Int, PerPoint, PerProcess, RandomState, Table


@dataclass(eq=False, repr=False)
class RGPR(DensityBaseline):
    """Infinite mixture of Gaussian process experts (Rasmussen & Ghahramani 2002).

    Each point belongs to one of an unbounded number of experts: GPs with a squared exponential
    kernel, one length scale per input and separate noise. The gate is an input-dependent Dirichlet
    process: at x, expert j holds a fraction Σ k(x, x_i) / Σ k(x, x_i') of the points, the numerator
    summed over its members, and a new expert has the weight of α points. A sweep draws

    - each point's expert given all others (Neal 2000, algorithm 8);
    - each expert's parameters by Hamiltonian Monte Carlo under vague log-normal priors;
    - α from its tabulated density, under a vague inverse gamma prior;
    - the widths of the gating kernel by Metropolis steps on the pseudo-likelihood, because the gate
      is defined by its conditional probabilities and has no joint density.

    The chain starts with all points in one expert. Predictions average over the samples, each with
    one component per expert and one for a new expert.

    Parameters
    ----------
    n_sweeps : int, default=100
        Number of sweeps, burn-in included.
    burn_in : int, default=50
        Sweeps to discard at the start.
    n_samples : int, default=10
        Number of evenly spaced samples after the burn-in.
    alpha : float, default=1.0
        Initial concentration of the Dirichlet process.
    n_auxiliary : int, default=3
        Auxiliary experts of algorithm 8.
    random_state : int, RandomState, Generator or None, default=None
        Seed.

    Attributes
    ----------
    samples_ : list of ChainSample
        Samples of the chain.
    best_ : ChainSample
        Sample of highest joint density, with the experts ordered by size.
    assignment_ : ndarray of shape (N,)
        Expert of each training point in `best_`.
    responsibilities_ : ndarray of shape (N, K)
        Probability of each expert of `best_` for each training point, given all other points.
    n_processes_ : int
        Number of experts K in `best_`.

    Examples
    --------
    >>> import numpy as np
    >>> X = np.linspace(-1, 1, 60)[:, None]
    >>> y = np.where(X[:, 0] < 0, np.sin(20 * X[:, 0]), 3.0)
    >>> model = RGPR(n_sweeps=40, burn_in=20, n_samples=5, random_state=0).fit(X, y)
    >>> model.predict([[-0.5], [0.5]]).round(1)
    array([0.5, 3. ])
    """

    n_sweeps: int = setting(100, least=1)
    burn_in: int = setting(50, least=0)
    n_samples: int = setting(10, least=1)
    _: KW_ONLY
    alpha: float = setting(1.0, least=1e-6)
    n_auxiliary: int = setting(3, least=1)
    random_state: RandomState = None

    capabilities = EVERYTHING._replace(scalable=False, interpretable_priors=False)

    def _learn(self, X: Inputs, y: PerPoint, rng: np.random.Generator) -> None:
        if self.n_samples > (kept := self.n_sweeps - self.burn_in):
            most = f"the {kept} sweeps that follow the burn-in"
            raise ValueError(f"n_samples must not exceed {most}, got {self.n_samples}.")
        prior = LogNormalPrior.vague(X.shape[1])
        chain = Chain(X, y, prior, alpha=self.alpha, n_auxiliary=self.n_auxiliary)
        self.samples_: list[ChainSample] = run_chain(
            chain, rng, n_sweeps=self.n_sweeps, burn_in=self.burn_in, n_samples=self.n_samples
        )
        self.best_: ChainSample = max(self.samples_, key=lambda sample: sample.log_joint)
        self._data = chain.X, chain.y
        self.assignment_: Int[np.ndarray, " N"] = self.best_.assignment
        self.n_processes_: int = len(self.best_.logs)
        self.responsibilities_: PerProcess = self.best_.responsibilities(*self._data)

    def predict_assignment(self, X: Table) -> Float[np.ndarray, "N K"]:
        """Gate: probability of each expert of `best_` at new inputs; rows sum to one."""
        return self._evaluate(lambda X: self.best_.gate(self._data[0], X), X)

    def predict_heaviest(self, X: Table) -> Float[np.ndarray, " N"]:
        """Mean of the most probable expert of `best_`: a prediction robust to outliers."""
        found = self._evaluate(lambda X: self.best_.components(*self._data, np.asarray(X)), X)
        heaviest = found.weights[:, : self.n_processes_].argmax(axis=1)
        return self._in_units(found.means[np.arange(len(heaviest)), heaviest])

    def _components(self, X: Inputs) -> Predicted:
        parts = [sample.components(*self._data, np.asarray(X)) for sample in self.samples_]
        found = Predicted(*(np.concatenate(part, axis=1) for part in zip(*parts, strict=True)))
        return found._replace(weights=found.weights / len(parts))
