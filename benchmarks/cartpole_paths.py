"""Coverage of roll-outs of mixed cart-poles: do regions of 20 steps hold the true trajectories?

Transitions of both systems without labels train one model; then both systems and the model run
with the same actions from the same starts. Regions are central intervals of the samples, for every
step and state. Intervals can hold the truth by being too wide, so two proper scores stand beside
them: the interval score of the 95 % interval and the continuous ranked probability score (CRPS),
both in units of those of an oracle, the true systems with the true noise, chosen with probability
one half. The oracle runs through the same code; its coverage says how far that of a model can be
off by the choice of the test trajectories.

    python benchmarks/cartpole_paths.py --seeds 100-109 --jobs 10 -o results/dynamics
"""

import argparse
import csv
import time
import warnings
from pathlib import Path
from types import SimpleNamespace

import numpy as np
from joblib import Parallel, delayed

from dagp import DAGP, datasets
from dagp.dynamics import TransitionModel

SYSTEMS = ("default", "short")
HORIZON, SAMPLES, TESTS = 20, 199, 60
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


class Oracle:
    """Both true systems with the true noise, each trajectory in one of them."""

    def rollout(self, policy, start, horizon, n_samples, random_state):
        rng = np.random.default_rng([random_state, 1])
        states = [np.repeat(start, n_samples, axis=0)]
        first, system = rng.random((len(states[0]), 1)) < 0.5, datasets.CartPole(hold=1)
        for _ in range(horizon):
            before = states[-1]
            actions = policy(before)
            after = np.where(first, *(system.step(before, actions, name) for name in SYSTEMS))
            states.append(wrapped(after + NOISE * rng.standard_normal(after.shape)))
        shape = len(start), n_samples, horizon + 1, -1
        return SimpleNamespace(states=np.stack(states, axis=1).reshape(shape).swapaxes(0, 1))


def gaps(model, truth, actions, seed, **how):
    """Samples less the true states, (samples, trajectories, steps, states)."""
    begin = wrapped(truth[:, 0])
    run = model.rollout(Sequence(actions), begin, HORIZON, SAMPLES, random_state=seed, **how)
    gap = run.states[:, :, 1:] - truth[None, :, 1:]
    # Angles the shorter way round.
    gap[..., 2] = (gap[..., 2] + np.pi) % (2 * np.pi) - np.pi
    return gap


def scores(gap):
    """Share of true states inside of regions, widths, and two scores for each state."""
    found = {}
    for level in LEVELS:
        tails = [0.5 - level / 2, 0.5 + level / 2]
        # Of n samples and the truth, each is as likely to be the i-th: quantiles at i / (n + 1).
        low, high = np.quantile(gap, tails, axis=0, method="weibull")
        found[f"inside {level:.0%}"] = np.mean((low <= 0) & (high >= 0))
    miss = np.maximum(low, 0.0) + np.maximum(-high, 0.0)
    found["width"] = np.mean(high - low, axis=(0, 1))
    found["interval"] = np.mean(high - low + 2 / (1 - LEVELS[-1]) * miss, axis=(0, 1))
    ordered = np.sort(gap, axis=0)
    n = len(ordered)
    # Mean distance of two different samples, from their order.
    apart = np.tensordot(2 * np.arange(n) - (n - 1), ordered, axes=1) / (n * (n - 1))
    found["crps"] = np.mean(np.mean(np.abs(gap), axis=0) - apart, axis=(0, 1))
    return found


def against(found, best):
    """Scores in units of the oracle's: mean over the states, which have different units."""
    ratios = {k: float(np.mean(found[k] / best[k])) for k in ("width", "interval", "crps")}
    return {k: float(v) for k, v in found.items() if k.startswith("inside")} | ratios


MODELS = {"DAGP": 2, "DAGP labelled": 2, "GP": 1}
"""Number of processes."""


def fitted(name, seed, rng):
    """A model of unlabelled transitions, and the share of them it associates rightly."""
    states, actions, after, process = training(rng)
    model = TransitionModel(
        DAGP(MODELS[name], random_state=seed),
        periods=(None, None, 2 * np.pi, None),
        action_bounds=[(-1, 1)],
    )
    model.fit(states, actions, after, labels=process if name == "DAGP labelled" else None)
    agree = np.mean(model.model_.assignment_ == process)
    return model, float(max(agree, 1 - agree)) if MODELS[name] > 1 else ""


def experiment(name, seed):
    rng = np.random.default_rng(seed)
    begin = time.perf_counter()
    with warnings.catch_warnings(action="ignore"):
        model, accuracy = fitted(name, seed, rng)
        fit_s = round(time.perf_counter() - begin, 1)
        tests = [paths(system, TESTS // 2, rng) for system in SYSTEMS]
        truth, done = (np.concatenate(parts) for parts in zip(*tests, strict=True))
        best = scores(gaps(Oracle(), truth, done, seed))
        about = {"model": name, "seed": seed, "fit_s": fit_s, "accuracy": accuracy}
        rows = [{**about, "model": "oracle", "functions": "", "system": "", **against(best, best)}]
        # Which system it is: by the shares of the data, or by the gate at the first state.
        gate = model.predict_regimes(wrapped(truth[:, 0]), done[:, 0])
        kinds = [("step", "share", "trajectory"), ("trajectory", "share", "trajectory")]
        kinds += [("step", "gate", gate)] if name == "DAGP" else []
        for functions, system, regimes in kinds:
            how = {"functions": functions, "regimes": regimes}
            found = scores(gaps(model, truth, done, seed, **how))
            rows.append({**about, "functions": functions, "system": system, **against(found, best)})
    return rows if name == "GP" else rows[1:]


def main():
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--seeds", default="0-1")
    arguments.add_argument("--models", default=",".join(MODELS))
    arguments.add_argument("--jobs", type=int, default=1)
    arguments.add_argument("-o", "--out", type=Path, default=Path("results/dynamics"))
    given = arguments.parse_args()
    first, last = map(int, given.seeds.split("-"))
    wanted = [(name, seed) for seed in range(first, last + 1) for name in given.models.split(",")]
    given.out.mkdir(parents=True, exist_ok=True)
    record, rows = given.out / "cartpole_paths.csv", []
    pool = Parallel(n_jobs=given.jobs, backend="loky", return_as="generator_unordered")
    for found in pool(delayed(experiment)(*task) for task in wanted):
        rows += found
        with record.open("w", newline="") as file:
            table = csv.DictWriter(file, list(rows[0]))
            table.writeheader()
            table.writerows(rows)
    names = ("model", "functions", "system")
    for kind in sorted({tuple(row[k] for k in names) for row in rows}):
        own = [row for row in rows if tuple(row[k] for k in names) == kind]
        shown = [k for k, v in own[0].items() if isinstance(v, float) and k != "fit_s"]
        print(*kind, {k: round(float(np.mean([row[k] for row in own])), 3) for k in shown})


if __name__ == "__main__":
    main()
