"""Fit of an estimator: validate, prepare the data once, search, set the fitted attributes.

Used by `DAGP.fit` and `dagp fit`; not part of the public interface.
"""

import contextlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from numbers import Integral
from typing import TYPE_CHECKING, Any

import jax
import numpy as np

from dagp.core.errors import SearchWarning, warn
from dagp.core.precision import numerics
from dagp.core.random import as_random_state
from dagp.core.sharding import from_leader, to_host
from dagp.core.version import __version__
from dagp.describe.progress import following
from dagp.describe.summary import joint_sentence
from dagp.files import modelfile
from dagp.files.agreement import check_workers_agree
from dagp.inference.concrete import Concrete
from dagp.inference.inducing import inducing_inputs, is_amount
from dagp.inference.laplace import why_not
from dagp.inference.minibatch import train_minibatch
from dagp.inference.problem import Problem, Resumed, resumed
from dagp.inference.run_log import RunLog
from dagp.inference.standardize import Prepared, Sample
from dagp.inference.stream import Stream, update_stream
from dagp.inference.subsample import SEARCH_ROWS, subsample
from dagp.inference.train import Result, no_callback
from dagp.model.association import Batch, DataAssociation
from dagp.predict.associations import Attribution, over_associations
from dagp.predict.averaging import Averaged, averaged, nothing_to_average
from dagp.predict.posterior import Posterior
from dagp.predict.process import fitted_process
from dagp.predict.widening import widened
from dagp.search.algorithm import search
from dagp.search.concrete import search_concrete
from dagp.search.settings import SUBSAMPLE_STEPS
from dagp.search.solution import Found, Options, Solution, in_use, ranked, shares_of_data
from dagp.search.verdict import check_converged, check_finite, check_jitter
from dagp.tables.reading import output_names
from dagp.tables.settings import check_settings
from dagp.tables.validation import GivenRows, check_data, check_enough, check_spread

if TYPE_CHECKING:
    from dagp.estimator import DAGP

MANY_ROWS, BATCH_ROWS = 20_000, 1000
"""Above this number of rows, minibatches of this size are the default."""


@contextmanager
def all_or_nothing(estimator: "DAGP") -> Iterator[None]:
    """Restore the fitted attributes if the ``with`` block fails or is interrupted."""
    before = _fitted(estimator)
    try:
        yield
    except BaseException:
        for name in _fitted(estimator):
            delattr(estimator, name)
        vars(estimator).update(before)
        raise


def _fitted(estimator: "DAGP") -> dict[str, Any]:
    return {n: v for n, v in vars(estimator).items() if n.endswith("_") and n[0] != "_"}


def fit_estimator(
    estimator: "DAGP",
    X: Any,
    y: Any,
    sample_weight: Any = None,
    labels: Any = None,
    log: RunLog | None = None,
    index: np.ndarray | None = None,
) -> None:
    """Fit an estimator as `DAGP.fit`, without removing its checkpoint; `log` replaces that of the
    checkpoint, and `index` what the rows are called."""
    with all_or_nothing(estimator), contextlib.ExitStack() as stack:

        def log_of(rows: Sample) -> RunLog:
            own = modelfile.checkpoint_log(estimator, rows)
            stack.callback(own.release)
            return own

        given = log_of if log is None else lambda _: log
        _fit(estimator, X, y, sample_weight, labels, given, index)


