"""Speed of DAGP compared with GPyTorch and GPflow: time per step, and time to recovery.

    python benchmarks/against.py --python-gpytorch PATH --python-gpflow PATH -o results/against.json

PATH is the interpreter of an environment with the package; a package without one is not measured.
The measurements:

steps     milliseconds of a training step on the cart-pole data (1000 rows, 100 inducing points,
          float64, full batch): of a sparse variational GP by Adam alone, by one natural-gradient
          step and one of Adam, by two and one (as in DAGP), and of the association model.
          Packages alternate, so that load on the machine affects all of them.
recovery  seconds until the structure of the paper's data is recovered. DAGP: a complete fit with
          default settings in a fresh process, with a cold and a warm compilation cache. Peers: the
          same model and ELBO in their framework, started from draws of the prior. `seconds` stops
          when the recovery criterion, which uses the true labels, is first met. `blind` does not
          use the labels: as many starts as DAGP has, each until its ELBO converges, and the result
          is the start with the highest ELBO. With `--more`, starts continue until the criterion is
          met. A run ends after `--factor` times DAGP's cold seconds, which is then a lower limit.

Seeds begin at 100; the settings of the peers were checked on seed 0, and not tuned further.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from dagp import datasets
from dagp.bench.fresh import FIRST_SEED, cache_home, run_job
from dagp.bench.suite import machine
from dagp.bench.timing import summary
from dagp.experiments import judge
from dagp.inference.inducing import choose_inducing
from dagp.inference.standardize import Sample, Units

HERE = Path(__file__).parent
Job = dict[str, Any]
TASKS: dict[str, tuple[int, int, float]] = {"multimodal": (4, 32, 0.3), "cartpole": (2, 100, 2.0)}
"""Processes, inducing points and initial length scale, as in DAGP."""
SETTINGS: Job = {"noise": 0.2, "rate": 0.05, "natural_rate": 0.1, "gate_variance": 4.0}
KINDS: dict[str, Job] = {
    "svgp_adam": {"do": "svgp", "natural": 0},
    "svgp_natural": {"do": "svgp", "natural": 1},
    "svgp_same_work": {"do": "svgp", "natural": 2},
    "association": {"do": "association", "natural": 1, "processes": 2},
}
STEPS = 25
TURN = 1.0
"""Target duration of a turn in seconds."""


class Contender:
    """A subprocess that runs the jobs of one package; see `peer.py`."""

    def __init__(self, python: str, script: str, threads: int):
        environment = dict(os.environ)
        if script != "peer_dagp.py":
            environment.pop("PYTHONPATH", None)
        self.process = subprocess.Popen(
            [python, str(HERE / script), str(threads)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            env=environment | {"TF_CPP_MIN_LOG_LEVEL": "3"},
        )

    def ask(self, **job: Any) -> Job:
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        print(json.dumps(job), file=self.process.stdin, flush=True)
        answer = self.process.stdout.readline()
        if not answer:
            raise RuntimeError(f"{self.process.args} ended without an answer to {job}.")
        return json.loads(answer)

    def close(self) -> None:
        assert self.process.stdin is not None
        self.process.stdin.close()
        self.process.wait()


@contextmanager
def contenders(named: dict[str, tuple[str, str, int]]) -> Iterator[dict[str, Contender]]:
    """Running contenders by name; closed at the end."""
    running = {name: Contender(*how) for name, how in named.items()}
    try:
        yield running
    finally:
        for contender in running.values():
            contender.close()


def task_file(task: str, seed: int, folder: Path) -> str:
    """File with the standardised data of a task and inducing inputs, shared by all contenders."""
    data = getattr(datasets, task)(random_state=seed)
    N, (_, inducing, _) = len(data.X), TASKS[task]
    raw = Sample(data.X, data.y[:, None], np.ones(N), np.full(N, -1))
    units = Units.of(raw)
    sample = units.apply(raw)
    probes = np.array(judge.PROBES)[:, None] if task == "multimodal" else data.X[:2]
    file = folder / f"{task}-{seed}.npz"
    np.savez(
        file,
        X=sample.X,
        y=sample.y[:, 0],
        Z=choose_inducing(sample.X, inducing, np.random.default_rng(seed)),
        probes=units.standard_x(probes),
        x=data.X[:, 0],
        process=data.process,
    )
    return str(file)


def steps(pythons: dict[str, str], rounds: int, folder: Path) -> Job:
    """Milliseconds per step, measured in turns, and ratios to DAGP."""
    named = {"dagp": (sys.executable, "peer_dagp.py", 0)}
    for name, python in pythons.items():
        for threads in (1, 2):
            named[f"{name}, {threads} threads"] = (python, f"peer_{name}.py", threads)
    file = task_file("cartpole", FIRST_SEED, folder)
    found: Job = {}
    with contenders(named) as running:
        found["versions"] = {name: one.ask(do="versions") for name, one in running.items()}
        for kind, job in KINDS.items():
            taken: dict[str, list[Job]] = {name: [] for name in running}
            counts: dict[str, int] = {}
            for name, one in running.items():
                one.ask(data=file, lengthscale=TASKS["cartpole"][2], **job, **SETTINGS)
                one.ask(do="steps", count=STEPS)
                first = one.ask(do="steps", count=STEPS)["seconds"] / STEPS
                # DAGP runs whole blocks; the others as many steps as fill a turn.
                counts[name] = STEPS if name == "dagp" else int(np.clip(TURN / first, 2, STEPS))
            for _ in range(rounds):
                for name, one in running.items():
                    answer = one.ask(do="steps", count=counts[name])
                    taken[name].append({k: 1e3 * v / counts[name] for k, v in answer.items()})
            found[kind] = _compared(taken)
            print(kind, {name: row["median"] for name, row in found[kind]["ms"].items()})
    return found


def _compared(taken: dict[str, list[Job]]) -> Job:
    """Times, ratios to DAGP within a round, and the best ratio of each package."""

    def times(name: str, clock: str = "seconds") -> np.ndarray:
        return np.array([turn[clock] for turn in taken[name]])

    ratios = {
        name: summary(list(times(name) / times("dagp")), "times ours")
        for name in taken
        if name != "dagp"
    }
    best: dict[str, float] = {}
    for name, ratio in ratios.items():
        package = name.split(",")[0]
        best[package] = min(best.get(package, np.inf), ratio["median"])
    wall = {name: summary(list(times(name)), "ms") for name in taken}
    cpu = {name: summary(list(times(name, "cpu_seconds")), "ms") for name in taken}
    return {"ms": wall, "processor_ms": cpu, "ratio": ratios, "best": best}


def recovery(
    task: str, pythons: dict[str, str], threads: dict[str, int], options: Any, folder: Path
) -> Iterator[Job]:
    """Seconds to recovery; yields all results so far after each seed."""
    K, _, lengthscale = TASKS[task]
    rows: list[Job] = []
    for seed in range(options.first, options.first + options.seeds):
        with cache_home() as home:
            cold, warm = (run_job(home, do="recover", experiment=task, seed=seed) for _ in range(2))
        rows.append({"model": "dagp, cold", "seed": seed} | cold)
        rows.append({"model": "dagp, warm cache", "seed": seed} | warm)
        print(task, rows[-2], rows[-1], sep="\n", flush=True)
        limit = options.limit or options.factor * cold["seconds"]
        job = {"task": task, "processes": K, "lengthscale": lengthscale, "natural": 1} | SETTINGS
        for name, python in pythons.items():
            how = (python, f"peer_{name}.py", threads[name])
            with contenders({name: how}) as running:
                answer = running[name].ask(
                    do="recover",
                    data=task_file(task, seed, folder),
                    judge=str(judge.__file__),
                    seed=seed,
                    limit=limit,
                    starts=options.starts,
                    more=options.more,
                    **job,
                )
            row = {"model": name, "seed": seed, "limit": limit} | answer
            row |= _ratios(answer, cold, warm)
            print(row, flush=True)
            rows.append(row)
        yield {"rows": rows, "summary": summarised(rows), "threads": dict(threads)}


def _ratios(answer: Job, cold: Job, warm: Job) -> Job:
    """Ratios of a peer's seconds to DAGP's: to first recovery, and blind."""
    return {
        f"{way}_over_ours_{cache}{of}": theirs[clock] / ours[clock]
        for way, theirs in (("first_sight", answer), ("blind", answer["blind"]))
        for cache, ours in (("cold", cold), ("warm", warm))
        for of, clock in (("", "seconds"), ("_processor", "cpu_seconds"))
    }


def summarised(rows: list[Job]) -> Job:
    """Median seconds, recovery counts and ratios per model; runs cut off are lower limits.

    `seconds_per_recovery` is the total time, failures included, over the number of recoveries.
    """
    found: Job = {}
    for name in dict.fromkeys(row["model"] for row in rows):
        own = [row for row in rows if row["model"] == name]
        right = sum(bool(row["recovered"]) for row in own)
        spent = sum(row["seconds"] for row in own)
        found[name] = {
            "seconds": summary([row["seconds"] for row in own], "s"),
            "seconds_per_recovery": spent / right if right else None,
            "recovered": right,
            "of": len(own),
        }
        if "blind" in own[0]:
            found[name]["blind_recovered"] = sum(row["blind"]["recovered"] for row in own)
            found[name]["cut_off"] = sum(not row["blind"]["complete"] for row in own)
        for ratio in (key for key in own[0] if "_over_ours_" in key):
            found[name][ratio] = summary([row[ratio] for row in own], "times ours")
    return found


def parsed() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=str(__doc__).splitlines()[0])
    parser.add_argument("--python-gpytorch", help="interpreter that has GPyTorch")
    parser.add_argument("--python-gpflow", help="interpreter that has GPflow")
    parser.add_argument("--only", nargs="+", choices=("steps", *TASKS), default=("steps", *TASKS))
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--first", type=int, default=FIRST_SEED)
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--factor", type=float, default=10.5)
    parser.add_argument("--starts", type=int, default=8, help="starts of the peers; DAGP has eight")
    parser.add_argument("--threads", type=int, help="threads of the peers; the faster if left out")
    parser.add_argument("--more", action="store_true", help="more starts, until recovery")
    parser.add_argument("--limit", type=float, help="time limit in seconds, instead of --factor")
    parser.add_argument("-o", "--out", type=Path, default=Path("results/against.json"))
    return parser.parse_args()


def main() -> None:
    options = parsed()
    pythons = {"gpytorch": options.python_gpytorch, "gpflow": options.python_gpflow}
    pythons = {name: python for name, python in pythons.items() if python}
    options.out.parent.mkdir(parents=True, exist_ok=True)
    # Results of other parts from an earlier run are kept.
    found: Job = json.loads(options.out.read_text()) if options.out.exists() else {}
    threads = dict.fromkeys(pythons, options.threads or 2)
    with tempfile.TemporaryDirectory() as folder:
        for part in options.only:
            about = machine()
            if part == "steps":
                parts: Iterable[Job] = [steps(pythons, options.rounds, Path(folder))]
            else:
                for name in threads.keys() & {n.split(",")[0] for n in _ways(found)}:
                    threads[name] = options.threads or fastest(found, name)
                parts = recovery(part, pythons, threads, options, Path(folder))
            for figures in parts:
                found[part] = figures | {"machine": about}
                options.out.write_text(json.dumps(found, indent=2) + "\n")


def _ways(found: Job) -> Job:
    return found.get("steps", {}).get("association", {}).get("ratio", {})


def fastest(found: Job, name: str) -> int:
    """Number of threads with which a package was faster on the association model."""
    ways = {way: row["median"] for way, row in _ways(found).items() if way.startswith(f"{name},")}
    return int(min(ways, key=lambda way: ways[way]).split()[1])


if __name__ == "__main__":
    main()
