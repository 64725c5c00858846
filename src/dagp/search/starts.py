"""Starts: initial responsibilities of the multi-start search.

The start decides which optimum a run ends in, and no kind of start is best for all data. Each kind
groups the points by a different assumption about the processes.
"""

import functools
import itertools
from collections.abc import Callable, Iterator
from typing import NamedTuple

import numpy as np
from scipy.spatial import KDTree

from dagp.core.typing import Bool, Float, Int
from dagp.inference.inducing import choose_inducing, k_means
from dagp.inference.missing import filled
from dagp.inference.problem import Problem, Start
from dagp.inference.standardize import Sample, label_log_mask
from dagp.search.regressions import FEATURES, Mixture, Rows, mixtures
from dagp.search.settings import SAME
from dagp.search.solution import agreement
from dagp.search.tracking import follow

Members = Float[np.ndarray, "N F"]
"""Membership of each point in each function; the rest to one belongs to no function."""

TRACKED_POINTS, CONSENSUS_POINTS = 1200, 1000
"""Most points that these starts look at."""
CONSENSUS_TRIES = 24
"""Robust fits from random functions, of which the best one counts."""
MODE_WIDTH, MODE_STEPS = 0.15, 12
"""Final kernel width of modal regression, in standardised units, and steps to it."""


class Guess(NamedTuple):
    """Memberships proposed by a kind of start, and hyperparameters if it estimates them."""

    members: Members
    lengthscale: float | None = None
    noise_std: float | None = None


class Task(NamedTuple):
    """Input of a kind of start: a sample to divide among some functions."""

    sample: Sample
    functions: int
    clutter: bool = False
    """Whether points may belong to no function."""
    lap: int = 0
    """Number of earlier starts of the same kind."""
    log_mask: Float[np.ndarray, "N C"] = np.zeros((0, 0))
    """Labels, for the functions and, last, for clutter."""


Kind = Callable[[Task, np.random.Generator], Iterator[Guess]]


def by_rank(task: Task, rng: np.random.Generator) -> Guess:
    """By rank of y among the nearest inputs: functions that lie above each other."""
    neighbours = _neighbours(task.sample.X)
    level = task.sample.y @ rng.standard_normal(task.sample.y.shape[1])
    rank = np.mean(level[neighbours] < level[:, None], axis=1)
    return Guess(_layers(rank, np.sort(rng.uniform(0.1, 0.9, task.functions - 1))))


def by_magnitude(task: Task, rng: np.random.Generator) -> Guess:
    """By distance of y from its median: functions of small and large amplitude."""
    size = np.linalg.norm(task.sample.y - np.median(task.sample.y, axis=0), axis=1)
    inner = (
        np.arange(1, task.functions) + rng.uniform(-0.3, 0.3, task.functions - 1)
    ) / task.functions
    return Guess(_layers(size, inner))


def by_cluster(task: Task, rng: np.random.Generator) -> Guess:
    """By k-means on inputs and outputs: functions in different regions."""
    nearest = k_means(np.hstack([task.sample.X, task.sample.y]), task.functions, rng)[1]
    return Guess(np.eye(task.functions)[nearest])


def random_basis(
    X: Float[np.ndarray, "N D"], lengthscale: float, rng: np.random.Generator
) -> Float[np.ndarray, "N J"]:
    """Random Fourier features of a squared exponential kernel."""
    count = 32 * min(X.shape[1], 2)
    frequency = rng.standard_normal((X.shape[1], count)) / lengthscale
    return np.sqrt(2 / count) * np.cos(X @ frequency + rng.uniform(0, 2 * np.pi, count))


def closeness(
    residual: Float[np.ndarray, "N P"], width: float = MODE_WIDTH
) -> Float[np.ndarray, " N"]:
    """1 for points on the function, falling to 0 with their distance in units of the width."""
    return np.exp(-0.5 * np.sum(residual**2, axis=1) / width**2)


def modal_regression(
    A: Float[np.ndarray, "N J"],
    y: Float[np.ndarray, "N P"],
    weight: Float[np.ndarray, " N"],
    rng: np.random.Generator,
) -> tuple[float, Float[np.ndarray, "J P"]]:
    """Coefficients of a function along a mode of the data, and the weight of the points on it."""
    coefficients = rng.standard_normal((A.shape[1], y.shape[1]))
    for width in np.geomspace(rng.uniform(0.3, 1.0), MODE_WIDTH, MODE_STEPS):
        near = A * (weight * closeness(y - A @ coefficients, width))[:, None]
        ridge = 0.05 * width * np.eye(A.shape[1])
        coefficients = np.linalg.solve(A.T @ near + ridge, near.T @ y)
    return float(weight @ closeness(y - A @ coefficients)), coefficients


