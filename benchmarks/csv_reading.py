"""Seconds to read a CSV table of a million rows as `dagp fit` and `dagp predict` do.

    python benchmarks/csv_reading.py [--rows 1000000] [--columns 5]

Prints one line per reader and kind of file: with pyarrow, and cell by cell without it.
"""

import argparse
import tempfile
import time
import unittest.mock
from pathlib import Path

import numpy as np

from dagp.cli import arrowcsv, tables


def write(path, rows, columns, delimiter, decimal):
    """A table of random numbers in full precision, in blocks that fit in memory."""
    rng = np.random.default_rng(0)
    with path.open("w") as file:
        file.write(delimiter.join(f"x{i}" for i in range(columns)) + "\n")
        for first in range(0, rows, 100_000):
            block = rng.normal(size=(min(100_000, rows - first), columns)).tolist()
            lines = [delimiter.join(map(repr, row)).replace(".", decimal) for row in block]
            file.write("\n".join(lines) + "\n")


def write_mixed(path, rows):
    """A table of numbers, a category and times."""
    values = np.random.default_rng(0).normal(size=(rows, 3)).tolist()
    with path.open("w") as file:
        file.write("x,y,z,site,when\n")
        for i, (x, y, z) in enumerate(values):
            when = f"2024-{1 + i % 12:02d}-{1 + i % 28:02d} {i % 24:02d}:{i % 60:02d}"
            file.write(f"{x!r},{y!r},{z!r},{'ABC'[i % 3]},{when}\n")


def seconds(path):
    """Seconds to read all columns, and the number of rows found."""
    began = time.perf_counter()
    with tables.open_table(str(path)) as table:
        kinds = {name: table.kind(name) for name in table.columns}
        found = tables.read_columns(table, table.columns, kinds)
    return time.perf_counter() - began, len(found.rows)


def measure(name, path):
    """Print the seconds of each reader."""
    installed, size = arrowcsv.available(), path.stat().st_size / 1e6
    for fast in (True, False):
        with unittest.mock.patch.object(arrowcsv, "available", lambda fast=fast: fast):
            took, rows = seconds(path)
        label = "pyarrow" if fast and installed else "cell by cell"
        print(f"{name}, {rows} rows, {size:.0f} MB, {label}: {took:.2f} s", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--columns", type=int, default=5)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "table.csv"
        for name, delimiter, decimal in (("plain", ",", "."), ("decimal commas", ";", ",")):
            write(path, given.rows, given.columns, delimiter, decimal)
            measure(name, path)
        write_mixed(path, given.rows)
        measure("numbers, category and times", path)


if __name__ == "__main__":
    main()
