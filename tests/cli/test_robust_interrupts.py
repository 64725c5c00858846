"""What must not break: Ctrl-C at any moment of any command; real processes, real signals."""

import json
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

import dagp
from dagp import DAGP
from dagp.cli.app import COMMANDS

COMMAND_LINES = {
    "info": "info model.dagp",
    "init": "init data.csv -o {}.toml",
    "predict": "predict model.dagp inputs.csv -o {}.csv",
    "plot": "plot model.dagp -o {}.png",
    "report": "report model.dagp -o {}.html",
    "fit": "fit data.csv -t y --starts 1 --max-iter 60 --checkpoint-every 0 -o {}.dagp",
    "demo": "demo -o {}",
    "reproduce": "reproduce noise --quick --no-figures --models GPR -o {}",
    "bench": "bench --only predict -o {}.json",
}
"""`dagp launch` has tests of its own."""
LONGEST = 6.0
"""Seconds after which a command is interrupted at the latest."""


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    folder = tmp_path_factory.mktemp("interrupts")
    x = np.linspace(0, 1, 24)
    y = np.sin(6 * x)
    np.savetxt(folder / "data.csv", np.c_[x, y], delimiter=",", header="0,y", comments="")
    np.savetxt(folder / "inputs.csv", x, header="0", comments="")
    model = DAGP(1, n_init=1, max_iter=200, tol=1e3, inducing=6, random_state=0)
    model.fit(x[:, None], y).save(folder / "model.dagp", data=(x[:, None], y))
    return folder


def interrupted(folder, command, moment, name):
    """Exit code and messages of a command that gets Ctrl-C after so many seconds."""
    process = subprocess.Popen(
        [sys.executable, "-m", "dagp", *COMMAND_LINES[command].format(name).split()],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(Path(dagp.__file__).parents[1])},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    time.sleep(moment)
    process.send_signal(signal.SIGINT)
    _, told = process.communicate(timeout=300)
    return process.returncode, told


IN_CALLBACK = """
import gc, signal, time
import dagp.cli
from dagp.__main__ import main

done = []

def callback(phase, info):
    if not done:
        done.append(phase)
        signal.raise_signal(signal.SIGINT)

def command():
    gc.callbacks.append(callback)
    gc.collect()
    time.sleep(100)

dagp.cli.main = command
main()
"""


IN_IMPORT = """
import importlib.machinery, signal, sys, time
from dagp.__main__ import main

class Importer:
    def find_spec(self, name, path=None, target=None):
        return importlib.machinery.ModuleSpec(name, self) if name == "dagp.cli" else None

    def create_module(self, spec):
        return None

    def exec_module(self, module):
        signal.raise_signal(signal.SIGINT)
        time.sleep(0.1)
        print("imported")
        module.main = lambda: time.sleep(100)

sys.meta_path.insert(0, Importer())
main()
"""


def ended(code):
    """A finished process that ran this Python code."""
    environment = {**os.environ, "PYTHONPATH": str(Path(dagp.__file__).parents[1])}
    command = [sys.executable, "-c", code]
    return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=90)


def test_ctrl_c_inside_a_callback_is_not_lost():
    """Python prints and forgets what the garbage collector's callbacks raise."""
    found = ended(IN_CALLBACK)
    assert found.returncode in (130, -signal.SIGINT)
    assert found.stderr == "Stopped.\n"


def test_ctrl_c_inside_an_import_waits_for_its_end():
    """An exception in the initialisation of an extension module, such as NumPy's, may crash."""
    found = ended(IN_IMPORT)
    assert found.stdout == "imported\n"
    assert found.returncode == 130
    assert found.stderr == "Stopped.\n"


def test_every_command_has_a_line():
    assert {*COMMAND_LINES, "launch"} == set(COMMANDS)


@pytest.mark.parametrize(
    ("command", "count"),
    [
        ("predict", 2),
        *(pytest.param(command, 8, marks=pytest.mark.slow) for command in COMMAND_LINES),
    ],
)
def test_ctrl_c_at_any_moment_is_one_line_and_leaves_no_half_file(place, command, count):
    rng = random.Random(command)
    for case in range(count):
        # Python itself starts in the first tenth of a second, and says what it likes.
        moment = rng.uniform(0.2, LONGEST)
        code, told = interrupted(place, command, moment, f"{command}{case}of{count}")
        assert code in (0, 130, -signal.SIGINT), (moment, told)
        assert "Traceback" not in told, (moment, told)
        assert code == 0 or told.splitlines()[-1].startswith("Stopped"), (moment, told)
        hidden = [file for file in place.rglob(".*") if file.suffix in (".draft", ".lock")]
        assert not hidden, moment
        if code != 0 and command != "fit":
            written = place / COMMAND_LINES[command].format(f"{command}{case}of{count}").split()[-1]
            if command == "bench" and written.exists():
                json.loads(written.read_text())  # what was measured before is kept, whole
            else:
                assert command in ("info", "demo", "reproduce") or not written.exists()