def _fit(
    estimator: "DAGP",
    X: Any,
    y: Any,
    sample_weight: Any,
    labels: Any,
    log_of: Callable[[Sample], RunLog],
    index: np.ndarray | None,
) -> None:
    priors = check_settings(estimator)
    before = getattr(estimator, "columns_", None)
    given = check_data(estimator, X, y, sample_weight, labels, len(priors), index=index)
    rows, columns = given.sample, estimator.columns_
    if estimator.n_processes == "auto" and not isinstance(estimator.processes, Sequence):
        # The number is to be found: no more than the rows allow.
        priors = priors[: max(1, int(rows.weight.sum()), 1 + int(rows.labels.max()))]
    check_enough(len(priors), rows.weight)
    check_workers_agree(_compared(estimator, rows))
    estimator.flat_ = given.flat
    estimator.target_names_ = output_names(y)
    data = Prepared.of(rows, None, estimator.standardize, columns.known_units)
    same = before is None or columns == before or (columns.plain and before.plain)
    previous = _previous(estimator, data, len(priors), same)
    if previous is not None:
        data = Prepared.of(rows, previous.units)
    check_spread(given, data.units, estimator.dtype)
    seed = from_leader(as_random_state(estimator.random_state).randint(2**31 - 1))
    rng = np.random.default_rng(seed)
    inducing = inducing_inputs(_given_inducing(estimator), data.sample, data.units, rng)
    log = log_of(rows)
    shared = " It must be on a file system that all workers share."
    check_workers_agree({"the checkpoint": [log.finished, log.progress]}, shared)
    gate, groups = estimator.gate, columns.groups
    problem = Problem(data.sample, data.units, tuple(priors), gate, inducing, groups)
    options = Options(
        estimator.n_init,
        estimator.max_iter,
        estimator.tol,
        _batch_size(estimator, len(data.sample.X)),
        estimator.n_processes == "auto",
        rng,
        no_callback,
        log,
        (estimator.inducing or "auto") if is_amount(estimator.inducing) else None,
        estimator.posterior == "averaged",
    )
    with numerics(estimator.dtype), following(estimator) as callback:
        options = options._replace(callback=callback)
        if estimator.inference == "collapsed":
            # The posterior is widened for predictions; training continues from the model before.
            model = None if previous is None else getattr(estimator, "stream_", previous).model
            continued = None if model is None else _continued(problem, model)
            searched = search if options.batch_size is None else _in_minibatches
            found = searched(problem, options, continued)
        else:
            stated = estimator.inference
            settings = stated if isinstance(stated, Concrete) else Concrete()
            found = search_concrete(problem, options, settings)
        result = found.best.result()
        check_finite(result.bound, found.pool)
        check_converged(result)
        if found.batch is not None and estimator.inference == "collapsed":
            check_jitter(result.state.model, found.batch)
    solutions = _solutions(estimator, data, found)
    best, shares = over_associations(solutions, rows.weight, found.best.problem.priors)
    _read_off(estimator, given, rows, result, best)
    estimator.lower_bounds_ = result.trace
    estimator.n_iter_ = len(result.trace)
    trained = jax.tree.map(np.asarray, result.state.model)
    estimator.stream_ = Stream.after(trained, float(rows.weight.sum()))
    estimator.confidence_ = found.verdict.confidence
    estimator.joints_ = _joints(found, data)
    estimator.restarts_ = [s.record() for s in ranked(found.pool)]
    # Responsibilities of rivals that were searched on a subsample are evaluated for all rows.
    known = data
    if found.batch is None:
        known = data._replace(inverse=np.full_like(data.inverse, -1))
    # Those with a probability come first, in the order of `AveragedPosterior.others`.
    close = zip(found.close[1:], solutions[1:], shares[1:], strict=True)
    others = [(other, read) for other, read, share in close if share > 0]
    others += [(s, _attribution(estimator, known, s.result(), None)) for s in found.others]
    estimator.alternatives_ = [_alternative(estimator, given, rows, *other) for other in others]
    if found.verdict.doubted and result.status != "stopped":
        warn(_doubt(estimator, found, data, given), SearchWarning)


def _continued(problem: Problem, previous: DataAssociation) -> Resumed:
    """The model before, to be trained further; a warning names what starts afresh."""
    continued = resumed(problem, previous)
    if continued.anew:
        warn(
            f"warm_start: {', '.join(continued.anew)} had other priors before and start afresh; "
            "the rest continues from the previous fit.",
        )
    return continued


def _in_minibatches(problem: Problem, options: Options, previous: Resumed | None) -> Found:
    """The association found on some of the rows, then trained on all in minibatches."""
    size, sample = options.batch_size, problem.sample
    assert size is not None
    rows = subsample(sample, max(SEARCH_ROWS, size), options.rng)
    part = problem._replace(sample=sample.take(rows))
    # More inducing inputs would be as many in every minibatch.
    steps = min(options.max_iter, SUBSAMPLE_STEPS) if previous is None else 0
    fewer = options._replace(max_iter=steps, amount=None)
    found = search(part, fewer, previous, sample)
    best, stopped = found.best, found.best.status == "stopped"
    # A stopped fit is only evaluated. There may be fewer processes than in the problem.
    result = train_minibatch(
        best.state.model,
        sample,
        size=min(size, len(sample.X)),
        max_iter=0 if stopped else options.max_iter,
        tol=options.tol,
        rng=options.rng,
        callback=options.callback,
        log=options.log,
    )
    best.adopt(result._replace(status="stopped" if stopped else result.status))
    decisive = tuple(int(rows[row]) for row in found.verdict.rows)
    return found._replace(batch=None, verdict=found.verdict._replace(rows=decisive))


