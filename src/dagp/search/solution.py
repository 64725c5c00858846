"""Solutions of the search, and the one comparison of two associations."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal, NamedTuple

import jax
import numpy as np
from scipy.optimize import linear_sum_assignment
from scipy.special import expit

from dagp.core.sharding import to_host
from dagp.core.typing import Bool, Float, Int
from dagp.inference.problem import Problem, Resumed, Start
from dagp.inference.run_log import NO_LOG, RunLog
from dagp.inference.train import (
    LEARNING_RATE,
    Callback,
    Result,
    State,
    Status,
    begin,
    no_callback,
    resume,
    settled,
)
from dagp.model.association import Batch
from dagp.search.settings import DOUBTED, FEW, NEEDED, PROBE_STEPS, UNUSED


class Options(NamedTuple):
    """Settings of the search."""

    n_init: int
    max_iter: int
    tol: float
    batch_size: int | None
    auto: bool
    """Whether the number of processes is to be found."""
    rng: np.random.Generator
    callback: Callback = no_callback
    log: RunLog = NO_LOG
    amount: Literal["auto", "all"] | None = None
    """Inducing inputs of the final fit: as many as needed, all inputs, or those of the problem."""
    averaged: bool = False
    """Whether other associations of almost the same ELBO are wanted."""


@dataclass(eq=False)
class Solution:
    """A start, and what training has made of it."""

    problem: Problem
    start: Start
    state: State
    bound: float = -np.inf
    rate: float = LEARNING_RATE
    status: Status = "budget"
    """Why the last training run ended."""
    fate: str = "running"
    rungs: list[float] = field(default_factory=list)
    traces: list[np.ndarray] = field(default_factory=list)
    moves: list[tuple[str, float]] = field(default_factory=list)
    """Proposals tried, and their gain in the ELBO."""
    climbed: bool = False
    """Whether moves have been tried on it."""
    exact: bool = False
    """Whether it is the result of exact inference: steps of the sparse model would only lose."""

    @property
    def points(self) -> float:
        """Total weight, at least `FEW`: from an ELBO per data point to a margin."""
        return max(float(self.problem.sample.weight.sum()), FEW)

    @property
    def steps(self) -> int:
        return sum(map(len, self.traces))

    @property
    def responsibilities(self) -> Float[np.ndarray, "N K"]:
        """On the host, without padding."""
        return to_host(self.state.responsibilities)[: len(self.problem.sample.X)]

    def alike(self, other: "Solution") -> float:
        """Share of the data that another solution assigns alike, up to names."""
        weight = self.problem.sample.weight
        return agreement(self.responsibilities, other.responsibilities, weight)

    def adopt(self, result: Result) -> None:
        """Continue from the result of a training run."""
        self.state, self.bound, self.rate = result.state, result.bound, result.rate
        self.status = result.status
        self.traces.append(result.trace)

    def finish_rung(self, result: Result) -> None:
        self.adopt(result)
        self.rungs.append(result.bound)

    def result(self) -> Result:
        """Its state as the result of one run."""
        trace = np.concatenate([np.zeros(0), *self.traces])
        return Result(self.state, self.bound, trace, self.status, self.rate)

    def settle(self, batch: Batch) -> None:
        """Converge every q under the hyperparameters as they are."""
        if self.exact:
            return
        found = settled(self.result(), batch)
        self.state, self.bound = found.state, found.bound

    def copy(self) -> "Solution":
        """A solution that can be trained without changing this one."""
        histories = {"rungs": self.rungs, "traces": self.traces, "moves": self.moves}
        return replace(self, **{name: list(history) for name, history in histories.items()})

    def comparable(self, other: "Solution") -> bool:
        """Whether two models are of the same make, with as many inducing inputs."""
        one, two = self.state.model, other.state.model
        if jax.tree.structure(one) != jax.tree.structure(two):
            return False
        return list(map(np.shape, jax.tree.leaves(one))) == list(
            map(np.shape, jax.tree.leaves(two))
        )

    def record(self) -> dict[str, Any]:
        """The entry of this start in `DAGP.restarts_`."""
        return {
            "kind": self.start.kind,
            "bound": self.bound,
            "rungs": tuple(self.rungs),
            "steps": self.steps,
            "kept": self.fate == "kept",
            "fate": self.fate,
            "moves": tuple(self.moves),
        }


def ranked(pool: list[Solution]) -> list[Solution]:
    """The kept one first, then by the number of rungs, then by the ELBO."""
    return sorted(pool, key=lambda s: (s.fate != "kept", -len(s.rungs), -s.bound))


def shares_of_data(
    responsibilities: Float[np.ndarray, "N K"], weight: Float[np.ndarray, " N"]
) -> Float[np.ndarray, " K"]:
    """Share of the data that each process accounts for."""
    return weight @ responsibilities / weight.sum()


def in_use(
    responsibilities: Float[np.ndarray, "N K"], weight: Float[np.ndarray, " N"]
) -> Bool[np.ndarray, " K"]:
    """Which processes are in use: by their share of the data, or because a few points need them.

    >>> in_use(np.array([[1.0, 0.0]] * 200 + [[0.0, 1.0]]), np.ones(201))
    array([ True,  True])
    """
    # Without process k the likelihood of a point falls by the factor 1 − r_k.
    # Below one also in single precision.
    largest = np.minimum(np.asarray(responsibilities, np.float64), 1 - 1e-12)
    loss = -weight @ np.log1p(-largest)
    return (shares_of_data(responsibilities, weight) >= UNUSED) | (loss >= NEEDED)


def _together(
    first: Float[np.ndarray, "N K"],
    second: Float[np.ndarray, "N K"],
    weight: Float[np.ndarray, " N"],
) -> Float[np.ndarray, "K K"]:
    """Weight of the data by the processes that two solutions assign them to."""
    K = first.shape[1]
    pairs = K * first.argmax(axis=1) + second.argmax(axis=1)
    return np.bincount(pairs, weight, minlength=K * K).reshape(K, K)


def matching(
    first: Float[np.ndarray, "N K"],
    second: Float[np.ndarray, "N K"],
    weight: Float[np.ndarray, " N"],
    kinds: Sequence[str] | None = None,
) -> Int[np.ndarray, " K"]:
    """The process of the second solution that matches each process of the first; of the same kind,
    if `kinds` of the processes are given."""
    together = _together(first, second, weight)
    if kinds is not None:
        alike = np.equal.outer(kinds, kinds)
        together[~alike] = -1 - weight.sum() * len(kinds)
    return linear_sum_assignment(-together)[1]


def agreement(
    first: Float[np.ndarray, "N K"],
    second: Float[np.ndarray, "N K"],
    weight: Float[np.ndarray, " N"],
    kinds: Sequence[str] | None = None,
) -> float:
    """Share of the data that two solutions assign alike, up to a permutation of the processes; of
    those of the same kind, if `kinds` are given.

    >>> one, other = np.array([[1.0, 0.0], [0.0, 1.0]]), np.array([[0.1, 0.9], [0.8, 0.2]])
    >>> agreement(one, other, np.ones(2))
    1.0
    """
    order = matching(first, second, weight, kinds)
    together = _together(first, second, weight)
    return float(together[np.arange(len(order)), order].sum() / weight.sum())


class Joint(NamedTuple):
    """Where two processes may have been exchanged, and what the evidence says of that."""

    processes: tuple[int, int]
    at: float
    """Of a single input, beyond which they would be exchanged; NaN with several inputs."""
    share: float
    """Of the data that would change its process."""
    log_odds: float
    """Against the exchange."""


class Verdict(NamedTuple):
    """Confidence in a solution, and what would settle the doubt."""

    confidence: float
    """NaN if there was nothing to compare."""
    rows: tuple[int, ...] = ()
    """Rows whose labels would decide between the solution and its rival."""
    joints: tuple[Joint, ...] = ()

    def doubting(self, joints: list[Joint]) -> "Verdict":
        """With the doubt of every joint."""
        sure = float(np.prod([expit(joint.log_odds) for joint in joints]))
        return self._replace(confidence=self.confidence * sure, joints=tuple(joints))

    @property
    def doubted(self) -> bool:
        return self.confidence < DOUBTED


class Found(NamedTuple):
    """What a search has found."""

    close: list[Solution]
    """The best solution, and other associations of almost the same ELBO."""
    others: list[Solution]
    """The best start of every other association."""
    pool: list[Solution]
    verdict: Verdict
    batch: Batch | None
    """All rows, if they were trained on as one batch."""

    @property
    def best(self) -> Solution:
        return self.close[0]


def resumed(problem: Problem, previous: Resumed, batch: Batch) -> Solution:
    """The solution that continues from a trained model."""
    state = resume(previous.before or previous.model, batch)
    if previous.before is not None:
        # The q of the new inducing inputs follows from the association.
        state, _ = begin(previous.model, batch, state.responsibilities, PROBE_STEPS)
    return Solution(problem, Start("warm", to_host(state.responsibilities)), state)
