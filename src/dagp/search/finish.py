"""What a found association still needs: training to convergence, and finishers, as proposals.

One process where two share a function, more inducing inputs, fewer processes, noise GPs, layers.
"""

import dataclasses
import itertools
from collections.abc import Iterator, Sequence
from functools import partial

import jax
import numpy as np
from scipy.special import softmax

from dagp.core.sharding import to_host
from dagp.core.threads import concurrently
from dagp.core.typing import Bool, Float
from dagp.inference.inducing import choose_inducing
from dagp.inference.parallel import width
from dagp.inference.problem import (
    Problem,
    build,
    deepened,
    initial_gate,
    with_inducing,
)
from dagp.inference.train import State
from dagp.model.association import DataAssociation
from dagp.model.process import Deepening, ProcessPrior
from dagp.search.exact import is_exact, use_all
from dagp.search.moves import annex, extend, merge, swap
from dagp.search.race import improve, race
from dagp.search.settings import (
    DEEP_STEPS,
    DEEPENINGS,
    GAIN,
    HOPELESS,
    LEFT,
    MORE,
    MOST_COST,
    PARSIMONY,
    PROBE_STEPS,
    WORTH,
)
from dagp.search.solution import Options, Solution, in_use
from dagp.search.trial import Accept, Move, Proposal, Trainer, View, climb

DEEP_MOVES: Sequence[Sequence[Move]] = ((merge, swap, annex, extend),)
"""Of a solution with layers and noise GPs, for which there are no windows."""


def finish(
    best: Solution, problem: Problem, trainer: Trainer, options: Options, resumed: bool
) -> None:
    """Train a solution to convergence, with what the data need of the model that was asked for."""
    steps = options.max_iter

    def converge_after(*finishers: Move) -> None:
        """Train to convergence if one of these is accepted."""
        if climb(best, [finishers], trainer):
            trainer.converge(best, steps)

    if not resumed:
        climb(best, [(simpler,)], trainer)
        if not is_deepened(best):
            deepen(best, trainer)
            trainer.converge(best, steps)
        if options.auto:
            converge_after(one_less)
            converge_after(partial(all_inducing, problem.inducing))
    needed = options.amount == "all" or unexplained(View.of(best, trainer)) > LEFT
    if options.amount is None or not needed:
        return
    if is_exact(best.problem, best.state.model):
        use_all(best, trainer)
    elif problem.single_layers:
        converge_after(more_inducing)


def deepen(best: Solution, trainer: Trainer) -> None:
    """Give a solution the layers and noise GPs of its priors: the best of several ways."""
    trainer, pool = trainer.on(best.problem), list[Solution]()

    def begun() -> Iterator[Solution]:
        for given, model in deeper(best):
            pool.append(Solution(best.problem, best.start, trainer.begin(model, given)[0]))
            yield pool[-1]

    for finalist in race(begun(), trainer):
        improve(finalist, pool, DEEP_MOVES, trainer)
        # Noise GPs learn slowly to begin with: one function of varying noise overtakes two late.
        finalist.adopt(trainer.train(finalist.state, DEEP_STEPS))
    winner = max(pool, key=lambda s: s.bound)
    best.moves += winner.moves
    best.adopt(winner.result())


def simpler(view: View) -> Iterator[Proposal]:
    """One process instead of two where both share a function and the loss of the ELBO is small.

    After training, which would revert it. For a single input only: with several inputs functions
    agree in scattered places, and reassigning these simplifies nothing.
    """
    if view.sample.X.shape[1] > 1:
        return
    weight = view.sample.weight

    def score(pair: list[int], state: State, bound: float) -> float:
        assert state.gate is not None
        both = to_host(state.gate.weights)[: len(weight), pair].min(axis=1)
        return bound - PARSIMONY * float(weight @ both)

    for proposal in annex(view):
        judged = partial(score, sorted(proposal.touches))
        accept = Accept(GAIN * float(weight.sum()), judged, patient=True)
        yield proposal._replace(accept=accept, name=f"simplify: {proposal.name}")


def unexplained(view: View) -> float:
    """Loss of the ELBO per data point that the variance left by the inducing inputs causes.

    Rows of clutter count for every function: with more inducing inputs they may belong to it.
    """
    weight = view.sample.weight
    outside = view.responsibilities[:, view.clutter].sum(axis=1)
    loss = 0.0
    for k in view.smooth:
        noise = np.sum(1 / view.noise_std[k] ** 2)
        held = weight * (view.responsibilities[:, k] + outside)
        loss += 0.5 * noise * float(held @ view.residuals[k])
    return loss / float(weight.sum())


