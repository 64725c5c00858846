"""Measurements in fresh interpreters: import time, first fit, recovery and peak memory."""

import json
import os
import subprocess
import sys
import time
from tempfile import TemporaryDirectory
from typing import Any

from dagp.bench.timing import Summary, repeated, seconds, summary

FIRST_SEED = 100
"""Smaller seeds are reserved for tuning."""
_CHILD = "from dagp.bench.child import main; main()"


def cache_home() -> TemporaryDirectory[str]:
    """A temporary folder for compiled programs."""
    return TemporaryDirectory(prefix="dagp-bench-")


def run_job(home: str, **job: Any) -> dict[str, Any]:
    """Result of a job in a fresh process, with its compiled programs in `home`."""
    begun = time.perf_counter()
    done = subprocess.run(
        [sys.executable, "-c", _CHILD, json.dumps(job)],
        env=_environment(home),
        capture_output=True,
        text=True,
    )
    whole = time.perf_counter() - begun
    if done.returncode:
        reason = (done.stderr.strip().splitlines() or [f"exit code {done.returncode}"])[-1]
        return {"error": reason}
    return {"process_s": whole} | json.loads(done.stdout.splitlines()[-1])


def _environment(home: str) -> dict[str, str]:
    # Cache settings of this process must not affect the measured ones.
    private = ("JAX_COMPILATION_CACHE_DIR", "JAX_ENABLE_COMPILATION_CACHE", "DAGP_CACHE")
    return {n: v for n, v in os.environ.items() if n not in private} | {"XDG_CACHE_HOME": home}


def import_s(repeats: int) -> Summary:
    """Seconds to start Python and import the estimator, what it is built on, and nothing."""

    def run(code: str) -> Summary:
        # os._exit, because clean-up at exit is not part of the import.
        command = [sys.executable, "-c", f"{code}; import os; os._exit(0)"]
        return repeated(lambda: subprocess.run(command, check=True), repeats=repeats)

    whole, alone = run("from dagp import DAGP"), run("pass")
    # scikit-learn imports pandas where it is installed; dagp does not.
    without = run("import sys; sys.modules['pandas'] = None; from dagp import DAGP")
    floor = run("import sklearn.base, jax")
    return whole | {
        "without_pandas": without["median"],
        "scikit_learn_and_jax": floor["median"],
        "python_alone": alone["median"],
    }


def first_fit(repeats: int) -> dict[str, Any]:
    """Seconds of the demo's fit: empty cache, warm cache, second fit in one process; and of a whole
    process with a warm cache, import included, from Python and as `dagp demo`."""
    names = "cold", "warm_cache", "same_process", "warm_process", "warm_command"
    found: dict[str, list[float]] = {name: [] for name in names}
    for _ in range(repeats):
        with cache_home() as home:
            first, second = (run_job(home, do="fit_demo", times=times) for times in (2, 1))
            found["warm_command"].append(_demo_command_s(home))
        for row in (first, second):
            if "error" in row:
                return {"skipped": row["error"]}
        found["cold"].append(first["seconds"][0])
        found["warm_cache"].append(second["seconds"][0])
        found["same_process"].append(first["seconds"][1])
        found["warm_process"].append(second["process_s"])
    return {name: summary(values, "s") for name, values in found.items()}


def _demo_command_s(home: str) -> float:
    """Seconds of `dagp demo`, picture and report included, with its programs in `home`."""
    command = [sys.executable, "-m", "dagp", "demo", "-o", os.path.join(home, "demo")]

    def run() -> None:
        subprocess.run(command, env=_environment(home), check=True, capture_output=True)

    run()  # matplotlib lists the fonts of the system once for each home
    return seconds(run)


def fits(plan: dict[str, int]) -> dict[str, Any]:
    """Seconds of fits of each task: the first in a process, with an empty cache, and again."""
    found = {}
    for name, times in plan.items():
        with cache_home() as home:
            row = run_job(home, do="fits", experiment=name, times=times)
        if "error" in row:
            found[name] = {"skipped": row["error"]}
            continue
        found[name] = {
            "cold": round(row["first"], 2),
            "product_ms": summary(row["product_ms"], "ms"),
        } | ({"again": summary(row["again"], "s")} if times else {})
    return found


def recovery(experiments: tuple[str, ...], seeds: int) -> dict[str, Any]:
    """Seconds of fits of the paper's experiments, cold and warm, and their recovery rates."""
    return {name: _recovered(name, seeds) for name in experiments}


def _recovered(name: str, seeds: int) -> dict[str, Any]:
    rows = []
    for seed in range(FIRST_SEED, FIRST_SEED + seeds):
        with cache_home() as home:
            for cache in ("cold", "warm_cache"):
                row = run_job(home, do="recover", experiment=name, seed=seed)
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
    """Peak memory of a fit in a separate process, in MiB."""
    settings = {"rows": rows, "batch": batch, "inducing": inducing, "max_iter": max_iter}
    with cache_home() as home:
        found = run_job(home, do="memory", **settings)
    if "error" in found:
        return settings | {"skipped": found["error"]}
    found.pop("process_s")
    taken = {"seconds": round(found.pop("seconds"), 2)}
    return settings | {f"{name}_MiB": round(n / 2**20, 1) for name, n in found.items()} | taken
