"""Scaling of minibatch fits with the number of rows: time per epoch and peak memory.

    python benchmarks/scale.py --rows 10000 100000 1000000 -o results/scale.json

The data are in a Parquet file and in a memory map; every fit has its own process. Memory is the
peak of the process, and the part added by the fit. The growth exponent of the time per epoch is
the slope of a linear fit to the logarithms.
"""

import argparse
import json
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np

BATCH = 1000
KINDS = ("parquet", "memmap")


def write(folder: Path, rows: int) -> None:
    """Write two sines with noise, as a table and as arrays."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    rng = np.random.default_rng(0)
    x = rng.uniform(-5, 5, rows)
    second = rng.random(rows) < 0.4
    y = np.where(second, np.cos(x) - 2, np.sin(x)) + 0.1 * rng.standard_normal(rows)
    pq.write_table(pa.table({"x": x, "y": y}), folder / "data.parquet")
    np.save(folder / "x.npy", x[:, None])
    np.save(folder / "y.npy", y)
    np.save(folder / "process.npy", second)


def fit(folder: Path, kind: str) -> dict[str, Any]:
    """One fit in this process."""
    from dagp import DAGP

    if kind == "parquet":
        import pyarrow.parquet as pq

        table = pq.read_table(folder / "data.parquet", memory_map=True)
        X, y = table.select(["x"]), table.column("y")
    else:
        X, y = (np.load(folder / f"{name}.npy", mmap_mode="r") for name in ("x", "y"))
    moments: list[tuple[int, float]] = []

    def note(progress: Any) -> None:
        if progress.phase == "batches":
            moments.append((progress.step, time.perf_counter()))

    before = _peak_mib()
    began = time.perf_counter()
    model = DAGP(2, batch_size=BATCH, n_init=4, random_state=0, callbacks=(note,))
    # At least three epochs, because the first one includes compilation.
    model.set_params(max_iter=max(4 * len(y) // BATCH, 1000)).fit(X, y)
    seconds = time.perf_counter() - began
    true, found = np.load(folder / "process.npy"), model.assignment_ == 1
    agree = float(np.mean(true == found))
    epochs = np.diff([moment for _, moment in moments])
    steps = np.diff([step for step, _ in moments])
    return {
        "kind": kind,
        "rows": len(true),
        "seconds": round(seconds, 1),
        "epochs": len(moments),
        "epoch_s": round(float(np.median(epochs * len(true) / (steps * BATCH))), 2),
        "added_mib": round(_peak_mib() - before),
        "peak_mib": round(_peak_mib()),
        "accuracy": round(max(agree, 1 - agree), 4),
    }


def _peak_mib() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", type=int, nargs="+", default=[10_000, 100_000, 1_000_000])
    parser.add_argument("-o", "--out", type=Path)
    parser.add_argument("--fit", nargs=2, help=argparse.SUPPRESS)
    asked = parser.parse_args()
    if asked.fit:
        print(json.dumps(fit(Path(asked.fit[0]), asked.fit[1])))
        return
    found = []
    for rows in asked.rows:
        with tempfile.TemporaryDirectory() as folder:
            write(Path(folder), rows)
            for kind in KINDS:
                command = [sys.executable, __file__, "--fit", folder, kind]
                done = subprocess.run(command, check=True, capture_output=True, text=True)
                found.append(json.loads(done.stdout.splitlines()[-1]))
                print(json.dumps(found[-1]), flush=True)
    result: dict[str, Any] = {"fits": found}
    if len(asked.rows) > 1:
        sizes, epochs = zip(*((f["rows"], f["epoch_s"]) for f in found), strict=True)
        result["exponent"] = round(float(np.polyfit(np.log(sizes), np.log(epochs), 1)[0]), 3)
        print(f"Growth exponent of the time per epoch: {result['exponent']}.")
    if asked.out:
        asked.out.write_text(json.dumps(result, indent=2) + "\n")


if __name__ == "__main__":
    main()
