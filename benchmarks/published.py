"""Default fits of the data of the published noise-separation table.

    python benchmarks/published.py --data FOLDER -o results/published

FOLDER holds choicenet_*.csv with columns x, y, process (0 signal, 1 outlier). Scores are those of
the paper: RMSE of the signal process against the noise-free function on a grid, and the accuracy
of the assignment.
"""

import argparse
import re
import time
from pathlib import Path

import numpy as np

from dagp import DAGP, GP, Noise

NUMBER = re.compile(r"[-+]?\d+\.?\d*(?:[eE][-+]?\d+)?")


def read(path: Path) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Columns x, y, process; some files write numbers as ``np.float64(…)``."""
    lines = path.read_text().splitlines()[1:]
    cells = [[cell.replace("float64", "") for cell in line.split(",")] for line in lines if line]
    table = np.array([[float(NUMBER.findall(cell)[0]) for cell in row] for row in cells])
    return table[:, :1], table[:, 1], table[:, 2].astype(int)


def main() -> None:
    parser = argparse.ArgumentParser(description=str(__doc__).splitlines()[0])
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("-o", "--out", type=Path, default=Path("results/published"))
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    grid = np.linspace(-3, 3, 1000)
    truth = np.cos(np.pi * grid / 2) * np.exp(-((grid / 2) ** 2))
    lines = [
        "| file | RMSE | accuracy | signal points lost | outliers absorbed | noise std | seconds |",
        "|---|---|---|---|---|---|---|",
    ]
    for path in sorted(options.data.glob("choicenet_*.csv")):
        X, y, process = read(path)
        begin = time.perf_counter()
        model = DAGP(processes=[GP(), Noise()], random_state=0).fit(X, y)
        seconds = time.perf_counter() - begin
        signal = model.processes_[0]
        rmse = np.sqrt(np.mean((np.asarray(signal.predict(grid[:, None])) - truth) ** 2))
        found = model.assignment_
        lost, absorbed = (
            np.sum((process == 0) & (found == 1)),
            np.sum((process == 1) & (found == 0)),
        )
        lines.append(
            f"| {path.stem} | {rmse:.2g} | {np.mean(found == process):.3f} | {lost} | {absorbed} "
            f"| {signal.noise_std_.item():.2g} | {seconds:.1f} |"
        )
        print(lines[-1], flush=True)
    (options.out / "noise.md").write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
