"""Wet-chicken for any range of seeds: tuning seeds (0-99), or parts of the table.

    python benchmarks/wetchicken.py --seeds 0-9 --sizes 250,1000 --jobs 14 -o results/tuning

Writes a CSV file, which is resumed, and a table. `dagp reproduce wetchicken` has seeds from 100.
"""

import argparse
from pathlib import Path

from dagp.experiments.runner import run, tasks
from dagp.experiments.tables import markdown
from dagp.experiments.wetchicken import SIZES, WETCHICKEN


def main():
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--seeds", default="0-9")
    arguments.add_argument("--sizes", default=",".join(map(str, SIZES)))
    arguments.add_argument("--models", default=None)
    arguments.add_argument("--jobs", type=int, default=1)
    arguments.add_argument("-o", "--out", type=Path, default=Path("results/tuning"))
    given = arguments.parse_args()
    first, last = map(int, given.seeds.split("-"))
    models = given.models.split(",") if given.models else None
    variants = {f"N {size}" for size in given.sizes.split(",")}
    wanted = tasks(WETCHICKEN, range(first, last + 1), models, quick=False)
    wanted = [task for task in wanted if task.variant in variants]

    def show(done, total, row):
        shown = {k: round(v, 3) for k, v in row.items() if isinstance(v, float)}
        print(done, total, row["model"], row["variant"], row["seed"], shown, row.get("error", ""))

    rows = run(wanted, given.out / "wetchicken.csv", jobs=given.jobs, callback=show)
    (given.out / "wetchicken.md").write_text(markdown(WETCHICKEN, rows))


if __name__ == "__main__":
    main()
