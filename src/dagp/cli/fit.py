"""`dagp fit`: fits a model to a table and saves it."""

import json
import shlex
import time
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import numpy as np
from typer import Option, echo

from dagp.cli import options, tables
from dagp.cli.app import InputError, check_output, print_message, print_result
from dagp.cli.interrupt import InterruptCheckpoint
from dagp.cli.progress import fit_with_progress, show_summary, warnings_as_notes
from dagp.cli.training import TrainingData, read_training_data
from dagp.cli.worker import heartbeat, join_workers
from dagp.core.errors import StorageError
from dagp.estimator import DAGP
from dagp.files import modelfile
from dagp.files.atomic import discard
from dagp.model.clutter import Noise
from dagp.model.deep import DeepGP
from dagp.model.gp import GP
from dagp.search.fit import BATCH_ROWS, MANY_ROWS
from dagp.tables.settings import AUTO_PROCESSES, check_settings


class Missing(StrEnum):
    """Treatment of rows with empty cells."""

    refuse = "raise"
    drop = "drop"


def fit(
    data: options.Data,
    target: Annotated[str, Option("--target", "-t", help="Output column.")],
    features: Annotated[
        str | None,
        Option(
            help="Input columns, separated by commas; all others if omitted. "
            "Quote a name that contains a comma: '\"a,b\",c'."
        ),
    ] = None,
    processes: Annotated[str, Option(help="Number of processes, or auto to determine it.")] = "2",
    noise_process: Annotated[
        bool, Option("--noise-process", help="Add a process for outliers.")
    ] = False,
    depth: Annotated[int, Option(min=1, help="Number of GP layers of each process.")] = 1,
    inducing: Annotated[int | None, Option(min=1, help="Number of inducing points.")] = None,
    batch_size: Annotated[
        int | None,
        Option(
            min=1,
            help=f"Rows per minibatch; if omitted, all rows, or {BATCH_ROWS} above {MANY_ROWS}.",
        ),
    ] = None,
    starts: Annotated[int, Option(min=1, help="Number of initialisations that are compared.")] = 8,
    max_iter: Annotated[
        int, Option(min=1, help="Maximum number of steps of the final training.")
    ] = 1000,
    seed: Annotated[
        int, Option(min=0, help="Random seed; the same seed gives the same model.")
    ] = 0,
    missing: Annotated[
        Missing, Option(help="Rows with empty cells: stop with an error, or drop them.")
    ] = Missing.refuse,
    weights: Annotated[str | None, Option(help="Column with the weights of rows.")] = None,
    labels: Annotated[
        str | None,
        Option(help="Column with known process numbers, from 0; empty or -1 where unknown."),
    ] = None,
    delimiter: options.Delimiter = None,
    decimal: options.Decimal = None,
    checkpoint_every: Annotated[float, Option(min=0, help="Seconds between checkpoints.")] = 30.0,
    resume: Annotated[
        bool, Option("--resume", help="Continue an interrupted fit from its checkpoint.")
    ] = False,
    force: options.Force = False,
    as_json: Annotated[bool, Option("--json", help="Print results as JSON on stdout.")] = False,
    out: Annotated[Path, Option("--out", "-o", help="Model file to write.")] = Path("model.dagp"),
) -> None:
    """Separate a table into processes and save the model.

    Progress is saved in OUT.checkpoint; --resume continues an interrupted fit.
    """
    check_output(out, force)
    count, priors = _priors(processes, noise_process, depth)
    began = time.monotonic()
    with join_workers() as writes_files:
        with tables.open_table(data, delimiter, decimal) as table:
            drop = missing is Missing.drop
            training = read_training_data(table, target, features, weights, labels, drop)
        checkpoint = _checkpoint_path(out, resume)
        model = DAGP(
            count,
            priors,
            inducing=inducing,
            n_init=starts,
            max_iter=max_iter,
            batch_size=batch_size,
            random_state=seed,
            checkpoint=str(checkpoint),
            checkpoint_every=checkpoint_every,
            resume=resume,
        )
        with warnings_as_notes() as notes:
            _fit_model(model, training, checkpoint)
        if not writes_files:
            return
        modelfile.save(model, out, (training.X, training.y), target)
        discard(checkpoint)
    if as_json:
        results = modelfile.about(model) | {
            "model": str(out),
            "target": target,
            "noise_std": [process.noise_std_.tolist() for process in model.processes_],
            "steps": int(model.n_iter_),
            "seconds": round(time.monotonic() - began, 2),
            "notes": notes,
        }
        echo(json.dumps(results, allow_nan=False))
        return
    print_result(f"Model: {out}")
    show_summary(model)
    print_result(f"For a report: dagp report {shlex.quote(str(out))} -o report.html")


def _priors(processes: str, noise: bool, depth: int) -> tuple[int | str, Any]:
    """Number and priors of the processes, as arguments of `DAGP`."""
    auto = processes == "auto"
    if not auto and not (processes.isdecimal() and int(processes) > 0):
        raise InputError(f"--processes must be auto or a number of at least 1, got {processes!r}.")
    prior = DeepGP(layers=depth) if depth > 1 else GP()
    count = AUTO_PROCESSES if auto else int(processes)
    return ("auto" if auto else count), [prior] * count + [Noise()] if noise else prior


def _checkpoint_path(out: Path, resume: bool) -> Path:
    """The checkpoint of a model file; a message tells whether an existing one is used."""
    path = out.with_name(f"{out.name}.checkpoint")
    if resume and not path.exists():
        print_message(f"There is no checkpoint {path}: the fit starts from the beginning.")
    if path.exists() and not resume:
        print_message(f"The checkpoint {path} of an earlier fit is ignored; --resume continues it.")
    return path


def _fit_model(model: DAGP, training: TrainingData, checkpoint: Path) -> None:
    """Fit; Ctrl-C saves the progress in the checkpoint."""
    try:
        sample = training.sample(len(check_settings(model)))
        interrupt = InterruptCheckpoint(model, sample)

        def after_block() -> None:
            heartbeat()
            interrupt.copy_log()

        with interrupt.on_interrupt(checkpoint):
            more = {"sample_weight": training.weights, "labels": training.labels}
            fit_with_progress(model, training.X, training.y, after_block, interrupt.log, **more)
    except StorageError:
        raise
    except ValueError as error:
        raise InputError(str(error)) from error
    for one in (model, *model.alternatives_):
        vars(one)["feature_names_in_"] = np.array(training.features, dtype=object)