def with_those(
    inducing: Float[np.ndarray, "M D"], home: Solution
) -> tuple[Problem, DataAssociation]:
    """The model with other inducing inputs, which take over its hyperparameters."""
    problem = home.problem._replace(inducing=inducing)
    return problem, with_inducing(problem, home.start, home.state.model)


def all_inducing(inducing: Float[np.ndarray, "M D"], view: View) -> Iterator[Proposal]:
    """The inducing inputs of the problem, of which the search uses few."""
    if len(view.home.problem.inducing) < len(inducing):
        accept = Accept(-np.inf, patient=True)
        edit, name = partial(with_those, inducing), f"all {MORE}"
        yield Proposal(name, frozenset(), view.responsibilities, accept, edit)


def more_inducing(view: View) -> Iterator[Proposal]:
    """Twice as many inducing inputs, as long as the data need it and time allows."""
    problem = view.home.problem
    rows, now = len(problem.sample.X), len(problem.inducing)
    most = min(rows, int(np.sqrt(MOST_COST / (rows * max(len(view.smooth), 1)))))
    least = LEFT * float(view.sample.weight.sum())
    gains = [
        gain for name, gain in view.home.moves if name.endswith(MORE) and not name.startswith("all")
    ]
    if 2 * now <= most and all(gain >= least for gain in gains) and unexplained(view) > LEFT:
        chosen = choose_inducing(problem.sample.X, 2 * now, np.random.default_rng(now))
        name, accept = f"{len(chosen)} {MORE}", Accept(0.0, patient=True)
        edit = partial(with_those, chosen)
        yield Proposal(name, frozenset(), view.responsibilities, accept, edit)


def without(kept: Bool[np.ndarray, " K"], home: Solution) -> tuple[Problem, DataAssociation]:
    """The model with some of its processes, and a new gate."""
    # On the host: on a device, taking the processes apart compiles a program for every shape.
    model, ks = jax.tree.map(to_host, home.state.model), np.flatnonzero(kept)
    smaller = home.problem._replace(priors=tuple(home.problem.priors[k] for k in ks))
    gate = build(smaller, home.start).gate
    return smaller, DataAssociation.assemble([model.process(int(k)) for k in ks], gate)


def _left(given: Float[np.ndarray, "N K"], kept: Bool[np.ndarray, " K"]) -> np.ndarray:
    left = given[:, kept] + 1e-12
    return left / left.sum(axis=1, keepdims=True)


def without_unused(view: View) -> Iterator[Proposal]:
    """Only the processes that are in use."""
    used = in_use(view.responsibilities, view.sample.weight)
    if 0 < used.sum() < len(used):
        given = _left(view.responsibilities, used)
        accept = Accept(-np.inf, patient=True)
        yield Proposal("without unused", frozenset(), given, accept, partial(without, used))


def one_less(view: View) -> Iterator[Proposal]:
    """One process less, the smallest first, if the ELBO falls by less than `WORTH`."""
    home, K = view.home, len(view.means)
    least = home.bound - HOPELESS * home.points
    for k in map(int, np.argsort(view.sizes)):
        if K == 1:
            return
        # In the larger model first, which costs little and needs no other program.
        rest = np.arange(K) != k
        barred = view.trainer.barring(np.broadcast_to(~rest, (len(view.sample.X), K)))

        def probed(given: np.ndarray, barred: Trainer = barred) -> float:
            bound = barred.begin(home.state.model, given, PROBE_STEPS)[1]
            return bound if np.isfinite(bound) else -np.inf

        ways = list(_handed_over(view, k))
        bounds = list(concurrently(probed, ways, width(home.state)))
        if max(bounds) > least:
            given = _left(ways[int(np.argmax(bounds))], rest)
            accept = Accept(-WORTH, patient=True)
            name = f"without {k}"
            yield Proposal(name, frozenset((k,)), given, accept, partial(without, rest))


