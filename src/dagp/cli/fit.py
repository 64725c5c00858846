"""`dagp fit`: fits a model to a table and saves it."""

import json
import shlex
import time
from pathlib import Path
from typing import Any

import numpy as np
from typer import echo

from dagp.cli import fit_options, options, tables
from dagp.cli.app import InputError, check_output, check_stdout, print_message, print_result
from dagp.cli.config import Settings, read_config
from dagp.cli.interrupt import InterruptCheckpoint
from dagp.cli.modelling import build_estimator, process_count
from dagp.cli.progress import (
    fit_with_progress,
    show_summary,
    warnings_as_notes,
    with_option_names,
)
from dagp.cli.roles import parse_roles
from dagp.cli.training import TrainingData, input_names, read_training_data
from dagp.cli.worker import heartbeat, join_workers
from dagp.core.errors import StorageError
from dagp.core.text import quoted
from dagp.estimator import DAGP
from dagp.files import modelfile
from dagp.files.atomic import discard
from dagp.tables.columns import Columns
from dagp.tables.kinds import Number
from dagp.tables.settings import MOST_PROCESSES
from dagp.tables.validation import check_data


def fit(
    data: options.Data,
    target: fit_options.Target = None,
    config: fit_options.Config = None,
    features: fit_options.Features = None,
    role: fit_options.Role = None,
    weights: fit_options.Weights = None,
    labels: fit_options.Labels = None,
    missing: fit_options.Missing = None,
    delimiter: fit_options.Delimiter = None,
    decimal: fit_options.Decimal = None,
    processes: fit_options.Processes = None,
    noise_process: fit_options.NoiseProcess = None,
    kernel: fit_options.Kernel = None,
    noise: fit_options.Noise = None,
    varying_noise: fit_options.VaryingNoise = None,
    depth: fit_options.Depth = None,
    gate: fit_options.Gate = None,
    inducing: fit_options.Inducing = None,
    starts: fit_options.Starts = None,
    max_iter: fit_options.MaxIter = None,
    tol: fit_options.Tol = None,
    batch_size: fit_options.BatchSize = None,
    seed: fit_options.Seed = None,
    checkpoint_every: fit_options.CheckpointEvery = 30.0,
    resume: fit_options.Resume = False,
    force: options.Force = False,
    as_json: fit_options.AsJson = False,
    out: fit_options.Out = Path("model.dagp"),
) -> None:
    """Separate a table into processes and save the model.

    Options override the settings of --config. Progress is saved in
    OUT.checkpoint; --resume continues an interrupted fit.
    """
    check_output(out, force, data, config)
    check_output(_beside(out), force=True)
    if as_json:
        check_stdout()
    settings = (Settings() if config is None else read_config(config)).override(
        target=target, features=features, weights=weights, labels=labels,
        missing=missing and str(missing), delimiter=delimiter, decimal=decimal,
        processes=processes and _process_count(processes), noise_process=noise_process,
        kernel=kernel, noise=noise and str(noise), varying_noise=varying_noise, depth=depth,
        gate=gate and str(gate), inducing=inducing, batch_size=batch_size, starts=starts,
        max_iter=max_iter, tol=tol, seed=seed,
    )  # fmt: skip
    settings.add_roles(parse_roles(role or ()))
    began = time.monotonic()
    with join_workers() as writes_files:
        model, training = _prepare(data, settings)
        checkpoint = _checkpoint_path(out, resume, force)
        run = {"checkpoint": str(checkpoint), "checkpoint_every": checkpoint_every}
        model.set_params(resume=resume, **run)
        with warnings_as_notes() as notes:
            _fit_model(model, training, checkpoint)
            _name(model, training.features, settings["target"])
        if not writes_files:
            return
        modelfile.save(model, out, (training.X, training.y), settings["target"])
        discard(checkpoint)
    if as_json:
        took = round(time.monotonic() - began, 2)
        results = {"model": str(out), "target": settings["target"], "seconds": took, "notes": notes}
        echo(json.dumps(_facts(model) | results, allow_nan=False))
        return
    print_result(f"Model: {out}")
    show_summary(model)
    print_result(f"For a report: dagp report {shlex.quote(str(out))} -o report.html")


def _prepare(data: str, settings: Settings) -> tuple[DAGP, TrainingData]:
    """The model, still to be fitted, and the rows of the table."""
    table_format = (settings.get("delimiter"), settings.get("decimal"))
    with tables.open_table(data, *table_format) as table:
        inputs = input_names(table, settings)
        # Before the rows are read: a mistake in a setting is told at once.
        model = build_estimator(settings, inputs)
        training = read_training_data(table, settings, inputs, process_count(model))
    return model.set_params(columns=training.roles), training


def _facts(model: DAGP) -> dict[str, Any]:
    """Facts about a fitted model, for machines."""
    noise = {
        "noise": [process.noise_ for process in model.processes_],
        "noise_std": [process.noise_std_.tolist() for process in model.processes_],
        "degrees": [process.degrees_ for process in model.processes_],
    }
    return modelfile.about(model) | noise | {"steps": int(model.n_iter_)}


def _process_count(text: str) -> int | str:
    """The value of --processes."""
    if text == "auto":
        return text
    digits = text.lstrip("0")
    if not (text.isdecimal() and digits and len(digits) <= len(str(MOST_PROCESSES))):
        expected = f"--processes must be auto or a number from 1 to {MOST_PROCESSES}"
        raise InputError(f"{expected}, got {quoted(text)}.")
    return int(text)


def _beside(out: Path) -> Path:
    return out.with_name(f"{out.name}.checkpoint")


def _checkpoint_path(out: Path, resume: bool, force: bool) -> Path:
    """The checkpoint of a model file; one of an earlier fit is used or discarded if asked for."""
    path = _beside(out)
    if resume and not path.exists():
        print_message(f"There is no checkpoint {path}: the fit starts from the beginning.")
    if path.exists() and not resume and not force:
        choice = "--resume continues it, --force discards it"
        raise InputError(f"{path} is the checkpoint of an earlier fit; {choice}.")
    return path


def _fit_model(model: DAGP, training: TrainingData, checkpoint: Path) -> None:
    """Fit; Ctrl-C saves the progress in the checkpoint."""
    X, y, *_ = training
    weights, labels, lines = training.weights, training.labels, training.lines
    try:
        # Validated here as well: the checkpoint is known by the rows as the fit uses them.
        rows = check_data(model, X, y, weights, labels, process_count(model), index=lines)
        interrupt = InterruptCheckpoint(model, rows.sample)

        def after_block() -> None:
            heartbeat()
            interrupt.copy_log()

        with interrupt.on_interrupt(checkpoint):
            more = {"sample_weight": weights, "labels": labels, "index": lines}
            fit_with_progress(model, X, y, after_block, interrupt.log, **more)
    except StorageError:
        raise
    except ValueError as error:
        raise InputError(with_option_names(str(error))) from error


def _name(model: DAGP, features: list[str], target: str) -> None:
    """Set the names of columns, which arrays of numbers do not have."""
    for one in (model, *model.alternatives_):
        vars(one)["feature_names_in_"] = np.array(features, dtype=object)
        one.target_names_ = [target]
        if model.columns_.plain:
            one.columns_ = Columns(tuple(map(Number, features)))
