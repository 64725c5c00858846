"""Measurements that need an interpreter nobody has used before."""

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from dagp.bench.figures import Figure, repeated, summary

__all__ = ["asked", "cache_home", "first_fit", "import_s", "memory", "recovery"]

FIRST_SEED = 100
"""Seeds below are for tuning."""
_CHILD = (
    "from dagp.cli.cache import keep_compiled; keep_compiled(); "
    "from dagp.bench.child import main; main()"
)
"""A process that keeps compiled programs as the command line does."""


@contextmanager
def cache_home() -> Iterator[str]:
    """A folder for compiled programs that is empty at first and gone afterwards."""
    with tempfile.TemporaryDirectory(prefix="dagp-bench-") as home:
        yield home


def asked(home: str, **job: Any) -> dict[str, Any]:
    """What a fresh process finds; it keeps its compiled programs in `home`."""
    # Whatever was set for this process is not for those that are measured.
    private = ("JAX_COMPILATION_CACHE_DIR", "JAX_ENABLE_COMPILATION_CACHE", "DAGP_CACHE")
    environment = {name: value for name, value in os.environ.items() if name not in private}
    done = subprocess.run(
        [sys.executable, "-c", _CHILD, json.dumps(job)],
        env=environment | {"XDG_CACHE_HOME": home},
        capture_output=True,
        text=True,
    )
    if done.returncode:
        reason = (done.stderr.strip().splitlines() or [f"exit code {done.returncode}"])[-1]
        return {"error": reason}
    return json.loads(done.stdout.splitlines()[-1])


def import_s(repeats: int) -> Figure:
    """Seconds from starting Python to having the estimator, and those Python needs alone."""

    def run(code: str) -> Figure:
        # At once, because tidying up at the end of a process is not importing.
        command = [sys.executable, "-c", f"{code}; import os; os._exit(0)"]
        return repeated(lambda: subprocess.run(command, check=True), repeats=repeats)

    whole, alone = run("from dagp import DAGP"), run("pass")
    # scikit-learn imports pandas where it is installed; nothing of ours does.
    without = run("import sys; sys.modules['pandas'] = None; from dagp import DAGP")
    return whole | {"without_pandas": without["median"], "python_alone": alone["median"]}


def first_fit(repeats: int) -> dict[str, Any]:
    """Seconds of the demo's fit: nothing compiled, compiled by a process before, and again."""
    found: dict[str, list[float]] = {"cold": [], "warm_cache": [], "same_process": []}
    for _ in range(repeats):
        with cache_home() as home:
            first, second = (asked(home, do="fit_demo", times=times) for times in (2, 1))
        for row in (first, second):
            if "error" in row:
                return {"skipped": row["error"]}
        found["cold"].append(first["seconds"][0])
        found["warm_cache"].append(second["seconds"][0])
        found["same_process"].append(first["seconds"][1])
    return {name: summary(values, "s") for name, values in found.items()}


def recovery(experiments: tuple[str, ...], seeds: int) -> dict[str, Any]:
    """Seconds of fits of the paper's experiments, cold and warm, and how many were right."""
    return {name: _recovered(name, seeds) for name in experiments}


def _recovered(name: str, seeds: int) -> dict[str, Any]:
    rows = []
    for seed in range(FIRST_SEED, FIRST_SEED + seeds):
        with cache_home() as home:
            for cache in ("cold", "warm_cache"):
                row = asked(home, do="recover", experiment=name, seed=seed)
                rows.append({"seed": seed, "cache": cache} | row)
    good = [row for row in rows if "error" not in row]
    found: dict[str, Any] = {
        cache: summary(times, "s")
        for cache in ("cold", "warm_cache")
        if (times := [row["seconds"] for row in good if row["cache"] == cache])
    }
    right = sum(row["recovered"] for row in good if row["cache"] == "cold")
    return found | {"recovered": right, "of": seeds, "rows": rows}


def memory(rows: int, batch: int | None, inducing: int, max_iter: int) -> dict[str, Any]:
    """Peak memory of a fit in a process of its own, in MiB."""
    settings = {"rows": rows, "batch": batch, "inducing": inducing, "max_iter": max_iter}
    with cache_home() as home:
        found = asked(home, do="memory", **settings)
    if "error" in found:
        return settings | {"skipped": found["error"]}
    taken = {"seconds": round(found.pop("seconds"), 2)}
    return settings | {f"{name}_MiB": round(n / 2**20, 1) for name, n in found.items()} | taken
