"""Coverage of roll-outs of mixed cart-poles: do regions of 20 steps hold the true trajectories?

Transitions of both systems without labels train one model; then both systems and the model run
with the same actions from the same starts. Regions are central intervals of the samples, for every
step and state.

    python benchmarks/cartpole_paths.py --seeds 100-109 --jobs 10 -o results/dynamics
"""

import argparse
import csv
import time
import warnings
from pathlib import Path

import numpy as np
from joblib import Parallel, delayed

from dagp import DAGP, datasets
from dagp.dynamics import TransitionModel

SYSTEMS = ("default", "short")
HORIZON, SAMPLES, TESTS = 20, 100, 40
NOISE = np.array([0.001, 0.01, 0.01, 0.1])
"""Standard deviation of the disturbance of each state at each step, about a tenth of its change."""
LEVELS = (0.5, 0.8, 0.95)


def paths(system, count, rng):
    """Trajectories (count, T + 1, 4) and their actions (count, T, 1)."""
    state, states = rng.uniform(-0.05, 0.05, (count, 4)), []
    actions = rng.uniform(-1, 1, (count, HORIZON, 1))
    for t in range(HORIZON):
        states.append(state)
        state = datasets.CartPole(hold=1).step(state, actions[:, t], system)
        state = state + NOISE * rng.standard_normal(state.shape)
    return np.stack([*states, state], axis=1), actions


def wrapped(states):
    return np.concatenate(
        [states[..., :2], (states[..., 2:3] + np.pi) % (2 * np.pi) - np.pi, states[..., 3:]], -1
    )


def training(rng, each=25):
    parts = [paths(system, each, rng) for system in SYSTEMS]
    before = np.concatenate([p[0][:, :-1].reshape(-1, 4) for p in parts])
    after = np.concatenate([p[0][:, 1:].reshape(-1, 4) for p in parts])
    actions = np.concatenate([p[1].reshape(-1, 1) for p in parts])
    return wrapped(before), actions, wrapped(after), np.repeat([0, 1], each * HORIZON)


class Sequence:
    """Actions that were fixed beforehand, for every start."""

    def __init__(self, actions):
        self.actions, self.t = np.repeat(actions, SAMPLES, axis=0), -1

    def __call__(self, states):
        self.t += 1
        return self.actions[:, self.t]


def coverage(model, truth, actions, seed, **how):
    """Share of true states inside of regions, per level, and the mean width of the widest."""
    begin = wrapped(truth[:, 0])
    run = model.rollout(Sequence(actions), begin, HORIZON, SAMPLES, random_state=seed, **how)
    # Angles as differences from the true one, the shorter way round.
    gap = run.states[:, :, 1:] - truth[None, :, 1:]
    gap[..., 2] = (gap[..., 2] + np.pi) % (2 * np.pi) - np.pi
    found = {}
    for level in LEVELS:
        low, high = np.quantile(gap, [0.5 - level / 2, 0.5 + level / 2], axis=0)
        found[f"inside {level:.0%}"] = float(np.mean((low <= 0) & (high >= 0)))
    found["width 95%"] = float(np.mean((high - low)[..., 2]))
    return found


def experiment(name, seed):
    rng = np.random.default_rng(seed)
    states, actions, after, process = training(rng)
    tests = [paths(system, TESTS // 2, rng) for system in SYSTEMS]
    truth, done = (np.concatenate(parts) for parts in zip(*tests, strict=True))
    begin = time.perf_counter()
    periods = (None, None, 2 * np.pi, None)
    model = TransitionModel(
        DAGP(2 if name == "DAGP" else 1, random_state=seed),
        periods=periods,
        action_bounds=[(-1, 1)],
    )
    rows = []
    with warnings.catch_warnings(action="ignore"):
        model.fit(states, actions, after)
        about = {"model": name, "seed": seed, "fit_s": round(time.perf_counter() - begin, 1)}
        agree = np.mean(model.model_.assignment_ == process)
        about["accuracy"] = float(max(agree, 1 - agree)) if name == "DAGP" else ""
        for functions in ("step", "trajectory"):
            how = {"functions": functions, "regimes": "trajectory"}
            rows.append(
                about | {"functions": functions} | coverage(model, truth, done, seed, **how)
            )
    return rows


def main():
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--seeds", default="0-1")
    arguments.add_argument("--jobs", type=int, default=1)
    arguments.add_argument("-o", "--out", type=Path, default=Path("results/dynamics"))
    given = arguments.parse_args()
    first, last = map(int, given.seeds.split("-"))
    wanted = [(name, seed) for seed in range(first, last + 1) for name in ("DAGP", "GP")]
    given.out.mkdir(parents=True, exist_ok=True)
    record, rows = given.out / "cartpole_paths.csv", []
    pool = Parallel(n_jobs=given.jobs, backend="loky", return_as="generator_unordered")
    for found in pool(delayed(experiment)(*task) for task in wanted):
        rows += found
        with record.open("w", newline="") as file:
            table = csv.DictWriter(file, list(rows[0]))
            table.writeheader()
            table.writerows(rows)
    for name in ("DAGP", "GP"):
        for functions in ("step", "trajectory"):
            own = [r for r in rows if (r["model"], r["functions"]) == (name, functions)]
            mean = {k: round(float(np.mean([r[k] for r in own])), 3) for k in own[0] if "%" in k}
            print(name, functions, mean)


if __name__ == "__main__":
    main()