def on_mode(
    sample: Sample, weight: Float[np.ndarray, " N"], rng: np.random.Generator
) -> Bool[np.ndarray, " N"]:
    """Points on the smooth function along which most of the weight lies."""
    some = rng.permutation(np.flatnonzero(weight > 0.1 * sample.weight))[:CONSENSUS_POINTS]
    found = []
    for _ in range(CONSENSUS_TRIES):
        basis = random_basis(sample.X, rng.uniform(0.3, 2.0) * sample.X.shape[1] ** 0.5, rng)
        held, coefficients = modal_regression(basis[some], sample.y[some], weight[some], rng)
        found.append((held, closeness(sample.y - basis @ coefficients, 2 * MODE_WIDTH) > 0.5))
    return max(found, key=lambda one: one[0])[1]


def by_consensus(task: Task, rng: np.random.Generator) -> Guess:
    """By modal regression: the best of several robust fits, one function after the other.

    This finds signals even where most points are clutter.
    """
    some = np.sort(rng.permutation(len(task.sample.X))[:CONSENSUS_POINTS])
    basis = random_basis(task.sample.X, rng.uniform(0.3, 0.6) * task.sample.X.shape[1] ** 0.5, rng)
    A, y = basis[some], task.sample.y[some]
    left, squares = task.sample.weight[some], []
    for _ in range(task.functions):
        tries = [modal_regression(A, y, left, rng) for _ in range(CONSENSUS_TRIES)]
        _, coefficients = max(tries, key=lambda found: found[0])
        left = left * (1 - closeness(y - A @ coefficients, 2 * MODE_WIDTH))
        squares.append(np.sum((task.sample.y - basis @ coefficients) ** 2, axis=1))
    members = np.exp(-0.5 * np.stack(squares, axis=1) / (2 * MODE_WIDTH) ** 2)
    return Guess(members / np.maximum(members.sum(axis=1, keepdims=True), 1.0))


def by_track(task: Task, rng: np.random.Generator) -> Iterator[Guess]:
    """By tracking curves along a single input, from the left and from the right in turn."""
    x, y = task.sample.X[:, 0], task.sample.y
    while True:
        some = np.sort(rng.permutation(len(x))[:TRACKED_POINTS])
        some = some[np.argsort(x[some], kind="stable")]
        for tracks in follow(x[some], y[some], task.functions, task.clutter, rng):
            member = np.full(len(x), -1)
            member[some] = tracks.member
            if len(some) < len(x):
                # Curves change slowly with x: the nearest tracked point, mostly in y, is on the
                # same curve.
                stretch = np.hstack([task.sample.X / 0.1, y / 0.05])
                member = member[some][KDTree(stretch[some]).query(stretch)[1]]
            members = np.vstack([np.eye(task.functions), np.zeros(task.functions)])[member]
            yield Guess(members, tracks.lengthscale, tracks.noise_std)


def by_regression(task: Task, rng: np.random.Generator, *, affine: bool = False) -> Iterator[Guess]:
    """By mixtures of smooth or affine regressions: the best, then others that differ from it."""
    sample, K = task.sample, task.functions
    rows = Rows.of(sample, task.log_mask)
    known: list[np.ndarray] = []
    inducing = choose_inducing(sample.X, FEATURES, rng)
    for found in mixtures(rows, K, inducing, rng, affine=affine):
        members = found.responsibilities(rows)
        if all(agreement(members, other, sample.weight) < SAME for other in known):
            known.append(members)
            yield _regression_guess(found, members[:, :K])


def _regression_guess(found: Mixture, members: Members) -> Guess:
    noise = float(np.clip(np.sqrt(found.noise_variance.mean()), 0.02, 0.5))
    if len(found.basis.inducing) == 0:
        return Guess(members, noise_std=noise)
    return Guess(members, float(np.exp(np.mean(np.log(found.basis.lengthscale)))), noise)


def _again(make: Callable[[Task, np.random.Generator], Guess]) -> Kind:
    """The kind that makes one random proposal after the other."""

    def kind(task: Task, rng: np.random.Generator) -> Iterator[Guess]:
        for lap in itertools.count():
            yield make(task._replace(lap=lap), rng)

    return kind


KINDS: dict[str, Kind] = {
    "regression": by_regression,
    "affine": functools.partial(by_regression, affine=True),
    "track": by_track,
    "rank": _again(by_rank),
    "magnitude": _again(by_magnitude),
    "cluster": _again(by_cluster),
    "consensus": _again(by_consensus),
}
FINDS_CLUTTER = {"regression", "affine", "track", "consensus"}
"""Kinds that tell clutter from functions themselves."""


