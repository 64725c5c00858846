"""Starts: where a run begins.

The start decides which optimum a run ends in, and no kind of start wins everywhere. Each kind here
proposes which points belong together from a different idea of what a process looks like.
"""

import warnings
from collections.abc import Callable, Iterator
from numbers import Integral
from typing import Any, NamedTuple

import numpy as np
from scipy.spatial import KDTree

from dagp.data import Sample, Units, allowed
from dagp.deep import DeepGP
from dagp.gate import build_gate, grown_gate
from dagp.model import DataAssociation
from dagp.processes import GP, Growth, ProcessPrior, Setting
from dagp.tracking import follow
from dagp.typing import Float, Int

__all__ = [
    "KINDS",
    "Problem",
    "Start",
    "build",
    "choose_inducing",
    "grown",
    "inducing_inputs",
    "k_means",
    "portfolio",
    "resumed",
    "starts",
]


class Problem(NamedTuple):
    """What is to be fitted: standardised data and the priors."""

    sample: Sample
    units: Units
    priors: tuple[ProcessPrior, ...]
    gate: GP | DeepGP | str | None
    inducing: Float[np.ndarray, "M D"]

    @property
    def n_processes(self) -> int:
        """K."""
        return len(self.priors)

    @property
    def clutter(self) -> tuple[bool, ...]:
        """Which processes carry no information about the input."""
        return tuple(prior.clutter for prior in self.priors)


class Start(NamedTuple):
    """Where a run begins: responsibilities, and the hyperparameters nobody stated."""

    kind: str
    responsibilities: Float[np.ndarray, "N K"]
    lengthscale: float
    noise_std: float
    even: bool = False
    """Whether clutter of unknown shape starts evenly spread."""


def choose_inducing(
    X: Float[np.ndarray, "N D"], count: int, rng: np.random.Generator
) -> Float[np.ndarray, "M D"]:
    """At most `count` inputs spread over the data: denser where data are, but everywhere."""
    distinct = np.unique(X, axis=0)
    if len(distinct) <= count:
        return distinct
    return k_means(distinct, count, rng)[0]


def inducing_inputs(
    asked: Any, sample: Sample, units: Units, rng: np.random.Generator
) -> Float[np.ndarray, "M D"]:
    """Inducing inputs as a user asked for them: a number, positions, or nothing."""
    if asked is not None and not isinstance(asked, Integral):
        expected = f"inducing must be a number or have shape (M, {sample.X.shape[1]})"
        try:
            given = np.asarray(asked, np.float64)
        except (TypeError, ValueError) as error:
            raise ValueError(f"{expected}, got {asked!r}.") from error
        if given.ndim != 2 or given.shape[1] != sample.X.shape[1]:
            raise ValueError(f"{expected}, got {asked if given.ndim == 0 else given.shape}.")
        return units.standard_x(given)
    default = 32 if sample.X.shape[1] == 1 else 100
    count = default if asked is None else int(asked)
    if count < 1:
        raise ValueError(f"inducing must be at least 1, got {count}.")
    chosen = choose_inducing(sample.X, count, rng)
    if asked is not None and len(chosen) < count:
        warnings.warn(
            f"inducing={count} is more than X has distinct rows; {len(chosen)} are used.",
            UserWarning,
            stacklevel=3,
        )
    return chosen


def k_means(
    points: Float[np.ndarray, "N D"], count: int, rng: np.random.Generator, limit: int = 5000
) -> tuple[Float[np.ndarray, "M D"], Int[np.ndarray, " N"]]:
    """Centres and the nearest centre of each point (Lloyd's algorithm after k-means++ seeding)."""
    some = points
    if len(points) > limit:
        some = points[np.sort(rng.choice(len(points), limit, replace=False))]
    centres = some[[rng.integers(len(some))]]
    nearest = np.full(len(some), np.inf)
    while len(centres) < count:
        nearest = np.minimum(nearest, np.sum((some - centres[-1]) ** 2, axis=1))
        pick = np.searchsorted(np.cumsum(nearest), rng.uniform(0, nearest.sum()))
        centres = np.vstack([centres, some[min(pick, len(some) - 1)]])
    for _ in range(20):
        member = KDTree(centres).query(some)[1]
        sizes = np.bincount(member, minlength=count)
        sums = np.stack([np.bincount(member, column, minlength=count) for column in some.T], axis=1)
        centres = np.where(sizes[:, None] > 0, sums / np.maximum(sizes, 1)[:, None], centres)
    return centres, np.asarray(KDTree(centres).query(points)[1])


