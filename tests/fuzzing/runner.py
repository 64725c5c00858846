"""Many random fits, each in a process that may crash or be ended.

    python tests/fuzz.py --cases 2000 --jobs 14 --out result.json --record cases.jsonl
    python tests/fuzz.py --seed 17 --cases 1         # one case again, by its seed
    python tests/fuzz.py --case '{"seed": 17, …}'    # or by its description, changed at will

Case i has the seed ``--seed`` + i; with the menu, everything about it follows from that. What
became of a case is a line of ``--record``; run again, only cases that have no line are left.
"""

import argparse
import collections
import contextlib
import itertools
import json
import os
import queue
import subprocess
import sys
import threading
import time
import traceback
from collections.abc import Iterator
from concurrent.futures import FIRST_EXCEPTION, ThreadPoolExecutor, wait
from pathlib import Path
from typing import Any

SCRIPT = Path(__file__).parents[1] / "fuzz.py"
MAPS = Path("/proc/self/maps")
MOST_MAPS = 20_000
"""Compiled programs are forgotten when they hold this many memory maps: Linux allows 65530."""
CASES_A_PROCESS = 40
"""What a worker holds on to goes back to the system now and then."""

__all__ = ["main"]

Record = dict[str, Any]


class Worker:
    """A process that takes cases as lines of JSON and answers each with a line."""

    def __init__(self, limit: float):
        self.limit = limit
        self.process: subprocess.Popen[str] | None = None
        self.done = 0

    def run(self, case: Record) -> Record:
        """The outcome of a case, whatever becomes of the process."""
        process = self.process or self._started()
        late = threading.Event()
        watchdog = threading.Timer(self.limit, lambda: (late.set(), process.kill()))
        watchdog.start()
        begun = time.monotonic()
        try:
            process.stdin.write(json.dumps(case) + "\n")  # pyright: ignore[reportOptionalMemberAccess]
            process.stdin.flush()  # pyright: ignore[reportOptionalMemberAccess]
            line = process.stdout.readline()  # pyright: ignore[reportOptionalMemberAccess]
        except BrokenPipeError:
            line = ""
        watchdog.cancel()
        seconds = round(time.monotonic() - begun, 2)
        if line:
            self.done += 1
            if self.done % CASES_A_PROCESS == 0:
                self.stop()
            return {"case": case, "seconds": seconds, **json.loads(line)}
        self.stop()
        cause = (
            f"hung for {self.limit:.0f} s" if late.is_set() else f"crashed: {process.returncode}"
        )
        return {"case": case, "seconds": seconds, "outcome": "failed", "cause": cause}

    def _started(self) -> "subprocess.Popen[str]":
        # A thread for each worker is enough: the workers are the parallelism.
        quiet = {"TF_CPP_MIN_LOG_LEVEL": "3", "JAX_PLATFORMS": "cpu", "OMP_NUM_THREADS": "1"}
        self.process = subprocess.Popen(
            [sys.executable, str(SCRIPT), "--worker"],
            env={**os.environ, **quiet},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        return self.process

    def stop(self) -> None:
        """End the process, if there is one."""
        if self.process is not None:
            self.process.kill()
            self.process.communicate()  # waits, and closes the pipes
            self.process = None


def work() -> None:
    """The other side of a `Worker`."""
    import jax

    from .cases import Case
    from .property import check

    # Whatever else is printed must not stand between the answers.
    answers, sys.stdout = sys.stdout, sys.stderr
    for line in sys.stdin:
        try:
            said = check(Case.read(json.loads(line)))
            outcome, _, cause = said.partition(": ")
            answer = {"outcome": outcome, "cause": cause}
        except Exception as error:
            summary = f"{type(error).__name__}: {str(error).strip()[:500]}"
            trace = traceback.format_exc()[-4000:]
            answer = {"outcome": "failed", "cause": summary, "traceback": trace}
        print(json.dumps(answer), file=answers, flush=True)
        if MAPS.exists() and len(MAPS.read_bytes().splitlines()) > MOST_MAPS:
            jax.clear_caches()


def outcomes(families: list[list[Record]], jobs: int, limit: float) -> Iterator[Record]:
    """What became of each case, as they end. A family shares a process, and what it compiled."""
    workers = threading.local()
    everyone: list[Worker] = []
    ended: queue.SimpleQueue[Record] = queue.SimpleQueue()

    def run(family: list[Record]) -> None:
        if not hasattr(workers, "mine"):
            workers.mine = Worker(limit)
            everyone.append(workers.mine)
        for case in family:
            ended.put(workers.mine.run(case))

    try:
        with ThreadPoolExecutor(jobs) as pool:
            waiting = {pool.submit(run, family) for family in families}
            while waiting or not ended.empty():
                done, waiting = wait(waiting, timeout=0.1, return_when=FIRST_EXCEPTION)
                for family in done:
                    family.result()
                while not ended.empty():
                    yield ended.get()
    finally:
        for worker in everyone:
            worker.stop()


def tell(number: int, record: Record) -> None:
    """A line for a case; all there is to know of one that failed."""
    seed, outcome, cause = record["case"]["seed"], record["outcome"], record["cause"]
    print(
        f"{number} seed {seed}: {outcome} {cause} ({record['seconds']} s)".replace("\n", " ")[:300]
    )
    if outcome == "failed":
        print(record.get("traceback", ""))
        print(f"again: make fuzz SEED={seed} N=1, or --case '{json.dumps(record['case'])}'")
    sys.stdout.flush()


def counted(records: list[Record], begun: float) -> Record:
    """The result in numbers, with everything about the cases that failed."""
    refusals = collections.Counter(
        r["cause"].partition(":")[0] for r in records if r["outcome"] == "refused"
    )
    seconds = sorted(r["seconds"] for r in records)
    return {
        "cases": len(records),
        "fitted": sum(r["outcome"] == "fitted" for r in records),
        "refused": dict(refusals),
        "failed": sum(r["outcome"] == "failed" for r in records),
        "seconds": {
            "all": round(time.monotonic() - begun, 1),
            "median": seconds[len(seconds) // 2],
            "most": seconds[-1],
        },
        "failures": [r for r in records if r["outcome"] == "failed"],
        "refusals": [
            {"seed": r["case"]["seed"], "cause": r["cause"]}
            for r in records
            if r["outcome"] == "refused"
        ],
    }


def recorded(path: Path | None) -> list[Record]:
    """What became of the cases of earlier runs."""
    if path is None or not path.exists():
        return []
    found = []
    for line in path.read_text().splitlines():
        with contextlib.suppress(json.JSONDecodeError):  # one that was cut off
            found.append(json.loads(line))
    return found


def _families(asked: argparse.Namespace, done: set[int]) -> list[list[Record]]:
    """The cases that were asked for and are not done, those of one family together."""
    from .cases import FAMILY, SMALL, WIDE, drawn

    if asked.case:
        return [[json.loads(asked.case)]]
    menu = {"wide": WIDE, "small": SMALL}[asked.menu]
    seeds = [s for s in range(asked.seed, asked.seed + asked.cases) if s not in done]
    families = itertools.groupby(seeds, key=lambda seed: seed // FAMILY)
    return [[drawn(menu, seed).written() for seed in family] for _, family in families]


def main() -> int:
    """Run what the command line asks for; one if something failed."""
    parser = argparse.ArgumentParser(prog="python tests/fuzz.py", description=__doc__)
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument("--cases", type=int, default=200, help="how many")
    parser.add_argument("--seed", type=int, default=0, help="of the first")
    parser.add_argument("--jobs", type=int, default=1, help="processes side by side")
    parser.add_argument("--limit", type=float, default=300.0, help="seconds before a case hangs")
    parser.add_argument("--menu", choices=("wide", "small"), default="wide", help="what to draw")
    parser.add_argument("--out", type=Path, help="file for the result")
    parser.add_argument("--record", type=Path, help="file with a line for each case")
    parser.add_argument("--case", help="the JSON of a single case")
    parser.add_argument("--worker", action="store_true", help=argparse.SUPPRESS)
    asked = parser.parse_args()
    if asked.worker:
        work()
        return 0
    begun, records = time.monotonic(), recorded(asked.record)
    families = _families(asked, {record["case"]["seed"] for record in records})
    for record in outcomes(families, asked.jobs, asked.limit):
        records.append(record)
        tell(len(records), record)
        if asked.record:
            with asked.record.open("a") as file:
                file.write("\n" + json.dumps(record))
        if asked.out:
            asked.out.write_text(json.dumps(counted(records, begun), indent=1))
    result = counted(records, begun)
    brief = {name: result[name] for name in ("cases", "fitted", "refused", "failed", "seconds")}
    print(json.dumps(brief))
    return int(result["failed"] > 0)
