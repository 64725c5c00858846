"""Robust regression on UCI data, all models in one run: one fit a core, limited in time, resumable.

    python benchmarks/robust.py --data uci_data --jobs 15 --stop-after 540 -o results/robust.jsonl
    python benchmarks/robust.py --report -o results/robust.jsonl

Cells are those of `dagp reproduce robust`. Every worker is a process that lives on, so that a
program is compiled once per worker and data set; a row says whether its fit was the first of its
kind there ("cold"). Each fit has a time limit of its own (--limit), after which its process is
ended and the row says so: relevance pursuit (RRP) may take longer than everything else together.
Rows are written as they finish, and fits in the file are not repeated; no fit begins after
--stop-after seconds, and none goes on after --end. The most valuable fits come first: seed by seed,
small data sets first. Seeds begin at 100; smaller ones are reserved for tuning.
"""

import argparse
import json
import os
import queue
import subprocess
import sys
import threading
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

Row = dict[str, Any]
SETS = ("yacht", "boston", "energy", "concrete")
KINDS = ("none", "uniform", "asymmetric", "focused")
MODELS = ("RobustGPR", "RRP", "GP", "Student-t GP")
ONE_THREAD = dict.fromkeys(("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS"), "1")
CORE = "DAGP_CORE"
"""Environment variable with the core of a worker: one fit a core, also for JAX."""
STOP_GRACE = 5.0
"""Seconds that an idle worker has to end by itself."""


class Fit(NamedTuple):
    """One line of the results."""

    variant: str
    model: str
    seed: int

    @property
    def kind(self) -> tuple[str, str]:
        """Fits of one kind share compiled programs."""
        return self.variant.split()[0], self.model


def wanted(sets: list[str], kinds: list[str], models: list[str], seeds: Iterable[int]) -> list[Fit]:
    """All fits, the most valuable first."""
    return [
        Fit(f"{name} {kind}", model, seed)
        for seed in seeds
        for name in sets
        for kind in kinds
        for model in models
    ]


def work() -> None:
    """Answer fits on standard input, one line each, until it ends."""
    if CORE in os.environ and hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, {int(os.environ[CORE])})
    # After that: libraries count cores when they are imported.
    from dagp.experiments.runner import Task, run_task

    answers = os.fdopen(os.dup(1), "w")
    # What libraries print must not mix with the answers.
    os.dup2(2, 1)
    for line in sys.stdin:
        fit = Fit(*json.loads(line))
        row = run_task(Task("robust", fit.variant, fit.model, fit.seed, False))
        answers.write(json.dumps(row, default=float) + "\n")
        answers.flush()