Members = Float[np.ndarray, "N F"]
"""How far each point belongs to each function; what is missing to one belongs to none."""


class Guess(NamedTuple):
    """What a kind of start proposes; the scales where it has an idea of them."""

    members: Members
    lengthscale: float | None = None
    noise_std: float | None = None


class Task(NamedTuple):
    """What a kind of start is asked: to divide a sample among some functions."""

    sample: Sample
    functions: int
    clutter: bool = False
    """Whether points may belong to no function."""
    lap: int = 0
    """How often the same kind was asked before."""


Kind = Callable[[Task, np.random.Generator], Guess]


def by_rank(task: Task, rng: np.random.Generator) -> Guess:
    """Rank of y among the points with the nearest inputs: layers of a one-dimensional picture."""
    neighbours = _neighbours(task.sample.X)
    level = task.sample.y @ rng.standard_normal(task.sample.y.shape[1])
    rank = np.mean(level[neighbours] < level[:, None], axis=1)
    return Guess(_layers(rank, np.sort(rng.uniform(0.1, 0.9, task.functions - 1))))


def by_magnitude(task: Task, rng: np.random.Generator) -> Guess:
    """Distance of y from its middle: regimes that respond weakly and strongly."""
    size = np.linalg.norm(task.sample.y - np.median(task.sample.y, axis=0), axis=1)
    inner = (
        np.arange(1, task.functions) + rng.uniform(-0.3, 0.3, task.functions - 1)
    ) / task.functions
    return Guess(_layers(size, inner))


def by_cluster(task: Task, rng: np.random.Generator) -> Guess:
    """Clusters in inputs and outputs together: regimes that live in different places."""
    nearest = k_means(np.hstack([task.sample.X, task.sample.y]), task.functions, rng)[1]
    return Guess(np.eye(task.functions)[nearest])


def by_consensus(task: Task, rng: np.random.Generator) -> Guess:
    """Functions that most points agree on, peeled off one after the other.

    Each is the best of several modal regressions: least squares in which a point counts less the
    further off it is, while "far" shrinks from the spread of the data to a noise level. Clutter
    agrees on nothing, so this finds signals that most points do not belong to.
    """
    some = np.sort(rng.permutation(len(task.sample.X))[:_CONSENSUS_POINTS])
    basis = _random_basis(task.sample.X, rng.uniform(0.3, 0.6) * task.sample.X.shape[1] ** 0.5, rng)
    A, y = basis[some], task.sample.y[some]
    left, squares = task.sample.weight[some], []
    for _ in range(task.functions):
        tries = [_modal_regression(A, y, left, rng) for _ in range(_CONSENSUS_TRIES)]
        _, coefficients = max(tries, key=lambda found: found[0])
        left = left * (1 - _agreement(y - A @ coefficients, 2 * _CONSENSUS_WIDTH))
        squares.append(np.sum((task.sample.y - basis @ coefficients) ** 2, axis=1))
    members = np.exp(-0.5 * np.stack(squares, axis=1) / (2 * _CONSENSUS_WIDTH) ** 2)
    return Guess(members / np.maximum(members.sum(axis=1, keepdims=True), 1.0))


