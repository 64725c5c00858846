"""`dagp bench`: how fast it is here. Compare ratios within one run; seconds depend on the machine.

Import, first and second fit, milliseconds per step at some sizes, predictions.
"""

import json
import platform
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Annotated, Any

import jax
import jax.numpy as jnp
import numpy as np
import typer
from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

from dagp import __version__, datasets
from dagp.cli.app import Force, check_output, messages
from dagp.cli.progress import noted
from dagp.data import Sample, Units, to_batch
from dagp.estimator import DAGP
from dagp.processes import GP
from dagp.runtime import numerics
from dagp.starts import Problem, build, inducing_inputs, starts
from dagp.train import BLOCK, begin, run_block

__all__ = ["bench", "measured", "seconds"]

SIZES = ((250, 2), (1000, 2), (1000, 4), (4000, 4))
"""Rows and processes at which steps are timed."""
POINTS = 100_000


def bench(
    out: Annotated[
        Path | None, typer.Option("--out", "-o", help="JSON file; stdout if left out.")
    ] = None,
    force: Force = False,
) -> None:
    """Measure how fast it is on this machine."""
    if out is not None:
        check_output(out, force)
    # Compilation is one of the things to be measured.
    jax.config.update("jax_enable_compilation_cache", False)
    look = (SpinnerColumn(), TextColumn("{task.description}"), TimeElapsedColumn())
    figures: dict[str, Any] = {}
    quiet = not messages.is_terminal
    bar = Progress(*look, console=messages, transient=True, disable=quiet)
    with noted(aloud=False), bar as progress:
        task = progress.add_task("import", total=None)
        for name, value in measured():
            figures[name] = value
            progress.update(task, description=f"{name} done")
    text = json.dumps(figures, indent=2)
    if out is None:
        typer.echo(text)
    else:
        out.write_text(f"{text}\n")


def measured() -> Iterator[tuple[str, Any]]:
    """Names and figures, one after the other."""
    command = [sys.executable, "-c", "from dagp import DAGP"]
    yield "import_s", seconds(lambda: subprocess.run(command, check=True))
    data = datasets.multimodal(random_state=0)
    model = DAGP(4, random_state=0)
    yield "first_fit_s", seconds(lambda: model.fit(data.X, data.y))
    yield "second_fit_s", seconds(lambda: model.fit(data.X, data.y))
    yield "fit_steps", sum(row["steps"] for row in model.restarts_)
    for rows, processes in SIZES:
        yield f"step_{rows}_rows_{processes}_processes_ms", step_ms(rows, processes)
    X = np.random.default_rng(0).uniform(-6, 6, (POINTS, 1))
    model.predict(X[:10])
    fastest = min(seconds(lambda: model.predict(X)) for _ in range(3))
    yield "predict_100000_s", fastest
    yield "predictions_per_s", round(POINTS / fastest)
    yield "machine", {"processor": platform.machine(), "device": str(jax.devices()[0])}
    yield (
        "versions",
        {
            "dagp": __version__,
            "python": platform.python_version(),
            "jax": jax.__version__,
            "numpy": np.__version__,
        },
    )


def seconds(job: Callable[[], Any]) -> float:
    """How long it takes, in seconds."""
    begin_at = time.perf_counter()
    job()
    return time.perf_counter() - begin_at


def step_ms(rows: int, processes: int) -> float:
    """Milliseconds of one training step on the multimodal data, without compilation."""
    data, rng = datasets.multimodal(n=rows, random_state=0), np.random.default_rng(0)
    some = rng.choice(len(data.X), rows, replace=False)
    sample = Sample(data.X[some], data.y[some, None], np.ones(rows), np.full(rows, -1))
    units = Units.of(sample, True)
    standard = units.apply(sample)
    with numerics("float64"):
        inducing = inducing_inputs(None, standard, units, rng)
        problem = Problem(standard, units, (GP(),) * processes, None, inducing)
        start = next(starts(problem, 1, rng))
        batch = jax.tree.map(jnp.asarray, to_batch(standard, processes))
        shares = np.zeros((len(batch.X), processes))
        shares[:rows] = start.responsibilities
        state, _ = begin(build(problem, start), batch, jnp.asarray(shares), 0)
        rate = jnp.asarray(1e-2)
        jax.block_until_ready(run_block(state, batch, rate))
        taken = min(
            seconds(lambda: jax.block_until_ready(run_block(state, batch, rate))) for _ in range(3)
        )
    return 1e3 * taken / BLOCK