def _compared(estimator: "DAGP", rows: Sample) -> dict[str, Any]:
    """What must be the same in all workers that fit together, by its name."""
    settings = modelfile.settings(estimator)
    data = {"X": rows.X, "y": rows.y, "sample_weight": rows.weight, "labels": rows.labels}
    sizes = {"the number of rows": len(rows.X), "the number of columns of X": rows.X.shape[1]}
    return {"the version of dagp": __version__} | sizes | data | settings


def update_estimator(estimator: "DAGP", X: Any, y: Any, sample_weight: Any = None) -> None:
    """Update a fitted estimator with new rows; see `DAGP.partial_fit`."""
    with all_or_nothing(estimator):
        _update(estimator, X, y, sample_weight)


def _update(estimator: "DAGP", X: Any, y: Any, sample_weight: Any) -> None:
    units, K = estimator.posterior_.units, estimator.posterior_.model.n_processes
    given = check_data(estimator, X, y, sample_weight, None, K, reset=False)
    columns, expected = given.sample.y.shape[1], len(units.y_unit)
    if given.flat != estimator.flat_ or columns != expected:
        raise ValueError(
            f"y must have as many columns as in the first call, {expected}, got {columns}"
            f"{' in one dimension' if given.flat else ''}."
        )
    data = Prepared.of(given.sample, units)
    check_spread(given, units, estimator.dtype)
    with numerics(estimator.dtype):
        estimator.stream_, result = update_stream(
            estimator.stream_, data.sample, estimator.batch_size
        )
    _read_off(estimator, given, data.rows, result, _attribution(estimator, data, result, None))


def _given_inducing(estimator: "DAGP") -> Any:
    """The setting `inducing`, with positions encoded as the inputs are."""
    given, columns = estimator.inducing, estimator.columns_
    if is_amount(given) or isinstance(given, Integral) or columns.plain:
        return given
    return columns.encode(given, "inducing")


def _alternative(
    estimator: "DAGP",
    given: GivenRows,
    rows: Sample,
    searched: Solution,
    read: Attribution,
) -> "DAGP":
    other = type(estimator)(**estimator.get_params(deep=False))
    for name in ("flat_", "target_names_", "n_features_in_", "feature_names_in_", "columns_"):
        if hasattr(estimator, name):
            setattr(other, name, getattr(estimator, name))
    result = searched.result()
    _read_off(other, given, rows, result, read)
    other.lower_bounds_, other.n_iter_ = result.trace, searched.steps
    other.confidence_, other.joints_ = np.nan, []
    other.restarts_, other.alternatives_ = [searched.record()], []
    return other


def _batch_size(estimator: "DAGP", rows: int) -> int | None:
    """The minibatch size, with a default for many rows."""
    if estimator.batch_size is not None or rows <= MANY_ROWS or estimator.inference != "collapsed":
        return estimator.batch_size
    warn(
        f"{rows} rows: training in minibatches of {BATCH_ROWS}; batch_size sets another.",
    )
    return BATCH_ROWS


def _joints(found: Found, data: Prepared) -> list[dict[str, Any]]:
    """The joints of a solution, in the user's units."""
    unit, centre = data.units.x_unit[0], data.units.x_centre[0]
    return [
        {
            "processes": joint.processes,
            "beyond": float(joint.at * unit + centre),
            "share": joint.share,
            "log_odds": joint.log_odds,
        }
        for joint in found.verdict.joints
    ]


def _doubt(estimator: "DAGP", found: Found, data: Prepared, given: GivenRows) -> str:
    """What is wrong with a fit of low confidence, and what to do about it."""
    message = (
        f"The association may not be the best one (confidence {estimator.confidence_:.2f}, from "
        f"{len(found.pool)} starts). "
    )
    if estimator.joints_:
        return message + " ".join(map(joint_sentence, estimator.joints_))
    message += "Increase n_init"
    if not found.verdict.rows:
        return message + "."
    rows = [given.name(int(np.argmax(data.inverse == r))) for r in found.verdict.rows]
    lead = found.best.bound - found.others[0].bound
    first = len(estimator.alternatives_) - len(found.others)
    # A simpler solution is preferred to one whose ELBO is slightly higher.
    height = f"{lead:.2f} lower" if lead >= 0 else f"{-lead:.2f} higher, but less simple"
    return (
        f"{message}, or give labels: those of rows {', '.join(map(str, rows))} would decide "
        f"between it and alternatives_[{first}], whose ELBO is {height}."
    )


