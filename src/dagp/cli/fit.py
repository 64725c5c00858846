"""`dagp fit`: from a table to a model file."""

import csv
import json
import shlex
import time
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import numpy as np
import typer

from dagp import modelfile
from dagp.cli import tables
from dagp.cli.app import Decimal, Delimiter, Force, InputError, check_output, console, say
from dagp.cli.interrupt import Keeper
from dagp.cli.progress import fit_with_progress, noted, show_summary
from dagp.cli.together import beat, joined
from dagp.clutter import Noise
from dagp.data import Sample
from dagp.deep import DeepGP
from dagp.errors import StorageError
from dagp.estimator import DAGP
from dagp.processes import GP
from dagp.validation import GENEROUS, check_labels, check_weights
from dagp.wholefile import discard

__all__ = ["fit"]

LARGE = 20_000
"""Rows above which training goes in batches if nobody says otherwise."""
BATCH = 1000


class Missing(StrEnum):
    """What to do with rows that have empty cells."""

    refuse = "raise"
    drop = "drop"


class Training(NamedTuple):
    """What a model is fitted to."""

    X: np.ndarray
    y: np.ndarray
    weight: np.ndarray | None
    labels: np.ndarray | None
    features: list[str]
    target: str

    def sample(self, processes: int) -> Sample:
        """The same as the estimator sees it."""
        rows = len(self.X)
        weight, labels = (
            check_weights(self.weight, rows),
            check_labels(self.labels, rows, processes),
        )
        return Sample(self.X, self.y[:, None], weight, labels)


def fit(
    data: Annotated[str, typer.Argument(help="CSV or Parquet file; - is standard input.")],
    target: Annotated[str, typer.Option("--target", "-t", help="Column to be explained.")],
    features: Annotated[
        str | None,
        typer.Option(
            help="Input columns, separated by commas; all others if left out. "
            "Quote a name that holds a comma: '\"a,b\",c'."
        ),
    ] = None,
    processes: Annotated[
        str, typer.Option(help="How many processes to look for, or auto to find out.")
    ] = "2",
    noise_process: Annotated[
        bool, typer.Option("--noise-process", help="One more process, for outliers.")
    ] = False,
    depth: Annotated[int, typer.Option(min=1, help="Layers of each process.")] = 1,
    inducing: Annotated[int | None, typer.Option(min=1, help="Inducing points.")] = None,
    batch_size: Annotated[int | None, typer.Option(min=1, help="Rows per step.")] = None,
    starts: Annotated[int, typer.Option(min=1, help="Starts that compete.")] = 8,
    max_iter: Annotated[int, typer.Option(min=1, help="Most steps of the final training.")] = 1000,
    seed: Annotated[int, typer.Option(min=0, help="Same seed, same model.")] = 0,
    missing: Annotated[Missing, typer.Option(help="Rows with empty cells.")] = Missing.refuse,
    weights: Annotated[str | None, typer.Option(help="Column: how much a row counts.")] = None,
    labels: Annotated[
        str | None,
        typer.Option(help="Column: the process of a row, from 0; empty or -1 where unknown."),
    ] = None,
    delimiter: Delimiter = None,
    decimal: Decimal = None,
    checkpoint_every: Annotated[
        float, typer.Option(min=0, help="Seconds between notes of progress.")
    ] = 30.0,
    resume: Annotated[
        bool, typer.Option("--resume", help="Go on where a fit was cut off.")
    ] = False,
    force: Force = False,
    as_json: Annotated[bool, typer.Option("--json", help="Results as JSON on stdout.")] = False,
    out: Annotated[Path, typer.Option("--out", "-o", help="Model file.")] = Path("model.dagp"),
) -> None:
    """Separate a table into processes and keep the model.

    Progress is noted in OUT.checkpoint: a fit that was cut off goes on with --resume.
    """
    check_output(out, force)
    count, priors = _priors(processes, noise_process, depth)
    began = time.monotonic()
    with joined() as writing:
        with tables.opened(data, delimiter, decimal) as table:
            training = _read(table, target, features, weights, labels, missing is Missing.drop)
        checkpoint = _checkpoint(out, resume)
        model = DAGP(
            count,
            priors,
            inducing=inducing,
            n_init=starts,
            max_iter=max_iter,
            batch_size=_batches(batch_size, len(training.X)),
            random_state=seed,
            checkpoint=str(checkpoint),
            checkpoint_every=checkpoint_every,
            resume=resume,
        )
        with noted() as notes, modelfile.keeping_checkpoint():
            _fit(model, training, checkpoint)
        if not writing:
            return
        modelfile.save(model, out, (training.X, training.y), target)
        discard(checkpoint)
    if as_json:
        _write_json(model, out, target, round(time.monotonic() - began, 2), notes)
        return
    _tell(f"Model: {out}")
    show_summary(model)
    _tell(f"A page about it: dagp report {shlex.quote(str(out))} -o report.html")