def _handed_over(view: View, k: int) -> Iterator[Float[np.ndarray, "N K"]]:
    """Responsibilities without process k: its points go where they are predicted, or to one other
    function, which may be unsure where it had none."""
    rest = np.arange(len(view.means)) != k
    given = np.zeros_like(view.responsibilities)
    given[:, rest] = softmax(log_predictive(view)[:, rest], axis=1)
    yield given
    for j in view.smooth:
        if j != k:
            yield view.hand_over(k, j, np.ones(len(given), bool))


def log_predictive(view: View) -> Float[np.ndarray, "N K"]:
    """As `View.log_joint`, by the predictive instead of the expected log density of the functions.

    Where a function has no data its variance is large: the predictive density is broad, but the
    expected log density excludes every point. A point of such a place cannot return. Heavy-tailed
    noise excludes no point.
    """
    found = view.log_joint.copy()
    for k in view.normal:
        square, noise = (view.sample.y - view.means[k]) ** 2, view.noise_std[k] ** 2
        total = view.variances[k] + noise
        expected = (square + view.variances[k]) / noise + np.log(noise)
        predictive = square / total + np.log(total)
        found[:, k] += 0.5 * np.sum(expected - predictive, axis=1)
    return found


def is_deepened(solution: Solution) -> bool:
    """Whether a solution has all layers and noise GPs of its priors."""
    # On the host, where unstacking the processes compiles nothing.
    model = jax.tree.map(to_host, solution.state.model)
    whole = deepened(solution.problem, solution.start, model, Deepening())
    return jax.tree.structure(whole) == jax.tree.structure(model)


def deeper(solution: Solution) -> Iterator[tuple[Float[np.ndarray, "N K"], DataAssociation]]:
    """Responsibilities and models with all layers and noise GPs of the priors, to begin with.

    With constant noise, one function of varying noise is divided among several processes, and which
    of them has taken the place of the one whose noise may vary is chance: other arrangements follow
    the one that was found.
    """
    problem, start = solution.problem, solution.start
    plain = jax.tree.map(to_host, solution.state.model)
    models = [deepened(problem, start, plain, way) for way in DEEPENINGS]
    found = solution.responsibilities
    # Noise GPs alone have one initialisation.
    if not all(map(np.array_equal, *map(jax.tree.leaves, models))):
        yield from ((found, model) for model in models)
        return
    yield found, models[0]
    gate = initial_gate(problem, start)
    for order, given in itertools.islice(arrangements(problem, found), 1, None):
        as_found = order == sorted(order)
        processes = [plain.process(k) for k in order]
        arranged = DataAssociation.assemble(processes, plain.gate if as_found else gate)
        yield given, deepened(problem, start, arranged, Deepening())


def arrangements(
    problem: Problem, found: Float[np.ndarray, "N K"]
) -> Iterator[tuple[list[int], Float[np.ndarray, "N K"]]]:
    """As found; with another process in the place of one with a noise GP; and with all data of a
    second process in that place. Labels fix the order. Which process of the search takes which
    place, and responsibilities in this order."""
    labelled = bool(np.any(problem.sample.labels >= 0))
    priors, shares = problem.priors, found.sum(axis=0)
    functions = [k for k, clutter in enumerate(problem.clutter) if not clutter]
    varying = [k for k in functions if getattr(priors[k], "noise_gp", None) is not None]
    yield list(range(problem.n_processes)), found
    for place in varying if not labelled else []:
        # Exchanged with one of the same prior, a process is the same under another number.
        alike = {k for k in functions if k != place and _kind(priors[k]) == _kind(priors[place])}
        for k in functions:
            if k in alike or _kind(priors[place], False) != _kind(priors[k], False):
                continue
            order = list(range(problem.n_processes))
            order[place], order[k] = k, place
            arranged = found[:, order]
            if k not in varying:
                yield order, arranged
            # Of two of the same prior, the larger takes over.
            smaller = {other for other in alike if (shares[other], other) < (shares[place], place)}
            for other in functions:
                if other != place and (other not in alike or k != place or other in smaller):
                    given = arranged.copy()
                    given[:, place] += given[:, other]
                    given[:, other] = 0.0
                    yield order, given


def _kind(prior: ProcessPrior, noise_gp: bool = True) -> str:
    """A prior in words, with or without its noise GP."""
    plain = not noise_gp and hasattr(prior, "noise_gp")
    return repr(dataclasses.replace(prior, noise_gp=None) if plain else prior)  # pyright: ignore