class Worker:
    """A process that fits, begun again after a fit that took too long."""

    def __init__(self, environment: dict[str, str]):
        self._environment = environment
        self._process: subprocess.Popen[str] | None = None
        self._answers: queue.Queue[str] = queue.Queue()
        self.known: set[tuple[str, str]] = set()

    def _begin(self) -> subprocess.Popen[str]:
        self.known, self._answers = set(), queue.Queue()
        process = subprocess.Popen(
            [sys.executable, __file__, "--work"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            env=self._environment,
        )
        threading.Thread(target=self._listen, args=(process, self._answers), daemon=True).start()
        return process

    @staticmethod
    def _listen(process: subprocess.Popen[str], answers: "queue.Queue[str]") -> None:
        assert process.stdout is not None
        for line in process.stdout:
            answers.put(line)
        answers.put("")

    def fit(self, fit: Fit, limit: float) -> Row:
        """The row of a fit that has so many seconds."""
        process = self._process = self._process or self._begin()
        assert process.stdin is not None
        cold, began = fit.kind not in self.known, time.perf_counter()
        answer, error = "", "the worker ended"
        try:
            process.stdin.write(json.dumps(fit) + "\n")
            process.stdin.flush()
            answer = self._answers.get(timeout=limit)
        except queue.Empty:
            error = f"not finished in {limit:.0f} s"
        except OSError:
            pass
        if not answer:
            process.kill()
            self._process = None
            seconds = time.perf_counter() - began
            return {**fit._asdict(), "cold": cold, "seconds": seconds, "error": error}
        self.known.add(fit.kind)
        return {**json.loads(answer), "cold": cold}

    def end(self) -> None:
        if self._process is not None and self._process.stdin is not None:
            self._process.stdin.close()
            try:
                self._process.wait(STOP_GRACE)
            except subprocess.TimeoutExpired:
                self._process.kill()


def take(fits: list[Fit], known: set[tuple[str, str]], ahead: int) -> Fit:
    """The next fit: among the first ones, one whose programs the worker has, or the first."""
    near = fits[:ahead]
    chosen = next((fit for fit in near if fit.kind in known), near[0])
    fits.remove(chosen)
    return chosen


def run(out: Path, fits: list[Fit], given: argparse.Namespace) -> None:
    """Fit in parallel what the file lacks, until the time is over."""
    rows = written(out)
    # A fit that did not end in the same time or more will not end now either.
    done = {
        Fit(row["variant"], row["model"], int(row["seed"]))
        for row in rows
        if not row.get("error")
        or ("not finished" in row["error"] and row["seconds"] >= given.limit)
    }
    out.parent.mkdir(parents=True, exist_ok=True)
    began, lock = time.perf_counter(), threading.Lock()
    missing = [fit for fit in fits if fit not in done]
    # On a GPU, fits of RRP have workers of their own: it is one device for all.
    apart = given.rrp_device != "cpu"
    queues = [[fit for fit in missing if apart and fit.model == "RRP"]]
    queues.append([fit for fit in missing if fit not in set(queues[0])])
    print(f"{len(fits) - len(missing)} fits known, {len(missing)} to do", flush=True)

    def serve(todo: list[Fit], environment: dict[str, str], core: int) -> None:
        worker = Worker(environment | {CORE: str(core)})
        while time.perf_counter() - began < given.stop_after:
            with lock:
                if not todo:
                    break
                fit = take(todo, worker.known, 4 * given.jobs)
            left = given.end - (time.perf_counter() - began)
            row = worker.fit(fit, min(given.limit, max(left, 1.0)))
            with lock, out.open("a") as file:
                file.write(json.dumps(row) + "\n")
            shown = row.get("error") or f"MAE {row['mae']:.4f}, NLPD {row['nlpd']:.3f}"
            print(f"{time.perf_counter() - began:6.0f} s  {tuple(fit)}: {shown}", flush=True)
        worker.end()

    base = os.environ | ONE_THREAD | {"DAGP_UCI": str(given.data.resolve()), "JAX_PLATFORMS": "cpu"}
    gpu = base | {"DAGP_RRP_DEVICE": given.rrp_device}
    split = given.rrp_workers if queues[0] else 0
    counted = getattr(os, "sched_getaffinity", lambda _: range(os.cpu_count() or 1))
    cores = sorted(counted(0))
    threads = []
    for number in range(given.jobs):
        own = (queues[0], gpu) if number < split else (queues[1], base)
        core = cores[number % len(cores)]
        threads.append(threading.Thread(target=serve, args=(*own, core)))
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def written(out: Path) -> list[Row]:
    if not out.exists():
        return []
    with out.open() as file:
        return [json.loads(line) for line in file]


def report(out: Path) -> None:
    """Means, standard errors and medians over the seeds."""
    rows = written(out)
    print("| cell | model | fits | MAE | RMSE | NLPD | found | lost | seconds (cold) | failed |")
    print("|---|---|---|---|---|---|---|---|---|---|")
    for variant, model in sorted({(row["variant"], row["model"]) for row in rows}):
        cell = [row for row in rows if (row["variant"], row["model"]) == (variant, model)]
        good = [row for row in cell if not row.get("error")]

        def mean(name: str, rows: list[Row] = good) -> str:
            values = [row[name] for row in rows if name in row]
            if not values:
                return ""
            error = np.std(values, ddof=1) / np.sqrt(len(values)) if len(values) > 1 else np.nan
            return f"{np.mean(values):.4g} ± {error:.2g}"

        failed = len({row["seed"] for row in cell} - {row["seed"] for row in good})
        seconds = [
            np.median([r["seconds"] for r in good if r["cold"] is cold] or [np.nan])
            for cold in (False, True)
        ]
        print(
            f"| {variant} | {model} | {len(good)} | {mean('mae')} | {mean('rmse')} | "
            f"{mean('nlpd')} | {mean('found')} | {mean('lost')} | "
            f"{seconds[0]:.1f} ({seconds[1]:.1f}) | {failed} |"
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", type=Path, default=Path("uci_data"), help="folder of UCI data")
    parser.add_argument("--sets", default=",".join(SETS))
    parser.add_argument("--kinds", default=",".join(KINDS))
    parser.add_argument("--models", default=",".join(MODELS))
    parser.add_argument("--seeds", default="100-119", help="first and last seed")
    parser.add_argument("--jobs", type=int, default=15, help="fits at a time")
    parser.add_argument("--rrp-device", default="cpu", help="device of PyTorch for RRP, e.g. cuda")
    parser.add_argument(
        "--rrp-workers", type=int, default=4, help="of the jobs, RRP on that device"
    )
    parser.add_argument("--limit", type=float, default=400.0, help="most seconds of one fit")
    parser.add_argument("--stop-after", type=float, default=1e9, help="seconds; no fit begins then")
    parser.add_argument("--end", type=float, default=1e9, help="seconds; fits end then, unfinished")
    parser.add_argument("--out", "-o", type=Path, default=Path("results/robust.jsonl"))
    parser.add_argument("--report", action="store_true", help="only print the table")
    parser.add_argument("--work", action="store_true", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.work:
        work()
        return
    if not given.report:
        first, _, last = given.seeds.partition("-")
        seeds = range(int(first), int(last or first) + 1)
        sets, kinds, models = (text.split(",") for text in (given.sets, given.kinds, given.models))
        run(given.out, wanted(sets, kinds, models, seeds), given)
    report(given.out)


if __name__ == "__main__":
    main()