def _write_json(model: DAGP, out: Path, target: str, seconds: float, notes: list[str]) -> None:
    answer = modelfile.about(model) | {
        "model": str(out),
        "target": target,
        "noise_std": [process.noise_std_.tolist() for process in model.processes_],
        "steps": int(model.n_iter_),
        "seconds": seconds,
        "notes": notes,
    }
    typer.echo(json.dumps(answer, allow_nan=False))


def _tell(text: str) -> None:
    console.print(text, markup=False, highlight=False, soft_wrap=True)


def _priors(processes: str, noise: bool, depth: int) -> tuple[int | str, Any]:
    """Number and priors of the processes, as `DAGP` wants them."""
    auto = processes == "auto"
    if not auto and not (processes.isdecimal() and int(processes) > 0):
        raise InputError(f"--processes is a number of at least 1, or auto, and not {processes!r}.")
    prior = DeepGP(layers=depth) if depth > 1 else GP()
    count = GENEROUS if auto else int(processes)
    priors = [prior] * count + [Noise()] if noise else prior
    return ("auto" if auto else count), priors


def _batches(size: int | None, rows: int) -> int | None:
    if size is not None or rows <= LARGE:
        return size
    say(f"{rows} rows are many: training uses {BATCH} at a time (--batch-size sets another).")
    return BATCH


def _checkpoint(out: Path, resume: bool) -> Path:
    path = out.with_name(f"{out.name}.checkpoint")
    if resume and not path.exists():
        say(f"There is no {path}: the fit begins at the beginning.")
    if path.exists() and not resume:
        say(f"{path} of an earlier fit is left aside; --resume would go on with it.")
    return path


def _fit(model: DAGP, training: Training, checkpoint: Path) -> None:
    """Fit; what was reached is kept if somebody presses Ctrl-C."""
    keeper = Keeper(model)

    def look() -> None:
        beat()
        keeper.look()

    more = {"sample_weight": training.weight, "labels": training.labels}
    try:
        fit_with_progress(model, training.X, training.y, also=look, **more)
    except KeyboardInterrupt:
        keeper.end(training.sample, checkpoint)
    except StorageError:
        raise
    except ValueError as error:
        raise InputError(str(error)) from error
    for one in (model, *model.alternatives_):
        vars(one)["feature_names_in_"] = np.array(training.features, dtype=object)


# ------------------------------------------------------------------------------------- reading


def _read(
    table: tables.Table,
    target: str,
    features: str | None,
    weights: str | None,
    labels: str | None,
    drop: bool,
) -> Training:
    others = [name for name in (weights, labels) if name is not None]
    tables.find(table, [target, *others])
    inputs = _features(table, features, {target, *others})
    names = tables.find(table, [*inputs, target, *others])
    try:
        part = tables.read(table, names)
    except InputError as error:
        hint = "" if features else " The inputs can be named with --features."
        textual = "not a number" in str(error) or "not numbers" in str(error)
        raise InputError(f"{error}{hint if textual else ''}") from error
    if labels is not None:
        part.values[:, -1] = np.where(np.isnan(part.values[:, -1]), -1, part.values[:, -1])
    part = tables.complete(table, part, names, drop)
    # Copies in rows: the fingerprint of a checkpoint is taken from these very arrays.
    X, y = np.ascontiguousarray(part.values[:, : len(inputs)]), part.values[:, len(inputs)].copy()
    weight = None if weights is None else part.values[:, len(inputs) + 1].copy()
    known = None if labels is None else part.values[:, -1].copy()
    if weight is not None and np.any(weight < 0):
        bad = np.flatnonzero(weight < 0)[0]
        where = f"{table.name}, row {part.rows[bad]}, column {weights!r}"
        raise InputError(f"{where}: a weight cannot be negative, it is {weight[bad]}.")
    if known is not None and np.any(bad := (known < -1) | (known % 1 != 0)):
        first = np.flatnonzero(bad)[0]
        where = f"{table.name}, row {part.rows[first]}, column {labels!r}"
        raise InputError(f"{where}: {known[first]} is not a process; they are 0, 1, …")
    return Training(X, y, weight, known, inputs, target)


def _features(table: tables.Table, features: str | None, taken: set[str]) -> list[str]:
    if features is None:
        names = [name for name in table.columns if name not in taken]
    elif features in table.columns:
        names = [features]
    else:
        names = [name.strip() for name in next(csv.reader([features], skipinitialspace=True))]
    twice = [name for name in names if names.count(name) > 1 or name in taken]
    if features is not None and twice:
        raise InputError(f"Column {twice[0]!r} is asked for twice.")
    if not names:
        raise InputError(
            f"{table.name} has only the columns {', '.join(map(repr, table.columns))}: "
            "nothing is left as an input. If that is several, --delimiter tells them apart."
        )
    return names