def by_track(task: Task, rng: np.random.Generator) -> Guess:
    """Curves followed along a single input, from the left and from the right in turn."""
    x, y = task.sample.X[:, 0], task.sample.y
    some = np.sort(rng.permutation(len(x))[:_TRACKED_POINTS])
    side = (1.0, -1.0)[task.lap % 2]
    some = some[np.argsort(side * x[some], kind="stable")]
    member = np.full(len(x), -1)
    tracks = follow(side * x[some], y[some], task.functions, task.clutter, rng)
    member[some] = tracks.member
    if len(some) < len(x):
        # Along a curve y changes slowly with x: the nearest point, mostly in y, shares the curve.
        stretch = np.hstack([task.sample.X / 0.1, y / 0.05])
        member = member[some][KDTree(stretch[some]).query(stretch)[1]]
    members = np.vstack([np.eye(task.functions), np.zeros(task.functions)])[member]
    return Guess(members, tracks.lengthscale, tracks.noise_std)


def _modal_regression(
    A: np.ndarray, y: np.ndarray, weight: np.ndarray, rng: np.random.Generator
) -> tuple[float, np.ndarray]:
    """A smooth function along a ridge of the data, and how many points agree on it."""
    coefficients = rng.standard_normal((A.shape[1], y.shape[1]))
    ridge = 0.05 * np.eye(A.shape[1])
    for width in np.geomspace(rng.uniform(0.3, 1.0), _CONSENSUS_WIDTH, 12):
        B = A * (weight * _agreement(y - A @ coefficients, width))[:, None]
        coefficients = np.linalg.solve(A.T @ B + width * ridge, B.T @ y)
    return float(weight @ _agreement(y - A @ coefficients, _CONSENSUS_WIDTH)), coefficients


def _agreement(residual: np.ndarray, width: float) -> np.ndarray:
    return np.exp(-0.5 * np.sum(residual**2, axis=1) / width**2)


def _random_basis(X: np.ndarray, lengthscale: float, rng: np.random.Generator) -> np.ndarray:
    """Random Fourier features: their combinations are draws from a smooth process."""
    count = 32 * min(X.shape[1], 2)
    frequency = rng.standard_normal((X.shape[1], count)) / lengthscale
    return np.sqrt(2 / count) * np.cos(X @ frequency + rng.uniform(0, 2 * np.pi, count))


_TRACKED_POINTS = 1200
_CONSENSUS_POINTS = 1000
_CONSENSUS_TRIES = 24
_CONSENSUS_WIDTH = 0.15
"""Noise level, in units of the spread of the data, at which agreement is counted."""

KINDS: dict[str, Kind] = {
    "track": by_track,
    "rank": by_rank,
    "magnitude": by_magnitude,
    "cluster": by_cluster,
    "consensus": by_consensus,
}


def _layers(level: Float[np.ndarray, " N"], shares: Float[np.ndarray, " C"]) -> Members:
    """Memberships by which of the quantiles at `shares` a level lies between."""
    return np.eye(len(shares) + 1)[np.searchsorted(np.quantile(level, shares), level)]


