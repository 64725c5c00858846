"""Fuzzing of model files and checkpoints: each mutated file is refused or loads a valid model.

    python benchmarks/filefuzz.py --mutations 10000 --seed 100

Every file is read under a limit on memory, and within a minute. Any outcome other than a
`StorageError` or a model with finite predictions is printed and counted as a failure. The table is
printed and written to ``results/filefuzz.md``.
"""

import argparse
import random
import resource
import sys
import tempfile
import traceback
from collections import Counter
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

from filejudge import Checkpoint, Model
from filemutations import ACCIDENTS, impostors, mutated

MORE_MEMORY = 2**30
"""Bytes of address space beyond those of the process after it has loaded its first file."""
VERDICTS = ("refused", "same", "another", "FAILED")


def judged(whole: Model | Checkpoint, name: str, content: bytes) -> str:
    try:
        verdict = whole.judged(content)
        # Digests detect all accidental damage; a changed file loads only with new digests.
        strict = name in {way.__name__ for way in ACCIDENTS} and content != whole.content
        assert not (strict and verdict != "refused"), "a damaged file was read"
    except BaseException as error:
        if isinstance(error, KeyboardInterrupt):
            raise
        print(f"{type(whole).__name__}, {name}:", file=sys.stderr)
        traceback.print_exc()
        kept = Path(tempfile.gettempdir()) / f"filefuzz-{name.replace(' ', '-')}.dagp"
        kept.write_bytes(content)
        return "FAILED"
    return verdict


def limit_memory() -> None:
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    most = pages * resource.getpagesize() + MORE_MEMORY
    resource.setrlimit(resource.RLIMIT_AS, (most, most))


def table(counts: Counter[tuple[str, str, str]], seed: int) -> str:
    rows = sorted({key[:2] for key in counts})
    lines = [
        f"Seed {seed}; {sum(counts.values())} files.",
        "",
        f"| file | what was done | {' | '.join(VERDICTS)} |",
        "|---|---|" + "---:|" * len(VERDICTS),
    ]
    for row in rows:
        cells = " | ".join(str(counts[*row, verdict]) for verdict in VERDICTS)
        lines.append(f"| {row[0]} | {row[1]} | {cells} |")
    totals = " | ".join(
        str(sum(n for key, n in counts.items() if key[2] == verdict)) for verdict in VERDICTS
    )
    return "\n".join([*lines, f"| all | | {totals} |", ""])


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--mutations", type=int, default=10_000)
    parser.add_argument("--seed", type=int, default=100)
    parser.add_argument("--out", type=Path, default=Path("results/filefuzz.md"))
    asked = parser.parse_args()
    rng = random.Random(asked.seed)
    counts: Counter[tuple[str, str, str]] = Counter()
    with tempfile.TemporaryDirectory() as folder:
        files = [Model(Path(folder)), Checkpoint(Path(folder))]
        for whole in files:
            assert whole.judged(whole.content) == "same"
        limit_memory()
        for whole in files:
            for name, content in impostors(whole.content).items():
                verdict = judged(whole, name, content)
                counts[type(whole).__name__.lower(), "another file, or an absurd one", verdict] += 1
        while sum(counts.values()) < asked.mutations:
            whole = rng.choice(files)
            name, content = mutated(whole.content, rng)
            counts[type(whole).__name__.lower(), name, judged(whole, name, content)] += 1
    text = table(counts, asked.seed)
    print(text)
    asked.out.parent.mkdir(exist_ok=True)
    asked.out.write_text(
        "# Damaged and forged files\n\n"
        f"`python benchmarks/filefuzz.py --mutations {asked.mutations} --seed {asked.seed}`\n\n"
        "*refused*: a `StorageError`; *same*: what was saved; *another*: a model that predicts\n"
        "numbers, or a checkpoint of the same fit with other numbers, from a file with recomputed\n"
        "checksums.\n\n" + text
    )
    return int(any(key[2] == "FAILED" for key in counts))


if __name__ == "__main__":
    sys.exit(main())