def _previous(
    estimator: "DAGP", data: Prepared, n_processes: int, same_columns: bool
) -> Posterior | None:
    """The posterior to continue from, with `warm_start`; a warning says why there is none."""
    posterior = getattr(estimator, "posterior_", None) if estimator.warm_start else None
    if posterior is None:
        return None
    before, now = posterior.units, data.units
    if estimator.inference != "collapsed":
        reason = 'the scheme of inference="concrete" cannot be continued'
    elif posterior.model.n_processes != n_processes:
        reason = f"there were {posterior.model.n_processes} processes, now {n_processes}"
    elif [c.shape for c in before] != [c.shape for c in now]:
        reason = "the numbers of columns differ"
    elif not same_columns:
        reason = "the columns hold other levels, or are of other kinds"
    elif not before.resembles(now):
        reason = "the data lie elsewhere or have another spread"
    else:
        return posterior
    message = f"warm_start: {reason}, so the fit starts afresh."
    warn(message)
    return None


def _average(trained: Posterior, found: Found, sample: Sample) -> Averaged | None:
    """The average over hyperparameters; a warning says why there is none."""
    if nothing_to_average(trained.model):
        return None
    reason, average = why_not(trained.model), None
    if found.batch is None:
        reason = "the rows were trained on in minibatches"
    elif found.best.status == "stopped":
        reason = "the fit was stopped"
    elif reason is None:
        average = averaged(trained, found.best.result(), sample, found.batch)
        if average is None:
            reason = "functions do not settle at other hyperparameters"
    if reason is not None:
        warn(
            f'posterior="averaged" does not apply, because {reason}; '
            "the best hyperparameters are taken as known.",
        )
    return average


def _attribution(
    estimator: "DAGP",
    data: Prepared,
    result: Result,
    batch: Batch | None,
    average: Averaged | None = None,
) -> Attribution:
    """What the result of a training run says about the rows."""
    if average is None:
        trained = _trained(estimator, data, result)
        posterior = widened(trained, data.sample, batch)
        found = to_host(result.state.responsibilities).astype(np.float64)
        log_stds, log_evidence = [{} for _ in range(found.shape[1])], np.nan
    else:
        posterior, trained, found, log_stds, log_evidence = average
    found, rows = found[data.inverse], data.rows
    if np.any(absent := data.inverse < 0):
        others = (rows.X[absent], rows.y[absent], rows.labels[absent])
        found[absent] = trained.responsibilities(*others)
    found /= found.sum(axis=1, keepdims=True)
    return Attribution(posterior, found, result.bound, log_evidence, log_stds)


def _trained(estimator: "DAGP", data: Prepared, result: Result) -> Posterior:
    model = jax.tree.map(np.asarray, result.state.model)
    return Posterior(model, data.units, estimator.dtype)


def _solutions(estimator: "DAGP", data: Prepared, found: Found) -> list[Attribution]:
    """The best solution and those that are close to it."""
    results = [solution.result() for solution in found.close]
    averages: list[Averaged | None] = [None] * len(results)
    if estimator.posterior == "averaged":
        averages[0] = _average(_trained(estimator, data, results[0]), found, data.sample)
    if averages[0] is not None and found.batch is not None:
        averages[1:] = [
            averaged(_trained(estimator, data, result), result, data.sample, found.batch)
            for result in results[1:]
        ]
    return [
        _attribution(estimator, data, result, found.batch, average)
        for result, average in zip(results, averages, strict=True)
    ]


def _read_off(
    estimator: "DAGP", given: GivenRows, rows: Sample, result: Result, solution: Attribution
) -> None:
    """Set the fitted attributes that depend on the solution alone."""
    found, posterior = solution.responsibilities, solution.posterior
    shares = shares_of_data(found, rows.weight)
    estimator.posterior_ = posterior
    estimator.index_, estimator.used_mask_ = given.names, given.used
    estimator.responsibilities_ = given.spread(found, np.nan)
    estimator.assignment_ = given.spread(found.argmax(axis=1), -1)
    estimator.active_ = in_use(found, rows.weight)
    estimator.processes_ = [
        fitted_process(estimator, posterior, k, float(share)) for k, share in enumerate(shares)
    ]
    estimator.log_stds_ = solution.log_stds
    estimator.lower_bound_ = result.bound
    estimator.converged_ = result.status == "converged"
    estimator.extent_ = (rows.X.min(axis=0), rows.X.max(axis=0))
