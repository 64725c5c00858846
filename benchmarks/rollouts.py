"""Seconds of 1000 roll-outs of 100 steps, after compilation, on a model of wet-chicken.

    python benchmarks/rollouts.py --rows 1000

Two regimes with noise that varies, 100 inducing points, and the built-in network as policy, as in
`dagp reproduce wetchicken`. The time of a matrix product in the same minute stands beside it.
"""

import argparse
import statistics
import time

import numpy as np

from dagp import DAGP, GP, datasets
from dagp.dynamics import TransitionModel, network_policy


def seconds(task, repeats):
    """Wall-clock and processor seconds of each call."""
    found = []
    for _ in range(repeats):
        wall, processor = time.perf_counter(), time.process_time()
        task()
        found.append((time.perf_counter() - wall, time.process_time() - processor))
    return np.array(found)


def fitted(rows):
    """A transition model of the river, and a policy."""
    data = datasets.wet_chicken(rows, random_state=0)
    estimator = DAGP(2, GP(noise_gp=GP()), inducing=100, random_state=0)
    bounds = {"bounds": data.simulator.bounds, "action_bounds": data.simulator.action_bounds}
    model = TransitionModel(estimator, differences=False, **bounds)
    model.fit(data.states, data.actions, data.next_states)
    return model, network_policy(data.states, data.simulator.action_bounds, random_state=0)


def main():
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--rows", type=int, default=1000)
    arguments.add_argument("--repeats", type=int, default=9)
    given = arguments.parse_args()
    model, policy = fitted(given.rows)
    square = np.random.default_rng(0).standard_normal((600, 600))
    product = seconds(lambda: square @ square, 20)
    print(f"600 × 600 product: {1e3 * statistics.median(product[:, 0]):.1f} ms")
    for functions in ("step", "trajectory"):

        def run(functions=functions):
            model.rollout(policy, [2.5, 2.5], 100, 1000, random_state=0, functions=functions)

        first = seconds(run, 1)[0, 0]
        wall, processor = seconds(run, given.repeats).T
        print(
            f'functions="{functions}": {np.median(wall):.2f} s ({wall.min():.2f}–{wall.max():.2f}; '
            f"{np.median(processor):.2f} s of processors), with compilation {first:.1f} s"
        )


if __name__ == "__main__":
    main()
