"""Cost of the first fit of a process, and its share of compilation, for several versions.

    git worktree add ../first 0311ed9                    # the first version that could fit
    python benchmarks/compilation.py ../first/src src --rounds 3 -o results/compilation.json

Every round fits the demo's data twice in a fresh process of each version in turn. Tracing and
lowering run in every process; compilation is avoided by a cache shared between processes.
`programs` is the number of compiled programs, `cpu` is processor time.
"""

import argparse
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from dagp.bench.timing import Summary, summary

_CHILD = """
import collections, json, time, warnings
import jax.monitoring
from dagp import DAGP, datasets

warnings.simplefilter("ignore")
spent, count = collections.Counter(), collections.Counter()

def heard(name, duration, **_):
    kind = name.rsplit("/", 1)[-1]
    spent[kind] += duration
    count[kind] += 1

def fit():
    clock, cpu = time.perf_counter(), time.process_time()
    DAGP(4, random_state=0).fit(data.X, data.y)
    return time.perf_counter() - clock, time.process_time() - cpu

jax.monitoring.register_event_duration_secs_listener(heard)
data = datasets.multimodal(random_state=0)
first, again = fit(), fit()
print(json.dumps({
    "first_s": first[0], "again_s": again[0], "first_cpu_s": first[1], "again_cpu_s": again[1],
    "lowering_s": spent["jaxpr_to_mlir_module_duration"],
    "compiling_s": spent["backend_compile_duration"],
    "programs": count["backend_compile_duration"],
}))
"""


def asked(source: Path) -> dict[str, float]:
    """Measurements of a fresh process with this version, without a compilation cache."""
    kept = {k: v for k, v in os.environ.items() if k != "JAX_COMPILATION_CACHE_DIR"}
    kept["DAGP_CACHE"] = "off"
    found = subprocess.run(
        [sys.executable, "-c", _CHILD],
        env=kept | {"PYTHONPATH": str(source.resolve())},
        check=True,
        capture_output=True,
        text=True,
    )
    return json.loads(found.stdout.splitlines()[-1])


def compared(rows: list[list[dict[str, float]]]) -> list[dict[str, Summary]]:
    """Medians of every version, and of its ratios to the first version within a round."""
    table = []
    for version in zip(*rows, strict=True):
        line: dict[str, Summary] = {}
        for name in version[0]:
            line[name] = summary([row[name] for row in version], name.rsplit("_", 1)[-1])
            ratios = [row[name] / r[0][name] for row, r in zip(version, rows, strict=True)]
            line[f"{name}_of_the_first"] = summary(ratios, "ratio")
        table.append(line)
    return table


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("sources", type=Path, nargs="+", help="source folders that contain dagp")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("-o", "--out", type=Path)
    options = parser.parse_args()
    rows = [[asked(source) for source in options.sources] for _ in range(options.rounds)]
    found: dict[str, Any] = {
        "versions": [str(source) for source in options.sources],
        "compared": compared(rows),
    }
    for source, line in zip(options.sources, found["compared"], strict=True):
        print(source)
        for name, figure in line.items():
            print(f"  {name:28} {figure['median']:8.3g}  {figure['quartiles']}")
    if options.out:
        options.out.write_text(json.dumps(found, indent=2) + "\n")


if __name__ == "__main__":
    main()
