"""Fits on the command line that are stopped, and go on: real processes, real signals."""

import os
import random
import signal
import subprocess
import sys
import time

import numpy as np
import pytest

from dagp import DAGP, datasets

PROGRAM = [sys.executable, "-c", "from dagp.cli import main; main()"]
LONGEST = 120


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    """A folder with a table, and the command that fits it."""
    folder = tmp_path_factory.mktemp("stops")
    data = datasets.noise_separation(outliers=0.2, n=60, random_state=1)
    np.savetxt(folder / "data.csv", np.c_[data.X, data.y], delimiter=",", header="x,y", comments="")
    environment = os.environ | {
        "XDG_CACHE_HOME": str(folder / "cache"),
        "DAGP_CACHE": "",
        "JAX_DISABLE_MOST_OPTIMIZATIONS": "1",
    }

    def start(name, *more):
        words = (
            f"fit data.csv --target y --processes 2 --starts 2 --max-iter 300 --checkpoint-every 0 "
            f"-o {name}"
        )
        return subprocess.Popen(
            [*PROGRAM, *words.split(), *more],
            cwd=folder,
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    return folder, start


@pytest.fixture(scope="module")
def expected(place):
    """What the fit finds undisturbed."""
    folder, start = place
    whole = start("whole.dagp")
    output = whole.communicate(timeout=LONGEST)
    assert whole.returncode == 0, output
    return answers(folder / "whole.dagp")


def answers(path):
    mixture = DAGP.load(path).posterior_.mixture(np.linspace(-3, 3, 50)[:, None])
    return np.concatenate([mixture.weights, mixture.means, mixture.variances], axis=1)


def wait_for(path, process):
    end = time.monotonic() + LONGEST
    while not path.exists() and process.poll() is None and time.monotonic() < end:
        time.sleep(0.01)


# The small version is in `test_faults.py`, where one process imports the library for all others.
@pytest.mark.slow
@pytest.mark.parametrize("kills", [1, 3, 4, 5])
def test_killed_at_random_moments_the_model_is_the_same(place, expected, kills):
    (folder, start), name = place, f"killed{kills}.dagp"
    note, rng, killed = folder / f"{name}.checkpoint", random.Random(kills), 0
    for _ in range(kills):
        process = start(name, "--resume", "--force")
        wait_for(note, process)
        time.sleep(rng.uniform(0.0, 0.3))
        killed += process.poll() is None
        process.kill()
        process.communicate()
    assert killed
    process = start(name, "--resume", "--force")
    output = process.communicate(timeout=LONGEST)
    assert process.returncode == 0, output
    np.testing.assert_array_equal(answers(folder / name), expected)
    assert not note.exists()


def test_ctrl_c_leaves_a_checkpoint(place):
    folder, start = place
    note = folder / "stopped.dagp.checkpoint"
    process = start("stopped.dagp")
    wait_for(note, process)
    process.send_signal(signal.SIGINT)
    output, told = process.communicate(timeout=LONGEST)
    assert process.returncode == 130, (output, told)
    assert note.exists(), told
    assert not (folder / "stopped.dagp").exists()
    assert "Traceback" not in told
    assert "continue with: dagp fit data.csv --target y" in told
