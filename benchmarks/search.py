"""Ablation of the search: success rate and time without each of its parts.

    python benchmarks/search.py --seeds 3 -o benchmarks/search.md

Every variant fits the same data sets with the same seeds (from 100), without one part of the
search. A fit succeeds when the adjusted Rand index on separable points is at least .95 and, for
the outlier task, when the error of the signal is below twice that of an exact GP on the true
inliers. A part is justified by the successes it adds on some task.
"""

import argparse
import contextlib
import time
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
from recovery import FIRST_SEED, noise_oracle, rmse
from sklearn.metrics import adjusted_rand_score

from dagp import DAGP, GP, Noise, SearchWarning, datasets
from dagp.search import moves, race, search, starts


def multimodal(seed: int, noise: float = 0.005, least: float = 0.95) -> bool:
    """The paper's three functions."""
    data = datasets.multimodal(noise=noise, random_state=seed)
    model = DAGP(4, random_state=seed).fit(data.X, data.y)
    x = data.X[:, 0]
    middle = (x > 0) & (x < 5)
    left = -np.sort(-model.predict_assignment([[-4.0]]))[0, :2]
    ari = adjusted_rand_score(data.process[middle], model.assignment_[middle])
    gate = np.all(abs(left * 3 - [2, 1]) < 0.21)
    return bool(model.active_.sum() == 3 and ari >= least and gate)


def outliers(seed: int) -> bool:
    """One signal among four times as many outliers."""
    data = datasets.noise_separation(0.8, random_state=seed)
    model = DAGP(processes=[GP(), Noise()], random_state=seed).fit(data.X, data.y)
    error = rmse(np.asarray(model.processes_[0].predict(data.X_test)), data.y_test)
    return error < 2 * noise_oracle(data, 0.8)["oracle_rmse"]


def cartpoles(seed: int) -> bool:
    """Two mixed systems, five inputs."""
    data = datasets.cartpole(random_state=seed)
    model = DAGP(2, random_state=seed).fit(data.X, data.y)
    right = float(np.mean(model.assignment_ == data.process))
    return max(right, 1 - right) >= 0.95


def _told_apart(draw: Callable[..., Any], **settings: Any) -> Callable[[int], bool]:
    def task(seed: int) -> bool:
        data = draw(random_state=seed)
        model = DAGP(**settings, random_state=seed).fit(data.X, data.y)
        at = data.separable
        return adjusted_rand_score(data.process[at], model.assignment_[at]) >= 0.95

    return task


TASKS: dict[str, Callable[[int], bool]] = {
    "multimodal": multimodal,
    # At this noise, assignment by the true functions is not better than that.
    "multimodal .05": lambda seed: multimodal(seed, 0.05, least=0.85),
    "80 % outliers": outliers,
    "4 curves": _told_apart(lambda **k: datasets.crossings(4, 1, **k), n_processes=4),
    "5 curves": _told_apart(lambda **k: datasets.crossings(5, 3, **k), n_processes=5),
    "heteroscedastic": _told_apart(datasets.heteroscedastic, n_processes=2),
    "two sheets": _told_apart(datasets.sheets, n_processes=2),
    "cart-poles": cartpoles,
    "trajectories": _told_apart(datasets.trajectories, processes=[GP(), GP(), GP(), Noise()]),
}


def without_kind(kind: str) -> Any:
    """Portfolio of starts without one kind."""
    full = starts.portfolio
    return patch.object(
        starts,
        "portfolio",
        lambda problem: [k for k in full(problem) if k != kind] or ["isolation"],
    )


def without_move(move: Callable[..., Any]) -> Any:
    """Search without one move."""
    return patch.object(search, "MOVES", tuple(m for m in moves.MOVES if m is not move))


@contextlib.contextmanager
def without_annex() -> Iterator[None]:
    """Search without annexing, neither as a move nor as a final simplification."""
    with without_move(moves.annex), patch.object(search, "SIMPLER", ()):
        yield


VARIANTS: dict[str, Callable[[], Any]] = {
    "everything": contextlib.nullcontext,
    "without track starts": lambda: without_kind("track"),
    "without consensus starts": lambda: without_kind("consensus"),
    "without rank starts": lambda: without_kind("rank"),
    "without cluster starts": lambda: without_kind("cluster"),
    "without magnitude starts": lambda: without_kind("magnitude"),
    "without merge": lambda: without_move(moves.merge),
    "without split": lambda: without_move(moves.split),
    "without swap": lambda: without_move(moves.swap),
    "without annex": without_annex,
    "the best half, whatever their kinds": lambda: patch.object(
        race, "_each_kind_first", lambda contenders: contenders
    ),
    "moves that go back are tried": lambda: patch.object(search, "RETURNED", 0.0),
    "one finalist": lambda: patch.object(race, "FINALISTS", 1),
}


def measure(
    variants: list[str], tasks: list[str], seeds: range
) -> Iterator[tuple[str, dict[str, int], float]]:
    """Yields successes per task and seconds per fit of each variant."""
    for variant in variants:
        begin = time.perf_counter()
        wins = {}
        with VARIANTS[variant]():
            for name in tasks:
                wins[name] = sum(TASKS[name](seed) for seed in seeds)
        yield variant, wins, (time.perf_counter() - begin) / len(seeds) / len(tasks)


def main() -> None:
    parser = argparse.ArgumentParser(description=str(__doc__).splitlines()[0])
    parser.add_argument("variants", nargs="*", default=list(VARIANTS))
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--first-seed", type=int, default=FIRST_SEED)
    parser.add_argument("--tasks", nargs="*", default=list(TASKS))
    parser.add_argument("-o", "--out", type=Path, default=Path("benchmarks/search.md"))
    options = parser.parse_args()
    warnings.simplefilter("ignore", SearchWarning)
    multimodal(0)  # warm-up: compilation is not part of any variant's time
    head = ["variant", *options.tasks, "all", "seconds a fit"]
    lines = [
        "# What each piece of the search is worth",
        "",
        f"Successes of {options.seeds} seeds a task (from {options.first_seed}), default settings:",
        f"`python benchmarks/search.py --seeds {options.seeds}`.",
        "",
        "| " + " | ".join(head) + " |",
        "|" + "---|" * len(head),
    ]
    seeds = range(options.first_seed, options.first_seed + options.seeds)
    for variant, wins, seconds in measure(options.variants, options.tasks, seeds):
        cells = [variant, *map(str, wins.values()), str(sum(wins.values())), f"{seconds:.1f}"]
        lines.append("| " + " | ".join(cells) + " |")
        print(lines[-1], flush=True)
        options.out.write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