def _neighbours(X: Float[np.ndarray, "N D"]) -> Int[np.ndarray, "N J"]:
    # A twentieth of the data, but never so many that the table outgrows them.
    count = min(len(X), max(10, min(len(X) // 20, 200)))
    return KDTree(X).query(X, k=count)[1].reshape(len(X), count)


def isolation(sample: Sample) -> Float[np.ndarray, " N"]:
    """How alone each point is among its neighbours in x: 0 in the densest part, 1 in the thinnest.

    Points of a curve crowd around it; clutter does not.
    """
    y = sample.y[_neighbours(sample.X)]
    gaps = np.linalg.norm(y - sample.y[:, None, :], axis=2)
    near = np.sort(gaps, axis=1)[:, : max(2, gaps.shape[1] // 5)].mean(axis=1)
    return np.argsort(np.argsort(near, kind="stable"), kind="stable") / len(near)


def starts(problem: Problem, count: int, rng: np.random.Generator) -> Iterator[Start]:
    """`count` starts, taking the kinds in turn and varying the hyperparameters along."""
    D = problem.sample.X.shape[1]
    base = min(0.3 * D**1.2, np.sqrt(D))
    kinds = portfolio(problem)
    for index in range(count):
        kind, lap = kinds[index % len(kinds)], index // len(kinds)
        guess = _guess(problem, kind, lap, rng)
        yield Start(
            kind,
            _responsibilities(problem, guess.members),
            lengthscale=guess.lengthscale or base * (1.0, 2.0)[lap % 2],
            noise_std=guess.noise_std or (0.2, 0.1)[index % 2],
            even=lap % 2 == 0,
        )


def portfolio(problem: Problem) -> list[str]:
    """The kinds of start that make sense for a problem."""
    clutter, functions = any(problem.clutter), problem.clutter.count(False)
    if functions == 0:
        return ["isolation"]
    if functions == 1:
        # Without clutter there is nothing to divide.
        return ["consensus", "isolation"] if clutter else ["isolation"]
    unfit = {"consensus"} if not clutter else set()
    unfit |= {"track"} if problem.sample.X.shape[1] > 1 else set()
    return [kind for kind in KINDS if kind not in unfit]


def _guess(problem: Problem, kind: str, lap: int, rng: np.random.Generator) -> Guess:
    """What a kind proposes; where it says nothing of clutter, isolated points are."""
    functions, clutter = problem.clutter.count(False), any(problem.clutter)
    task = Task(problem.sample, functions, clutter, lap)
    make = KINDS.get(kind, lambda *_: Guess(np.ones((len(problem.sample.X), functions))))
    guess = make(task, rng)
    if clutter and kind not in ("consensus", "track"):
        crowded = 1 - isolation(problem.sample) ** (1.0, 0.5, 2.0)[lap % 3]
        return guess._replace(members=guess.members * crowded[:, None])
    return guess


def _responsibilities(problem: Problem, members: Members) -> Float[np.ndarray, "N K"]:
    """Soft responsibilities from memberships; clutter gets what belongs to no function."""
    clutter, K = np.array(problem.clutter), problem.n_processes
    proposal = np.full((len(members), K), 0.1 / K)
    proposal[:, ~clutter] += 0.9 * members
    rest = 1 - members.sum(axis=1, keepdims=True)
    proposal[:, clutter] += 0.9 * rest / max(clutter.sum(), 1)
    proposal *= np.exp(allowed(problem.sample.labels, K))
    return proposal / proposal.sum(axis=1, keepdims=True)


def setting_of(problem: Problem, start: Start) -> Setting:
    """What the processes are told before they are built."""
    return Setting(
        *problem.units,
        y_low=problem.sample.y.min(axis=0),
        y_high=problem.sample.y.max(axis=0),
        inducing=problem.inducing,
        lengthscale=start.lengthscale,
        noise_std=start.noise_std,
        even=start.even,
    )


def build(problem: Problem, start: Start) -> DataAssociation:
    """The model a start begins with."""
    setting = setting_of(problem, start)
    processes = [prior.build(setting) for prior in problem.priors]
    return DataAssociation.assemble(processes, build_gate(problem.gate, setting, len(processes)))


def resumed(problem: Problem, previous: DataAssociation) -> DataAssociation:
    """A trained model to go on with: what clutter knew of the range of its data is out of date."""
    setting = setting_of(problem, Start("warm", np.zeros((0, 0)), 1.0, 1.0))
    trained = map(previous.process, range(problem.n_processes))
    processes = [p.resumed(q, setting) for p, q in zip(problem.priors, trained, strict=True)]
    return DataAssociation.assemble(processes, previous.gate)


def grown(
    problem: Problem, start: Start, plain: DataAssociation, growth: Growth
) -> DataAssociation:
    """The model the user asked for, beginning as the plain one that the search found."""
    setting = setting_of(problem, start)._replace(growth=growth)
    processes = [prior.grown(plain.process(k), setting) for k, prior in enumerate(problem.priors)]
    return DataAssociation.assemble(processes, grown_gate(problem.gate, plain.gate, setting))
