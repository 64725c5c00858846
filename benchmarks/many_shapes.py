"""Memory and mappings of one process over many fits of different shapes.

    python benchmarks/many_shapes.py --fits 200 --out shapes.jsonl

A line of JSON for each fit: its shape, seconds, resident memory (MB) and memory maps afterwards,
and how often compiled programs have been forgotten so far. Without a bound on the programs, the
maps grow by hundreds with each shape, and XLA crashes near 65530.
"""

import argparse
import json
import time
import warnings
from pathlib import Path

import numpy as np

from dagp import DAGP
from dagp.core import programs


def resident() -> float:
    """Resident memory in megabytes."""
    status = Path("/proc/self/status").read_text()
    return int(status.split("VmRSS:")[1].split()[0]) / 1024


def maps() -> int:
    return programs.MAPS.read_bytes().count(b"\n")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument("--fits", type=int, default=200)
    parser.add_argument("--most-maps", type=int, default=programs.MOST_MAPS)
    parser.add_argument("--out", type=Path)
    asked = parser.parse_args()
    warnings.simplefilter("ignore")
    programs.MOST_MAPS = asked.most_maps
    forgotten, before = 0, maps()
    for i in range(asked.fits):
        rng = np.random.default_rng(100 + i)
        N, D, P, K = 20 + 3 * i, 1 + i % 4, 1 + i % 3, 1 + i % 2
        X = rng.uniform(size=(N, D))
        y = np.sin(6 * X[:, :1]) + 0.1 * rng.normal(size=(N, P))
        begun = time.monotonic()
        model = DAGP(K, inducing=5 + i % 11, n_init=1, max_iter=30, tol=1e3, random_state=0)
        model.fit(X, y).predict(X)
        seconds, now = time.monotonic() - begun, maps()
        forgotten, before = forgotten + (now < before), now
        line = {"fit": i, "N": N, "D": D, "P": P, "K": K, "seconds": round(seconds, 2)}
        line |= {"rss_mb": round(resident()), "maps": now, "forgotten": forgotten}
        print(json.dumps(line), flush=True)
        if asked.out is not None:
            with asked.out.open("a") as file:
                file.write(json.dumps(line) + "\n")


if __name__ == "__main__":
    main()