def _layers(level: Float[np.ndarray, " N"], shares: Float[np.ndarray, " C"]) -> Members:
    """Memberships by the quantiles at `shares` between which a level lies."""
    return np.eye(len(shares) + 1)[np.searchsorted(np.quantile(level, shares), level)]


def _neighbours(X: Float[np.ndarray, "N D"]) -> Int[np.ndarray, "N J"]:
    # A twentieth of the data; bounded, because the table has a row per point.
    count = min(len(X), max(10, min(len(X) // 20, 200)))
    return KDTree(X).query(X, k=count)[1].reshape(len(X), count)


def isolation(sample: Sample) -> Float[np.ndarray, " N"]:
    """Rank of each point by its distance in y from its neighbours in x: 0 densest, 1 sparsest."""
    y = sample.y[_neighbours(sample.X)]
    gaps = np.linalg.norm(y - sample.y[:, None, :], axis=2)
    near = np.sort(gaps, axis=1)[:, : max(2, gaps.shape[1] // 5)].mean(axis=1)
    return np.argsort(np.argsort(near, kind="stable"), kind="stable") / len(near)


def starts(problem: Problem, count: int, rng: np.random.Generator) -> Iterator[Start]:
    """At most `count` starts of all kinds in turn, with varying hyperparameters."""
    problem = problem._replace(sample=filled(problem.sample))
    D = problem.n_inputs
    base = min(0.3 * D**1.2, np.sqrt(D))
    guesses = {kind: _guesses(problem, kind, rng) for kind in portfolio(problem)}
    turns = itertools.chain.from_iterable([(lap, kind) for kind in guesses] for lap in range(count))
    index = 0
    for lap, kind in turns:
        guess = next(guesses[kind], None)
        # A kind may run out of proposals that differ.
        if guess is None:
            continue
        yield Start(
            kind,
            _responsibilities(problem, guess.members),
            lengthscale=guess.lengthscale or base * (1.0, 2.0)[lap % 2],
            noise_std=guess.noise_std or (0.2, 0.1)[index % 2],
            uniform=lap % 2 == 0,
        )
        index += 1
        if index == count:
            return


def portfolio(problem: Problem) -> list[str]:
    """The kinds of start that apply to a problem."""
    clutter, functions = any(problem.clutter), problem.clutter.count(False)
    if functions == 0:
        return ["isolation"]
    if functions == 1:
        # Without clutter there is nothing to divide.
        return ["consensus", "isolation"] if clutter else ["isolation"]
    unfit = {"consensus"} if not clutter else set()
    unfit |= {"track"} if problem.sample.X.shape[1] > 1 else {"regression", "affine"}
    return [kind for kind in KINDS if kind not in unfit]


def _guesses(problem: Problem, kind: str, rng: np.random.Generator) -> Iterator[Guess]:
    """Proposals of a kind; isolated points are clutter where it does not find clutter itself."""
    functions, clutter = problem.clutter.count(False), any(problem.clutter)
    task = Task(problem.sample, functions, clutter, log_mask=_log_mask(problem))
    alike = Guess(np.ones((len(problem.sample.X), functions)))
    make = KINDS.get(kind, lambda *_: itertools.repeat(alike))
    for lap, guess in enumerate(make(task, rng)):
        if clutter and kind not in FINDS_CLUTTER:
            crowded = 1 - isolation(problem.sample) ** (1.0, 0.5, 2.0)[lap % 3]
            yield guess._replace(members=guess.members * crowded[:, None])
        else:
            yield guess


def _log_mask(problem: Problem) -> Float[np.ndarray, "N C"]:
    """What the labels allow, for the functions and, last, for clutter of any kind."""
    clutter = np.array(problem.clutter)
    mask = label_log_mask(problem.sample.labels, problem.n_processes)
    columns = [mask[:, ~clutter]]
    if clutter.any():
        columns.append(mask[:, clutter].max(axis=1, keepdims=True))
    return np.hstack(columns)


def _responsibilities(problem: Problem, members: Members) -> Float[np.ndarray, "N K"]:
    """Soft responsibilities from memberships; clutter gets the rest."""
    clutter, K = np.array(problem.clutter), problem.n_processes
    proposal = np.full((len(members), K), 0.1 / K)
    proposal[:, ~clutter] += 0.9 * members
    rest = 1 - members.sum(axis=1, keepdims=True)
    proposal[:, clutter] += 0.9 * rest / max(clutter.sum(), 1)
    proposal *= np.exp(label_log_mask(problem.sample.labels, K))
    return proposal / proposal.sum(axis=1, keepdims=True)
