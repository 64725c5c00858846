"""Fault injection: fits and saves killed at random times lose nothing and leave no partial file.

    python benchmarks/faults.py --kills 100 --saves 300 --seed 100

Every killed fit is continued with ``--resume`` until it is complete; the model must be identical,
bit for bit, to that of an uninterrupted fit. The table is printed and written to
``results/faults.md``.
"""

import argparse
import random
import sys
import tempfile
from collections import Counter
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

from faults import Fit, Save, small


def table(title: str, counts: Counter[str]) -> str:
    rows = "\n".join(f"| {name} | {count} |" for name, count in counts.items())
    return f"| {title} | |\n|---|---:|\n{rows}\n"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--kills", type=int, default=100, help="number of killed fits")
    parser.add_argument("--saves", type=int, default=300, help="number of killed saves")
    parser.add_argument("--seed", type=int, default=100)
    parser.add_argument("--out", type=Path, default=Path("results/faults.md"))
    asked = parser.parse_args()
    rng = random.Random(asked.seed)
    with tempfile.TemporaryDirectory() as folder:
        save = Save(Path(folder), small())
        saves = save.killed(asked.saves, rng)
        save.parent.end()
        saved = table("saves", saves)
        print(saved, flush=True)
        fit = Fit(Path(folder), processes=2)
        fits = fit.killed(asked.kills, rng)
        fit.parent.end()
        fitted = table("fits", fits)
        print(fitted)
    asked.out.parent.mkdir(exist_ok=True)
    asked.out.write_text(
        "# Killed while fitting and saving\n\n"
        f"`python benchmarks/faults.py --kills {asked.kills} --saves {asked.saves} "
        f"--seed {asked.seed}`\n\n"
        "*fits* is the number of fits completed between the kills, *identical* the number of them\n"
        "with the model of an uninterrupted fit, *broken* counts incomplete files and fits that\n"
        "ended with an error, *left behind* files beside a finished model. Stages of the kills\n"
        "depend on the machine.\n\n" + saved + "\n" + fitted
    )
    good = saves["whole"] == saves["kills"] and fits["identical"] == fits["fits"]
    return int(not good or fits["broken"] > 0)


if __name__ == "__main__":
    sys.exit(main())
