"""The record of the search: what it finds, in how many steps; and two records compared.

    python benchmarks/record.py fit -o results/record/now.jsonl --jobs 2
    python benchmarks/record.py fit --set held --without swap -o results/record/no-swap.jsonl
    python benchmarks/record.py compare results/record/before.jsonl results/record/now.jsonl

Each row has the ELBO, the assignment, the Rand index where the truth is known, the confidence, and
what the fit cost: training steps, probes (coordinate ascent without a step of the
hyperparameters), evaluations of exact inference, seconds and seconds of the processor (one fit a
core). Fits that are in the file are not repeated. ``--twice`` times the second of two fits, without
compilation. A comparison says whether the records are equal, else how success, ELBO, confidence and
cost differ.
"""

import argparse
import contextlib
import json
import multiprocessing
import os
import time
import warnings
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from unittest.mock import patch

for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS"):
    os.environ.setdefault(name, "1")

import battery  # noqa: E402
import numpy as np  # noqa: E402
from sklearn.metrics import adjusted_rand_score  # noqa: E402

from dagp.core.errors import SearchWarning  # noqa: E402
from dagp.inference import exact, train  # noqa: E402
from dagp.search import algorithm, finish, starts  # noqa: E402

Row = dict[str, Any]
TOLD_APART, LOWER = 0.9, 1.0
"""Least Rand index of a success, and loss of the ELBO from which a fit is lower."""


class Cost:
    """Counts the work of the fits inside the ``with`` block."""

    def __enter__(self) -> "Cost":
        self.steps = self.probes = self.evaluations = 0
        schedule, refine, slope = train.training_schedule, train.refine_q, exact._slope

        def counted(*given: Any, **settings: Any) -> Any:
            inner, reply = schedule(*given, **settings), None
            while True:
                try:
                    run = inner.send(reply)
                except StopIteration as end:
                    return end.value
                self.steps += train.BLOCK
                reply = yield run

        def probed(*given: Any) -> Any:
            self.probes += 1
            return refine(*given)

        def evaluated(*given: Any) -> Any:
            self.evaluations += 1
            return slope(*given)

        self._patches = [
            patch.object(train, "training_schedule", counted),
            patch.object(train, "refine_q", probed),
            patch.object(exact, "_slope", evaluated),
        ]
        for each in self._patches:
            each.start()
        return self

    def __exit__(self, *_: Any) -> None:
        for each in self._patches:
            each.stop()


@contextlib.contextmanager
def without(part: str) -> Iterator[None]:
    """The search without a kind of start, a move or a finisher of this name."""
    if part in starts.KINDS:
        left = {name: kind for name, kind in starts.KINDS.items() if name != part}
        with patch.object(starts, "KINDS", left):
            yield
        return

    def nothing(*_: Any) -> Iterator[Any]:
        return iter(())

    with contextlib.ExitStack() as stack:
        for module, table in ((algorithm, "MOVES"), (finish, "DEEP_MOVES")):
            tiers = tuple(
                tuple(nothing if move.__name__ == part else move for move in tier)
                for tier in getattr(module, table)
            )
            stack.enter_context(patch.object(module, table, tiers))
            if hasattr(module, part):
                stack.enter_context(patch.object(module, part, nothing))
        yield


def fit(kind: str, seed: int, make: battery.Maker, twice: bool) -> Row:
    """One fit, as a row of the record."""
    case = make(seed)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        if twice:
            case.fit(seed)
            caught.clear()
        begin, used = time.perf_counter(), time.process_time()
        with Cost() as cost:
            model = case.fit(seed)
        seconds, used = time.perf_counter() - begin, time.process_time() - used
    row: Row = {
        "kind": kind,
        "seed": seed,
        "bound": model.lower_bound_,
        "confidence": model.confidence_,
        "warned": any(issubclass(w.category, SearchWarning) for w in caught),
        "active": int(model.active_.sum()),
        "steps": cost.steps,
        "probes": cost.probes,
        "evaluations": cost.evaluations,
        "seconds": round(seconds, 3),
        "processor": round(used, 3),
        "assignment": "".join(map(str, model.assignment_)),
        "starts": [(r["kind"], r["fate"], round(r["bound"], 3)) for r in model.restarts_],
        "moves": [move for r in model.restarts_ for move in r["moves"]],
    }
    if case.process is not None:
        at = np.ones(len(case.y), bool) if case.clear is None else case.clear
        row["ari"] = adjusted_rand_score(case.process[at], model.assignment_[at])
    return row


def _fit_one(task: tuple[str, str, int, bool, str | None]) -> Row:
    name, kind, seed, twice, part = task
    make = battery.SETS[name][kind][0]
    try:
        if part is None:
            return fit(kind, seed, make, twice)
        with without(part):
            return fit(kind, seed, make, twice)
    except Exception as error:
        return {"kind": kind, "seed": seed, "error": f"{type(error).__name__}: {error}"}


def read(path: Path) -> dict[tuple[str, int], Row]:
    """Rows of a record by kind and seed."""
    if not path.exists():
        return {}
    rows = map(json.loads, path.read_text().splitlines())
    return {(row["kind"], row["seed"]): row for row in rows}


