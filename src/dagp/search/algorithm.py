"""The search for the right association, from the first start to the last step.

The ELBO has many local optima. Several kinds of starts compete (*race*); the best ones try other
associations until none is better (*climb*); new starts follow until one has found the same solution
again (*confirm*); the best one is trained to its end and gets what it still needs (*finish*). The
ELBO decides throughout.
"""

from collections.abc import Iterator, Sequence
from functools import partial

import numpy as np

from dagp.inference.inducing import choose_inducing
from dagp.inference.minibatch import sweeps
from dagp.inference.problem import Problem, Resumed, build
from dagp.inference.standardize import Sample
from dagp.search.exact import is_exact, use_all
from dagp.search.finish import all_inducing, finish, without_unused
from dagp.search.moves import annex, extend, merge, swap
from dagp.search.race import close_to, confirmed, improve, race
from dagp.search.regressions import with_fewer
from dagp.search.settings import ROUNDS, SEARCH_INDUCING, UNDECIDED
from dagp.search.solution import Found, Options, Solution, resumed
from dagp.search.starts import starts
from dagp.search.trial import Move, StopSearchError, Trainer, View, climb
from dagp.search.verdict import joints, judge, rivals
from dagp.search.windows import assign_windows_again

MOVES: Sequence[Sequence[Move]] = ((merge, swap, annex, extend), (assign_windows_again,))
"""Windows take longer, and follow where the others fail."""


def search(
    problem: Problem,
    options: Options,
    previous: Resumed | None = None,
    all_rows: Sample | None = None,
) -> Found:
    """The best solution of a problem, others, and how sure that is.

    A `previous` model is trained further instead. If the problem has only some of the rows, the
    ELBO of `all_rows` decides between close solutions. When a callback returns true, the search
    ends with the best one so far.
    """
    if options.auto and previous is None:
        problem = with_fewer(problem, options.rng)
    trainer = Trainer.of(problem, options)
    pool: list[Solution] = []
    best, found = None, None
    try:
        if previous is None:
            explore(with_few_inducing(problem, options.rng), trainer, options, pool)
        else:
            pool.append(resumed(problem, previous, trainer.batch))
        best = best_of(pool, all_rows)
        if previous is None and options.amount == "all" and is_exact(problem, best.state.model):
            found = judge(best, pool, trainer.batch)
            use_all(best, trainer)
        else:
            if options.auto:
                # Superfluous processes go first: with them, every step would take longer.
                found = judge(best, pool, trainer.batch)
                climb(best, [(without_unused,)], trainer)
            elif previous is None:
                climb(best, [(partial(all_inducing, problem.inducing),)], trainer)
            trainer.converge(best, options.max_iter)
            found = found or judge(best, pool, trainer.batch)
            finish(best, problem, trainer, options, previous is not None)
    except StopSearchError:
        best = best or max(pool, key=lambda s: s.bound)
        best.status = "stopped"
    verdict, others = found or judge(best, pool, trainer.batch)
    for one in others:
        one.settle(trainer.batch)
    best.fate, trainer = "kept", trainer.on(best.problem)
    best.settle(trainer.batch)
    close = [best]
    if options.averaged and all_rows is None and best.status != "stopped":
        close = rivals(best, others, trainer, options.max_iter)
    verdict = verdict.doubting(joints(View.of(close[0], trainer)))
    return Found(close, others, pool, verdict, trainer.batch)


def explore(problem: Problem, trainer: Trainer, options: Options, pool: list[Solution]) -> None:
    """Add solutions to the pool in rounds of starts, until the best one has been found twice."""

    def begun() -> Iterator[Solution]:
        for start in starts(problem, options.n_init, options.rng):
            state, _ = trainer.begin(build(problem, start), start.responsibilities)
            pool.append(Solution(problem, start, state))
            yield pool[-1]

    # Superfluous processes divide the data in ways that no two starts share.
    for _ in range(1 if options.auto else ROUNDS):
        best, *_ = race(begun(), trainer)
        improve(best, pool, MOVES, trainer)
        if confirmed(pool) or options.n_init == 1:
            return
        bounds = sorted((s.bound for s in pool if s.climbed), reverse=True)
        if len(bounds) > 1 and bounds[1] > bounds[0] - UNDECIDED * pool[0].points:
            return


def with_few_inducing(problem: Problem, rng: np.random.Generator) -> Problem:
    """The problem with at most `SEARCH_INDUCING` inducing inputs."""
    if len(problem.inducing) <= SEARCH_INDUCING:
        return problem
    return problem._replace(inducing=choose_inducing(problem.sample.X, SEARCH_INDUCING, rng))


def best_of(pool: list[Solution], rows: Sample | None) -> Solution:
    """The solution of the highest ELBO; of close ones, by that of all `rows`."""
    best = max(pool, key=lambda s: s.bound)
    if rows is None:
        return best
    return max(close_to(best, pool), key=lambda s: sweeps(s.state.model, rows)[1])
