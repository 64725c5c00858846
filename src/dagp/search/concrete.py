"""The paper's scheme of inference, with the starts of the search: a short run of each, then a full
run of the best."""

from typing import Any

import numpy as np

from dagp.core.sharding import shard_rows
from dagp.inference.concrete import Concrete, initial_concrete_state, train_concrete
from dagp.inference.minibatch import shuffled
from dagp.inference.problem import Problem, build, deepened
from dagp.inference.standardize import padded
from dagp.inference.train import STOCHASTIC_BLOCK, Progress
from dagp.model.process import Deepening
from dagp.search.race import DROPPED
from dagp.search.settings import CONCRETE_TRIAL
from dagp.search.solution import Found, Options, Solution, Verdict
from dagp.search.starts import starts
from dagp.search.trial import Trainer
from dagp.search.verdict import check_finite


def search_concrete(problem: Problem, options: Options, settings: Concrete) -> Found:
    """The best of several starts by the paper's scheme."""
    trainer, rows = Trainer.of(problem, options), len(problem.sample.X)
    size = min(options.batch_size or settings.batch_size, rows)
    batches = shuffled(rows, size, options.rng)
    run: dict[str, Any] = {"scale": rows / size, "of": options.max_iter, "log": options.log}
    pool: list[Solution] = []
    states: list[Any] = []
    for index, start in enumerate(starts(problem, options.n_init, options.rng)):
        plain, bound = trainer.begin(build(problem, start), start.responsibilities)
        pool.append(Solution(problem, start, plain, status="diverged", fate=DROPPED))
        states.append(None)
        if not np.isfinite(bound):
            continue
        model = deepened(problem, start, plain.model, Deepening())
        given = shard_rows(padded(start.responsibilities, len(trainer.batch.X)))
        begun = initial_concrete_state(plain._replace(model=model, responsibilities=given), index)
        first: dict[str, Any] = {"first": 0, "steps": CONCRETE_TRIAL, "tol": -np.inf}
        states[-1], result = train_concrete(begun, trainer.batch, batches, settings, **first, **run)
        pool[-1].finish_rung(result)
        if options.callback(Progress("race", index, pool[-1].steps, pool[-1].bound)):
            break
    best = int(np.argmax([s.bound for s in pool]))
    check_finite(pool[best].bound, pool)
    left = max(options.max_iter - CONCRETE_TRIAL, STOCHASTIC_BLOCK)
    run |= {"first": CONCRETE_TRIAL, "steps": left, "tol": options.tol, "start": best}
    run["callback"] = options.callback
    _, result = train_concrete(states[best], trainer.batch, batches, settings, **run)
    pool[best].finish_rung(result)
    pool[best].fate = "kept"
    return Found([pool[best]], [], pool, Verdict(np.nan), trainer.batch)