def record(options: argparse.Namespace) -> None:
    """Fit what is not in the file yet."""
    options.out.parent.mkdir(parents=True, exist_ok=True)
    known = read(options.out)
    wanted = set(read(options.only)) if options.only else None
    tasks = [
        (options.set, kind, seed, options.twice, options.without)
        for kind, seed, _ in battery.cases(options.set)
        if (kind, seed) not in known
        and (wanted is None or (kind, seed) in wanted)
        and (not options.kinds or kind in options.kinds)
    ]
    context = multiprocessing.get_context("spawn")
    with context.Pool(options.jobs, maxtasksperchild=25) as pool, options.out.open("a") as file:
        for row in pool.imap_unordered(_fit_one, tasks):
            file.write(json.dumps(row) + "\n")
            file.flush()
            shown = ("kind", "seed", "bound", "ari", "steps", "seconds", "error")
            print(
                *(f"{row[k]:.3f}" if isinstance(row.get(k), float) else row.get(k) for k in shown)
            )


def told_apart(row: Row) -> bool:
    """Whether a fit is a success, where the truth is known."""
    return row.get("ari", 1.0) >= TOLD_APART


def compare(options: argparse.Namespace) -> None:
    """What differs between two records."""
    before, after = read(options.before), read(options.after)
    common = [key for key in before if key in after]
    pairs = [(before[k], after[k]) for k in common]
    for key, (one, other) in zip(common, pairs, strict=True):
        if "error" in one or "error" in other:
            print("failed:", key, one.get("error"), other.get("error"))
    pairs = [(a, b) for a, b in pairs if "error" not in a and "error" not in b]
    same = sum(a["bound"] == b["bound"] and a["assignment"] == b["assignment"] for a, b in pairs)
    print(f"{len(pairs)} fits in both, {same} of them equal to the last digit")
    gains = np.array([b["bound"] - a["bound"] for a, b in pairs])
    lower, higher = gains < -LOWER, gains > LOWER
    print(f"ELBO lower by more than {LOWER:g}: {lower.sum()}, higher: {higher.sum()}")
    for (a, b), gain in sorted(zip(pairs, gains, strict=True), key=lambda one: one[1]):
        if abs(gain) > LOWER:
            rand = f"{a.get('ari', np.nan):.2f} → {b.get('ari', np.nan):.2f}"
            print(f"  {a['kind']} {a['seed']}: {a['bound']:.1f} {gain:+.1f}, Rand index {rand}")
    judged = [(a, b) for a, b in pairs if "ari" in a and "ari" in b]
    one, other = (sum(told_apart(pair[i]) for pair in judged) for i in (0, 1))
    print(f"told apart, of {len(judged)}: {one} → {other}")
    for i, name in enumerate(("before", "after")):
        rows = [pair[i] for pair in judged]
        wrong = [row["warned"] for row in rows if not told_apart(row)]
        right = [row["warned"] for row in rows if told_apart(row)]
        of = f"{sum(wrong)} of {len(wrong)} wrong, {sum(right)} of {len(right)} right"
        print(f"{name}: warned in {of}")
    for name in ("steps", "probes", "evaluations", "seconds", "processor"):
        a, b = (np.array([pair[i][name] for pair in pairs], float) for i in (0, 1))
        ratio = np.median((b / a)[a > 0]) if np.any(a > 0) else np.nan
        print(f"{name}: {a.sum():.0f} → {b.sum():.0f}, median ratio {ratio:.2f}")


def accepted(options: argparse.Namespace) -> None:
    """How often the proposals of each name were tried, and how often accepted."""
    tried: Counter[str] = Counter()
    taken: dict[str, list[tuple[str, int]]] = {}
    for key, row in read(options.record).items():
        for name, gain in row.get("moves", []):
            family = name.split()[0]
            tried[family] += 1
            if gain > 2e-3 * len(row["assignment"]):
                taken.setdefault(family, []).append(key)
    for family, count in tried.most_common():
        where = taken.get(family, [])
        print(f"{family}: tried {count}, accepted {len(where)} in {len(set(where))} fits")
        print("   ", *(f"{kind} {seed}" for kind, seed in sorted(set(where))), sep="; ")


def main() -> None:
    parser = argparse.ArgumentParser(description=str(__doc__).splitlines()[0])
    commands = parser.add_subparsers(required=True)
    one = commands.add_parser("fit")
    one.add_argument("--set", choices=battery.SETS, default="frozen")
    one.add_argument("-o", "--out", type=Path, required=True)
    one.add_argument("--jobs", type=int, default=2)
    one.add_argument("--twice", action="store_true")
    one.add_argument("--without", help="start, move or other proposal to leave out")
    one.add_argument("--only", type=Path, help="record whose data sets are fitted")
    one.add_argument("--kinds", nargs="*")
    one.set_defaults(run=record)
    two = commands.add_parser("compare")
    two.add_argument("before", type=Path)
    two.add_argument("after", type=Path)
    two.set_defaults(run=compare)
    three = commands.add_parser("accepted")
    three.add_argument("record", type=Path)
    three.set_defaults(run=accepted)
    options = parser.parse_args()
    options.run(options)


if __name__ == "__main__":
    main()
